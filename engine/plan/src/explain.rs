//! Explanation of a program as data; `pipelines/src/present` renders it as text and pictures.

use std::collections::{BTreeMap, BTreeSet};

use forebay_model::{ContentId, Dataset};
use serde::Serialize;

use crate::gather_columns::gather_columns;
use crate::night_cost::{ExplainRewrite, rewriting_steps};
use crate::{
    AnalyzerId, AnalyzerLane, AnalyzerRequest, BaseDataset, BaseId, BoundPipeline, CarriedFinding,
    ColumnScan, GatherBy, GatherOp, LearnWork, OpId, Pass, PassWork, PlanOp, Program, SinkWork,
    StepRefit, WindowRowOrder, choose_row_order, needed_ops, slice_for_columns,
};

/// Executor of a pass that workers cannot divide.
const ALL_ROWS_AT_ONCE: &str = "the coordinator, which needs all rows at once";

/// Executor of a `dedupe` whose rows are not worth an exchange.
const FEW_ROWS: &str = "the coordinator, since the rows are few";

/// Executor of a `dedupe` behind windows that need the rows before.
const ROWS_IN_ORDER: &str = "the coordinator, since windows read the rows in order";

/// Executor of a `dedupe` of rows that no pass has made yet.
const UNKNOWN_ROWS: &str = "workers, or the coordinator where the rows are few";

/// Display name of the sorted row order.
const SORTED: &str = "sorted";

/// Display name of a join that holds the other side in memory.
const LOOKUP_TABLE: &str = "lookup table";

/// Display name of a join that partitions both sides.
const SHUFFLE_JOIN: &str = "shuffle join";

/// Place where the query of a gather runs.
const DISTRIBUTED_QUERY: &str =
    "threads here, or workers as one distributed query where there are some";

/// Maximum bytes that one row adds to a state: a token of usual length with its count, its hash and
/// its place.
const ROW_STATE_BYTES: u64 = 256;

/// Maximum bytes of state per stored byte, where rows are not known.
const STORED_STATE_BYTES: u64 = 64;

/// Minimum bytes of a state, for its fixed parts.
const STATE_BYTES_MIN: u64 = 64 << 10;

/// Explanation of a program.
#[derive(Debug, Clone, Serialize)]
pub struct ExplainProgram {
    /// Name of the pipeline.
    pub pipeline: String,
    /// Passes in execution order.
    pub passes: Vec<ExplainPass>,
    /// Trainings, which run after all passes.
    pub trainings: Vec<ExplainTraining>,
    /// The artifact of the run before, where findings go on from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continues: Option<String>,
    /// Steps that are not fitted in each run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refits: Vec<StepRefit>,
}

/// Explanation of a training.
#[derive(Debug, Clone, Serialize)]
pub struct ExplainTraining {
    /// Number of the training; numbers continue those of the passes.
    pub number: usize,
    /// The sink.
    pub sink: String,
    /// The step or source whose rows it reads.
    pub from: String,
    /// Parts of the split that it reads; empty means all rows.
    pub parts: Vec<String>,
    /// The output that it reads; `None` if the steps are applied on the fly.
    pub reads: Option<String>,
}

/// Explanation of a pass.
#[derive(Debug, Clone, Serialize)]
pub struct ExplainPass {
    /// Number of the pass, counted from 1.
    pub number: usize,
    /// The pass's id.
    pub id: String,
    /// Level: passes of one level are independent of each other.
    pub level: usize,
    /// `learn`, `gather` or `write`.
    pub work: &'static str,
    /// Purpose, as a sentence.
    pub why: String,
    /// Scans of the pass.
    pub reads: Vec<ExplainRead>,
    /// Analyzers of the pass.
    pub learns: Vec<ExplainState>,
    /// Row order of its windows and as-of joins.
    pub windows: Vec<ExplainWindow>,
    /// Method of its joins by equal keys.
    pub joins: Vec<ExplainJoin>,
    /// The gathered dataset or written sink.
    pub gives: Option<String>,
    /// Number of lanes: groups of columns that are read separately.
    pub lanes: usize,
    /// Stored bytes to read, if known; reused states need no reads.
    pub bytes: Option<u64>,
    /// Upper bound of the memory of its states in bytes.
    pub memory_bytes_max: u64,
    /// Estimated seconds, from the times of earlier runs; `None` without an earlier run.
    pub seconds: Option<f64>,
    /// True if a committed record makes the pass unnecessary.
    pub reused: bool,
    /// Executor if the run has workers: `workers`, a distributed query, or the coordinator with the
    /// reason.
    pub runs_on: &'static str,
    /// The stages of its query on the workers that were named, and their exchanges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stages: Option<String>,
    /// Spans to read and total spans, of the scan with the most spans to read: those without reusable results of
    /// earlier runs.
    pub spans_to_read: Option<(usize, usize)>,
    /// Steps because of which a new day changes the rows of earlier days, of a pass that writes a history.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rewrites: Vec<ExplainRewrite>,
    /// True if a backfill can write this interval concurrently with others; false if it waits for
    /// the window state of the interval before. `None` without intervals.
    pub beside: Option<bool>,
}

