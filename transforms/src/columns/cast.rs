//! `cast`: other types for columns.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array};
use arrow::compute::kernels::cmp::neq;
use arrow::compute::{CastOptions, can_cast_types, cast_with_options, nullif};
use arrow::datatypes::{DataType, Float64Type, Int64Type, TimeUnit};
use arrow::util::display::array_value_to_string;
use forebay_model::{
    CALENDAR_DAYS, ColumnClock, Fault, Result, RowChange, TextRules, codes, logical_type, shorten,
    type_label, type_words,
};
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
/// that is not a number, a double beyond `float32`, a time with digits that the type does not hold)
/// is a fault unless `on_error: missing`. Fractions are cut toward zero, and such values are
/// counted; numbers other than 0 are true; dates and timestamps are read from integers as days and
/// ticks since 1970, and a day beyond the years 1 to 9999 does not fit: 20240101 is a date as it is
/// written, for which sources have `formats`. A time with a zone becomes one without by what the clock of
/// its zone shows, as `CAST` in SQL does. Texts are read as CSV files are: `true` and `false` are booleans, numbers
/// beyond the range of their type are none, dates and times are those of ISO 8601, and a time with
/// an offset is that instant in UTC.
///
/// ```yaml
/// - cast: { columns: { qty: float64 } }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn cast(columns),
    example = r#"cast([("qty", TypeName::Float32)]).on_error(OnCastError::Missing)"#
)]
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
        for (columns, target) in &self.columns {
            let target = target.data_type();
            let fields = match scope.columns(&ColumnSelector(vec![columns.clone()])) {
                Ok(fields) => fields,
                Err(fault) => {
                    faults.push(fault);
                    continue;
                }
            };
            for field in fields {
                if !can_cast_types(field.data_type(), &target) {
                    let message = format!(
                        "`{}` is {}, which cannot become {}",
                        field.name(),
                        type_words(field.data_type()),
                        type_words(&target)
                    );
                    faults.push(Fault::new(codes::COLUMN_TYPE, message).column(field.name()));
                    continue;
                }
                let name = field.name().clone();
                let target = target.clone();
                let safe = self.on_error == OnCastError::Missing;
                let nullable = field.is_nullable() || safe;
                let has_fractions =
                    field.data_type().is_floating() || field.data_type().is_decimal();
                let cuts_fractions = has_fractions && target.is_integer();
                let output = field
                    .clone()
                    .with_data_type(target.clone())
                    .with_nullable(nullable);
                let moved = cast_shift(field.data_type(), &target).map(|shift| MovedTime {
                    from: name.clone(),
                    shift,
                });
                let mut map = MapOp::new([&name], [output], {
                    let name = name.clone();
                    move |inputs, _| {
                        inputs
                            .iter()
                            .map(|column| cast_column(column, &target, safe, &name))
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
                if cuts_fractions {
                    map = map.counting(ValueCount::new(RowChange::FractionCut, count_cut));
                }
                ops.push(PlanOp::Map(map.moving(moved).written_nulls(nulls)));
            }
        }
        Fault::combine(faults).map_or(Ok(ops), Err)
    }
}

/// Counts the numbers that lost a fraction.
fn count_cut(original: &ArrayRef, whole: &ArrayRef) -> Result<u64> {
    if original.data_type().is_decimal() {
        // Doubles do not hold all decimals.
        let whole = arrow::compute::cast(whole, original.data_type())?;
        return Ok(neq(original, &whole)?.true_count() as u64);
    }
    let doubles = arrow::compute::cast(original, &DataType::Float64)?;
    let doubles = doubles.as_primitive::<Float64Type>();
    let mut count = 0;
    for (row, double) in doubles.iter().enumerate() {
        let has_fraction = double.is_some_and(|double| double.fract() != 0.0);
        if has_fraction && whole.is_valid(row) {
            count += 1;
        }
    }
    Ok(count)
}

fn cast_column(column: &ArrayRef, target: &DataType, safe: bool, name: &str) -> Result<ArrayRef> {
    if *target != DataType::Utf8 && logical_type(column.data_type()) == DataType::Utf8 {
        return cast_texts(column, target, safe, name);
    }
    if let (DataType::Timestamp(_, Some(_)), DataType::Timestamp(_, None)) =
        (column.data_type(), target)
    {
        let local = local_times(column, name)?;
        return cast_column(&local, target, safe, name);
    }
    if let (DataType::Timestamp(from, _), DataType::Timestamp(to, _)) = (column.data_type(), target)
    {
        let cut = ticks_per(*from, *to).filter(|ticks| *ticks > 1);
        if let Some(ticks) = cut {
            return cast_to_coarser(column, target, ticks, safe, name);
        }
    }
    if *target == DataType::Date32 && column.data_type().is_integer() {
        return cast_to_days(column, target, safe, name);
    }
    if *target == DataType::Float32 && *column.data_type() == DataType::Float64 {
        return cast_to_floats(column, target, safe, name);
    }
    if *target == DataType::Float32 && column.data_type().is_decimal() {
        let doubles = cast_strictly(column, &DataType::Float64, safe, name)?;
        return cast_to_floats(&doubles, target, safe, name);
    }
    let is_far = matches!(
        (column.data_type(), target),
        (
            DataType::Date32,
            DataType::Timestamp(TimeUnit::Nanosecond, _)
        )
    );
    if is_far {
        // Straight from days to nanoseconds, the engine wraps what is too far.
        let microseconds = DataType::Timestamp(TimeUnit::Microsecond, None);
        let column = cast_strictly(column, &microseconds, safe, name)?;
        return cast_strictly(&column, target, safe, name);
    }
    cast_strictly(column, target, safe, name)
}

/// What the clock of a column's zone shows at its instants, in the unit of the column: the rule that
/// `CAST` in SQL follows, too.
fn local_times(column: &ArrayRef, name: &str) -> Result<ArrayRef> {
    let zoned = column.data_type();
    let local = match zoned {
        DataType::Timestamp(unit, _) => DataType::Timestamp(*unit, None),
        other => other.clone(),
    };
    let instants = arrow::compute::cast(column, &DataType::Int64)?;
    let instants = instants.as_primitive::<Int64Type>();
    let clock = ColumnClock::of(zoned)?.filter(ColumnClock::has_zone);
    let Some(clock) = clock else {
        return Ok(arrow::compute::cast(instants, &local)?);
    };
    let local_ticks: Int64Array =
        instants.try_unary(|instant| local_time(&clock, instant, name))?;
    Ok(arrow::compute::cast(&local_ticks, &local)?)
}

fn local_time(clock: &ColumnClock, instant: i64, name: &str) -> Result<i64> {
    let local = clock.local(instant).map(|local| local.and_utc());
    let local = local.map(|local| {
        let seconds = i128::from(local.timestamp()) * 1_000_000_000;
        (seconds + i128::from(local.timestamp_subsec_nanos())) / clock.tick()
    });
    local
        .and_then(|ticks| i64::try_from(ticks).ok())
        .ok_or_else(|| {
            let message = format!("`{name}` holds a time that is beyond the calendar of its zone");
            Fault::new(codes::BAD_ROW, message).column(name)
        })
}

fn cast_texts(column: &ArrayRef, target: &DataType, safe: bool, name: &str) -> Result<ArrayRef> {
    let texts = arrow::compute::cast(column, &DataType::Utf8)?;
    let texts = texts.as_string::<i32>();
    let rules = TextRules::declared();
    if safe {
        return Ok(rules.read(texts, target).values);
    }
    rules.read_all(texts, target).map_err(|row| {
        let value = shorten(texts.value(row));
        let words = type_words(target);
        let message = format!("`{name}` holds `{value}`, which is not {words}");
        lost_fault(message, name).note(rules.problem(texts.value(row), target))
    })
}

/// Times in a coarser unit, where they have no finer digits.
fn cast_to_coarser(
    column: &ArrayRef,
    target: &DataType,
    ticks: i64,
    safe: bool,
    name: &str,
) -> Result<ArrayRef> {
    let numbers = arrow::compute::cast(column, &DataType::Int64)?;
    let numbers = numbers.as_primitive::<Int64Type>();
    let is_exact = |row: usize| numbers.is_null(row) || numbers.value(row) % ticks == 0;
    let Some(lost) = (0..numbers.len()).find(|row| !is_exact(*row)) else {
        return cast_strictly(column, target, safe, name);
    };
    if !safe {
        let value = array_value_to_string(column, lost)?;
        let words = type_words(target);
        let message =
            format!("`{name}` holds `{value}`, which is not {words}: digits of it would be lost");
        return Err(lost_fault(message, name));
    }
    let is_lost: BooleanArray = (0..numbers.len()).map(|row| Some(!is_exact(row))).collect();
    let exact = nullif(column, &is_lost)?;
    cast_strictly(&exact, target, safe, name)
}

/// Whole numbers as days since 1970: none is beyond the calendar.
fn cast_to_days(column: &ArrayRef, target: &DataType, safe: bool, name: &str) -> Result<ArrayRef> {
    let days = arrow::compute::cast(column, &DataType::Int64)?;
    let days = days.as_primitive::<Int64Type>();
    let mut lost_rows = Vec::with_capacity(column.len());
    for row in 0..column.len() {
        let is_day = days.is_valid(row) && CALENDAR_DAYS.contains(&days.value(row));
        lost_rows.push(column.is_valid(row) && !is_day);
    }
    let Some(lost) = lost_rows.iter().position(|is_lost| *is_lost) else {
        return cast_strictly(column, target, safe, name);
    };
    if !safe {
        let value = array_value_to_string(column, lost)?;
        let message = format!(
            "`{name}` holds `{value}`, which is no day of the years 1 to 9999: whole numbers count \
             days since 1970-01-01"
        );
        let note = format!(
            "dates that are written as 20240101 are read with `formats: {{ {name}: \"%Y%m%d\" }}` \
             at the source"
        );
        return Err(lost_fault(message, name).note(note));
    }
    let within = nullif(column, &BooleanArray::from(lost_rows))?;
    cast_strictly(&within, target, safe, name)
}

/// Doubles as floats of 32 bits: none becomes infinite.
fn cast_to_floats(
    column: &ArrayRef,
    target: &DataType,
    safe: bool,
    name: &str,
) -> Result<ArrayRef> {
    let doubles = column.as_primitive::<Float64Type>();
    let mut values = doubles.iter().flatten();
    let Some(beyond) = values.find(|double| is_beyond_floats(*double)) else {
        return cast_strictly(column, target, safe, name);
    };
    if !safe {
        let label = type_label(target);
        let message = format!("`{name}` holds `{beyond:e}`, which is beyond the range of {label}");
        return Err(lost_fault(message, name));
    }
    let is_lost: BooleanArray = doubles
        .iter()
        .map(|double| Some(double.is_some_and(is_beyond_floats)))
        .collect();
    let within = nullif(column, &is_lost)?;
    cast_strictly(&within, target, safe, name)
}

fn is_beyond_floats(double: f64) -> bool {
    double.is_finite() && (double as f32).is_infinite()
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

fn cast_strictly(column: &ArrayRef, target: &DataType, safe: bool, name: &str) -> Result<ArrayRef> {
    let options = |safe| CastOptions {
        safe,
        ..CastOptions::default()
    };
    cast_with_options(column, target, &options(safe)).map_err(|error| {
        // Once more, leniently, to find the value.
        let lost = cast_with_options(column, target, &options(true))
            .ok()
            .and_then(|lenient| {
                let row =
                    (0..column.len()).find(|row| column.is_valid(*row) && lenient.is_null(*row))?;
                array_value_to_string(column, row).ok()
            });
        let words = type_words(target);
        let message = match lost {
            Some(value) => format!("`{name}` holds `{value}`, which is not {words}"),
            None => format!("`{name}` holds a value that is not {words}"),
        };
        lost_fault(message, name).cause(error)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Decimal128Array, Decimal256Array, Float64Array, TimestampMicrosecondArray};
    use arrow::datatypes::{Date32Type, Float32Type, TimestampMicrosecondType, i256};

    use super::*;

    #[test]
    fn numbers_that_lose_a_fraction_are_counted() {
        // 12345678901234567.5, which is no double, and 1.0.
        let tenths = vec![Some(123_456_789_012_345_675), Some(10), None];
        let decimals = Decimal128Array::from(tenths);
        let decimals = decimals.with_precision_and_scale(20, 1).unwrap();
        let doubles = Float64Array::from(vec![Some(-0.0), Some(-0.5), Some(2.0), None]);
        let columns: [ArrayRef; 2] = [Arc::new(decimals), Arc::new(doubles)];
        for column in columns {
            let whole = arrow::compute::cast(&column, &DataType::Int64).unwrap();
            let type_name = column.data_type();
            assert_eq!(count_cut(&column, &whole).unwrap(), 1, "{type_name}");
        }
    }

    /// Decimals of 256 bits have more digits before the point than floats of 32 bits.
    #[test]
    fn decimals_beyond_floats_are_no_infinities() {
        let ten = i256::from_i128(10);
        let far = ten.checked_pow(50).unwrap();
        let decimals = Decimal256Array::from(vec![Some(ten), None, Some(far)]);
        let decimals = decimals.with_precision_and_scale(60, 1).unwrap();
        let column: ArrayRef = Arc::new(decimals);
        let floats = cast_column(&column.slice(0, 2), &DataType::Float32, false, "price").unwrap();
        assert_eq!(floats.as_primitive::<Float32Type>().value(0), 1.0);
        let fault = cast_column(&column, &DataType::Float32, false, "price").unwrap_err();
        assert_eq!(fault.code(), codes::BAD_ROW);
        let floats = cast_column(&column, &DataType::Float32, true, "price").unwrap();
        assert_eq!(floats.null_count(), 2);
    }

    #[test]
    fn numbers_beyond_the_calendar_are_no_days() {
        let days: ArrayRef = Arc::new(Int64Array::from(vec![Some(19_723), None, Some(-1)]));
        let dates = cast_column(&days, &DataType::Date32, false, "day").unwrap();
        assert_eq!(dates.null_count(), 1);
        let written: ArrayRef = Arc::new(Int64Array::from(vec![Some(2_932_896), Some(20_240_101)]));
        let fault = cast_column(&written, &DataType::Date32, false, "day").unwrap_err();
        assert_eq!(fault.code(), codes::BAD_ROW);
        assert!(fault.message().contains("20240101"), "{fault}");
        let dates = cast_column(&written, &DataType::Date32, true, "day").unwrap();
        assert!(dates.is_valid(0) && dates.is_null(1));
    }

    #[test]
    fn times_of_a_zone_become_what_its_clock_shows() {
        // 2024-03-31 00:59:59 and 01:00:00 in UTC: the clock of Berlin skips an hour.
        let instants = vec![
            Some(1_711_846_799_000_000),
            Some(1_711_846_800_000_000),
            None,
        ];
        for (zone, seconds) in [
            ("Europe/Berlin", [3_600, 7_200]),
            ("+02:00", [7_200; 2]),
            ("UTC", [0; 2]),
        ] {
            let zoned = TimestampMicrosecondArray::from(instants.clone()).with_timezone(zone);
            let zoned: ArrayRef = Arc::new(zoned);
            for target in [TypeName::Timestamp, TypeName::TimestampNs] {
                let local = cast_column(&zoned, &target.data_type(), false, "t").unwrap();
                let unit = DataType::Timestamp(TimeUnit::Microsecond, None);
                let local = arrow::compute::cast(&local, &unit).unwrap();
                let local = local.as_primitive::<TimestampMicrosecondType>();
                for (row, seconds) in seconds.into_iter().enumerate() {
                    let expected = instants[row].unwrap() + seconds * 1_000_000;
                    assert_eq!(local.value(row), expected, "{zone} {target:?}");
                }
                assert!(local.is_null(2));
            }
            let days = cast_column(&zoned, &DataType::Date32, false, "t").unwrap();
            let day = days.as_primitive::<Date32Type>().value(0);
            assert_eq!(day, 19_813, "{zone}");
        }
    }

    #[test]
    fn types_are_shown_as_specs_spell_them() {
        let names = [
            "int8",
            "int16",
            "int32",
            "int64",
            "uint8",
            "uint16",
            "uint32",
            "uint64",
            "float32",
            "float64",
            "string",
            "boolean",
            "date",
            "timestamp",
            "timestamp_ns",
            "timestamp_utc",
        ];
        for name in names {
            let declared: TypeName = serde_json::from_value(name.into()).unwrap();
            assert_eq!(type_label(&declared.data_type()), name);
        }
    }
}
