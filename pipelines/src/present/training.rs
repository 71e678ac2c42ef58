//! Trainings, for people.

use forebay_run::{BaselineReport, ModelReport};
use forebay_storage::{EpochReport, TrainingUnit};

use super::units;

/// Groups without a model of their own that a summary names at most; the JSON summary names more.
const FALLBACKS_SHOWN: usize = 10;

/// The step that a training is at.
pub(super) fn step(
    sink: &str,
    epoch: u64,
    (step, steps, unit): (u64, u64, TrainingUnit),
    loss: f64,
) -> String {
    let (step, steps) = (units::grouped(step), units::grouped(steps));
    let at = match unit {
        TrainingUnit::Step => format!("epoch {epoch}, step {step} of {steps}"),
        TrainingUnit::Round => format!("round {step} of {steps}"),
        TrainingUnit::Group => format!("group {step} of {steps}"),
    };
    format!("train {sink}: {at}, loss {loss:.5}")
}

/// True if an epoch has a line of its own: of many epochs, every tenth or hundredth has.
pub(super) fn is_shown(epoch: u64) -> bool {
    match epoch {
        0..10 => true,
        10..100 => epoch.is_multiple_of(10),
        _ => epoch.is_multiple_of(100),
    }
}

/// What an epoch came to.
pub(super) fn epoch(report: &EpochReport) -> String {
    let name = match report.rounds {
        Some(rounds) => units::counted(rounds, "round"),
        None => format!("epoch {}", report.epoch),
    };
    let mut text = format!("{name}: loss {:.5}", report.loss);
    if !report.validation.is_empty() {
        // Where the loss is one of the metrics, that has the better name.
        let named = report.validation.iter().filter(|(name, _)| *name != "loss");
        let all: Vec<String> = named
            .map(|(name, value)| format!("{name} {value:.5}"))
            .collect();
        text += &format!(", on validation rows {}", all.join(", "));
    }
    text
}

/// What a training came to.
pub(super) fn summary(model: &ModelReport) -> String {
    let learned = &model.learned;
    let mut text = format!(
        "{}: {} parameters from {}{}\n",
        model.sink,
        units::grouped(learned.parameters),
        units::rows(learned.rows),
        match learned.validation_rows {
            0 => String::new(),
            rows => format!(", validated on {}", units::grouped(rows)),
        }
    );
    if let Some(start) = &learned.start {
        text += &match (&start.from, &start.reason) {
            (Some(from), _) => format!(
                "  goes on from {}: {} new, {} replayed of {}\n",
                &from[..from.len().min(16)],
                units::rows(start.new_rows),
                units::grouped(start.replayed_rows),
                units::grouped(start.all_rows - start.new_rows)
            ),
            (None, reason) => format!(
                "  begins with nothing: {}\n",
                reason.as_deref().unwrap_or("it was asked to")
            ),
        };
    }
    if let Some(models) = learned.step_models {
        text += &format!(
            "  {} for the steps of the horizon\n",
            units::counted(models, "model")
        );
    }
    if learned.batch_rows > 0
        && let Some(last) = learned.epochs.last()
    {
        text += &format!(
            "  {} in {}, batches of {}\n",
            units::counted(last.step, "step"),
            units::counted(learned.epochs.len() as u64, "epoch"),
            units::rows(learned.batch_rows)
        );
    }
    let last = learned.epochs.last().map_or(0, |report| report.epoch);
    let is_shown = |epoch: u64| is_shown(epoch) || epoch == last || epoch == learned.best_epoch;
    for report in learned
        .epochs
        .iter()
        .filter(|report| is_shown(report.epoch))
    {
        let best = learned.epochs.len() > 1 && report.epoch == learned.best_epoch;
        text += &format!(
            "  {}{}\n",
            epoch(report),
            if best { " (taken)" } else { "" }
        );
    }
    if let Some(worse) = learned
        .baseline
        .as_ref()
        .and_then(BaselineReport::no_better_than)
    {
        text += &format!("  {worse}\n");
    }
    if let Some(groups) = &learned.groups {
        let counts = [
            groups.groups,
            groups.trained,
            groups.reused,
            groups.fallbacks,
        ]
        .map(units::grouped);
        let [all, trained, reused, fallbacks] = counts;
        text += &format!(
            "  {all} groups: {trained} trained, {reused} unchanged, {fallbacks} without a model of their own\n"
        );
        for fallback in groups.fallback_reasons.iter().take(FALLBACKS_SHOWN) {
            let values: Vec<&str> = fallback
                .group
                .iter()
                .map(|value| value.as_deref().unwrap_or("null"))
                .collect();
            let predicts = match fallback.predicted_by.as_str() {
                "" => String::new(),
                by => format!("; {by} predicts"),
            };
            text += &format!("    {}: {}{predicts}\n", values.join(", "), fallback.reason);
        }
    }
    text + &format!("  {}\n", model.path)
}
