//! Pages of the rows and profiles of steps, which are computed when a browser requests them.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use forebay_model::{Fault, Pipeline, Result, type_label};
use forebay_run::{DatasetProfile, HistogramBin, Preview, RunRecord};

use super::failed::fault_blocks;
use super::matrix::sparkline;
use super::profile::profile_page;
use super::records::{instant_text, pipeline_href, run_href, run_steps_href, step_href};
use super::run::graph_blocks;
use super::{Block, Cell, Page, PageLink, PageState};
use crate::present::{rows, units};

/// Rows that are listed; the summary is of all rows of the preview.
const ROWS_SHOWN: usize = 20;

/// Columns that are shown.
const COLUMNS_MAX: usize = 200;

/// Bins of a distribution.
const BINS: usize = 20;

/// Steps of an artifact, whose rows and profiles have pages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepPages<'a> {
    /// Pipeline of the artifact.
    pub pipeline: &'a Pipeline,
    /// The run that has left the artifact; without one, the artifact is the newest of its pipeline.
    pub run: Option<&'a RunRecord>,
}

impl StepPages<'_> {
    /// Path of the page with the rows of a step or source.
    fn rows_href(&self, step: &str) -> String {
        let steps = match self.run {
            Some(record) => run_steps_href(record),
            None => format!("{}/steps", pipeline_href(&self.pipeline.name)),
        };
        step_href(&steps, step)
    }

    /// The page that lists the steps.
    fn list(&self) -> PageLink {
        match self.run {
            Some(record) => PageLink {
                text: "Steps of the run".to_owned(),
                href: run_steps_href(record),
            },
            None => PageLink {
                text: "Graph and profiles".to_owned(),
                href: format!("{}/graph", pipeline_href(&self.pipeline.name)),
            },
        }
    }

    /// The rows that a page shows, in words.
    fn computed_words(&self) -> String {
        let findings = match self.run {
            Some(record) => format!(
                "what the run begun at {} has learned",
                instant_text(record.began)
            ),
            None => "what the newest artifact has learned".to_owned(),
        };
        format!("computed now from the first rows of the sources, with {findings}")
    }

    /// A page about a step without content.
    fn page(&self, subject: &str, step: &str) -> Page {
        Page {
            title: format!("{}: {subject} of {step}", self.pipeline.name),
            subtitle: self.computed_words(),
            up: Some(self.list()),
            ..Page::default()
        }
    }

    /// Steps and sources with links to their rows and profiles.
    pub(super) fn links(&self) -> Block {
        let mut lines = Vec::new();
        for source in &self.pipeline.sources {
            let kind = Cell::text(format!("source ({})", source.format));
            lines.push(self.line(&source.name, kind));
        }
        for node in &self.pipeline.nodes {
            let kinds: Vec<&str> = node.steps.iter().map(|step| step.kind.as_str()).collect();
            lines.push(self.line(&node.name, Cell::long(kinds.join(", "))));
        }
        Block::stacked_table("Rows of steps", &["rows of", "made by", "profile"], lines)
    }

    fn line(&self, step: &str, kind: Cell) -> Vec<Cell> {
        let rows = self.rows_href(step);
        let profile = profile_href(&rows);
        vec![Cell::link(step, rows), kind, Cell::link("profile", profile)]
    }
}

/// Path of the profile of the rows at a path.
fn profile_href(rows: &str) -> String {
    format!("{rows}/profile")
}

/// The page of the rows of a step.
pub(crate) fn step_rows_page(pages: StepPages<'_>, step: &str, preview: &Preview) -> Result<Page> {
    let mut page = pages.page("rows", step);
    let mut blocks = row_blocks(preview)?;
    blocks.push(Block::Heading {
        text: format!("Profile of more rows of {step}"),
        href: Some(profile_href(&pages.rows_href(step))),
    });
    page.add("rows", "Rows", blocks);
    page.add("columns", "Columns", column_blocks(&preview.batches)?);
    Ok(page)
}

