//! The passes of a program as forecasts see them.

use std::collections::BTreeMap;

use forebay_execute::{RunState, lane_bytes};
use forebay_model::{Dataset, DegradationLevel, Pipeline};
use forebay_plan::{BaseDataset, BaseId, PassWork, Program};

use crate::analyzers_of_rows::{asks_before_gather, asks_before_sink};
use crate::deadline::cost::{PassKind, PlannedPass};

/// Name of the step that keeps the artifact, among the names of passes.
pub(crate) const ARTIFACT: &str = "artifact";

/// Name of publishing among the passes, which comes after all others.
pub(crate) const PUBLISH: &str = "publish";

/// Names of passes that stay from run to run, in the order of the program.
pub(crate) fn pass_names(program: &Program, pipeline: &Pipeline) -> Vec<String> {
    let mut learn_passes = 0;
    let mut names = Vec::new();
    for pass in &program.passes {
        names.push(match &pass.work {
            PassWork::Learn(_) => {
                learn_passes += 1;
                format!("learn {learn_passes}")
            }
            PassWork::Gather(op) => format!("gather {}", program.bound.ops[*op].label),
            PassWork::Write(work) => format!("write {}", pipeline.sinks[work.sink].name),
        });
    }
    names
}

/// The remaining passes of a program at a level of degradation.
pub(crate) fn planned_passes(
    program: &Program,
    pipeline: &Pipeline,
    datasets: &BTreeMap<String, Dataset>,
    level: Option<DegradationLevel>,
    state: &RunState,
) -> Vec<PlannedPass> {
    let bytes = |base: BaseId| match &program.bound.bases[base] {
        BaseDataset::Source(name) => datasets.get(name).map_or(0, Dataset::bytes),
        BaseDataset::Gathered(_) => 0,
    };
    let mut planned = Vec::new();
    for (pass, name) in program.passes.iter().zip(pass_names(program, pipeline)) {
        let bound = &program.bound;
        let kind = match &pass.work {
            PassWork::Gather(_) => PassKind::Gather,
            PassWork::Learn(_) | PassWork::Write(_) => PassKind::Scan,
        };
        let (total, learned, keeps) = match &pass.work {
            PassWork::Learn(_) if level >= Some(DegradationLevel::ReuseStates) => continue,
            PassWork::Learn(work) => (
                work.lanes.iter().map(|lane| lane_bytes(lane, &bytes)).sum(),
                false,
                false,
            ),
            PassWork::Gather(op) => {
                let inputs = bound
                    .gather_inputs
                    .get(op)
                    .into_iter()
                    .flatten()
                    .flat_map(|(_, flow)| &flow.streams);
                (
                    inputs.map(|stream| bytes(stream.base)).sum(),
                    !asks_before_gather(bound, *op).is_empty(),
                    false,
                )
            }
            PassWork::Write(work) => {
                let learned = !asks_before_sink(bound, pipeline, work.sink).is_empty();
                let total = work.scans.iter().map(|scan| bytes(scan.base)).sum();
                // What is not there yet is no history.
                (
                    total,
                    learned,
                    state.in_shards(program, &work.scans).unwrap_or(false),
                )
            }
        };
        planned.push(PlannedPass {
            pass: name,
            total,
            read: None,
            learned,
            keeps,
            kind,
        });
    }
    planned
}
