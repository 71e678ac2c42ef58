//! Sorted runs of (key, value): the encoding of states and of their spilled parts.
//!
//! A run is a list of blocks, each preceded by its length in four bytes; a block of length 0 ends the run. An entry
//! is the length of the key, the key, and the value. A block ends after the entry with which it reaches
//! `BLOCK_BYTES`, so that a run's bytes depend on its entries alone.

use std::cmp::Ordering;
use std::io::{Read, Write};
use std::sync::Arc;

use forebay_model::{
    Fault, Result, ScratchSpace, SpillFile, StateDecoder, StateEncoder, TOKEN_BYTES_MAX, codes,
};
use xxhash_rust::xxh3::xxh3_64;

/// Block size in bytes: 64 runs that are read concurrently then hold about 1 MiB.
const BLOCK_BYTES: usize = 16 << 10;

/// Most bytes of a key: a token, with room for a tag and for escaped zero bytes.
const KEY_BYTES_MAX: usize = 2 * TOKEN_BYTES_MAX + 64;

/// Most bytes of a block; a longer one is corrupt. It fits the longest key and a value of 64 KiB.
const BLOCK_BYTES_MAX: usize = BLOCK_BYTES + KEY_BYTES_MAX + (64 << 10);

/// Most runs of one state; more runs are merged.
const RUNS_MAX: usize = 64;

/// Refuses keys that are too long.
pub(crate) fn check_key(bytes: usize) -> Result<()> {
    if bytes <= KEY_BYTES_MAX {
        return Ok(());
    }
    let message = format!("a key of {bytes} bytes is longer than {KEY_BYTES_MAX}");
    Err(Fault::new(codes::LIMIT, message).hint("hash such values, or leave the column out"))
}

/// A mergeable value per key.
pub(crate) trait SpillValue: Clone + Default + Send + 'static {
    /// Merges another value of the same key.
    fn merge_value(&mut self, other: &Self);
    /// Writes the canonical bytes.
    fn write(&self, out: &mut StateEncoder<'_>) -> Result<()>;
    /// Appends the canonical bytes to a block.
    fn append(&self, block: &mut Vec<u8>) -> Result<()> {
        self.write(&mut StateEncoder(block))
    }
    /// Reads bytes written by `write`.
    fn read(input: &mut StateDecoder<'_>) -> Result<Self>;
    /// Reads bytes written by `append` off the front of a block.
    fn read_front(block: &mut &[u8]) -> Result<Self> {
        Self::read(&mut StateDecoder(block))
    }
    /// Bytes of heap memory.
    fn heap_bytes(&self) -> usize {
        0
    }
}

impl SpillValue for u64 {
    fn merge_value(&mut self, other: &Self) {
        *self += other;
    }

    fn write(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        out.varint(*self)
    }

    fn append(&self, block: &mut Vec<u8>) -> Result<()> {
        // Most values are small counts: a fast path for one byte.
        match *self {
            small @ 0..0x80 => block.push(small as u8),
            _ => self.write(&mut StateEncoder(block))?,
        }
        Ok(())
    }

    fn read(input: &mut StateDecoder<'_>) -> Result<Self> {
        input.count()
    }

    fn read_front(block: &mut &[u8]) -> Result<Self> {
        let (value, tail) = match **block {
            [low @ 0..0x80, ref tail @ ..] => (u64::from(low), tail),
            [low, high @ 0..0x80, ref tail @ ..] => {
                (u64::from(low & 0x7f) | u64::from(high) << 7, tail)
            }
            _ => return Self::read(&mut StateDecoder(block)),
        };
        *block = tail;
        Ok(value)
    }
}

/// Order of keys in runs and state bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyOrder {
    /// By 64-bit hash, then by bytes: cheap to sort.
    Hash,
    /// By bytes.
    Bytes,
}

/// A key with its hash.
#[derive(Clone, Copy)]
pub(crate) struct HashedKey<'k> {
    pub hash: u64,
    pub bytes: &'k [u8],
}

impl KeyOrder {
    pub(crate) fn compare(self, key: HashedKey<'_>, other: HashedKey<'_>) -> Ordering {
        match self {
            KeyOrder::Hash => {
                let by_hash = key.hash.cmp(&other.hash);
                by_hash.then_with(|| key.bytes.cmp(other.bytes))
            }
            KeyOrder::Bytes => key.bytes.cmp(other.bytes),
        }
    }

