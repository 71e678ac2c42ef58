//! What the tests share: a workshop with data, the program, and ways to compare results.

pub mod delta_log;
pub mod google_server;
pub mod request_failures;
pub mod s3_server;
pub mod series;
pub mod watched_command;
pub mod web_recorder;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::Schema;
use forebay_generate::{ClicksOptions, DemandOptions, HistoryExtent, clicks, demand};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;

use crate::support::watched_command::WatchedCommand;

/// The program under test.
pub const FOREBAY: &str = env!("CARGO_BIN_EXE_forebay");

/// The repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .unwrap()
}

/// A ready-made spec.
pub fn ready_made(name: &str) -> String {
    repository()
        .join("pipelines/specs")
        .join(name)
        .display()
        .to_string()
}

/// Real data, where it is at hand: `FOREBAY_SHARED_DATA`, or `../shared/data` beside the repository.
pub fn real_data(what: &str) -> Option<PathBuf> {
    let given = std::env::var_os("FOREBAY_SHARED_DATA").map(PathBuf::from);
    let root = given.unwrap_or_else(|| repository().join("../shared/data"));
    let found = root.join(what).exists().then_some(root);
    if found.is_none() {
        // Not by the macro: the harness would keep it for tests that fail.
        let _ = writeln!(std::io::stderr(), "skipped: no real data `{what}` at hand");
    }
    found
}

/// True if the `python3` of the path has pyarrow, which functions of Python need.
pub fn has_pyarrow() -> bool {
    let status = Command::new("python3")
        .args(["-c", "import pyarrow"])
        .stderr(std::process::Stdio::null())
        .status();
    let has_pyarrow = status.is_ok_and(|status| status.success());
    if !has_pyarrow {
        let _ = writeln!(std::io::stderr(), "skipped: `python3` has no pyarrow");
    }
    has_pyarrow
}

/// A directory for one test.
pub struct TestDirectory {
    dir: tempfile::TempDir,
}

/// How a call of the program went.
#[derive(Debug)]
pub struct ProgramOutput {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl ProgramOutput {
    /// The summary: the last line of `--json`.
    pub fn summary(&self) -> Value {
        let last = self
            .stdout
            .lines()
            .last()
            .unwrap_or_else(|| panic!("no output, but {}", self.stderr));
        serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {last}"))
    }

    /// Fails the test with everything that was said, unless the code is this one.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(
            self.code, code,
            "stdout:\n{}\nstderr:\n{}",
            self.stdout, self.stderr
        );
        self
    }
}

