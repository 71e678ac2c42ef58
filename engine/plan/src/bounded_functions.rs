//! Functions of SQL whose output can be far larger than their input, with a bound.
//!
//! `repeat(s, n)` makes a text of any length of a number, and `concat(s, s, ...)` makes one of many times its input. The
//! size of the output of each of these functions is computed before it runs, and a batch beyond [`OUTPUT_BYTES_MAX`] is
//! refused. Rows are then computed in smaller parts (`evaluation.rs`).

use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, AsArray, Int64Array, IntervalMonthDayNanoArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    DataType, Field, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
    TimeUnit,
};
use datafusion::common::DataFusionError;
use datafusion::functions::regex::regexp_count;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};
use forebay_model::column_bytes;

use crate::evaluation::{
    CONSTANT_BYTES_MAX, INPUT_TIMES_MAX, OUTPUT_BYTES_MAX, check_memory, growth_limit,
};
use crate::function_guard::{FunctionGuard, argument_columns};

/// Microseconds of the shortest day, on which clocks go forward.
const MICROSECONDS_PER_DAY_MIN: i128 = 23 * 60 * 60 * 1_000_000;

/// Bytes of an element of a list for which no better number is known.
const ELEMENT_BYTES: u128 = 8;

/// Bytes of the place where a text of a list begins.
const OFFSET_BYTES: u128 = 4;

/// Estimates the bytes of the output for a number of rows. A constant is a column of one row.
type OutputBytes = fn(&[ArrayRef], usize) -> u128;

/// The functions by name, each with its estimate.
pub(crate) const BOUNDED: [(&str, &dyn FunctionGuard); 25] = [
    ("array_append", &GrowthBound(joined_values)),
    ("array_concat", &GrowthBound(joined_values)),
    ("array_prepend", &GrowthBound(joined_values)),
    ("array_repeat", &OutputBound(repeated_elements)),
    ("array_replace", &GrowthBound(replaced_elements)),
    ("array_replace_all", &GrowthBound(replaced_elements)),
    ("array_replace_n", &GrowthBound(replaced_elements)),
    ("array_resize", &OutputBound(resized_lists)),
    ("array_to_string", &GrowthBound(listed_text)),
    ("arrays_zip", &GrowthBound(joined_values)),
    ("concat", &GrowthBound(joined_values)),
    ("concat_ws", &GrowthBound(separated_text)),
    ("encode", &OutputBound(encoded_text)),
    ("generate_series", &SeriesBound),
    ("lpad", &PaddingBound),
    ("make_array", &GrowthBound(joined_values)),
    ("overlay", &GrowthBound(joined_values)),
    ("range", &SeriesBound),
    ("regexp_replace", &SubstitutionBound),
    ("repeat", &OutputBound(repeated_text)),
    ("replace", &OutputBound(replaced_text)),
    ("rpad", &PaddingBound),
    ("string_to_array", &GrowthBound(split_texts)),
    ("to_char", &OutputBound(formatted_text)),
    ("translate", &GrowthBound(translated_text)),
];

/// Refuses arguments of which a function would make too much.
struct OutputBound(OutputBytes);

impl FunctionGuard for OutputBound {
    fn before(&self, name: &str, arguments: &ScalarFunctionArgs) -> Result<(), DataFusionError> {
        let columns = argument_columns(arguments)?;
        let rows = rows_of(arguments);
        let bytes = (self.0)(&columns, rows);
        if is_constant(arguments) {
            return check_bytes(name, bytes, rows, CONSTANT_BYTES_MAX);
        }
        check_output(name, bytes, rows)
    }
}

/// Refuses series that are too long, and series of times that nanoseconds do not hold: left to itself, the query engine
/// gives null for those.
struct SeriesBound;

impl FunctionGuard for SeriesBound {
    fn before(&self, name: &str, arguments: &ScalarFunctionArgs) -> Result<(), DataFusionError> {
        OutputBound(series_elements).before(name, arguments)
    }

    fn behind(
        &self,
        name: &str,
        columns: &[ArrayRef],
        result: &ArrayRef,
    ) -> Result<(), DataFusionError> {
        if result.null_count() == 0 {
            return Ok(());
        }
        if (0..result.len()).any(|row| result.is_null(row) && has_all_arguments(columns, row)) {
            return Err(DataFusionError::Execution(format!(
                "`{name}` has no series of times that nanoseconds do not hold: cast them to dates"
            )));
        }
        Ok(())
    }

    fn checks_result(&self) -> bool {
        true
    }
}

/// True if no argument of a row is null.
fn has_all_arguments(columns: &[ArrayRef], row: usize) -> bool {
    let mut arguments = columns.iter();
    arguments.all(|column| column.is_valid(row_in(column, row)))
}

/// Refuses lengths of texts that are too much together. Negative ones are 0: the engine takes room for them as if they
/// were huge.
struct PaddingBound;

impl FunctionGuard for PaddingBound {
    fn before(&self, name: &str, arguments: &ScalarFunctionArgs) -> Result<(), DataFusionError> {
        OutputBound(padded_text).before(name, arguments)
    }

