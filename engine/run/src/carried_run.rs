//! The run before, whose findings a run carries on.

use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::UInt64Type;
use forebay_commit::{EarlierFit, FitRange};
use forebay_execute::RunState;
use forebay_model::{ContentId, Pipeline, Result};
use forebay_plan::{BoundPipeline, Program};

use crate::previous_artifact::PreviousArtifact;
use crate::refit::RefitDecisions;
use crate::report::ContinuedReport;
use crate::run_numbering::RunNumbering;

/// The run before.
#[derive(Clone)]
pub(crate) struct CarriedRun {
    /// The rows of this run; `None` on a worker.
    pub range: Option<FitRange>,
    /// The run before, if there was one. Its artifact may have been removed.
    pub last_fit: Option<EarlierFit>,
    /// The artifact whose statistics steps may hold.
    pub earlier: Option<Arc<PreviousArtifact>>,
    /// The ids of tokens that the run continues.
    pub numbering: Option<RunNumbering>,
    /// Decision for each step whether the findings of the earlier run stay in use.
    pub refits: RefitDecisions,
}

impl CarriedRun {
    /// The artifact whose statistics the run may hold.
    pub fn earlier_id(&self) -> Option<ContentId> {
        Some(self.earlier.as_ref()?.artifact.id)
    }

    /// The fit that the run continues: for one that holds statistics, that of the artifact that has
    /// them.
    pub fn fit_before(&self) -> Option<EarlierFit> {
        let last_fit = self.last_fit.clone()?;
        Some(EarlierFit {
            artifact: self.earlier_id().unwrap_or(last_fit.artifact),
            ..last_fit
        })
    }

    /// The artifact that the run continues. It may have been removed.
    pub fn continued_id(&self) -> Option<ContentId> {
        Some(self.fit_before()?.artifact)
    }

    /// The rows that the run learns from.
    pub fn range(&self) -> Option<&FitRange> {
        self.range.as_ref()
    }

    /// Copy with other decisions about refits.
    pub fn with_refits(&self, refits: RefitDecisions) -> CarriedRun {
        CarriedRun {
            refits,
            ..self.clone()
        }
    }

    /// Makes the analyzers of a pipeline keep or continue their findings of the run before. An
    /// analyzer whose question has changed since starts again.
    pub fn apply(&self, pipeline: &Pipeline, bound: &mut BoundPipeline) -> Result<()> {
        if let Some(earlier) = &self.earlier {
            let matches = earlier.matches(pipeline, bound)?;
            for (ask, learned) in matches.into_iter().enumerate() {
                let is_held = bound.can_hold(ask) && self.refits.is_held(bound.step_of(ask));
                if let Some(learned) = learned.filter(|_| is_held) {
                    bound.asks[ask].held = Some(learned.finding.clone());
                }
            }
        }
        match &self.numbering {
            Some(numbering) => numbering.apply(pipeline, bound),
            None => Ok(()),
        }
    }

    /// Differences between findings that continue earlier ones and those earlier ones.
    pub fn report(&self, program: &Program, state: &RunState) -> Result<Vec<ContinuedReport>> {
        let bound = &program.bound;
        let mut reports = Vec::new();
        for (ask, question) in bound
            .asks
            .iter()
            .enumerate()
            .filter(|(_, ask)| ask.ask.continues.is_some())
        {
            let finding = state.finding(program, ask)?;
            let numbering = self.numbering.as_ref();
            let earlier_tokens =
                numbering.map_or(0, |numbering| numbering.tokens_before(bound, ask));
            let tokens = finding.rows() as u64;
            let continued = self.continued_id().filter(|_| earlier_tokens > 0);
            let counts = finding.column("count")?.as_primitive::<UInt64Type>();
            reports.push(ContinuedReport {
                step: bound.ops[question.op].label.clone(),
                columns: question.ask.inputs.clone(),
                artifact: continued.map(|artifact| artifact.to_string()),
                tokens,
                added: tokens - earlier_tokens.min(tokens),
                absent: counts.values().iter().filter(|count| **count == 0).count() as u64,
            });
        }
        Ok(reports)
    }
}
