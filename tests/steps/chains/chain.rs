//! A chain: data, steps and ways to run them; its spec as text and its files on disk.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use arrow::array::RecordBatch;
use forebay::prelude::*;
use serde_json::Value as Json;

use super::interpreter::SeriesDeclaration;
use super::table::{CellRow, CellTable};
use crate::support::series;
use crate::support::{ProgramOutput, TestDirectory};

/// How long a run may take before it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(90);

/// The same for calls of the program, which two waits follow.
const PROGRAM_PATIENCE: Duration = Duration::from_secs(40);

/// The memory of the process of a test, which other tests share.
const MEMORY_BYTES: u64 = 8 << 30;

#[derive(Debug, Clone)]
pub struct ChainSource {
    pub name: String,
    pub table: CellTable,
    pub series: SeriesDeclaration,
}

impl ChainSource {
    /// The rows as they are read: file after file, and in order of time where the times of files do not overlap.
    pub fn in_reading_order(&self, files: usize) -> CellTable {
        let time = self
            .series
            .time
            .as_ref()
            .and_then(|time| self.table.find(time).ok());
        let each = self.table.rows.len().div_ceil(files).max(1);
        let mut chunks: Vec<&[CellRow]> = self.table.rows.chunks(each).collect();
        if let Some(time) = time {
            let extent = |rows: &[CellRow]| {
                let times = rows.iter().map(|row| row.cells[time].clone());
                (times.clone().min(), times.max())
            };
            let mut ordered = chunks.clone();
            ordered.sort_by_key(|rows| extent(rows));
            if ordered
                .windows(2)
                .all(|pair| extent(pair[0]).1 <= extent(pair[1]).0)
            {
                chunks = ordered;
            }
        }
        CellTable {
            rows: chunks.concat(),
            ..self.table.clone()
        }
    }
}

#[derive(Debug, Clone)]
pub enum ChainInput {
    From(String),
    Union(Vec<String>),
}

/// How a chain fails.
#[derive(Debug, Clone)]
pub struct ChainFailure {
    /// What the failures of smaller chains have to share with it.
    pub way: String,
    pub message: String,
}

impl ChainFailure {
    pub fn new(way: impl Into<String>, message: impl Into<String>) -> ChainFailure {
        ChainFailure {
            way: way.into(),
            message: message.into(),
        }
    }
}

/// A step of the pipeline: its input and its transforms.
#[derive(Debug, Clone)]
pub struct ChainNode {
    pub name: String,
    pub input: ChainInput,
    /// Whether it learns from the part `train` of the split.
    pub fitted: bool,
    pub steps: Vec<Json>,
}

/// How the rows of sources lie, and how they are run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChainLayout {
    pub files: usize,
    pub group_rows: usize,
    pub threads: usize,
    pub batch_rows: usize,
    /// Absent for the library, in the process of the test.
    pub program: Option<ProgramOptions>,
}

/// How the program is called.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProgramOptions {
    pub memory_mib: u64,
    pub local_workers: usize,
    /// The moment at which a first call is killed; a second one goes on.
    pub killed_at: Option<u64>,
}

#[derive(Debug, Clone)]
pub struct RandomChain {
    pub sources: Vec<ChainSource>,
    pub nodes: Vec<ChainNode>,
    pub split: Option<String>,
    pub layouts: Vec<ChainLayout>,
}

impl RandomChain {
    /// The step that is written.
    pub fn last(&self) -> &str {
        &self.nodes[self.nodes.len() - 1].name
    }

    /// The spec; `data` and `out` are directories.
    pub fn spec(&self, data: &str, out: &str) -> String {
        let mut text = String::from("version: 1\nname: chain\nsources:\n");
        for source in &self.sources {
            let name = &source.name;
            let keys = serde_json::json!(source.series.keys);
            write!(text, "  {name}: {{ parquet: {{ path: \"{data}/{name}\" }}").unwrap();
            if let Some(time) = &source.series.time {
                write!(text, ", time: {time}, keys: {keys}, duplicates: allow").unwrap();
            }
            text += " }\n";
        }
        text += "steps:\n";
        for node in &self.nodes {
            writeln!(text, "  {}:", node.name).unwrap();
            match &node.input {
                ChainInput::From(from) => writeln!(text, "    from: {from}").unwrap(),
                ChainInput::Union(all) => {
                    writeln!(text, "    union: {}", serde_json::json!(all)).unwrap()
                }
            }
            // A chain may come to no rows, of which nothing can be learned otherwise.
            text += "    allow_empty: true\n";
            if node.fitted {
                text += "    fit_on: train\n";
            }
            text += if node.steps.is_empty() {
                ""
            } else {
                "    do:\n"
            };
            node.steps
                .iter()
                .for_each(|step| writeln!(text, "      - {step}").unwrap());
        }
        if let Some(split) = &self.split {
            writeln!(text, "split:\n  train: {}", serde_json::json!(split)).unwrap();
        }
        writeln!(
            text,
            "sinks:\n  table: {{ from: {}, parquet: {{ path: \"{out}\" }} }}",
            self.last()
        )
        .unwrap();
        text
    }

