//! The memory pool of the query engine. Sorts that can spill take all they can get; their merges
//! cannot spill and would find no memory left. So sorts may use only a part of the memory. The
//! engine does not count all its memory; large requests are therefore also checked against the
//! memory of the process.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use datafusion::common::DataFusionError;
use datafusion::execution::memory_pool::{
    FairSpillPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation, human_readable_size,
};
use forebay_cluster::wire_error;
use forebay_model::{Fault, codes};
use forebay_storage::MemoryBudget;

/// The percentage that sorts may fill. A sort reserves twice the bytes of its rows. When it spills,
/// its merge holds the rows of all batches and their keys in another form: 1.1 times the bytes of
/// texts of 64 bytes, 2.3 times those of two numbers of 32 bits. All columns are keys, since a
/// query ends in a total order. Half of 40 % times 3.3 are 66 %, which leaves room for `LEFT_SHARE`
/// and a few other merges.
const SORT_PERCENT: usize = 40;

/// One part in this many is left free by sorts and their own merges.
const LEFT_SHARE: usize = 8;

/// One part in this many suffices for a merge of two streams.
const MERGE_SHARE: usize = 32;

/// One part in this many suffices for the merges of two streams of many sorts.
const MINIMA_SHARE: usize = 4;

/// One part in this many is what a single reservation of a merge may hold, divided by the number of sorts.
const MERGES_SHARE: usize = 4;

/// Requests of at least this many bytes are checked against the memory of the process: asking the system costs some
/// microseconds.
const LARGE_BYTES: usize = 256 << 10;

/// The beginning of the query engine's names for the side that a join of all pairs holds.
const LOOP_LOAD: &str = "NestedLoopJoinLoad";

/// The query engine's names of its sorts and of their merges.
const SORT: &str = "ExternalSorter";
const MERGE: &str = "ExternalSorterMerge";

/// The words before the memory that a process needs, at the end of an error of the pool.
const NEEDS: &str = "; a process needs at least ";

/// The hint for an error of the pool: the memory that the request needs, where the error tells it.
pub(crate) fn memory_hint(message: &str) -> String {
    let needed = message.rsplit_once(NEEDS);
    match needed.and_then(|(_, text)| text.lines().next()) {
        Some(text) => format!("raise --memory: a process needs at least {text}"),
        None => "raise --memory".to_owned(),
    }
}

/// A pool of `bytes` bytes.
#[derive(Debug)]
pub struct QueryMemoryPool {
    bytes: usize,
    memory: MemoryBudget,
    is_of_stages: bool,
    spilling: FairSpillPool,
    /// Bytes held by consumers that cannot spill.
    fixed: AtomicUsize,
    /// Registered consumers that can spill: sorts that have not seen all their rows, above all.
    sorts: AtomicUsize,
    /// Registered merges of sorts.
    merges: AtomicUsize,
    /// Held while a consumer asks and takes.
    taking: Mutex<()>,
}

impl QueryMemoryPool {
    /// The engine's part of the memory.
    pub fn new(memory: MemoryBudget) -> Self {
        QueryMemoryPool::with_stages(memory, false)
    }

    /// The engine's part of the memory, for queries that are divided among processes. A join of all pairs would read again
    /// what another process sends once, and give rows of its first side several times: it is refused where that does not
    /// fit.
    pub fn of_stages(memory: MemoryBudget) -> Self {
        QueryMemoryPool::with_stages(memory, true)
    }

    fn with_stages(memory: MemoryBudget, is_of_stages: bool) -> Self {
        let bytes = memory.engine_bytes();
        let spilling = FairSpillPool::new(bytes / 100 * SORT_PERCENT);
        let [fixed, sorts, merges] = [0; 3].map(AtomicUsize::new);
        QueryMemoryPool {
            bytes,
            memory,
            is_of_stages,
            spilling,
            fixed,
            sorts,
            merges,
            taking: Mutex::default(),
        }
    }

    /// The bytes that a reservation has to leave to others when it holds `bytes_held`.
    fn left(&self, reservation: &MemoryReservation, bytes_held: usize) -> usize {
        let consumer = reservation.consumer();
        // Sorts and their own merges leave memory for the merges behind them, which need little at once.
        let behind = if consumer.name().starts_with(SORT) {
            self.bytes / LEFT_SHARE
        } else {
            0
        };
        // Merges of spilled runs take as many streams as they get memory for, and merge the rest later. The first merge
        // must leave the others enough for the minimum.
        let least = self.bytes / MERGE_SHARE;
        let others = self.merges.load(Ordering::Relaxed).saturating_sub(1);
        let minima = (others * least).min(self.bytes / MINIMA_SHARE);
        behind
            + if is_merge(consumer) && bytes_held > least {
                minima
            } else {
                0
            }
    }

