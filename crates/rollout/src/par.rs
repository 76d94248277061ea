//! Doing the same work on many files with the cores there are.
//!
//! On rayon's threads, which a process starts once: a command works in several short phases, and starting threads for
//! each of them cost more than the files of a small home.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many threads file work uses at most: more only fight over the page cache.
const MOST: usize = 8;

/// How many threads file work uses.
#[must_use]
pub fn threads() -> usize {
    rayon::current_num_threads().min(MOST)
}

/// Makes the calling thread one of the threads that work, so that a command with two cores starts one thread beside
/// its own. For the `main` of a command; in a process that has already set up rayon it changes nothing.
pub fn use_this_thread() {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST);
    // The only failure is that a pool is there already, which then is used.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(threads).use_current_thread().build_global();
}

/// Runs two works side by side.
pub fn both<A: Send, B: Send>(a: impl FnOnce() -> A + Send, b: impl FnOnce() -> B + Send) -> (A, B) {
    rayon::join(a, b)
}

/// Runs `work` on every thread at once, here among them.
pub fn on_all(work: impl Fn() + Sync) {
    rayon::scope(|scope| {
        for _ in 1..threads() {
            scope.spawn(|_| work());
        }
        work();
    });
}

/// Sorts, on all cores where that is worth waking them.
pub fn sort<T: Ord + Send>(items: &mut [T]) {
    use rayon::slice::ParallelSliceMut;
    if items.len() < 16_000 { items.sort_unstable() } else { items.par_sort_unstable() }
}

/// Sorts as told, on all cores where that is worth waking them.
pub fn sort_by<T: Send>(items: &mut [T], order: impl Fn(&T, &T) -> std::cmp::Ordering + Send + Sync) {
    use rayon::slice::ParallelSliceMut;
    if items.len() < 16_000 { items.sort_unstable_by(order) } else { items.par_sort_unstable_by(order) }
}

/// Maps every item, in order, where that is so little work that cores are only worth waking for thousands of items.
pub fn map_light<T: Sync, R: Send>(items: &[T], f: impl Fn(&T) -> R + Send + Sync) -> Vec<R> {
    use rayon::iter::{IndexedParallelIterator as _, IntoParallelRefIterator as _, ParallelIterator as _};
    if items.len() < 4_000 {
        items.iter().map(f).collect()
    } else {
        items.par_iter().with_min_len(1_000).map(f).collect()
    }
}

/// Maps every item, in order, on all cores. Items are begun in their order.
pub fn map<T: Sync, R: Send>(items: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
    map_with(items, || (), |(), item| f(item))
}

/// As [`map`], with a value of each thread's own that all its items share (a buffer).
pub fn map_with<T: Sync, S, R: Send>(
    items: &[T],
    start: impl Fn() -> S + Sync,
    f: impl Fn(&mut S, &T) -> R + Sync,
) -> Vec<R> {
    if threads() < 2 || items.len() < 2 {
        let mut state = start();
        return items.iter().map(|item| f(&mut state, item)).collect();
    }
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::with_capacity(items.len()));
    on_all(|| {
        let mut mine = Vec::new();
        let mut state = None;
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(i) else { break };
            mine.push((i, f(state.get_or_insert_with(&start), item)));
        }
        done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).append(&mut mine);
    });
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_unstable_by_key(|(i, _)| *i);
    done.into_iter().map(|(_, r)| r).collect()
}