    fn prepared(
        &self,
        mut arguments: ScalarFunctionArgs,
    ) -> Result<ScalarFunctionArgs, DataFusionError> {
        if let Some(ColumnarValue::Array(lengths)) = arguments.args.get_mut(1)
            && let Some(numbers) = lengths.as_primitive_opt::<Int64Type>()
        {
            let counts: Int64Array = numbers.unary(|number| number.max(0));
            *lengths = Arc::new(counts);
        }
        Ok(arguments)
    }
}

/// Refuses arguments of which a function would make too much, where the output is that of many inputs together: large
/// inputs may give a large output.
struct GrowthBound(OutputBytes);

impl FunctionGuard for GrowthBound {
    fn before(&self, name: &str, arguments: &ScalarFunctionArgs) -> Result<(), DataFusionError> {
        let columns = argument_columns(arguments)?;
        let rows = rows_of(arguments);
        let bytes = (self.0)(&columns, rows);
        if is_constant(arguments) {
            // Each row may get a copy.
            return check_bytes(name, bytes, rows, CONSTANT_BYTES_MAX);
        }
        check_growth(name, bytes, &columns, rows)
    }
}

/// True if all arguments are constants.
pub(crate) fn is_constant(arguments: &ScalarFunctionArgs) -> bool {
    let mut values = arguments.args.iter();
    values.all(|value| matches!(value, ColumnarValue::Scalar(_)))
}

/// The number of values that a function makes.
fn rows_of(arguments: &ScalarFunctionArgs) -> usize {
    if is_constant(arguments) {
        1
    } else {
        arguments.number_rows
    }
}

/// Refuses an output that is too large, and also much larger than the inputs: those of the whole expression, or in a query
/// those of the function. An input that comes several times counts once.
pub(crate) fn check_growth(
    name: &str,
    bytes: u128,
    columns: &[ArrayRef],
    rows: usize,
) -> Result<(), DataFusionError> {
    if bytes <= OUTPUT_BYTES_MAX {
        return check_memory(bytes);
    }
    if let Some(limit) = growth_limit() {
        return check_bytes(name, bytes, rows, limit);
    }
    let mut distinct: Vec<ArrayData> = Vec::new();
    let mut input_bytes = 0;
    for column in columns {
        let data = column.to_data();
        if !distinct.iter().any(|input| input.ptr_eq(&data)) {
            distinct.push(data);
            input_bytes += column_bytes(column) as u128;
        }
    }
    let limit = OUTPUT_BYTES_MAX.max(INPUT_TIMES_MAX * input_bytes);
    check_bytes(name, bytes, rows, limit)
}

/// Refuses an output of a batch of rows that is too large.
fn check_output(name: &str, bytes: u128, rows: usize) -> Result<(), DataFusionError> {
    check_bytes(name, bytes, rows, OUTPUT_BYTES_MAX)
}

fn check_bytes(name: &str, bytes: u128, rows: usize, limit: u128) -> Result<(), DataFusionError> {
    if bytes <= limit {
        return check_memory(bytes);
    }
    Err(DataFusionError::ResourcesExhausted(format!(
        "`{name}` makes {} MiB of a batch of {rows} rows, and at most {} MiB are allowed",
        bytes >> 20,
        limit >> 20
    )))
}

/// Refuses texts, patterns and replacements of which `regexp_replace` would make too much.
struct SubstitutionBound;

impl FunctionGuard for SubstitutionBound {
    fn before(&self, name: &str, arguments: &ScalarFunctionArgs) -> Result<(), DataFusionError> {
        let columns = argument_columns(arguments)?;
        let [texts, _, replacements, flags @ ..] = columns.as_slice() else {
            return Ok(());
        };
        let rows = arguments.number_rows;
        let text_length = text_lengths(texts);
        let replacement_length = text_lengths(replacements);
        let backslashes = backslash_counts(replacements);
        let bytes_with = |matches: &dyn Fn(usize) -> u128| -> u128 {
            let bytes_of = |row: usize| {
                // A group stands for a part of the text, and matches do not overlap.
                matches(row) * replacement_length(row) + backslashes(row) * text_length(row)
            };
            (0..rows).map(bytes_of).sum()
        };
        let most_bytes = if flags.is_empty() {
            bytes_with(&|_| 1)
        } else {
            bytes_with(&|row| text_length(row) + 1)
        };
        if most_bytes <= OUTPUT_BYTES_MAX || flags.is_empty() {
            return check_output(name, most_bytes, rows);
        }
        // Matches are counted only where each character could be one too many.
        let matches = match_counts(arguments)?;
        let bytes = bytes_with(&|row| matches.get(row).copied().unwrap_or(0));
        check_output(name, bytes, rows)
    }
}