/// The page of the profile of a step, computed from so many rows of each source at most.
pub(crate) fn step_profile_page(
    pages: StepPages<'_>,
    step: &str,
    profile: &DatasetProfile,
    sample_rows: u64,
) -> Page {
    let mut page = profile_page(profile);
    page.title = format!("{}: profile of {step}", pages.pipeline.name);
    page.subtitle = format!(
        "{}, {}: the first {} of each source",
        page.subtitle,
        pages.computed_words(),
        units::rows(sample_rows)
    );
    page.up = Some(PageLink {
        text: format!("Rows of {step}"),
        href: pages.rows_href(step),
    });
    page
}

/// The page of a step of which nothing is computed, with the reason.
pub(crate) fn uncomputed_step_page(pages: StepPages<'_>, step: &str, reason: &str) -> Page {
    let mut page = pages.page("rows", step);
    page.subtitle = "not computed".to_owned();
    page.add("rows", "Rows", vec![Block::text(reason)]);
    page
}

/// The page of a step that cannot be computed, such as one whose sources are gone.
pub(crate) fn step_fault_page(pages: StepPages<'_>, step: &str, fault: &Fault) -> Page {
    let mut page = pages.page("rows", step);
    page.state = PageState::Failed;
    page.subtitle = "cannot be computed now".to_owned();
    let text = "The rows are computed from the data where it lay when it ran: a relative path \
                begins in the directory in which this server was started.";
    let mut blocks = vec![Block::text(text)];
    blocks.extend(fault_blocks(fault));
    page.add("fault", "Why the rows cannot be computed", blocks);
    page
}

/// The page of the steps of a run's artifact.
pub(crate) fn run_steps_page(record: &RunRecord, pipeline: &Pipeline) -> Page {
    let pages = StepPages {
        pipeline,
        run: Some(record),
    };
    let mut page = steps_page_of(record);
    page.add("pipeline", "Pipeline", graph_blocks(pipeline, &[]));
    page.add("rows", "Rows", vec![pages.links()]);
    page
}

/// The page for a run whose artifact cannot be shown.
pub(crate) fn missing_artifact_page(record: &RunRecord) -> Page {
    let mut page = steps_page_of(record);
    page.state = PageState::Failed;
    let text = "The run has left no artifact, or `forebay cache gc` has removed it. Without it, \
                rows of its steps cannot be computed.";
    page.add("missing", "Not here", vec![Block::text(text)]);
    page
}

fn steps_page_of(record: &RunRecord) -> Page {
    Page {
        title: format!("{}: steps", record.pipeline),
        subtitle: format!("of the run begun at {}", instant_text(record.began)),
        up: Some(PageLink {
            text: "The run".to_owned(),
            href: run_href(record),
        }),
        ..Page::default()
    }
}

fn row_blocks(preview: &Preview) -> Result<Vec<Block>> {
    let mut columns = rows::short_columns(&preview.batches)?;
    let Some(first) = preview.batches.first() else {
        return Ok(vec![Block::text("The step has no rows.")]);
    };
    let schema = first.schema();
    columns.truncate(COLUMNS_MAX);
    let mut head = Vec::with_capacity(columns.len());
    for field in schema.fields().iter().take(COLUMNS_MAX) {
        let mark = if field.data_type().is_numeric() {
            "#"
        } else {
            ""
        };
        head.push(format!("{mark}{}", field.name()));
    }
    // Names and types come before the values.
    let count = columns.first().map_or(0, |texts| texts.len() - 2);
    let mut lines = Vec::with_capacity(count.min(ROWS_SHOWN));
    for row in 0..count.min(ROWS_SHOWN) {
        let mut line = Vec::with_capacity(columns.len());
        for (texts, field) in columns.iter().zip(schema.fields()) {
            let text = texts[row + 2].clone();
            line.push(if field.data_type().is_numeric() {
                Cell::number(text)
            } else {
                Cell::text(text)
            });
        }
        lines.push(line);
    }
    let mut text = format!(
        "The first {} of {} that were computed.",
        lines.len(),
        units::rows(count as u64)
    );
    if preview.skipped > 0 {
        let begin = units::grouped(preview.skipped + 1);
        text += &format!(" They begin at row {begin}, where the most columns have values.");
    }
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let mut blocks = vec![Block::text(text), Block::table("Rows", &head, lines)];
    let hidden = schema.fields().len().saturating_sub(COLUMNS_MAX);
    if hidden > 0 {
        blocks.push(Block::text(format!("{hidden} more columns are not shown.")));
    }
    Ok(blocks)
}

