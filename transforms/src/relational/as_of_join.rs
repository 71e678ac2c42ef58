//! `as_of_join`: the row of another table that was there at the time of each row.

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use forebay_model::{Fault, Result, codes, type_words};
use forebay_plan::{
    AsOf, BindScope, ColumnSelector, ConfiguredTransform, JoinBy, JoinOp, MatchDirection, PlanOp,
    StepFacts, Transform,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::brought::{BroughtColumn, ColumnNaming};
use crate::shared::bad_value;
use crate::time::{LengthSpec, TimeColumn, time_column};

/// Columns of another step or source as they were at the time of each row (point in time).
///
/// In: a time column and key columns here and there. Keys have equal types, or are integers of any widths,
/// floats, or times of one zone by any name; -0.0 meets 0.0. Times have equal types, or are timestamps of any units that have both a time
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
    /// The column there that tells when a row became known; it is not seen before. Of rows with equal
    /// times, the one that became known last counts. Only backward.
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
    fn facts(&self) -> StepFacts {
        StepFacts {
            other_input: Some(self.with.clone()),
            ..StepFacts::default()
        }
    }

    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let sides = self.sides(scope)?;
        let ticks = self.common_time(scope, &sides)?;
        let columns = self.brought_columns(scope, &sides)?;
        let mut tolerance = None;
        if let Some(length) = self.tolerance {
            tolerance = Some(length.ticks(&ticks)?);
        }
        let as_of = AsOf {
            tolerance,
            time: sides.time.name,
            other_time: sides.other_time,
            known_at: self.known_at.clone(),
            direction: self.direction.into(),
            exact: self.exact,
        };
        let mut keys = Vec::with_capacity(sides.keys.len());
        for (key, other_key) in sides.keys.iter().zip(sides.other_keys) {
            keys.push((key.clone(), other_key.clone()));
        }
        Ok(vec![PlanOp::Join(JoinOp {
            other: self.with.clone(),
            keys,
            matched: None,
            keeps_unmatched: true,
            columns,
            by: JoinBy::Time(as_of),
        })])
    }
}

/// Keys and times of both sides, and the columns of the other one.
struct JoinSides<'a> {
    other: SchemaRef,
    keys: &'a [String],
    other_keys: &'a [String],
    time: TimeColumn,
    other_time: String,
}

impl AsOfJoin {
    fn sides<'a>(&'a self, scope: &BindScope<'a>) -> Result<JoinSides<'a>> {
        let other = (scope.other)(&self.with)?;
        let Some(keys) = self.on.as_ref().or(scope.series.keys.as_ref()) else {
            let message = "`as_of_join` needs the key columns";
            let hint = "set `on`, or declare `keys` at the source; `on: []` joins by time alone";
            return Err(Fault::new(codes::MISSING_FIELD, message).hint(hint));
        };
        let other_keys = self.right_on.as_ref().unwrap_or(keys);
        if other_keys.len() != keys.len() {
            return Err(bad_value("`on` and `right_on` need one name for each key"));
        }
        if self.known_at.is_some() && self.direction != AsOfDirection::Backward {
            return Err(bad_value(
                "`known_at` needs `direction: backward`: later rows are not known at all",
            ));
        }
        let time = time_column(scope, AsOfJoin::NAME, &self.time)?;
        let declared_time = (scope.other_series)(&self.with).time;
        let other_time = match self.right_time.clone().or(declared_time) {
            Some(other_time) => other_time,
            None => time.name.clone(),
        };
        Ok(JoinSides {
            other,
            keys,
            other_keys,
            time,
            other_time,
        })
    }

    /// The time here, in the type in which the times of both sides are compared. Refuses keys and times that cannot be
    /// compared.
    fn common_time(&self, scope: &BindScope<'_>, sides: &JoinSides<'_>) -> Result<TimeColumn> {
        let mut faults = Vec::new();
        for (key, other_key) in sides.keys.iter().zip(sides.other_keys) {
            let data_type = scope.field(key)?.data_type();
            let other_type = find_field(&sides.other, other_key)?.data_type();
            if JoinOp::key_type(data_type, other_type).is_none() {
                faults.push(self.unlike((key, data_type), (other_key, other_type)));
            }
        }
        let time = &sides.time;
        let mut common_time = time.clone();
        for other_time in [&sides.other_time].into_iter().chain(&self.known_at) {
            let other_type = find_field(&sides.other, other_time)?.data_type();
            match AsOf::time_type(&common_time.data_type, other_type) {
                Some(common_type) => common_time.data_type = common_type,
                None => {
                    let fault =
                        self.unlike((&time.name, &time.data_type), (other_time, other_type));
                    faults.push(fault);
                }
            }
        }
        match Fault::combine(faults) {
            Some(fault) => Err(fault),
            None => Ok(common_time),
        }
    }

    /// The fault of columns of both sides that cannot be compared.
    fn unlike(
        &self,
        (name, data_type): (&str, &DataType),
        (other_name, other_type): (&str, &DataType),
    ) -> Fault {
        let message = format!(
            "`{name}` is {} here and `{other_name}` is {} in `{}`",
            type_words(data_type),
            type_words(other_type),
            self.with
        );
        Fault::new(codes::COLUMN_TYPE, message)
            .column(name)
            .hint("`cast` one of them")
    }

    /// The columns of the other side that are brought, under their names here.
    fn brought_columns(
        &self,
        scope: &BindScope<'_>,
        sides: &JoinSides<'_>,
    ) -> Result<Vec<BroughtColumn>> {
        let mut brought: Vec<&Field> = Vec::new();
        if let Some(columns) = &self.columns {
            brought = columns.resolve(&sides.other)?;
        } else {
            for field in sides.other.fields() {
                let name = field.name();
                let is_passing = sides.other_keys.contains(name)
                    || *name == sides.other_time
                    || Some(name) == self.known_at.as_ref();
                if !is_passing {
                    brought.push(field);
                }
            }
        }
        let naming = ColumnNaming {
            with: &self.with,
            prefix: &self.prefix,
            suffix: &self.suffix,
        };
        let columns = naming.bring(scope, brought)?;
        naming.refuse_unsized(&columns)?;
        Ok(columns)
    }
}

impl From<AsOfDirection> for MatchDirection {
    fn from(direction: AsOfDirection) -> MatchDirection {
        match direction {
            AsOfDirection::Backward => MatchDirection::Backward,
            AsOfDirection::Forward => MatchDirection::Forward,
            AsOfDirection::Nearest => MatchDirection::Nearest,
        }
    }
}

fn find_field<'a>(schema: &'a Schema, name: &str) -> Result<&'a Field> {
    schema
        .field_with_name(name)
        .map_err(|_| forebay_plan::unknown_column(name, schema))
}
