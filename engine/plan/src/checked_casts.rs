//! Values of casts that the query engine computes too loosely, at any depth of lists.
//!
//! Texts are read by the grammar of files. A time becomes the tick of a coarser unit in which it lies, and the day of its
//! local clock as a date in milliseconds (Arrow's date64). Numbers beyond a float, a date or a time of day are refused, and
//! numbers with fractions become the tick at or below them.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, ListArray, UInt32Array};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{CastOptions, can_cast_types, cast, cast_with_options, is_null, nullif, take};
use arrow::datatypes::{
    DataType, Field, FieldRef, Fields, Float64Type, Int64Type, IntervalUnit, TimeUnit,
};
use datafusion::common::DataFusionError;
use forebay_model::{TextRules, column_bytes, logical_type, tick_nanoseconds};

use crate::day_counts::{
    dates_of_numbers, days_of_dates, days_of_numbers, floored_numbers, times_of_numbers,
};
use crate::evaluation::check_memory;
use crate::interval_texts::day_times_of_texts;
use crate::tried_values::add_tried_nulls;

/// Bytes of a value of a type without a fixed width.
const VALUE_BYTES: usize = 16;

/// The rule by which a cast is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CastCheck {
    /// Texts by the grammar of files.
    Texts,
    /// Texts as intervals of days and milliseconds, without months.
    DayTimes,
    /// Times as ticks of a coarser unit.
    CoarserTimes,
    /// Times as midnights of their days.
    DatesOfTimes,
    /// Dates in milliseconds as days, or as times.
    Dates,
    /// Numbers as floats that hold them.
    NarrowFloats,
    /// Whole numbers as days since 1970.
    CountedDays,
    /// Whole numbers as dates in milliseconds.
    CountedDates,
    /// Whole numbers as ticks since midnight.
    CountedClocks,
    /// Numbers with fractions as ticks since 1970.
    FlooredTicks,
    /// Values of lists, dictionaries or runs.
    Inside,
}

/// True for a cast whose values are checked.
pub(crate) fn is_checked_cast(of: &DataType, target: &DataType) -> bool {
    cast_check(of, target).is_some()
}

fn cast_check(of: &DataType, target: &DataType) -> Option<CastCheck> {
    use DataType as T;
    let of = logical_type(of);
    if of == T::Utf8 && has_grammar(target) {
        return Some(CastCheck::Texts);
    }
    if of.is_integer() && *target == T::Date32 {
        return Some(CastCheck::CountedDays);
    }
    if of == *target || !can_cast_types(&of, target) {
        return None;
    }
    let is_whole = of.is_integer();
    let has_fractions = of.is_floating() || of.is_decimal();
    match (&of, target) {
        (T::Utf8, T::Interval(IntervalUnit::DayTime)) => Some(CastCheck::DayTimes),
        (T::Timestamp(unit, _), target) if is_coarser(target, *unit) => {
            Some(CastCheck::CoarserTimes)
        }
        (T::Timestamp(..), T::Date64) => Some(CastCheck::DatesOfTimes),
        (T::Date64, T::Date32 | T::Timestamp(..)) => Some(CastCheck::Dates),
        (T::Timestamp(..) | T::Duration(_), T::Float16) => Some(CastCheck::NarrowFloats),
        (T::Float64, T::Float16 | T::Float32) => Some(CastCheck::NarrowFloats),
        (T::Float32, T::Float16) => Some(CastCheck::NarrowFloats),
        (_, T::Float16 | T::Float32) if of.is_decimal() => Some(CastCheck::NarrowFloats),
        (_, T::Float16) if is_whole => Some(CastCheck::NarrowFloats),
        (_, T::Date64) if is_whole => Some(CastCheck::CountedDates),
        (_, T::Time32(_) | T::Time64(_)) if is_whole => Some(CastCheck::CountedClocks),
        (_, T::Timestamp(..)) if has_fractions => Some(CastCheck::FlooredTicks),
        _ => has_checked_inside(&of, target).then_some(CastCheck::Inside),
    }
}

/// True for a cast of lists, or to lists, dictionaries or runs, whose values are checked.
fn has_checked_inside(of: &DataType, target: &DataType) -> bool {
    if let Some(values) = repeated_values(target) {
        return is_checked_cast(of, values);
    }
    if let Some(values) = repeated_values(of) {
        return is_checked_cast(values, target);
    }
    match (item_of(of), item_of(target)) {
        (Some(item), Some(target_item)) => {
            is_checked_cast(item.data_type(), target_item.data_type())
        }
        (None, Some(target_item)) => is_checked_cast(of, target_item.data_type()),
        // A list of one value becomes that value.
        (Some(item), None) => is_checked_cast(item.data_type(), target),
        (None, None) => false,
    }
}

