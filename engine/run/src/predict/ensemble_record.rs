//! Record of the learned weights of the ensembles of a pipeline, in its state directory.

use std::collections::BTreeMap;

use forebay_model::{ContentId, Fault, Result, codes};
use forebay_storage::{Event, EventListener, StorageClient, StorageLocation};
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

/// The version that any record begins with.
#[derive(Deserialize)]
struct RecordFormat {
    format: u32,
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

    /// Reads the record of a pipeline. One that is missing or of another version is empty. Fails if it is corrupt.
    pub fn load(
        io: &StorageClient,
        state: &StorageLocation,
        pipeline: &str,
    ) -> Result<EnsembleRecord> {
        let location = EnsembleRecord::location(state, pipeline);
        let Some(bytes) = io.get(&location)? else {
            return Ok(EnsembleRecord::default());
        };
        let version: RecordFormat =
            serde_json::from_slice(&bytes).map_err(|error| corrupt_fault(&location, error))?;
        if version.format != FORMAT {
            return Ok(EnsembleRecord::default());
        }
        serde_json::from_slice(&bytes).map_err(|error| corrupt_fault(&location, error))
    }

    /// Reads the record of a pipeline whose weights can be learned again: a corrupt one is empty, after a warning.
    pub fn load_or_warn(
        io: &StorageClient,
        state: &StorageLocation,
        pipeline: &str,
        listener: &dyn EventListener,
    ) -> Result<EnsembleRecord> {
        let fault = match EnsembleRecord::load(io, state, pipeline) {
            Err(fault) if fault.code() == codes::CORRUPT => fault,
            record => return record,
        };
        let location = EnsembleRecord::location(state, pipeline);
        let message = format!(
            "{} in {}, and are learned again",
            fault.message(),
            location.shown
        );
        listener.on_event(Event::Warning { message });
        Ok(EnsembleRecord::default())
    }

    /// Replaces the record of a pipeline. An attempt that another one has replaced does not: `check_fence` fails.
    pub fn save(
        &self,
        io: &StorageClient,
        state: &StorageLocation,
        pipeline: &str,
        check_fence: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let bytes = serde_json::to_vec(self).map_err(|error| {
            Fault::internal("the weights of an ensemble cannot be written").cause(error)
        })?;
        check_fence()?;
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

fn corrupt_fault(location: &StorageLocation, error: serde_json::Error) -> Fault {
    Fault::new(
        codes::CORRUPT,
        "the learned weights of ensembles cannot be read",
    )
    .file(&location.shown)
    .cause(error)
    .hint("remove the file: a run that trains learns them again")
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use forebay_model::IdBuilder;
    use tempfile::TempDir;

    use super::*;
    use crate::predict::ensemble_report::EnsembleMember;

    /// A listener that collects warnings.
    #[derive(Default)]
    struct Warnings(Mutex<Vec<String>>);

    impl EventListener for Warnings {
        fn on_event(&self, event: Event) {
            if let Event::Warning { message } = event {
                self.0.lock().unwrap().push(message);
            }
        }
    }

    fn state_in(directory: &TempDir, io: &StorageClient) -> StorageLocation {
        io.resolve(&directory.path().display().to_string()).unwrap()
    }

    #[test]
    fn weights_are_those_of_their_id() {
        let directory = TempDir::new().unwrap();
        let io = StorageClient::new().unwrap();
        let state = state_in(&directory, &io);
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
        record.save(&io, &state, "nightly", &|| Ok(())).unwrap();
        let record = EnsembleRecord::load(&io, &state, "nightly").unwrap();
        assert_eq!(record.learned_as("forecast", id), Some(&learned));
        let other = IdBuilder::new("second").finish();
        assert_eq!(record.learned_as("forecast", other), None);
        assert_eq!(record.newest("forecast"), Some(&learned));
        assert_eq!(record.newest("blend"), None);
    }

    #[test]
    fn an_attempt_that_another_one_has_replaced_saves_no_weights() {
        let directory = TempDir::new().unwrap();
        let io = StorageClient::new().unwrap();
        let state = state_in(&directory, &io);
        let id = IdBuilder::new("first").finish();
        let mut record = EnsembleRecord::default();
        record.insert("forecast", id, EnsembleReport::default());
        record.save(&io, &state, "nightly", &|| Ok(())).unwrap();
        let mut other_record = EnsembleRecord::default();
        other_record.insert("blend", id, EnsembleReport::default());
        let refused = other_record.save(&io, &state, "nightly", &|| {
            Err(Fault::internal("another attempt has taken over"))
        });
        assert!(refused.is_err());
        let record_again = EnsembleRecord::load(&io, &state, "nightly").unwrap();
        assert_eq!(record_again, record);
    }

    #[test]
    fn corrupt_weights_are_refused_or_learned_again_with_a_warning() {
        let directory = TempDir::new().unwrap();
        let io = StorageClient::new().unwrap();
        let state = state_in(&directory, &io);
        let location = EnsembleRecord::location(&state, "nightly");
        let cut_off = r#"{"format":1,"sinks":{"forecast":{"#;
        let other_fields = r#"{"format":1,"sinks":{"forecast":{"id":"1"}}}"#;
        for text in ["", "[]", "{}", cut_off, other_fields] {
            io.put(&location, text.as_bytes().to_vec().into()).unwrap();
            let fault = EnsembleRecord::load(&io, &state, "nightly").unwrap_err();
            assert_eq!(fault.code(), codes::CORRUPT, "{text}");
            let file = fault.site().file.clone().unwrap();
            assert_eq!(file, location.shown);
            let warnings = Warnings::default();
            let record = EnsembleRecord::load_or_warn(&io, &state, "nightly", &warnings);
            assert_eq!(record.unwrap(), EnsembleRecord::default());
            let warnings = warnings.0.into_inner().unwrap();
            let expected = format!(
                "the learned weights of ensembles cannot be read in {file}, and are learned again"
            );
            assert_eq!(warnings, [expected]);
        }
        // Another version has other fields.
        io.put(&location, br#"{"format":0}"#.to_vec().into())
            .unwrap();
        let warnings = Warnings::default();
        let record = EnsembleRecord::load_or_warn(&io, &state, "nightly", &warnings);
        assert_eq!(record.unwrap(), EnsembleRecord::default());
        assert!(warnings.0.into_inner().unwrap().is_empty());
    }
}
