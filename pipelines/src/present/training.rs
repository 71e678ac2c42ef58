//! Trainings, for people.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use forebay_contract::{
    ColumnImportance, GroupTrainingReport, TrainingReport, TrainingStartReport,
};
use forebay_plan::StepRefit;
use forebay_run::ModelReport;
use forebay_storage::{EpochReport, TrainingUnit};

use super::sum_text::sum_text;
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
    let step = units::grouped(step);
    let steps = units::grouped(steps);
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

/// Result of an epoch.
pub(super) fn epoch(report: &EpochReport) -> String {
    let name = match (report.rounds, report.step) {
        (Some(rounds), _) => format!("{}: loss", units::counted(rounds, "round")),
        // A training without steps fits the model of each series as a whole.
        (None, 0) => "fitted: mean squared error of one step".to_owned(),
        (None, _) => format!("epoch {}: loss", report.epoch),
    };
    let mut text = format!("{name} {:.5}", report.loss);
    if !report.validation.is_empty() {
        // Where the loss is one of the metrics, that has the better name.
        let named = report.validation.iter().filter(|(name, _)| *name != "loss");
        let metrics: Vec<String> = named
            .map(|(name, value)| format!("{name} {value:.5}"))
            .collect();
        text += &format!(", on validation rows {}", metrics.join(", "));
    }
    text
}

/// State of a model that is not trained in each run.
pub(crate) fn cadence_text(refit: &StepRefit) -> String {
    let since = refit
        .since
        .as_ref()
        .map_or_else(String::new, |since| format!(" at {since}"));
    let reason = &refit.reason;
    let state = if refit.held {
        format!("stays in force, trained{since} ({reason})")
    } else {
        format!("trained{since} ({reason})")
    };
    format!("{state}; refit: {}", refit.refit)
}

/// Columns of which a summary tells the importance.
const COLUMNS_SHOWN: usize = 5;

/// The most important columns of a model; `None` without any.
fn importance_text(importance: &[ColumnImportance]) -> Option<String> {
    let mut columns = Vec::new();
    for column in importance.iter().take(COLUMNS_SHOWN) {
        if column.gain <= 0.0 {
            break;
        }
        let gain = column.gain * 100.0;
        let shuffled = column.shuffled.map_or_else(String::new, |increase| {
            format!(" (loss {:+.0} % shuffled)", increase * 100.0)
        });
        columns.push(format!("{} {gain:.0} %{shuffled}", column.column));
    }
    if columns.is_empty() {
        return None;
    }
    Some(format!("gain by column: {}", columns.join(", ")))
}

/// Result of a training.
pub(super) fn summary(model: &ModelReport) -> String {
    let learned = &model.learned;
    let mut text = format!(
        "{}: {} parameters from {}",
        model.sink,
        units::grouped(learned.parameters),
        units::rows(learned.rows)
    );
    if learned.validation_rows > 0 {
        let rows = units::grouped(learned.validation_rows);
        text += &format!(", validated on {rows}");
    }
    text += "\n";
    if let Some(refit) = &model.refit {
        text += &format!("  {}\n", cadence_text(refit));
    }
    // Sums that do not hold were refused before the model was published.
    for sum in [learned.row_sum(), learned.validation_sum()]
        .into_iter()
        .flatten()
    {
        text += &sum_text(&sum);
    }
    if let Some(start) = &learned.start {
        text += &start_text(start);
    }
    if let Some(models) = learned.step_models {
        let models = units::counted(models, "model");
        text += &format!("  {models} for the steps of the horizon\n");
    }
    text += &epochs_text(learned);
    if let Some(baseline) = &learned.baseline
        && let Some(worse) = baseline.no_better_than()
    {
        text += &format!("  {worse}\n");
    }
    if let Some(importance) = importance_text(&learned.importance) {
        text += &format!("  {importance}\n");
    }
    if let Some(groups) = &learned.groups {
        text += &groups_text(groups);
    }
    text + &format!("  {}\n", model.path)
}

/// The model that a training continues.
fn start_text(start: &TrainingStartReport) -> String {
    let Some(from) = &start.from else {
        let reason = start.reason.as_deref().unwrap_or("it was asked to");
        return format!("  begins with nothing: {reason}\n");
    };
    format!(
        "  goes on from {}: {} new, {} replayed of {}\n",
        &from[..from.len().min(16)],
        units::rows(start.new_rows),
        units::grouped(start.replayed_rows),
        units::grouped(start.all_rows - start.new_rows)
    )
}

