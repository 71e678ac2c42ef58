//! A source of one's own, as another crate would write it: text files whose columns stand at the same bytes of each
//! line. `own_sink` shows a sink, `own_trainer` a trainer.
//!
//! ```text
//! cargo run -p forebay --example own_source
//! ```
#![allow(clippy::print_stdout)] // Printing is what it is for.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, StringBuilder};
use arrow::datatypes::{DataType, Field, Schema};
use forebay::model::{
    Chunk, ConfigError, ConfigResult, Dataset, FileRange, IdBuilder, LeftOutFiles, RowKeys, Span,
    codes,
};
use forebay::prelude::*;
use forebay::run::{ChunkIterator, ScanRequest, Source, StorageClient};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Text files of a few MiB whose columns have a fixed width. All columns are strings without the spaces around them; an
/// empty one is null.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FixedWidthSource {
    /// The files; local or URLs.
    pub paths: Vec<String>,
    /// The columns, in the order in which they stand in a line.
    pub columns: Vec<FixedColumn>,
}

/// A column of a fixed width.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FixedColumn {
    /// Its name.
    pub name: String,
    /// Bytes of it in each line.
    pub width: usize,
}

impl FixedWidthSource {
    /// Files with columns of these names and widths.
    pub fn new<'a>(
        paths: impl IntoIterator<Item = String>,
        columns: impl IntoIterator<Item = (&'a str, usize)>,
    ) -> FixedWidthSource {
        let columns = columns.into_iter().map(|(name, width)| FixedColumn {
            name: name.to_owned(),
            width,
        });
        FixedWidthSource {
            paths: paths.into_iter().collect(),
            columns: columns.collect(),
        }
    }
}

impl ConnectorConfig for FixedWidthSource {
    const NAME: &'static str = "fixed_width";

    fn check(&self) -> ConfigResult<()> {
        if self.paths.is_empty() {
            return Err(ConfigError::at("paths", "name at least one file"));
        }
        for (index, column) in self.columns.iter().enumerate() {
            if column.width == 0 {
                let field = format!("columns[{index}].width");
                return Err(ConfigError::at(field, "a column has at least 1 byte"));
            }
        }
        Ok(())
    }
}

impl SourceFormat for FixedWidthSource {
    fn source(self) -> Arc<dyn Source> {
        Arc::new(self)
    }
}

impl Source for FixedWidthSource {
    fn discover(&self, io: &StorageClient, watched: &[String]) -> Result<Dataset> {
        let mut spans = Vec::new();
        for path in &self.paths {
            let text = read_text(io, path)?;
            let location = io.resolve(path)?;
            let name = path.rsplit('/').next().unwrap_or(path);
            // Everything below is computed from this id: equal bytes are read once, in all runs.
            let mut fingerprint = IdBuilder::new("example.fixed_width");
            fingerprint.text(name).text(&text);
            let absolute = location.local.map(|local| local.display().to_string());
            let piece = FileRange {
                path: absolute.unwrap_or(location.shown),
                relative: name.to_owned(),
                row_groups: None,
                row_range: None,
                byte_range: None,
                first_row: 0,
                rows: Some(text.lines().count() as u64),
                bytes: text.len() as u64,
                partition: Vec::new(),
                extents: vec![None; watched.len()],
                fingerprint: fingerprint.finish(),
            };
            spans.push(Span {
                pieces: vec![piece],
            });
        }
        let fields = self.columns.iter().map(|column| text_field(&column.name));
        Ok(Dataset {
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            spans,
            column_bytes: None,
            null_counts: Vec::new(),
            watched: watched.to_vec(),
            version: None,
            left_out: LeftOutFiles::default(),
            files: Vec::new(),
        })
    }

    fn paths(&self) -> Vec<String> {
        self.paths.clone()
    }

    fn open(
        &self,
        io: &StorageClient,
        span: &Span,
        request: &ScanRequest,
    ) -> Result<ChunkIterator> {
        let mut chunks = Vec::new();
        for piece in &span.pieces {
            let text = read_text(io, &piece.path)?;
            let lines: Vec<&str> = text.lines().collect();
            let mut first_row = 0;
            for lines in lines.chunks(request.batch_rows.max(1)) {
                chunks.push(self.chunk(piece, lines, first_row, request));
                first_row += lines.len() as u64;
            }
        }
        Ok(Box::new(chunks.into_iter()))
    }
}

