//! Records of runs: one small file for each run in the state directory, for people who look at runs later.
//!
//! ```text
//! history/<milliseconds>-<random>.json   the run that began then: as it goes on, and as it ended
//! ```
//! Names sort by the time at which runs began. No run reads a record, so an unreadable one disturbs no run. Each run that
//! ends removes the oldest records beyond [`HistoryLimits`].

use std::collections::BTreeMap;

use bytes::Bytes;
use forebay_commit::HISTORY;
use forebay_model::{Fault, Interval, Result};
use forebay_storage::{StorageClient, StorageLocation, parse_env};
use serde::{Deserialize, Serialize};

/// The version of records. Other versions are not read.
const FORMAT: u32 = 1;

/// Rules that do not hold, and warnings, that a record lists.
pub(crate) const LISTED_MAX: usize = 100;

/// Records that are kept, where `FOREBAY_HISTORY_RUNS` is not set: those of a year of hourly runs, or of a week of runs
/// each minute.
const RUNS_MAX: usize = 10_000;

/// MiB of records that are kept, where `FOREBAY_HISTORY_MIB` is not set.
const MIB_MAX: u64 = 256;

/// Seconds for which a record stays after it was written. A run that goes on writes its record every two seconds, and is
/// not disturbed by runs that began later.
const LIVE_SECONDS: i64 = 600;

/// Records that one run removes at most: the next run goes on.
const REMOVED_MAX: usize = 1_000;

/// Suffix of the names of files.
const SUFFIX: &str = ".json";

/// Record of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Version of the record.
    pub format: u32,
    /// Name of the record.
    pub name: String,
    /// The pipeline.
    pub pipeline: String,
    /// `fit`, `run` or `apply`.
    pub mode: String,
    /// State of the run.
    pub state: RunRecordState,
    /// The name that the user gave to the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// The interval that it writes, if not everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// Path of each source that has one without secrets, as the spec names it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub source_paths: BTreeMap<String, String>,
    /// The file of the run's page on that machine, from its root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<String>,
    /// The machine.
    pub host: String,
    /// The process on that machine.
    pub process: u32,
    /// Start of the run, in seconds since 1970.
    pub began: u64,
    /// Time at which the record was written, in seconds since 1970.
    pub seen: u64,
    /// Seconds from the start to that time.
    pub seconds: f64,
    /// Passes that have begun, in order: the latest 200.
    #[serde(default)]
    pub passes: Vec<RecordedPass>,
    /// Number of earlier passes, which are not listed.
    #[serde(default)]
    pub passes_left_out: usize,
    /// Number of passes of the program; 0 if none has begun.
    #[serde(default)]
    pub pass_count: usize,
    /// Expected end of a run that goes on, in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_end: Option<String>,
    /// Source that the run waits for, and the condition that the source must meet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// The last time of the data that the run knew, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_until: Option<String>,
    /// Published outputs.
    #[serde(default)]
    pub outputs: Vec<RecordedOutput>,
    /// Trained models.
    #[serde(default)]
    pub models: Vec<RecordedModel>,
    /// Number of judged rules.
    #[serde(default)]
    pub rules: usize,
    /// Rules that do not hold: at most 100.
    #[serde(default)]
    pub failed_rules: Vec<RecordedRule>,
    /// The deadline, and its outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<RecordedDeadline>,
    /// Levels of degradation that were applied to be on time.
    #[serde(default)]
    pub levels: Vec<String>,
    /// Stored bytes that the passes read.
    #[serde(default)]
    pub read_bytes: u64,
    /// Bytes spilled to disk.
    #[serde(default)]
    pub spilled_bytes: u64,
    /// Peak of the resident memory of the process, in bytes, where the system reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The memory limit, in bytes.
    #[serde(default)]
    pub memory_limit_bytes: u64,
    /// The artifact's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<String>,
    /// Warnings: at most 100.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// The fault of a run that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<RecordedFault>,
}

/// Bounds of the records that a state directory keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HistoryLimits {
    /// Records at most.
    pub runs_max: usize,
    /// Bytes of all records at most.
    pub bytes_max: u64,
}

