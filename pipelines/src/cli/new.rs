//! `forebay new`.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use arrow::array::RecordBatch;
use clap::Args;
use forebay_connectors::{CsvFindings, format_of_name, has_delta_log, sniff_csv};
use forebay_model::{Dataset, Fault, Pipeline, PipelineSource, Result, codes};
use forebay_plan::unknown_column;
use forebay_run::{PreviewOptions, Session};
use forebay_storage::StorageClient;
use serde_json::json;

use super::options::RunArgs;
use super::usage;
use crate::Forebay;
use crate::present::printable_lines;
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

/// Number of rows from which keys, frequency and categories are inferred.
const SAMPLE_ROWS: usize = 10_000;

impl NewCommand {
    pub fn run(self) -> Result<ExitCode> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => name_of(&self.data),
        };
        let format = format_of_data(&self.data)?;
        let session = self.options.silent_session()?;
        let dialect = data_dialect(&self.data)?;
        let pipeline = dialect_pipeline(&name, &self.data, &dialect)?;
        // One row more than is used shows that there are more.
        let mut batches = session
            .preview(&pipeline, &preview_options(SAMPLE_ROWS + 1))?
            .batches;
        let mut timed = pipeline.clone();
        for source in &mut timed.sources {
            source.time = DataSample::time_column(&batches);
        }
        let datasets = session.discover(&timed)?;
        let Some(dataset) = datasets.get(&name) else {
            return Err(Fault::internal("the source was not discovered"));
        };
        if let Some(label) = &self.label
            && dataset.schema.field_with_name(label).is_err()
        {
            return Err(unknown_column(label, &dataset.schema));
        }
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let whole = rows <= SAMPLE_ROWS;
        let mut files = 1;
        if !whole {
            if let Some(last) = batches.last_mut() {
                *last = last.slice(0, last.num_rows() - 1);
            }
            for file in later_files(dataset) {
                let pipeline = dialect_pipeline(&name, &file, &dialect)?;
                if add_sample(&session, &pipeline, &mut batches) {
                    files += 1;
                }
            }
        }
        let sample = DataSample {
            name: &name,
            format,
            path: &self.data,
            dialect: &dialect,
            label: self.label.as_deref(),
            dataset,
            batches: &batches,
            whole,
            files,
        };
        let text = sample.spec()?;
        match &self.out {
            None => super::write_stdout(&text)?,
            Some(path) => write_spec(path, &text)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn preview_options(rows: usize) -> PreviewOptions {
    PreviewOptions {
        rows,
        sample_rows: rows as u64,
        ..PreviewOptions::default()
    }
}

/// Adds rows of another file, which shows columns that have one value in the first. False if it cannot be read, or has
/// other columns.
fn add_sample(session: &Session, pipeline: &Pipeline, batches: &mut Vec<RecordBatch>) -> bool {
    let Ok(sample) = session.preview(pipeline, &preview_options(SAMPLE_ROWS)) else {
        return false;
    };
    let first = batches.first().map(RecordBatch::schema);
    for batch in &sample.batches {
        if first.as_ref() != Some(&batch.schema()) {
            return false;
        }
    }
    batches.extend(sample.batches);
    true
}

/// Writes a spec to a new file.
fn write_spec(path: &Path, text: &str) -> Result<()> {
    let created = OpenOptions::new().write(true).create_new(true).open(path);
    let written = created.and_then(|mut file| file.write_all(text.as_bytes()));
    if let Err(error) = written {
        let file = path.display().to_string();
        return Err(match error.kind() {
            ErrorKind::AlreadyExists => usage("there is a file of this name already")
                .file(&file)
                .hint("give `--out` another name"),
            _ => Fault::disk("the spec cannot be written", error).file(&file),
        });
    }
    let path = path.display();
    super::write_stdout(&format!("{path}\nnext: forebay run {path}\n"))
}

/// The file in the middle of some data and its last one, of local data in several files.
fn later_files(dataset: &Dataset) -> Vec<String> {
    let mut files: Vec<&str> = Vec::new();
    for span in &dataset.spans {
        for piece in &span.pieces {
            files.push(piece.path.as_ref());
        }
    }
    files.dedup();
    let others = match files.len() {
        0 | 1 => Vec::new(),
        2 => vec![files[1]],
        count => vec![files[count / 2], files[count - 1]],
    };
    let mut local_files = Vec::with_capacity(others.len());
    for file in others {
        if Path::new(file).exists() {
            local_files.push(file.to_owned());
        }
    }
    local_files
}

/// A pipeline with some data as its only source. An unusual format of its files is reported on
/// stderr.
pub(super) fn data_pipeline(name: &str, data: &str) -> Result<Pipeline> {
    let dialect = data_dialect(data)?;
    if !dialect.findings.is_empty() {
        let note = format!("note: {data}: {}\n", dialect.findings.join("; "));
        // A note that cannot be written is no reason to stop.
        let _ = std::io::stderr().write_all(printable_lines(&note).as_bytes());
    }
    dialect_pipeline(name, data, &dialect)
}

/// Format of CSV files as it was found; other formats state theirs.
fn data_dialect(data: &str) -> Result<CsvFindings> {
    if format_of_data(data)? != "csv" {
        return Ok(CsvFindings::default());
    }
    sniff_csv(&StorageClient::new()?, data)
}

fn dialect_pipeline(name: &str, data: &str, dialect: &CsvFindings) -> Result<Pipeline> {
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
        days: Default::default(),
        at: None,
    };
    Ok(Pipeline {
        name: name.to_owned(),
        sources: vec![source],
        ..Pipeline::default()
    })
}

/// The endings by which the format of files is told.
const FORMAT_ENDINGS: &str = "files end in .parquet, .arrow, .arrows, .ipc or .feather, \
                              or in .csv, .tsv, .json, .jsonl or .ndjson, which \
                              .gz or .zst may follow";

/// Format by the ending of the path, or of the first file below a directory; a directory with a log is a table.
fn format_of_data(data: &str) -> Result<&'static str> {
    let mut name = data.to_owned();
    if name.trim().is_empty() {
        return Err(
            usage("the path of the data is empty").hint("give a file, a directory or a pattern")
        );
    }
    let is_local = !name.contains("://") && !name.contains(['*', '?', '[']);
    if is_local && !Path::new(&name).exists() {
        let fault = Fault::new(
            codes::NO_INPUT,
            format!("there is no file or directory `{name}`"),
        );
        return Err(fault.hint("give a file, a directory or a pattern such as 'data/*.parquet'"));
    }
    // The files of a table are not all rows of its latest version.
    let has_pattern = name.contains(['*', '?', '[']);
    if !has_pattern && has_delta_log(&StorageClient::new()?, &name)? {
        return Ok("delta");
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
                .hint(FORMAT_ENDINGS)
            })?;
    }
    format_of_name(&name).ok_or_else(|| {
        usage(format!(
            "the format of `{data}` cannot be told from its name"
        ))
        .hint(FORMAT_ENDINGS)
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
