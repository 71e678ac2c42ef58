//! What a program will do, as data; `pipelines/src/present` turns it into text and pictures.

use serde::Serialize;

use crate::{Base, Choice, LearnWork, PassWork, Program, Scan, Way, choose_way};

/// How rows reach windows that need them sorted.
const SORTED: &str = "sorted";

/// A program, explained.
#[derive(Debug, Clone, Serialize)]
pub struct Explain {
    /// The pipeline.
    pub pipeline: String,
    /// In order.
    pub passes: Vec<ExplainPass>,
    /// What comes after all passes.
    pub trainings: Vec<ExplainTraining>,
}

/// A training, explained.
#[derive(Debug, Clone, Serialize)]
pub struct ExplainTraining {
    /// After the passes.
    pub number: usize,
    /// The sink.
    pub sink: String,
    /// The step or source whose rows it learns from.
    pub from: String,
    /// The parts of the split that it reads; none are all rows.
    pub parts: Vec<String>,
    /// The output that it reads; `None` where the steps are done on the way.
    pub reads: Option<String>,
}

/// One pass, explained.
#[derive(Debug, Clone, Serialize)]
pub struct ExplainPass {
    /// From 1.
    pub number: usize,
    /// The pass's id.
    pub id: String,
    /// Its depth.
    pub level: usize,
    /// `learn`, `gather` or `write`.
    pub work: &'static str,
    /// Why it exists, in a sentence.
    pub why: String,
    /// What it reads.
    pub reads: Vec<ExplainRead>,
    /// What it learns.
    pub learns: Vec<ExplainState>,
    /// How rows reach the windows and as-of joins that it runs.
    pub windows: Vec<ExplainWindow>,
    /// The dataset that it gathers or the sink that it writes.
    pub gives: Option<String>,
    /// How many groups of columns are read apart from each other.
    pub lanes: usize,
    /// Stored bytes that it reads, where known; reused states are not read for again.
    pub bytes: Option<u64>,
    /// Memory of its states at most.
    pub memory_bytes_max: u64,
    /// Whether a committed record makes it unnecessary.
    pub reused: bool,
    /// Who does it where a run has workers: `workers`, or the coordinator and why.
    pub runs_on: &'static str,
    /// Of the spans of its greediest read: how many earlier runs left nothing of that stands, and
    /// how many there are.
    pub spans_to_read: Option<(usize, usize)>,
    /// Where an interval is written: whether a backfill writes it beside others, or after the one before
    /// it, because windows need what that one remembers.
    pub beside: Option<bool>,
}

/// What earlier runs left of a pass.
#[derive(Debug, Clone, Copy, Default)]
pub struct Standing {
    /// Everything.
    pub done: bool,
    /// Spans that have to be read, of how many; `None` where that shows later.
    pub to_read: Option<(usize, usize)>,
    /// Of an interval: whether it can be written beside others.
    pub beside: Option<bool>,
}

/// A read, explained.
#[derive(Debug, Clone, Serialize)]
pub struct ExplainRead {
    /// The source, or the step whose gathered rows are read.
    pub dataset: String,
    /// Spans of it.
    pub spans: Option<usize>,
    /// Columns that are decoded.
    pub columns: Vec<String>,
    /// Operations that run on the rows.
    pub steps: Vec<String>,
}

/// How rows reach a window, explained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExplainWindow {
    /// The step.
    pub step: String,
    /// `in order of time`, `key by key` or `sorted`.
    pub way: &'static str,
    /// Why.
    pub why: &'static str,
}

/// A question, explained.
#[derive(Debug, Clone, Serialize)]
pub struct ExplainState {
    /// The state's id.
    pub id: String,
    /// The analyzer.
    pub analyzer: String,
    /// Its input columns.
    pub columns: Vec<String>,
    /// The step that asks.
    pub step: String,
    /// The part of the split that it sees.
    pub part: Option<String>,
    /// Memory of the state at most.
    pub memory_bytes_max: u64,
    /// Whether it is known from an earlier run.
    pub reused: bool,
}

