//! Values that changed when the future was scrambled.

use forebay_model::{Fault, SpecLocation, codes};
use serde::Serialize;

/// The result of a leak check.
#[derive(Debug, Clone, Serialize)]
pub struct LeakReport {
    /// The times at which the data was cut, in the order in which they were tried. Rows moved at the last one, or
    /// at none.
    pub cuts: Vec<CutoffReport>,
}

/// The rows up to a time, before and after all later rows were scrambled.
#[derive(Debug, Clone, Serialize)]
pub struct CutoffReport {
    /// The time, in words: `at or before 2016-04-24`.
    pub past: String,
    /// Description of the future: `after 2016-04-24`.
    pub future: String,
    /// Per source with a time.
    pub sources: Vec<ScrambledSource>,
    /// Per sink.
    pub sinks: Vec<SinkComparison>,
}

/// A source whose future was scrambled.
#[derive(Debug, Clone, Serialize)]
pub struct ScrambledSource {
    /// The source.
    pub source: String,
    /// The columns that were scrambled.
    pub columns: Vec<String>,
}

/// A sink's rows in both runs.
#[derive(Debug, Clone, Serialize)]
pub struct SinkComparison {
    /// The sink.
    pub sink: String,
    /// Rows of the past that were compared.
    pub rows: u64,
    /// Rows after the cut that were compared in the columns that must be known by then.
    pub rows_ahead: u64,
    /// Rows after the cut, as near, that were not compared: they are in one of the outputs alone, since a step removes
    /// rows by values that were scrambled, or several rows have their keys and time.
    pub rows_ahead_left_out: u64,
    /// True if more rows lie after the cut than are compared at most.
    pub rows_ahead_cut: bool,
    /// Columns that were compared.
    pub columns: usize,
    /// The columns that moved.
    pub moved: Vec<LeakedColumn>,
    /// The first row at which the outputs differ, if rows were added, removed or reordered.
    pub misplaced: Option<RowMismatch>,
}

/// A column that moved.
#[derive(Debug, Clone, Serialize)]
pub struct LeakedColumn {
    /// The column.
    pub column: String,
    /// Number of rows with another value.
    pub rows: u64,
    /// The first of them: its keys and its time.
    pub first: String,
    /// The value there.
    pub value: String,
    /// The value with another future.
    pub other: String,
    /// The step that wrote the column.
    pub step: Option<String>,
    /// The step that looked ahead, in words, if it is known.
    pub cause: Option<String>,
    /// True if it moved after the cut only, where it must still be known.
    pub is_ahead: bool,
    /// Remedy for the leak.
    #[serde(skip)]
    pub hint: String,
    /// Place of the step that looked ahead, in the spec.
    #[serde(skip)]
    pub at: Option<SpecLocation>,
}

/// The first place at which the rows of both runs differ.
#[derive(Debug, Clone, Serialize)]
pub struct RowMismatch {
    /// The row's number among those of the past.
    pub row: u64,
    /// Keys and time of the row, if there is one.
    pub found: Option<String>,
    /// Keys and time of the row with another future.
    pub other: Option<String>,
}

impl LeakReport {
    /// The fault for all changes; `None` without any.
    pub fn fault(&self) -> Option<Fault> {
        Fault::combine(self.cuts.iter().flat_map(CutoffReport::faults).collect())
    }
}

impl CutoffReport {
    fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        for sink in &self.sinks {
            if let Some(misplaced) = &sink.misplaced {
                let row = |row: &Option<String>| row.clone().unwrap_or_else(|| "no row".to_owned());
                let message = format!(
                    "rows {} in sink `{}` come or go when later rows are scrambled: row {} is {}, \
                     and was {}",
                    self.past,
                    sink.sink,
                    misplaced.row,
                    row(&misplaced.other),
                    row(&misplaced.found)
                );
                let hint = "a filter, join or query looks at later rows: let it use columns of \
                            its own row only";
                faults.push(Fault::new(codes::LOOKAHEAD, message).hint(hint));
            }
            for moved in &sink.moved {
                let message = format!(
                    "`{}` in sink `{}` moves when later rows are scrambled",
                    moved.column, sink.sink
                );
                let mut fault = Fault::new(codes::LOOKAHEAD, message)
                    .column(&moved.column)
                    .hint(&moved.hint);
                if let Some(step) = &moved.step {
                    fault = fault.step(step);
                }
                let which = if moved.is_ahead {
                    format!(
                        "{} rows within the horizon {}",
                        sink.rows_ahead, self.future
                    )
                } else {
                    format!("{} rows {}", sink.rows, self.past)
                };
                let rows = format!(
                    "{} of {which} moved, first {}: {} became {}",
                    moved.rows, moved.first, moved.value, moved.other
                );
                let cause = moved.cause.iter().cloned();
                fault = cause.chain([rows]).fold(fault, Fault::note);
                faults.push(fault.at(moved.at.as_ref()));
            }
        }
        faults
    }
}
