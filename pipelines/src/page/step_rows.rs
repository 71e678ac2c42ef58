//! Page of the rows of a step, which are computed when a browser requests it.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use forebay_model::{Pipeline, Result, type_label};
use forebay_run::{HistogramBin, Preview};

use super::matrix::sparkline;
use super::records::{pipeline_href, step_href};
use super::{Block, Cell, Page, PageLink};
use crate::present::{rows, units};

/// Rows that are listed; the summary is of all rows of the preview.
const ROWS_SHOWN: usize = 20;

/// Columns that are shown.
const COLUMNS_MAX: usize = 200;

/// Bins of a distribution.
const BINS: usize = 20;

/// Steps and sources of a pipeline, with links to their rows.
pub(super) fn step_links(pipeline: &Pipeline) -> Block {
    let mut lines = Vec::new();
    for source in &pipeline.sources {
        let href = step_href(&pipeline.name, &source.name);
        let kind = format!("source ({})", source.format);
        lines.push(vec![
            Cell::link(source.name.clone(), href),
            Cell::text(kind),
        ]);
    }
    for node in &pipeline.nodes {
        let href = step_href(&pipeline.name, &node.name);
        let kinds: Vec<&str> = node.steps.iter().map(|step| step.kind.as_str()).collect();
        lines.push(vec![
            Cell::link(node.name.clone(), href),
            Cell::long(kinds.join(", ")),
        ]);
    }
    Block::stacked_table("Rows of steps", &["rows of", "made by"], lines)
}

/// The page of the rows of a step. Without a preview, it says why none is computed.
pub(crate) fn step_rows_page(
    pipeline: &Pipeline,
    step: &str,
    preview: std::result::Result<&Preview, &str>,
) -> Result<Page> {
    let mut page = Page {
        title: format!("{}: rows of {step}", pipeline.name),
        subtitle: "computed now from the first rows of the sources, with what the newest artifact \
                   has learned"
            .to_owned(),
        up: Some(PageLink {
            text: "Graph and profiles".to_owned(),
            href: format!("{}/graph", pipeline_href(&pipeline.name)),
        }),
        ..Page::default()
    };
    match preview {
        Err(reason) => page.add("rows", "Rows", vec![Block::text(reason)]),
        Ok(preview) => {
            page.add("rows", "Rows", row_blocks(preview)?);
            page.add("columns", "Columns", column_blocks(&preview.batches)?);
        }
    }
    Ok(page)
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
