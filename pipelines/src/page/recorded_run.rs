//! Page of a recorded run, and the graph of a pipeline's newest artifact.

use forebay_model::{Fault, Result};
use forebay_run::{Artifact, RunRecord, RunRecordState, Session};

use super::failed::failed_page;
use super::index::StateView;
use super::records::{
    StateWords, duration_text, instant_text, is_live, pass_percent, pipeline_href, report_href,
    run_href, run_steps_href, seconds, state_words,
};
use super::run::{COLUMNS_SHOWN, columns_table, graph_blocks};
use super::run_tiles::run_tiles;
use super::step_rows::StepPages;
use super::{Bar, Block, Cell, Page, PageLink, PageState};
use crate::present::units;

/// The page of a run.
pub(crate) fn recorded_run_page(view: &StateView, record: &RunRecord) -> Page {
    let now = view.now;
    let StateWords { text, .. } = state_words(record, now);
    let is_running = record.state == RunRecordState::Running;
    let is_silent = is_running && !is_live(record, now);
    let is_failed = record.state == RunRecordState::Failed || is_silent;
    let interval = record.interval.as_ref();
    let interval = interval.map(|interval| format!(", {} to {}", interval.from, interval.to));
    let run_id = record.run_id.as_ref();
    let run_id = run_id.map(|run_id| format!(", run id {run_id}"));
    let mut page = Page {
        state: if is_failed {
            PageState::Failed
        } else {
            PageState::Done
        },
        title: format!("{}: {text}", record.pipeline),
        subtitle: format!(
            "{} begun at {} by process {} on {}{}{}",
            record.mode,
            instant_text(record.began),
            record.process,
            record.host,
            interval.unwrap_or_default(),
            run_id.unwrap_or_default(),
        ),
        up: Some(PageLink {
            text: format!("All runs of {}", record.pipeline),
            href: pipeline_href(&record.pipeline),
        }),
        refresh_seconds: Some(view.refresh_seconds()),
        ..Page::default()
    };
    let mut glance = vec![run_tiles(record, now)];
    if let Some(file) = &record.page {
        glance.push(Block::Heading {
            text: format!("The page that the run has written: {file}"),
            href: Some(report_href(record)),
        });
    }
    if record.artifact.is_some() {
        glance.push(Block::Heading {
            text: "Steps of the run: graph, rows and profiles".to_owned(),
            href: Some(run_steps_href(record)),
        });
    }
    page.add("glance", "At a glance", glance);
    page.add("fault", "Why it failed", fault_blocks(record));
    page.add("passes", "Passes", pass_blocks(record, now));
    page.add("outputs", "Outputs", output_blocks(record));
    page.add("rules", "Rules that do not hold", rule_blocks(record));
    page.add("models", "Models", model_blocks(record));
    let warnings = record.warnings.iter();
    let warnings = warnings.map(|warning| Block::text(warning.clone()));
    page.add("warnings", "Warnings", warnings.collect());
    page
}

/// The page of a fault of the server itself.
pub(crate) fn server_fault_page(fault: &Fault) -> Page {
    failed_page("This page", fault)
}

/// The page of a name that leads nowhere.
pub(crate) fn missing_page(path: &str) -> Page {
    let mut page = Page {
        state: PageState::Failed,
        title: "Not here".to_owned(),
        subtitle: format!("there is nothing at `{path}`"),
        up: Some(PageLink {
            text: "All pipelines".to_owned(),
            href: "/".to_owned(),
        }),
        ..Page::default()
    };
    let text = "`forebay cache gc` removes the record of a run at its age, and only pipelines of \
                the latest runs have a page.";
    page.add("missing", "Not here", vec![Block::text(text)]);
    page
}

/// The page for a run whose own page cannot be shown.
pub(crate) fn missing_report_page(record: &RunRecord, file: &str) -> Page {
    let mut page = Page {
        state: PageState::Failed,
        title: "Not here".to_owned(),
        subtitle: format!("the page that a run of {} has written", record.pipeline),
        up: Some(PageLink {
            text: "The run".to_owned(),
            href: run_href(record),
        }),
        ..Page::default()
    };
    let text = format!(
        "The run wrote its page to `{file}` on {}. This server shows pages of its own machine, as \
         long as no later run has written to the file.",
        record.host
    );
    page.add("missing", "Not here", vec![Block::text(text)]);
    page
}

/// The graph of a pipeline, and the profiles that its last run has learned.
pub(crate) fn pipeline_graph_page(artifact: &Artifact, session: &Session) -> Result<Page> {
    let pipeline = &artifact.pipeline;
    let mut page = Page {
        title: format!("{}: graph and profiles", pipeline.name),
        subtitle: "of the newest artifact".to_owned(),
        up: Some(PageLink {
            text: format!("All runs of {}", pipeline.name),
            href: pipeline_href(&pipeline.name),
        }),
        ..Page::default()
    };
    page.add("pipeline", "Pipeline", graph_blocks(pipeline, &[]));
    let steps = StepPages {
        pipeline,
        run: None,
    };
    page.add("rows", "Rows", vec![steps.links()]);
    page.add("outputs", "Outputs", lineage_blocks(artifact, session));
    page.add_kept(pipeline, session)?;
    Ok(page)
}

