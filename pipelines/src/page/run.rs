//! The page of a run.

use std::time::SystemTime;

use forebay_contract::{ColumnImportance, OutputSum};
use forebay_model::{ChangeKind, Fault, Pipeline, type_text_label};
use forebay_run::{
    DayReport, EnsembleReport, ExpectationReport, ModelReport, OutputColumn, RunCost, RunRecord,
    RunReport,
};
use forebay_storage::EpochReport;

use super::charts::{self, Line};
use super::drift::drift_blocks;
use super::failed::failed_page;
use super::file::now;
use super::graph::{self, FailedNode};
use super::run_tiles::run_tiles;
use super::timeline::{PassTime, TimelineRecord};
use super::{Bar, Block, Cell, GRAPH_CLASS, Page, drawn};
use crate::present::units;

/// Columns of an output that are listed.
pub(super) const COLUMNS_SHOWN: usize = 500;

/// Number of runs from which the costs of the next one are estimated.
const RUNS_FORETELLING: usize = 7;

/// Observations of a run.
pub(super) struct RunFacts {
    pub record: TimelineRecord,
    pub memory_limit: Option<u64>,
}

/// A page that describes a run.
pub(super) fn run_page(pipeline: &Pipeline, report: &RunReport, facts: &RunFacts) -> Page {
    let record = &facts.record;
    let state = match (&report.ladder, report.nothing_new) {
        (Some(ladder), _) => format!("did less, to be on time: {}", ladder.rungs.join(", ")),
        (None, true) => "found nothing new".to_owned(),
        (None, false) => "complete".to_owned(),
    };
    let interval = report
        .interval
        .as_ref()
        .map(|interval| format!(", {} to {}", interval.from, interval.to));
    let mut page = Page {
        title: report.pipeline.clone(),
        subtitle: format!(
            "{state}, {:.1} s, at {}{}",
            record.total,
            now(),
            interval.unwrap_or_default()
        ),
        ..Page::default()
    };
    page.add("glance", "At a glance", vec![glance(report, facts)]);
    page.add("run", "Run", run_blocks(Some(report), facts));
    page.add("pipeline", "Pipeline", graph_blocks(pipeline, &[]));
    page.add("days", "Days of sources", day_blocks(&report.days));
    page.add("outputs", "Outputs", output_blocks(report));
    page.add(
        "expectations",
        "Expectations",
        expectation_blocks(&report.expectations),
    );
    page.add("drift", "Drift", drift_blocks(&report.expectations));
    page.add(
        "models",
        "Models",
        report.models.iter().flat_map(model_blocks).collect(),
    );
    page.add("forecasts", "Forecasts", forecast_blocks(report));
    page
}

/// The tiles of a run that has just ended.
fn glance(report: &RunReport, facts: &RunFacts) -> Block {
    let timeline = &facts.record;
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let now = now.as_secs();
    let mut record = RunRecord {
        began: now.saturating_sub(timeline.total as u64),
        seen: now,
        seconds: timeline.total,
        read_bytes: timeline.passes.iter().map(|pass| pass.bytes).sum(),
        memory_bytes: timeline.memory.iter().map(|sample| sample.bytes).max(),
        memory_limit_bytes: facts.memory_limit.unwrap_or_default(),
        ..RunRecord::default()
    };
    report.describe(&mut record);
    run_tiles(&record, now)
}

/// A page that explains why a run failed, and how far it progressed. Without a pipeline, its spec
/// could not be read.
pub(super) fn failed_run_page(
    of: &str,
    pipeline: Option<&Pipeline>,
    fault: &Fault,
    facts: &RunFacts,
) -> Page {
    let record = &facts.record;
    let mut page = failed_page(pipeline.map_or(of, |pipeline| &pipeline.name), fault);
    page.add("run", "Run", run_blocks(None, facts));
    if let Some(pipeline) = pipeline {
        let failed = graph::failed_nodes(pipeline, fault, &record.folders);
        page.add("pipeline", "Pipeline", graph_blocks(pipeline, &failed));
    }
    page.add(
        "expectations",
        "Expectations",
        expectation_blocks(record.rules.rules()),
    );
    page.add("drift", "Drift", drift_blocks(record.rules.rules()));
    let trainings = record.epochs.iter().flat_map(|(sink, epochs)| {
        [
            Block::heading(format!("{sink}, of which nothing was published")),
            epochs_table(epochs),
        ]
    });
    page.add("models", "Models", trainings.collect());
    page
}