    /// The bytes that one reservation of a merge may hold, no less than what a sort reserves ahead. A merge of spilled runs
    /// has one for its streams, and keeps it. A sort that still spills has one for the rows of a run, which are a fifth of
    /// the memory divided by the number of sorts.
    fn most(&self, reservation: &MemoryReservation) -> usize {
        let sorts = self.sorts.load(Ordering::Relaxed).max(1);
        if self.merges.load(Ordering::Relaxed) > 1 && is_merge(reservation.consumer()) {
            (self.bytes / MERGES_SHARE / sorts).max(self.bytes / MERGE_SHARE)
        } else {
            usize::MAX
        }
    }

    /// Bytes of a pool that has room for `wanted_bytes`, where this one leaves `left_bytes` to others.
    fn roomy_bytes(&self, wanted_bytes: usize, left_bytes: usize) -> usize {
        // The bytes that sorts leave to other operators grow with the pool.
        let usable_bytes = self.bytes.saturating_sub(left_bytes).max(1);
        let bytes = wanted_bytes as u128 * self.bytes as u128 / usable_bytes as u128;
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// The words of an error: what is wanted, and the `--memory` without which it cannot be had.
    fn refusal(
        &self,
        reservation: &MemoryReservation,
        additional: usize,
        least_mib: u64,
    ) -> String {
        let name = reservation.consumer().name();
        let reserved_text = human_readable_size(self.reserved());
        let additional_text = human_readable_size(additional);
        let limit_text = human_readable_size(self.bytes);
        let memory_mib = self.memory.limit_bytes >> 20;
        format!(
            "{name} wants {additional_text} more where {reserved_text} of {limit_text} are held\
             {NEEDS}{least_mib}MiB for this request, and has {memory_mib}MiB"
        )
    }

    fn exhausted(
        &self,
        reservation: &MemoryReservation,
        additional: usize,
        least_mib: u64,
    ) -> DataFusionError {
        let message = self.refusal(reservation, additional, least_mib);
        let name = reservation.consumer().name();
        if self.is_of_stages && name.starts_with(LOOP_LOAD) {
            let hint = memory_hint(&message);
            let message = format!(
                "a side of a join of all pairs does not fit into the memory limit of a process: \
                 {message}"
            );
            let fault = Fault::new(codes::MEMORY, message).hint(hint);
            return wire_error(&fault, None);
        }
        DataFusionError::ResourcesExhausted(message)
    }

    /// The error of a request beyond the part of one consumer that can spill.
    fn unfair(&self, reservation: &MemoryReservation, additional: usize) -> DataFusionError {
        let sorts = self.sorts.load(Ordering::Relaxed).max(1);
        let part_bytes = reservation.size().saturating_add(additional);
        let pool_bytes = part_bytes.saturating_mul(sorts) / SORT_PERCENT;
        let least_mib = self.memory.least_engine_mib(pool_bytes.saturating_mul(100));
        DataFusionError::ResourcesExhausted(self.refusal(reservation, additional, least_mib))
    }

    /// The error of a request for which the pool has to have so many bytes.
    fn exhausted_below(
        &self,
        reservation: &MemoryReservation,
        additional: usize,
        pool_bytes: usize,
    ) -> DataFusionError {
        let least_mib = self.memory.least_engine_mib(pool_bytes);
        self.exhausted(reservation, additional, least_mib)
    }
}

/// True if the consumer merges the runs of a sort.
fn is_merge(consumer: &MemoryConsumer) -> bool {
    consumer.name().starts_with(MERGE)
}

impl fmt::Display for QueryMemoryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "forebay({})", human_readable_size(self.bytes))
    }
}

impl MemoryPool for QueryMemoryPool {
    fn name(&self) -> &str {
        "forebay"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.merges
            .fetch_add(usize::from(is_merge(consumer)), Ordering::Relaxed);
        self.sorts
            .fetch_add(usize::from(consumer.can_spill()), Ordering::Relaxed);
        self.spilling.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.merges
            .fetch_sub(usize::from(is_merge(consumer)), Ordering::Relaxed);
        self.sorts
            .fetch_sub(usize::from(consumer.can_spill()), Ordering::Relaxed);
        self.spilling.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        if reservation.consumer().can_spill() {
            self.spilling.grow(reservation, additional);
        } else {
            self.fixed.fetch_add(additional, Ordering::Relaxed);
        }
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        if reservation.consumer().can_spill() {
            self.spilling.shrink(reservation, shrink);
        } else {
            self.fixed.fetch_sub(shrink, Ordering::Relaxed);
        }
    }

