//! Crash images: random sequences of writing on a simulated disk, which is rebuilt after every step, and after every
//! call, as a power loss may leave it, opened again and compared with what was promised.

mod image;
mod plan;
mod records;
mod world;

use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use threadkeep_record::HistoryMode;
use threadkeep_rollout::appender::Durability;
use threadkeep_rollout::sim::{Crash, Failure, Lie};

use plan::{Plan, Step};
use world::{Trouble, World};

#[derive(Args)]
pub struct Options {
    /// How many images to check at least; the last sequence is finished
    #[arg(long, default_value_t = 10_000)]
    images: u64,
    /// The first sequence; each has its own number, by which it can be repeated
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What was checked.
#[derive(Debug, Default)]
struct Summary {
    sequences: u64,
    steps: [u64; Step::KINDS.len()],
    calls: u64,
    failed_calls: u64,
    power_losses: u64,
    images: u64,
    /// By history mode and policy.
    settings: [[u64; 3]; 2],
    /// By kind of crash.
    kinds: [u64; 7],
}

const KINDS: [&str; 7] = [
    "only what was synced",
    "all that was visible",
    "names as synced, contents written out",
    "names written out, contents as synced",
    "the last write torn in the middle",
    "a random first part, torn at a random byte",
    "any random part, torn and with holes",
];

pub fn run(options: &Options) -> Result<()> {
    let begun = Instant::now();
    let summary = sweep(options, None)?;
    print!("{}", summary.text(options.seed));
    println!("{:.1} s", begun.elapsed().as_secs_f64());
    Ok(())
}

/// `lie` is for the test that the sweep notices what it looks for.
fn sweep(options: &Options, lie: Option<Lie>) -> Result<Summary> {
    let mut summary = Summary::default();
    let mut seed = options.seed;
    while summary.images < options.images {
        let plan = Plan::random(seed);
        let calls = one(&plan, Trouble::None, lie, seed, &mut summary)?;
        for n in 0..calls {
            // Each call in one way; in the other ways in the next sequences.
            let ways = [Failure::Clean, Failure::Torn, Failure::Dropped];
            let failure = ways[(n as u64).wrapping_add(seed) as usize % ways.len()];
            one(&plan, Trouble::Fail(n, failure), lie, seed, &mut summary)?;
            summary.failed_calls += 1;
            one(&plan, Trouble::PowerOff(n), lie, seed, &mut summary)?;
            summary.power_losses += 1;
        }
        summary.calls += calls as u64;
        summary.sequences += 1;
        plan.steps.iter().for_each(|step| summary.steps[step.kind()] += 1);
        seed += 1;
    }
    Ok(summary)
}

/// Runs a plan once and checks its images; returns how many calls it made. A panic is a failure like others.
fn one(plan: &Plan, trouble: Trouble, lie: Option<Lie>, seed: u64, summary: &mut Summary) -> Result<usize> {
    let run = || play(plan, trouble, lie, seed, summary);
    let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(anyhow!("panicked: {}", text.or(panic.downcast_ref::<&str>().map(|s| (*s).into())).unwrap_or_default()))
    });
    result.with_context(|| {
        format!(
            "sequence {seed} ({:?}, {:?}) with {trouble:?}; repeat with `--seed {seed} --images 1`\n{:#?}",
            plan.mode, plan.durability, plan.steps
        )
    })
}

fn play(plan: &Plan, trouble: Trouble, lie: Option<Lie>, seed: u64, summary: &mut Summary) -> Result<usize> {
    let mut world = World::new(plan.mode, plan.durability, trouble);
    if let Some(lie) = lie {
        world.disk.lie(lie);
    }
    let mut struck = false;
    for (i, step) in plan.steps.iter().enumerate() {
        let broken = |e: anyhow::Error| e.context(format!("step {i}, {step:?}"));
        world.step(step).and_then(|()| world.check_visible()).map_err(broken)?;
        let now_struck = world.is_struck() && !struck;
        struck |= now_struck;
        // Without trouble after every step; with it after the step that met it, and at the end.
        let last = i + 1 == plan.steps.len();
        if trouble == Trouble::None || now_struck || (last && matches!(trouble, Trouble::Fail(..))) {
            let first = seed.wrapping_mul(1_000_003).wrapping_add(world.disk.calls() as u64 * 31 + i as u64 * 7);
            for (kind, crash) in crashes(first, if trouble == Trouble::None { 4 } else { 1 }) {
                image::check(&world, crash).map_err(|e| broken(e.context(format!("after {crash:?}"))))?;
                summary.images += 1;
                summary.kinds[kind] += 1;
                let policy = match plan.durability {
                    Durability::None => 0,
                    Durability::OnFlush => 1,
                    Durability::EachAppend => 2,
                };
                summary.settings[usize::from(plan.mode == HistoryMode::Paginated)][policy] += 1;
            }
        }
        if world.disk.is_off() {
            break;
        }
    }
    if let (Trouble::Fail(n, _) | Trouble::PowerOff(n), false) = (trouble, struck) {
        bail!("call {n} was never made");
    }
    Ok(world.disk.calls())
}

/// The kinds of crash, the random ones so many times each.
fn crashes(first_seed: u64, random: u64) -> impl Iterator<Item = (usize, Crash)> {
    let seeds = move || first_seed..first_seed + random;
    let fixed = Crash::ALL.into_iter().enumerate();
    fixed.chain(seeds().map(|s| (5, Crash::InOrder(s)))).chain(seeds().map(|s| (6, Crash::AnyOrder(s))))
}

impl Summary {
    fn text(&self, seed: u64) -> String {
        let mut text = String::new();
        let last = seed + self.sequences.saturating_sub(1);
        let _ = writeln!(text, "{} images, nothing promised was lost, nothing stands twice", self.images);
        let _ = writeln!(text, "\nsequences {seed} to {last}, {} calls of the disk in them", self.calls);
        let _ = writeln!(
            text,
            "each call failed once, in one of 3 ways ({}), and the power gone at each ({})",
            self.failed_calls, self.power_losses
        );
        let steps: Vec<String> = Step::KINDS.iter().zip(self.steps).map(|(kind, n)| format!("{kind} {n}")).collect();
        let _ = writeln!(text, "steps: {}", steps.join(", "));
        for (mode, row) in ["legacy", "paginated"].iter().zip(self.settings) {
            let _ =
                writeln!(text, "images, {mode}: policy none {}, on flush {}, each append {}", row[0], row[1], row[2]);
        }
        for (kind, n) in KINDS.iter().zip(self.kinds) {
            let _ = writeln!(text, "images, {kind}: {n}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_crash_breaks_a_promise() {
        let summary = sweep(&Options { images: 3_000, seed: 9_000 }, None).unwrap_or_else(|e| panic!("{e:?}"));
        assert!(summary.images >= 3_000 && summary.kinds.iter().all(|n| *n > 0), "{summary:?}");
    }

    #[test]
    fn a_disk_that_only_says_that_it_synced_is_found_out() {
        for lie in [Lie::SyncData, Lie::SyncDir] {
            let found = sweep(&Options { images: 2_000, seed: 9_000 }, Some(lie)).map(|summary| summary.images);
            let told = found.as_ref().err().map(|e| format!("{e:#}")).unwrap_or_default();
            let texts = ["were promised", "cannot be resumed", "is lost"];
            assert!(texts.iter().any(|text| told.contains(text)), "{lie:?}: {found:?}");
        }
    }
}