/// Reusable results of earlier runs for a pass.
#[derive(Debug, Clone, Copy, Default)]
pub struct PassReuse {
    /// True if the whole pass is done.
    pub done: bool,
    /// Spans to read and total spans; `None` if not known yet.
    pub to_read: Option<(usize, usize)>,
    /// True if the interval can be written concurrently with others; `None` without intervals.
    pub beside: Option<bool>,
    /// The learn pass whose read also learns the groups, for an aggregate.
    pub learned_in: Option<ContentId>,
    /// True for an aggregate whose groups are mergeable states over spans, which workers learn.
    pub by_spans: bool,
    /// True for a `dedupe` of enough rows for workers; `None` for other passes, and where the rows
    /// are not known yet.
    pub divisible: Option<bool>,
}

/// Explanation of a scan.
#[derive(Debug, Clone, Serialize)]
pub struct ExplainRead {
    /// The source, or the step whose gathered rows are read.
    pub dataset: String,
    /// Number of spans.
    pub spans: Option<usize>,
    /// Decoded columns.
    pub columns: Vec<String>,
    /// Operations applied to the rows.
    pub steps: Vec<String>,
}

/// Explanation of a window's row order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExplainWindow {
    /// The step.
    pub step: String,
    /// `in order of time`, `key by key` or `sorted`.
    pub row_order: &'static str,
    /// The reason.
    pub why: &'static str,
}

/// Explanation of a join by equal keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExplainJoin {
    /// The step.
    pub step: String,
    /// `lookup table` or `shuffle join`.
    pub method: &'static str,
    /// The reason.
    pub why: String,
}

/// Explanation of an analyzer.
#[derive(Debug, Clone, Serialize)]
pub struct ExplainState {
    /// The state's id.
    pub id: String,
    /// Kind of the analyzer.
    pub analyzer: String,
    /// Input columns of the analyzer.
    pub columns: Vec<String>,
    /// The step that needs the finding.
    pub step: String,
    /// Part of the split that it reads.
    pub part: Option<String>,
    /// Upper bound of the state's memory in bytes, by the rows of the data where they are known.
    pub memory_bytes_max: u64,
    /// True if its finding is known from an earlier run.
    pub reused: bool,
    /// True if its finding continues that of the previous run.
    pub continues: bool,
    /// True if its finding is held since an earlier run.
    pub held: bool,
}

impl ExplainProgram {
    /// Explains a program. `states_bytes` is the memory that the run gives all states; `standing` returns the
    /// reusable results of each pass.
    pub fn new(
        program: &Program,
        sink_names: &[String],
        datasets: &BTreeMap<String, Dataset>,
        states_bytes: usize,
        standing: &dyn Fn(ContentId) -> PassReuse,
    ) -> ExplainProgram {
        let explainer = PassExplainer {
            program,
            sink_names,
            datasets,
            states_bytes,
        };
        let mut passes = Vec::new();
        for (index, pass) in program.passes.iter().enumerate() {
            passes.push(explainer.explain(index + 1, pass, &standing(pass.id)));
        }
        ExplainProgram {
            pipeline: program.name.clone(),
            passes,
            trainings: Vec::new(),
            continues: None,
            refits: Vec::new(),
        }
    }
}

/// Explains the passes of a program one by one.
struct PassExplainer<'a> {
    program: &'a Program,
    sink_names: &'a [String],
    datasets: &'a BTreeMap<String, Dataset>,
    /// Memory that the run gives all states
    states_bytes: usize,
}

