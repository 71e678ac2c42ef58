//! Pages of a state directory: the index of its pipelines, and the runs of one of them.

use std::collections::BTreeMap;

use forebay_run::{ClusterStatus, RunRecord, RunRecordState};

use super::records::{
    StateWords, duration_text, instant_text, is_live, live_table, pipeline_href, run_href,
    runs_table, state_words,
};
use super::run_tiles::run_tiles;
use super::trends::trend_charts;
use super::{Block, Cell, Page, PageLink};
use crate::present::units;

/// Runs of the index; the page of a pipeline has more.
const RUNS_SHOWN: usize = 50;

/// Pipelines whose trends the index draws.
const TRENDS_SHOWN: usize = 20;

/// Seconds after which a page is read again, where a run goes on and where none does.
const REFRESH_LIVE_SECONDS: u32 = 3;
const REFRESH_SECONDS: u32 = 15;

/// A state directory, as it is seen at a time.
#[derive(Debug, Default)]
pub(crate) struct StateView {
    /// The directory, as people write it.
    pub state: String,
    /// Records of runs, the first run first.
    pub records: Vec<RunRecord>,
    /// Records that this version cannot read.
    pub unreadable: usize,
    /// Number of older records that are not read.
    pub older: usize,
    /// Runs with workers.
    pub clusters: Vec<ClusterStatus>,
    /// The time, in seconds since 1970.
    pub now: u64,
}

impl StateView {
    fn of_pipeline(&self, pipeline: &str) -> Vec<&RunRecord> {
        let records = self.records.iter();
        records
            .filter(|record| record.pipeline == pipeline)
            .collect()
    }

    fn live(&self) -> Vec<&RunRecord> {
        let records = self.records.iter();
        records.filter(|record| is_live(record, self.now)).collect()
    }

    /// Seconds after which a page of this view is read again.
    pub(super) fn refresh_seconds(&self) -> u32 {
        if self.live().is_empty() && self.clusters.iter().all(ClusterStatus::is_silent) {
            REFRESH_SECONDS
        } else {
            REFRESH_LIVE_SECONDS
        }
    }
}

/// The page of all pipelines and runs of a state directory.
pub(crate) fn index_page(view: &StateView) -> Page {
    let mut page = Page {
        title: "Runs".to_owned(),
        subtitle: format!("of {}, seen at {}", view.state, instant_text(view.now)),
        refresh_seconds: Some(view.refresh_seconds()),
        ..Page::default()
    };
    page.add("running", "Running now", running_blocks(view));
    let mut by_pipeline: BTreeMap<&str, Vec<&RunRecord>> = BTreeMap::new();
    for record in &view.records {
        by_pipeline
            .entry(&record.pipeline)
            .or_default()
            .push(record);
    }
    page.add(
        "pipelines",
        "Pipelines",
        pipeline_blocks(&by_pipeline, view),
    );
    page.add("trends", "Trends", all_trends(&by_pipeline));
    let unlisted = view.records.len().saturating_sub(RUNS_SHOWN);
    let latest: Vec<&RunRecord> = view.records.iter().skip(unlisted).collect();
    if !latest.is_empty() || view.unreadable > 0 {
        let mut blocks = vec![runs_table("Latest runs", &latest, view.now)];
        blocks.extend(left_out(view, unlisted));
        page.add("runs", "Latest runs", blocks);
    }
    page
}

