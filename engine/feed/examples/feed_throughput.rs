//! Rows per second of shuffled and sequential feeds, and the quality of the shuffle:
//! `cargo run --release -p forebay-feed --example feed_throughput [million rows] [rounds] [window MiB] [block rows]`,
//! or of the columns f1 to f13 and c1 to c26 in a directory of Parquet files:
//! `... --example feed_throughput DIRECTORY [rounds] [window MiB] [sequential|shuffled]`.
//!
//! 13 dense and 26 categorical columns and a label, in batches of 8192, once from memory (what the
//! feed itself costs) and once decoded from Parquet (what it costs beside reading).
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::*;
use arrow::datatypes::{DataType, Field as ArrowField, Schema};
use bytes::Bytes;
use forebay_feed::*;
use forebay_model::{ContentId, Fault, Result, RowKeys, codes};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::arrow::arrow_writer::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

const DENSE: usize = 13;
const CATEGORICAL: usize = 26;
/// Distinct blocks; the dataset repeats them.
const DISTINCT: usize = 8;
const READ_ROWS: usize = 8192;
/// Epochs of a run.
const EPOCHS: u64 = 3;

fn block(number: usize, rows: usize) -> RecordBatch {
    let keys = |column: usize| RowKeys::sequence((number * 100 + column) as u64, 0, rows);
    let mut fields = Vec::new();
    let mut arrays = Vec::<ArrayRef>::new();
    for column in 0..DENSE {
        let keys = keys(column);
        // Some columns miss values, as clicks do.
        let missing = if column % 4 == 0 { 30 } else { 0 };
        let values = keys
            .as_slice()
            .iter()
            .map(|key| (key % 100 >= missing).then_some((key >> 40) as f32 / 65_536.0));
        let array = Float32Array::from_iter(values);
        fields.push(ArrowField::new(
            format!("d{column}"),
            DataType::Float32,
            missing > 0,
        ));
        arrays.push(Arc::new(array));
    }
    for column in 0..CATEGORICAL {
        // From a handful of values to tens of thousands.
        let distinct = 10_u64 << (column / 2);
        let keys = keys(DENSE + column);
        let ids = keys
            .as_slice()
            .iter()
            .map(|key| ((key >> 20) % distinct) as i32);
        fields.push(ArrowField::new(
            format!("c{column}"),
            DataType::Int32,
            false,
        ));
        arrays.push(Arc::new(Int32Array::from_iter_values(ids)));
    }
    let label = keys(99)
        .as_slice()
        .iter()
        .map(|key| f32::from(key % 30 == 0))
        .collect::<Vec<_>>();
    fields.push(ArrowField::new("label", DataType::Float32, false));
    arrays.push(Arc::new(Float32Array::from(label)));
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

fn dataset(blocks: usize, block_rows: usize, bytes: u64) -> BlockDataset {
    let block = DatasetBlock {
        rows: block_rows as u64,
        bytes,
        ..DatasetBlock::default()
    };
    BlockDataset::new(ContentId::of(b"clicks"), vec![block; blocks])
}

struct MemoryBlocks {
    blocks: Vec<RecordBatch>,
    dataset: BlockDataset,
}

impl BlockSource for MemoryBlocks {
    fn dataset(&self) -> BlockDataset {
        self.dataset.clone()
    }

    fn read(
        &self,
        block: u32,
        _columns: &[String],
        rows: &mut dyn FnMut(RecordBatch) -> ControlFlow<()>,
    ) -> Result<Duration> {
        let block = &self.blocks[block as usize % DISTINCT];
        for first in (0..block.num_rows()).step_by(READ_ROWS) {
            if rows(block.slice(first, READ_ROWS.min(block.num_rows() - first))).is_break() {
                break;
            }
        }
        Ok(Duration::ZERO)
    }
}

struct ParquetBlocks {
    file: Bytes,
    metadata: ArrowReaderMetadata,
    dataset: BlockDataset,
}

impl ParquetBlocks {
    fn new(blocks: &[RecordBatch], count: usize) -> ParquetBlocks {
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .build();
        let mut writer =
            ArrowWriter::try_new(Vec::new(), blocks[0].schema(), Some(properties)).unwrap();
        for block in blocks {
            writer.write(block).unwrap();
            writer.flush().unwrap();
        }
        let file = Bytes::from(writer.into_inner().unwrap());
        let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::default()).unwrap();
        let bytes = file.len() as u64 / DISTINCT as u64;
        ParquetBlocks {
            file,
            metadata,
            dataset: dataset(count, blocks[0].num_rows(), bytes),
        }
    }
}

impl BlockSource for ParquetBlocks {
    fn dataset(&self) -> BlockDataset {
        self.dataset.clone()
    }

