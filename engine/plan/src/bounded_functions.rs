//! Functions of SQL whose output can be far larger than their input, with a bound.
//!
//! `repeat(s, n)` makes a text of any length of a number. Each of these functions is asked for the size of its output
//! before it runs, and refuses a batch beyond [`OUTPUT_BYTES_MAX`].

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, FieldRef, Int64Type};
use datafusion::common::DataFusionError;
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature,
};

/// Most bytes that a function makes of one batch of rows.
const OUTPUT_BYTES_MAX: u128 = 64 << 20;

/// Bytes of an element of a list for which no better number is known.
const ELEMENT_BYTES: u128 = 8;

/// Estimates the bytes of the output for a number of rows. A constant is a column of one row.
type OutputBytes = fn(&[ArrayRef], usize) -> u128;

/// The functions by name, each with its estimate.
const BOUNDED: [(&str, OutputBytes); 8] = [
    ("array_repeat", repeated_elements),
    ("array_resize", resized_lists),
    ("generate_series", series_elements),
    ("lpad", padded_text),
    ("range", series_elements),
    ("repeat", repeated_text),
    ("replace", replaced_text),
    ("rpad", padded_text),
];

/// Puts a bound on functions that the registry has.
pub(crate) fn register_bounded(registry: &mut dyn FunctionRegistry) -> Result<(), DataFusionError> {
    for (name, output_bytes) in BOUNDED {
        let function = registry.udf(name)?;
        if function.inner().downcast_ref::<BoundedFunction>().is_some() {
            continue;
        }
        let bounded = BoundedFunction {
            function: function.as_ref().clone(),
            bound: FunctionBound { name, output_bytes },
        };
        registry.register_udf(Arc::new(ScalarUDF::new_from_impl(bounded)))?;
    }
    Ok(())
}

/// The estimate of a function. Two are equal if they belong to the same function.
#[derive(Debug, Clone, Copy)]
struct FunctionBound {
    name: &'static str,
    output_bytes: OutputBytes,
}

impl PartialEq for FunctionBound {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for FunctionBound {}

impl std::hash::Hash for FunctionBound {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// A function that refuses arguments of which it would make too much.
#[derive(Debug, PartialEq, Eq, Hash)]
struct BoundedFunction {
    function: ScalarUDF,
    bound: FunctionBound,
}

impl BoundedFunction {
    /// Fails if the output of these arguments is too large.
    fn admit(&self, arguments: &ScalarFunctionArgs) -> Result<(), DataFusionError> {
        let columns = arguments
            .args
            .iter()
            .map(|argument| match argument {
                ColumnarValue::Array(column) => Ok(column.clone()),
                ColumnarValue::Scalar(constant) => constant.to_array(),
            })
            .collect::<Result<Vec<_>, _>>()?;
        let bytes = (self.bound.output_bytes)(&columns, arguments.number_rows);
        if bytes <= OUTPUT_BYTES_MAX {
            return Ok(());
        }
        Err(DataFusionError::ResourcesExhausted(format!(
            "`{}` makes {} MiB of a batch of {} rows, and at most {} MiB are allowed",
            self.bound.name,
            bytes >> 20,
            arguments.number_rows,
            OUTPUT_BYTES_MAX >> 20
        )))
    }
}

impl ScalarUDFImpl for BoundedFunction {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn aliases(&self) -> &[String] {
        self.function.aliases()
    }

    fn signature(&self) -> &Signature {
        self.function.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType, DataFusionError> {
        self.function.return_type(arguments)
    }

    fn return_field_from_args(
        &self,
        arguments: ReturnFieldArgs,
    ) -> Result<FieldRef, DataFusionError> {
        self.function.return_field_from_args(arguments)
    }

    fn invoke_with_args(
        &self,
        arguments: ScalarFunctionArgs,
    ) -> Result<ColumnarValue, DataFusionError> {
        self.admit(&arguments)?;
        self.function.invoke_with_args(arguments)
    }

    fn simplify(
        &self,
        arguments: Vec<Expr>,
        context: &SimplifyContext,
    ) -> Result<ExprSimplifyResult, DataFusionError> {
        self.function.simplify(arguments, context)
    }

    fn output_ordering(
        &self,
        inputs: &[ExprProperties],
    ) -> Result<SortProperties, DataFusionError> {
        self.function.output_ordering(inputs)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>, DataFusionError> {
        self.function.coerce_types(types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.function.documentation()
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

/// Bytes of `array_repeat(element, times)`.
fn repeated_elements(columns: &[ArrayRef], rows: usize) -> u128 {
    let [elements, times] = columns else { return 0 };
    let element_bytes = elements.get_array_memory_size() as u128 / elements.len().max(1) as u128;
    counts(times, rows).sum::<u128>() * element_bytes.max(1)
}

/// Bytes of `array_resize(list, length)`.
fn resized_lists(columns: &[ArrayRef], rows: usize) -> u128 {
    let Some(lengths) = columns.get(1) else {
        return 0;
    };
    counts(lengths, rows).sum::<u128>() * ELEMENT_BYTES
}

/// Bytes of `range(start, stop, step)` and of `generate_series` over whole numbers, `range(stop)` included.
fn series_elements(columns: &[ArrayRef], rows: usize) -> u128 {
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
fn row_in(column: &dyn Array, row: usize) -> usize {
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
    use arrow::array::StringArray;
    use arrow::datatypes::{Field, Schema};
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