/// The page of the runs of a pipeline; `None` if there is none.
pub(crate) fn pipeline_page(view: &StateView, pipeline: &str) -> Option<Page> {
    let records = view.of_pipeline(pipeline);
    let latest = records.last()?;
    let is_ended = |record: &&&RunRecord| !is_live(record, view.now);
    let last_ended = records.iter().rev().find(is_ended).unwrap_or(latest);
    let mut page = Page {
        title: pipeline.to_owned(),
        subtitle: format!("of {}, seen at {}", view.state, instant_text(view.now)),
        up: Some(PageLink {
            text: "All pipelines".to_owned(),
            href: "/".to_owned(),
        }),
        refresh_seconds: Some(view.refresh_seconds()),
        ..Page::default()
    };
    let title = if is_live(last_ended, view.now) {
        "Latest run"
    } else {
        "Latest run that has ended"
    };
    page.add("latest", title, latest_blocks(last_ended, view.now));
    page.add("trends", "Trends", trend_blocks(&records));
    let mut blocks = vec![runs_table("Runs", &records, view.now)];
    blocks.extend(left_out(view, 0));
    page.add("runs", "Runs", blocks);
    let graph = format!("{}/graph", pipeline_href(pipeline));
    page.add(
        "graph",
        "Graph and profiles",
        vec![Block::Heading {
            text: "Graph of the newest artifact, with the profiles that it has learned".to_owned(),
            href: Some(graph),
        }],
    );
    Some(page)
}

fn latest_blocks(record: &RunRecord, now: u64) -> Vec<Block> {
    let StateWords { text, .. } = state_words(record, now);
    let heading = Block::Heading {
        text: format!("{}: {text}", instant_text(record.began)),
        href: Some(run_href(record)),
    };
    vec![heading, run_tiles(record, now)]
}

fn running_blocks(view: &StateView) -> Vec<Block> {
    let live = view.live();
    let has_workers = view.clusters.iter().any(|run| !run.workers.is_empty());
    let mut blocks = Vec::new();
    if live.is_empty() && !has_workers {
        blocks.push(Block::text("No run goes on."));
    }
    if !live.is_empty() {
        blocks.push(live_table(&live, view.now));
    }
    if has_workers {
        blocks.push(workers_table(&view.clusters));
    }
    blocks
}

/// Workers of all runs.
fn workers_table(clusters: &[ClusterStatus]) -> Block {
    let mut rows = Vec::new();
    for run in clusters {
        let is_silent = run.is_silent();
        for (address, worker) in &run.workers {
            let (state, class) = if is_silent {
                ("the run is silent", Some("bad"))
            } else if worker.there {
                ("connected", None)
            } else {
                ("gone", Some("bad"))
            };
            rows.push(vec![
                Cell::text(address.clone()),
                Cell::link(run.pipeline.clone(), pipeline_href(&run.pipeline)),
                Cell::number(format!("{} of {}", worker.busy, worker.slots)),
                Cell::measure(units::grouped(worker.parts), worker.parts as f64),
                Cell::measure(units::grouped(worker.rows), worker.rows as f64),
                Cell::measure(units::bytes(worker.bytes), worker.bytes as f64),
                Cell::measure(duration_text(worker.cpu_seconds), worker.cpu_seconds),
                Cell::number(units::grouped(worker.retries)),
                Cell {
                    class,
                    ..Cell::text(state)
                },
            ]);
        }
    }
    let head = [
        "worker", "pipeline", "#busy", "#parts", "#rows", "#read", "#CPU", "#retries", "state",
    ];
    Block::stacked_table("Workers of runs that go on", &head, rows)
}

fn pipeline_blocks(by_pipeline: &BTreeMap<&str, Vec<&RunRecord>>, view: &StateView) -> Vec<Block> {
    if by_pipeline.is_empty() {
        let text = "No run is recorded in this state directory. `forebay run` records each run \
                    when it ends, and every two seconds while it goes on; runs of earlier \
                    versions have no record.";
        return vec![Block::text(text)];
    }
    let mut rows = Vec::with_capacity(by_pipeline.len());
    for (pipeline, records) in by_pipeline {
        rows.push(pipeline_row(pipeline, records, view));
    }
    let head = [
        "pipeline",
        "last run",
        "state",
        "#rows",
        "#took",
        "data until",
        "#since success",
        "#runs",
        "#failed",
    ];
    vec![Block::stacked_table("Pipelines", &head, rows)]
}

