//! The page of a run.

use forebay_model::{ChangeKind, Fault, Pipeline};
use forebay_run::{ExpectationReport, ModelReport, OutputSum, RunCost, RunReport};
use forebay_storage::EpochReport;

use super::charts::{self, Line};
use super::drift::drift_blocks;
use super::failed::failed_page;
use super::file::now;
use super::graph::{self, FailedNode};
use super::timeline::{PassTime, TimelineRecord};
use super::{Bar, Block, Cell, Page, drawn};
use crate::present::units;

/// Columns of an output that are listed.
const COLUMNS_SHOWN: usize = 500;

/// Runs by which the next one is foretold.
const RUNS_FORETELLING: usize = 7;

/// What was seen of a run from outside.
pub(super) struct RunFacts {
    pub record: TimelineRecord,
    pub memory_limit: Option<u64>,
}

/// A page that tells what a run did.
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
        .map(|known| format!(", {} to {}", known.from, known.to));
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
    page.add("run", "Run", run_blocks(Some(report), facts));
    page.add("pipeline", "Pipeline", graph_blocks(pipeline, &[]));
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

/// A page that tells why a run failed, and how far it came. Without a pipeline, its spec could not be read.
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
            Block::Heading {
                text: format!("{sink}, of which nothing was published"),
            },
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
            class: "drawing",
            svg,
        })
        .into_iter()
        .collect()
}

impl Page {
    /// Adds what the last runs cost, this one the last, where there were others.
    pub(super) fn add_costs(&mut self, costs: &[RunCost]) {
        if costs.len() < 2 {
            return;
        }
        let ago = |at: usize| (at as f64) + 1.0 - costs.len() as f64;
        let line = Line {
            name: "seconds".to_owned(),
            points: costs
                .iter()
                .enumerate()
                .map(|(at, cost)| (ago(at), cost.seconds))
                .collect(),
        };
        let chart = drawn(|| charts::lines("runs, this one at 0", "seconds", &[line]));
        let label = "Seconds of the passes of each run".to_owned();
        let mut blocks: Vec<Block> = chart
            .map(|svg| Block::Chart {
                label,
                class: "chart",
                svg,
            })
            .into_iter()
            .collect();
        let rows = costs.iter().enumerate().rev().map(|(at, cost)| {
            let longest = cost
                .longest
                .as_ref()
                .map(|(pass, seconds)| format!("{pass} ({seconds:.2} s)"));
            vec![
                Cell::number(format!("{}", ago(at))),
                Cell::number(format!("{:.2}", cost.seconds)),
                Cell::number(units::bytes(cost.read_bytes)),
                Cell::text(longest.unwrap_or_default()),
            ]
        });
        blocks.push(Block::text(next_cost(costs)));
        blocks.push(Block::table(
            "Runs",
            &["#run", "#seconds", "#read", "longest pass"],
            rows.collect(),
        ));
        self.add("costs", "Cost of the last runs", blocks);
    }
}

/// What the next run should take: the middle of what the last ones took.
fn next_cost(costs: &[RunCost]) -> String {
    let mut seconds: Vec<f64> = costs
        .iter()
        .rev()
        .take(RUNS_FORETELLING)
        .map(|cost| cost.seconds)
        .collect();
    seconds.sort_by(f64::total_cmp);
    let at = |place: usize| seconds.get(place).copied().unwrap_or_default();
    let (count, middle, most) = (
        seconds.len(),
        at(seconds.len() / 2),
        at(seconds.len().saturating_sub(1)),
    );
    format!(
        "By the last {count}, the next run takes about {middle:.2} s (they took {:.2} s to {most:.2} s).",
        at(0)
    )
}

fn run_blocks(report: Option<&RunReport>, facts: &RunFacts) -> Vec<Block> {
    let RunFacts {
        record,
        memory_limit,
    } = facts;
    let mut blocks = pass_blocks(report, record);
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let resident = Line {
        name: "resident memory".to_owned(),
        points: record
            .memory
            .iter()
            .map(|sample| (sample.at, mib(sample.bytes)))
            .collect(),
    };
    let limit = memory_limit.map(|limit| Line {
        name: "limit (--memory)".to_owned(),
        points: vec![(0.0, mib(limit)), (record.total, mib(limit))],
    });
    let memory: Vec<Line> = std::iter::once(resident).chain(limit).collect();
    if let Some(svg) = drawn(|| charts::lines("seconds", "MiB", &memory)) {
        blocks.push(Block::Chart {
            label: "Memory beside its limit".to_owned(),
            class: "chart",
            svg,
        });
    }
    blocks.extend(record.workers.table());
    blocks.extend(
        record
            .warnings
            .iter()
            .map(|warning| Block::text(format!("Warning: {warning}"))),
    );
    let Some(report) = report else { return blocks };
    if let Some(ladder) = &report.ladder {
        let mut add = |what: &str, names: &[String]| {
            if !names.is_empty() {
                blocks.push(Block::text(format!("{what}: {}.", names.join(", "))));
            }
        };
        add("Left out, to be on time", &ladder.skipped);
        add("Steps with what an earlier run has learned", &ladder.reused);
    }
    if let Some(deadline) = &report.deadline {
        let kept = if deadline.on_time { "kept" } else { "missed" };
        blocks.push(Block::text(format!("Deadline {}: {kept}.", deadline.at)));
    }
    if let Some(path) = &report.artifact_path {
        blocks.push(Block::text(format!("Artifact: {path}")));
    }
    blocks
}