impl From<Output> for ProgramOutput {
    fn from(output: Output) -> Self {
        ProgramOutput {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl TestDirectory {
    pub fn new() -> Self {
        TestDirectory {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The directory of an output's manifest and data.
    pub fn root(&self, out: &str) -> PathBuf {
        let visible = self.path(out);
        if out.starts_with("buckets/") {
            return visible;
        }
        visible.with_file_name(format!(
            ".{}.forebay",
            visible.file_name().unwrap().to_str().unwrap()
        ))
    }

    /// Removes an output with its data.
    pub fn remove_output(&self, out: &str) {
        std::fs::remove_dir_all(self.path(out)).unwrap();
        std::fs::remove_dir_all(self.root(out)).unwrap();
    }

    /// A path as text.
    pub fn at(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).unwrap();
        self.at(name)
    }

    /// The program, ready to start in this directory.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(FOREBAY);
        command.args(args);
        self.isolate(&mut command);
        command
    }

    /// Lets a command run in this directory, without the settings of the user and of other tests.
    pub fn isolate(&self, command: &mut Command) {
        command
            .current_dir(self.dir.path())
            .env_remove("AWS_ENDPOINT_URL")
            .env("NO_COLOR", "1");
        // Debug information that a backtrace reads would count as memory of the run.
        command.env("RUST_BACKTRACE", "0");
        // The token of this user, which workers and coordinators share.
        command
            .env_remove("FOREBAY_TOKEN")
            .env("XDG_STATE_HOME", self.path(".user"));
        command.env("XDG_CONFIG_HOME", self.path(".config"));
        // Output for pipes has no width, and logs are for those who ask.
        command.env_remove("COLUMNS").env_remove("RUST_LOG");
        // Where other runs of this user are told of.
        for name in [
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "OPENLINEAGE_URL",
        ] {
            command.env_remove(name);
        }
        command
            .env_remove("MLFLOW_TRACKING_URI")
            .env_remove("TRACEPARENT");
        for name in ["MEMORY", "THREADS", "STATE", "WORKERS", "LOCAL_WORKERS"] {
            command.env_remove(format!("FOREBAY_{name}"));
        }
    }

    /// The token that workers and coordinators of this workshop share without being told.
    pub fn user_token(&self) -> PathBuf {
        self.path(".user/forebay/token")
    }

    /// Calls the program.
    pub fn forebay(&self, args: &[&str]) -> ProgramOutput {
        self.command(args).watched().into()
    }

    /// A small history of demand: about a month, in daily files.
    pub fn demand(&self, name: &str, row_group_rows: usize) -> String {
        let mut options = DemandOptions::new(HistoryExtent::Days(40), 7, self.path(name));
        options.series = 200;
        options.period = "week".parse().unwrap();
        options.output.row_group_rows = row_group_rows;
        demand(&options, &mut |_| {}).unwrap();
        self.at(name)
    }

    /// Forty days of demand history, a file each; gives their names in order.
    pub fn days(&self, name: &str) -> Vec<String> {
        let mut options = DemandOptions::new(HistoryExtent::Days(40), 7, self.path(name));
        options.series = 60;
        options.period = "day".parse().unwrap();
        demand(&options, &mut |_| {}).unwrap();
        let names = std::fs::read_dir(self.path(name))
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// A small log of clicks in three files.
    pub fn clicks(&self, name: &str, row_group_rows: usize) -> String {
        let mut options = ClicksOptions::new(6000, 7, self.path(name));
        options.rows_per_file = 2500;
        options.output.row_group_rows = row_group_rows;
        clicks(&options, &mut |_| {}).unwrap();
        self.at(name)
    }

    /// All rows of the files that an output's manifest names, in order.
    pub fn visible(&self, out: &str) -> RecordBatch {
        let manifest = std::fs::read(self.root(out).join("_manifest.json")).unwrap();
        let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
        let shards = manifest["shards"].as_array().unwrap().iter();
        let files = shards.flat_map(|shard| shard["files"].as_array().unwrap());
        let files: Vec<PathBuf> = files
            .map(|file| self.root(out).join(file["path"].as_str().unwrap()))
            .collect();
        read_files(&files)
    }

    /// All rows of an output, in order.
    pub fn rows(&self, data: &str) -> RecordBatch {
        read(&self.path(data))
    }
}

/// All rows of a directory's Parquet files, in the order of their names.
pub fn read(dir: &Path) -> RecordBatch {
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    read_files(&files)
}

/// All rows of some Parquet files.
pub fn read_files(files: &[PathBuf]) -> RecordBatch {
    let mut batches = Vec::new();
    let mut schema = None;
    for file in files {
        let builder =
            ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(file).unwrap()).unwrap();
        schema.get_or_insert_with(|| Arc::new(Schema::new(builder.schema().fields().clone())));
        batches.extend(builder.build().unwrap().map(Result::unwrap));
    }
    concat_batches(&schema.unwrap(), &batches).unwrap()
}

/// Every file below a directory with its bytes, except lineages: they name files and runs.
pub fn content(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(dir_now) = open.pop() {
        for entry in std::fs::read_dir(&dir_now).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path
                .extension()
                .is_some_and(|end| end.to_string_lossy().contains('#'))
            {
                // What a killed process was about to put in place; it is never read.
            } else if path.file_name().unwrap() != "lineage.json" {
                let name = path.strip_prefix(dir).unwrap().display().to_string();
                found.push((name, std::fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}