    /// Number compared before the bytes.
    pub(crate) fn prefix(self, key: &[u8]) -> u64 {
        match self {
            KeyOrder::Hash => xxh3_64(key),
            KeyOrder::Bytes => bytes_prefix(key),
        }
    }
}

/// The first eight bytes as a number that sorts like them.
pub(crate) fn bytes_prefix(key: &[u8]) -> u64 {
    if let Some(head) = key.first_chunk() {
        return u64::from_be_bytes(*head);
    }
    let mut padded = [0; 8];
    padded[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(padded)
}

/// Index of the share of a key among `shares`, by its hash.
pub(crate) fn share_index(key: &[u8], shares: usize) -> usize {
    ((u128::from(xxh3_64(key)) * shares as u128) >> 64) as usize
}

/// Writes each entry to the run of its share; `each` pushes all entries in order.
pub(crate) fn write_shares<V: SpillValue>(
    shares: &mut [&mut dyn Write],
    each: impl FnOnce(&mut dyn FnMut(&[u8], &V) -> Result<()>) -> Result<()>,
) -> Result<()> {
    let count = shares.len();
    let mut runs: Vec<_> = shares.iter_mut().map(RunWriter::new).collect();
    each(&mut |key, value| runs[share_index(key, count)].push(key, value))?;
    for run in runs {
        run.finish()?;
    }
    Ok(())
}

/// Writes one run.
pub(crate) struct RunWriter<W: Write> {
    out: W,
    block: Vec<u8>,
}

impl<W: Write> RunWriter<W> {
    pub(crate) fn new(out: W) -> Self {
        RunWriter {
            out,
            block: Vec::with_capacity(BLOCK_BYTES),
        }
    }

    /// Appends an entry; keys must ascend.
    pub(crate) fn push(&mut self, key: &[u8], value: &impl SpillValue) -> Result<()> {
        (key.len() as u64).append(&mut self.block)?;
        self.block.extend_from_slice(key);
        value.append(&mut self.block)?;
        if self.block.len() >= BLOCK_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let length = u32::try_from(self.block.len())
            .map_err(|_| Fault::internal("a block of a run is too long"))?;
        let mut out = StateEncoder(&mut self.out);
        out.raw(&length.to_le_bytes())?;
        out.raw(&self.block)?;
        self.block.clear();
        Ok(())
    }

    /// Ends the run.
    pub(crate) fn finish(mut self) -> Result<W> {
        if !self.block.is_empty() {
            self.flush()?;
        }
        // An empty block ends the run.
        self.flush()?;
        Ok(self.out)
    }
}

/// Reads one run, entry by entry.
pub(crate) struct RunReader<R: Read, V> {
    input: R,
    order: KeyOrder,
    block: Vec<u8>,
    at: usize,
    key: (usize, usize),
    prefix: u64,
    /// Value of the current entry.
    pub(crate) value: V,
}

impl<R: Read, V: SpillValue> RunReader<R, V> {
    pub(crate) fn new(input: R, order: KeyOrder) -> Self {
        RunReader {
            input,
            order,
            block: Vec::new(),
            at: 0,
            key: (0, 0),
            prefix: 0,
            value: V::default(),
        }
    }

    /// Advances to the next entry; false at the end.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        if self.at == self.block.len() && !self.refill()? {
            return Ok(false);
        }
        let mut unread = &self.block[self.at..];
        // Most keys are short: their length is one byte.
        let length = match *unread {
            [short @ 0..0x80, ref tail @ ..] => {
                unread = tail;
                usize::from(short)
            }
            _ => StateDecoder(&mut unread).length(KEY_BYTES_MAX)?,
        };
        let start = self.block.len() - unread.len();
        let Some((key, tail)) = unread.split_at_checked(length) else {
            return Err(Fault::new(codes::CORRUPT, "a state has a truncated key"));
        };
        self.key = (start, start + length);
        self.prefix = self.order.prefix(key);
        unread = tail;
        self.value = V::read_front(&mut unread)?;
        self.at = self.block.len() - unread.len();
        Ok(true)
    }

    fn refill(&mut self) -> Result<bool> {
        let mut input = StateDecoder(&mut self.input);
        let mut length = [0; 4];
        input.raw(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > BLOCK_BYTES_MAX {
            let message = format!("a state holds a block of {length} bytes");
            return Err(Fault::new(codes::CORRUPT, message));
        }
        self.block.resize(length, 0);
        self.at = 0;
        input.raw(&mut self.block)?;
        Ok(length > 0)
    }

    /// Key of the current entry.
    pub(crate) fn key(&self) -> &[u8] {
        &self.block[self.key.0..self.key.1]
    }

    /// Hash of the current key.
    pub(crate) fn hash(&self) -> u64 {
        match self.order {
            KeyOrder::Hash => self.prefix,
            KeyOrder::Bytes => xxh3_64(self.key()),
        }
    }

    fn sorts_before(&self, other: &Self) -> bool {
        match self.prefix.cmp(&other.prefix) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => self.key() < other.key(),
        }
    }
}

