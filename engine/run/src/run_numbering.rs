//! The numbering of tokens that a run continues.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::UInt64Type;
use forebay_cluster::{NumberingSpec, VocabularyBase};
use forebay_commit::{FitNumbering, TokenLedger, TokenNumbering};
use forebay_execute::RunState;
use forebay_model::{Fault, Finding, IdBuilder, Pipeline, Result};
use forebay_plan::{
    AnalyzerId, BoundPipeline, CarriedFinding, CombineFindings, FindingLedger, PlanOp, Program,
};
use forebay_storage::{StorageClient, StorageLocation};

/// The numbering that a run continues.
#[derive(Clone)]
pub(crate) struct RunNumbering {
    io: StorageClient,
    /// The state directory.
    root: StorageLocation,
    spec: NumberingSpec,
}

impl RunNumbering {
    /// A numbering with its state directory.
    pub fn new(io: StorageClient, root: StorageLocation, spec: NumberingSpec) -> Self {
        RunNumbering { io, root, spec }
    }

    /// Description of the numbering from which workers restore it.
    pub fn spec(&self) -> &NumberingSpec {
        &self.spec
    }

    /// The tokens of a vocabulary with their ids.
    pub fn ledger(&self, pipeline: &str, key: &str) -> TokenLedger {
        TokenNumbering::of_epoch(&self.io, &self.root, pipeline, self.spec.epoch).ledger(key)
    }

    /// Makes the vocabularies of a pipeline continue the numbering, except for those that are held.
    pub fn apply(&self, pipeline: &Pipeline, bound: &mut BoundPipeline) -> Result<()> {
        for (key, ask) in vocabularies(bound) {
            let bound_analyzer = &bound.asks[ask];
            let Some(combine) = bound_analyzer.ask.continues.clone() else {
                continue;
            };
            if bound_analyzer.held.is_some() {
                continue;
            }
            let base = self.base(&key)?;
            let mut id = IdBuilder::new("numbered vocabulary");
            id.bytes(&self.spec.epoch.to_le_bytes())
                .bytes(&base.tokens.to_le_bytes())
                .id(base.digest);
            let carried = if base.tokens > 0 {
                CarriedFinding::Continued(id.finish())
            } else {
                CarriedFinding::Begun(id.finish())
            };
            let ledger = VocabularyLedger {
                ledger: self.ledger(&pipeline.name, &key),
                base: base.tokens as usize,
                combine,
            };
            bound.continue_finding(ask, carried, Arc::new(ledger));
        }
        Ok(())
    }

    fn base(&self, key: &str) -> Result<VocabularyBase> {
        let base = self.spec.bases.get(key).copied();
        base.ok_or_else(|| Fault::internal(format!("no numbering of `{key}` is known")))
    }

    /// Tokens of a vocabulary that had ids in the fit before.
    pub fn tokens_before(&self, bound: &BoundPipeline, ask: AnalyzerId) -> u64 {
        let mut vocabularies = vocabularies(bound).into_iter();
        let key = vocabularies.find(|(_, other)| *other == ask);
        key.and_then(|(key, _)| Some(self.spec.bases.get(&key)?.tokens))
            .unwrap_or(0)
    }

    /// Number of ids that each vocabulary has used after a run.
    pub fn after_run(&self, program: &Program, state: &RunState) -> Result<FitNumbering> {
        let mut tokens = BTreeMap::new();
        for (key, ask) in vocabularies(&program.bound) {
            let finding = state.finding(program, ask)?;
            tokens.insert(key, finding.rows() as u64);
        }
        Ok(FitNumbering {
            epoch: self.spec.epoch,
            tokens,
        })
    }
}

/// Gives known tokens of a vocabulary their ids, and new ids to the others.
struct VocabularyLedger {
    ledger: TokenLedger,
    /// Number of tokens that the finding always has: those of the fit before.
    base: usize,
    combine: CombineFindings,
}

impl FindingLedger for VocabularyLedger {
    fn place(&self, current: &Finding) -> Result<Finding> {
        loop {
            let tokens = self.ledger.read()?;
            let placed = (self.combine)(&tokens.finding()?, current)?;
            let added = placed.rows() - tokens.len();
            if added > 0 {
                let new_tokens = placed.column("token")?.slice(tokens.len(), added);
                if !self.ledger.append(&tokens, new_tokens)? {
                    // Another run was faster: its tokens come first.
                    continue;
                }
            }
            return up_to_last(&placed, self.base);
        }
    }
}

/// The tokens up to the last one that was seen, and at least `at_least`. Later tokens belong to
/// other runs.
fn up_to_last(placed: &Finding, at_least: usize) -> Result<Finding> {
    let counts = placed.column("count")?.as_primitive::<UInt64Type>();
    let seen = counts.values().iter().rposition(|count| *count > 0);
    let length = seen.map_or(0, |last| last + 1).max(at_least);
    let length = length.min(placed.rows());
    Ok(Finding::new(placed.table().slice(0, length)))
}

/// The vocabularies of a pipeline whose ids hold still. Their keys name the step's node and the column that it writes.
pub(crate) fn vocabularies(bound: &BoundPipeline) -> Vec<(String, AnalyzerId)> {
    let mut keyed: Vec<(String, AnalyzerId)> = Vec::new();
    for (ask, question) in bound.asks.iter().enumerate() {
        if question.ask.continues.is_none() {
            continue;
        }
        let PlanOp::Map(map) = &bound.ops[question.op].op else {
            continue;
        };
        let column = map.writes.first().map_or("", |field| field.name());
        let node = bound.step_of(ask);
        let mut key = format!("{node}.{column}");
        let mut number = 1;
        while keyed.iter().any(|(other, _)| *other == key) {
            number += 1;
            key = format!("{node}.{column}#{number}");
        }
        keyed.push((key, ask));
    }
    keyed
}