    /// Writes the sources as files.
    pub fn write(&self, shop: &TestDirectory, data: &str, layout: ChainLayout) {
        for source in &self.sources {
            let dir = format!("{data}/{}", source.name);
            series::write(
                shop,
                &dir,
                &source.table.batch(),
                layout.files,
                layout.group_rows,
            );
        }
    }

    /// Runs the chain through the library.
    pub fn run(&self, layout: ChainLayout) -> Result<RecordBatch, ChainFailure> {
        let chain = self.clone();
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| match layout.program {
                None => chain.run_here(layout),
                Some(program) => chain.run_program(layout, program),
            }));
            // Without a receiver the test has given up already.
            let _ =
                sender.send(outcome.unwrap_or_else(|_| Err(ChainFailure::new("panic", "a panic"))));
        });
        receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            Err(ChainFailure::new(
                "hang",
                format!("no end after {PATIENCE:?}"),
            ))
        })
    }

    fn run_here(&self, layout: ChainLayout) -> Result<RecordBatch, ChainFailure> {
        let shop = TestDirectory::new();
        self.write(&shop, "data", layout);
        let text = self.spec(&shop.at("data"), &shop.at("out"));
        let forebay = Forebay::new();
        let shown = |fault: Fault| ChainFailure::new(fault.code().name, fault.to_string());
        let pipeline = forebay::spec::parse(
            &text,
            "spec.yaml",
            &BTreeMap::new(),
            &forebay.spec_catalog(),
        )
        .map_err(shown)?;
        let options = SessionOptions {
            threads: layout.threads,
            memory_bytes: MEMORY_BYTES,
            batch_rows: layout.batch_rows,
            state: shop.at("state"),
            run_id: None,
        };
        let session = forebay
            .with_options(options)
            .session()
            .map_err(shown)?
            .allowing_empty(true);
        session.run(&pipeline).map_err(shown)?;
        Ok(shop.visible("out"))
    }

    /// Runs the chain through the program.
    fn run_program(
        &self,
        layout: ChainLayout,
        program: ProgramOptions,
    ) -> Result<RecordBatch, ChainFailure> {
        let shop = TestDirectory::new();
        self.write(&shop, "data", layout);
        shop.write("spec.yaml", &self.spec("data", "out"));
        let mut args = vec![
            "run".to_owned(),
            "spec.yaml".to_owned(),
            "--allow-empty".to_owned(),
            format!("--memory={}MiB", program.memory_mib),
            format!("--threads={}", layout.threads),
            format!("--batch-rows={}", layout.batch_rows),
        ];
        if program.local_workers > 0 {
            args.push(format!("--local-workers={}", program.local_workers));
            args.extend([
                "--lease-seconds=2".to_owned(),
                "--grace-seconds=2".to_owned(),
            ]);
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        // Every file may be a range of its own.
        let command = || {
            let mut command = shop.command(&args);
            command
                .env("FOREBAY_RANGE_BYTES", "1")
                .env("FOREBAY_JOIN_BYTES", "1000");
            command
        };
        if let Some(at) = program.killed_at {
            let call = wait_or_kill(command().env("FOREBAY_KILL_AT", at.to_string()))?;
            // Workers are killed at that moment, too; without workers a run ends. Where each worker ends at the same
            // task, the task is to blame.
            let is_ended_by_task = program.local_workers > 0 && call.stderr.contains("FB0503");
            if ![0, KILLED, TRY_AGAIN].contains(&call.code) && !is_ended_by_task {
                return Err(ChainFailure::new("killed", call.stderr));
            }
        }
        let call = wait_or_kill(&mut command())?;
        if call.code != 0 {
            let code = call
                .stderr
                .split(['[', ']'])
                .find(|word| word.starts_with("FB"))
                .unwrap_or_default()
                .to_owned();
            return Err(ChainFailure::new(
                format!("exit {} {code}", call.code),
                call.stderr,
            ));
        }
        Ok(shop.visible("out"))
    }
}

/// What a call that was ended by a signal has for a code.
const KILLED: i32 = -1;

/// The exit code of what can be tried again.
const TRY_AGAIN: i32 = 75;

/// Waits for a call of the program, and ends it where it takes too long.
fn wait_or_kill(command: &mut Command) -> Result<ProgramOutput, ChainFailure> {
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let (sender, receiver) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        // What was read before a failure is shown all the same.
        let _ = stderr.read_to_end(&mut text);
        let _ = sender.send(());
        String::from_utf8_lossy(&text).into_owned()
    });
    // The pipe closes when the program and the workers that it started are gone.
    let in_time = receiver.recv_timeout(PROGRAM_PATIENCE).is_ok();
    if !in_time {
        child.kill().unwrap();
    }
    let code = child.wait().unwrap().code().unwrap_or(KILLED);
    if !in_time {
        return Err(ChainFailure::new(
            "hang",
            format!("no end after {PROGRAM_PATIENCE:?}"),
        ));
    }
    Ok(ProgramOutput {
        code,
        stdout: String::new(),
        stderr: reader.join().unwrap(),
    })
}