impl Explain {
    /// Explains a program. `states_bytes` is the memory that the run would give all states;
    /// `standing` tells what earlier runs left of each pass.
    pub fn new(
        program: &Program,
        sink_names: &[String],
        datasets: &std::collections::BTreeMap<String, forebay_model::Dataset>,
        states_bytes: usize,
        standing: &dyn Fn(forebay_model::Id) -> Standing,
    ) -> Explain {
        let dataset_name = |base: usize| match &program.bound.bases[base] {
            Base::Source(name) => name.clone(),
            Base::Gathered(op) => format!("{} (gathered)", program.bound.ops[*op].label),
        };
        let read = |scan: &Scan| {
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
                Base::Source(name) => datasets.get(name).map(|dataset| dataset.spans.len()),
                Base::Gathered(_) => None,
            };
            ExplainRead { dataset: dataset_name(scan.base), spans, columns: scan.columns.clone(), steps }
        };
        let scan_bytes = |scan: &Scan| -> Option<u64> {
            let Base::Source(name) = &program.bound.bases[scan.base] else { return None };
            let dataset = datasets.get(name)?;
            let Some(bytes) = &dataset.column_bytes else { return Some(dataset.bytes()) };
            let columns = scan.columns.iter().filter_map(|column| dataset.schema.index_of(column).ok());
            Some(columns.filter_map(|index| bytes.get(index)).sum())
        };
        let windows = |scans: &mut dyn Iterator<Item = &Scan>| {
            let ops = program.windows_of(scans);
            let explained = ops.into_iter().map(|op| {
                let Choice { way, why } = choose_way(&program.bound, op, &|base| match &program.bound.bases[base] {
                    Base::Source(name) => datasets.get(name),
                    Base::Gathered(_) => None,
                });
                let way = match way {
                    Way::Time => "in order of time",
                    Way::Key => "key by key",
                    Way::Sorted => SORTED,
                };
                ExplainWindow { step: program.bound.ops[op].label.clone(), way, why }
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
                gives: None,
                lanes: 0,
                bytes: None,
                memory_bytes_max: 0,
                reused: standing(pass.id).done,
                runs_on: "workers",
                spans_to_read: standing(pass.id).to_read,
                beside: standing(pass.id).beside,
            };
            match &pass.work {
                PassWork::Learn(LearnWork { lanes, known }) => {
                    explained.lanes = lanes.len();
                    let asks = lanes.iter().flat_map(|lane| &lane.asks).chain(known);
                    for ask_id in asks.collect::<std::collections::BTreeSet<_>>() {
                        let ask = &program.bound.asks[*ask_id];
                        let analyzer = &ask.ask.analyzer;
                        explained.learns.push(ExplainState {
                            id: program.state_ids[*ask_id].to_string(),
                            analyzer: analyzer.kind().to_owned(),
                            columns: ask.ask.inputs.clone(),
                            step: program.bound.ops[ask.op].label.clone(),
                            part: ask.part.as_deref().map(|part| crate::part_name(part).to_owned()),
                            memory_bytes_max: analyzer.size_bytes_max(states_bytes) as u64,
                            reused: known.contains(ask_id),
                        });
                    }
                    explained.reused = lanes.is_empty();
                    explained.windows = windows(&mut lanes.iter().flat_map(|lane| &lane.scans));
                    explained.reads = merge_reads(lanes.iter().flat_map(|lane| &lane.scans).map(read).collect());
                    explained.bytes = lanes.iter().flat_map(|lane| &lane.scans).map(scan_bytes).sum::<Option<u64>>();
                    // States that can spill share what there is.
                    let all: u64 = explained.learns.iter().map(|state| state.memory_bytes_max).sum();
                    explained.memory_bytes_max = all.min(states_bytes as u64);
                    explained.why = match pass.level {
                        1 => format!("{} statistics need all rows", explained.learns.len()),
                        _ => format!(
                            "{} statistics are of columns that need the statistics of level {}",
                            explained.learns.len(),
                            pass.level - 1
                        ),
                    };
                }
                PassWork::Gather(op) => {
                    explained.work = "gather";
                    explained.gives = Some(format!("{} (gathered)", program.bound.ops[*op].label));
                    explained.why = format!("{} needs all rows at once", program.bound.ops[*op].label);
                    let inputs = program.bound.gather_inputs.get(op);
                    explained.reads = inputs
                        .into_iter()
                        .flatten()
                        .map(|(name, flow)| ExplainRead {
                            // A step's own rows are those of what it stands on.
                            dataset: match (name.as_str(), flow.streams.first()) {
                                ("this", Some(stream)) => dataset_name(stream.base),
                                _ => name.clone(),
                            },
                            spans: None,
                            columns: flow.schema.fields().iter().map(|field| field.name().clone()).collect(),
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
                }
            }
            let sorts = explained.windows.iter().any(|window| window.way == SORTED);
            if sorts && explained.work == "learn" {
                explained.runs_on = "the coordinator; workers sort the rows";
            } else if explained.work == "gather" {
                explained.runs_on = "the coordinator, which has all rows at once";
            }
            explained
        });
        Explain { pipeline: program.name.clone(), passes: passes.collect(), trainings: Vec::new() }
    }
}

/// Reads of one dataset by several lanes as one.
fn merge_reads(reads: Vec<ExplainRead>) -> Vec<ExplainRead> {
    let mut merged: Vec<ExplainRead> = Vec::new();
    for read in reads {
        match merged.iter_mut().find(|known| known.dataset == read.dataset) {
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