/// True for a cast of structs or maps that has checked casts of parts. No function of ours computes these.
pub(crate) fn has_checked_parts(of: &DataType, target: &DataType) -> bool {
    match (of, target) {
        (DataType::Struct(fields), DataType::Struct(target_fields)) => {
            has_checked_fields(fields, target_fields)
        }
        (DataType::Map(entries, _), DataType::Map(target_entries, _)) => {
            has_checked_parts(entries.data_type(), target_entries.data_type())
        }
        _ => match (item_of(of), item_of(target)) {
            (Some(item), Some(target_item)) => {
                has_checked_parts(item.data_type(), target_item.data_type())
            }
            _ => false,
        },
    }
}

/// True if one of the fields, by name or else in order, has a checked cast.
fn has_checked_fields(fields: &Fields, target_fields: &Fields) -> bool {
    let mut by_name = Vec::with_capacity(target_fields.len());
    for target in target_fields {
        let same_name = fields.iter().find(|field| field.name() == target.name());
        by_name.extend(same_name.map(|field| (field, target)));
    }
    if by_name.len() < target_fields.len() {
        by_name = fields.iter().zip(target_fields).collect();
    }
    by_name.into_iter().any(|(field, target)| {
        let of = field.data_type();
        let target = target.data_type();
        is_checked_cast(of, target) || has_checked_parts(of, target)
    })
}

/// The type of the values of a dictionary or of runs.
fn repeated_values(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::Dictionary(_, values) => Some(values),
        DataType::RunEndEncoded(_, values) => Some(values.data_type()),
        _ => None,
    }
}

/// The field of the values of lists.
fn item_of(data_type: &DataType) -> Option<&FieldRef> {
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => Some(item),
        _ => None,
    }
}

/// The values of a cast. With `is_try`, values that the type does not hold are null.
pub(crate) fn cast_values(
    column: &ArrayRef,
    target: &DataType,
    is_try: bool,
) -> Result<ArrayRef, DataFusionError> {
    let column = if matches!(column.data_type(), DataType::Dictionary(..)) {
        &cast(column, &logical_type(column.data_type()))?
    } else {
        column
    };
    let Some(check) = cast_check(column.data_type(), target) else {
        return Ok(cast_with_options(column, target, &options(is_try))?);
    };
    match check {
        CastCheck::Texts => values_of_texts(column, target, is_try),
        CastCheck::DayTimes => day_times_of_texts(column, &options(is_try)),
        CastCheck::CoarserTimes => in_coarser_unit(column, target),
        CastCheck::DatesOfTimes => {
            let days = cast_with_options(column, &DataType::Date32, &options(is_try))?;
            Ok(cast(&days, target)?)
        }
        CastCheck::Dates => as_days_or_times(column, target, is_try),
        CastCheck::NarrowFloats => in_narrower_float(column, target, is_try),
        CastCheck::CountedDays => days_of_numbers(column, is_try),
        CastCheck::CountedDates => dates_of_numbers(column, is_try),
        CastCheck::CountedClocks => times_of_numbers(column, target, is_try),
        CastCheck::FlooredTicks => times_of_fractions(column, target, is_try),
        CastCheck::Inside => values_inside(column, target, is_try),
    }
}

fn options(is_try: bool) -> CastOptions<'static> {
    CastOptions {
        safe: is_try,
        ..CastOptions::default()
    }
}

/// Values of lists, dictionaries or runs, cast one by one.
fn values_inside(
    column: &ArrayRef,
    target: &DataType,
    is_try: bool,
) -> Result<ArrayRef, DataFusionError> {
    let strict = options(false);
    if let Some(target_values) = repeated_values(target) {
        let values = cast_values(column, target_values, is_try)?;
        return Ok(cast_with_options(&values, target, &strict)?);
    }
    if let Some(values) = repeated_values(column.data_type()) {
        let plain = cast_with_options(column, values, &strict)?;
        return cast_values(&plain, target, is_try);
    }
    match (item_of(column.data_type()), item_of(target)) {
        (Some(item), Some(target_item)) => {
            values_of_lists(column, item, target_item.data_type(), target, is_try)
        }
        // Each value becomes a list of one.
        (None, Some(target_item)) => {
            let values = cast_values(column, target_item.data_type(), is_try)?;
            Ok(cast_with_options(&values, target, &strict)?)
        }
        // Each list has one value.
        (Some(item), None) => {
            let values = cast_with_options(column, item.data_type(), &strict)?;
            cast_values(&values, target, is_try)
        }
        (None, None) => Err(internal("a cast of the values of a type without values")),
    }
}