/// The number of matches of the pattern in each text, without regard to flags.
fn match_counts(arguments: &ScalarFunctionArgs) -> Result<Vec<u128>, DataFusionError> {
    let counted = regexp_count().invoke_with_args(ScalarFunctionArgs {
        args: arguments.args[..2].to_vec(),
        arg_fields: arguments.arg_fields[..2].to_vec(),
        number_rows: arguments.number_rows,
        return_field: Arc::new(Field::new("matches", DataType::Int64, true)),
        config_options: arguments.config_options.clone(),
    })?;
    let numbers = counted.into_array(arguments.number_rows)?;
    Ok(counts(&numbers, arguments.number_rows).collect())
}

/// Backslashes of texts by row: each may begin a group.
fn backslash_counts(texts: &ArrayRef) -> impl Fn(usize) -> u128 {
    let views = cast_with_options(texts, &DataType::Utf8View, &CastOptions::default()).ok();
    move |row| {
        let Some(texts) = views.as_ref().and_then(|views| views.as_string_view_opt()) else {
            return 0;
        };
        let text = texts.value(row_in(texts, row));
        text.bytes().filter(|byte| *byte == b'\\').count() as u128
    }
}

/// Bytes of `repeat(text, times)`.
fn repeated_text(columns: &[ArrayRef], rows: usize) -> u128 {
    let [texts, times] = columns else { return 0 };
    let length = text_lengths(texts);
    counts(times, rows)
        .enumerate()
        .map(|(row, times)| length(row) * times)
        .sum()
}

/// Bytes of `lpad(text, characters)` and of `rpad`, of one byte a character.
fn padded_text(columns: &[ArrayRef], rows: usize) -> u128 {
    let Some(characters) = columns.get(1) else {
        return 0;
    };
    counts(characters, rows).sum()
}

/// Bytes of `replace(text, pattern, replacement)` if the pattern fills the text.
fn replaced_text(columns: &[ArrayRef], rows: usize) -> u128 {
    let [texts, patterns, replacements] = columns else {
        return 0;
    };
    let text_length = text_lengths(texts);
    let pattern_length = text_lengths(patterns);
    let replacement_length = text_lengths(replacements);
    (0..rows)
        .map(|row| {
            let matches = text_length(row) / pattern_length(row).max(1);
            matches * replacement_length(row)
        })
        .sum()
}

/// Bytes of `string_to_array(text, delimiter)`: the text, and an offset for each part.
fn split_texts(columns: &[ArrayRef], rows: usize) -> u128 {
    let [texts, delimiters, ..] = columns else {
        return 0;
    };
    let text_length = text_lengths(texts);
    let delimiter_length = text_lengths(delimiters);
    let bytes_with = |parts: &dyn Fn(usize) -> u128| -> u128 {
        let bytes_of = |row: usize| text_length(row) + parts(row) * OFFSET_BYTES;
        (0..rows).map(bytes_of).sum()
    };
    let most_bytes = bytes_with(&|row| text_length(row) / delimiter_length(row).max(1) + 1);
    if most_bytes <= OUTPUT_BYTES_MAX {
        return most_bytes;
    }
    // Parts are counted only where each letter could be one too many.
    bytes_with(&part_counts(texts, delimiters))
}

/// Parts of texts by row. Without a delimiter each letter is one; an empty delimiter leaves the text whole.
fn part_counts(texts: &ArrayRef, delimiters: &ArrayRef) -> impl Fn(usize) -> u128 {
    let texts = text_views(texts);
    let delimiters = text_views(delimiters);
    move |row| {
        let Some(text) = text_in(&texts, row) else {
            return 0;
        };
        let parts = match text_in(&delimiters, row) {
            Some("") => 1,
            Some(delimiter) => text.split(delimiter).count(),
            None => text.chars().count(),
        };
        parts as u128
    }
}

fn text_views(texts: &ArrayRef) -> Option<ArrayRef> {
    cast_with_options(texts, &DataType::Utf8View, &CastOptions::default()).ok()
}

/// The text of a row; `None` if it is null.
fn text_in(views: &Option<ArrayRef>, row: usize) -> Option<&str> {
    let texts = views.as_ref()?.as_string_view_opt()?;
    let row = row_in(texts, row);
    texts.is_valid(row).then(|| texts.value(row))
}

/// Bytes of `array_repeat(element, times)`.
fn repeated_elements(columns: &[ArrayRef], rows: usize) -> u128 {
    let [elements, times] = columns else { return 0 };
    counts(times, rows)
        .enumerate()
        .map(|(row, times)| times * value_bytes(elements, row).max(1))
        .sum()
}

/// Bytes of `array_resize(list, length, element)`.
fn resized_lists(columns: &[ArrayRef], rows: usize) -> u128 {
    let Some(lengths) = columns.get(1) else {
        return 0;
    };
    counts(lengths, rows)
        .enumerate()
        .map(|(row, length)| {
            let element = columns
                .get(2)
                .map_or(0, |element| value_bytes(element, row));
            length * element.max(ELEMENT_BYTES)
        })
        .sum()
}

/// Bytes of all arguments together: of `concat(a, b, ...)`, and of a list of the values.
pub(crate) fn joined_values(columns: &[ArrayRef], rows: usize) -> u128 {
    let mut bytes = 0;
    for column in columns {
        bytes += (0..rows).map(|row| value_bytes(column, row)).sum::<u128>();
    }
    bytes
}

