//! `forebay new`.

use std::path::PathBuf;
use std::process::ExitCode;

use arrow::array::RecordBatch;
use clap::Args;
use forebay_connectors::{CsvDialect, format_of_name, sniff_csv};
use forebay_model::{Dataset, Fault, Pipeline, PipelineSource, Result, codes};
use forebay_plan::unknown_column;
use forebay_run::PreviewOptions;
use forebay_storage::StorageClient;
use serde_json::json;

use super::options::RunArgs;
use super::usage;
use crate::Forebay;
use crate::propose::DataSample;

/// Write a first spec for some data: its time, keys and split, and steps that suit its columns.
#[derive(Debug, Args)]
pub(crate) struct NewCommand {
    /// The data: a file, a directory or a pattern; Parquet, Arrow, CSV or JSON lines.
    data: String,
    /// The spec to write [default: print it]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The pipeline's name [default: from the data's name]
    #[arg(long)]
    name: Option<String>,
    /// The column to predict: it gets lags and means of the time before, and is not changed itself.
    #[arg(long, value_name = "COLUMN")]
    label: Option<String>,
    #[command(flatten)]
    options: RunArgs,
}

/// Rows from which keys, frequency and categories are told.
const SAMPLE_ROWS: usize = 10_000;

impl NewCommand {
    pub fn run(self) -> Result<ExitCode> {
        let name = self.name.clone().unwrap_or_else(|| name_of(&self.data));
        let format = format_of_data(&self.data)?;
        let session = self.options.silent_session()?;
        let dialect = data_dialect(&self.data)?;
        let pipeline = dialect_pipeline(&name, &self.data, &dialect)?;
        let options = PreviewOptions {
            rows: SAMPLE_ROWS + 1,
            sample_rows: SAMPLE_ROWS as u64 + 1,
            ..PreviewOptions::default()
        };
        let mut batches = session.preview(&pipeline, &options)?.batches;
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let mut timed = pipeline.clone();
        timed
            .sources
            .iter_mut()
            .for_each(|source| source.time = DataSample::time_column(&batches));
        let datasets = session.discover(&timed)?;
        let dataset = datasets
            .get(&name)
            .ok_or_else(|| Fault::internal("the source was not discovered"))?;
        if let Some(label) = self
            .label
            .as_deref()
            .filter(|label| dataset.schema.field_with_name(label).is_err())
        {
            return Err(unknown_column(label, &dataset.schema));
        }
        let whole = rows <= SAMPLE_ROWS;
        if !whole && let Some(last) = batches.last_mut() {
            // One row more than is looked at tells that there are more.
            *last = last.slice(0, last.num_rows() - 1);
        }
        let files = later_files(dataset);
        let mut sampled = 1;
        for file in files.iter().filter(|_| !whole) {
            // Other files tell of columns that have one value in the first.
            let pipeline = dialect_pipeline(&name, file, &dialect)?;
            let options = PreviewOptions {
                rows: SAMPLE_ROWS,
                sample_rows: SAMPLE_ROWS as u64,
                ..options.clone()
            };
            let Ok(more) = session.preview(&pipeline, &options) else {
                continue;
            };
            let is_alike = |batch: &RecordBatch| {
                batches
                    .first()
                    .is_some_and(|first| first.schema() == batch.schema())
            };
            if more.batches.iter().all(is_alike) {
                batches.extend(more.batches);
                sampled += 1;
            }
        }
        let label = self.label.as_deref();
        let sample = DataSample {
            name: &name,
            format,
            path: &self.data,
            dialect: &dialect,
            label,
            dataset,
            batches: &batches,
            whole,
            files: sampled,
        };
        let text = sample.spec()?;
        match &self.out {
            None => super::write_stdout(&text)?,
            Some(path) => {
                let shown = path.display().to_string();
                let failed = |error: std::io::Error| match error.kind() {
                    std::io::ErrorKind::AlreadyExists => {
                        usage("there is a file of this name already")
                            .file(&shown)
                            .hint("give `--out` another name")
                    }
                    _ => Fault::disk("the spec cannot be written", error).file(&shown),
                };
                let file = std::fs::OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .open(path);
                std::io::Write::write_all(&mut file.map_err(failed)?, text.as_bytes())
                    .map_err(failed)?;
                super::write_stdout(&format!(
                    "{}\nnext: forebay run {}\n",
                    path.display(),
                    path.display()
                ))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The file in the middle of some data and its last one, of local data in several files.
fn later_files(dataset: &Dataset) -> Vec<String> {
    let mut files: Vec<&str> = dataset
        .spans
        .iter()
        .flat_map(|span| &span.pieces)
        .map(|piece| piece.path.as_ref())
        .collect();
    files.dedup();
    let later = match files.len() {
        0 | 1 => Vec::new(),
        2 => vec![files[1]],
        count => vec![files[count / 2], files[count - 1]],
    };
    later
        .into_iter()
        .filter(|file| std::path::Path::new(file).exists())
        .map(str::to_owned)
        .collect()
}

/// A pipeline that has some data as its only source. What its files look like is told on stderr, where it is unusual.
pub(super) fn data_pipeline(name: &str, data: &str) -> Result<Pipeline> {
    let dialect = data_dialect(data)?;
    if !dialect.findings.is_empty() {
        let note = format!("note: {data}: {}\n", dialect.findings.join("; "));
        // A note that cannot be written is no reason to stop.
        let _ = std::io::Write::write_all(&mut std::io::stderr(), note.as_bytes());
    }
    dialect_pipeline(name, data, &dialect)
}

/// What CSV files look like; other formats say it themselves.
fn data_dialect(data: &str) -> Result<CsvDialect> {
    if format_of_data(data)? != "csv" {
        return Ok(CsvDialect::default());
    }
    sniff_csv(&StorageClient::new()?, data)
}

fn dialect_pipeline(name: &str, data: &str, dialect: &CsvDialect) -> Result<Pipeline> {
    let format = format_of_data(data)?;
    let mut config = json!({ "path": data });
    if let Some(config) = config.as_object_mut() {
        config.extend(dialect.options.clone());
    }
    let source = PipelineSource {
        name: name.to_owned(),
        format: format.to_owned(),
        config: Forebay::new().connectors.canonical_source(format, config)?,
        time: None,
        keys: Vec::new(),
        ready: None,
        duplicates: None,
        lookback: None,
        at: None,
    };
    Ok(Pipeline {
        name: name.to_owned(),
        sources: vec![source],
        ..Pipeline::default()
    })
}

/// By the ending of the path, or of the first file below a directory.
fn format_of_data(data: &str) -> Result<&'static str> {
    let mut name = data.to_owned();
    if name.trim().is_empty() {
        return Err(
            usage("the path of the data is empty").hint("give a file, a directory or a pattern")
        );
    }
    let is_local = !name.contains("://") && !name.contains(['*', '?', '[']);
    if is_local && !std::path::Path::new(&name).exists() {
        let fault = Fault::new(
            codes::NO_INPUT,
            format!("there is no file or directory `{name}`"),
        );
        return Err(fault.hint("give a file, a directory or a pattern such as 'data/*.parquet'"));
    }
    if let Ok(entries) = std::fs::read_dir(&name) {
        let mut names: Vec<String> = entries
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort_unstable();
        name = names
            .into_iter()
            .find(|name| format_of_name(name).is_some())
            .ok_or_else(|| {
                Fault::new(
                    codes::NO_INPUT,
                    format!("the directory `{data}` holds no data file"),
                )
                .hint("its files must end in .parquet, .arrow, .csv, .csv.gz, .json or .jsonl")
            })?;
    }
    format_of_name(&name).ok_or_else(|| {
        usage(format!(
            "the format of `{data}` cannot be told from its name"
        ))
        .hint("name files by their format: .parquet, .arrow, .csv, .csv.gz, .jsonl")
    })
}

/// A snake_case identifier from a path.
pub(super) fn name_of(path: &str) -> String {
    let last = path
        .split('/')
        .rev()
        .find(|part| !part.is_empty() && !part.contains('*'))
        .unwrap_or("data");
    let stem = last.split('.').next().unwrap_or("data");
    let mut name: String = stem
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '_'
            }
        })
        .collect();
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        name.insert_str(0, "d_");
    }
    name
}