/// Lists whose values are cast from those of `item` to a type, as lists of a target.
fn values_of_lists(
    column: &ArrayRef,
    item: &FieldRef,
    value_type: &DataType,
    target: &DataType,
    is_try: bool,
) -> Result<ArrayRef, DataFusionError> {
    let strict = options(false);
    let lists = cast_with_options(column, &DataType::List(Arc::clone(item)), &strict)?;
    let lists = lists.as_list::<i32>();
    let values = spanned_values(lists);
    let value_bytes = value_type.primitive_width().unwrap_or(VALUE_BYTES);
    let target_bytes = values.len().saturating_mul(value_bytes);
    check_memory(target_bytes as u128 + column_bytes(&values) as u128)?;
    let values = valid_values(lists, values)?;
    let mut lengths = Vec::with_capacity(lists.len());
    for row in 0..lists.len() {
        lengths.push(valid_length(lists, row));
    }
    let target_values = cast_values(&values, value_type, is_try)?;
    if is_try {
        add_tried_nulls(&values, &target_values);
    }
    let field = Field::new_list_field(value_type.clone(), true);
    let target_lists = ListArray::try_new(
        Arc::new(field),
        OffsetBuffer::from_lengths(lengths),
        target_values,
        lists.nulls().cloned(),
    )?;
    // Lists of another length than a fixed one are no values of the type.
    Ok(cast_with_options(&target_lists, target, &options(is_try))?)
}

/// Number of values of a list: none of a null.
fn valid_length(lists: &ListArray, row: usize) -> usize {
    if lists.is_null(row) {
        return 0;
    }
    lists.value_length(row) as usize
}

/// The values from the first list to the last.
fn spanned_values(lists: &ListArray) -> ArrayRef {
    let bounds = lists.value_offsets();
    let begin = bounds.first().map_or(0, |begin| *begin as usize);
    let end = bounds.last().map_or(0, |end| *end as usize);
    lists.values().slice(begin, end - begin)
}

/// The values of lists, given those from the first list to the last, without those that lie below nulls.
fn valid_values(lists: &ListArray, spanned: ArrayRef) -> Result<ArrayRef, DataFusionError> {
    let hides_values =
        (0..lists.len()).any(|row| lists.is_null(row) && lists.value_length(row) > 0);
    if !hides_values {
        return Ok(spanned);
    }
    let mut picks = Vec::with_capacity(spanned.len());
    let mut begin = 0;
    for row in 0..lists.len() {
        picks.extend(begin..begin + valid_length(lists, row) as u32);
        begin += lists.value_length(row) as u32;
    }
    Ok(take(&spanned, &UInt32Array::from(picks), None)?)
}

/// True for times in a unit above another one.
fn is_coarser(data_type: &DataType, than: TimeUnit) -> bool {
    matches!(data_type, DataType::Timestamp(unit, _) if *unit < than)
}

/// Times in a coarser unit: for each the tick in which it lies.
fn in_coarser_unit(times: &ArrayRef, target: &DataType) -> Result<ArrayRef, DataFusionError> {
    let DataType::Timestamp(_, zone) = times.data_type() else {
        return Err(internal("a cast of other values than times"));
    };
    let DataType::Timestamp(unit, _) = target else {
        return Err(internal("a cast of times to another type"));
    };
    let ratio = tick_nanoseconds(target)
        .zip(tick_nanoseconds(times.data_type()))
        .and_then(|(coarse, fine)| i64::try_from(coarse / fine).ok())
        .ok_or_else(|| internal("a cast of times without a unit"))?;
    let ticks = cast(times, &DataType::Int64)?;
    let ticks = ticks.as_primitive::<Int64Type>();
    let coarse: Int64Array = ticks.unary(|tick| tick.div_euclid(ratio));
    let coarse = cast(&coarse, &DataType::Timestamp(*unit, zone.clone()))?;
    Ok(cast_with_options(&coarse, target, &options(false))?)
}

/// Dates in milliseconds as days, or as times. With `is_try`, dates that the type does not hold are null.
fn as_days_or_times(
    dates: &ArrayRef,
    target: &DataType,
    is_try: bool,
) -> Result<ArrayRef, DataFusionError> {
    if *target == DataType::Date32 {
        return days_of_dates(dates, is_try);
    }
    let ticks = cast(dates, &DataType::Int64)?;
    let times = cast(&ticks, &DataType::Timestamp(TimeUnit::Millisecond, None))?;
    if is_coarser(target, TimeUnit::Millisecond) {
        return in_coarser_unit(&times, target);
    }
    Ok(cast_with_options(&times, target, &options(is_try))?)
}

