//! Artifacts for the eye: what was learned, and how two of them differ.

use std::collections::BTreeMap;

use arrow::array::{Array, RecordBatch};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use forebay_model::{Result, type_label};
use forebay_run::{Artifact, LearnedFinding, StepFit};

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
    for learned in &artifact.findings {
        let table = learned.finding.table();
        text += &format!("\n{}\n", title(learned));
        for line in lines(&table.slice(0, table.num_rows().min(rows)))? {
            text += &format!("  {line}\n");
        }
        if table.num_rows() > rows {
            text += &format!("  ... {} rows in all\n", table.num_rows());
        }
    }
    Ok(text)
}

/// What differs, one line each; empty where nothing does.
pub(crate) fn diff(before: &Artifact, after: &Artifact) -> Result<String> {
    let mut text = String::new();
    for (source, schema) in &after.schemas {
        match before.schemas.get(source) {
            None => text += &format!("+ source {source}\n"),
            Some(known) if known != schema => {
                text += &format!("~ source {source}: other columns\n")
            }
            Some(_) => {}
        }
    }
    for source in before
        .schemas
        .keys()
        .filter(|source| !after.schemas.contains_key(*source))
    {
        text += &format!("- source {source}\n");
    }
    let by_title = |artifact: &Artifact| -> BTreeMap<String, LearnedFinding> {
        artifact
            .findings
            .iter()
            .map(|learned| (title(learned), learned.clone()))
            .collect()
    };
    let (old, new) = (by_title(before), by_title(after));
    for (title, learned) in &new {
        let Some(known) = old.get(title) else {
            text += &format!("+ {title}\n");
            continue;
        };
        let (was, is) = (known.finding.table(), learned.finding.table());
        if was == is {
            continue;
        }
        text += &format!("~ {title}");
        if was.num_rows() == 1 && is.num_rows() == 1 && was.schema() == is.schema() {
            text += "\n";
            let options = FormatOptions::default().with_null("null");
            for (index, field) in is.schema_ref().fields().iter().enumerate() {
                let value = |table: &RecordBatch| -> Result<String> {
                    Ok(ArrayFormatter::try_new(table.column(index), &options)?
                        .value(0)
                        .to_string())
                };
                let (from, to) = (value(was)?, value(is)?);
                if from != to {
                    text += &format!("    {}: {from} -> {to}\n", field.name());
                }
            }
        } else {
            let (gone, come) = (distinct(was)?, distinct(is)?);
            let lost = gone.iter().filter(|key| !come.contains(*key)).count();
            let added = come.iter().filter(|key| !gone.contains(*key)).count();
            text += &format!(
                ": {} rows -> {}, {added} keys new, {lost} keys gone\n",
                was.num_rows(),
                is.num_rows()
            );
        }
    }
    for title in old.keys().filter(|title| !new.contains_key(*title)) {
        text += &format!("- {title}\n");
    }
    Ok(text)
}

fn title(learned: &LearnedFinding) -> String {
    let part = learned
        .part
        .as_ref()
        .map(|part| format!(" on {part}"))
        .unwrap_or_default();
    format!(
        "{}: {} of {}{part}",
        learned.step,
        learned.analyzer,
        learned.columns.join(", ")
    )
}

/// The values of the first column.
fn distinct(table: &RecordBatch) -> Result<std::collections::BTreeSet<String>> {
    let options = FormatOptions::default().with_null("null");
    let Some(column) = table.columns().first() else {
        return Ok(Default::default());
    };
    let values = ArrayFormatter::try_new(column, &options)?;
    Ok((0..column.len())
        .map(|row| values.value(row).to_string())
        .collect())
}

/// One row as a list of names and values; many as aligned columns.
fn lines(table: &RecordBatch) -> Result<Vec<String>> {
    let options = FormatOptions::default().with_null("null");
    let mut cells: Vec<Vec<String>> = Vec::new();
    for (field, column) in table.schema_ref().fields().iter().zip(table.columns()) {
        let values = ArrayFormatter::try_new(column, &options)?;
        let mut column_cells = vec![field.name().clone()];
        column_cells.extend((0..column.len()).map(|row| values.value(row).to_string()));
        cells.push(column_cells);
    }
    if table.num_rows() == 1 {
        return Ok(vec![
            cells
                .iter()
                .map(|cell| format!("{} {}", cell[0], cell[1]))
                .collect::<Vec<_>>()
                .join(", "),
        ]);
    }
    let widths: Vec<usize> = cells
        .iter()
        .map(|column| {
            column
                .iter()
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    Ok((0..=table.num_rows())
        .map(|row| {
            let line = cells
                .iter()
                .zip(&widths)
                .map(|(column, width)| format!("{:width$}", column[row]));
            line.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        })
        .collect())
}
