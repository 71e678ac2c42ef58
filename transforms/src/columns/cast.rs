//! `cast`: other types for columns.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::compute::{CastOptions, can_cast_types, cast_with_options, nullif};
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use arrow::util::display::array_value_to_string;
use forebay_model::{Fault, Result, TextRules, codes, logical_type, shorten};
use forebay_plan::{
    BindScope, ColumnSelector, ConfiguredTransform, MapOp, MovedTime, PlanOp, Transform,
    ValueCount, WrittenNulls, cast_shift,
};
use forebay_setters::Setters;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Changes the types of columns in place.
///
/// Null stays null. A value that does not fit (an integer out of range, NaN as an integer, text
/// that is not a number, a time with digits that the type does not hold) is a fault unless
/// `on_error: missing`. Fractions are cut toward zero; doubles beyond `float32` become infinite;
/// numbers other than 0 are true; dates and timestamps are read from integers as days and ticks
/// since 1970. Texts are read as CSV files are: `true` and `false` are booleans, numbers beyond the
/// range of their type are none, dates and times are those of ISO 8601, and a time with an offset
/// is that instant in UTC.
///
/// ```yaml
/// - cast: { columns: { qty: float64 } }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn cast(columns), example = r#"cast([("qty", TypeName::Float32)]).on_error(OnCastError::Missing)"#)]
pub struct CastColumns {
    /// The new type of each column; patterns such as `qty_*` and `type:integer` are allowed.
    pub columns: IndexMap<String, TypeName>,
    /// What becomes of a value that does not fit.
    #[serde(default)]
    pub on_error: OnCastError,
}

/// What becomes of a value that cannot be had.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnCastError {
    /// The run stops and names the value.
    #[default]
    Error,
    /// It becomes null.
    Missing,
}

/// A type that columns can be cast to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // The names say it.
pub enum TypeName {
    Int8,
    Int16,
    Int32,
    Int64,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Float32,
    Float64,
    String,
    Boolean,
    Date,
    /// Microseconds since 1970-01-01, without a time zone.
    Timestamp,
    /// Nanoseconds since 1970-01-01, without a time zone.
    TimestampNs,
    /// Microseconds since 1970-01-01, in UTC.
    TimestampUtc,
}

impl TypeName {
    /// Arrow's type.
    pub fn data_type(self) -> DataType {
        match self {
            TypeName::Int8 => DataType::Int8,
            TypeName::Int16 => DataType::Int16,
            TypeName::Int32 => DataType::Int32,
            TypeName::Int64 => DataType::Int64,
            TypeName::Uint8 => DataType::UInt8,
            TypeName::Uint16 => DataType::UInt16,
            TypeName::Uint32 => DataType::UInt32,
            TypeName::Uint64 => DataType::UInt64,
            TypeName::Float32 => DataType::Float32,
            TypeName::Float64 => DataType::Float64,
            TypeName::String => DataType::Utf8,
            TypeName::Boolean => DataType::Boolean,
            TypeName::Date => DataType::Date32,
            TypeName::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            TypeName::TimestampNs => DataType::Timestamp(TimeUnit::Nanosecond, None),
            TypeName::TimestampUtc => {
                DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
            }
        }
    }
}

impl ConfiguredTransform for CastColumns {
    const NAME: &'static str = "cast";
}

impl Transform for CastColumns {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let mut ops = Vec::new();
        let mut faults = Vec::new();
        for (columns, wanted) in &self.columns {
            let wanted = wanted.data_type();
            let fields = match scope.columns(&ColumnSelector(vec![columns.clone()])) {
                Ok(fields) => fields,
                Err(fault) => {
                    faults.push(fault);
                    continue;
                }
            };
            for field in fields {
                if !can_cast_types(field.data_type(), &wanted) {
                    let message = format!(
                        "`{}` is {}, which cannot become {wanted}",
                        field.name(),
                        field.data_type()
                    );
                    faults.push(Fault::new(codes::COLUMN_TYPE, message).column(field.name()));
                    continue;
                }
                let (name, wanted, safe) = (
                    field.name().clone(),
                    wanted.clone(),
                    self.on_error == OnCastError::Missing,
                );
                let nullable = field.is_nullable() || safe;
                let output = field
                    .clone()
                    .with_data_type(wanted.clone())
                    .with_nullable(nullable);
                let moved = cast_shift(field.data_type(), &wanted).map(|shift| MovedTime {
                    from: name.clone(),
                    shift,
                });
                let mut map = MapOp::new([&name], [output], {
                    let name = name.clone();
                    move |inputs, _| {
                        inputs
                            .iter()
                            .map(|column| cast_column(column, &wanted, safe, &name))
                            .collect()
                    }
                });
                let nulls = match self.on_error {
                    OnCastError::Missing => WrittenNulls::Made("makes values null that do not fit"),
                    OnCastError::Error => WrittenNulls::Read,
                };
                if safe {
                    map = map.counting(ValueCount::nulled());
                }
                ops.push(PlanOp::Map(map.moving(moved).written_nulls(nulls)));
            }
        }
        Fault::combine(faults).map_or(Ok(ops), Err)
    }
}

