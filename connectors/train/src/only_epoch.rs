//! Report of a training that reads all its rows before it begins.

use std::time::Instant;

use forebay_contract::TrainingContext;
use forebay_storage::{EpochReport, Event};

/// Reports the only epoch of a training that has all its rows in memory: it waits for no batch.
pub(super) fn report_only_epoch(
    context: &TrainingContext<'_>,
    epoch: &EpochReport,
    began: Instant,
    skipped_rows: u64,
) {
    context.emit(Event::TrainingEpoch {
        sink: context.sink().to_owned(),
        epoch: epoch.clone(),
        seconds: began.elapsed().as_secs_f64(),
        wait_seconds: 0.0,
        starved_steps: 0,
        bottleneck: "training",
        non_finite: 0,
        skipped_rows,
    });
}
