//! `forebay export`.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use forebay_connectors::ModelPart;
use forebay_model::{Fault, Result, codes};
use forebay_storage::{ScratchDir, StorageClient, StorageLocation};
use forebay_threads::parallel_map;
use serde_json::json;

use super::export_model::{ModelExport, ModelFormat, export_model};
use super::export_serving::{DescribedServer, ServingSystem, export_serving};
use crate::present::units;
use crate::settings::Settings;
use crate::visible::{VisibleDataset, VisibleFile};

/// Files that are copied at the same time.
const FILES_AT_ONCE: usize = 4;

/// Bytes of a file that are read at a time.
const BLOCK_BYTES: u64 = 8 << 20;

/// Marker in a bucket that all files are written.
const COMPLETE: &str = "_SUCCESS";

/// Copy the files of an output or a Delta table as readers see them, or write a model for another
/// runtime.
///
/// Files are those of the last run, whole. On a local disk the directory appears when all files are in it. In a bucket
/// the object `_SUCCESS` is written last.
///
/// A model is written to `FILE.onnx` (onnxruntime) with the row-wise steps before it, or, as boosted trees alone, to
/// `FILE.txt` (LightGBM).
///
/// With `--for`, a description of `forebay serve` is written for another system: a directory with a `FeatureView` for
/// Feast, a file with an `InferenceService` for KServe.
#[derive(Debug, Args)]
pub(crate) struct ExportCommand {
    /// The output: the path of a sink, as `run` prints it, or the directory of a Delta table.
    output: String,
    /// The directory or URL to copy to, or the file of a model. It must not be there; a directory may be empty.
    directory: String,
    /// The group whose model is exported, for boosted trees `by` group: one value for each column.
    #[arg(long, value_name = "VALUES", value_delimiter = ',')]
    group: Option<Vec<String>>,
    /// Write the model alone: it takes the columns that its step delivers.
    #[arg(long)]
    without_steps: bool,
    /// The step of the horizon whose model is exported, for boosted trees with `strategy: per_step`.
    #[arg(long, value_name = "NUMBER")]
    step: Option<u64>,
    /// Describe what `forebay serve` would serve for this system, instead of copying it.
    #[arg(
        long = "for",
        value_enum,
        value_name = "SYSTEM",
        conflicts_with_all = ["group", "step", "without_steps"]
    )]
    system: Option<ServingSystem>,
    /// The state directory, where `--for` describes a pipeline by its name [default: .forebay]
    #[arg(long, value_name = "DIR", requires = "system")]
    state: Option<String>,
    /// Describe, with `--for`, a server that answers series with forecasts: `forebay serve --forecast`. Models that
    /// predict rows of the future alone do so without it.
    #[arg(long, requires = "system")]
    forecast: bool,
    /// Print a line of JSON.
    #[arg(long)]
    json: bool,
}

