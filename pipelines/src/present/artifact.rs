//! Artifacts as text: their findings, and the differences of two artifacts.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use forebay_model::{Result, type_label};
use forebay_run::{Artifact, LearnedFinding, ServingManifest, StepFit};

use super::cells::CellTexts;
use super::units::{bytes, counted, grouped};

/// An artifact as text; findings are cut after `rows` rows.
pub(crate) fn show(artifact: &Artifact, rows: usize) -> Result<String> {
    let mut text = format!("artifact {} of {}\n", artifact.id, artifact.pipeline.name);
    for (source, schema) in &artifact.schemas {
        let columns = schema
            .fields()
            .iter()
            .map(|field| format!("{} {}", field.name(), type_label(field.data_type())));
        text += &format!(
            "\nsource {source}: {}\n",
            columns.collect::<Vec<_>>().join(", ")
        );
    }
    if !artifact.fits.is_empty() {
        text.push('\n');
    }
    for StepFit {
        step,
        since,
        reason,
    } in &artifact.fits
    {
        let since = since
            .as_ref()
            .map_or_else(String::new, |since| format!(" at {since}"));
        text += &format!("{step} learned{since}: {reason}\n");
    }
    if let Some(reference) = &artifact.serving {
        text += &serving_state(&reference.manifest);
    }
    for learned in &artifact.findings {
        let table = learned.finding.table();
        text += &format!("\n{}\n", title(learned));
        let table_head = table.slice(0, table.num_rows().min(rows));
        for line in lines(&readable(&table_head)?)? {
            text += &format!("  {line}\n");
        }
        if table.num_rows() > rows {
            text += &format!("  ... {} rows in all\n", table.num_rows());
        }
    }
    Ok(text)
}

/// The serving state as text: as of when, and what each window holds.
fn serving_state(manifest: &ServingManifest) -> String {
    let as_of = manifest.as_of.as_deref().unwrap_or("no rows");
    let mut text = format!(
        "\nserves rows of {} from {}: state as of {as_of}, {} series, {}\n",
        manifest.node,
        manifest.source,
        grouped(manifest.series()),
        bytes(manifest.bytes()),
    );
    for window in &manifest.windows {
        let each = match window.series {
            0 => String::new(),
            series => format!(", {} bytes each", window.bytes.div_ceil(series)),
        };
        let keys = match window.keys.as_slice() {
            [] => "of all rows".to_owned(),
            keys => format!("by {}", keys.join(", ")),
        };
        text += &format!(
            "  {} {keys}: {} series, {}{each}, in {}\n",
            window.step,
            grouped(window.series),
            bytes(window.bytes),
            counted(window.pieces.len() as u64, "piece"),
        );
    }
    for table in &manifest.tables {
        text += &format!(
            "  {} joins {}: {}, {}\n",
            table.step,
            table.other,
            counted(table.rows, "row"),
            bytes(table.piece.bytes),
        );
    }
    text
}

/// Differences, one line each; empty if there are none.
pub(crate) fn diff(old_artifact: &Artifact, new_artifact: &Artifact) -> Result<String> {
    let mut text = String::new();
    for (source, schema) in &new_artifact.schemas {
        match old_artifact.schemas.get(source) {
            None => text += &format!("+ source {source}\n"),
            Some(old_schema) if old_schema != schema => {
                text += &format!("~ source {source}: other columns\n")
            }
            Some(_) => {}
        }
    }
    for source in old_artifact.schemas.keys() {
        if !new_artifact.schemas.contains_key(source) {
            text += &format!("- source {source}\n");
        }
    }
    text += &findings_diff(&old_artifact.findings, &new_artifact.findings)?;
    Ok(text)
}

/// Differences of what was learned, one line each.
fn findings_diff(
    old_findings: &[LearnedFinding],
    new_findings: &[LearnedFinding],
) -> Result<String> {
    let mut text = String::new();
    let old = findings_by_title(old_findings);
    let new = findings_by_title(new_findings);
    for (title, learned) in &new {
        let Some(old_learned) = old.get(title) else {
            text += &format!("+ {title}\n");
            continue;
        };
        let was = old_learned.finding.table();
        let is = learned.finding.table();
        if was != is {
            let difference = table_diff(&readable(was)?, &readable(is)?)?;
            text += &format!("~ {title}{difference}");
        }
    }
    for title in old.keys() {
        if !new.contains_key(title) {
            text += &format!("- {title}\n");
        }
    }
    Ok(text)
}

/// Findings by their titles. A step that comes several times has one title for each of its findings of a column: the
/// second one is numbered, and none is left out.
fn findings_by_title(findings: &[LearnedFinding]) -> BTreeMap<String, &LearnedFinding> {
    let mut by_title = BTreeMap::new();
    for learned in findings {
        let plain = title(learned);
        let mut numbered = plain.clone();
        let mut number = 1;
        while by_title.contains_key(&numbered) {
            number += 1;
            numbered = format!("{plain} ({number})");
        }
        by_title.insert(numbered, learned);
    }
    by_title
}

/// Values that changed of a table with one row; else the number of keys that came and went.
fn table_diff(was: &RecordBatch, is: &RecordBatch) -> Result<String> {
    if was.num_rows() != 1 || is.num_rows() != 1 || was.schema() != is.schema() {
        let old_keys = distinct(was)?;
        let new_keys = distinct(is)?;
        let lost = old_keys.difference(&new_keys).count();
        let added = new_keys.difference(&old_keys).count();
        return Ok(format!(
            ": {} rows -> {}, {added} keys new, {lost} keys gone\n",
            was.num_rows(),
            is.num_rows()
        ));
    }
    let mut text = "\n".to_owned();
    for (index, field) in is.schema_ref().fields().iter().enumerate() {
        let from = first_value(was, index)?;
        let to = first_value(is, index)?;
        if from != to {
            text += &format!("    {}: {from} -> {to}\n", field.name());
        }
    }
    Ok(text)
}

