//! Records of runs, as they are read for pages. A run that has ended is read once.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use forebay_model::Result;
use forebay_run::{ClusterStatus, RunRecord, RunRecordState};
use forebay_storage::{StorageClient, StorageLocation};
use forebay_threads::parallel_map;

use crate::page::StateView;

/// Records that are read: the latest ones.
const RECORDS_MAX: usize = 500;

/// Threads that read records: a bucket takes its time for each.
const READ_THREADS: usize = 16;

/// The records of a state directory.
pub(super) struct RunHistory {
    io: StorageClient,
    state: StorageLocation,
    /// Runs that have ended, by the names of their records.
    ended: Mutex<BTreeMap<String, RunRecord>>,
}

impl RunHistory {
    pub fn new(io: StorageClient, state: StorageLocation) -> RunHistory {
        RunHistory {
            io,
            state,
            ended: Mutex::default(),
        }
    }

    /// The state directory, as it is now.
    pub fn view(&self) -> Result<StateView> {
        let mut names = RunRecord::names(&self.io, &self.state)?;
        let older = names.len().saturating_sub(RECORDS_MAX);
        names.drain(..older);
        let records = self.records(&names)?;
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        Ok(StateView {
            state: self.state.shown.clone(),
            unreadable: names.len() - records.len(),
            records,
            older,
            clusters: ClusterStatus::all(&self.io, &self.state)?,
            now: now.as_secs(),
        })
    }

    /// The record of a name, also one that is too old for the index.
    pub fn record(&self, name: &str) -> Result<Option<RunRecord>> {
        RunRecord::read(&self.io, &self.state, name)
    }

    /// The records of these names that can be read, in this order.
    fn records(&self, names: &[String]) -> Result<Vec<RunRecord>> {
        let mut records = self.ended();
        let unread: Vec<&String> = names
            .iter()
            .filter(|name| !records.contains_key(*name))
            .collect();
        if !unread.is_empty() {
            let read = parallel_map(READ_THREADS, unread.len(), &|index| {
                RunRecord::read(&self.io, &self.state, unread[index])
            })?;
            for record in read.into_iter().flatten() {
                records.insert(record.name.clone(), record);
            }
        }
        let mut listed = BTreeMap::new();
        for name in names {
            if let Some(record) = records.remove(name) {
                listed.insert(name.clone(), record);
            }
        }
        let mut ended = listed.clone();
        ended.retain(|_, record| record.state != RunRecordState::Running);
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = ended;
        Ok(listed.into_values().collect())
    }

