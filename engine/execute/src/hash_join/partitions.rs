//! Rows partitioned by the hash of their keys. Rows beyond the budget lie in one file, in blocks of one partition each,
//! and keep their order within a partition.

use std::fs::File;
use std::io::BufWriter;

use arrow::array::RecordBatch;
use arrow::compute::interleave_record_batch;
use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::FileReader;
use arrow::ipc::writer::FileWriter;
use forebay_model::{Fault, Result};
use forebay_storage::ScratchDir;
use tempfile::TempPath;

use crate::external_sort::{compact, compressed_ipc};
use crate::join_keys::EncodedKeys;

/// The number of partitions.
pub const PARTITIONS: usize = 64;

/// The partition of a key. The hash table uses the lowest and the highest bits.
pub fn partition_of(hash: u64) -> usize {
    (hash >> 40) as usize % PARTITIONS
}

/// Maximum number of rows of a block, for rows of any width.
const BLOCK_ROWS_MAX: usize = 1 << 16;

/// The bytes of rows that are collected for blocks of all partitions: more would not stay in the processor's caches, and
/// would not make reading faster.
pub const BLOCKS_BYTES_MAX: usize = 32 << 20;

/// Collects the rows of one stream.
pub struct PartitionWriter {
    schema: SchemaRef,
    scratch: ScratchDir,
    budget_bytes: usize,
    held: Vec<RecordBatch>,
    held_bytes: usize,
    /// Batches and rows of the held rows, by partition.
    places: Vec<Vec<(usize, usize)>>,
    file: Option<PartitionFile>,
    sizes: Vec<PartitionSize>,
}

/// Size of a partition.
#[derive(Debug, Clone, Copy, Default)]
pub struct PartitionSize {
    pub rows: u64,
    pub bytes: u64,
}

struct PartitionFile {
    writer: FileWriter<BufWriter<File>>,
    path: TempPath,
    blocks: Vec<Vec<usize>>,
    count: usize,
}

/// The rows of one stream.
pub enum PartitionedRows {
    /// All rows in memory, in order.
    Held(Vec<RecordBatch>),
    /// A file.
    Stored(StoredPartitions),
}

/// Partitions in a file.
pub struct StoredPartitions {
    path: TempPath,
    /// The blocks of each partition, in order.
    blocks: Vec<Vec<usize>>,
    /// The size of each partition.
    pub sizes: Vec<PartitionSize>,
}

impl PartitionWriter {
    pub fn new(schema: &SchemaRef, scratch: &ScratchDir, budget_bytes: usize) -> PartitionWriter {
        PartitionWriter {
            schema: schema.clone(),
            scratch: scratch.clone(),
            budget_bytes,
            held: Vec::new(),
            held_bytes: 0,
            places: vec![Vec::new(); PARTITIONS],
            file: None,
            sizes: vec![PartitionSize::default(); PARTITIONS],
        }
    }

    /// Adds rows; those for which `keep` is false are left out.
    pub fn push(
        &mut self,
        batch: &RecordBatch,
        keys: &EncodedKeys,
        keep: impl Fn(usize) -> bool,
    ) -> Result<()> {
        let batch = compact(batch)?;
        let row_bytes = batch
            .get_array_memory_size()
            .div_ceil(batch.num_rows().max(1));
        let bytes = batch.num_rows() * (row_bytes + size_of::<(usize, usize)>());
        if self.held_bytes + bytes > self.budget_bytes && !self.held.is_empty() {
            self.flush()?;
            // What has to be written in any case is written early.
            self.budget_bytes = self.budget_bytes.min(BLOCKS_BYTES_MAX);
        }
        for (row, hash) in keys.hashes.iter().enumerate().filter(|(row, _)| keep(*row)) {
            let part = partition_of(*hash);
            self.places[part].push((self.held.len(), row));
            self.sizes[part].rows += 1;
            self.sizes[part].bytes += row_bytes as u64;
        }
        self.held_bytes += bytes;
        self.held.push(batch);
        Ok(())
    }

