//! The synchronization primitives under a model checker: many schedules of the same code. A wait without an end is a
//! deadlock and fails. `FOREBAY_SCHEDULES` sets the number of schedules.
//!
//! ```text
//! cargo test -p forebay-threads --features shuttle --test model
//! ```

#![allow(clippy::unwrap_used)] // Only tests are here.

use std::sync::Arc;

use forebay_model::{Fault, Result};
use forebay_threads::sync::Mutex;
use forebay_threads::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use forebay_threads::{
    CountingSemaphore, FlushPool, HandOff, OnComplete, OrderedAppender, ReadTypes, WorkSharingPool,
    parallel_map, run_on_all,
};

/// The schedules of each model.
fn schedules() -> usize {
    std::env::var("FOREBAY_SCHEDULES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(400)
}

/// Runs a model in random schedules, and in schedules with few context switches.
fn check(model: impl Fn() + Send + Sync + 'static) {
    check_schedules(schedules(), model);
}

/// Runs a model for each case. The cases share the schedules.
fn check_cases<C>(cases: Vec<C>, model: impl Fn(&C) + Send + Sync + 'static)
where
    C: Send + Sync + 'static,
{
    let each = schedules().div_ceil(cases.len().max(1)).max(EACH_MIN);
    let model = Arc::new(model);
    for case in cases {
        let model = model.clone();
        check_schedules(each, move || model(&case));
    }
}

/// The least number of schedules of a case.
const EACH_MIN: usize = 60;

fn check_schedules(schedules: usize, model: impl Fn() + Send + Sync + 'static) {
    let model = Arc::new(model);
    let again = model.clone();
    shuttle::check_random(move || model(), schedules);
    shuttle::check_pct(move || again(), schedules, 3);
}

fn failure() -> Fault {
    Fault::internal("a failure of the model")
}

/// Fails unless something failed, and nothing but what the model injects: a panic is a fault, too.
fn assert_injected<T>(ended: Result<T>) {
    let fault = ended.err().expect("nothing failed");
    assert_eq!(fault.message(), failure().message());
}

#[test]
fn permits_bound_concurrency() {
    check(|| {
        let turns = CountingSemaphore::new(2);
        let at_work = AtomicUsize::new(0);
        let work = || {
            for _ in 0..2 {
                let _turn = turns.acquire();
                assert!(at_work.fetch_add(1, Ordering::SeqCst) < 2);
                at_work.fetch_sub(1, Ordering::SeqCst);
            }
            Ok(())
        };
        run_on_all(3, &work)
            .into_iter()
            .collect::<Result<()>>()
            .unwrap();
        assert_eq!(turns.count(), 2);
    });
}

#[test]
fn parallel_map_keeps_order_or_fails() {
    check(|| assert_eq!(parallel_map(3, 5, &Ok).unwrap(), [0, 1, 2, 3, 4]));
    check_cases((0..5).collect(), |bad| {
        let work = |index| {
            if index == *bad {
                Err(failure())
            } else {
                Ok(index)
            }
        };
        assert_injected(parallel_map(3, 5, &work));
    });
}

/// Three threads append items of two parts each in order, with little room for pending parts. The part `bad` fails when
/// it is produced (`false`) or appended (`true`).
fn append_in_order(bad: Option<(usize, bool)>) -> Result<Vec<usize>> {
    let append = |to: &mut Vec<usize>, part: usize| {
        if bad == Some((part, true)) {
            return Err(failure());
        }
        to.push(part);
        Ok(())
    };
    let ordered = OrderedAppender::new(Vec::new(), 2, append);
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let item = |item: usize| {
        for part in [2 * item, 2 * item + 1] {
            if bad == Some((part, false)) {
                return Err(failure());
            }
            ordered.offer(item, Some((part, 1)), false)?;
        }
        ordered.offer(item, None, true)
    };
    let each = || {
        while !stop.load(Ordering::SeqCst) {
            let index = next.fetch_add(1, Ordering::SeqCst);
            if index >= 4 {
                break;
            }
            item(index).inspect_err(|_| {
                stop.store(true, Ordering::SeqCst);
                ordered.stop();
            })?;
        }
        Ok(())
    };
    run_on_all(3, &each).into_iter().collect::<Result<()>>()?;
    ordered.done()
}

#[test]
fn parts_are_appended_in_order_and_a_failure_ends_all() {
    check(|| assert_eq!(append_in_order(None).unwrap(), (0..8).collect::<Vec<_>>()));
    let failures = (0..8).flat_map(|part| [(part, false), (part, true)]);
    check_cases(failures.collect(), |failure| {
        assert_injected(append_in_order(Some(*failure)))
    });
}

/// Threads start at points, of which there are more than threads, each with the sum of the numbers before it. The
/// number `bad` fails to be added.
fn sum_by_hand_off(threads: usize, points: &[usize], bad: Option<usize>) -> Result<usize> {
    let hand_off = HandOff::new(points.iter().copied());
    let next = AtomicUsize::new(0);
    let reads = AtomicUsize::new(0);
    let each = || {
        while let Some(point) = points.get(next.fetch_add(1, Ordering::SeqCst)) {
            let advance = |sum: usize, from: usize, to: usize| {
                if bad.is_some_and(|bad| (from..to).contains(&bad)) {
                    return Err(failure());
                }
                reads.fetch_add(to - from, Ordering::SeqCst);
                Ok(Some(sum + (from..to).sum::<usize>()))
            };
            let found = hand_off
                .state_at(*point, || Ok((1, 0)), advance, |sum| *sum)
                .inspect_err(|_| hand_off.stop())?;
            let Some(found) = found else { break };
            assert_eq!(found, (1..*point).sum::<usize>());
        }
        Ok(())
    };
    run_on_all(threads, &each)
        .into_iter()
        .collect::<Result<()>>()?;
    Ok(reads.into_inner())
}

#[test]
fn a_state_reaches_all_points_however_few_threads_there_are() {
    // One thread moves from point to point: there is a single schedule.
    shuttle::check_random(
        || assert_eq!(sum_by_hand_off(1, &[3, 5, 8, 9], None).unwrap(), 8),
        1,
    );
    for threads in 2..=3 {
        // Everything is read once, up to the last point.
        check(move || assert_eq!(sum_by_hand_off(threads, &[3, 5, 8, 9], None).unwrap(), 8));
        check_cases((1..9).collect(), move |bad| {
            assert_injected(sum_by_hand_off(threads, &[3, 5, 8, 9], Some(*bad)))
        });
    }
}

/// Submits numbers, of which `bad` fails; returns the finished numbers, and whether nothing failed.
fn flush_numbers(
    (threads, waiting): (usize, usize),
    then: bool,
    bad: Option<usize>,
) -> (Vec<usize>, bool) {
    let done = Mutex::new(Vec::new());
    let after = AtomicUsize::new(0);
    let finish = |number: usize| {
        if bad == Some(number) {
            return Err(failure());
        }
        done.lock().unwrap().push(number);
        Ok(())
    };
    let finishers = FlushPool::new(waiting, &finish);
    let give = || (0..4).try_for_each(|number| finishers.submit(number));
    let last = || {
        assert_eq!(done.lock().unwrap().len(), 4);
        after.fetch_add(1, Ordering::SeqCst);
        Ok(())
    };
    let meanwhile = || Ok(());
    let went_well = finishers
        .run_scoped(
            threads,
            give,
            then.then_some(OnComplete {
                meanwhile: &meanwhile,
                last: &last,
            }),
        )
        .is_ok();
    assert_eq!(after.into_inner(), usize::from(then && went_well));
    let mut done = done.into_inner().unwrap();
    done.sort_unstable();
    (done, went_well)
}

#[test]
fn every_submitted_item_is_flushed() {
    for then in [false, true] {
        check(move || assert_eq!(flush_numbers((2, 1), then, None), (vec![0, 1, 2, 3], true)));
        check_cases((0..4).collect(), move |bad| {
            assert!(!flush_numbers((2, 1), then, Some(*bad)).1)
        });
    }
}

/// Numbers, of which some fail to be read.
enum NumberChunks {}

impl ReadTypes for NumberChunks {
    type Task = usize;
    type Chunk = usize;
    type Chunks = std::vec::IntoIter<Result<usize>>;

    fn bytes(_: &usize) -> usize {
        1
    }
}

/// An injected failure.
#[derive(Debug, Clone, Copy, PartialEq)]
enum InjectedFailure {
    /// A task cannot be opened.
    Open(usize),
    /// A chunk cannot be read.
    Read(usize),
    /// A piece of the work that a chunk spawns fails.
    Work(usize),
    /// Everything fails from this read on, as after a signal: tasks that are opened, and chunks.
    CancelledAt(usize),
}

/// The tasks of each range.
const RANGES: [&[usize]; 2] = [&[0, 1, 2], &[3]];

/// The chunks of all tasks.
const CHUNKS: usize = 8;

/// Ranges read the chunks of their tasks, run a computation in parallel, and spawn a task for each chunk, while idle
/// threads take work; returns the finished pieces.
fn share_work(
    (threads, idle): (usize, usize),
    injected: Option<InjectedFailure>,
) -> Result<Vec<usize>> {
    let done = Mutex::new(Vec::new());
    let work = |chunk: &usize, piece: usize| {
        if injected == Some(InjectedFailure::Work(*chunk)) {
            return Err(failure());
        }
        done.lock().unwrap().push(2 * chunk + piece);
        Ok(())
    };
    let reads = AtomicUsize::new(0);
    let check_cancelled = || {
        let read = reads.fetch_add(1, Ordering::SeqCst);
        match injected {
            Some(InjectedFailure::CancelledAt(first)) if read >= first => Err(failure()),
            _ => Ok(()),
        }
    };
    let open = |task: usize| {
        check_cancelled()?;
        if injected == Some(InjectedFailure::Open(task)) {
            return Err(failure());
        }
        let chunk = |chunk: usize| {
            check_cancelled()?;
            if injected == Some(InjectedFailure::Read(chunk)) {
                Err(failure())
            } else {
                Ok(chunk)
            }
        };
        Ok(Vec::from([2 * task, 2 * task + 1].map(chunk)).into_iter())
    };
    let ranges = RANGES.map(<[usize]>::to_vec).to_vec();
    let helpers: WorkSharingPool<'_, usize, NumberChunks> =
        WorkSharingPool::new(&open, &work, ranges, 2);
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let together = helpers.parallel_for();
    let range = |number: usize| {
        let reads = helpers.reader(number);
        for task in RANGES[number] {
            let mut expected = 2 * task;
            for chunk in reads.chunks(*task)? {
                let chunk = chunk?;
                assert_eq!(chunk, expected);
                expected += 1;
                let beside = Arc::new(AtomicUsize::new(0));
                let count = beside.clone();
                together(
                    2,
                    Arc::new(move |_| {
                        count.fetch_add(1, Ordering::SeqCst);
                    }),
                );
                assert_eq!(beside.load(Ordering::SeqCst), 2);
                helpers.spawn(chunk, 2)?;
            }
        }
        Ok(())
    };
    let own = || {
        while !stop.load(Ordering::SeqCst) {
            let number = next.fetch_add(1, Ordering::SeqCst);
            if number >= RANGES.len() {
                break;
            }
            range(number).inspect_err(|_: &Fault| stop.store(true, Ordering::SeqCst))?;
        }
        Ok(())
    };
    match threads {
        1 => helpers.run_scoped(idle, || helpers.run_then_work(&own))?,
        // The checker's scopes must not nest: the end of the outer scope's threads ends the inner scope.
        _ => {
            let role = AtomicUsize::new(0);
            let each = || match role.fetch_add(1, Ordering::SeqCst) {
                role if role < threads => helpers.run_then_work(&own),
                _ => helpers.run_worker(),
            };
            let mut faults: Vec<Fault> = run_on_all(threads + idle, &each)
                .into_iter()
                .filter_map(Result::err)
                .collect();
            // A panic, if there is one, comes first.
            faults.sort_by_key(|fault| fault.message() == failure().message());
            faults.into_iter().next().map_or(Ok(()), Err)?;
        }
    }
    let mut done = done.into_inner().unwrap();
    done.sort_unstable();
    Ok(done)
}

/// A failure of each read, of each piece of work, and at each moment.
fn failures() -> Vec<InjectedFailure> {
    let tasks = RANGES.concat();
    let opened = tasks.iter().copied().map(InjectedFailure::Open);
    let read = (0..CHUNKS).map(InjectedFailure::Read);
    let worked = (0..CHUNKS).map(InjectedFailure::Work);
    let moments = 0..tasks.len() + CHUNKS;
    let cancelled = moments.map(InjectedFailure::CancelledAt);
    opened.chain(read).chain(worked).chain(cancelled).collect()
}

#[test]
fn work_sharing_runs_every_piece_once_or_fails() {
    for sizes in [(1, 1), (2, 1), (1, 2)] {
        check(move || {
            assert_eq!(
                share_work(sizes, None).unwrap(),
                (0..2 * CHUNKS).collect::<Vec<_>>()
            )
        });
        check_cases(failures(), move |injected| {
            assert_injected(share_work(sizes, Some(*injected)))
        });
    }
}
