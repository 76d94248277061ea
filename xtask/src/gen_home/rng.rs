//! A small deterministic generator: the same seed gives the same home on every machine and with every number of cores.

use std::f64::consts::TAU;

/// `SplitMix64`. Statistical quality is plenty for word soup, and a stream costs one number to start, so that every
/// session can have its own and the order in which threads work through them cannot matter.
#[derive(Debug, Clone)]
pub struct Rng(u64);

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// An independent stream of `seed`.
    pub fn stream(seed: u64, stream: u64) -> Self {
        Self(mix(seed ^ 0x7468_7265_6164_6b70) ^ mix(stream.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number in `0..n`. `n` must not be 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// A number in `low..high`.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low)
    }

    /// A number in `0.0..1.0`.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    pub fn pick<'a, T: ?Sized>(&mut self, items: &'a [impl AsRef<T>]) -> &'a T {
        items[self.below(items.len() as u64) as usize].as_ref()
    }

    pub fn exponential(&mut self, rate: f64) -> f64 {
        -(1.0 - self.unit()).ln() / rate
    }

    pub fn log_normal(&mut self, mu: f64, sigma: f64) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        (mu + sigma * radius * (TAU * self.unit()).cos()).exp()
    }

    /// `n` lower-case hexadecimal digits.
    pub fn hex(&mut self, n: usize) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut out = String::with_capacity(n);
        let mut bits = 0;
        for i in 0..n {
            if i % 16 == 0 {
                bits = self.next();
            }
            out.push(DIGITS[(bits & 15) as usize] as char);
            bits >>= 4;
        }
        out
    }

    /// A version 7 UUID of that moment.
    pub fn uuid7(&mut self, unix_ms: u64) -> String {
        let variant = ["8", "9", "a", "b"][self.below(4) as usize];
        let (high, low) = (unix_ms >> 16, unix_ms & 0xffff);
        format!("{high:08x}-{low:04x}-7{}-{variant}{}-{}", self.hex(3), self.hex(3), self.hex(12))
    }
}
