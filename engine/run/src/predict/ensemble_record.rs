//! Record of the learned weights of the ensembles of a pipeline, in its state directory.

use std::collections::BTreeMap;

use forebay_model::{ContentId, Fault, Result};
use forebay_storage::{StorageClient, StorageLocation};
use serde::{Deserialize, Serialize};

use super::ensemble_report::EnsembleReport;

/// The version of the record; grows when a field changes its meaning or goes away.
const FORMAT: u32 = 1;

/// Learned weights by `predict` sink. A run with the same models and rows takes them, and so does a run without
/// trainings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct EnsembleRecord {
    format: u32,
    sinks: BTreeMap<String, RecordedWeights>,
}

/// Weights of one ensemble.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct RecordedWeights {
    /// Id of everything that determines them.
    id: String,
    learned: EnsembleReport,
}

impl Default for EnsembleRecord {
    fn default() -> Self {
        EnsembleRecord {
            format: FORMAT,
            sinks: BTreeMap::new(),
        }
    }
}

impl EnsembleRecord {
    fn location(state: &StorageLocation, pipeline: &str) -> StorageLocation {
        state.join(&format!("ensembles/{pipeline}.json"))
    }

    /// Reads the record of a pipeline. One that is missing or of another version is empty.
    pub fn load(
        io: &StorageClient,
        state: &StorageLocation,
        pipeline: &str,
    ) -> Result<EnsembleRecord> {
        let bytes = io.get(&EnsembleRecord::location(state, pipeline))?;
        let record = bytes.and_then(|bytes| serde_json::from_slice::<EnsembleRecord>(&bytes).ok());
        Ok(record
            .filter(|record| record.format == FORMAT)
            .unwrap_or_default())
    }

    /// Replaces the record of a pipeline.
    pub fn save(&self, io: &StorageClient, state: &StorageLocation, pipeline: &str) -> Result<()> {
        let bytes = serde_json::to_vec(self).map_err(|error| {
            Fault::internal("the weights of an ensemble cannot be written").cause(error)
        })?;
        io.put(&EnsembleRecord::location(state, pipeline), bytes.into())
    }

    /// The weights of a sink, if they were learned under this id.
    pub fn learned_as(&self, sink: &str, id: ContentId) -> Option<&EnsembleReport> {
        let weights = self.sinks.get(sink)?;
        (weights.id == id.to_string()).then_some(&weights.learned)
    }

    /// The weights of a sink that an earlier run has learned.
    pub fn newest(&self, sink: &str) -> Option<&EnsembleReport> {
        self.sinks.get(sink).map(|weights| &weights.learned)
    }

    /// Replaces the weights of a sink.
    pub fn insert(&mut self, sink: &str, id: ContentId, learned: EnsembleReport) {
        let weights = RecordedWeights {
            id: id.to_string(),
            learned,
        };
        self.sinks.insert(sink.to_owned(), weights);
    }
}

#[cfg(test)]
mod tests {
    use forebay_model::IdBuilder;

    use super::*;
    use crate::predict::ensemble_report::EnsembleMember;

    #[test]
    fn weights_are_those_of_their_id() {
        let directory = tempfile::tempdir().unwrap();
        let io = StorageClient::new().unwrap();
        let state = io.resolve(&directory.path().display().to_string()).unwrap();
        let id = IdBuilder::new("first").finish();
        let member = EnsembleMember {
            model: "trees".to_owned(),
            weight: 1.0 / 3.0,
            error: 0.1,
        };
        let learned = EnsembleReport {
            members: vec![member],
            rows: 7,
            ..EnsembleReport::default()
        };
        let mut record = EnsembleRecord::load(&io, &state, "nightly").unwrap();
        assert_eq!(record, EnsembleRecord::default());
        record.insert("forecast", id, learned.clone());
        record.save(&io, &state, "nightly").unwrap();
        let record = EnsembleRecord::load(&io, &state, "nightly").unwrap();
        assert_eq!(record.learned_as("forecast", id), Some(&learned));
        let other = IdBuilder::new("second").finish();
        assert_eq!(record.learned_as("forecast", other), None);
        assert_eq!(record.newest("forecast"), Some(&learned));
        assert_eq!(record.newest("blend"), None);
    }
}