/// Nulls, distribution and range of each column of a preview.
fn column_blocks(batches: &[RecordBatch]) -> Result<Vec<Block>> {
    let Some(first) = batches.first() else {
        return Ok(Vec::new());
    };
    let row_count: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let mut lines = Vec::new();
    for (index, field) in first.schema().fields().iter().enumerate().take(COLUMNS_MAX) {
        let mut nulls = 0;
        for batch in batches {
            nulls += batch.column(index).logical_null_count();
        }
        let numbers = finite_numbers(batches, index)?;
        let share = nulls as f64 / row_count.max(1) as f64;
        let least = numbers.iter().copied().reduce(f64::min);
        let greatest = numbers.iter().copied().reduce(f64::max);
        lines.push(vec![
            Cell::text(field.name().clone()),
            Cell::text(type_label(field.data_type())),
            Cell {
                svg: sparkline(&histogram(&numbers)),
                ..Cell::default()
            },
            Cell::measure(format!("{:.1} %", share * 100.0), share),
            number_cell(least),
            number_cell(greatest),
        ]);
    }
    let head = [
        "column",
        "type",
        "distribution",
        "#nulls",
        "#least",
        "#greatest",
    ];
    Ok(vec![Block::stacked_table("Columns", &head, lines)])
}

fn number_cell(number: Option<f64>) -> Cell {
    match number {
        Some(number) => Cell::measure(rows::six_digits(number), number),
        None => Cell::number(""),
    }
}

/// The finite numbers of a column; none of a column of another type.
fn finite_numbers(batches: &[RecordBatch], index: usize) -> Result<Vec<f64>> {
    let mut numbers = Vec::new();
    for batch in batches {
        let column = batch.column(index);
        if !column.data_type().is_numeric() {
            return Ok(Vec::new());
        }
        let column = cast(column, &DataType::Float64)?;
        let column = column.as_primitive::<Float64Type>();
        numbers.extend(column.iter().flatten().filter(|number| number.is_finite()));
    }
    Ok(numbers)
}

/// Shares of numbers in bins of one width; nothing of numbers that are all equal.
fn histogram(numbers: &[f64]) -> Vec<HistogramBin> {
    let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let width = (greatest - least) / BINS as f64;
    if !(width > 0.0 && width.is_finite()) {
        return Vec::new();
    }
    let mut bins = Vec::with_capacity(BINS);
    for number in 0..BINS {
        let lower = least + width * number as f64;
        bins.push(HistogramBin {
            lower,
            upper: lower + width,
            share: 0.0,
        });
    }
    for number in numbers {
        // The greatest number belongs to the last bin.
        let bin = (((number - least) / width) as usize).min(BINS - 1);
        bins[bin].share += 1.0 / numbers.len() as f64;
    }
    bins
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_counted_in_bins() {
        assert!(histogram(&[]).is_empty());
        assert!(histogram(&[3.0, 3.0]).is_empty());
        let bins = histogram(&[0.0, 0.1, 10.0, 20.0]);
        assert_eq!(bins.len(), BINS);
        let shares: Vec<f64> = bins.iter().map(|bin| bin.share).collect();
        assert_eq!([shares[0], shares[10], shares[19]], [0.5, 0.25, 0.25]);
    }
}
