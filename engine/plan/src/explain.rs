//! Explanation of a program as data; `pipelines/src/present` renders it as text and pictures.

use serde::Serialize;

use crate::{
    AnalyzerRequest, BaseDataset, BoundPipeline, CarriedFinding, ColumnScan, GatherBy, GatherOp,
    LearnWork, OpId, PassWork, PlanOp, Program, RowOrderChoice, StepRefit, WindowRowOrder,
    choose_row_order, needed_ops,
};

/// Display name of the sorted row order.
const SORTED: &str = "sorted";

/// Display name of a join that holds the other side in memory.
const LOOKUP_TABLE: &str = "lookup table";

/// Display name of a join that partitions both sides.
const SHUFFLE_JOIN: &str = "shuffle join";

/// Where the query of a gather runs.
const DISTRIBUTED_QUERY: &str =
    "threads here, or workers as one distributed query where there are some";

/// What one row adds to a state at most, in bytes: a token of usual length with its count, its hash and its place.
const ROW_STATE_BYTES: u64 = 256;

/// What one stored byte adds at most, where rows are not known.
const STORED_STATE_BYTES: u64 = 64;

/// A state of few rows has fixed parts beside them.
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
    /// Steps that do not learn anew in each run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refits: Vec<StepRefit>,
}

/// Explanation of a training.
#[derive(Debug, Clone, Serialize)]
pub struct ExplainTraining {
    /// Number, following those of the passes.
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
    /// From 1.
    pub number: usize,
    /// The pass's id.
    pub id: String,
    /// Level: passes of one level are independent of each other.
    pub level: usize,
    /// `learn`, `gather` or `write`.
    pub work: &'static str,
    /// Purpose, as a sentence.
    pub why: String,
    /// Its scans.
    pub reads: Vec<ExplainRead>,
    /// Its analyzers.
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
    /// Seconds that it should take, by what earlier runs took; `None` without an earlier run.
    pub seconds: Option<f64>,
    /// Whether a committed record makes the pass unnecessary.
    pub reused: bool,
    /// Where it runs if the run has workers: `workers`, a distributed query, or the coordinator with the reason.
    pub runs_on: &'static str,
    /// The stages of its query on the workers that were named, and their exchanges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stages: Option<String>,
    /// Spans to read and total spans, of the scan with the most spans to read: those without reusable results of
    /// earlier runs.
    pub spans_to_read: Option<(usize, usize)>,
    /// For intervals: whether a backfill can write this one concurrently with others. Otherwise it waits for the
    /// window state of the interval before.
    pub beside: Option<bool>,
}

/// Reusable results of earlier runs for a pass.
#[derive(Debug, Clone, Copy, Default)]
pub struct PassReuse {
    /// Whether everything is done.
    pub done: bool,
    /// Spans to read and total spans; `None` if not known yet.
    pub to_read: Option<(usize, usize)>,
    /// For intervals: whether it can be written concurrently with others.
    pub beside: Option<bool>,
    /// For an aggregate: the learn pass in whose read its groups are learned.
    pub learned_in: Option<forebay_model::ContentId>,
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
    /// Its input columns.
    pub columns: Vec<String>,
    /// The step that needs the finding.
    pub step: String,
    /// Part of the split that it reads.
    pub part: Option<String>,
    /// Upper bound of the state's memory in bytes, by the rows of the data where they are known.
    pub memory_bytes_max: u64,
    /// Whether its finding is known from an earlier run.
    pub reused: bool,
    /// Whether its finding continues that of the run before.
    pub continues: bool,
    /// Whether its finding is held since an earlier run.
    pub held: bool,
}

