//! Gather passes: intermediate datasets in the state store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::{Field, SchemaRef};
use forebay_cluster::{QueryRows, ShufflePlan, TaskControl, TaskKind, TaskOutcome};
use forebay_commit::{
    Manifest, OutputFile, OutputWriter, ReuseDecision, record_is_intact, shard_directory,
};
use forebay_contract::Sink;
use forebay_execute::{
    ClusterHandle, DedupeStage, GatheredCounts, LearnResult, MaterializePass, MaterializePlan,
    PassContext, SourceInput, new_shard,
};
use forebay_model::{ContentId, DuplicateRows, Fault, Result, SeriesCounts, codes};
use forebay_plan::{
    BaseDataset, FutureRowsOp, FutureSeries, GatherBy, GatherOp, JoinsMet, NodeFlow, OpId, Pass,
    PassWork, PlanOp, Program,
};
use forebay_storage::StorageLocation;
use serde_json::{Value, json};

use super::RunExecutor;
use super::aggregate::LearnedGroups;
use super::row_order::windows_behind;
use crate::gathered_source::name_by_gather;
use crate::intermediate_files::IntermediateFiles;
use crate::leak_check::time_text;
use crate::report::{FutureReport, PassReport};
use crate::session::Session;

/// The rows of a gather, written.
struct GatheredRows {
    manifest: Manifest,
    /// Counts of the learn pass of the groups, for an aggregate over a history.
    learned: LearnResult,
    /// Matches of the join that produced the rows.
    joins: JoinsMet,
}

/// The columns that a join adds, and whether one of them has a value.
struct JoinedColumns {
    /// Index of the first one.
    first: usize,
    is_met: bool,
}

impl JoinedColumns {
    /// Columns of a gather's rows, if a join produces them.
    fn of(op: &PlanOp) -> Option<JoinedColumns> {
        match op {
            PlanOp::Gather(GatherOp {
                lower: GatherBy::Join { join, .. },
                schema,
                ..
            }) => Some(JoinedColumns {
                first: schema.fields().len().saturating_sub(join.columns.len()),
                is_met: false,
            }),
            _ => None,
        }
    }

    fn look_at(&mut self, batch: &RecordBatch) {
        let mut brought = batch.columns().iter().skip(self.first);
        self.is_met |= brought.any(|column| column.logical_null_count() < column.len());
    }
}

/// Origin of the rows of a gather.
enum GatherSource {
    Groups(Box<LearnedGroups>),
    Plan(Box<MaterializePlan>),
}

impl GatherSource {
    fn schema(&self) -> &SchemaRef {
        match self {
            GatherSource::Groups(groups) => &groups.schema,
            GatherSource::Plan(plan) => &plan.schema,
        }
    }
}

/// Writes the rows of a gather.
struct GatherWriter<'a> {
    begin: &'a dyn Fn() -> Result<OutputWriter<'a>>,
    /// `None` only while it begins again.
    files: Option<OutputWriter<'a>>,
    sink: &'a dyn Sink,
    schema: &'a SchemaRef,
    /// The rows of the next row group.
    waiting: Vec<RecordBatch>,
    rows: usize,
    bytes: usize,
    joined: Option<JoinedColumns>,
    session: &'a Session,
}

impl<'a> GatherWriter<'a> {
    fn files(&mut self) -> Result<&mut OutputWriter<'a>> {
        self.files
            .as_mut()
            .ok_or_else(|| Fault::internal("rows of a gather without a file"))
    }

    fn flush(&mut self) -> Result<()> {
        let batches = std::mem::take(&mut self.waiting);
        self.rows = 0;
        self.bytes = 0;
        let encoded = self.sink.encode(self.schema, &batches)?;
        self.files()?.append("", encoded, false)
    }

    fn finish(mut self) -> Result<Vec<OutputFile>> {
        if !self.waiting.is_empty() {
            self.flush()?;
        }
        let files = self
            .files
            .take()
            .ok_or_else(|| Fault::internal("rows of a gather without a file"))?;
        files.finish(true)
    }
}

