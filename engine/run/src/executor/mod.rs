//! The executor of a program: runs its passes in order, each with the results of earlier passes and of earlier runs.

mod aggregate;
mod artifact;
mod empty_statistics;
mod extra_statistics;
mod inspect;
mod learn;
mod materialize;
mod part_counts;
mod publish;
mod recorded_pass;
mod row_order;
mod row_sums;
mod unmet_joins;
mod write;

pub(crate) use aggregate::{GroupProgram, GroupStates};
pub(crate) use artifact::UncommittedArtifact;
pub(crate) use publish::StagedOutput;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use forebay_cluster::RunSpec;
use forebay_commit::{Artifact, ArtifactFiles, DegradationReport, ReuseDecision, StateStore};
use forebay_execute::{ClusterHandle, PassContext, RunState, WriteResult, lane_bytes};
use forebay_model::{ContentId, Finding, Pipeline, Result, RowSum};
use forebay_plan::{BaseId, JoinsMet, OpId, Pass, PassWork, Program, SinkWork};
use forebay_storage::{BackgroundTask, BackgroundTasks, Event, ScratchDir};
use forebay_threads::lock;

use self::recorded_pass::RecordedPass;
use crate::backfill_turn::BackfillStage;
use crate::deadline::{ARTIFACT, DeadlineMonitor, PUBLISH, PlanOption, pass_names};
use crate::pass_interval::PassInterval;
use crate::refit::RefitDecisions;
use crate::report::{FutureReport, PassReport};
use crate::session::Session;

/// One run of a program.
pub(crate) struct RunExecutor<'a> {
    /// The rows of an interval that write passes are restricted to, by pass.
    pub intervals: BTreeMap<ContentId, PassInterval>,
    pub session: &'a Session,
    pub pipeline: &'a Pipeline,
    pub store: StateStore,
    pub scratch: ScratchDir,
    pub program: Program,
    pub state: RunState,
    pub report: Vec<PassReport>,
    /// The rows of intermediate datasets, from the sources on.
    pub row_sums: BTreeMap<OpId, RowSum>,
    /// Results of joins.
    pub joins: JoinsMet,
    /// The future rows that passes made.
    pub future: Vec<FutureReport>,
    pub deadline: Option<DeadlinePlan<'a>>,
    /// The number of trainings that follow the passes.
    pub trainings: usize,
    /// Degradation of the run, if any.
    pub degradation: Option<DegradationReport>,
    /// Description of the run from which workers compile the same program; `None` without workers.
    pub run_spec: Option<RunSpec>,
    pub on_worker: bool,
    /// The index of the current pass.
    pub pass_index: usize,
    /// Write passes that a learn pass has executed already, by pass.
    pub fused_writes: BTreeMap<ContentId, FusedWrite>,
    /// The artifact and its files, while they are assembled in the background.
    pub artifact_task: Option<BackgroundTask<(Artifact, ArtifactFiles)>>,
    /// Background work that outlives the passes. The run joins it before it reports success.
    pub background: BackgroundTasks,
    /// True if the findings become an artifact.
    pub makes_artifact: bool,
    /// Findings in use for steps that do not learn in each run.
    pub refits: RefitDecisions,
}

/// The monitor of the deadline, and the plans that are open to it.
pub(crate) struct DeadlinePlan<'a> {
    pub monitor: &'a DeadlineMonitor,
    pub options: Vec<PlanOption>,
}

/// A write pass that ran inside of a learn pass.
pub(crate) struct FusedWrite {
    pub schema: SchemaRef,
    pub result: WriteResult,
}

impl<'a> RunExecutor<'a> {
    /// A run over all rows, without a deadline.
    pub fn new(
        session: &'a Session,
        pipeline: &'a Pipeline,
        store: StateStore,
        scratch: ScratchDir,
        program: Program,
        state: RunState,
    ) -> Self {
        RunExecutor {
            intervals: BTreeMap::new(),
            session,
            pipeline,
            store,
            scratch,
            program,
            state,
            report: Vec::new(),
            row_sums: BTreeMap::new(),
            joins: JoinsMet::default(),
            future: Vec::new(),
            deadline: None,
            trainings: 0,
            degradation: None,
            run_spec: None,
            on_worker: false,
            pass_index: 0,
            fused_writes: BTreeMap::new(),
            artifact_task: None,
            background: BackgroundTasks::default(),
            makes_artifact: true,
            refits: session.refit_decisions(),
        }
    }