impl PassExplainer<'_> {
    fn explain(&self, number: usize, pass: &Pass, reuse: &PassReuse) -> ExplainPass {
        let mut explained = ExplainPass {
            number,
            id: pass.id.to_string(),
            level: pass.level,
            work: "learn",
            why: String::new(),
            reads: Vec::new(),
            learns: Vec::new(),
            windows: Vec::new(),
            joins: Vec::new(),
            gives: None,
            lanes: 0,
            bytes: None,
            memory_bytes_max: 0,
            seconds: None,
            reused: reuse.done,
            runs_on: "workers",
            stages: None,
            spans_to_read: reuse.to_read,
            rewrites: Vec::new(),
            beside: reuse.beside,
        };
        match &pass.work {
            PassWork::Learn(work) => self.explain_learning(work, pass.level, &mut explained),
            PassWork::Gather(op) => self.explain_gathering(*op, reuse, &mut explained),
            PassWork::Write(work) => self.explain_writing(work, &mut explained),
        }
        explained
    }

    fn explain_learning(&self, work: &LearnWork, level: usize, explained: &mut ExplainPass) {
        let scans: Vec<&ColumnScan> = work.lanes.iter().flat_map(|lane| &lane.scans).collect();
        explained.lanes = work.lanes.len();
        explained.learns = self.explain_states(work, &scans);
        // A learn pass without lanes has only findings that are known already.
        explained.reused = work.lanes.is_empty();
        explained.joins = joins(&self.program.bound, scans.iter().copied());
        explained.windows = self.windows(&scans);
        explained.reads = merge_reads(scans.iter().map(|scan| self.read(scan)).collect());
        explained.bytes = scans.iter().map(|scan| self.scan_bytes(scan)).sum();
        let state_sizes = explained.learns.iter().map(|state| state.memory_bytes_max);
        let total: u64 = state_sizes.sum();
        // States that can spill share the memory.
        explained.memory_bytes_max = total.min(self.states_bytes as u64);
        explained.why = why_learned(explained.learns.len(), level);
        if work.lanes.iter().any(|lane| self.is_learned_at_once(lane)) {
            explained.runs_on = "the coordinator; workers sort the rows";
        } else if work.lanes.iter().any(|lane| self.has_states_of_rows(lane)) {
            explained.runs_on = ALL_ROWS_AT_ONCE;
        }
    }

    /// True if a state of a lane holds the rows themselves, which workers do not send.
    fn has_states_of_rows(&self, lane: &AnalyzerLane) -> bool {
        let mut analyzers = lane.asks.iter().map(|id| &self.program.bound.asks[*id].ask);
        analyzers.any(|question| !question.analyzer.commits_parts())
    }

    /// True if workers cannot learn a lane span by span: a join sorts its rows, or several streams of a dataset have
    /// sorted windows.
    fn is_learned_at_once(&self, lane: &AnalyzerLane) -> bool {
        let bound = &self.program.bound;
        let mut has_sorted = false;
        for op in self.program.windows_of(&lane.scans) {
            if !self.is_sorted(op) {
                continue;
            }
            if matches!(bound.ops[op].op, PlanOp::Join(_)) {
                return true;
            }
            has_sorted = true;
        }
        has_sorted && lane.scans.iter().any(|scan| scan.streams.len() > 1)
    }

    /// The states of a learn pass, those that an earlier run committed among them.
    fn explain_states(&self, work: &LearnWork, scans: &[&ColumnScan]) -> Vec<ExplainState> {
        let program = self.program;
        let bytes_max = self.state_bytes_max(scans);
        let analyzers: BTreeSet<&AnalyzerId> = work
            .lanes
            .iter()
            .flat_map(|lane| &lane.asks)
            .chain(&work.known)
            .collect();
        let mut states = Vec::new();
        for id in analyzers {
            let bound_analyzer = &program.bound.asks[*id];
            let analyzer = &bound_analyzer.ask.analyzer;
            let part = bound_analyzer.part.as_deref();
            let size = analyzer.size_bytes_max(self.states_bytes) as u64;
            states.push(ExplainState {
                id: program.state_ids[*id].to_string(),
                analyzer: analyzer.kind().to_owned(),
                columns: bound_analyzer.ask.inputs.clone(),
                step: program.bound.ops[bound_analyzer.op].label.clone(),
                part: part.map(|part| crate::part_name(part).to_owned()),
                memory_bytes_max: size.min(bytes_max),
                reused: work.known.contains(id),
                continues: matches!(bound_analyzer.carried, Some(CarriedFinding::Continued(_))),
                held: bound_analyzer.held.is_some(),
            });
        }
        states
    }

    /// Bytes that a state of the scanned rows cannot exceed. A state of few rows stays far below its limit: it is
    /// bounded by the rows, or by the stored bytes where the rows are not known.
    fn state_bytes_max(&self, scans: &[&ColumnScan]) -> u64 {
        let rows: Option<u64> = scans.iter().map(|scan| self.scan_rows(scan)).sum();
        let stored_bytes: Option<u64> = scans.iter().map(|scan| self.scan_bytes(scan)).sum();
        let by_rows = rows.map(|rows| rows * ROW_STATE_BYTES);
        let by_bytes = stored_bytes.map(|bytes| bytes * STORED_STATE_BYTES);
        let bytes_max = by_rows.or(by_bytes).unwrap_or(u64::MAX);
        bytes_max.max(STATE_BYTES_MIN)
    }

    fn explain_gathering(&self, op: OpId, reuse: &PassReuse, explained: &mut ExplainPass) {
        let bound = &self.program.bound;
        let label = &bound.ops[op].label;
        explained.work = "gather";
        explained.gives = Some(format!("{label} (gathered)"));
        explained.why = match self.number_of_pass(reuse.learned_in) {
            Some(number) => {
                format!("{label} is made of groups that pass {number} learns in its read")
            }
            None if reuse.by_spans => format!("{label} merges the groups of all spans"),
            // Rows that no pass has written yet, or whose order is unknown, are grouped by workers as well.
            None if is_grouped_by_spans(bound, op) => format!("{label} groups all rows"),
            None => format!("{label} needs all rows at once"),
        };
        explained.joins.extend(explain_join(bound, op));
        explained.reads = self.gather_reads(op);
        explained.runs_on = if is_query(bound, op) {
            DISTRIBUTED_QUERY
        } else if reuse.learned_in.is_some() {
            "workers"
        } else if is_dedupe(bound, op) {
            self.dedupe_executor(op, reuse)
        } else if !is_grouped_by_spans(bound, op) {
            ALL_ROWS_AT_ONCE
        } else if self.joins_sorted_rows(op) {
            "the coordinator; workers sort the rows"
        } else {
            "workers"
        };
    }

    /// Executor of a `dedupe` if the run has workers.
    fn dedupe_executor(&self, op: OpId, reuse: &PassReuse) -> &'static str {
        let bound = &self.program.bound;
        let needs_order = self.reads_through(op, &|upstream| {
            let is_window = matches!(
                bound.ops[upstream].op,
                PlanOp::Window(_) | PlanOp::Series(_)
            );
            is_window && !self.is_sorted(upstream)
        });
        if needs_order {
            return ROWS_IN_ORDER;
        }
        match reuse.divisible {
            Some(true) => "workers",
            Some(false) => FEW_ROWS,
            None => UNKNOWN_ROWS,
        }
    }

    /// True if the rows of a gather come from a join that sorts them.
    fn joins_sorted_rows(&self, op: OpId) -> bool {
        let bound = &self.program.bound;
        self.reads_through(op, &|upstream| {
            matches!(bound.ops[upstream].op, PlanOp::Join(_)) && self.is_sorted(upstream)
        })
    }

    /// True if the columns that a gather reads come from an operation for which `is_met` holds.
    fn reads_through(&self, op: OpId, is_met: &dyn Fn(OpId) -> bool) -> bool {
        let bound = &self.program.bound;
        let inputs = bound.gather_inputs.get(&op).into_iter().flatten();
        for ((_, flow), columns) in inputs.zip(gather_columns(bound, op)) {
            let names: Vec<&str> = columns.iter().map(String::as_str).collect();
            for stream in &flow.streams {
                let (needed, _) = slice_for_columns(bound, stream, &names);
                if needed.iter().any(|position| is_met(stream.ops[*position])) {
                    return true;
                }
            }
        }
        false
    }

    /// True if the rows of a window or join are sorted first.
    fn is_sorted(&self, op: OpId) -> bool {
        let choice = choose_row_order(&self.program.bound, op, &|base| self.dataset(base));
        choice.row_order == WindowRowOrder::Sorted
    }

    fn number_of_pass(&self, id: Option<ContentId>) -> Option<usize> {
        let id = id?;
        let index = self.program.passes.iter().position(|pass| pass.id == id)?;
        Some(index + 1)
    }

    fn gather_reads(&self, op: OpId) -> Vec<ExplainRead> {
        let bound = &self.program.bound;
        let inputs = bound.gather_inputs.get(&op).into_iter().flatten();
        let mut reads = Vec::new();
        for ((name, flow), columns) in inputs.zip(gather_columns(bound, op)) {
            // The input `this` is shown as the base of the step's own rows.
            let dataset = match (name.as_str(), flow.streams.first()) {
                ("this", Some(stream)) => self.dataset_name(stream.base),
                _ => name.clone(),
            };
            reads.push(ExplainRead {
                dataset,
                spans: None,
                columns,
                steps: Vec::new(),
            });
        }
        reads
    }

    fn explain_writing(&self, work: &SinkWork, explained: &mut ExplainPass) {
        let sink_name = self.sink_names.get(work.sink);
        let name = sink_name.map_or("", String::as_str);
        let scans: Vec<&ColumnScan> = work.scans.iter().collect();
        explained.work = "write";
        explained.gives = Some(name.to_owned());
        explained.why = format!("sink `{name}` is written");
        explained.reads = scans.iter().map(|scan| self.read(scan)).collect();
        explained.bytes = scans.iter().map(|scan| self.scan_bytes(scan)).sum();
        explained.windows = self.windows(&scans);
        explained.joins = joins(&self.program.bound, &work.scans);
        // A single file is read as a whole in any case.
        let is_history = scans.iter().any(|scan| {
            let dataset = self.dataset(scan.base);
            dataset.is_none_or(|dataset| dataset.spans.len() > 1)
        });
        if is_history {
            explained.rewrites = rewriting_steps(&self.program.bound, &work.scans);
        }
    }

    fn dataset_name(&self, base: BaseId) -> String {
        let bound = &self.program.bound;
        match &bound.bases[base] {
            BaseDataset::Source(name) => name.clone(),
            BaseDataset::Gathered(op) => format!("{} (gathered)", bound.ops[*op].label),
        }
    }

    /// The dataset of a source. Gathered rows have none before their pass has run.
    fn dataset(&self, base: BaseId) -> Option<&Dataset> {
        match &self.program.bound.bases[base] {
            BaseDataset::Source(name) => self.datasets.get(name),
            BaseDataset::Gathered(_) => None,
        }
    }

    fn read(&self, scan: &ColumnScan) -> ExplainRead {
        let mut steps: Vec<String> = Vec::new();
        for op in needed_ops([scan]) {
            let label = &self.program.bound.ops[op].label;
            if !steps.contains(label) {
                steps.push(label.clone());
            }
        }
        let dataset = self.dataset(scan.base);
        ExplainRead {
            dataset: self.dataset_name(scan.base),
            spans: dataset.map(|dataset| dataset.spans.len()),
            columns: scan.columns.clone(),
            steps,
        }
    }

    fn scan_bytes(&self, scan: &ColumnScan) -> Option<u64> {
        let dataset = self.dataset(scan.base)?;
        let of_columns = dataset.bytes_of_columns(&scan.columns);
        Some(of_columns.unwrap_or_else(|| dataset.bytes()))
    }

    fn scan_rows(&self, scan: &ColumnScan) -> Option<u64> {
        self.dataset(scan.base)?.rows()
    }

    fn windows(&self, scans: &[&ColumnScan]) -> Vec<ExplainWindow> {
        let bound = &self.program.bound;
        let mut windows = Vec::new();
        for op in self.program.windows_of(scans.iter().copied()) {
            // Joins by equal keys are explained as joins.
            if equal_keys(&bound.ops[op].op).is_some() {
                continue;
            }
            let choice = choose_row_order(bound, op, &|base| self.dataset(base));
            let row_order = match choice.row_order {
                WindowRowOrder::Time => "in order of time",
                WindowRowOrder::Key => "key by key",
                WindowRowOrder::Sorted => SORTED,
            };
            windows.push(ExplainWindow {
                step: bound.ops[op].label.clone(),
                row_order,
                why: choice.why,
            });
        }
        windows
    }
}

