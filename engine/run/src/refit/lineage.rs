//! The passes behind what steps hold, for the lineage of an artifact: garbage collection keeps their states, from which
//! a step goes on once it learns anew.

use forebay_commit::Artifact;
use forebay_model::{ContentId, Result};
use forebay_plan::{PassWork, Program};
use serde_json::{Map, Value, json};

use super::RefitDecisions;
use crate::session::Session;

impl Session {
    /// The ids of passes by step; `None` where every step learns anew in each run.
    pub(crate) fn learned_by(
        &self,
        refits: &RefitDecisions,
        program: &Program,
    ) -> Result<Option<Value>> {
        if refits.steps.is_empty() {
            return Ok(None);
        }
        let before = match self.earlier_id() {
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
        for known in &refits.steps {
            let passes = match (known.held, known.drift) {
                (true, Some(_)) => json!(texts(&refits.measured)),
                (true, None) => before[&known.step].clone(),
                (false, _) => json!(texts(&learning_passes(program, &known.step))),
            };
            by_step.insert(known.step.clone(), passes);
        }
        Ok(Some(Value::Object(by_step)))
    }
}

fn texts(ids: &[ContentId]) -> Vec<String> {
    ids.iter().map(ContentId::to_string).collect()
}

/// The passes that learn what a step needs. Analyzers with equal states share one.
fn learning_passes(program: &Program, step: &str) -> Vec<ContentId> {
    let states: Vec<ContentId> = program
        .bound
        .held_analyzers(step)
        .into_iter()
        .map(|ask| program.state_ids[ask])
        .collect();
    let learns = |work: &PassWork| match work {
        PassWork::Learn(work) => {
            let mut asks = work
                .lanes
                .iter()
                .flat_map(|lane| &lane.asks)
                .chain(&work.known);
            asks.any(|ask| states.contains(&program.state_ids[*ask]))
        }
        PassWork::Gather(_) | PassWork::Write(_) => false,
    };
    program
        .passes
        .iter()
        .filter(|pass| learns(&pass.work))
        .map(|pass| pass.id)
        .collect()
}