fn first_value(table: &RecordBatch, column: usize) -> Result<String> {
    Ok(CellTexts::new(table.column(column))?.text(0))
}

fn title(learned: &LearnedFinding) -> String {
    let part = learned
        .part
        .as_ref()
        .map(|part| format!(" on {part}"))
        .unwrap_or_default();
    let columns: Vec<&str> = learned
        .columns
        .iter()
        .map(|column| without_helper_prefix(column))
        .collect();
    format!(
        "{}: {} of {}{part}",
        learned.step,
        learned.analyzer,
        columns.join(", ")
    )
}

/// The column that a helper column of a step is made from: `city` of `__tokens_city`.
pub(crate) fn without_helper_prefix(column: &str) -> &str {
    let helper = column
        .strip_prefix("__")
        .and_then(|helper| helper.split_once('_'));
    helper.map_or(column, |(_, name)| name)
}

/// A table whose bytes, which are for programs, are told by their number.
fn readable(table: &RecordBatch) -> Result<RecordBatch> {
    let mut columns: Vec<(&str, ArrayRef)> = Vec::new();
    let mut has_bytes = false;
    for (field, column) in table.schema_ref().fields().iter().zip(table.columns()) {
        let mut readable_column = column.clone();
        if let Some(values) = column.as_binary_opt::<i32>() {
            let lengths = values.iter().map(|value| Some(bytes(value?.len() as u64)));
            readable_column = Arc::new(lengths.collect::<StringArray>());
            has_bytes = true;
        }
        columns.push((field.name().as_str(), readable_column));
    }
    if !has_bytes {
        return Ok(table.clone());
    }
    Ok(RecordBatch::try_from_iter(columns)?)
}

/// The values of the first column.
fn distinct(table: &RecordBatch) -> Result<std::collections::BTreeSet<String>> {
    let Some(column) = table.columns().first() else {
        return Ok(Default::default());
    };
    let values = CellTexts::new(column)?;
    Ok((0..column.len()).map(|row| values.text(row)).collect())
}

/// A single row as a list of names and values; several as aligned columns.
fn lines(table: &RecordBatch) -> Result<Vec<String>> {
    let mut columns: Vec<Vec<String>> = Vec::new();
    for (field, column) in table.schema_ref().fields().iter().zip(table.columns()) {
        let values = CellTexts::new(column)?;
        let mut cells = vec![field.name().clone()];
        for row in 0..column.len() {
            cells.push(values.text(row));
        }
        columns.push(cells);
    }
    if table.num_rows() == 1 {
        let named: Vec<String> = columns.iter().map(|cells| cells.join(" ")).collect();
        return Ok(vec![named.join(", ")]);
    }
    for cells in &mut columns {
        let widths = cells.iter().map(|cell| cell.chars().count());
        let width = widths.max().unwrap_or(0);
        for cell in cells {
            *cell = format!("{cell:width$}");
        }
    }
    let mut lines = Vec::with_capacity(table.num_rows() + 1);
    for line in 0..=table.num_rows() {
        let cells: Vec<&str> = columns.iter().map(|cells| cells[line].as_str()).collect();
        lines.push(cells.join("  ").trim_end().to_owned());
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use arrow::array::{BinaryArray, Float64Array};
    use forebay_model::Finding;

    use super::*;

    #[test]
    fn bytes_are_told_by_their_number() {
        let values: ArrayRef = Arc::new(BinaryArray::from_iter([Some(vec![7; 2048]), None]));
        let table = RecordBatch::try_from_iter([("estimator", values)]).unwrap();
        let expected = ["estimator", "2.0 kB", "null"];
        let shown = lines(&readable(&table).unwrap()).unwrap();
        assert_eq!(shown, expected);
    }

    fn boundaries(column: &str, boundary: f64) -> LearnedFinding {
        let values: ArrayRef = Arc::new(Float64Array::from(vec![boundary]));
        let table = RecordBatch::try_from_iter([("boundary", values)]).unwrap();
        LearnedFinding {
            step: "features.bucketize".to_owned(),
            analyzer: "exact_quantiles".to_owned(),
            columns: vec![column.to_owned()],
            part: None,
            finding: Arc::new(Finding::new(table)),
        }
    }

    #[test]
    fn each_of_several_findings_with_one_title_is_compared() {
        let old = [boundaries("price", 1.0), boundaries("price", 2.0)];
        let cases = [
            ([1.0, 2.0], ""),
            (
                [3.0, 2.0],
                "~ features.bucketize: exact_quantiles of price\n    boundary: 1.0 -> 3.0\n",
            ),
            (
                [1.0, 5.0],
                "~ features.bucketize: exact_quantiles of price (2)\n    boundary: 2.0 -> 5.0\n",
            ),
        ];
        for (values, expected) in cases {
            let new = values.map(|boundary| boundaries("price", boundary));
            assert_eq!(findings_diff(&old, &new).unwrap(), expected);
        }
        assert_eq!(
            findings_diff(&old, &old[..1]).unwrap(),
            "- features.bucketize: exact_quantiles of price (2)\n"
        );
    }

    #[test]
    fn titles_name_columns_without_the_prefixes_of_helper_columns() {
        let cases = [
            ("price", "price"),
            ("__parts_tags", "tags"),
            ("__distinct_unit_price", "unit_price"),
            ("__row", "__row"),
            ("_price", "_price"),
        ];
        for (column, expected) in cases {
            let expected = format!("features.bucketize: exact_quantiles of {expected}");
            assert_eq!(title(&boundaries(column, 1.0)), expected);
        }
    }
}