/// Steps of a training, and the epochs that have a line of their own, the last and the best one among them.
fn epochs_text(learned: &TrainingReport) -> String {
    let Some(last) = learned.epochs.last() else {
        return String::new();
    };
    let mut text = String::new();
    if learned.batch_rows > 0 {
        text += &format!(
            "  {} in {}, batches of {}\n",
            units::counted(last.step, "step"),
            units::counted(learned.epochs.len() as u64, "epoch"),
            units::rows(learned.batch_rows)
        );
    }
    for report in &learned.epochs {
        let is_best = report.epoch == learned.best_epoch;
        if !is_best && report.epoch != last.epoch && !is_shown(report.epoch) {
            continue;
        }
        let is_taken = is_best && learned.epochs.len() > 1;
        let mark = if is_taken { " (taken)" } else { "" };
        text += &format!("  {}{mark}\n", epoch(report));
    }
    text
}

/// Models of groups, and groups without one.
fn groups_text(groups: &GroupTrainingReport) -> String {
    let mut text = format!(
        "  {}: {} trained, {} unchanged, {} without a model of their own\n",
        units::counted(groups.groups, "group"),
        units::grouped(groups.trained),
        units::grouped(groups.reused),
        units::grouped(groups.fallbacks)
    );
    for fallback in groups.fallback_reasons.iter().take(FALLBACKS_SHOWN) {
        let mut values = Vec::with_capacity(fallback.group.len());
        for value in &fallback.group {
            values.push(value.as_deref().unwrap_or("null"));
        }
        text += &format!("    {}: {}", values.join(", "), fallback.reason);
        if !fallback.predicted_by.is_empty() {
            text += &format!("; {} predicts", fallback.predicted_by);
        }
        text += "\n";
    }
    if let Some(forms) = forms_text(&groups.forms) {
        text += &format!("    forms: {forms}\n");
    }
    if !groups.weights.is_empty() {
        let mut weights = Vec::with_capacity(groups.weights.len());
        for (method, weight) in &groups.weights {
            weights.push(format!("{method} {weight:.3}"));
        }
        text += &format!("    weights: {}\n", weights.join(", "));
    }
    text
}

/// Forms of models by their number, the most frequent first; `None` without any.
fn forms_text(forms: &BTreeMap<String, u64>) -> Option<String> {
    if forms.is_empty() {
        return None;
    }
    let mut counted: Vec<(&String, u64)> =
        forms.iter().map(|(form, count)| (form, *count)).collect();
    counted.sort_by_key(|(_, count)| Reverse(*count));
    let mut parts = Vec::with_capacity(counted.len());
    for (form, count) in counted {
        parts.push(format!("{} of ({form})", units::grouped(count)));
    }
    Some(parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_forms_come_first() {
        assert_eq!(forms_text(&BTreeMap::new()), None);
        let forms = [("A,N,N", 2), ("M,A,M", 1200), ("M,Ad,N", 2)];
        let forms = forms.map(|(form, count)| (form.to_owned(), count));
        let text = forms_text(&BTreeMap::from(forms)).unwrap();
        assert_eq!(text, "1,200 of (M,A,M), 2 of (A,N,N), 2 of (M,Ad,N)");
    }

    #[test]
    fn models_of_series_have_no_epochs() {
        let report = EpochReport {
            epoch: 0,
            step: 0,
            loss: 2.25,
            learning_rate: 0.0,
            rounds: None,
            validation: BTreeMap::new(),
        };
        assert_eq!(
            epoch(&report),
            "fitted: mean squared error of one step 2.25000"
        );
        let step = EpochReport {
            step: 12,
            ..report.clone()
        };
        assert_eq!(epoch(&step), "epoch 0: loss 2.25000");
        let rounds = EpochReport {
            rounds: Some(1),
            ..report
        };
        assert_eq!(epoch(&rounds), "1 round: loss 2.25000");
    }

    #[test]
    fn one_group_is_no_plural() {
        let groups = GroupTrainingReport {
            groups: 1,
            trained: 1,
            ..GroupTrainingReport::default()
        };
        let text = groups_text(&groups);
        assert!(text.starts_with("  1 group: 1 trained, "), "{text}");
    }
}