    fn try_grow(
        &self,
        reservation: &MemoryReservation,
        additional: usize,
    ) -> Result<(), DataFusionError> {
        // Asking and taking are one step: of two requests, the second counts the first.
        let _taking = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        let is_large = additional >= LARGE_BYTES;
        if is_large && let Some(shortage) = self.memory.shortage(additional as u64) {
            return Err(self.exhausted(reservation, additional, shortage.least_mib()));
        }
        let grown_bytes = reservation.size() + additional;
        if grown_bytes > self.most(reservation) {
            // The larger one of two shares is what a merge may hold.
            let sorts = self.sorts.load(Ordering::Relaxed).max(1);
            let parts = sorts.saturating_mul(MERGES_SHARE).min(MERGE_SHARE);
            let pool_bytes = grown_bytes.saturating_mul(parts);
            return Err(self.exhausted_below(reservation, additional, pool_bytes));
        }
        let left_bytes = self.left(reservation, grown_bytes);
        let free = self.bytes.saturating_sub(left_bytes);
        if reservation.consumer().can_spill() {
            let wanted_bytes = self.reserved().saturating_add(additional);
            if wanted_bytes > free {
                let pool_bytes = self.roomy_bytes(wanted_bytes, left_bytes);
                return Err(self.exhausted_below(reservation, additional, pool_bytes));
            }
            let grown = self.spilling.try_grow(reservation, additional);
            return grown.map_err(|_| self.unfair(reservation, additional));
        }
        let spilling_bytes = self.spilling.reserved();
        let free = free.saturating_sub(spilling_bytes);
        let fixed = self.fixed.load(Ordering::Relaxed);
        if fixed.saturating_add(additional) > free {
            let wanted_bytes = fixed.saturating_add(spilling_bytes);
            let wanted_bytes = wanted_bytes.saturating_add(additional);
            let pool_bytes = self.roomy_bytes(wanted_bytes, left_bytes);
            return Err(self.exhausted_below(reservation, additional, pool_bytes));
        }
        self.fixed.fetch_add(additional, Ordering::Relaxed);
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.spilling.reserved() + self.fixed.load(Ordering::Relaxed)
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Asks a pool of half of some memory for MiB, beside those that another consumer holds.
    fn ask(
        consumer: MemoryConsumer,
        memory_mib: u64,
        other_mib: usize,
        wanted_mib: usize,
    ) -> Result<(), DataFusionError> {
        let pool = QueryMemoryPool::new(MemoryBudget::new(memory_mib << 20));
        let pool: Arc<dyn MemoryPool> = Arc::new(pool);
        let others = MemoryConsumer::new("Others").register(&pool);
        others.try_grow(other_mib << 20)?;
        consumer.register(&pool).try_grow(wanted_mib << 20)
    }

    fn sort() -> MemoryConsumer {
        MemoryConsumer::new(SORT).with_can_spill(true)
    }

    fn join() -> MemoryConsumer {
        MemoryConsumer::new("HashJoinInput")
    }

    /// The memory that an error names has room for the request.
    #[test]
    fn errors_name_the_memory_that_a_request_needs() {
        let cases = [
            (false, 0, 2_200, 4_416),
            (false, 2_000, 100, 4_224),
            // Beyond the part of one sort, and beyond what sorts leave to others.
            (true, 0, 900, 4_544),
            (true, 1_700, 200, 4_352),
        ];
        for (is_sort, other_mib, wanted_mib, least_mib) in cases {
            let consumer = if is_sort { sort } else { join };
            let refused = ask(consumer(), 4_096, other_mib, wanted_mib);
            let Err(DataFusionError::ResourcesExhausted(message)) = refused else {
                panic!("{refused:?}");
            };
            let expected = format!(
                "raise --memory: a process needs at least {least_mib}MiB for this request, and has \
                 4096MiB"
            );
            assert_eq!(memory_hint(&message), expected);
            // As consumers are told of it.
            let wrapped = format!("several consumers\nError: {message}\nand more");
            assert_eq!(memory_hint(&wrapped), expected);
            let granted = ask(consumer(), least_mib, other_mib, wanted_mib);
            assert!(granted.is_ok(), "{granted:?}");
        }
        assert_eq!(memory_hint("no memory"), "raise --memory");
    }
}