impl ExplainProgram {
    /// Explains a program. `states_bytes` is the memory that the run gives all states; `standing` returns the
    /// reusable results of each pass.
    pub fn new(
        program: &Program,
        sink_names: &[String],
        datasets: &std::collections::BTreeMap<String, forebay_model::Dataset>,
        states_bytes: usize,
        standing: &dyn Fn(forebay_model::ContentId) -> PassReuse,
    ) -> ExplainProgram {
        let dataset_name = |base: usize| match &program.bound.bases[base] {
            BaseDataset::Source(name) => name.clone(),
            BaseDataset::Gathered(op) => format!("{} (gathered)", program.bound.ops[*op].label),
        };
        let read = |scan: &ColumnScan| {
            let mut steps: Vec<String> = Vec::new();
            for stream in &scan.streams {
                for position in &stream.needed {
                    let label = &program.bound.ops[stream.stream.ops[*position]].label;
                    if !steps.contains(label) {
                        steps.push(label.clone());
                    }
                }
            }
            let spans = match &program.bound.bases[scan.base] {
                BaseDataset::Source(name) => datasets.get(name).map(|dataset| dataset.spans.len()),
                BaseDataset::Gathered(_) => None,
            };
            ExplainRead {
                dataset: dataset_name(scan.base),
                spans,
                columns: scan.columns.clone(),
                steps,
            }
        };
        let scan_bytes = |scan: &ColumnScan| -> Option<u64> {
            let BaseDataset::Source(name) = &program.bound.bases[scan.base] else {
                return None;
            };
            let dataset = datasets.get(name)?;
            Some(
                dataset
                    .bytes_of_columns(&scan.columns)
                    .unwrap_or_else(|| dataset.bytes()),
            )
        };
        let scan_rows = |scan: &ColumnScan| match &program.bound.bases[scan.base] {
            BaseDataset::Source(name) => datasets.get(name)?.rows(),
            BaseDataset::Gathered(_) => None,
        };
        let windows = |scans: &mut dyn Iterator<Item = &ColumnScan>| {
            let ops = program.windows_of(scans);
            let ops = ops
                .into_iter()
                .filter(|op| equal_keys(&program.bound.ops[*op].op).is_none());
            let explained = ops.map(|op| {
                let RowOrderChoice { row_order, why } = choose_row_order(
                    &program.bound,
                    op,
                    &|base| match &program.bound.bases[base] {
                        BaseDataset::Source(name) => datasets.get(name),
                        BaseDataset::Gathered(_) => None,
                    },
                );
                let row_order = match row_order {
                    WindowRowOrder::Time => "in order of time",
                    WindowRowOrder::Key => "key by key",
                    WindowRowOrder::Sorted => SORTED,
                };
                ExplainWindow {
                    step: program.bound.ops[op].label.clone(),
                    row_order,
                    why,
                }
            });
            explained.collect::<Vec<_>>()
        };
        let passes = program.passes.iter().enumerate().map(|(index, pass)| {
            let mut explained = ExplainPass {
                number: index + 1,
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
                reused: standing(pass.id).done,
                runs_on: "workers",
                stages: None,
                spans_to_read: standing(pass.id).to_read,
                beside: standing(pass.id).beside,
            };
            match &pass.work {
                PassWork::Learn(LearnWork { lanes, known }) => {
                    explained.lanes = lanes.len();
                    let scans = || lanes.iter().flat_map(|lane| &lane.scans);
                    let grows_to = scans()
                        .map(scan_rows)
                        .sum::<Option<u64>>()
                        .map(|rows| rows * ROW_STATE_BYTES);
                    let stored = || {
                        scans()
                            .map(scan_bytes)
                            .sum::<Option<u64>>()
                            .map(|bytes| bytes * STORED_STATE_BYTES)
                    };
                    let grows_to = grows_to
                        .or_else(stored)
                        .unwrap_or(u64::MAX)
                        .max(STATE_BYTES_MIN);
                    let asks = lanes.iter().flat_map(|lane| &lane.asks).chain(known);
                    for ask_id in asks.collect::<std::collections::BTreeSet<_>>() {
                        let ask = &program.bound.asks[*ask_id];
                        let analyzer = &ask.ask.analyzer;
                        explained.learns.push(ExplainState {
                            id: program.state_ids[*ask_id].to_string(),
                            analyzer: analyzer.kind().to_owned(),
                            columns: ask.ask.inputs.clone(),
                            step: program.bound.ops[ask.op].label.clone(),
                            part: ask
                                .part
                                .as_deref()
                                .map(|part| crate::part_name(part).to_owned()),
                            memory_bytes_max: (analyzer.size_bytes_max(states_bytes) as u64)
                                .min(grows_to),
                            reused: known.contains(ask_id),
                            continues: matches!(ask.carried, Some(CarriedFinding::Continued(_))),
                            held: ask.held.is_some(),
                        });
                    }
                    explained.reused = lanes.is_empty();
                    explained.joins =
                        joins(&program.bound, lanes.iter().flat_map(|lane| &lane.scans));
                    explained.windows = windows(&mut lanes.iter().flat_map(|lane| &lane.scans));
                    explained.reads = merge_reads(
                        lanes
                            .iter()
                            .flat_map(|lane| &lane.scans)
                            .map(read)
                            .collect(),
                    );
                    explained.bytes = lanes
                        .iter()
                        .flat_map(|lane| &lane.scans)
                        .map(scan_bytes)
                        .sum::<Option<u64>>();
                    // States that can spill share the memory.
                    let all: u64 = explained
                        .learns
                        .iter()
                        .map(|state| state.memory_bytes_max)
                        .sum();
                    explained.memory_bytes_max = all.min(states_bytes as u64);
                    explained.why = match pass.level {
                        1 => format!("{} statistics need all rows", explained.learns.len()),
                        _ => format!(
                            "{} statistics use columns that need the statistics of level {}",
                            explained.learns.len(),
                            pass.level - 1
                        ),
                    };
                }
                PassWork::Gather(op) => {
                    explained.work = "gather";
                    explained.gives = Some(format!("{} (gathered)", program.bound.ops[*op].label));
                    let label = &program.bound.ops[*op].label;
                    let learned_in = standing(pass.id).learned_in;
                    let number = learned_in
                        .and_then(|id| program.passes.iter().position(|pass| pass.id == id));
                    explained.why = match number {
                        Some(place) => format!(
                            "{label} is made of groups that pass {} learns in its read",
                            place + 1
                        ),
                        None => format!("{label} needs all rows at once"),
                    };
                    explained.joins.extend(explain_join(&program.bound, *op));
                    let inputs = program.bound.gather_inputs.get(op);
                    explained.reads = inputs
                        .into_iter()
                        .flatten()
                        .map(|(name, flow)| ExplainRead {
                            // The input `this` is shown as the base of the step's own rows.
                            dataset: match (name.as_str(), flow.streams.first()) {
                                ("this", Some(stream)) => dataset_name(stream.base),
                                _ => name.clone(),
                            },
                            spans: None,
                            columns: flow
                                .schema
                                .fields()
                                .iter()
                                .map(|field| field.name().clone())
                                .collect(),
                            steps: Vec::new(),
                        })
                        .collect();
                }
                PassWork::Write(work) => {
                    explained.work = "write";
                    let name = sink_names.get(work.sink).map_or("", String::as_str);
                    explained.gives = Some(name.to_owned());
                    explained.why = format!("sink `{name}` is written");
                    explained.reads = work.scans.iter().map(read).collect();
                    explained.bytes = work.scans.iter().map(scan_bytes).sum();
                    explained.windows = windows(&mut work.scans.iter());
                    explained.joins = joins(&program.bound, &work.scans);
                }
            }
            let sorts = explained
                .windows
                .iter()
                .any(|window| window.row_order == SORTED)
                || explained
                    .joins
                    .iter()
                    .any(|join| join.method == SHUFFLE_JOIN);
            if sorts && explained.work == "learn" {
                explained.runs_on = "the coordinator; workers sort the rows";
            } else if explained.work == "gather" {
                explained.runs_on = match &pass.work {
                    PassWork::Gather(op) if is_query(&program.bound, *op) => DISTRIBUTED_QUERY,
                    _ => "the coordinator, which needs all rows at once",
                };
            }
            explained
        });
        ExplainProgram {
            pipeline: program.name.clone(),
            passes: passes.collect(),
            trainings: Vec::new(),
            continues: None,
            refits: Vec::new(),
        }
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
    let collected = |ask: &&AnalyzerRequest| ask.analyzer.kind() == "collect";
    match &bound.ops[op].op {
        PlanOp::Map(map) => {
            let other = map
                .asks
                .iter()
                .filter(collected)
                .find_map(|ask| ask.of.as_ref())?;
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

/// Whether the query engine computes the rows of a gather.
fn is_query(bound: &BoundPipeline, op: OpId) -> bool {
    matches!(
        &bound.ops[op].op,
        PlanOp::Gather(GatherOp {
            lower: GatherBy::Query(_),
            ..
        })
    )
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
            .find(|known| known.dataset == read.dataset)
        {
            None => merged.push(read),
            Some(known) => {
                for column in read.columns {
                    if !known.columns.contains(&column) {
                        known.columns.push(column);
                    }
                }
                for step in read.steps {
                    if !known.steps.contains(&step) {
                        known.steps.push(step);
                    }
                }
            }
        }
    }
    merged
}
