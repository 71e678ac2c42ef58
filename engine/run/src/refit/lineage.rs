//! The passes behind held findings, for the lineage of an artifact: garbage collection keeps their
//! states, from which a step continues when it is refitted.

use std::collections::BTreeSet;

use forebay_commit::Artifact;
use forebay_model::{ContentId, Result};
use forebay_plan::{PassWork, Program};
use serde_json::{Map, Value, json};

use super::RefitDecisions;
use crate::session::Session;

impl Session {
    /// The ids of passes by step; `None` where every step is fitted in each run.
    pub(crate) fn learned_by(
        &self,
        refits: &RefitDecisions,
        program: &Program,
    ) -> Result<Option<Value>> {
        if refits.steps.is_empty() {
            return Ok(None);
        }
        let earlier_passes = match self.earlier_id() {
            None => Value::Null,
            Some(id) => {
                let file = Artifact::directory(&self.state()?, id).join("lineage.json");
                let lineage: Option<Value> = self
                    .io
                    .get(&file)?
                    .and_then(|bytes| serde_json::from_slice(&bytes).ok());
                lineage.map_or(Value::Null, |lineage| lineage["learned_by"].clone())
            }
        };
        let mut by_step = Map::new();
        for refit in &refits.steps {
            let passes = match (refit.held, refit.drift) {
                (true, Some(_)) => json!(texts(&refits.measured)),
                (true, None) => earlier_passes[&refit.step].clone(),
                (false, _) => json!(texts(&learning_passes(program, &refit.step))),
            };
            by_step.insert(refit.step.clone(), passes);
        }
        Ok(Some(Value::Object(by_step)))
    }
}

fn texts(ids: &[ContentId]) -> Vec<String> {
    ids.iter().map(ContentId::to_string).collect()
}

/// The passes that learn the findings of a step. Analyzers with equal states share one.
fn learning_passes(program: &Program, step: &str) -> Vec<ContentId> {
    let mut states = BTreeSet::new();
    for analyzer in program.bound.held_analyzers(step) {
        states.insert(program.state_ids[analyzer]);
    }
    let mut passes = Vec::new();
    for pass in &program.passes {
        let PassWork::Learn(work) = &pass.work else {
            continue;
        };
        let analyzers = work.lanes.iter().flat_map(|lane| &lane.asks);
        let mut analyzers = analyzers.chain(&work.known);
        if analyzers.any(|analyzer| states.contains(&program.state_ids[*analyzer])) {
            passes.push(pass.id);
        }
    }
    passes
}