    fn read(
        &self,
        block: u32,
        _columns: &[String],
        rows: &mut dyn FnMut(RecordBatch) -> ControlFlow<()>,
    ) -> Result<Duration> {
        let corrupt = |error| Fault::new(codes::CORRUPT, "a row group cannot be read").cause(error);
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(
            self.file.clone(),
            self.metadata.clone(),
        )
        .with_row_groups(vec![block as usize % DISTINCT])
        .with_projection(ProjectionMask::all())
        .with_batch_size(READ_ROWS)
        .build()
        .map_err(corrupt)?;
        for batch in reader {
            if rows(batch?).is_break() {
                break;
            }
        }
        Ok(Duration::ZERO)
    }
}

/// Row groups of files.
struct DirectoryBlocks {
    groups: Vec<(Bytes, ArrowReaderMetadata, usize)>,
    dataset: BlockDataset,
}

impl DirectoryBlocks {
    fn new(directory: &str) -> DirectoryBlocks {
        let mut paths: Vec<_> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        paths.retain(|path| {
            path.extension()
                .is_some_and(|extension| extension == "parquet")
        });
        paths.sort();
        let mut groups = Vec::new();
        let mut blocks = Vec::new();
        for path in paths {
            let file = Bytes::from(std::fs::read(path).unwrap());
            let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::default()).unwrap();
            for (number, group) in metadata.metadata().row_groups().iter().enumerate() {
                let rows = group.num_rows() as u64;
                let bytes = group.compressed_size() as u64;
                blocks.push(DatasetBlock {
                    rows,
                    bytes,
                    ..DatasetBlock::default()
                });
                groups.push((file.clone(), metadata.clone(), number));
            }
        }
        DirectoryBlocks {
            groups,
            dataset: BlockDataset::new(ContentId::of(b"files"), blocks),
        }
    }
}

impl BlockSource for DirectoryBlocks {
    fn dataset(&self) -> BlockDataset {
        self.dataset.clone()
    }

    fn read(
        &self,
        block: u32,
        columns: &[String],
        rows: &mut dyn FnMut(RecordBatch) -> ControlFlow<()>,
    ) -> Result<Duration> {
        let corrupt = |error| Fault::new(codes::CORRUPT, "a row group cannot be read").cause(error);
        let (file, metadata, group) = &self.groups[block as usize];
        let names = columns.iter().map(String::as_str);
        let reader =
            ParquetRecordBatchReaderBuilder::new_with_metadata(file.clone(), metadata.clone())
                .with_row_groups(vec![*group])
                .with_projection(ProjectionMask::columns(metadata.parquet_schema(), names))
                .with_batch_size(READ_ROWS)
                .build()
                .map_err(corrupt)?;
        for batch in reader {
            let batch = batch?;
            let order: Vec<usize> = columns
                .iter()
                .map(|name| batch.schema().index_of(name).unwrap())
                .collect();
            if rows(batch.project(&order)?).is_break() {
                break;
            }
        }
        Ok(Duration::ZERO)
    }
}

fn features_of_files() -> BatchFeatures {
    BatchFeatures {
        dense: (1..=DENSE)
            .map(|column| FeatureField::new(format!("f{column}")).missing(0.0))
            .collect(),
        categorical: (1..=CATEGORICAL)
            .map(|column| FeatureField::new(format!("c{column}")).missing(0.0))
            .collect(),
        categorical_type: CategoricalType::I32,
        ..BatchFeatures::default()
    }
}

fn features() -> BatchFeatures {
    BatchFeatures {
        dense: (0..DENSE)
            .map(|column| FeatureField::new(format!("d{column}")).missing(0.0))
            .collect(),
        categorical: (0..CATEGORICAL)
            .map(|column| FeatureField::new(format!("c{column}")))
            .collect(),
        categorical_type: CategoricalType::I32,
        label: Some(FeatureField::new("label")),
        ..BatchFeatures::default()
    }
}

/// Seconds that this process has used of all processors: steadier than the clock on a busy machine.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = stat
        .rsplit(')')
        .next()
        .unwrap_or("")
        .split_whitespace()
        .skip(11)
        .take(2);
    ticks
        .filter_map(|ticks| ticks.parse::<f64>().ok())
        .sum::<f64>()
        / 100.0
}

/// What the later epochs of a run took, and the first: memory that was never used costs more than its use.
#[derive(Clone)]
struct RunTimings {
    rows_per_second: f64,
    cpu_per_row: f64,
    first_rows_per_second: f64,
    stats: FeedStats,
}