impl ExportCommand {
    pub fn run(self) -> Result<ExitCode> {
        let io = StorageClient::new()?;
        if let Some(system) = self.system {
            let state = Settings::load()?.state(self.state.as_deref()).value;
            let server = DescribedServer {
                path: &self.output,
                state: &state,
                forecast: self.forecast,
            };
            let bytes = export_serving(&io, &server, &self.directory, system)?;
            return self.print_file(bytes);
        }
        if let Some(format) = ModelFormat::of_file(&self.directory) {
            return self.export_model(&io, format);
        }
        let dataset = VisibleDataset::open(&io, &self.output)?;
        if dataset.has_deleted_rows() {
            let message =
                "files of the Delta table hold deleted rows, which a copy of the files would show";
            let fault = Fault::new(codes::UNSUPPORTED, message).file(&self.output);
            return Err(fault.hint("read the table with `delta:` and write it to a sink"));
        }
        let to = io.resolve(self.directory.trim_end_matches('/'))?;
        match &to.local {
            Some(local) => export_to_disk(&io, dataset.files(), local)?,
            None => export_to_store(&io, dataset.files(), &to)?,
        }
        let files = dataset.files();
        let bytes: u64 = files.iter().map(|file| file.bytes).sum();
        let rows: Option<u64> = files.iter().map(|file| file.rows).sum();
        let text = if self.json {
            let line =
                json!({ "path": to.shown, "files": files.len(), "bytes": bytes, "rows": rows });
            format!("{line}\n")
        } else {
            format!(
                "{}{} in {}\n  {}\n",
                rows.map_or_else(String::new, |rows| format!("{}, ", units::rows(rows))),
                units::bytes(bytes),
                units::counted(files.len() as u64, "file"),
                to.shown
            )
        };
        super::write_stdout(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl ExportCommand {
    fn export_model(&self, io: &StorageClient, format: ModelFormat) -> Result<ExitCode> {
        let request = ModelExport {
            format,
            part: ModelPart {
                group: self.group.clone(),
                step: self.step,
            },
            with_steps: !self.without_steps,
        };
        let bytes = export_model(io, &self.output, &self.directory, &request)?;
        self.print_file(bytes)
    }

    fn print_file(&self, bytes: u64) -> Result<ExitCode> {
        let text = if self.json {
            let line = json!({ "path": self.directory, "bytes": bytes });
            format!("{line}\n")
        } else {
            format!("{}\n  {}\n", units::bytes(bytes), self.directory)
        };
        super::write_stdout(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn occupied_fault(target: &str) -> Fault {
    let fault = Fault::new(
        codes::OUTPUT_CLASH,
        "there is something where the files would be copied to",
    )
    .file(target);
    fault.hint("remove it, or name another directory")
}

/// Copies to a directory that gets its name when all files are in it.
fn export_to_disk(io: &StorageClient, files: &[VisibleFile], to: &Path) -> Result<()> {
    let failed =
        |error| Fault::disk("the directory cannot be made", error).file(to.display().to_string());
    let above = to
        .parent()
        .ok_or_else(|| occupied_fault(&to.display().to_string()))?;
    std::fs::create_dir_all(above).map_err(failed)?;
    let staged = staging_directory(above).map_err(failed)?;
    let copy = |at: usize| copy_to_disk(io, &files[at], &staged.path().join(&*files[at].name));
    parallel_map(FILES_AT_ONCE, files.len(), &copy)?;
    // Renaming replaces an empty directory and no other.
    match std::fs::rename(staged.path(), to) {
        Ok(()) => {
            let _ = staged.keep();
            Ok(())
        }
        Err(error) if to.exists() => Err(occupied_fault(&to.display().to_string()).cause(error)),
        Err(error) => Err(failed(error)),
    }
}

/// Temporary directories are private by default; copies are for others to read.
fn staging_directory(above: &Path) -> std::io::Result<tempfile::TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".export-");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755));
    builder.tempdir_in(above)
}

/// Copies to a bucket.
fn export_to_store(io: &StorageClient, files: &[VisibleFile], to: &StorageLocation) -> Result<()> {
    if !io.list(to)?.is_empty() {
        return Err(occupied_fault(&to.shown));
    }
    let scratch = ScratchDir::new(None, std::sync::Arc::new(forebay_storage::IgnoreEvents))?;
    let copy = |at: usize| {
        let file = scratch.file()?;
        copy_to_disk(io, &files[at], file.path())?;
        io.upload_file(&to.join(&files[at].name), file.path())
    };
    parallel_map(FILES_AT_ONCE, files.len(), &copy)?;
    io.put(&to.join(COMPLETE), Vec::new().into())
}

/// Copies a file, in blocks where it comes from a store.
fn copy_to_disk(io: &StorageClient, file: &VisibleFile, to: &Path) -> Result<()> {
    use std::io::Write;
    let failed =
        |error| Fault::disk("a file cannot be copied", error).file(to.display().to_string());
    if let Some(folder) = to.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let from = io.resolve(&file.path)?;
    let copied = match &from.local {
        Some(local) => std::fs::copy(local, to).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => gone_fault(&file.path),
            _ => failed(error),
        })?,
        None => {
            let mut out = std::fs::File::create(to).map_err(failed)?;
            let starts = (0..file.bytes.div_ceil(BLOCK_BYTES)).map(|block| block * BLOCK_BYTES);
            let mut copied = 0;
            for start in starts {
                let range = start..(start + BLOCK_BYTES).min(file.bytes);
                for bytes in io.get_ranges(&from, &[range])? {
                    out.write_all(&bytes).map_err(failed)?;
                    copied += bytes.len() as u64;
                }
            }
            copied
        }
    };
    let copy = std::fs::File::open(to).map_err(failed)?;
    copy.sync_all().map_err(failed)?;
    if copied == file.bytes {
        Ok(())
    } else {
        Err(gone_fault(&file.path))
    }
}

fn gone_fault(path: &str) -> Fault {
    let fault = Fault::new(
        codes::LOST_RACE,
        "a file of the output is not what it was when the copy began",
    )
    .file(path);
    fault.hint("a run may have replaced the output; give the same command again")
}