pub(super) fn graph_blocks(pipeline: &Pipeline, failed: &[FailedNode]) -> Vec<Block> {
    let names: Vec<&str> = failed.iter().map(|failed| failed.shown.as_str()).collect();
    let label = match names.as_slice() {
        [] => "The graph of the pipeline".to_owned(),
        names => format!(
            "The graph of the pipeline; what failed: {}",
            names.join(", ")
        ),
    };
    let drawing = drawn(|| graph::draw(pipeline, failed));
    drawing
        .map(|svg| Block::Chart {
            label,
            class: GRAPH_CLASS,
            svg,
        })
        .into_iter()
        .collect()
}

impl Page {
    /// Adds the costs of the last runs, of which this one is the latest, if there were others.
    pub(super) fn add_costs(&mut self, costs: &[RunCost]) {
        if costs.len() < 2 {
            return;
        }
        let mut points = Vec::with_capacity(costs.len());
        let mut rows = Vec::with_capacity(costs.len());
        for (at, cost) in costs.iter().enumerate() {
            // The latest run has number 0, and the one before it -1.
            let number = (at as f64) + 1.0 - costs.len() as f64;
            points.push((number, cost.seconds));
            let longest = match &cost.longest {
                Some((pass, seconds)) => format!("{pass} ({seconds:.2} s)"),
                None => String::new(),
            };
            rows.push(vec![
                Cell::number(format!("{number}")),
                Cell::number(format!("{:.2}", cost.seconds)),
                Cell::number(units::bytes(cost.read_bytes)),
                Cell::text(longest),
            ]);
        }
        rows.reverse();
        let line = Line {
            name: "seconds".to_owned(),
            points,
        };
        let mut blocks: Vec<Block> = Vec::new();
        if let Some(svg) = drawn(|| charts::lines("runs, this one at 0", "seconds", &[line])) {
            blocks.push(Block::Chart {
                label: "Seconds of the passes of each run".to_owned(),
                class: "chart",
                svg,
            });
        }
        blocks.push(Block::text(next_cost(costs)));
        let head = ["#run", "#seconds", "#read", "longest pass"];
        blocks.push(Block::table("Runs", &head, rows));
        self.add("costs", "Cost of the last runs", blocks);
    }
}

/// Expected duration of the next run: the median of the last ones.
fn next_cost(costs: &[RunCost]) -> String {
    let mut seconds: Vec<f64> = costs
        .iter()
        .rev()
        .take(RUNS_FORETELLING)
        .map(|cost| cost.seconds)
        .collect();
    seconds.sort_by(f64::total_cmp);
    let at = |index: usize| seconds.get(index).copied().unwrap_or_default();
    let count = seconds.len();
    let middle = at(seconds.len() / 2);
    let most = at(seconds.len().saturating_sub(1));
    format!(
        "By the last {count}, the next run takes about {middle:.2} s (they took {:.2} s to \
         {most:.2} s).",
        at(0)
    )
}

fn run_blocks(report: Option<&RunReport>, facts: &RunFacts) -> Vec<Block> {
    let RunFacts {
        record,
        memory_limit,
    } = facts;
    let mut blocks = pass_blocks(report, record);
    blocks.extend(memory_blocks(record, *memory_limit));
    blocks.extend(record.workers.table());
    for warning in &record.warnings {
        blocks.push(Block::text(format!("Warning: {warning}")));
    }
    let Some(report) = report else { return blocks };
    if let Some(ladder) = &report.ladder {
        for (heading, names) in [
            ("Left out, to be on time", &ladder.skipped),
            ("Steps with what an earlier run has learned", &ladder.reused),
        ] {
            if !names.is_empty() {
                blocks.push(Block::text(format!("{heading}: {}.", names.join(", "))));
            }
        }
    }
    if let Some(deadline) = &report.deadline {
        let outcome = if deadline.on_time { "kept" } else { "missed" };
        blocks.push(Block::text(format!("Deadline {}: {outcome}.", deadline.at)));
    }
    if let Some(path) = &report.artifact_path {
        blocks.push(Block::text(format!("Artifact: {path}")));
    }
    blocks
}