/// Bytes of `concat_ws(separator, a, b, ...)`.
fn separated_text(columns: &[ArrayRef], rows: usize) -> u128 {
    let Some((separator, texts)) = columns.split_first() else {
        return 0;
    };
    let separators = joined_values(std::slice::from_ref(separator), rows);
    separators * texts.len() as u128 + joined_values(texts, rows)
}

/// Bytes of `encode(value, format)` in hexadecimal digits.
fn encoded_text(columns: &[ArrayRef], rows: usize) -> u128 {
    let values = columns.first().map_or(&[][..], std::slice::from_ref);
    2 * joined_values(values, rows)
}

/// Bytes of `translate(text, from, to)`, of which each character may become one of four bytes.
fn translated_text(columns: &[ArrayRef], rows: usize) -> u128 {
    let [text, _, to] = columns else { return 0 };
    let text_length = text_lengths(text);
    let width = widest_character(to);
    (0..rows).map(|row| text_length(row) * width).sum()
}

/// Bytes of the widest character of texts; 1 where there is none.
fn widest_character(texts: &ArrayRef) -> u128 {
    let views = cast_with_options(texts, &DataType::Utf8View, &CastOptions::default()).ok();
    let Some(views) = views.as_ref().and_then(|views| views.as_string_view_opt()) else {
        return 1;
    };
    let characters = views.iter().flatten().flat_map(str::chars);
    characters.map(char::len_utf8).max().unwrap_or(1) as u128
}

/// Bytes of `to_char(time, format)`: a specifier of two bytes stands for at most `FORMATTED_BYTES`.
fn formatted_text(columns: &[ArrayRef], rows: usize) -> u128 {
    const FORMATTED_BYTES: u128 = 40;
    let Some(format) = columns.get(1) else {
        return 0;
    };
    let format_length = text_lengths(format);
    (0..rows)
        .map(|row| format_length(row) * FORMATTED_BYTES / 2)
        .sum()
}

/// Bytes of `array_to_string(list, delimiter, null_text)`.
fn listed_text(columns: &[ArrayRef], rows: usize) -> u128 {
    const NUMBER_BYTES: u128 = 24;
    let Some((lists, texts)) = columns.split_first() else {
        return 0;
    };
    (0..rows)
        .map(|row| {
            let between: u128 = texts.iter().map(|text| value_bytes(text, row)).sum();
            element_count(lists, row) * (NUMBER_BYTES + between) + value_bytes(lists, row)
        })
        .sum()
}

/// Bytes of `array_replace(list, from, to)` if each element is replaced.
fn replaced_elements(columns: &[ArrayRef], rows: usize) -> u128 {
    let [lists, _, to, ..] = columns else {
        return 0;
    };
    (0..rows)
        .map(|row| element_count(lists, row) * value_bytes(to, row) + value_bytes(lists, row))
        .sum()
}

/// The elements of the list in a row; `None` for other types.
fn elements_of(column: &dyn Array, row: usize) -> Option<ArrayRef> {
    let row = row_in(column, row);
    if column.is_null(row) {
        return None;
    }
    match column.data_type() {
        DataType::List(_) => Some(column.as_list::<i32>().value(row)),
        DataType::LargeList(_) => Some(column.as_list::<i64>().value(row)),
        DataType::FixedSizeList(_, _) => Some(column.as_fixed_size_list().value(row)),
        _ => None,
    }
}

/// Number of elements of the list in a row, with those of the lists in it.
fn element_count(column: &dyn Array, row: usize) -> u128 {
    let Some(elements) = elements_of(column, row) else {
        return 1;
    };
    if !elements.data_type().is_nested() {
        return elements.len() as u128;
    }
    (0..elements.len())
        .map(|at| element_count(&elements, at))
        .sum()
}

/// Bytes of the value in a row.
fn value_bytes(column: &dyn Array, row: usize) -> u128 {
    let at = row_in(column, row);
    if let Some(elements) = elements_of(column, at) {
        return elements_bytes(&elements);
    }
    match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().value_length(at) as u128,
        DataType::LargeUtf8 => column.as_string::<i64>().value_length(at) as u128,
        DataType::Utf8View => column.as_string_view().value(at).len() as u128,
        DataType::Binary => column.as_binary::<i32>().value_length(at) as u128,
        DataType::LargeBinary => column.as_binary::<i64>().value_length(at) as u128,
        DataType::BinaryView => column.as_binary_view().value(at).len() as u128,
        DataType::Struct(_) => {
            let fields = column.as_struct().columns().iter();
            fields.map(|field| value_bytes(field, at)).sum()
        }
        other => other.primitive_width().unwrap_or(0) as u128,
    }
}

/// Bytes of the elements of a list.
fn elements_bytes(elements: &ArrayRef) -> u128 {
    if let Some(width) = elements.data_type().primitive_width() {
        return (elements.len() * width) as u128;
    }
    (0..elements.len())
        .map(|at| value_bytes(elements, at) + size_of::<i32>() as u128)
        .sum()
}

