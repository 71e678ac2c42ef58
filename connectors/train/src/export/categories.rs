//! Look-ups of categories: texts, whole numbers and booleans.

use std::collections::BTreeSet;

use arrow::datatypes::DataType;
use forebay_contract::{CategoryNumbers, KeptTexts, KeyNumbers, NumberByKeys, TextIds};
use forebay_model::{Fault, Result, codes, type_words};

use super::graph::{
    GraphBuilder, Value, doubles, int_attribute, int64s, ints_attribute, strings_attribute, texts,
};
use super::protobuf::TensorType;
use super::typed_value::{MISSING_ID, TypedValue, plain_type, whole_numbers};

/// The number that stands for a missing one. It is far beyond those of categories.
const MISSING_NUMBER: i64 = i64::MIN;

/// The largest whole number up to which double precision tells all apart.
const EXACT_MAX: u128 = (1 << 53) - 1;

/// A whole number beyond those of categories; so is its negative.
const NO_CATEGORY: f64 = (EXACT_MAX + 1) as f64;

/// A whole number for each category.
struct LookUp<'a> {
    tokens: &'a [String],
    /// The number of each token
    numbers: Vec<i64>,
    /// The number of all other categories
    default: i64,
    missing: i64,
}

impl<'a> LookUp<'a> {
    /// Positions of tokens; behind them the position of all others, and then that of missing ones.
    fn positions(tokens: &'a [String]) -> LookUp<'a> {
        let count = tokens.len() as i64;
        LookUp {
            tokens,
            numbers: (0..count).collect(),
            default: count,
            missing: count + 1,
        }
    }

    /// The number of each row's category.
    fn add(&self, graph: &mut GraphBuilder, input: &TypedValue) -> Result<Value> {
        let data_type = plain_type(&input.data_type);
        if input.tensor_type == TensorType::String {
            if self.tokens.iter().any(String::is_empty) {
                // The empty text is that category: a row without a text cannot be told from it.
                graph.without_missing(&input.value);
            }
            return Ok(self.add_texts(graph, &input.value));
        }
        if !data_type.is_integer() && *data_type != DataType::Boolean {
            let name = &input.name;
            let message = format!(
                "`{name}` is {}, whose categories other runtimes do not look up",
                type_words(data_type)
            );
            let fault = Fault::new(codes::UNSUPPORTED, message).column(name);
            let hint = "make it a text at the source, and train again, or export the model alone \
                        with `--without-steps`";
            return Err(fault.hint(hint));
        }
        let mut keys = vec![MISSING_NUMBER];
        let mut numbers = vec![self.missing];
        for (token, number) in self.tokens.iter().zip(&self.numbers) {
            if let Some(key) = category_key(token, data_type, &input.name)? {
                keys.push(key);
                numbers.push(*number);
            }
        }
        let attributes = vec![
            ints_attribute("keys_int64s", keys),
            ints_attribute("values_int64s", numbers),
            int_attribute("default_int64", self.default),
        ];
        let values = input.as_doubles(graph);
        // Numbers beyond those of categories are none, and int64 holds not all of them: such a one would be cast to the
        // number of missing ones.
        let least = graph.double(-NO_CATEGORY);
        let greatest = graph.double(NO_CATEGORY);
        let values = graph.node("Clip", &[&values, &least, &greatest]);
        let categories = whole_numbers(graph, &values, MISSING_NUMBER);
        Ok(graph.ml_node("LabelEncoder", &[&categories], attributes))
    }

    fn add_texts(&self, graph: &mut GraphBuilder, categories: &Value) -> Value {
        let mut keys = self.tokens.to_vec();
        let mut numbers = self.numbers.clone();
        // The empty text stands for a missing one, unless it is a token.
        if !keys.iter().any(String::is_empty) {
            keys.push(String::new());
            numbers.push(self.missing);
        }
        let attributes = vec![
            strings_attribute("keys_strings", keys),
            ints_attribute("values_int64s", numbers),
            int_attribute("default_int64", self.default),
        ];
        graph.ml_node("LabelEncoder", &[categories], attributes)
    }
}

/// The whole number of a category; `None` for a text that is that of no value of the type.
fn category_key(token: &str, data_type: &DataType, column: &str) -> Result<Option<i64>> {
    if *data_type == DataType::Boolean {
        return Ok(match token {
            "true" => Some(1),
            "false" => Some(0),
            _ => None,
        });
    }
    let Ok(number) = token.parse::<i128>() else {
        return Ok(None);
    };
    if number.to_string() != token {
        return Ok(None);
    }
    if number.unsigned_abs() > EXACT_MAX {
        let message = format!(
            "`{column}` has the category {token}, which an input in double precision does not hold"
        );
        let fault = Fault::new(codes::UNSUPPORTED, message).column(column);
        let hint = "make it a text at the source, and train again, or export the model alone with \
                    `--without-steps`";
        return Err(fault.hint(hint));
    }
    Ok(Some(number as i64))
}

/// Ids: int64, or doubles where -1 is an id and stands for no missing one.
pub fn ids_of_categories(
    graph: &mut GraphBuilder,
    ids: &TextIds,
    input: &TypedValue,
) -> Result<(Value, TensorType)> {
    if ids.default == Some(MISSING_ID) || ids.ids.contains(&MISSING_ID) {
        let numbers = CategoryNumbers {
            tokens: ids.tokens.clone(),
            numbers: ids.ids.iter().map(|id| *id as f64).collect(),
            default: ids.default.map_or(f64::NAN, |id| id as f64),
            missing: f64::NAN,
        };
        let numbers = category_numbers(graph, &numbers, input)?;
        return Ok((numbers, TensorType::Double));
    }
    let look_up = LookUp {
        tokens: &ids.tokens,
        numbers: ids.ids.clone(),
        default: ids.default.unwrap_or(MISSING_ID),
        missing: MISSING_ID,
    };
    let ids = look_up.add(graph, input)?;
    Ok((ids, TensorType::Int64))
}

/// The text of each row's category.
pub fn kept_texts(
    graph: &mut GraphBuilder,
    categories: &KeptTexts,
    input: &TypedValue,
) -> Result<Value> {
    let positions = LookUp::positions(&categories.texts).add(graph, input)?;
    let mut table = categories.texts.clone();
    table.push(categories.other.clone());
    table.push(String::new());
    let table = graph.constant(texts(&table));
    Ok(graph.node("Gather", &[&table, &positions]))
}

/// The number of each row's category, in double precision.
pub fn category_numbers(
    graph: &mut GraphBuilder,
    numbers: &CategoryNumbers,
    input: &TypedValue,
) -> Result<Value> {
    let positions = LookUp::positions(&numbers.tokens).add(graph, input)?;
    let mut table = numbers.numbers.clone();
    table.push(numbers.default);
    table.push(numbers.missing);
    let table = graph.constant(doubles(&[table.len()], &table));
    Ok(graph.node("Gather", &[&table, &positions]))
}

/// A list of numbers for each row, or one number where there is one category.
pub fn indicators(
    graph: &mut GraphBuilder,
    tokens: &[String],
    input: &TypedValue,
) -> Result<Value> {
    let positions = LookUp::positions(tokens).add(graph, input)?;
    let is_category = if tokens.len() == 1 {
        let position = graph.int64(0);
        graph.node("Equal", &[&positions, &position])
    } else {
        let all_positions: Vec<i64> = (0..tokens.len() as i64).collect();
        let all_positions = graph.constant(int64s(&[1, tokens.len()], &all_positions));
        let positions = graph.as_column(&positions);
        graph.node("Equal", &[&positions, &all_positions])
    };
    Ok(graph.cast(&is_category, TensorType::Float))
}

/// A list of numbers for the categories in each row's list of texts, or one number where there is one category.
pub fn part_indicators(graph: &mut GraphBuilder, tokens: &[String], texts: &Value) -> Value {
    let count = tokens.len() as i64;
    // Empty texts are no parts: they stand at the ends of shorter lists.
    let mut keys = vec![String::new()];
    let mut numbers = vec![count];
    for (position, token) in tokens.iter().enumerate() {
        if !token.is_empty() {
            keys.push(token.clone());
            numbers.push(position as i64);
        }
    }
    let attributes = vec![
        strings_attribute("keys_strings", keys),
        ints_attribute("values_int64s", numbers),
        int_attribute("default_int64", count),
    ];
    let positions = graph.ml_node("LabelEncoder", &[texts], attributes);
    let axes = graph.constant(int64s(&[1], &[2]));
    let positions = graph.node("Unsqueeze", &[&positions, &axes]);
    let all_positions: Vec<i64> = (0..count).collect();
    let all_positions = graph.constant(int64s(&[1, 1, tokens.len()], &all_positions));
    let is_category = graph.node("Equal", &[&positions, &all_positions]);
    let marks = graph.cast(&is_category, TensorType::Float);
    let axes = graph.constant(int64s(&[1], &[1]));
    let attributes = vec![int_attribute("keepdims", 0)];
    let counts = graph.node_with("ReduceSum", &[&marks, &axes], attributes);
    // A category that comes twice counts once.
    let unit = graph.float(1.0);
    let indicators = graph.node("Min", &[&counts, &unit]);
    if tokens.len() == 1 {
        graph.column(&indicators, 0)
    } else {
        indicators
    }
}

/// The number of each row's combination of categories, in double precision; one number where it is that of all rows.
pub fn key_numbers(
    graph: &mut GraphBuilder,
    numbers: &KeyNumbers,
    inputs: &[TypedValue],
) -> Result<Value> {
    let count = numbers.numbers.len();
    let Some(positions) = key_positions(graph, &numbers.keys, count, inputs)? else {
        return Ok(graph.double(numbers.default));
    };
    let mut table = numbers.numbers.clone();
    table.push(numbers.default);
    let table = graph.constant(doubles(&[table.len()], &table));
    Ok(graph.node("Gather", &[&table, &positions]))
}

/// The numbers of each row's combination of categories for each parameter, in double precision.
pub fn parameters_of_keys(
    graph: &mut GraphBuilder,
    number: &NumberByKeys,
    inputs: &[TypedValue],
) -> Result<Vec<Value>> {
    let count = number.keys.first().map_or(0, Vec::len);
    let positions = key_positions(graph, &number.keys, count, inputs)?;
    let mut parameters = Vec::with_capacity(number.parameters.len());
    for numbers in &number.parameters {
        let table = graph.constant(doubles(&[numbers.len()], numbers));
        let of_others = graph.int64(count as i64);
        let positions = positions.as_ref().unwrap_or(&of_others);
        parameters.push(graph.node("Gather", &[&table, positions]));
    }
    Ok(parameters)
}

/// The position of each row's combination of categories, `count` for all others; none where there are no combinations.
fn key_positions(
    graph: &mut GraphBuilder,
    keys_of_columns: &[Vec<Option<String>>],
    count: usize,
    inputs: &[TypedValue],
) -> Result<Option<Value>> {
    let mut combination: Option<Value> = None;
    // Positions in each key column as the digits of a number.
    let mut keys = vec![0i64; count];
    let mut combinations = 1i64;
    for (texts, input) in keys_of_columns.iter().zip(inputs) {
        let distinct: BTreeSet<&String> = texts.iter().flatten().collect();
        let tokens: Vec<String> = distinct.into_iter().cloned().collect();
        let look_up = LookUp::positions(&tokens);
        let positions = look_up.add(graph, input)?;
        let radix = tokens.len() as i64 + 2;
        combinations = combinations
            .checked_mul(radix)
            .ok_or_else(|| too_many_combinations(&input.name))?;
        for (key, text) in keys.iter_mut().zip(texts) {
            let position = match text {
                Some(text) => tokens
                    .binary_search(text)
                    .map_or(look_up.default, |position| position as i64),
                None => look_up.missing,
            };
            *key = *key * radix + position;
        }
        combination = Some(match combination {
            Some(digits) => {
                let radix = graph.int64(radix);
                let shifted = graph.node("Mul", &[&digits, &radix]);
                graph.node("Add", &[&shifted, &positions])
            }
            None => positions,
        });
    }
    let Some(combination) = combination.filter(|_| count > 0) else {
        return Ok(None);
    };
    let attributes = vec![
        ints_attribute("keys_int64s", keys),
        ints_attribute("values_int64s", (0..count as i64).collect()),
        int_attribute("default_int64", count as i64),
    ];
    let positions = graph.ml_node("LabelEncoder", &[&combination], attributes);
    Ok(Some(positions))
}

fn too_many_combinations(column: &str) -> Fault {
    let message = format!("the keys up to `{column}` have more combinations than an int64 counts");
    let fault = Fault::new(codes::UNSUPPORTED, message).column(column);
    fault.hint("export the model alone with `--without-steps`")
}