/// Columns of each output with their origins. An artifact of another version may not be traced: the page is useful
/// without them.
fn lineage_blocks(artifact: &Artifact, session: &Session) -> Vec<Block> {
    let sinks = match session.sink_columns(artifact, COLUMNS_SHOWN) {
        Ok(sinks) => sinks,
        Err(fault) => {
            let text = format!("The columns cannot be traced: {}.", fault.message());
            return vec![Block::text(text)];
        }
    };
    let mut blocks = Vec::new();
    for sink in &sinks {
        blocks.push(Block::heading(format!(
            "Columns of {} and where they come from",
            sink.sink
        )));
        blocks.push(columns_table(&sink.sink, &sink.columns));
        let hidden = sink.total - sink.columns.len();
        if hidden > 0 {
            blocks.push(Block::text(format!("{hidden} more are not listed.")));
        }
    }
    blocks
}

fn fault_blocks(record: &RunRecord) -> Vec<Block> {
    let Some(fault) = &record.fault else {
        return Vec::new();
    };
    let message = Block::Text {
        text: format!("{}: {}", fault.code, fault.message),
        class: Some("bad"),
    };
    let hint = fault
        .hint
        .as_ref()
        .map(|hint| Block::text(format!("Hint: {hint}.")));
    std::iter::once(message).chain(hint).collect()
}

fn pass_blocks(record: &RunRecord, now: u64) -> Vec<Block> {
    if record.passes.is_empty() {
        let text = match &record.waits_for {
            Some(condition) => format!("The run waits for {condition}."),
            None => "No pass has begun.".to_owned(),
        };
        return vec![Block::text(text)];
    }
    let total = seconds(record, now).max(1e-9);
    let mut rows = Vec::with_capacity(record.passes.len());
    for pass in &record.passes {
        // The clock of the reader may be behind that of the run.
        let end = pass.to.unwrap_or(total).max(pass.from);
        let state = if pass.to.is_none() && record.state == RunRecordState::Running {
            let percent = pass_percent(pass);
            Cell::text(percent.map_or_else(
                || "at work".to_owned(),
                |percent| format!("at work, {percent:.0} % read"),
            ))
        } else if pass.to.is_none() {
            Cell {
                class: Some("bad"),
                ..Cell::text("did not end")
            }
        } else if pass.reused {
            Cell::text("reused")
        } else {
            Cell::text("done")
        };
        let bar = Bar {
            from: (100.0 * pass.from / total).min(100.0),
            width: (100.0 * (end - pass.from) / total).clamp(0.0, 100.0),
        };
        rows.push(vec![
            Cell::text(format!("{} {}", pass.number, pass.label)),
            state,
            Cell {
                bar: Some(bar),
                ..Cell::text(format!("from {:.2} s to {end:.2} s", pass.from))
            },
            Cell::measure(duration_text(end - pass.from), end - pass.from),
            Cell::measure(units::grouped(pass.rows), pass.rows as f64),
            Cell::measure(units::bytes(pass.bytes), pass.bytes as f64),
        ]);
    }
    let head = ["pass", "state", "time", "#took", "#rows", "#read"];
    let mut blocks = vec![Block::stacked_table("Passes", &head, rows)];
    if record.passes_left_out > 0 {
        let earlier = units::counted(record.passes_left_out as u64, "pass");
        blocks.push(Block::text(format!(
            "{earlier} before these are not listed."
        )));
    }
    blocks
}

fn output_blocks(record: &RunRecord) -> Vec<Block> {
    if record.outputs.is_empty() {
        return Vec::new();
    }
    let mut rows = Vec::with_capacity(record.outputs.len());
    for output in &record.outputs {
        rows.push(vec![
            Cell::text(output.sink.clone()),
            Cell::text(if output.is_forecast {
                "forecast"
            } else {
                "rows"
            }),
            Cell::measure(units::grouped(output.rows_in), output.rows_in as f64),
            Cell::measure(units::grouped(output.rows), output.rows as f64),
            counted_cell(output.files, units::grouped(output.files)),
            counted_cell(output.bytes, units::bytes(output.bytes)),
        ]);
    }
    let head = ["sink", "kind", "#rows in", "#rows out", "#files", "#size"];
    vec![Block::stacked_table("Outputs", &head, rows)]
}

/// A count; empty if it is 0, which stands for one that is not known.
fn counted_cell(count: u64, text: String) -> Cell {
    if count == 0 {
        Cell::number("")
    } else {
        Cell::measure(text, count as f64)
    }
}

fn rule_blocks(record: &RunRecord) -> Vec<Block> {
    if record.failed_rules.is_empty() {
        return Vec::new();
    }
    let mut rows = Vec::with_capacity(record.failed_rules.len());
    for rule in &record.failed_rules {
        rows.push(vec![
            Cell::long(rule.rule.clone()),
            Cell::text(rule.step.clone()),
            Cell::measure(units::grouped(rule.rows), rule.rows as f64),
            Cell::measure(units::grouped(rule.violations), rule.violations as f64),
            Cell::long(rule.finding.clone()),
        ]);
    }
    let head = ["rule", "step", "#rows", "#violations", "found"];
    vec![Block::stacked_table("Rules that do not hold", &head, rows)]
}

fn model_blocks(record: &RunRecord) -> Vec<Block> {
    if record.models.is_empty() {
        return Vec::new();
    }
    let mut rows = Vec::with_capacity(record.models.len());
    for model in &record.models {
        rows.push(vec![
            Cell::text(model.sink.clone()),
            Cell::text(if model.reused { "reused" } else { "trained" }),
            loss_cell(model.loss),
            loss_cell(model.baseline),
        ]);
    }
    let head = ["sink", "state", "#loss", "#loss without a model"];
    vec![Block::stacked_table("Models", &head, rows)]
}

fn loss_cell(loss: Option<f64>) -> Cell {
    loss.map_or_else(
        || Cell::number(""),
        |loss| Cell::measure(format!("{loss:.5}"), loss),
    )
}