    /// Writes the rows that are held, gathered from batches that stay in the processor's caches.
    fn flush(&mut self) -> Result<()> {
        let scratch = self.scratch.clone();
        self.write_blocks()
            .map_err(|fault| scratch.locate_fault(fault))
    }

    fn write_blocks(&mut self) -> Result<()> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => PartitionFile::new(&self.schema, &self.scratch)?,
        };
        let batches: Vec<&RecordBatch> = self.held.iter().collect();
        let mut written = [0; PARTITIONS];
        let mut window_bytes = 0;
        let mut next = 0;
        while next < batches.len() {
            window_bytes += batches[next].get_array_memory_size();
            next += 1;
            if window_bytes < BLOCKS_BYTES_MAX && next < batches.len() {
                continue;
            }
            window_bytes = 0;
            for (part, rows_of_partition) in self.places.iter().enumerate() {
                let unwritten = &rows_of_partition[written[part]..];
                let in_window = &unwritten[..unwritten.partition_point(|(batch, _)| *batch < next)];
                written[part] += in_window.len();
                for block in in_window.chunks(BLOCK_ROWS_MAX) {
                    file.writer
                        .write(&interleave_record_batch(&batches, block)?)?;
                    file.blocks[part].push(file.count);
                    file.count += 1;
                }
            }
        }
        self.places.iter_mut().for_each(Vec::clear);
        self.held.clear();
        self.held_bytes = 0;
        self.file = Some(file);
        Ok(())
    }

    /// The rows, in memory if all of them are.
    pub fn finish(self) -> Result<PartitionedRows> {
        if self.file.is_none() {
            let batches: Vec<&RecordBatch> = self.held.iter().collect();
            let mut positions: Vec<(usize, usize)> =
                self.places.iter().flatten().copied().collect();
            if positions.len() == batches.iter().map(|batch| batch.num_rows()).sum::<usize>() {
                return Ok(PartitionedRows::Held(self.held));
            }
            positions.sort_unstable();
            let blocks = positions
                .chunks(BLOCK_ROWS_MAX)
                .map(|block| Ok(interleave_record_batch(&batches, block)?));
            return Ok(PartitionedRows::Held(blocks.collect::<Result<_>>()?));
        }
        self.finish_stored().map(PartitionedRows::Stored)
    }

    /// The rows in a file.
    pub fn finish_stored(mut self) -> Result<StoredPartitions> {
        self.flush()?;
        let PartitionWriter {
            file,
            scratch,
            sizes,
            ..
        } = self;
        let mut file = file.ok_or_else(|| Fault::internal("partitions without a file"))?;
        file.writer
            .finish()
            .map_err(|error| scratch.locate_fault(error.into()))?;
        scratch.count_spilled(std::fs::metadata(&file.path).map_or(0, |meta| meta.len()));
        Ok(StoredPartitions {
            path: file.path,
            blocks: file.blocks,
            sizes,
        })
    }
}

impl PartitionFile {
    fn new(schema: &SchemaRef, scratch: &ScratchDir) -> Result<PartitionFile> {
        let (file, path) = scratch.file()?.into_parts();
        let file = BufWriter::with_capacity(1 << 18, file);
        let writer = FileWriter::try_new_with_options(file, schema, compressed_ipc()?)?;
        Ok(PartitionFile {
            writer,
            path,
            blocks: vec![Vec::new(); PARTITIONS],
            count: 0,
        })
    }
}

impl StoredPartitions {
    /// The rows of a partition, in order.
    pub fn read(&self, part: usize) -> Result<impl Iterator<Item = Result<RecordBatch>> + use<>> {
        let file = File::open(&self.path)
            .map_err(|error| Fault::disk("partitioned rows cannot be read", error))?;
        // A block is one read: a buffer would be lost at the seek to the next one.
        let mut reader = FileReader::try_new(file, None)?;
        let lost = || Fault::internal("a block of partitioned rows is missing");
        Ok(self.blocks[part].clone().into_iter().map(move |block| {
            reader.set_index(block)?;
            Ok(reader.next().ok_or_else(lost)??)
        }))
    }
}
