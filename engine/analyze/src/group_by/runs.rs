//! Spilled groups: runs of keys with their states, in the order of keys.
//!
//! A run is a list of batches, each preceded by its length and its hash in eight bytes each; a length of 0 ends the run. A
//! batch is an Arrow stream with the column of keys and those of the states.

use std::io::{Read, Take, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BinaryBuilder, RecordBatch};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use forebay_model::{
    Fault, Result, ScratchSpace, SpillFile, SpillWriter, StateDecoder, StateEncoder,
};
use xxhash_rust::xxh3::xxh3_64;

use super::accumulator::{Accumulator, foreign_states};

/// Most runs of one state on any budget; more are merged. A merge into fewer runs decodes and
/// encodes each group once more.
const RUNS_MAX_LEAST: usize = 32;

/// Most runs of one state on a large budget: the shares of eight states.
const RUNS_MAX_GREATEST: usize = 128;

/// One part in this many of the budget is for reading runs.
const RUNS_SHARE: usize = 4;

/// Bytes of memory that reading a run takes: a batch of groups, as bytes and as columns.
const RUN_BYTES: usize = 2 * RUN_BATCH_BYTES;

/// Most runs of a state on a budget, which are all read at once in the end.
pub(super) fn runs_max(budget_bytes: usize) -> usize {
    let runs = budget_bytes / RUNS_SHARE / RUN_BYTES;
    runs.clamp(RUNS_MAX_LEAST, RUNS_MAX_GREATEST)
}

/// Bytes of a batch of a run, about: each run that is merged holds one.
pub(super) const RUN_BATCH_BYTES: usize = 128 << 10;

/// Groups and bytes of merged states, about.
pub(super) const MERGED_GROUPS_MAX: usize = 8192;
pub(super) const MERGED_BYTES_MAX: usize = 2 << 20;

/// A spilled run.
#[derive(Clone)]
pub(super) struct GroupRun {
    pub(super) file: Arc<dyn SpillFile>,
    /// Number that is added to the positions of its rows.
    pub(super) shift: u64,
}

/// Writes one run.
pub(super) struct GroupRunWriter(Box<dyn SpillWriter>);

impl GroupRunWriter {
    pub(super) fn new(scratch: &dyn ScratchSpace) -> Result<Self> {
        Ok(GroupRunWriter(scratch.create()?))
    }

    /// Appends groups; keys ascend.
    pub(super) fn push(&mut self, keys: BinaryArray, states: Vec<ArrayRef>) -> Result<()> {
        write_groups(&mut self.0, keys, states)
    }

    pub(super) fn finish(mut self) -> Result<GroupRun> {
        write_groups_end(&mut self.0)?;
        Ok(GroupRun {
            file: self.0.finish()?,
            shift: 0,
        })
    }
}

/// Writes a batch of groups.
pub(super) fn write_groups(
    out: &mut dyn Write,
    keys: BinaryArray,
    states: Vec<ArrayRef>,
) -> Result<()> {
    let mut columns: Vec<ArrayRef> = vec![Arc::new(keys)];
    columns.extend(states);
    let columns = columns.into_iter().enumerate();
    let named = columns.map(|(index, column)| (index.to_string(), column, true));
    let batch = RecordBatch::try_from_iter_with_nullable(named)?;
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::try_new(&mut bytes, batch.schema_ref())?;
    writer.write(&batch)?;
    writer.finish()?;
    drop(writer);
    let mut out = StateEncoder(out);
    out.u64(bytes.len() as u64)?;
    out.u64(xxh3_64(&bytes))?;
    out.raw(&bytes)
}

/// Ends the batches of groups.
pub(super) fn write_groups_end(out: &mut dyn Write) -> Result<()> {
    StateEncoder(out).u64(0)
}

/// A batch of groups.
pub(super) struct GroupBatch {
    pub(super) keys: BinaryArray,
    pub(super) states: Vec<ArrayRef>,
    pub(super) bytes: usize,
}

/// Bytes of the length and the hash before a batch.
const HEAD_BYTES: u64 = 16;

