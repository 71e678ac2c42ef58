//! Threads that share items.

use std::sync::Mutex;

use forebay_threads::start_scoped;

/// Applies a function to each item; results do not depend on the thread of an item.
pub fn for_each_parallel<T: Send>(
    threads: usize,
    items: &mut [T],
    work: impl Fn(usize, &mut T) + Sync,
) {
    let each = items.len().div_ceil(threads.max(1)).max(1);
    let shares_count = items.len().div_ceil(each);
    let shares = Mutex::new(items.chunks_mut(each).enumerate());
    let next_share = || shares.lock().ok()?.next();
    let take_shares = || {
        while let Some((share, items)) = next_share() {
            for (item, number) in items.iter_mut().zip(share * each..) {
                work(number, item);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..shares_count {
            // The threads that the system starts take the shares of the others.
            if start_scoped(scope, take_shares).is_err() {
                break;
            }
        }
        take_shares();
    });
}