impl HistoryLimits {
    /// Reads `FOREBAY_HISTORY_RUNS` and `FOREBAY_HISTORY_MIB`.
    pub fn from_env() -> Result<HistoryLimits> {
        let runs = parse_env(
            "FOREBAY_HISTORY_RUNS",
            "a number of runs, 1 or more",
            |runs| *runs > 0,
        )?;
        let mebibytes = parse_env(
            "FOREBAY_HISTORY_MIB",
            "a number of MiB, 1 or more",
            |mebibytes| (1..1_000_000_000).contains(mebibytes),
        )?;
        Ok(HistoryLimits {
            runs_max: runs.unwrap_or(RUNS_MAX),
            bytes_max: mebibytes.unwrap_or(MIB_MAX) << 20,
        })
    }

    /// Names of the records to remove, of which the latest ones come last in `records`. The record of the run that ends
    /// stays, and so do those that another run may still write.
    fn surplus<'r>(&self, records: &'r [StoredRecord], own_name: &str) -> Vec<&'r str> {
        let own_record = records.iter().find(|record| record.name == own_name);
        // Times are those of the store: its clock may differ from that of this machine.
        let Some(now) = own_record.map(|record| record.written) else {
            return Vec::new();
        };
        let mut count = 0;
        let mut bytes: u64 = 0;
        let mut removed = Vec::new();
        for record in records.iter().rev() {
            count += 1;
            bytes = bytes.saturating_add(record.bytes);
            let is_surplus = count > self.runs_max || bytes > self.bytes_max;
            let is_ended = record.written.saturating_add(LIVE_SECONDS) < now;
            if is_surplus && is_ended && record.name != own_name {
                removed.push(record.name.as_str());
            }
        }
        // The oldest go first.
        removed.reverse();
        removed.truncate(REMOVED_MAX);
        removed
    }
}

/// A record in its store.
#[derive(Debug, Clone, PartialEq, Eq)]
struct StoredRecord {
    name: String,
    bytes: u64,
    /// Second since 1970 at which it was written, by the clock of the store.
    written: i64,
}

/// State of a recorded run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunRecordState {
    /// The run goes on, or was killed.
    #[default]
    Running,
    /// The run did everything.
    Complete,
    /// All results were known already.
    NothingNew,
    /// The run did less than its pipeline says, to be on time.
    Degraded,
    /// The run failed.
    Failed,
}

/// A pass of a recorded run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RecordedPass {
    /// Name of the pass, for people.
    pub label: String,
    /// Number of the pass, from 1.
    pub number: usize,
    /// Second of the run at which it began.
    pub from: f64,
    /// Second of the run at which it ended; `None` of a pass that did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<f64>,
    /// True if an earlier run had done it.
    pub reused: bool,
    /// Rows that it read.
    pub rows: u64,
    /// Stored bytes that it read.
    pub bytes: u64,
    /// Stored bytes to read, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_to_read: Option<u64>,
}

/// An output of a recorded run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedOutput {
    /// The sink.
    pub sink: String,
    /// True if the rows are a forecast.
    pub is_forecast: bool,
    /// Rows of the sources that were read for it.
    pub rows_in: u64,
    /// Rows written.
    pub rows: u64,
    /// Files written; 0 where they are not counted.
    pub files: u64,
    /// Bytes written; 0 where they are not counted.
    pub bytes: u64,
}

/// A model of a recorded run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RecordedModel {
    /// The sink.
    pub sink: String,
    /// True if an earlier run had trained it.
    pub reused: bool,
    /// Loss on the validation rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// Least loss of a forecast without a model on those rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<f64>,
}

/// A rule that does not hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedRule {
    /// The step.
    pub step: String,
    /// The rule, such as `not_null: qty`.
    pub rule: String,
    /// Number of judged rows.
    pub rows: u64,
    /// Rows that violate it.
    pub violations: u64,
    /// The measured violation, for people.
    pub finding: String,
}

/// The deadline of a recorded run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedDeadline {
    /// The instant, in UTC.
    pub at: String,
    /// True if the run ended before it.
    pub on_time: bool,
}

