//! `as_of_join`: the row of another table that was there at the time of each row.

use arrow::datatypes::{DataType, Field, Schema};
use forebay_model::{Fault, Result, codes, type_words};
use forebay_plan::{
    AsOf, BindScope, ColumnSelector, ConfiguredTransform, JoinBy, JoinOp, MatchDirection, PlanOp,
    Transform,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::brought::ColumnNaming;
use crate::shared::bad_value;
use crate::time::{LengthSpec, TimeColumn, time_column};

/// Columns of another step or source as they were at the time of each row (point in time).
///
/// In: a time column and key columns here and there. Keys have equal types, or are integers of any widths
/// or floats; -0.0 meets 0.0. Times have equal types, or are timestamps of any units that have both a time
/// zone or both none: they are compared in the finer unit, and one that it does not hold is a fault. Out: the other table's columns
/// behind this table's, nullable; one row for each row, in the same order. Of the other table's
/// rows with the key, the last one at or before the row's time counts (`backward`), the first one
/// at or after it (`forward`), or the nearer of both (`nearest`, the earlier where both are as
/// near); of rows with equal times the last. Rows there whose time or `known_at` is null are never
/// met; a null key or time here meets nothing. Both sides may be larger than memory: they are
/// sorted together by key and time, with spilling. A backward join of two sources whose files follow each other in time
/// sorts nothing: it holds the last row of each key, and a new day costs the rows of that day. Learns nothing.
///
/// ```yaml
/// - as_of_join: { with: prices, on: [store, item], columns: [list_price], tolerance: 30d }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn as_of_join(with), example = r#"as_of_join("prices").on(["item_id"]).tolerance("7d")"#)]
pub struct AsOfJoin {
    /// The other step or source.
    pub with: String,
    /// The key columns here; by default those that the source declares. `[]` joins by time alone.
    #[serde(default)]
    pub on: Option<Vec<String>>,
    /// The key columns there, in the same order, where their names differ.
    #[serde(default)]
    pub right_on: Option<Vec<String>>,
    /// The time column here; by default the one that the source declares.
    #[serde(default)]
    pub time: Option<String>,
    /// The time column there; by default the one that the other source declares, else one of the same name.
    #[serde(default)]
    pub right_time: Option<String>,
    /// Which row there counts.
    #[serde(default)]
    pub direction: AsOfDirection,
    /// How far away in time it may be, inclusive: a length such as `7d`; any where left out.
    #[serde(default)]
    pub tolerance: Option<LengthSpec>,
    /// Whether a row of the very same time counts.
    #[serde(default = "yes")]
    pub exact: bool,
    /// The column there that tells when a row became known; it is not seen before. Only backward.
    #[serde(default)]
    pub known_at: Option<String>,
    /// The other table's columns to bring; where left out, all but its keys and times.
    #[serde(default)]
    pub columns: Option<ColumnSelector>,
    /// Put before the names of the columns that are brought.
    #[serde(default)]
    pub prefix: String,
    /// Put behind the names of the columns that are brought.
    #[serde(default)]
    pub suffix: String,
}

/// Which row of the other table counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AsOfDirection {
    /// The last one at or before the row's time.
    #[default]
    Backward,
    /// The first one at or after it.
    Forward,
    /// The nearer of both.
    Nearest,
}

fn yes() -> bool {
    true
}

impl ConfiguredTransform for AsOfJoin {
    const NAME: &'static str = "as_of_join";
}

impl Transform for AsOfJoin {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let other = (scope.other)(&self.with)?;
        let Some(here) = self.on.as_ref().or(scope.series.keys.as_ref()) else {
            return Err(
                Fault::new(codes::MISSING_FIELD, "`as_of_join` needs the key columns").hint(
                    "set `on`, or declare `keys` at the source; `on: []` joins by time alone",
                ),
            );
        };
        let there = self.right_on.as_ref().unwrap_or(here);
        if there.len() != here.len() {
            return Err(bad_value("`on` and `right_on` need one name for each key"));
        }
        if self.known_at.is_some() && self.direction != AsOfDirection::Backward {
            return Err(bad_value(
                "`known_at` needs `direction: backward`: later rows are not known at all",
            ));
        }
        let time = time_column(scope, AsOfJoin::NAME, &self.time)?;
        let declared_time = (scope.other_series)(&self.with).time;
        let right_time = self
            .right_time
            .clone()
            .or(declared_time)
            .unwrap_or_else(|| time.name.clone());
        let mut faults = Vec::new();
        let mut unlike = |here: &String, there: &String, a: &DataType, b: &DataType| {
            let message = format!(
                "`{here}` is {} here and `{there}` is {} in `{}`",
                type_words(a),
                type_words(b),
                self.with
            );
            faults.push(
                Fault::new(codes::COLUMN_TYPE, message)
                    .column(here)
                    .hint("`cast` one of them"),
            );
        };
        for (here, there) in here.iter().zip(there) {
            let (a, b) = (
                scope.field(here)?.data_type(),
                find_field(&other, there)?.data_type(),
            );
            if JoinOp::key_type(a, b).is_none() {
                unlike(here, there, a, b);
            }
        }
        let mut ticks = time.data_type.clone();
        for there in [&right_time].into_iter().chain(&self.known_at) {
            let found = find_field(&other, there)?.data_type();
            match AsOf::time_type(&ticks, found) {
                Some(common) => ticks = common,
                None => unlike(&time.name, there, &time.data_type, found),
            }
        }
        if let Some(fault) = Fault::combine(faults) {
            return Err(fault);
        }
        let passing = |name: &String| {
            there.contains(name) || *name == right_time || Some(name) == self.known_at.as_ref()
        };
        let brought: Vec<&Field> = match &self.columns {
            Some(columns) => columns.resolve(&other)?,
            None => other
                .fields()
                .iter()
                .map(|field| &**field)
                .filter(|field| !passing(field.name()))
                .collect(),
        };
        let naming = ColumnNaming {
            with: &self.with,
            prefix: &self.prefix,
            suffix: &self.suffix,
        };
        let columns = naming.bring(scope, brought)?;
        naming.refuse_unsized(&columns)?;
        let as_of = AsOf {
            tolerance: {
                let ticks = TimeColumn {
                    data_type: ticks,
                    ..time.clone()
                };
                self.tolerance
                    .map(|length| length.ticks(&ticks))
                    .transpose()?
            },
            time: time.name,
            other_time: right_time,
            known_at: self.known_at.clone(),
            direction: match self.direction {
                AsOfDirection::Backward => MatchDirection::Backward,
                AsOfDirection::Forward => MatchDirection::Forward,
                AsOfDirection::Nearest => MatchDirection::Nearest,
            },
            exact: self.exact,
        };
        Ok(vec![PlanOp::Join(JoinOp {
            other: self.with.clone(),
            keys: here.iter().cloned().zip(there.iter().cloned()).collect(),
            matched: None,
            columns,
            expects_match: true,
            by: JoinBy::Time(as_of),
        })])
    }
}

fn find_field<'a>(schema: &'a Schema, name: &str) -> Result<&'a Field> {
    schema
        .field_with_name(name)
        .map_err(|_| forebay_plan::unknown_column(name, schema))
}
