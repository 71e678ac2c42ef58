//! Sequences of batches, and their computation on another thread.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use arrow::array::RecordBatch;
use forebay_model::{Result, catch_panic};
use forebay_threads::start_thread;

/// Batches of rows, up to the first fault.
pub type BatchIter = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// Computes batches on a thread of their own while the caller works on the batches before them, if there is more than
/// one thread. A single batch waits to be taken: it may be a row of many megabytes.
pub fn batches_ahead(batches: BatchIter, threads: usize) -> BatchIter {
    if threads < 2 {
        return batches;
    }
    let (send, receive) = sync_channel(0);
    let shared = Arc::new(Mutex::new(Some(batches)));
    let for_thread = shared.clone();
    let started = start_thread("forebay-batches", move || {
        let sent = catch_panic(|| {
            send_all(take_batches(&for_thread), &send);
            Ok(())
        });
        if let Err(fault) = sent {
            // The receiver may have been dropped.
            let _ = send.send(Err(fault));
        }
    });
    match started {
        Ok(thread) => Box::new(BatchesAhead {
            receive: Some(receive),
            thread: Some(thread),
        }),
        // The system refuses another thread: this one computes the batches.
        Err(_) => take_batches(&shared),
    }
}

/// Takes the batches out of a slot that threads share.
fn take_batches(shared: &Mutex<Option<BatchIter>>) -> BatchIter {
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    shared
        .take()
        .unwrap_or_else(|| Box::new(std::iter::empty()))
}

/// Sends batches up to the first fault, or until the receiver is dropped.
fn send_all(batches: BatchIter, send: &SyncSender<Result<RecordBatch>>) {
    for batch in batches {
        let is_last = batch.is_err();
        if send.send(batch).is_err() || is_last {
            return;
        }
    }
}

/// Batches that a thread computes. Dropping them ends the thread and joins it.
struct BatchesAhead {
    receive: Option<Receiver<Result<RecordBatch>>>,
    thread: Option<JoinHandle<()>>,
}

impl Iterator for BatchesAhead {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.receive.as_ref()?.recv().ok()
    }
}

impl Drop for BatchesAhead {
    fn drop(&mut self) {
        // The thread waits until a batch is received, or fails to send it.
        drop(self.receive.take());
        if let Some(thread) = self.thread.take() {
            // A panic was sent as a fault.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, AsArray, Int64Array};
    use arrow::datatypes::Int64Type;
    use forebay_model::Fault;

    use super::*;

    fn batch(number: i64) -> RecordBatch {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![number]));
        RecordBatch::try_from_iter([("number", column)]).unwrap()
    }

    fn number_of(batch: &RecordBatch) -> i64 {
        batch.column(0).as_primitive::<Int64Type>().value(0)
    }

    #[test]
    fn batches_come_in_order_from_another_thread() {
        for threads in [1, 2] {
            let batches = batches_ahead(Box::new((0..50).map(|number| Ok(batch(number)))), threads);
            let numbers: Vec<i64> = batches.map(|batch| number_of(&batch.unwrap())).collect();
            assert!(numbers.into_iter().eq(0..50), "{threads} threads");
        }
    }

    #[test]
    fn nothing_follows_a_fault_or_a_panic() {
        let faulty = |number: i64| match number {
            3 => Err(Fault::internal("the third batch")),
            number => Ok(batch(number)),
        };
        let panicking = |number: i64| match number {
            3 => panic!("the third batch"),
            number => Ok(batch(number)),
        };
        let cases: [BatchIter; 2] = [
            Box::new((0..9).map(faulty)),
            Box::new((0..9).map(panicking)),
        ];
        for batches in cases {
            let results: Vec<Result<RecordBatch>> = batches_ahead(batches, 2).collect();
            assert_eq!(results.len(), 4);
            assert!(results[..3].iter().all(Result::is_ok));
            assert!(results[3].is_err());
        }
    }

    #[test]
    fn dropping_the_batches_ends_their_thread() {
        let alive = Arc::new(());
        let in_thread = alive.clone();
        let endless = (0..).map(move |number| {
            let _ = &in_thread;
            Ok(batch(number))
        });
        let mut batches = batches_ahead(Box::new(endless), 2);
        assert_eq!(number_of(&batches.next().unwrap().unwrap()), 0);
        drop(batches);
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}