/// Reads a batch of groups, of an input that has at most so many bytes; `None` at the end.
pub(super) fn read_groups(input: &mut dyn Read, input_bytes: u64) -> Result<Option<GroupBatch>> {
    let length = StateDecoder(&mut *input).u64()?;
    if length == 0 {
        return Ok(None);
    }
    if length.saturating_add(HEAD_BYTES) > input_bytes {
        return Err(foreign_states());
    }
    // Arrow's reader panics on bytes that are damaged, so they are checked before.
    let hash = StateDecoder(&mut *input).u64()?;
    let mut bytes = Vec::new();
    input
        .take(length)
        .read_to_end(&mut bytes)
        .map_err(|_| foreign_states())?;
    if bytes.len() as u64 != length || xxh3_64(&bytes) != hash {
        return Err(foreign_states());
    }
    let batch = StreamReader::try_new(bytes.as_slice(), None)?
        .next()
        .ok_or_else(foreign_states)??;
    let (keys, states) = batch.columns().split_first().ok_or_else(foreign_states)?;
    let keys = keys
        .as_binary_opt::<i32>()
        .ok_or_else(foreign_states)?
        .clone();
    if keys.is_empty() {
        return Err(foreign_states());
    }
    Ok(Some(GroupBatch {
        keys,
        states: states.to_vec(),
        bytes: bytes.len(),
    }))
}

/// Copies batches of groups up to their end; false if there is none. Their hashes are compared when they are read.
pub(super) fn copy_groups(input: &mut dyn Read, out: &mut dyn Write) -> Result<bool> {
    let mut batches = 0;
    loop {
        let length = StateDecoder(&mut *input).u64()?;
        StateEncoder(&mut *out).u64(length)?;
        if length == 0 {
            return Ok(batches > 0);
        }
        batches += 1;
        let body_length = length
            .checked_add(size_of::<u64>() as u64)
            .ok_or_else(foreign_states)?;
        let copied = std::io::copy(&mut input.take(body_length), out);
        if copied.map_err(|error| Fault::disk("groups cannot be copied", error))? != body_length {
            return Err(foreign_states());
        }
    }
}

/// A batch of a run that is being merged.
struct RunCursor {
    /// The bytes of the run that are not read yet.
    input: Take<Box<dyn Read + Send>>,
    shift: u64,
    keys: BinaryArray,
    states: Vec<ArrayRef>,
    at: usize,
    row_bytes: usize,
    /// The merged groups of the rows before `at`.
    groups: Vec<u32>,
}

impl RunCursor {
    fn open(run: &GroupRun) -> Result<Option<Self>> {
        let input = run.file.read()?.take(run.file.bytes());
        let shift = run.shift;
        let keys = BinaryArray::new_null(0);
        let mut cursor = RunCursor {
            input,
            shift,
            keys,
            states: Vec::new(),
            at: 0,
            row_bytes: 0,
            groups: Vec::new(),
        };
        Ok(cursor.refill()?.then_some(cursor))
    }

    /// Reads the next batch; false at the end.
    fn refill(&mut self) -> Result<bool> {
        let input_bytes = self.input.limit();
        let Some(GroupBatch {
            keys,
            states,
            bytes,
        }) = read_groups(&mut self.input, input_bytes)?
        else {
            return Ok(false);
        };
        self.row_bytes = bytes / keys.len();
        self.keys = keys;
        self.states = states;
        self.at = 0;
        Ok(true)
    }

    fn key(&self) -> &[u8] {
        self.keys.value(self.at)
    }

    /// Merges the rows that have been passed.
    fn flush(&mut self, into: &mut [Box<dyn Accumulator>], groups: usize) -> Result<()> {
        let passed = self.groups.len();
        let slices = self
            .states
            .iter()
            .map(|column| column.slice(self.at - passed, passed));
        let columns: Vec<ArrayRef> = slices.collect();
        let states = NewStates {
            groups: &self.groups,
            columns: &columns,
            shift: self.shift,
        };
        merge_states(into, groups, &states)?;
        self.groups.clear();
        Ok(())
    }
}

/// States to be merged.
pub(super) struct NewStates<'s> {
    /// The group of each row of the columns.
    pub(super) groups: &'s [u32],
    pub(super) columns: &'s [ArrayRef],
    /// Number that is added to the positions of the rows behind the states.
    pub(super) shift: u64,
}