fn pipeline_row(pipeline: &str, records: &[&RunRecord], view: &StateView) -> Vec<Cell> {
    let now = view.now;
    let failed = records.iter().filter(|record| record.fault.is_some());
    let failed = failed.count();
    let mut cells = vec![Cell::link(pipeline, pipeline_href(pipeline))];
    if let Some(latest) = records.last() {
        let StateWords { text, class } = state_words(latest, now);
        cells.push(Cell::link(instant_text(latest.began), run_href(latest)));
        cells.push(Cell {
            class,
            ..Cell::text(text)
        });
    }
    let is_success = |record: &&&RunRecord| is_success(record);
    match records.iter().rev().find(is_success) {
        Some(success) => {
            let since = now.saturating_sub(success.seen);
            let rows = success.rows();
            cells.push(Cell::measure(units::grouped(rows), rows as f64));
            cells.push(Cell::measure(
                duration_text(success.seconds),
                success.seconds,
            ));
            cells.push(Cell::text(success.data_until.clone().unwrap_or_default()));
            cells.push(Cell::measure(duration_text(since as f64), since as f64));
        }
        None => cells.extend([
            Cell::number(""),
            Cell::number(""),
            Cell::text(""),
            Cell {
                class: Some("bad"),
                ..Cell::text(without_success(view))
            },
        ]),
    }
    cells.push(Cell::measure(
        units::grouped(records.len() as u64),
        records.len() as f64,
    ));
    cells.push(Cell::measure(units::grouped(failed as u64), failed as f64));
    cells
}

/// Words for a pipeline without a run that succeeded. Such a run may be older than the records that are read.
fn without_success(view: &StateView) -> &'static str {
    if view.older == 0 && view.unreadable == 0 {
        "no run has succeeded"
    } else {
        "no run that is read has succeeded"
    }
}

/// True for a run after which readers see its results.
fn is_success(record: &RunRecord) -> bool {
    matches!(
        record.state,
        RunRecordState::Complete | RunRecordState::NothingNew | RunRecordState::Degraded
    )
}

/// Trends of the first pipelines, each below its name.
fn all_trends(by_pipeline: &BTreeMap<&str, Vec<&RunRecord>>) -> Vec<Block> {
    let mut blocks = Vec::new();
    for (pipeline, records) in by_pipeline.iter().take(TRENDS_SHOWN) {
        blocks.push(Block::Heading {
            text: (*pipeline).to_owned(),
            href: Some(pipeline_href(pipeline)),
        });
        blocks.extend(trend_blocks(records));
    }
    let hidden = by_pipeline.len().saturating_sub(TRENDS_SHOWN);
    if hidden > 0 {
        let text = format!("Trends of {hidden} more are on the pages of the pipelines.");
        blocks.push(Block::text(text));
    }
    blocks
}

fn trend_blocks(records: &[&RunRecord]) -> Vec<Block> {
    let charts = trend_charts(records);
    if charts.is_empty() {
        return vec![Block::text("A trend takes two runs that have ended.")];
    }
    vec![Block::Charts { charts }]
}

/// Records that a table leaves out, if any: some of those that were read, and all others.
fn left_out(view: &StateView, unlisted: usize) -> Vec<Block> {
    let mut blocks = Vec::new();
    if unlisted > 0 {
        let unlisted = units::counted(unlisted as u64, "earlier run");
        let text = format!("{unlisted} more are on the pages of the pipelines.");
        blocks.push(Block::text(text));
    }
    if view.older > 0 {
        let older = units::counted(view.older as u64, "older record");
        let text = format!("{older} of the state directory are not read.");
        blocks.push(Block::text(text));
    }
    if view.unreadable > 0 {
        let unreadable = units::counted(view.unreadable as u64, "record");
        let text = format!("This version cannot read {unreadable} of runs.");
        blocks.push(Block::text(text));
    }
    blocks
}