/// The spilled runs of one state.
pub(crate) struct SpillRuns<V> {
    files: Vec<Arc<dyn SpillFile>>,
    order: KeyOrder,
    value: std::marker::PhantomData<fn() -> V>,
}

impl<V: SpillValue> SpillRuns<V> {
    pub(crate) fn new(order: KeyOrder) -> Self {
        SpillRuns {
            files: Vec::new(),
            order,
            value: std::marker::PhantomData,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Stored bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes()).sum()
    }

    /// Writes and keeps a new run; `entries` pushes its entries in order.
    pub(crate) fn spill(
        &mut self,
        scratch: &dyn ScratchSpace,
        entries: impl FnOnce(&mut RunWriter<Box<dyn forebay_model::SpillWriter>>) -> Result<()>,
    ) -> Result<()> {
        let mut writer = RunWriter::new(scratch.create()?);
        entries(&mut writer)?;
        self.files.push(writer.finish()?.finish()?);
        self.compact(scratch)
    }

    /// Takes over the runs of another state.
    pub(crate) fn adopt(&mut self, other: SpillRuns<V>, scratch: &dyn ScratchSpace) -> Result<()> {
        self.files.extend(other.files);
        self.compact(scratch)
    }

    /// Merges the smallest runs until at most `RUNS_MAX` are left.
    fn compact(&mut self, scratch: &dyn ScratchSpace) -> Result<()> {
        while self.files.len() > RUNS_MAX {
            // The larger half stays, so that each byte is merged only a few times.
            self.files
                .sort_by_key(|file| std::cmp::Reverse(file.bytes()));
            let small = self.files.split_off(RUNS_MAX / 2);
            for files in small.chunks(RUNS_MAX) {
                let mut group = SpillRuns::<V>::new(self.order);
                group.files = files.to_vec();
                let mut writer = RunWriter::new(scratch.create()?);
                group.for_each(|key, value| writer.push(key, value))?;
                self.files.push(writer.finish()?.finish()?);
            }
        }
        Ok(())
    }

    /// Visits every key once, in order, with the merged value of all runs.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&[u8], &V) -> Result<()>) -> Result<()> {
        let mut readers = Vec::with_capacity(self.files.len());
        for file in &self.files {
            let mut reader = RunReader::<_, V>::new(file.read()?, self.order);
            if reader.advance()? {
                readers.push(reader);
            }
        }
        // The heap yields the runs' entries in order: equal keys follow each other and are merged.
        let mut heap = MergeHeap::of(readers);
        let mut key = Vec::new();
        while let Some(first) = heap.first_mut() {
            key.clear();
            key.extend_from_slice(first.key());
            let mut value = std::mem::take(&mut first.value);
            heap.advance_first()?;
            while let Some(next) = heap.first_mut()
                && next.key() == key
            {
                value.merge_value(&next.value);
                heap.advance_first()?;
            }
            visit(&key, &value)?;
        }
        Ok(())
    }
}

/// Binary min-heap of readers, by key: a k-way merge.
struct MergeHeap<R: Read, V>(Vec<RunReader<R, V>>);

impl<R: Read, V: SpillValue> MergeHeap<R, V> {
    fn of(readers: Vec<RunReader<R, V>>) -> Self {
        let mut heap = MergeHeap(readers);
        for at in (0..heap.0.len() / 2).rev() {
            heap.sift_down(at);
        }
        heap
    }

    fn first_mut(&mut self) -> Option<&mut RunReader<R, V>> {
        self.0.first_mut()
    }

    fn advance_first(&mut self) -> Result<()> {
        if !self.0[0].advance()? {
            self.0.swap_remove(0);
        }
        self.sift_down(0);
        Ok(())
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let mut least = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.0.len() && self.0[child].sorts_before(&self.0[least]) {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            self.0.swap(at, least);
            at = least;
        }
    }
}
