//! Runs that write a Delta table are killed, as by `kill -9`, at steps that change what is stored. Readers see the old
//! version of the table or the new one, the next run commits once, and what killed runs left can be collected.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use arrow::array::RecordBatch;
use serde_json::Value;

use crate::delta::sink::{ROWS, csv_shop};
use crate::nights::kills::{copy_preserving, step_kind, temporary_files};
use crate::support::delta_log::{actions, commits, file_of, live_rows};
use crate::support::s3_server::S3Server;
use crate::support::watched_command::WatchedCommand;
use crate::support::{ProgramOutput, TestDirectory};

/// Steps beside those of the table: every so many kinds of them.
const OTHER_STEPS: usize = 6;

/// A run that changes a table, and what lies there before it.
struct TableJob {
    shop: TestDirectory,
    /// Serves the bucket in which table and state lie, if they do not lie on a disk.
    server: Option<S3Server>,
    args: Vec<&'static str>,
}

/// What a table shows, and the commits of runs that made it so.
#[derive(PartialEq)]
struct TableState {
    rows: Option<RecordBatch>,
    writes: usize,
}

impl TableJob {
    fn new(sink: &str, args: &[&'static str]) -> TableJob {
        TableJob {
            shop: csv_shop(ROWS, sink, ""),
            server: None,
            args: args.to_vec(),
        }
    }

    /// The same with table and state in a bucket.
    fn in_bucket(mut self) -> TableJob {
        std::fs::create_dir_all(self.shop.path("buckets/lake")).unwrap();
        self.edit("spec.yaml", "path: table", "path: s3://lake/table");
        self.server = Some(S3Server::start(&self.shop.path("buckets")));
        self
    }

    fn edit(&self, file: &str, from: &str, to: &str) {
        let text = std::fs::read_to_string(self.shop.path(file)).unwrap();
        assert!(text.contains(from), "{from}");
        self.shop.write(file, &text.replace(from, to));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.shop.path(&if self.server.is_some() {
            format!("buckets/lake/{name}")
        } else {
            name.to_owned()
        })
    }

    fn table(&self) -> PathBuf {
        self.path("table")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = match &self.server {
            None => self.shop.command(&[args, &["--state=state"]].concat()),
            Some(server) => {
                server.command(&self.shop, &[args, &["--state=s3://lake/state"]].concat())
            }
        };
        std::fs::create_dir_all(self.shop.path("tmp")).unwrap();
        command.env("TMPDIR", self.shop.path("tmp"));
        command
    }

    fn run(&self) -> Command {
        self.command(&[&["run", "spec.yaml", "--threads=2"], &self.args[..]].concat())
    }

    /// Runs over some rows, without being killed.
    fn after(self, rows: &str) -> TableJob {
        self.shop.write("rows.csv", rows);
        ProgramOutput::from(self.run().watched()).expect(0);
        self
    }

    fn shown(&self) -> TableState {
        let table = self.table();
        if !table.join("_delta_log").exists() {
            return TableState {
                rows: None,
                writes: 0,
            };
        }
        let writes = commits(&table)
            .iter()
            .filter(|commit| !actions(commit, "txn").is_empty())
            .count();
        TableState {
            rows: live_rows(&table),
            writes,
        }
    }

    /// Puts table and state back to where they were before the run.
    fn restore(&self) {
        for dir in ["table", "state"] {
            let _ = std::fs::remove_dir_all(self.path(dir));
            let before = self.shop.path("before").join(dir);
            if before.exists() {
                copy_preserving(&before, &self.path(dir));
            }
        }
    }

    /// Kills the run over some rows at steps that are chosen, and lets it go on.
    fn killed_and_resumed(&self, rows: &str, turn: usize) {
        self.shop.write("rows.csv", rows);
        for dir in ["table", "state"]
            .into_iter()
            .filter(|dir| self.path(dir).exists())
        {
            copy_preserving(&self.path(dir), &self.shop.path("before").join(dir));
        }
        let before = self.shown();
        ProgramOutput::from(
            self.run()
                .env("FOREBAY_KILL_LOG", self.shop.path("steps"))
                .watched(),
        )
        .expect(0);
        let after = self.shown();
        assert!(
            after.rows.is_some() && after.rows != before.rows && after.writes == before.writes + 1
        );
        let steps = std::fs::read_to_string(self.shop.path("steps")).unwrap();
        let steps: Vec<String> = steps
            .lines()
            .map(|step| step_kind(step, &self.shop.at("")))
            .collect();
        let moments = chosen_steps(&steps, turn);
        assert!(
            moments
                .iter()
                .any(|moment| steps[*moment].contains("_delta_log")),
            "{steps:?}"
        );
        for moment in moments {
            let step = format!("step {moment} of {}: {}", steps.len(), steps[moment]);
            self.restore();
            let killed = self
                .run()
                .env("FOREBAY_KILL_AT", moment.to_string())
                .watched();
            assert_eq!(
                killed.status.signal(),
                Some(9),
                "{step}: {}",
                String::from_utf8_lossy(&killed.stderr)
            );
            let seen = self.shown();
            let is_whole =
                |state: &TableState| seen.rows == state.rows && seen.writes == state.writes;
            assert!(
                is_whole(&before) || is_whole(&after),
                "{step}: something between shows"
            );
            ProgramOutput::from(self.run().watched()).expect(0);
            assert!(
                self.shown() == after,
                "{step}: rows are lost or doubled, or committed twice"
            );
            ProgramOutput::from(
                self.command(&["cache", "gc", "--older-than", "0s"])
                    .watched(),
            )
            .expect(0);
            assert!(
                self.shown() == after,
                "{step}: the collection changed the table"
            );
            assert_eq!(unneeded_files(&self.table()), BTreeSet::new(), "{step}");
            assert_eq!(
                temporary_files(&self.table()),
                Vec::<String>::new(),
                "{step}"
            );
            let log = commits(&self.table()).len();
            ProgramOutput::from(self.run().watched()).expect(0);
            assert!(
                self.shown() == after && commits(&self.table()).len() == log,
                "{step}: committed again"
            );
        }
    }
}

/// All steps that concern the table, and the first of some other kinds, from that of this turn on.
fn chosen_steps(steps: &[String], turn: usize) -> Vec<usize> {
    let mut seen = BTreeSet::new();
    let mut others = turn;
    let mut is_chosen = |step: &String| {
        if step.contains("table") || step.contains("file") {
            return true;
        }
        let is_new = seen.insert(step.clone());
        others += usize::from(is_new);
        is_new && others.is_multiple_of(OTHER_STEPS)
    };
    steps
        .iter()
        .enumerate()
        .filter(|(_, step)| is_chosen(step))
        .map(|(at, _)| at)
        .collect()
}

/// Data files that no version of a table names. Those of a version that are missing fail the test: readers of earlier
/// versions need them for a week.
fn unneeded_files(table: &Path) -> BTreeSet<PathBuf> {
    let added: Vec<Value> = commits(table)
        .into_iter()
        .flat_map(|commit| actions(&commit, "add"))
        .collect();
    let named: BTreeSet<PathBuf> = added.iter().map(|add| file_of(table, add)).collect();
    named
        .iter()
        .for_each(|file| assert!(file.exists(), "{} is missing", file.display()));
    let mut table_files = BTreeSet::new();
    let mut open = vec![table.join("data")];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path())
            } else {
                table_files.insert(entry.path());
            }
        }
    }
    table_files.difference(&named).cloned().collect()
}

