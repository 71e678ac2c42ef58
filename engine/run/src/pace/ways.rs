//! The passes of a program as forecasts see them.

use std::collections::{BTreeMap, BTreeSet};

use forebay_model::{Dataset, Pipeline, Result, Rung};
use forebay_plan::{Base, BaseId, Lane, PassWork, Program, Scan};

use super::cost::Ahead;
use crate::ladder::{before_gather, before_sink};
use crate::output::Manifest;
use crate::pass::Known;
use crate::pass::history::{History, Past};

/// What passes are called from run to run, in the order of the program.
pub(crate) fn names(program: &Program, pipeline: &Pipeline) -> Vec<String> {
    let mut learned = 0;
    let name = |work: &PassWork| match work {
        PassWork::Learn(_) => {
            learned += 1;
            format!("learn {learned}")
        }
        PassWork::Gather(op) => format!("gather {}", program.bound.ops[*op].label),
        PassWork::Write(work) => format!("write {}", pipeline.sinks[work.sink].name),
    };
    program.passes.iter().map(|pass| &pass.work).map(name).collect()
}

/// Stored bytes of what a lane is about.
pub(crate) fn lane_bytes(lane: &Lane, dataset_bytes: &dyn Fn(BaseId) -> u64) -> u64 {
    match lane.bytes {
        0 => lane.scans.iter().map(|scan| dataset_bytes(scan.base)).sum(),
        bytes => bytes,
    }
}

/// The passes of a program that are to come on a rung.
pub(crate) fn passes(
    program: &Program,
    pipeline: &Pipeline,
    datasets: &BTreeMap<String, Dataset>,
    rung: Option<Rung>,
) -> Vec<Ahead> {
    let bytes = |base: BaseId| match &program.bound.bases[base] {
        Base::Source(name) => datasets.get(name).map_or(0, Dataset::bytes),
        Base::Gathered(_) => 0,
    };
    let mut ahead = Vec::new();
    for (pass, name) in program.passes.iter().zip(names(program, pipeline)) {
        let bound = &program.bound;
        let (total, learned) = match &pass.work {
            PassWork::Learn(_) if rung >= Some(Rung::ReuseStates) => continue,
            PassWork::Learn(work) => (work.lanes.iter().map(|lane| lane_bytes(lane, &bytes)).sum(), false),
            PassWork::Gather(op) => {
                let inputs = bound.gather_inputs.get(op).into_iter().flatten().flat_map(|(_, flow)| &flow.streams);
                (inputs.map(|stream| bytes(stream.base)).sum(), !before_gather(bound, *op).is_empty())
            }
            PassWork::Write(work) => {
                let learned = !before_sink(bound, pipeline, work.sink).is_empty();
                (work.scans.iter().map(|scan| bytes(scan.base)).sum(), learned)
            }
        };
        ahead.push(Ahead { pass: name, total, read: None, learned });
    }
    ahead
}

/// Stored bytes of the spans that an output does not show yet, if its rows come from histories.
pub(crate) fn new_bytes(program: &Program, known: &Known, scans: &[Scan], visible: &Manifest) -> Result<Option<u64>> {
    if !known.is_history(program, scans)? {
        return Ok(None);
    }
    let shown: BTreeSet<&String> = visible.shards.iter().flat_map(|shard| &shard.spans).collect();
    let mut bytes = 0;
    for (index, scan) in scans.iter().enumerate() {
        let spans = &known.input(program, scan.base)?.dataset.spans;
        let history = History::new(spans.iter().map(|span| (index, span)), &Past::Nothing, None);
        for (span, content) in spans.iter().zip(history.contents(0..spans.len())) {
            bytes += if shown.contains(&content) { 0 } else { span.bytes() };
        }
    }
    Ok(Some(bytes))
}