impl FixedWidthSource {
    /// Consecutive lines of a file as rows, with the columns that are read.
    fn chunk(
        &self,
        piece: &FileRange,
        lines: &[&str],
        first_row: u64,
        request: &ScanRequest,
    ) -> Result<Chunk> {
        let mut fields = Vec::new();
        let mut columns: Vec<ArrayRef> = Vec::new();
        for name in &request.columns {
            let range = self.byte_range(name)?;
            let mut values = StringBuilder::new();
            for (row, line) in lines.iter().enumerate() {
                let Some(value) = line.get(range.clone()) else {
                    let message = format!("the line is shorter than {} bytes", range.end);
                    return Err(Fault::new(codes::BAD_ROW, message)
                        .file(&piece.path)
                        .column(name)
                        .rows([first_row + row as u64])
                        .hint("fill lines up with spaces, or change the widths of `columns`"));
                };
                let value = value.trim();
                values.append_option((!value.is_empty()).then_some(value));
            }
            fields.push(text_field(name));
            columns.push(Arc::new(values.finish()));
        }
        // A request may want no column, and then wants the number of rows.
        let options = RecordBatchOptions::new().with_row_count(Some(lines.len()));
        let schema = Arc::new(Schema::new(fields));
        let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
        let seed = RowKeys::file_seed(&piece.relative);
        let keys = request
            .row_keys
            .then(|| RowKeys::sequence(seed, first_row, lines.len()));
        Ok(Chunk {
            batch,
            keys,
            file: piece.path.as_str().into(),
            first_row,
            skipped: 0,
            unfit: Vec::new(),
        })
    }

    fn byte_range(&self, name: &str) -> Result<std::ops::Range<usize>> {
        let mut start = 0;
        for column in &self.columns {
            if column.name == name {
                return Ok(start..start + column.width);
            }
            start += column.width;
        }
        Err(Fault::internal(format!("there is no column `{name}`")))
    }
}

fn text_field(name: &str) -> Field {
    Field::new(name, DataType::Utf8, true)
}

fn read_text(io: &StorageClient, path: &str) -> Result<String> {
    let Some(bytes) = io.get(&io.resolve(path)?)? else {
        return Err(Fault::new(codes::NO_INPUT, "there is no such file").file(path));
    };
    String::from_utf8(bytes.to_vec()).map_err(|error| {
        Fault::new(codes::BAD_ROW, "the file is not UTF-8")
            .file(path)
            .cause(error)
    })
}

/// Everything that comes with Forebay, and the source above.
pub fn forebay() -> Forebay {
    Forebay::new().with_source::<FixedWidthSource>()
}

/// The pipeline in YAML.
pub fn from_yaml(dir: &Path) -> Result<Pipeline> {
    let text = "version: 1
name: stations
sources:
  readings:
    fixed_width:
      paths: [DIR/north.txt, DIR/south.txt]
      columns: [{ name: station, width: 4 }, { name: day, width: 11 }, { name: celsius, width: 5 }]
steps:
  measured: { from: readings, do: [{ filter: \"celsius IS NOT NULL\" }] }
sinks:
  table: { from: measured, parquet: { path: DIR/out } }
";
    let text = text.replace("DIR", &dir.display().to_string());
    let catalog = forebay();
    forebay::spec::parse(
        &text,
        "stations.yaml",
        &BTreeMap::new(),
        &catalog.spec_catalog(),
    )
}

/// An equal pipeline from the builder.
pub fn from_builder(dir: &Path) -> Result<Pipeline> {
    let at = |name: &str| dir.join(name).display().to_string();
    let pipeline = PipelineBuilder::new("stations");
    let columns = [("station", 4), ("day", 11), ("celsius", 5)];
    let readings = pipeline.source(
        "readings",
        FixedWidthSource::new([at("north.txt"), at("south.txt")], columns),
    );
    let measured = pipeline
        .step("measured", &readings)
        .apply(filter("celsius IS NOT NULL"));
    pipeline.sink("table", &measured, ParquetSink::at(at("out")));
    pipeline.build()
}

/// Writes two files into `dir`, and runs both pipelines over them: the second run finds everything done.
pub fn run(dir: &Path) -> Result<(RunReport, RunReport)> {
    let north = "N1  2016-04-01   4.5\nN1  2016-04-02      \n";
    let south = "S7  2016-04-01  17.0\n";
    for (name, text) in [("north.txt", north), ("south.txt", south)] {
        std::fs::create_dir_all(dir)
            .and_then(|()| std::fs::write(dir.join(name), text))
            .map_err(|error| Fault::disk("a file of the example cannot be written", error))?;
    }
    let state = dir.join("state").display().to_string();
    let session = forebay()
        .with_options(SessionOptions::default().state(state))
        .session()?;
    let first = session.run(&from_yaml(dir)?)?;
    let second = session.run(&from_builder(dir)?)?;
    Ok((first, second))
}

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("forebay-own-source-{}", std::process::id()));
    let (first, second) = run(&dir)?;
    println!("{} rows with a temperature", first.outputs[0].rows);
    println!(
        "again from the builder, nothing new: {}",
        second.nothing_new
    );
    std::fs::remove_dir_all(&dir)
        .map_err(|error| Fault::disk("the example's directory cannot be removed", error))
}