    fn ended(&self) -> BTreeMap<String, RunRecord> {
        self.ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

#[cfg(test)]
mod tests {
    use forebay_run::{
        RecordedDeadline, RecordedFault, RecordedOutput, RecordedPass, RecordedRule,
    };

    use super::*;
    use crate::page::{index_page, pipeline_page, recorded_run_page};

    const BEGAN: u64 = 1_463_900_000;
    const DAY: u64 = 86_400;

    /// Writes the records of some nights of `shop`, the last of which goes on, and one run of `clicks` that failed.
    fn made_up_state(directory: &std::path::Path) -> Vec<RunRecord> {
        let night = |number: u64| RunRecord {
            format: 1,
            name: format!("{number:04}-a"),
            pipeline: "shop".to_owned(),
            mode: "run".to_owned(),
            state: RunRecordState::Complete,
            host: "<host>".to_owned(),
            began: BEGAN + number * DAY,
            seen: BEGAN + number * DAY + 60,
            seconds: 60.0 + number as f64,
            data_until: Some(format!("2016-05-{:02}", 20 + number)),
            outputs: vec![RecordedOutput {
                sink: "table".to_owned(),
                rows_in: 2_000,
                rows: 1_234 + number,
                ..RecordedOutput::default()
            }],
            ..RunRecord::default()
        };
        let mut records = vec![night(1), night(2), night(3), night(4), night(5)];
        records[1].rules = 3;
        records[1].failed_rules = vec![RecordedRule {
            step: "checked".to_owned(),
            rule: "sql: qty < 9 AND '<b>' = '<b>'".to_owned(),
            rows: 9,
            violations: 2,
            finding: "2 of 9 rows".to_owned(),
        }];
        records[2].state = RunRecordState::Degraded;
        records[2].levels = vec!["skip_optional".to_owned()];
        records[2].deadline = Some(RecordedDeadline {
            at: "2016-05-25T06:30:00Z".to_owned(),
            on_time: false,
        });
        records[3].pipeline = "clicks".to_owned();
        records[3].state = RunRecordState::Failed;
        records[3].outputs.clear();
        records[3].fault = Some(RecordedFault {
            code: "FB0209".to_owned(),
            message: "<script>alert(1)</script>".to_owned(),
            hint: None,
        });
        records[4].state = RunRecordState::Running;
        let history = directory.join("history");
        std::fs::create_dir_all(&history).unwrap();
        for record in &records {
            let text = serde_json::to_string(record).unwrap();
            std::fs::write(history.join(format!("{}.json", record.name)), text).unwrap();
        }
        std::fs::write(history.join("0006-a.json"), "{\"format\":7}").unwrap();
        records
    }

    fn history_of(directory: &std::path::Path) -> RunHistory {
        let io = StorageClient::new().unwrap();
        let state = io.resolve(&directory.display().to_string()).unwrap();
        RunHistory::new(io, state)
    }

    /// The text of a page, without the encoding of `/`.
    fn text(page: &crate::page::Page) -> String {
        let text = page.html().unwrap().replace("&#x2f;", "/");
        assert!(!text.contains("<script>alert") && !text.contains("<b>"));
        text
    }

    #[track_caller]
    fn assert_contains(text: &str, parts: &[&str]) {
        for part in parts {
            assert!(text.contains(part), "no `{part}` in {text}");
        }
    }

    #[test]
    fn pages_show_what_a_state_directory_holds() {
        let directory = tempfile::tempdir().unwrap();
        let records = made_up_state(directory.path());
        let history = history_of(directory.path());
        let mut view = history.view().unwrap();
        assert_eq!(view.records, records);
        assert_eq!((view.unreadable, view.older), (1, 0));
        // Those that have ended are not read again.
        std::fs::write(directory.path().join("history/0001-a.json"), "gone").unwrap();
        assert_eq!(history.view().unwrap().records, records);

        view.now = BEGAN + 5 * DAY + 61;
        let index = text(&index_page(&view));
        assert_contains(
            &index,
            &[
                "href=\"/pipelines/shop\"",
                "href=\"/runs/0005-a\"",
                "href=\"/pipelines/clicks\"",
                "1,237",
                "did less, to be on time",
                "missed 2016-05-25T06:30:00Z; skip_optional",
                "1 of 3",
                "FB0209: &lt;script&gt;",
                "process 0 on &lt;host&gt;",
                "cannot read 1 record",
                "aria-label=\"Rows, by run\"",
                "A trend takes two runs",
                "data-refresh=\"3\"",
                "no run that is read has succeeded",
            ],
        );
        view.unreadable = 0;
        assert_contains(&text(&index_page(&view)), &["no run has succeeded"]);
        let shop = text(&pipeline_page(&view, "shop").unwrap());
        assert_contains(
            &shop,
            &[
                "Days behind the data, by run",
                "Rules that do not hold, by run",
                "Levels of degradation, to be on time, by run",
                "/pipelines/shop/graph",
            ],
        );
        assert!(!shop.contains("FB0209"), "of another pipeline");
        assert!(pipeline_page(&view, "other").is_none());
        let failed = text(&recorded_run_page(&view, &records[3]));
        assert_contains(&failed, &["class=\"failed\"", "Why it failed", "FB0209"]);
        let checked = text(&recorded_run_page(&view, &records[1]));
        assert_contains(&checked, &["1 failed", "&lt;b&gt;", "1,236", "2 of 9 rows"]);

        // Its pass began later than the clock of the reader says.
        let mut running = records[4].clone();
        running.passes_left_out = 202;
        running.passes.push(RecordedPass {
            label: "learn".to_owned(),
            number: 203,
            from: 1000.0,
            ..RecordedPass::default()
        });
        let running = text(&recorded_run_page(&view, &running));
        assert_contains(
            &running,
            &[
                "from 1000.00 s to 1000.00 s",
                "202 passes before these are not listed",
            ],
        );

        // A run that goes on, and writes no more, was killed.
        view.now += 3_600;
        let index = text(&index_page(&view));
        assert_contains(&index, &["No run goes on", "killed or cut off"]);
        // So was one with workers, whose status is as old as 1970.
        view.clusters.push(ClusterStatus::default());
        assert_contains(&text(&index_page(&view)), &["data-refresh=\"15\""]);
        // It is the latest run that has ended, and stands in the table.
        let shop = text(&pipeline_page(&view, "shop").unwrap());
        assert_eq!(shop.matches("killed or cut off").count(), 2, "{shop}");
    }

    #[test]
    fn an_empty_state_directory_has_an_index() {
        let directory = tempfile::tempdir().unwrap();
        let view = history_of(&directory.path().join("none")).view().unwrap();
        assert_contains(
            &text(&index_page(&view)),
            &["No run goes on", "No run is recorded"],
        );
    }
}
