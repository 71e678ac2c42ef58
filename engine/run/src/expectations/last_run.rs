//! Results of expectations in earlier runs, for those that compare with them.

use std::collections::BTreeMap;

use forebay_model::{Fault, Result};
use forebay_storage::{StorageClient, StorageLocation};
use serde::{Deserialize, Serialize};

use super::new_rows::KnownFiles;
use super::recent_days::RecentDays;
use crate::profile::ColumnProfile;

/// The version of the record; grows when a field changes its meaning or goes away.
const FORMAT: u32 = 1;

/// Results of the expectations of a pipeline in the last run that published, and in those of the
/// days before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LastRunRecord {
    format: u32,
    /// Results by step and rule.
    rules: BTreeMap<String, BTreeMap<String, RuleRecord>>,
    /// The files that runs have read, where a rule compares with the trailing week.
    #[serde(default, skip_serializing_if = "KnownFiles::is_empty")]
    pub known: KnownFiles,
}

/// Result of one expectation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RuleRecord {
    /// Number of judged rows.
    pub rows: u64,
    /// Profile of the column, for a rule about its distribution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ColumnProfile>,
    /// Id of the column's profile in all rows, for a rule that compares with the trailing week.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_rows: Option<String>,
    /// Profiles of the last days, for a rule that compares with the trailing week.
    #[serde(default, skip_serializing_if = "RecentDays::is_empty")]
    pub days: RecentDays,
}

impl Default for LastRunRecord {
    fn default() -> Self {
        LastRunRecord {
            format: FORMAT,
            rules: BTreeMap::new(),
            known: KnownFiles::default(),
        }
    }
}

impl LastRunRecord {
    fn place(state: &StorageLocation, pipeline: &str) -> StorageLocation {
        state.join(&format!("expected/{pipeline}.json"))
    }

    /// Reads the record of a pipeline. One that is missing or of another version is empty.
    pub fn load(
        io: &StorageClient,
        state: &StorageLocation,
        pipeline: &str,
    ) -> Result<LastRunRecord> {
        let bytes = io.get(&LastRunRecord::place(state, pipeline))?;
        let read = bytes.and_then(|bytes| serde_json::from_slice::<LastRunRecord>(&bytes).ok());
        Ok(read
            .filter(|record| record.format == FORMAT)
            .unwrap_or_default())
    }

    /// Replaces the record of a pipeline.
    pub fn save(&self, io: &StorageClient, state: &StorageLocation, pipeline: &str) -> Result<()> {
        let bytes = serde_json::to_vec(self);
        let bytes = bytes
            .map_err(|error| Fault::internal("what was expected cannot be written").cause(error))?;
        io.put(&LastRunRecord::place(state, pipeline), bytes.into())
    }

    pub fn rule(&self, step: &str, rule: &str) -> Option<&RuleRecord> {
        self.rules.get(step)?.get(rule)
    }

    pub fn insert(&mut self, step: &str, rule: &str, record: RuleRecord) {
        self.rules
            .entry(step.to_owned())
            .or_default()
            .insert(rule.to_owned(), record);
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}