fn run(config: FeedOptions) -> RunTimings {
    let mut feed = Feed::start(FeedOptions {
        epochs: EPOCHS,
        ..config
    })
    .unwrap();
    let steps = feed.steps(0);
    let mut rows = 0;
    let mut sum = 0.0;
    let mut first = 0.0;
    let mut cpu = cpu_seconds();
    let mut begin = Instant::now();
    for step in 0.. {
        if step == steps {
            first = rows as f64 / begin.elapsed().as_secs_f64();
            feed.take_stats();
            (cpu, begin, rows) = (cpu_seconds(), Instant::now(), 0);
        }
        let Some(batch) = feed.next() else { break };
        let batch = batch.unwrap();
        rows += batch.rows();
        sum += f64::from(batch.numbers::<f32>(PartRole::Dense)[0]);
    }
    assert!(rows > 0 && sum.is_finite());
    let rows_per_second = rows as f64 / begin.elapsed().as_secs_f64();
    let cpu_per_row = (cpu_seconds() - cpu) / rows as f64;
    RunTimings {
        rows_per_second,
        cpu_per_row,
        first_rows_per_second: first,
        stats: feed.take_stats(),
    }
}

fn quality(sequence: &RowSequence) -> ShuffleQuality {
    let mut meter = QualityMeter::default();
    let rows = sequence.epoch_rows();
    for start in (0..rows).step_by(1 << 20) {
        sequence
            .rows(start..rows.min(start + (1 << 20)))
            .iter()
            .for_each(|row| meter.push(row.row));
    }
    meter.finish(rows).unwrap()
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, other| {
        args.get(at)
            .map_or(other, |arg| arg.parse::<usize>().unwrap())
    };
    let rounds = number(1, 3);
    let window = number(2, 512) << 20;
    if let Some(directory) = args.first().filter(|arg| arg.parse::<usize>().is_err()) {
        let only = args.get(3).map(String::as_str);
        return compare(
            "files",
            Arc::new(DirectoryBlocks::new(directory)),
            &features_of_files(),
            rounds,
            window,
            only,
        );
    }
    let rows = number(0, 20) * 1_000_000;
    let block_rows = number(3, 65_536);
    let count = rows / block_rows;
    let blocks: Vec<RecordBatch> = (0..DISTINCT)
        .map(|number| block(number, block_rows))
        .collect();
    let parquet = Arc::new(ParquetBlocks::new(&blocks, count));
    let memory = Arc::new(MemoryBlocks {
        blocks,
        dataset: dataset(count, block_rows, 0),
    });
    compare("memory", memory, &features(), rounds, window, None);
    compare("parquet", parquet, &features(), rounds, window, None);
}

/// Runs without and with a shuffle, in turn, or only one of the two.
fn compare(
    name: &str,
    source: Arc<dyn BlockSource>,
    features: &BatchFeatures,
    rounds: usize,
    window: usize,
    only: Option<&str>,
) {
    let config = |order| FeedOptions::new(vec![source.clone()], features.clone(), order);
    let mut shuffled = config(SampleOrder::shuffled(1, 1));
    shuffled.fit_window(window as u64).unwrap();
    let sequence = shuffled.order.bind(vec![source.dataset()]).unwrap();
    println!(
        "{name}: {} rows in {} blocks, {} MiB, {:?}, span {}, quality {:?}",
        source.dataset().rows(),
        source.dataset().blocks(),
        window >> 20,
        shuffled.order.mode,
        sequence.epoch(0, 0).span(),
        quality(&sequence)
    );
    let mut orders = vec![
        ("sequential", config(SampleOrder::sequential())),
        ("shuffled", shuffled),
    ];
    orders.retain(|(kind, _)| only.is_none_or(|only| only == *kind));
    let mut runs = vec![Vec::new(); orders.len()];
    for _ in 0..rounds {
        orders
            .iter()
            .zip(&mut runs)
            .for_each(|((_, config), runs)| runs.push(run(config.clone())));
    }
    for ((kind, config), runs) in orders.into_iter().zip(&mut runs) {
        let receipts = FeedOptions {
            receipts: true,
            ..config
        };
        runs.sort_by(|a, b| b.rows_per_second.total_cmp(&a.rows_per_second));
        let all: Vec<String> = runs
            .iter()
            .map(|run| format!("{:.2}", run.rows_per_second / 1e6))
            .collect();
        let cpu = runs
            .iter()
            .map(|run| run.cpu_per_row)
            .fold(f64::INFINITY, f64::min)
            * 1e9;
        let stats = &runs[0].stats;
        let ns = |time: Duration| time.as_secs_f64() * 1e9 / stats.rows as f64;
        println!(
            "  {kind}: {} M rows/s (first epoch {:.2}), {:.2} GB/s, {cpu:.0} ns of CPU a row; wall of threads a row: decoding {:.0}, \
             packing {:.0}, filling {:.0} ns; starved {} of {}; bottleneck {}; receipts: {:.0} ns of CPU",
            all.join(", "),
            runs[0].first_rows_per_second / 1e6,
            stats.bytes_per_second() / 1e9,
            ns(stats.times.decoding),
            ns(stats.times.packing),
            ns(stats.times.filling),
            stats.starved_steps,
            stats.steps,
            stats.bottleneck().name(),
            run(receipts).cpu_per_row * 1e9,
        );
    }
}