/// Rows of three days.
const MORE: &str =
    "day,shop,qty,price\n2024-02-29,a,9,0.5\n2024-03-01,b/c,2,1.5\n2024-03-05,d,4,1.5\n";

#[test]
fn a_table_that_is_made_survives_kills() {
    TableJob::new("", &[]).killed_and_resumed(MORE, 0);
}

#[test]
fn a_table_whose_rows_are_replaced_survives_kills() {
    TableJob::new(", partition_by: [shop]", &[])
        .after(ROWS)
        .killed_and_resumed(MORE, 1);
}

#[test]
fn a_table_with_small_files_and_checkpoints_survives_kills() {
    let job = TableJob::new(", mode: append, compact_below_bytes: 1000000", &[]).after(ROWS);
    let first = job
        .table()
        .join("_delta_log")
        .join(format!("{:020}.json", 0));
    let text = std::fs::read_to_string(&first).unwrap();
    std::fs::write(
        &first,
        text.replace(
            "\"configuration\":{}",
            "\"configuration\":{\"delta.checkpointInterval\":\"1\"}",
        ),
    )
    .unwrap();
    job.killed_and_resumed(MORE, 2);
    assert!(job.table().join("_delta_log/_last_checkpoint").exists());
}

#[test]
fn an_interval_that_divides_files_survives_kills() {
    let mut job = TableJob::new("", &[]).after(MORE);
    std::fs::remove_file(job.table().join("_manifest.json")).unwrap();
    std::fs::remove_dir_all(job.path("state")).unwrap();
    job.edit("spec.yaml", "rows.csv }", "rows.csv }\n    time: day");
    job.args = vec!["--interval", "2024-03-01", "2024-03-02"];
    job.killed_and_resumed(&ROWS.replace("NaN", "2.5"), 3);
}

#[test]
fn a_table_in_a_bucket_survives_kills() {
    TableJob::new("", &[])
        .in_bucket()
        .after(ROWS)
        .killed_and_resumed(MORE, 4);
}

#[test]
fn rows_that_are_added_in_a_bucket_survive_kills() {
    TableJob::new(", mode: append, compact_below_bytes: 1000000", &[])
        .in_bucket()
        .after(ROWS)
        .killed_and_resumed(MORE, 5);
}