/// Merges states into accumulators of so many groups.
pub(super) fn merge_states(
    into: &mut [Box<dyn Accumulator>],
    group_count: usize,
    states: &NewStates<'_>,
) -> Result<()> {
    let mut columns = states.columns;
    for accumulator in into {
        accumulator.resize(group_count);
        let read = accumulator.merge(states.groups, columns, states.shift)?;
        columns = columns.get(read..).ok_or_else(foreign_states)?;
    }
    Ok(())
}

/// Merges runs: a min-heap of cursors.
pub(super) struct RunMerge {
    heap: Vec<RunCursor>,
    groups_max: usize,
}

impl RunMerge {
    /// Merges at most so many groups at once.
    pub(super) fn open(runs: &[GroupRun], groups_max: usize) -> Result<Self> {
        let mut heap = Vec::with_capacity(runs.len());
        for run in runs {
            heap.extend(RunCursor::open(run)?);
        }
        let mut merge = RunMerge { heap, groups_max };
        for at in (0..merge.heap.len() / 2).rev() {
            merge.sift_down(at);
        }
        Ok(merge)
    }

    /// Merges the next groups into fresh accumulators; returns their keys, which are empty at the end.
    pub(super) fn next(&mut self, into: &mut [Box<dyn Accumulator>]) -> Result<BinaryArray> {
        let mut keys = BinaryBuilder::new();
        let mut groups = 0;
        let mut bytes = 0;
        let mut last = Vec::new();
        while let Some(cursor) = self.heap.first_mut() {
            if groups == 0 || cursor.key() != last {
                if groups == self.groups_max || bytes > MERGED_BYTES_MAX {
                    break;
                }
                last.clear();
                last.extend_from_slice(cursor.key());
                keys.append_value(&last);
                groups += 1;
            }
            // The row is only noted: rows are merged by column, many at a time.
            cursor.groups.push(groups as u32 - 1);
            bytes += cursor.row_bytes;
            cursor.at += 1;
            if cursor.at == cursor.keys.len() {
                cursor.flush(into, groups)?;
                if !cursor.refill()? {
                    self.heap.swap_remove(0);
                }
            }
            self.sift_down(0);
        }
        for cursor in &mut self.heap {
            cursor.flush(into, groups)?;
        }
        for accumulator in into {
            accumulator.resize(groups);
        }
        Ok(keys.finish())
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let mut least = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.heap.len() && self.heap[child].key() < self.heap[least].key() {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            self.heap.swap(at, least);
            at = least;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use arrow::array::Int64Array;
    use forebay_model::codes;

    use super::*;

    fn written_groups() -> Vec<u8> {
        let keys = BinaryArray::from_vec(vec![b"a".as_slice(), b"b".as_slice()]);
        let states: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(vec![1, 2]))];
        let mut bytes = Vec::new();
        write_groups(&mut bytes, keys, states).unwrap();
        write_groups_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn groups_are_read_up_to_their_end() {
        let bytes = written_groups();
        let input_bytes = bytes.len() as u64;
        let mut input = Cursor::new(bytes).take(input_bytes);
        let batch = read_groups(&mut input, input_bytes).unwrap().unwrap();
        assert_eq!(batch.keys.value(1), b"b");
        let rest_bytes = input.limit();
        assert!(read_groups(&mut input, rest_bytes).unwrap().is_none());
        assert_eq!(input.limit(), 0);
    }

    /// A length beyond the file is damage, and is no reason to read all of it.
    #[test]
    fn lengths_beyond_the_input_are_refused_before_it_is_read() {
        for length in [1 << 40, u64::MAX] {
            let mut bytes = written_groups();
            let input_bytes = bytes.len() as u64;
            bytes[..8].copy_from_slice(&encoded(length));
            let mut input = Cursor::new(bytes);
            let fault = read_groups(&mut input, input_bytes).err().unwrap();
            assert_eq!(fault.code(), codes::CORRUPT);
            assert_eq!(input.position(), 8);
        }
    }

    #[test]
    fn more_memory_reads_more_runs() {
        let cases = [
            (0, 32),
            (32 << 20, 32),
            (64 << 20, 64),
            (128 << 20, 128),
            (usize::MAX, 128),
        ];
        for (budget_bytes, expected) in cases {
            assert_eq!(runs_max(budget_bytes), expected, "{budget_bytes} bytes");
        }
    }

    fn encoded(number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        StateEncoder(&mut bytes).u64(number).unwrap();
        bytes
    }
}