/// Numbers as floats of a narrower type. Infinity stays infinity, and no other value becomes it; with `is_try`, such values
/// are null.
fn in_narrower_float(
    numbers: &ArrayRef,
    target: &DataType,
    is_try: bool,
) -> Result<ArrayRef, DataFusionError> {
    let narrow = cast(numbers, target)?;
    let wide = cast(numbers, &DataType::Float64)?;
    let wide = wide.as_primitive::<Float64Type>();
    let back = cast(&narrow, &DataType::Float64)?;
    let back = back.as_primitive::<Float64Type>();
    let is_beyond = |row: usize| {
        wide.is_valid(row) && wide.value(row).is_finite() && back.value(row).is_infinite()
    };
    let Some(row) = (0..wide.len()).find(|row| is_beyond(*row)) else {
        return Ok(narrow);
    };
    if !is_try {
        return Err(DataFusionError::Execution(format!(
            "{:e} is beyond the range of {target}",
            wide.value(row)
        )));
    }
    let beyond: BooleanArray = (0..wide.len()).map(|row| Some(is_beyond(row))).collect();
    Ok(nullif(&narrow, &beyond)?)
}

/// Numbers with fractions as the ticks at or below them. With `is_try`, numbers that 64 bits do not hold are null.
fn times_of_fractions(
    numbers: &ArrayRef,
    target: &DataType,
    is_try: bool,
) -> Result<ArrayRef, DataFusionError> {
    // Half floats do not hold the whole numbers that are compared.
    let mut numbers = if *numbers.data_type() == DataType::Float16 {
        cast(numbers, &DataType::Float32)?
    } else {
        Arc::clone(numbers)
    };
    if is_try {
        let whole = cast(&numbers, &DataType::Int64)?;
        numbers = nullif(&numbers, &is_null(&whole)?)?;
    }
    Ok(cast(&floored_numbers(&numbers)?, target)?)
}

/// True if the grammar of texts has values of a type.
fn has_grammar(of: &DataType) -> bool {
    of.is_integer()
        || matches!(
            of,
            DataType::Float16
                | DataType::Float32
                | DataType::Float64
                | DataType::Boolean
                | DataType::Date32
                | DataType::Date64
                | DataType::Timestamp(..)
                | DataType::Time32(_)
                | DataType::Time64(_)
                | DataType::Decimal32(..)
                | DataType::Decimal64(..)
                | DataType::Decimal128(..)
                | DataType::Decimal256(..)
        )
}

/// The values of texts. With `is_try`, texts that are none are null.
fn values_of_texts(
    column: &ArrayRef,
    target: &DataType,
    is_try: bool,
) -> Result<ArrayRef, DataFusionError> {
    let texts = cast(column, &DataType::Utf8)?;
    let texts = texts.as_string::<i32>();
    let rules = TextRules::declared();
    if is_try {
        return Ok(rules.read(texts, target).values);
    }
    rules
        .read_all(texts, target)
        .map_err(|row| DataFusionError::Execution(rules.problem(texts.value(row), target)))
}

pub(crate) fn internal(message: &str) -> DataFusionError {
    DataFusionError::Internal(message.to_owned())
}

#[cfg(test)]
mod tests {
    use arrow::array::{FixedSizeListArray, StringArray};
    use arrow::buffer::NullBuffer;

    use super::*;

    #[test]
    fn values_below_nulls_and_beside_slices_are_none() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["x", "1", "y", "2", "3", "z"]));
        let item = Arc::new(Field::new_list_field(DataType::Utf8, true));
        let target = DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true)));
        let lists = ListArray::new(
            Arc::clone(&item),
            OffsetBuffer::from_lengths([1, 1, 1, 2, 0, 1]),
            Arc::clone(&texts),
            Some(NullBuffer::from(vec![true, true, false, true, true, true])),
        );
        let pairs = FixedSizeListArray::new(
            item,
            2,
            texts,
            Some(NullBuffer::from(vec![true, false, true])),
        );
        let of_lists = [
            Some(vec![Some(1)]),
            None,
            Some(vec![Some(2), Some(3)]),
            Some(vec![]),
        ];
        for is_try in [false, true] {
            let column: ArrayRef = Arc::new(lists.slice(1, 4));
            let values = cast_values(&column, &target, is_try).unwrap();
            let expected = ListArray::from_iter_primitive::<Int64Type, _, _>(of_lists.clone());
            assert_eq!(values.as_list::<i32>(), &expected);
            let column: ArrayRef = Arc::new(lists.slice(0, 2));
            assert_eq!(cast_values(&column, &target, is_try).is_ok(), is_try);
            let column: ArrayRef = Arc::new(pairs.slice(1, 1));
            let values = cast_values(&column, &target, is_try).unwrap();
            assert_eq!(values.null_count(), 1);
            let column: ArrayRef = Arc::new(pairs.clone());
            assert_eq!(cast_values(&column, &target, is_try).is_ok(), is_try);
        }
    }
}