/// The fault of a recorded run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedFault {
    /// The code, such as `FB0107`.
    pub code: String,
    /// The message.
    pub message: String,
    /// The next step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl RunRecord {
    /// Record of a run that begins.
    pub(crate) fn new(name: String) -> RunRecord {
        RunRecord {
            format: FORMAT,
            name,
            ..RunRecord::default()
        }
    }

    /// Names of all records of a state directory, those of the first runs first.
    pub fn names(io: &StorageClient, state: &StorageLocation) -> Result<Vec<String>> {
        let records = stored_records(io, state)?;
        Ok(records.into_iter().map(|record| record.name).collect())
    }

    /// Removes the oldest records beyond some limits, once the record of this run is written. Other processes may
    /// remove the same ones at the same time.
    pub(crate) fn remove_surplus(
        &self,
        io: &StorageClient,
        state: &StorageLocation,
        limits: HistoryLimits,
    ) -> Result<()> {
        let records = stored_records(io, state)?;
        for name in limits.surplus(&records, &self.name) {
            io.delete(&RunRecord::location(state, name))?;
        }
        Ok(())
    }

    /// Reads a record. `None` if there is none of this name, or if this version cannot read it.
    pub fn read(
        io: &StorageClient,
        state: &StorageLocation,
        name: &str,
    ) -> Result<Option<RunRecord>> {
        if !is_record_name(name) {
            return Ok(None);
        }
        let Some(bytes) = io.get(&RunRecord::location(state, name))? else {
            return Ok(None);
        };
        let record: Option<RunRecord> = serde_json::from_slice(&bytes).ok();
        Ok(record.filter(|record| record.format == FORMAT && record.name == name))
    }

    /// Writes the record, and replaces an earlier one of the same run.
    pub(crate) fn write(&self, io: &StorageClient, state: &StorageLocation) -> Result<()> {
        let bytes = serde_json::to_vec(self)
            .map_err(|error| Fault::internal("a run cannot be recorded").cause(error))?;
        io.put(&RunRecord::location(state, &self.name), Bytes::from(bytes))
    }

    fn location(state: &StorageLocation, name: &str) -> StorageLocation {
        state.join(&format!("{HISTORY}/{name}{SUFFIX}"))
    }

    /// Number of rules that do not hold, for people: `100 or more` where the record may not list all of them.
    pub fn failed_rules_text(&self) -> String {
        let failed = self.failed_rules.len();
        if failed >= LISTED_MAX {
            format!("{failed} or more")
        } else {
            failed.to_string()
        }
    }

    /// Rows of all outputs.
    pub fn rows(&self) -> u64 {
        self.outputs.iter().map(|output| output.rows).sum()
    }
}

/// The records of a state directory, those of the first runs first.
fn stored_records(io: &StorageClient, state: &StorageLocation) -> Result<Vec<StoredRecord>> {
    let mut records = Vec::new();
    for object in io.list(&state.join(HISTORY))? {
        let name = object.location.filename().unwrap_or_default();
        if let Some(name) = name.strip_suffix(SUFFIX)
            && is_record_name(name)
        {
            records.push(StoredRecord {
                name: name.to_owned(),
                bytes: object.size,
                written: object.last_modified.timestamp(),
            });
        }
    }
    records.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(records)
}