/// Resident memory over time, beside its limit where that is near.
fn memory_blocks(record: &TimelineRecord, memory_limit: Option<u64>) -> Vec<Block> {
    let used = record.memory.iter().map(|sample| sample.bytes).max();
    let used = used.unwrap_or_default();
    // Beside a limit far above, the memory that was used would be a line at zero.
    let near_limit = memory_limit.filter(|limit| used.saturating_mul(2) >= *limit);
    let mut lines = vec![Line {
        name: "resident memory".to_owned(),
        points: record
            .memory
            .iter()
            .map(|sample| (sample.at, mebibytes(sample.bytes)))
            .collect(),
    }];
    if let Some(limit) = near_limit {
        let limit = mebibytes(limit);
        lines.push(Line {
            name: "limit (--memory)".to_owned(),
            points: vec![(0.0, limit), (record.total, limit)],
        });
    }
    let Some(svg) = drawn(|| charts::lines("seconds", "resident memory, MiB", &lines)) else {
        return Vec::new();
    };
    let mut blocks = vec![Block::Chart {
        label: "The resident memory over time".to_owned(),
        class: "chart",
        svg,
    }];
    if let (Some(limit), None) = (memory_limit, near_limit) {
        let limit = units::bytes(limit);
        blocks.push(Block::text(format!(
            "The limit of the memory (--memory) is {limit}, beyond the chart."
        )));
    }
    blocks
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Passes with their times. The output rows of passes of a failed run are unknown.
fn pass_blocks(report: Option<&RunReport>, record: &TimelineRecord) -> Vec<Block> {
    if record.passes.is_empty() {
        return vec![Block::text("No pass has begun.")];
    }
    let mut rows = Vec::with_capacity(record.passes.len());
    for (number, pass) in record.passes.iter().enumerate() {
        let reported = report.and_then(|report| report.passes.get(number));
        let state = match (report, reported) {
            (_, Some(reported)) if reported.reused => Cell::text("reused"),
            (_, Some(reported)) => Cell::text(reported.work),
            (Some(_), None) => Cell::default(),
            (None, None) => failed_pass_state(pass),
        };
        let rows_in = match (report, reported) {
            (_, Some(reported)) => Some(reported.rows_in),
            (Some(_), None) => None,
            (None, None) => Some(pass.rows),
        };
        let end = pass.to.unwrap_or(record.total);
        let total = record.total.max(1e-9);
        let bar = Bar {
            from: 100.0 * pass.from / total,
            width: 100.0 * (end - pass.from) / total,
        };
        rows.push(vec![
            Cell::text(pass.label.clone()),
            state,
            Cell {
                text: format!("from {:.2} s to {end:.2} s", pass.from),
                bar: Some(bar),
                ..Cell::default()
            },
            Cell::number(format!("{:.2}", end - pass.from)),
            count_cell(rows_in),
            count_cell(reported.map(|reported| reported.rows_in - reported.rows_read())),
            count_cell(reported.map(|reported| reported.rows_out)),
            Cell::number(units::bytes(pass.bytes)),
        ]);
    }
    let head = [
        "pass",
        "",
        "time",
        "#seconds",
        "#rows in",
        "#not read",
        "#rows out",
        "#read",
    ];
    let mut blocks = vec![Block::table("Passes", &head, rows)];
    if let Some(last) = record.passes.last()
        && report.is_none()
    {
        let number = last.number;
        let pass_count = record.pass_count;
        let preposition = if last.to.is_some() { "after" } else { "in" };
        blocks.push(Block::text(format!(
            "The run failed {preposition} pass {number} of {pass_count}."
        )));
    }
    blocks
}

/// A number; empty if it is unknown.
fn count_cell(count: Option<u64>) -> Cell {
    Cell::number(count.map(units::grouped).unwrap_or_default())
}

fn failed_pass_state(pass: &PassTime) -> Cell {
    match (pass.to, pass.reused) {
        (None, _) => Cell {
            class: Some("bad"),
            ..Cell::text("did not end")
        },
        (Some(_), true) => Cell::text("reused"),
        (Some(_), false) => Cell::text("done"),
    }
}

fn output_blocks(report: &RunReport) -> Vec<Block> {
    let mut blocks = Vec::new();
    if report.outputs.is_empty() {
        return blocks;
    }
    let rows = report.outputs.iter().map(|output| {
        vec![
            Cell::text(output.sink.clone()),
            Cell::number(units::grouped(output.rows)),
            Cell::number(units::grouped(output.files as u64)),
            Cell::number(units::bytes(output.bytes)),
            Cell::text(output.path.clone()),
        ]
    });
    blocks.push(Block::table(
        "Outputs",
        &["sink", "#rows", "#files", "#size", "place"],
        rows.collect(),
    ));
    for output in &report.outputs {
        blocks.push(sum_table(&output.sink, &output.sum));
        blocks.push(Block::heading(format!(
            "Columns of {} and where they come from",
            output.sink
        )));
        blocks.push(columns_table(&output.sink, &output.columns));
    }
    blocks
}

/// Columns of an output, and the columns of sources that they depend on.
pub(super) fn columns_table(sink: &str, columns: &[OutputColumn]) -> Block {
    let rows = columns.iter().take(COLUMNS_SHOWN).map(|column| {
        let from = column
            .from
            .iter()
            .map(|origin| format!("{}.{}", origin.source, origin.column));
        vec![
            Cell::column(sink, column),
            Cell::text(type_text_label(&column.data_type)),
            Cell::long(from.collect::<Vec<_>>().join(", ")),
        ]
    });
    Block::table("Columns", &["column", "type", "from"], rows.collect())
}

/// The rows of an output from its sources on, as a sum, and below it the changes of values.
fn sum_table(sink: &str, sum: &OutputSum) -> Block {
    let entries = sum.changes.entries();
    let mut rows = vec![sum_row("rows in", units::grouped(sum.rows_in), "", "")];
    for entry in entries {
        let sign = match entry.change.kind() {
            ChangeKind::Added => "+ ",
            ChangeKind::Removed => "- ",
            ChangeKind::Values => continue,
        };
        let count = format!("{sign}{}", units::grouped(entry.count));
        rows.push(sum_row(entry.change.words(), count, &entry.step, ""));
    }
    for explanation in entries
        .iter()
        .filter_map(|entry| entry.change.explanation())
    {
        rows.push(sum_row(explanation, String::new(), "", ""));
    }
    rows.push(sum_row("rows out", units::grouped(sum.rows_out), "", ""));
    for entry in entries {
        if entry.change.kind() == ChangeKind::Values {
            let count = units::grouped(entry.count);
            let column = entry.column.as_deref();
            let heading = format!("values {}", entry.change.words());
            let column = column.unwrap_or_default();
            rows.push(sum_row(&heading, count, &entry.step, column));
        }
    }
    let label = format!("Rows of {sink}");
    Block::table(&label, &["", "#count", "step", "column"], rows)
}

fn sum_row(heading: &str, count: String, step: &str, column: &str) -> Vec<Cell> {
    vec![
        Cell::text(heading),
        Cell::number(count),
        Cell::text(step),
        Cell::text(column),
    ]
}

/// Days of sources that are late, duplicate or empty.
fn day_blocks(reports: &[DayReport]) -> Vec<Block> {
    if reports.is_empty() {
        return Vec::new();
    }
    let mut rows = Vec::with_capacity(reports.len());
    for report in reports {
        rows.push(vec![
            Cell::text(report.source.clone()),
            Cell {
                class: Some("bad"),
                ..Cell::text(report.kind.name())
            },
            Cell::number(units::grouped(report.days)),
            Cell::long(report.newest.join(", ")),
        ]);
    }
    let head = ["source", "kind", "#days", "newest"];
    vec![Block::table("Days of sources", &head, rows)]
}

fn expectation_blocks(rules: &[ExpectationReport]) -> Vec<Block> {
    if rules.is_empty() {
        return Vec::new();
    }
    let rows = rules.iter().map(|rule| {
        let (text, class) = if rule.holds {
            ("holds", "good")
        } else {
            ("does not hold", "bad")
        };
        vec![
            Cell {
                class: Some(class),
                ..Cell::text(text)
            },
            Cell::long(rule.rule.clone()),
            Cell::text(rule.step.clone()),
            Cell::number(units::grouped(rule.rows)),
            Cell::number(units::grouped(rule.violations)),
            Cell::number(units::grouped(rule.quarantined)),
            Cell::long(rule.found.clone()),
        ]
    });
    vec![Block::table(
        "Rules",
        &[
            "",
            "rule",
            "step",
            "#rows",
            "#violations",
            "#quarantined",
            "found",
        ],
        rows.collect(),
    )]
}

fn model_blocks(model: &ModelReport) -> Vec<Block> {
    let learned = &model.learned;
    let mut blocks = vec![
        Block::heading(model.sink.clone()),
        Block::text(format!(
            "{} parameters from {}, validated on {}.",
            units::grouped(learned.parameters),
            units::rows(learned.rows),
            units::rows(learned.validation_rows)
        )),
    ];
    if let Some(refit) = &model.refit {
        let text = crate::present::training::cadence_text(refit);
        blocks.push(Block::text(format!("It {text}.")));
    }
    let of_validation = format!("{} (validation)", model.sink);
    for (name, sum) in [
        (&model.sink, learned.row_sum()),
        (&of_validation, learned.validation_sum()),
    ] {
        if let Ok(sum) = sum
            && !sum.changes.is_empty()
        {
            blocks.push(sum_table(name, &sum));
        }
    }
    let loss = [Line {
        name: "loss".to_owned(),
        points: learned
            .curve
            .iter()
            .map(|(step, loss)| (*step as f64, *loss))
            .collect(),
    }];
    if let Some(svg) = drawn(|| charts::lines("step", "loss", &loss)) {
        blocks.push(Block::Chart {
            label: format!("Loss of {} by step", model.sink),
            class: "chart",
            svg,
        });
    }
    blocks.push(epochs_table(&learned.epochs));
    if !learned.importance.is_empty() {
        blocks.push(importance_table(&learned.importance));
    }
    blocks
}

fn importance_table(importance: &[ColumnImportance]) -> Block {
    let rows = importance.iter().map(|column| {
        let shuffled = column
            .shuffled
            .map(|increase| format!("{:+.1} %", increase * 100.0));
        vec![
            Cell::text(column.column.clone()),
            Cell::number(format!("{:.1} %", column.gain * 100.0)),
            Cell::number(shuffled.unwrap_or_default()),
        ]
    });
    let heads = ["column", "#gain", "#loss when shuffled"];
    Block::table("Importance of columns", &heads, rows.collect())
}

fn epochs_table(epochs: &[EpochReport]) -> Block {
    let rows = epochs.iter().map(|epoch| {
        let validation: Vec<String> = epoch
            .validation
            .iter()
            .map(|(name, value)| format!("{name} {value:.5}"))
            .collect();
        vec![
            Cell::number(epoch.epoch.to_string()),
            Cell::number(format!("{:.5}", epoch.loss)),
            Cell::long(validation.join(", ")),
        ]
    });
    Block::table(
        "Epochs",
        &["#epoch", "#loss", "on validation rows"],
        rows.collect(),
    )
}

fn forecast_blocks(report: &RunReport) -> Vec<Block> {
    if report.forecasts.is_empty() {
        return Vec::new();
    }
    let rows = report.forecasts.iter().map(|forecast| {
        vec![
            Cell::text(forecast.sink.clone()),
            Cell::number(units::grouped(forecast.rows)),
            Cell::number(units::grouped(forecast.series)),
            Cell::number(units::grouped(forecast.steps)),
            Cell::text(forecast.known_until.clone().unwrap_or_default()),
            Cell::text(forecast.path.clone()),
        ]
    });
    let head = ["sink", "#rows", "#series", "#steps", "data until", "place"];
    let mut blocks = vec![Block::table("Forecasts", &head, rows.collect())];
    for forecast in &report.forecasts {
        if let Some(ensemble) = &forecast.ensemble {
            blocks.push(weights_table(&forecast.sink, ensemble));
        }
        if let Some(reconciled) = &forecast.reconciled {
            let text = format!(
                "{} adds up by {}: {} series of upper levels and {} of the lowest, of {}.",
                forecast.sink,
                reconciled.method,
                units::grouped(reconciled.upper_series),
                units::grouped(reconciled.bottom_series),
                reconciled.levels.join(", ")
            );
            blocks.push(Block::text(text));
        }
        blocks.push(sum_table(&forecast.sink, &forecast.sum));
    }
    blocks
}

/// Learned weights of an ensemble, with the errors of its members on folds.
fn weights_table(sink: &str, ensemble: &EnsembleReport) -> Block {
    let mut rows = Vec::with_capacity(ensemble.members.len() + 1);
    for member in &ensemble.members {
        rows.push(vec![
            Cell::text(member.model.clone()),
            Cell::number(format!("{:.3}", member.weight)),
            Cell::number(format!("{:.4}", member.error)),
        ]);
    }
    rows.push(vec![
        Cell::text("weighted mean".to_owned()),
        Cell::number(String::new()),
        Cell::number(format!("{:.4}", ensemble.error)),
    ]);
    let title = format!(
        "Weights of {sink}, learned on {} of {} folds",
        units::rows(ensemble.rows),
        ensemble.folds.len()
    );
    Block::table(&title, &["member", "#weight", "#scaled error"], rows)
}
