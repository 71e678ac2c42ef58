//! The columns that make time series of rows.

use arrow::datatypes::Schema;
use forebay_model::DuplicateRows;

use crate::PlanOp;

/// Event time and keys of a flow, from the source's declaration. A step that rewrites or drops one of these columns
/// makes it unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeriesColumns {
    /// The event-time column.
    pub time: Option<String>,
    /// Columns that identify a series.
    pub keys: Option<Vec<String>>,
    /// Treatment of rows with the same keys and the same time, where the source declares it.
    pub duplicates: Option<DuplicateRows>,
}

/// Name of a column behind an operation; `None` if the operation rewrites or drops it.
fn name_behind(op: &PlanOp, name: &str) -> Option<String> {
    if op.is_written(name) {
        return None;
    }
    let PlanOp::Project(columns) = op else {
        return Some(name.to_owned());
    };
    let (_, to) = columns.iter().find(|(from, _)| from == name)?;
    Some(to.clone())
}

impl SeriesColumns {
    /// Updates the columns after an operation.
    pub(crate) fn follow(&mut self, op: &PlanOp) {
        if let Some(time) = &self.time {
            self.time = name_behind(op, time);
        }
        if let Some(keys) = &self.keys {
            self.keys = keys.iter().map(|key| name_behind(op, key)).collect();
        }
    }

    /// The columns of the rows of both; none where they differ.
    pub(crate) fn of_both(&self, other: &SeriesColumns) -> SeriesColumns {
        if (&self.time, &self.keys) != (&other.time, &other.keys) {
            return SeriesColumns::default();
        }
        let declared = self.duplicates.zip(other.duplicates);
        SeriesColumns {
            duplicates: declared.map(|(first, second)| first.max(second)),
            ..self.clone()
        }
    }

    /// Restricts the columns to those of a schema.
    pub(crate) fn still_in(&self, schema: &Schema) -> SeriesColumns {
        let is_present = |name: &String| schema.field_with_name(name).is_ok();
        SeriesColumns {
            time: self.time.clone().filter(is_present),
            keys: self.keys.clone().filter(|keys| keys.iter().all(is_present)),
            duplicates: self.duplicates,
        }
    }
}