/// Bytes of `range(start, stop, step)` and of `generate_series` over whole numbers or times, `range(stop)` included.
fn series_elements(columns: &[ArrayRef], rows: usize) -> u128 {
    if let [start, stop, step] = columns
        && start.data_type().is_temporal()
    {
        return times_of_series(start, stop, step, rows);
    }
    let columns: Vec<Option<Int64Array>> = columns.iter().map(whole_numbers).collect();
    (0..rows)
        .map(|row| {
            let value = |column: usize| {
                let numbers = columns.get(column)?.as_ref()?;
                let row = row_in(numbers, row);
                numbers
                    .is_valid(row)
                    .then(|| i128::from(numbers.value(row)))
            };
            let (start, stop) = match (value(0), value(1)) {
                (Some(stop), None) if columns.len() == 1 => (0, stop),
                (Some(start), Some(stop)) => (start, stop),
                _ => return 0,
            };
            let step = value(2).unwrap_or(1).unsigned_abs().max(1);
            stop.abs_diff(start) / step * ELEMENT_BYTES
        })
        .sum()
}

/// Bytes of a series of dates or times with an interval between each two.
fn times_of_series(start: &ArrayRef, stop: &ArrayRef, step: &ArrayRef, rows: usize) -> u128 {
    let Some(start) = microseconds(start) else {
        return 0;
    };
    let Some(stop) = microseconds(stop) else {
        return 0;
    };
    let Some(step) = interval_parts(step) else {
        return 0;
    };
    let bytes_of = |row: usize| {
        let start_row = row_in(&start, row);
        let stop_row = row_in(&stop, row);
        let step_row = row_in(&step, row);
        if start.is_null(start_row) || stop.is_null(stop_row) || step.is_null(step_row) {
            return 0;
        }
        let length = start.value(start_row).abs_diff(stop.value(stop_row));
        u128::from(length) / shortest_microseconds(step.value(step_row)) * ELEMENT_BYTES
    };
    (0..rows).map(bytes_of).sum()
}

/// Dates and times in microseconds since 1970.
fn microseconds(column: &ArrayRef) -> Option<Int64Array> {
    let times = DataType::Timestamp(TimeUnit::Microsecond, None);
    let times = cast_with_options(column, &times, &CastOptions::default()).ok()?;
    let numbers = cast_with_options(&times, &DataType::Int64, &CastOptions::default()).ok()?;
    Some(numbers.as_primitive::<Int64Type>().clone())
}

fn interval_parts(column: &ArrayRef) -> Option<IntervalMonthDayNanoArray> {
    let parts = DataType::Interval(IntervalUnit::MonthDayNano);
    let parts = cast_with_options(column, &parts, &CastOptions::default()).ok()?;
    let parts = parts.as_primitive_opt::<IntervalMonthDayNanoType>()?;
    Some(parts.clone())
}

/// The least microseconds that an interval may take, at least one: February has 28 days, and a day may have 23 hours.
fn shortest_microseconds(interval: IntervalMonthDayNano) -> u128 {
    let days = i128::from(interval.months) * 28 + i128::from(interval.days);
    let microseconds = days * MICROSECONDS_PER_DAY_MIN + i128::from(interval.nanoseconds) / 1_000;
    microseconds.unsigned_abs().max(1)
}

/// Lengths of texts by row in bytes; 0 for null and for other types.
fn text_lengths(texts: &ArrayRef) -> impl Fn(usize) -> u128 {
    let length_at: Box<dyn Fn(usize) -> usize> = match texts.data_type() {
        DataType::Utf8 => {
            let texts = texts.as_string::<i32>().clone();
            Box::new(move |row| texts.value_length(row) as usize)
        }
        DataType::LargeUtf8 => {
            let texts = texts.as_string::<i64>().clone();
            Box::new(move |row| texts.value_length(row) as usize)
        }
        DataType::Utf8View => {
            let texts = texts.as_string_view().clone();
            Box::new(move |row| texts.value(row).len())
        }
        _ => Box::new(|_| 0),
    };
    let texts = texts.clone();
    move |row| length_at(row_in(&texts, row)) as u128
}

/// The place of a row in a column; constants have one for all rows.
pub(crate) fn row_in(column: &dyn Array, row: usize) -> usize {
    if column.len() == 1 { 0 } else { row }
}

/// A column as whole numbers; `None` for a type that has none, such as intervals.
fn whole_numbers(column: &ArrayRef) -> Option<Int64Array> {
    if !column.data_type().is_numeric() {
        return None;
    }
    // Numbers beyond the range become null.
    let numbers = cast_with_options(column, &DataType::Int64, &CastOptions::default()).ok()?;
    Some(numbers.as_primitive::<Int64Type>().clone())
}