/// The passes with their times. Of those of a run that failed, no rows that came out are known.
fn pass_blocks(report: Option<&RunReport>, record: &TimelineRecord) -> Vec<Block> {
    if record.passes.is_empty() {
        return vec![Block::text("No pass has begun.")];
    }
    let total = record.total.max(1e-9);
    let count = |count: Option<u64>| Cell::number(count.map(units::grouped).unwrap_or_default());
    let rows = record.passes.iter().enumerate().map(|(number, pass)| {
        let told = report.and_then(|report| report.passes.get(number));
        let end = pass.to.unwrap_or(record.total);
        let what = match (report, told) {
            (_, Some(told)) => Cell::text(if told.reused { "reused" } else { told.work }),
            (Some(_), None) => Cell::default(),
            (None, None) => failed_pass_state(pass),
        };
        let bar = Bar {
            from: 100.0 * pass.from / total,
            width: 100.0 * (end - pass.from) / total,
        };
        let rows_in = told
            .map(|told| told.rows_in)
            .or_else(|| report.is_none().then_some(pass.rows));
        vec![
            Cell::text(pass.label.clone()),
            what,
            Cell {
                text: format!("from {:.2} s to {end:.2} s", pass.from),
                bar: Some(bar),
                class: None,
            },
            Cell::number(format!("{:.2}", end - pass.from)),
            count(rows_in),
            count(told.map(|told| told.rows_in - told.rows_read())),
            count(told.map(|told| told.rows_out)),
            Cell::number(units::bytes(pass.bytes)),
        ]
    });
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
    let mut blocks = vec![Block::table("Passes", &head, rows.collect())];
    let last = record.passes.last().filter(|_| report.is_none());
    blocks.extend(last.map(|last| {
        let TimelineRecord { pass_count, .. } = record;
        let number = last.number;
        Block::text(match last.to {
            None => format!("The run failed in pass {number} of {pass_count}."),
            Some(_) => format!("The run failed after pass {number} of {pass_count}."),
        })
    }));
    blocks
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
        blocks.push(Block::Heading {
            text: format!("Columns of {} and where they come from", output.sink),
        });
        let rows = output.columns.iter().take(COLUMNS_SHOWN).map(|column| {
            let from = column
                .from
                .iter()
                .map(|origin| format!("{}.{}", origin.source, origin.column));
            vec![
                Cell::text(column.name.clone()),
                Cell::text(column.data_type.clone()),
                Cell::long(from.collect::<Vec<_>>().join(", ")),
            ]
        });
        blocks.push(Block::table(
            "Columns",
            &["column", "type", "from"],
            rows.collect(),
        ));
    }
    blocks
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
    rows.push(sum_row("rows out", units::grouped(sum.rows_out), "", ""));
    for entry in entries {
        if entry.change.kind() == ChangeKind::Values {
            let (count, column) = (units::grouped(entry.count), entry.column.as_deref());
            let what = format!("values {}", entry.change.words());
            let column = column.unwrap_or_default();
            rows.push(sum_row(&what, count, &entry.step, column));
        }
    }
    let label = format!("Rows of {sink}");
    Block::table(&label, &["", "#count", "step", "column"], rows)
}

fn sum_row(what: &str, count: String, step: &str, column: &str) -> Vec<Cell> {
    vec![
        Cell::text(what),
        Cell::number(count),
        Cell::text(step),
        Cell::text(column),
    ]
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
                text: text.to_owned(),
                class: Some(class),
                bar: None,
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
        Block::Heading {
            text: model.sink.clone(),
        },
        Block::text(format!(
            "{} parameters from {}, validated on {}.",
            units::grouped(learned.parameters),
            units::rows(learned.rows),
            units::rows(learned.validation_rows)
        )),
    ];
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
    blocks
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
    vec![Block::table("Forecasts", &head, rows.collect())]
}
