//! The passes of a program as forecasts see them.

use std::collections::BTreeMap;

use forebay_model::{Dataset, Pipeline, Rung};
use forebay_plan::{Base, BaseId, Lane, PassWork, Program};

use super::cost::Ahead;
use crate::ladder::{before_gather, before_sink};
use crate::pass::Known;

/// What keeping the artifact is called among them.
pub(crate) const ARTIFACT: &str = "artifact";

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
    known: &Known,
) -> Vec<Ahead> {
    let bytes = |base: BaseId| match &program.bound.bases[base] {
        Base::Source(name) => datasets.get(name).map_or(0, Dataset::bytes),
        Base::Gathered(_) => 0,
    };
    let mut ahead = Vec::new();
    for (pass, name) in program.passes.iter().zip(names(program, pipeline)) {
        let bound = &program.bound;
        let (total, learned, keeps) = match &pass.work {
            PassWork::Learn(_) if rung >= Some(Rung::ReuseStates) => continue,
            PassWork::Learn(work) => (work.lanes.iter().map(|lane| lane_bytes(lane, &bytes)).sum(), false, false),
            PassWork::Gather(op) => {
                let inputs = bound.gather_inputs.get(op).into_iter().flatten().flat_map(|(_, flow)| &flow.streams);
                (inputs.map(|stream| bytes(stream.base)).sum(), !before_gather(bound, *op).is_empty(), false)
            }
            PassWork::Write(work) => {
                let learned = !before_sink(bound, pipeline, work.sink).is_empty();
                let total = work.scans.iter().map(|scan| bytes(scan.base)).sum();
                // What is not there yet is no history.
                (total, learned, known.in_shards(program, &work.scans).unwrap_or(false))
            }
        };
        ahead.push(Ahead { pass: name, total, read: None, learned, keeps });
    }
    ahead
}