fn cast_column(column: &ArrayRef, wanted: &DataType, safe: bool, name: &str) -> Result<ArrayRef> {
    if *wanted != DataType::Utf8 && logical_type(column.data_type()) == DataType::Utf8 {
        return cast_texts(column, wanted, safe, name);
    }
    if let (DataType::Timestamp(from, _), DataType::Timestamp(to, _)) = (column.data_type(), wanted)
    {
        let cut = ticks_per(*from, *to).filter(|ticks| *ticks > 1);
        if let Some(ticks) = cut {
            return cast_to_coarser(column, wanted, ticks, safe, name);
        }
    }
    let is_far = matches!(
        (column.data_type(), wanted),
        (
            DataType::Date32,
            DataType::Timestamp(TimeUnit::Nanosecond, _)
        )
    );
    if is_far {
        // Straight from days to nanoseconds, the engine wraps what is too far.
        let microseconds = DataType::Timestamp(TimeUnit::Microsecond, None);
        let column = cast_strictly(column, &microseconds, safe, name)?;
        return cast_strictly(&column, wanted, safe, name);
    }
    cast_strictly(column, wanted, safe, name)
}

fn cast_texts(column: &ArrayRef, wanted: &DataType, safe: bool, name: &str) -> Result<ArrayRef> {
    let texts = arrow::compute::cast(column, &DataType::Utf8)?;
    let texts = texts.as_string::<i32>();
    let rules = TextRules::declared();
    if safe {
        return Ok(rules.read(texts, wanted).values);
    }
    rules.read_all(texts, wanted).map_err(|row| {
        let value = shorten(texts.value(row));
        let message = format!("`{name}` holds `{value}`, which is not {wanted}");
        lost_fault(message, name).note(rules.problem(texts.value(row), wanted))
    })
}

/// Times in a coarser unit, where they have no finer digits.
fn cast_to_coarser(
    column: &ArrayRef,
    wanted: &DataType,
    ticks: i64,
    safe: bool,
    name: &str,
) -> Result<ArrayRef> {
    let numbers = arrow::compute::cast(column, &DataType::Int64)?;
    let numbers = numbers.as_primitive::<Int64Type>();
    let is_exact = |row: usize| numbers.is_null(row) || numbers.value(row) % ticks == 0;
    let Some(lost) = (0..numbers.len()).find(|row| !is_exact(*row)) else {
        return cast_strictly(column, wanted, safe, name);
    };
    if !safe {
        let value = array_value_to_string(column, lost)?;
        let message =
            format!("`{name}` holds `{value}`, which is not {wanted}: digits of it would be lost");
        return Err(lost_fault(message, name));
    }
    let is_lost: BooleanArray = (0..numbers.len()).map(|row| Some(!is_exact(row))).collect();
    let exact = nullif(column, &is_lost)?;
    cast_strictly(&exact, wanted, safe, name)
}

/// Ticks of a unit in one of another.
fn ticks_per(fine: TimeUnit, coarse: TimeUnit) -> Option<i64> {
    let per_second = |unit: TimeUnit| match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    };
    let ticks: i64 = per_second(fine) / per_second(coarse);
    (ticks > 0).then_some(ticks)
}

fn lost_fault(message: String, name: &str) -> Fault {
    Fault::new(codes::BAD_ROW, message)
        .column(name)
        .hint("set `on_error: missing` to make such values null")
}

fn cast_strictly(column: &ArrayRef, wanted: &DataType, safe: bool, name: &str) -> Result<ArrayRef> {
    let options = |safe| CastOptions {
        safe,
        ..CastOptions::default()
    };
    cast_with_options(column, wanted, &options(safe)).map_err(|error| {
        // Once more, leniently, to find the value.
        let lost = cast_with_options(column, wanted, &options(true))
            .ok()
            .and_then(|lenient| {
                let row =
                    (0..column.len()).find(|row| column.is_valid(*row) && lenient.is_null(*row))?;
                array_value_to_string(column, row).ok()
            });
        let message = match lost {
            Some(value) => format!("`{name}` holds `{value}`, which is not {wanted}"),
            None => format!("`{name}` holds a value that is not {wanted}"),
        };
        lost_fault(message, name).cause(error)
    })
}
