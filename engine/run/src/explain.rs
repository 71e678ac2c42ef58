//! Plans of runs, for people.

use std::collections::BTreeMap;

use forebay_cluster::ClusterSize;
use forebay_commit::StateStore;
use forebay_model::{ContentId, DataSplit, Dataset, Interval, Pipeline, Result};
use forebay_plan::{ExplainProgram, PassReuse, PassWork, compile};
use forebay_storage::ScratchDir;

use crate::deadline::planned_passes;
use crate::executor::RunExecutor;
use crate::session::{PreparedRun, Session};
use crate::training_cadence::TrainingNeeds;

impl Session {
    /// Plan of a run, over everything or for an interval.
    pub fn explain(
        &self,
        pipeline: &Pipeline,
        interval: Option<&Interval>,
    ) -> Result<ExplainProgram> {
        self.explain_on(pipeline, interval, None)
    }

    /// Plan of a run, with the stages of queries on `workers`.
    pub fn explain_on(
        &self,
        pipeline: &Pipeline,
        interval: Option<&Interval>,
        workers: Option<ClusterSize>,
    ) -> Result<ExplainProgram> {
        let sinks: Vec<usize> = (0..pipeline.sinks.len()).collect();
        let mut prepared = self.prepare(pipeline, &sinks, None, interval)?;
        let is_moving = pipeline.split.as_ref().is_some_and(DataSplit::is_relative);
        let pipeline = &Pipeline {
            split: prepared.split.clone(),
            ..pipeline.clone()
        };
        let store = StateStore::new(self.io.clone(), self.state()?);
        let scratch = ScratchDir::new(None, self.watch.clone())?;
        self.measure_drift(pipeline, &mut prepared, &store, &scratch, false)?;
        let session = self.with_carried(prepared.carried.clone());
        let bounded = session.rebind_bounded(pipeline, &prepared.datasets, &mut prepared.bound)?;
        let pipeline = bounded.as_ref().unwrap_or(pipeline);
        let cadences = session.training_cadences(
            pipeline,
            &prepared.bound,
            &prepared.state.sources,
            interval,
        )?;
        let needs = TrainingNeeds {
            cadences: &cadences,
            interval,
            is_moving,
        };
        let extended = self.with_training_inputs(pipeline, &prepared.bound, &needs)?;
        let pipeline = extended.as_ref().unwrap_or(pipeline);
        if extended.is_some() {
            prepared.bound = session.bind(pipeline, &prepared.datasets)?;
        }
        let sinks: Vec<usize> = (0..pipeline.sinks.len()).collect();
        let PreparedRun {
            datasets,
            mut state,
            bound,
            ..
        } = prepared;
        let share = scratch.scratch_with_budget(self.memory(), self.memory().states_bytes());
        let asks = bound.asks.clone();
        let mut program = compile(pipeline, bound, &datasets, &sinks, true, &mut |ask, id| {
            store.load_finding(
                id,
                asks[ask].ask.analyzer.as_ref(),
                &share,
                &mut state.findings,
            )
        })?;
        let intervals = self.restrict_to_interval(pipeline, &mut program, interval, None)?;
        let mut run = RunExecutor {
            intervals,
            ..RunExecutor::new(self, pipeline, store, scratch, program, state)
        };
        let mut reuse_by_pass: BTreeMap<ContentId, PassReuse> = BTreeMap::new();
        for pass in run.program.passes.clone() {
            reuse_by_pass.insert(pass.id, run.inspect_pass(&pass)?);
        }
        let names: Vec<String> = pipeline
            .sinks
            .iter()
            .map(|sink| sink.name.clone())
            .collect();
        let states_bytes = self.memory().states_bytes();
        let reuse_of = |id| reuse_by_pass.get(&id).copied().unwrap_or_default();
        let mut explain =
            ExplainProgram::new(&run.program, &names, &datasets, states_bytes, &reuse_of);
        self.estimate_seconds(&run, &datasets, &mut explain)?;
        if let Some(workers) = workers {
            let spec = self.explained_run(pipeline)?;
            for (explained, pass) in explain.passes.iter_mut().zip(&run.program.passes) {
                if let PassWork::Gather(op) = &pass.work {
                    explained.stages = run.materialize_pass().explain_query(*op, &spec, workers)?;
                }
            }
        }
        explain.trainings =
            self.explain_trainings(pipeline, &run.program.bound, explain.passes.len())?;
        explain.continues = session.continued_id().map(|id| id.to_string());
        explain.refits = session
            .attempt
            .carried
            .as_ref()
            .map(|carried| carried.refits.steps.clone())
            .unwrap_or_default();
        let trainings = cadences.into_values().map(|cadence| cadence.refit);
        explain.refits.extend(trainings);
        Ok(explain)
    }

    /// Sets the expected duration of each pass, from those of earlier runs of the pipeline.
    fn estimate_seconds(
        &self,
        run: &RunExecutor<'_>,
        datasets: &BTreeMap<String, Dataset>,
        explain: &mut ExplainProgram,
    ) -> Result<()> {
        let costs = self.cost_history(&run.pipeline.name)?;
        let planned = planned_passes(&run.program, run.pipeline, datasets, None, &run.state);
        for (pass, mut planned) in explain.passes.iter_mut().zip(planned) {
            planned.read = match pass.spans_to_read {
                _ if pass.reused => Some(0),
                Some((spans, all_spans)) => Some(planned.bytes_of_spans(spans, all_spans)),
                None => None,
            };
            pass.seconds =
                (costs.is_known() && !pass.reused).then(|| costs.estimate(&planned).seconds);
        }
        Ok(())
    }
}