/// True for digits and letters of hexadecimal numbers with a dash: such a name leads nowhere else.
fn is_record_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    !name.is_empty() && name.len() <= 64 && name.bytes().all(is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_list_of_rules_may_lack_some() {
        let mut record = RunRecord {
            failed_rules: vec![RecordedRule::default(); LISTED_MAX - 1],
            ..RunRecord::default()
        };
        assert_eq!(record.failed_rules_text(), "99");
        record.failed_rules.push(RecordedRule::default());
        assert_eq!(record.failed_rules_text(), "100 or more");
    }

    fn stored(name: &str, bytes: u64, written: i64) -> StoredRecord {
        StoredRecord {
            name: name.to_owned(),
            bytes,
            written,
        }
    }

    #[test]
    fn the_oldest_records_beyond_the_limits_are_removed() {
        let now = 1_000_000;
        let old = now - LIVE_SECONDS - 1;
        let records = [
            stored("0001-a", 10, old),
            // A long run that goes on.
            stored("0002-b", 10, now - 2),
            stored("0003-c", 10, old),
            stored("0004-d", 10, old),
            stored("0005-e", 10, now),
            // A run that began later and ended before.
            stored("0006-f", 10, old),
        ];
        let surplus = |runs_max, bytes_max, own_name: &str| {
            let limits = HistoryLimits {
                runs_max,
                bytes_max,
            };
            limits.surplus(&records, own_name).join(" ")
        };
        for (runs_max, bytes_max, expected) in [
            (6, 60, ""),
            (5, 60, "0001-a"),
            (3, 60, "0001-a 0003-c"),
            (6, 35, "0001-a 0003-c"),
            (1, 60, "0001-a 0003-c 0004-d"),
            // The record of the run that ends stays.
            (6, 0, "0001-a 0003-c 0004-d 0006-f"),
        ] {
            let removed = surplus(runs_max, bytes_max, "0005-e");
            assert_eq!(removed, expected, "{runs_max} runs, {bytes_max} bytes");
        }
        assert_eq!(surplus(1, 60, "0007-g"), "", "the record was not written");
    }

    #[test]
    fn surplus_records_are_removed_from_the_state_directory() {
        let directory = tempfile::tempdir().unwrap();
        let io = StorageClient::new().unwrap();
        let state = io.resolve(&directory.path().display().to_string()).unwrap();
        let limits = HistoryLimits {
            runs_max: 2,
            bytes_max: 1 << 20,
        };
        for name in ["0001-a", "0002-b", "0003-c"] {
            let record = RunRecord::new(name.to_owned());
            record.write(&io, &state).unwrap();
            record.remove_surplus(&io, &state, limits).unwrap();
        }
        // Other runs may still write them.
        assert_eq!(RunRecord::names(&io, &state).unwrap().len(), 3);
        let history = directory.path().join(HISTORY);
        let hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
        for name in ["0001-a", "0002-b"] {
            let file = history.join(format!("{name}.json"));
            let file = std::fs::File::options().write(true).open(file).unwrap();
            file.set_modified(hour_ago).unwrap();
        }
        std::fs::write(history.join("notes.txt"), "x").unwrap();
        let latest = RunRecord::new("0003-c".to_owned());
        latest.remove_surplus(&io, &state, limits).unwrap();
        latest.remove_surplus(&io, &state, limits).unwrap();
        assert_eq!(RunRecord::names(&io, &state).unwrap(), ["0002-b", "0003-c"]);
        assert!(history.join("notes.txt").exists());
    }

    #[test]
    fn records_are_read_in_the_order_of_their_runs() {
        let directory = tempfile::tempdir().unwrap();
        let io = StorageClient::new().unwrap();
        let state = io.resolve(&directory.path().display().to_string()).unwrap();
        assert_eq!(RunRecord::names(&io, &state).unwrap(), Vec::<String>::new());
        for name in ["0002-b", "0001-a"] {
            let record = RunRecord {
                pipeline: "shop".to_owned(),
                seconds: 1.5,
                ..RunRecord::new(name.to_owned())
            };
            record.write(&io, &state).unwrap();
            assert_eq!(RunRecord::read(&io, &state, name).unwrap(), Some(record));
        }
        let history = directory.path().join(HISTORY);
        std::fs::write(history.join("0003-c.json"), "{\"format\":1").unwrap();
        std::fs::write(history.join("notes.txt"), "x").unwrap();
        std::fs::write(directory.path().join("secret.json"), "{}").unwrap();
        assert_eq!(
            RunRecord::names(&io, &state).unwrap(),
            ["0001-a", "0002-b", "0003-c"]
        );
        for name in ["0003-c", "0004-d", "../secret", "", "0001-a/../../secret"] {
            assert_eq!(RunRecord::read(&io, &state, name).unwrap(), None, "{name}");
        }
    }
}
