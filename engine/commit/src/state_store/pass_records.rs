//! Records of passes.

use std::collections::BTreeSet;

use bytes::Bytes;
use forebay_model::{ContentId, Fault, Result, codes};
use forebay_storage::StorageLocation;
use serde::Serialize;
use serde_json::{Value, json};

use super::StateStore;
use super::frame::FORMAT;
use crate::decide::{
    CommitAction, PutOutcome, RecordState, ReuseDecision, decide_commit, decide_reuse,
};

/// Results that passes over a history keep for the runs after them.
#[derive(Default)]
pub struct RetainedIds {
    /// States of runs of spans.
    pub partials: BTreeSet<ContentId>,
    /// Window states.
    pub carries: BTreeSet<ContentId>,
}

impl RetainedIds {
    /// Adds the ids to the record of a pass, where garbage collection finds them.
    pub fn add_to(&self, record: &mut Value) {
        record["partials"] = json!(id_texts(&self.partials));
        record["carries"] = json!(id_texts(&self.carries));
    }
}

/// Ids as records hold them.
pub fn id_texts(ids: &BTreeSet<ContentId>) -> Vec<String> {
    ids.iter().map(ContentId::to_string).collect()
}

impl StateStore {
    /// Location of a pass's record.
    pub fn pass_location(&self, id: ContentId) -> StorageLocation {
        self.root.join(&format!("passes/{id}.json"))
    }

    /// Record of a pass, and the decision whether to reuse it; `check` returns true if the data
    /// that the record names is whole.
    pub fn pass_record(
        &self,
        id: ContentId,
        check: impl Fn(&Value) -> Result<bool>,
    ) -> Result<(ReuseDecision, Option<Value>)> {
        let Some(bytes) = self.io.get(&self.pass_location(id))? else {
            return Ok((decide_reuse(RecordState::Absent), None));
        };
        let record: Option<Value> = serde_json::from_slice(&bytes).ok();
        let readable =
            record.filter(|record| record["format"] == FORMAT && record["pass"] == id.to_string());
        match readable {
            None => Ok((decide_reuse(RecordState::Foreign), None)),
            Some(record) => Ok((
                decide_reuse(RecordState::Ours {
                    intact: check(&record)?,
                }),
                Some(record),
            )),
        }
    }

    /// Records the ids of the results of a pass over a history that later runs use.
    pub fn put_learn_record(&self, id: ContentId, retained: &RetainedIds) -> Result<()> {
        if retained.partials.is_empty() && retained.carries.is_empty() {
            return Ok(());
        }
        let mut record = json!({});
        retained.add_to(&mut record);
        self.io
            .put(&self.pass_location(id), encode_pass_record(id, &record)?)
    }

    /// Commits a pass's record. `check` returns true if the data that a record names is whole.
    pub fn put_pass_record(
        &self,
        id: ContentId,
        reuse: ReuseDecision,
        record: &impl Serialize,
        check: impl Fn(&Value) -> Result<bool>,
    ) -> Result<()> {
        let bytes = encode_pass_record(id, record)?;
        let location = self.pass_location(id);
        let outcome = if self.io.put_if_absent(&location, bytes.clone())? {
            PutOutcome::Created
        } else {
            let (standing, _) = self.pass_record(id, check)?;
            PutOutcome::Exists {
                same: false,
                intact: standing == ReuseDecision::Reuse,
            }
        };
        match decide_commit(reuse, outcome) {
            CommitAction::Committed => Ok(()),
            CommitAction::Replace => self.io.put(&location, bytes),
            CommitAction::LostRace => Err(Fault::new(
                codes::LOST_RACE,
                "another run committed this pass at the same time",
            )
            .pass(id.short())
            .hint("its result stands; run the same command again to use it")),
        }
    }
}

/// Encodes the stored form of a pass's record.
fn encode_pass_record(id: ContentId, record: &impl Serialize) -> Result<Bytes> {
    #[derive(Serialize)]
    struct PassRecord<'r, R> {
        format: u32,
        pass: ContentId,
        #[serde(flatten)]
        record: &'r R,
    }
    let record = PassRecord {
        format: FORMAT,
        pass: id,
        record,
    };
    Ok(serde_json::to_vec(&record)
        .map_err(|error| Fault::internal("a pass's record").cause(error))?
        .into())
}