impl QueryRows for GatherWriter<'_> {
    fn restart(&mut self) -> Result<()> {
        self.waiting.clear();
        self.rows = 0;
        self.bytes = 0;
        // The files so far are removed before others take their names.
        self.files = None;
        self.files = Some((self.begin)()?);
        Ok(())
    }

    fn take(&mut self, batch: RecordBatch) -> Result<()> {
        self.session.interrupt.check()?;
        if let Some(joined) = &mut self.joined {
            joined.look_at(&batch);
        }
        self.rows += batch.num_rows();
        self.bytes += batch.get_array_memory_size();
        self.waiting.push(batch);
        let is_full = self.rows >= self.sink.layout().group_rows_max;
        if is_full || self.bytes > self.session.memory().output_bytes() {
            self.flush()
        } else {
            Ok(())
        }
    }
}

impl RunExecutor<'_> {
    /// Runs a gather pass. Where no later pass reads its rows, only its future rows are counted. Series that lack a key
    /// are refused before rows are made of them.
    pub(super) fn run_gather(
        &mut self,
        op: OpId,
        pass: ContentId,
        is_needed: bool,
        report: &mut PassReport,
    ) -> Result<()> {
        let future = self.count_future(op)?;
        if is_needed {
            self.materialize(op, pass, report)?;
        } else {
            report.reused = true;
        }
        self.future.extend(future);
        Ok(())
    }

    fn materialize(&mut self, op: OpId, pass: ContentId, report: &mut PassReport) -> Result<()> {
        let session = self.session;
        let location = self.store.materialized_location(pass);
        let recorded = self.recorded_pass(pass, &location)?;
        if recorded.decision == ReuseDecision::Reuse {
            report.reused = true;
            if let Some(record) = &recorded.record {
                let manifest = Manifest::from_record(record)?;
                report.rows_out = manifest.rows;
                self.keep_row_sum(op, &manifest)?;
            }
            return self.open_materialized(op);
        }
        let bound = &self.program.bound;
        let inputs = bound.gather_inputs.get(&op).into_iter().flatten();
        let needed = inputs.map(|(_, flow)| {
            windows_behind(
                bound,
                flow,
                flow.schema.fields().iter().map(|field| field.name()),
            )
        });
        let windows: BTreeSet<OpId> = needed.flatten().collect();
        let written = self.retry_with_fallback(&windows, |run| {
            let workers = run.cluster_for(run.pass_index, &windows);
            run.write_gathered(op, pass, &location, workers)
        })?;
        let GatheredRows {
            manifest,
            learned,
            joins,
        } = written;
        self.joins.add(joins);
        report.count(&manifest.counts());
        report.rows_kept = learned.rows_kept;
        report.rows_out = manifest.rows;
        self.keep_row_sum(op, &manifest)?;
        session.check_fence()?;
        let check = |record: &Value| record_is_intact(&session.io, &location, record);
        let mut record = json!({ "manifest": manifest });
        learned.kept.add_to(&mut record);
        self.store
            .put_pass_record(pass, recorded.decision, &record, check)?;
        self.open_materialized(op)
    }

    /// Writes the rows of a gather below a location of the state store.
    fn write_gathered(
        &self,
        op: OpId,
        pass: ContentId,
        location: &StorageLocation,
        workers: Option<ClusterHandle<'_>>,
    ) -> Result<GatheredRows> {
        let session = self.session;
        let directory = shard_directory(pass)?;
        let files = IntermediateFiles::new(session.connectors.as_ref());
        let config = files.exact_sink_config(&location.join(&directory).shown)?;
        let sink = session.connectors.sink(&files.format(), &config)?;
        let source = match self.learn_groups(op)? {
            Some(groups) => GatherSource::Groups(Box::new(groups)),
            None => GatherSource::Plan(Box::new(self.materialize_pass().open(op)?)),
        };
        let schema = source.schema().clone();
        let begin = || {
            OutputWriter::begin(
                &session.io,
                sink.as_ref(),
                schema.clone(),
                location,
                directory.clone(),
                &self.scratch,
            )
        };
        let mut files = GatherWriter {
            begin: &begin,
            files: Some(begin()?),
            sink: sink.as_ref(),
            schema: &schema,
            waiting: Vec::new(),
            rows: 0,
            bytes: 0,
            joined: JoinedColumns::of(&self.program.bound.ops[op].op),
            session,
        };
        let gather = self.materialize_pass();
        let (gathered, learned) = match source {
            GatherSource::Groups(groups) => {
                let LearnedGroups { state, learned, .. } = *groups;
                let counts = learned.row_counts();
                let take = &mut |batch| files.take(batch);
                let gathered = gather.take_groups(op, &schema, state, counts, take)?;
                (gathered, learned)
            }
            GatherSource::Plan(plan) => (
                gather.run(*plan, workers, &mut files)?,
                LearnResult::default(),
            ),
        };
        let GatheredCounts {
            rows: total,
            counts,
        } = gathered;
        let mut joins = learned.counts.joins;
        if let Some(joined) = &files.joined {
            joins.record(self.program.bound.ops[op].join_bit(), joined.is_met);
        }
        let shard = new_shard(pass, Vec::new(), counts, files.finish()?);
        let manifest = Manifest::new(pass, &schema, vec![shard])?;
        if manifest.rows != total {
            return Err(Fault::internal(format!(
                "{total} gathered rows, of which {} were written",
                manifest.rows
            )));
        }
        Ok(GatheredRows {
            manifest,
            learned,
            joins,
        })
    }

    pub fn materialize_pass(&self) -> MaterializePass<'_> {
        let session = self.session;
        let mut context = self.pass_context(&BTreeSet::new());
        if self.on_worker {
            // Each thread of a worker has a share of its memory.
            context = PassContext {
                memory: context.memory.one_of(context.threads),
                threads: 1,
                ..context
            };
        }
        MaterializePass {
            context,
            watch: session.watch.clone(),
            scratch: &self.scratch,
        }
    }

    /// Runs one task of a `dedupe`, on a worker.
    pub fn run_dedupe_task(
        &self,
        plan: &ShufflePlan,
        task: &TaskKind,
        control: &dyn TaskControl,
    ) -> Result<TaskOutcome> {
        if control.is_draining() {
            return Ok(TaskOutcome::HandedBack);
        }
        let pass = self.materialize_pass();
        let stage = DedupeStage {
            plan,
            pass: &pass,
            store: &self.store,
            stop: control.cancel_flag(),
        };
        let done = stage.run(task);
        if control.cancel_flag().load(Ordering::Relaxed) {
            return Ok(TaskOutcome::Stopped);
        }
        done.map(|()| TaskOutcome::Done(SeriesCounts::default()))
    }

    /// Opens an intermediate dataset that is committed.
    pub fn open_materialized(&mut self, op: OpId) -> Result<()> {
        let gathers =
            |pass: &&Pass| matches!(&pass.work, PassWork::Gather(gathered) if *gathered == op);
        let pass = self.program.passes.iter().find(gathers);
        let id = pass
            .ok_or_else(|| Fault::internal("a dataset that no pass gathers"))?
            .id;
        let session = self.session;
        let location = self.store.materialized_location(id);
        let directory = location.join(&shard_directory(id)?);
        let files = IntermediateFiles::new(session.connectors.as_ref());
        let source = files.source(&directory.shown)?;
        let dataset = source.discover(&session.io, &row_order_columns(&self.program, op))?;
        let (dataset, source) = name_by_gather(id, dataset, source);
        let dataset = Arc::new(dataset);
        self.program.bound.set_gathered_schema(op, &dataset.schema);
        self.state.gathered.insert(
            op,
            SourceInput {
                dataset,
                source: session.cancellable(source),
                in_time_order: false,
            },
        );
        Ok(())
    }

    /// The series that a gather continues, if it makes future rows.
    fn count_future(&self, op: OpId) -> Result<Option<FutureReport>> {
        let bound = &self.program.bound;
        let future_op = &bound.ops[op];
        let PlanOp::Gather(GatherOp {
            lower: GatherBy::Future(future),
            ..
        }) = &future_op.op
        else {
            return Ok(None);
        };
        let latest = future_op
            .asks
            .first()
            .ok_or_else(|| Fault::internal("future rows of no series"))?;
        let finding = self.state.finding(&self.program, *latest)?;
        let series = (future.count)(&finding)?;
        let base = bound
            .bases
            .iter()
            .position(|base| matches!(base, BaseDataset::Gathered(gathered) if *gathered == op));
        let schema = base.map(|base| &bound.base_schemas[base]);
        let schema = schema.ok_or_else(|| Fault::internal("future rows without columns"))?;
        let time = schema.field_with_name(&future.time)?;
        self.judge_duplicates(&future_op.label, future, &series, time)?;
        self.warn_of_late_end(&future_op.label, &series, time)?;
        self.warn_of_sparse_series(&future_op.label, &series, time)?;
        let known_until = series.known_until.map(|tick| time_text(tick, time));
        Ok(Some(FutureReport {
            step: future_op.label.clone(),
            series: series.active,
            steps: future.steps,
            ended: series.ended,
            known_until: known_until.transpose()?,
        }))
    }

    /// Warns of a last time of the data that most series do not reach: a row that is dated too late moves the rows of
    /// the future of all series.
    fn warn_of_late_end(&self, label: &str, series: &FutureSeries, time: &Field) -> Result<()> {
        // Some series that ended are usual.
        if series.behind * 2 <= series.active {
            return Ok(());
        }
        let Some(until) = series.known_until else {
            return Ok(());
        };
        let Some(last_behind) = series.last_behind else {
            return Ok(());
        };
        let message = format!(
            "`{label}`: {} of {} series end before {}, after which the rows of the future begin; \
             the last of them ends at {}",
            series.behind,
            series.active,
            time_text(until, time)?,
            time_text(last_behind, time)?
        );
        let hint = "look for rows that are dated too late; `after: series` begins after the last \
                    time of each series";
        let warning = Fault::new(codes::OUT_OF_ORDER, message)
            .step(label)
            .hint(hint);
        self.session.warn(&warning);
        Ok(())
    }

    /// Warns of a step that is shorter than the distance of the rows in all series, such as days for weekly rows: most
    /// rows of the future would lie at times for which the series have no rows.
    fn warn_of_sparse_series(
        &self,
        label: &str,
        series: &FutureSeries,
        time: &Field,
    ) -> Result<()> {
        if series.sparse < series.paired {
            return Ok(());
        }
        let Some([previous, last]) = series.sparse_end else {
            return Ok(());
        };
        let message = format!(
            "`{label}`: the last two times of all {} series with more than one are further apart \
             than `every`, as {} and {} are",
            series.sparse,
            time_text(previous, time)?,
            time_text(last, time)?
        );
        let hint = "set `every` to the distance of the rows, such as `every: 1w` for weekly ones";
        let warning = Fault::new(codes::OUT_OF_ORDER, message)
            .step(label)
            .hint(hint);
        self.session.warn(&warning);
        Ok(())
    }

    /// Refuses series with several rows at their last time, or warns of them.
    fn judge_duplicates(
        &self,
        label: &str,
        future: &FutureRowsOp,
        series: &FutureSeries,
        time: &Field,
    ) -> Result<()> {
        if series.duplicates == 0 || future.duplicates == DuplicateRows::Allow {
            return Ok(());
        }
        let mut examples = Vec::with_capacity(series.repeated_ends.len());
        for end in &series.repeated_ends {
            let keys = future.keys.iter().zip(&end.keys);
            let mut values: Vec<String> = keys.map(|(key, text)| format!("{key} {text}")).collect();
            values.push(format!("{} {}", future.time, time_text(end.time, time)?));
            examples.push(format!("{} rows of {}", end.rows, values.join(", ")));
        }
        let message = format!(
            "`{label}`: {} rows at the ends of series have the same keys and the same time as \
             another row: {}",
            series.duplicates,
            examples.join("; ")
        );
        let hint = format!(
            "a key is missing where `keys: [{}]` does not tell the series apart: name all key \
             columns; `dedupe` copies of a row; or declare `duplicates: allow` (or `warn`) \
             beside `keys`",
            future.keys.join(", ")
        );
        let fault = Fault::new(codes::OUT_OF_ORDER, message)
            .step(label)
            .hint(hint);
        if future.duplicates == DuplicateRows::Error {
            return Err(fault);
        }
        self.session.warn(&fault);
        Ok(())
    }
}

/// The columns of an intermediate dataset whose extents determine the row order of windows over it.
fn row_order_columns(program: &Program, op: OpId) -> Vec<String> {
    let bound = &program.bound;
    let reads_it = |flow: &NodeFlow| {
        flow.streams.iter().any(
            |stream| matches!(bound.bases[stream.base], BaseDataset::Gathered(base) if base == op),
        )
    };
    let mut columns = BTreeSet::new();
    for (window, _) in bound
        .window_inputs
        .iter()
        .filter(|(_, flow)| reads_it(flow))
    {
        if let PlanOp::Window(window) = &bound.ops[*window].op {
            columns.extend(
                window
                    .keys
                    .first()
                    .into_iter()
                    .chain([&window.time])
                    .cloned(),
            );
        }
    }
    columns.into_iter().collect()
}