/// Reason of a pass that learns statistics.
fn why_learned(statistics: usize, level: usize) -> String {
    match (statistics, level) {
        (1, 1) => "1 statistic needs all rows".to_owned(),
        (_, 1) => format!("{statistics} statistics need all rows"),
        (1, _) => format!(
            "1 statistic uses columns that need the statistics of level {}",
            level - 1
        ),
        _ => format!(
            "{statistics} statistics use columns that need the statistics of level {}",
            level - 1
        ),
    }
}

/// The joins by equal keys that rows go through.
fn joins<'a>(
    bound: &BoundPipeline,
    scans: impl IntoIterator<Item = &'a ColumnScan>,
) -> Vec<ExplainJoin> {
    let mut joins: Vec<ExplainJoin> = Vec::new();
    for join in needed_ops(scans).filter_map(|op| explain_join(bound, op)) {
        if !joins.contains(&join) {
            joins.push(join);
        }
    }
    joins
}

fn explain_join(bound: &BoundPipeline, op: OpId) -> Option<ExplainJoin> {
    let step = bound.ops[op].label.clone();
    let collected = |request: &&AnalyzerRequest| request.analyzer.kind() == "collect";
    match &bound.ops[op].op {
        PlanOp::Map(map) => {
            let other = map
                .asks
                .iter()
                .filter(collected)
                .find_map(|request| request.of.as_ref())?;
            Some(ExplainJoin {
                step,
                method: LOOKUP_TABLE,
                why: format!("holds the rows of `{other}` in memory"),
            })
        }
        op => {
            let other = equal_keys(op)?;
            Some(ExplainJoin {
                step,
                method: SHUFFLE_JOIN,
                why: format!("partitions its rows and those of `{other}` by key"),
            })
        }
    }
}