/// The counts of a column by row; 0 for null, below zero and for other types.
fn counts(column: &ArrayRef, rows: usize) -> impl Iterator<Item = u128> {
    let numbers = whole_numbers(column);
    (0..rows).map(move |row| {
        let number = numbers
            .as_ref()
            .map(|numbers| (numbers, row_in(numbers, row)))
            .filter(|(numbers, row)| numbers.is_valid(*row))
            .map_or(0, |(numbers, row)| numbers.value(row));
        u128::try_from(number).unwrap_or(0)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{DictionaryArray, StringArray};
    use arrow::datatypes::{Field, Int32Type, Schema};
    use forebay_model::codes;

    use super::*;
    use crate::SqlCompiler;

    fn schema() -> Schema {
        Schema::new(vec![
            Field::new("s", DataType::Utf8, true),
            Field::new("i", DataType::Int64, true),
        ])
    }

    fn columns(reads: &[String], number: i64) -> Vec<ArrayRef> {
        let text: ArrayRef = Arc::new(StringArray::from(vec![Some("ab"), None]));
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(number), Some(1)]));
        reads
            .iter()
            .map(|name| match name.as_str() {
                "s" => text.clone(),
                _ => numbers.clone(),
            })
            .collect()
    }

    /// Expressions are computed for small numbers and refused for huge ones.
    #[test]
    fn output_without_end_is_refused_before_it_is_made() {
        let expressions = [
            "lpad(s, i)",
            "rpad(s, i, 'x')",
            "repeat(s, i)",
            "repeat('ab', i)",
            "lpad('a', i)",
            "replace(repeat('a', 1000000), 'a', repeat('b', i))",
            "range(i)",
            "range(0, i, 2)",
            "generate_series(1, i)",
            "array_repeat(s, i)",
            "array_resize([1, 2], i)",
            "regexp_replace(repeat('a', 10000), 'a', repeat('b', least(i, 100000)), 'g')",
            "array_resize([s], i, repeat('a', 1000))",
            "array_repeat(repeat(s, 1000000), least(i, 1000000))",
        ];
        for text in expressions {
            let expression = SqlCompiler::default().expression(text, &schema()).unwrap();
            (expression.kernel)(&columns(&expression.reads, 3), 2).unwrap();
            for number in [1 << 40, i64::MAX] {
                let computed = (expression.kernel)(&columns(&expression.reads, number), 2);
                let fault = computed.err().unwrap();
                assert_eq!(fault.code(), codes::MEMORY, "{text}: {fault}");
            }
        }
    }

    #[test]
    fn texts_are_padded_to_no_negative_length() {
        for text in [
            "lpad(s, i)",
            "rpad(s, i)",
            "lpad(s, i, 'x')",
            "rpad('a', i, 'x')",
        ] {
            let expression = SqlCompiler::default().expression(text, &schema()).unwrap();
            for number in [-1, i64::MIN] {
                let padded = (expression.kernel)(&columns(&expression.reads, number), 2).unwrap();
                let padded = padded[0].as_string::<i32>();
                assert_eq!(padded.value(0), "", "{text}");
            }
        }
    }

    /// Functions that put their inputs together, of which one comes many times.
    #[test]
    fn outputs_many_times_as_large_as_inputs_are_refused() {
        let sql = SqlCompiler::default();
        let large = "repeat(s, 400000)";
        let many = |part: &str, between: &str| vec![part; 100].join(between);
        let refused = [
            many(large, " || "),
            format!("concat({})", many(large, ", ")),
            format!("concat_ws('-', {})", many(large, ", ")),
            format!("concat_ws({large}, {})", many("s", ", ")),
            format!("make_array({})", many(large, ", ")),
            format!("[{}]", many(large, ", ")),
            format!("array_concat({})", many(&format!("[{large}]"), ", ")),
            many(&format!("[{large}]"), " || "),
            format!("array_to_string(range(200), {large})"),
            format!("array_replace_all(array_repeat('x', 200), 'x', {large})"),
            "to_char(TIMESTAMP '2020-01-01', repeat('%c', 4000000))".to_owned(),
            "translate(repeat('a', 32000000), 'a', '\u{1f600}')".to_owned(),
            "encode(repeat('a', 40000000), 'hex')".to_owned(),
            "string_to_array(repeat(s, 20000000), NULL)".to_owned(),
            "string_to_list(repeat(concat(s, ','), 10000000), ',')".to_owned(),
        ];
        for text in refused {
            let shown: String = text.chars().take(80).collect();
            let computed = sql
                .expression(&text, &schema())
                .and_then(|expression| (expression.kernel)(&columns(&expression.reads, 1), 2));
            let Err(fault) = computed else {
                panic!("{shown} is computed");
            };
            let says = fault.to_string();
            assert!(
                fault.code() == codes::MEMORY || says.contains(" MiB are allowed"),
                "{shown}: {says}"
            );
        }
        // A long text with few parts is no larger than before.
        let long: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(20 << 20)]));
        let expression = sql
            .expression("string_to_array(s, ',')", &schema())
            .unwrap();
        let split = (expression.kernel)(std::slice::from_ref(&long), 1).unwrap();
        assert_eq!(split[0].len(), 1);
        // Large inputs give large outputs.
        let wide: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(20 << 20); 2]));
        for text in ["s || 'y'", "concat(s, 'y')", "s || s", "concat('y', s, s)"] {
            let expression = sql.expression(text, &schema()).unwrap();
            let joined = (expression.kernel)(std::slice::from_ref(&wide), 2).unwrap();
            assert_eq!(joined[0].len(), 2, "{text}");
        }
    }

    /// What is too much for all rows together may be little for some of them.
    #[test]
    fn rows_are_divided_where_their_intermediate_values_are_large() {
        let sql = SqlCompiler::default();
        let expression = sql
            .expression("length(repeat(s, 400000))", &schema())
            .unwrap();
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("ab"); 1000]));
        let lengths = (expression.kernel)(&[texts], 1000).unwrap().swap_remove(0);
        assert_eq!(lengths.len(), 1000);
        let lengths = cast_with_options(&lengths, &DataType::Int64, &CastOptions::default());
        let lengths = lengths.unwrap();
        let mut lengths = lengths.as_primitive::<Int64Type>().values().iter();
        assert!(lengths.all(|length| *length == 800_000));
    }

    /// A constant that each row gets a copy of.
    #[test]
    fn large_constants_count_for_each_row() {
        let sql = SqlCompiler::default();
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1; 1_000]));
        for (text, is_refused) in [
            ("repeat('a', 1000000)", true),
            ("CASE WHEN i > 0 THEN repeat('a', 1000000) END", true),
            (
                "coalesce(CAST(NULL AS VARCHAR), repeat('a', 1000000))",
                true,
            ),
            ("array_union(range(100000), [i])", true),
            (
                "length(CASE WHEN i > 0 THEN repeat('a', 1000000) END)",
                false,
            ),
            ("CAST(i AS VARCHAR) = repeat('a', 1000000)", false),
            ("repeat('a', 10000)", false),
        ] {
            let expression = sql.expression(text, &schema()).unwrap();
            let inputs = vec![numbers.clone(); expression.reads.len()];
            let computed = (expression.kernel)(&inputs, 1_000);
            let code = computed.err().map(|fault| fault.code());
            assert_eq!(code, is_refused.then_some(codes::MEMORY), "{text}");
        }
    }

    /// Plans and threads hold copies of constants, so that they are bounded also where no row gets one.
    #[test]
    fn constants_of_expressions_are_bounded() {
        let sql = SqlCompiler::default();
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1; 1_000]));
        let long = "x".repeat(9 << 20);
        for (text, is_refused) in [
            ("length(repeat('a', 60000000))".to_owned(), true),
            ("i + length(repeat('a', 60000000))".to_owned(), true),
            (
                "length(concat(repeat('a', 5000000), repeat('b', 5000000)))".to_owned(),
                true,
            ),
            (format!("CAST(i AS VARCHAR) = '{long}'"), true),
            ("i + length(repeat('a', 1000000))".to_owned(), false),
        ] {
            let excerpt: String = text.chars().take(80).collect();
            let computed = sql.expression(&text, &schema()).and_then(|expression| {
                let inputs = vec![numbers.clone(); expression.reads.len()];
                (expression.kernel)(&inputs, 1_000)
            });
            match computed {
                Ok(_) => assert!(!is_refused, "{excerpt} is computed"),
                Err(fault) => {
                    let says = fault.to_string();
                    let is_bound = says.contains("MiB are allowed");
                    assert!(is_refused && is_bound, "{excerpt}: {says}");
                }
            }
        }
    }

    /// A text of a dictionary may be long and stand in each row.
    #[test]
    fn texts_of_dictionaries_count_for_each_row() {
        let sql = SqlCompiler::default();
        let text = "x".repeat(100_000);
        let texts = vec![text.as_str(); 1_000].into_iter();
        let texts: ArrayRef = Arc::new(texts.collect::<DictionaryArray<Int32Type>>());
        for (text, is_refused) in [("length(s)", false), ("s = 'y'", false), ("upper(s)", true)] {
            let expression = sql.expression(text, &schema()).unwrap();
            let computed = (expression.kernel)(std::slice::from_ref(&texts), 1_000);
            let code = computed.err().map(|fault| fault.code());
            assert_eq!(code, is_refused.then_some(codes::MEMORY), "{text}");
        }
    }

    /// `||` gives what the query engine gives: null of null, and numbers as texts.
    #[test]
    fn joined_texts_are_those_of_the_operator() {
        let sql = SqlCompiler::default();
        for (text, expected) in [
            ("s || 'c' || s", [Some("abcab"), None]),
            ("'c' || i || s", [Some("c3ab"), None]),
            ("substr(s, 1, 1) || s || 'c'", [Some("aabc"), None]),
            ("NULL || s", [None, None]),
            ("concat(s, 'c')", [Some("abc"), Some("c")]),
            ("'a' || ('b' || 'c')", [Some("abc"), Some("abc")]),
            ("s || 'c' LIKE 'ab%'", [Some("true"), None]),
        ] {
            let expression = sql.expression(text, &schema()).unwrap();
            let joined = (expression.kernel)(&columns(&expression.reads, 3), 2).unwrap();
            let joined =
                cast_with_options(&joined[0], &DataType::Utf8, &CastOptions::default()).unwrap();
            let joined: Vec<Option<&str>> = joined.as_string::<i32>().iter().collect();
            assert_eq!(joined, expected, "{text}");
        }
    }

    #[test]
    fn series_of_times_are_bounded_too() {
        let sql = SqlCompiler::default();
        for (text, is_refused) in [
            (
                "range(TIMESTAMP '2020-01-01', TIMESTAMP '2020-01-02', INTERVAL '1 hour')",
                false,
            ),
            (
                "range(TIMESTAMP '1900-01-01', TIMESTAMP '2200-01-01', INTERVAL '1 microsecond')",
                true,
            ),
            (
                "generate_series(TIMESTAMP '2020-01-01', TIMESTAMP '2021-01-01', \
                 INTERVAL '1 month')",
                false,
            ),
            (
                "range(DATE '2020-01-01', DATE '2020-03-01', INTERVAL '1 day')",
                false,
            ),
        ] {
            let computed = sql
                .expression(text, &schema())
                .and_then(|expression| (expression.kernel)(&columns(&expression.reads, 1), 2));
            let fault = computed.err();
            let code = fault.as_ref().map(|fault| fault.code());
            assert_eq!(
                code,
                is_refused.then_some(codes::MEMORY),
                "{text}: {fault:?}"
            );
        }
    }

    #[test]
    fn long_chains_are_evaluated_and_longer_ones_refused() {
        let chain = |terms: usize| {
            let terms: Vec<String> = (0..terms).map(|term| format!("i = {term}")).collect();
            terms.join(" OR ")
        };
        let sql = SqlCompiler::default();
        for terms in [2, 65, 300, 499] {
            let expression = sql.condition(&chain(terms), &schema()).unwrap();
            let value = (expression.kernel)(&columns(&expression.reads, 1), 2).unwrap();
            assert_eq!(value[0].as_boolean().true_count(), 2, "{terms} terms");
        }
        for terms in [600, 5_000, 100_000] {
            let fault = sql.condition(&chain(terms), &schema()).err().unwrap();
            assert_eq!(fault.code(), codes::EXPRESSION);
            assert!(fault.to_string().contains("levels deep"), "{fault}");
            assert!(fault.hint_text().unwrap().contains("IN (...)"));
        }
    }

    /// Types of casts are walked by recursion, too.
    #[test]
    fn deep_types_of_casts_are_refused() {
        let nested = |levels: usize| {
            [
                format!(
                    "CAST(i AS {}INT{})",
                    "ARRAY<".repeat(levels),
                    ">".repeat(levels)
                ),
                format!(
                    "TRY_CAST(i AS {}INT{})",
                    "STRUCT<a ".repeat(levels),
                    ">".repeat(levels)
                ),
                format!("i::INT{}", "[]".repeat(levels)),
            ]
        };
        let sql = SqlCompiler::default();
        for text in nested(2_000).into_iter().chain(nested(5_000)) {
            let fault = sql.expression(&text, &schema()).err().unwrap();
            assert_eq!(fault.code(), codes::EXPRESSION, "{fault}");
        }
        let text = &nested(2_000)[0];
        let inputs = [("a".to_owned(), Arc::new(schema()))].into_iter().collect();
        let query = format!("SELECT {text} AS z FROM a");
        let fault = sql.query(&query, &inputs).err().unwrap();
        assert!(fault.to_string().contains("levels deep"), "{fault}");
        sql.expression("CAST([[i]] AS ARRAY<ARRAY<BIGINT>>)", &schema())
            .map(|_| ())
            .unwrap();
    }

    #[test]
    fn chains_of_tables_of_a_query_are_limited() {
        let query = |tables: usize| {
            let mut text = "WITH t0 AS (SELECT * FROM a)".to_owned();
            for table in 1..tables {
                text += &format!(", t{table} AS (SELECT * FROM t{})", table - 1);
            }
            text + &format!(" SELECT * FROM t{}", tables - 1)
        };
        let inputs = [("a".to_owned(), Arc::new(schema()))].into_iter().collect();
        let sql = SqlCompiler::default();
        sql.query(&query(100), &inputs).map(|_| ()).unwrap();
        let fault = sql.query(&query(2_000), &inputs).err().unwrap();
        assert!(fault.to_string().contains("2001 levels"), "{fault}");
    }

    #[test]
    fn tables_of_a_query_that_double_are_refused() {
        let query = |tables: usize| {
            let mut text = "WITH t0 AS (SELECT * FROM a)".to_owned();
            for table in 1..=tables {
                let before = table - 1;
                text += &format!(
                    ", t{table} AS (SELECT * FROM t{before} UNION ALL SELECT * FROM t{before})"
                );
            }
            text + &format!(" SELECT * FROM t{tables}")
        };
        let inputs = [("a".to_owned(), Arc::new(schema()))].into_iter().collect();
        let sql = SqlCompiler::default();
        sql.query(&query(5), &inputs).map(|_| ()).unwrap();
        let fault = sql.query(&query(40), &inputs).err().unwrap();
        assert!(
            fault.to_string().contains("once its WITH tables"),
            "{fault}"
        );
    }
}