    /// An executor of another program over the same sources with other findings. It serves inspection only.
    pub fn dry_run_with<'b>(
        &'b self,
        pipeline: &'b Pipeline,
        program: Program,
        findings: BTreeMap<ContentId, Arc<Finding>>,
    ) -> RunExecutor<'b> {
        let state = RunState {
            sources: self.state.sources.clone(),
            findings,
            ..RunState::default()
        };
        RunExecutor::new(
            self.session,
            pipeline,
            self.store.clone(),
            self.scratch.clone(),
            program,
            state,
        )
    }

    /// Runs the passes of a program that only learns, without an artifact.
    pub fn learn_only(self) -> Result<Self> {
        let mut run = RunExecutor {
            makes_artifact: false,
            ..self
        };
        run.run_passes()?;
        std::mem::take(&mut run.background).join_all()?;
        Ok(run)
    }

    /// Runs all passes in order. Returns the outputs, which the caller publishes.
    pub fn run_passes(&mut self) -> Result<Vec<StagedOutput>> {
        let result = self.run_checked_passes();
        // Data that workers shared with each other serves this run only, even one that has failed.
        let dropped = self.drop_shared_data();
        let outputs = result?;
        dropped?;
        Ok(outputs)
    }

    fn run_checked_passes(&mut self) -> Result<Vec<StagedOutput>> {
        let staged = self.run_each_pass()?;
        self.check_forecast_outputs(&staged)?;
        Ok(staged)
    }

    fn drop_shared_data(&self) -> Result<()> {
        let shared = std::mem::take(&mut *lock(&self.state.shared)?);
        for shuffle in &self.state.shuffles {
            self.store.drop_shared(shuffle.id)?;
        }
        for id in shared {
            self.store.drop_shared(id)?;
        }
        Ok(())
    }

    fn run_each_pass(&mut self) -> Result<Vec<StagedOutput>> {
        let mut recorded = self.recorded_writes()?;
        let gathers = self.program.needed_gathers(&|id| {
            recorded
                .get(&id)
                .is_none_or(|recorded| recorded.decision != ReuseDecision::Reuse)
        });
        let names = pass_names(&self.program, self.pipeline);
        let monitor = self.plan_deadline(&names, &gathers, &recorded);
        // Concurrent intervals learn in order: each continues the states of the previous interval.
        self.session.wait_for_previous_run(BackfillStage::Learned)?;
        let learns = |pass: &Pass| !matches!(pass.work, PassWork::Write(_));
        let first_write = self
            .program
            .passes
            .iter()
            .rposition(learns)
            .map_or(0, |last| last + 1);
        let total = self.program.passes.len() + self.trainings;
        let mut outputs = Vec::new();
        for (index, pass) in self.program.passes.clone().iter().enumerate() {
            self.session.interrupt.check()?;
            self.session.check_fence()?;
            if index == first_write
                && let Some(turn) = &self.session.attempt.backfill_turn
            {
                turn.advance_to(BackfillStage::Learned);
            }
            self.pass_index = index;
            let label = self.pass_label(&pass.work);
            let number = index + 1;
            let id = pass.id.to_string();
            let bytes = self.pass_bytes(&pass.work);
            self.session.watch.on_event(Event::PassStarted {
                number,
                total,
                label: label.clone(),
                id,
                bytes,
            });
            if let Some(monitor) = monitor {
                monitor.begin(&names[index]);
            }
            let label = format!("{number} of {total} ({label})");
            let mut report = PassReport::new(pass);
            let done = match &pass.work {
                PassWork::Learn(work) => self
                    .run_learn(work, pass.id, &recorded, &mut report)
                    .and_then(|()| self.check_statistics(work))
                    .map(|()| None),
                PassWork::Gather(op) => self
                    .run_gather(*op, pass.id, gathers.contains(op), &mut report)
                    .map(|()| None),
                PassWork::Write(work) => {
                    let recorded = recorded.remove(&pass.id).unwrap_or_default();
                    self.write(work, pass.id, recorded, &mut report).map(Some)
                }
            };
            let staged = done.map_err(|fault| fault.pass(&label))?;
            outputs.extend(staged.map(|staged| StagedOutput { label, ..staged }));
            self.session.watch.on_event(Event::PassDone {
                number,
                reused: report.reused,
                rows: report.rows_in,
                filtered: report.rows_filtered,
            });
            if let Some(monitor) = monitor {
                monitor.end(report.reused);
            }
            self.report.push(report);
        }
        Ok(outputs)
    }

    /// Reports the passes that need no work to the monitor of the deadline, and hands the monitor
    /// over to the pass loop.
    fn plan_deadline(
        &mut self,
        names: &[String],
        gathers: &BTreeSet<OpId>,
        recorded: &BTreeMap<ContentId, RecordedPass>,
    ) -> Option<&'a DeadlineMonitor> {
        let DeadlinePlan { monitor, options } = self.deadline.take()?;
        let is_done = |pass: &Pass| match &pass.work {
            PassWork::Learn(work) => work.lanes.is_empty(),
            PassWork::Gather(op) => !gathers.contains(op),
            PassWork::Write(_) => recorded
                .get(&pass.id)
                .is_some_and(|recorded| recorded.decision == ReuseDecision::Reuse),
        };
        let passes = &self.program.passes;
        let mut done = Vec::new();
        for (pass, name) in passes.iter().zip(names) {
            if is_done(pass) {
                done.push(name.as_str());
            }
        }
        if done.len() == passes.len() {
            done.extend([ARTIFACT, PUBLISH]);
        }
        monitor.plan(options, done.into_iter());
        Some(monitor)
    }

    /// The workers for a pass. `None` where rows were sorted in this process, or windows need the memory of one
    /// thread: workers cannot execute such a pass.
    fn cluster_for(&self, pass: usize, windows: &BTreeSet<OpId>) -> Option<ClusterHandle<'_>> {
        let is_local = |op| {
            let outputs = self.state.sorted.get(op);
            outputs.is_some_and(|outputs| outputs.is_local())
        };
        let cluster = self.session.cluster.as_deref()?;
        let run_spec = self.run_spec.as_ref()?;
        let is_possible =
            !windows.iter().any(is_local) && self.state.single_threaded.is_disjoint(windows);
        is_possible.then_some(ClusterHandle {
            cluster,
            run_spec,
            pass,
            store: &self.store,
            interrupt: &self.session.interrupt,
        })
    }

    /// Name of a pass in progress messages and faults.
    fn pass_label(&self, work: &PassWork) -> String {
        match work {
            PassWork::Learn(work) => {
                let count =
                    work.lanes.iter().map(|lane| lane.asks.len()).sum::<usize>() + work.known.len();
                if count == 1 {
                    "learn 1 statistic".to_owned()
                } else {
                    format!("learn {count} statistics")
                }
            }
            PassWork::Gather(op) => format!("gather {}", self.program.bound.ops[*op].label),
            PassWork::Write(work) => format!("write {}", self.pipeline.sinks[work.sink].name),
        }
    }

    /// The bytes that a pass reads, where they are known before it begins.
    fn pass_bytes(&self, work: &PassWork) -> Option<u64> {
        match work {
            PassWork::Learn(work) => {
                let bytes = |base| self.dataset_bytes(base).unwrap_or(0);
                let lanes = work.lanes.iter();
                Some(lanes.map(|lane| lane_bytes(lane, &bytes)).sum())
                    .filter(|bytes: &u64| *bytes > 0)
            }
            PassWork::Gather(_) => None,
            PassWork::Write(work) => self.scan_bytes(work),
        }
    }

    fn scan_bytes(&self, work: &SinkWork) -> Option<u64> {
        let scans = work.scans.iter();
        scans.map(|scan| self.dataset_bytes(scan.base)).sum()
    }

    fn dataset_bytes(&self, base: BaseId) -> Option<u64> {
        let input = self.state.input(&self.program, base).ok()?;
        Some(input.dataset.bytes())
    }

    /// Inputs and limits of a pass with these windows.
    fn pass_context(&self, windows: &BTreeSet<OpId>) -> PassContext<'_> {
        PassContext {
            io: &self.session.io,
            program: &self.program,
            state: &self.state,
            memory: self.session.memory(),
            threads: self.threads(windows),
            batch_rows: self.session.options.batch_rows,
        }
    }

    /// Number of threads that read rows with these windows.
    fn threads(&self, windows: &BTreeSet<OpId>) -> usize {
        if self.state.single_threaded.is_disjoint(windows) {
            self.session.options.threads.max(1)
        } else {
            1
        }
    }
}