/// True if the query engine computes the rows of a gather.
fn is_query(bound: &BoundPipeline, op: OpId) -> bool {
    matches!(
        &bound.ops[op].op,
        PlanOp::Gather(GatherOp {
            lower: GatherBy::Query(_),
            ..
        })
    )
}

/// True for a gather that keeps one row of each key.
fn is_dedupe(bound: &BoundPipeline, op: OpId) -> bool {
    matches!(
        &bound.ops[op].op,
        PlanOp::Gather(GatherOp {
            lower: GatherBy::OnePerKey { .. },
            ..
        })
    )
}

/// True for an aggregate whose groups are states of spans that are merged.
fn is_grouped_by_spans(bound: &BoundPipeline, op: OpId) -> bool {
    let PlanOp::Gather(GatherOp {
        lower: GatherBy::GroupBy(group_by),
        ..
    }) = &bound.ops[op].op
    else {
        return false;
    };
    let mut inputs = bound.gather_inputs.get(&op).into_iter().flatten();
    let is_of_one_stream = inputs.all(|(_, flow)| flow.streams.len() == 1);
    // Rows of several streams are read side by side, not one stream after the other.
    is_of_one_stream || !group_by.spec.is_of_row_order()
}

/// The other side of a join by equal keys.
fn equal_keys(op: &PlanOp) -> Option<&String> {
    match op {
        PlanOp::Join(join)
        | PlanOp::Gather(GatherOp {
            lower: GatherBy::Join { join, .. },
            ..
        }) => join.as_of().is_none().then_some(&join.other),
        _ => None,
    }
}

/// Merges the scans of one dataset by several lanes.
fn merge_reads(reads: Vec<ExplainRead>) -> Vec<ExplainRead> {
    let mut merged: Vec<ExplainRead> = Vec::new();
    for read in reads {
        match merged
            .iter_mut()
            .find(|merged| merged.dataset == read.dataset)
        {
            None => merged.push(read),
            Some(merged) => {
                for column in read.columns {
                    if !merged.columns.contains(&column) {
                        merged.columns.push(column);
                    }
                }
                for step in read.steps {
                    if !merged.steps.contains(&step) {
                        merged.steps.push(step);
                    }
                }
            }
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::why_learned;

    #[test]
    fn one_statistic_is_singular() {
        assert_eq!(why_learned(1, 1), "1 statistic needs all rows");
        assert_eq!(why_learned(4, 1), "4 statistics need all rows");
        assert_eq!(
            why_learned(1, 2),
            "1 statistic uses columns that need the statistics of level 1"
        );
    }
}
