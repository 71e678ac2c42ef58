//! Steps before a model as nodes of ONNX.

use std::collections::BTreeMap;

use arrow::datatypes::{DataType, Field};
use forebay_model::{Fault, Result, codes, type_words};
use forebay_run::{
    NumberExpr, PortableColumn, PortableMap, PortableStep, PortableSteps, TextBuckets, TextIds,
};

use super::graph::{
    GraphBuilder, Value, doubles, int_attribute, int64s, ints_attribute, strings_attribute,
};
use super::protobuf::TensorType;

/// The id of a missing text.
const MISSING_ID: i64 = -1;

/// A value of the graph with one number or text per row.
#[derive(Clone)]
struct TypedValue {
    value: Value,
    tensor_type: TensorType,
}

/// A column on the way through the steps.
#[derive(Clone)]
enum GraphColumn {
    /// An input that no step has read yet
    Input(Field),
    Computed(TypedValue),
}

/// Columns that the steps make, by name; none where a model is exported alone.
pub struct StepColumns {
    columns: Option<BTreeMap<String, GraphColumn>>,
    /// Inputs that steps read, by name
    inputs: BTreeMap<String, TypedValue>,
}

impl StepColumns {
    /// No steps: each feature column is an input.
    pub fn none() -> StepColumns {
        StepColumns {
            columns: None,
            inputs: BTreeMap::new(),
        }
    }

    /// Adds the nodes of the steps, and inputs for the columns that they read.
    ///
    /// Numbers come as float64, or float32 where the column has that type, with NaN for missing ones; texts as strings,
    /// where the empty text is a missing one.
    pub fn add(graph: &mut GraphBuilder, steps: &PortableSteps) -> Result<StepColumns> {
        let mut columns = BTreeMap::new();
        for field in &steps.inputs {
            let column = GraphColumn::Input(field.clone());
            columns.insert(field.name().clone(), column);
        }
        let mut inputs = BTreeMap::new();
        for step in &steps.steps {
            match step {
                PortableStep::Rename(names) => rename(&mut columns, names)?,
                PortableStep::Compute(computed) => {
                    let column = column_of(&columns, &computed.from)?;
                    let input = read_column(graph, &mut inputs, column)?;
                    let output = compute(graph, computed, &input)?;
                    let column = GraphColumn::Computed(output);
                    columns.insert(computed.output.name().clone(), column);
                }
            }
        }
        Ok(StepColumns {
            columns: Some(columns),
            inputs,
        })
    }

    /// The column as values of a type: an input of that type where no step reads or makes it.
    pub fn take(
        &mut self,
        graph: &mut GraphBuilder,
        name: &str,
        tensor_type: TensorType,
        width: usize,
    ) -> Result<Value> {
        let Some(columns) = &self.columns else {
            return Ok(graph.input(name, tensor_type, width));
        };
        let computed = match column_of(columns, name)? {
            GraphColumn::Computed(computed) => computed,
            GraphColumn::Input(field) => match self.inputs.get(field.name()) {
                Some(input) => input.clone(),
                None => return Ok(graph.input(field.name(), tensor_type, width)),
            },
        };
        if computed.tensor_type == tensor_type {
            return Ok(computed.value);
        }
        if tensor_type == TensorType::Int64 {
            return Ok(ids_of_numbers(graph, &computed));
        }
        Ok(graph.cast(&computed.value, tensor_type))
    }
}

/// Whole numbers as ids.
fn ids_of_numbers(graph: &mut GraphBuilder, numbers: &TypedValue) -> Value {
    let numbers = as_doubles(graph, numbers);
    let missing = graph.double(MISSING_ID as f64);
    let is_missing = graph.node("IsNaN", &[&numbers]);
    let ids = graph.node("Where", &[&is_missing, &missing, &numbers]);
    graph.cast(&ids, TensorType::Int64)
}

fn as_doubles(graph: &mut GraphBuilder, input: &TypedValue) -> Value {
    match input.tensor_type {
        TensorType::Double => input.value.clone(),
        _ => graph.cast(&input.value, TensorType::Double),
    }
}

/// The column as a value of the graph: an input becomes one when a step reads it first.
fn read_column(
    graph: &mut GraphBuilder,
    inputs: &mut BTreeMap<String, TypedValue>,
    column: GraphColumn,
) -> Result<TypedValue> {
    let field = match column {
        GraphColumn::Computed(computed) => return Ok(computed),
        GraphColumn::Input(field) => field,
    };
    if let Some(input) = inputs.get(field.name()) {
        return Ok(input.clone());
    }
    let tensor_type = input_type(&field)?;
    let value = graph.input(field.name(), tensor_type, 1);
    let input = TypedValue { value, tensor_type };
    inputs.insert(field.name().clone(), input.clone());
    Ok(input)
}

fn input_type(field: &Field) -> Result<TensorType> {
    let data_type = match field.data_type() {
        DataType::Dictionary(_, values) => values.as_ref(),
        other => other,
    };
    match data_type {
        DataType::Float32 => Ok(TensorType::Float),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Ok(TensorType::String),
        other if other.is_numeric() || *other == DataType::Boolean => Ok(TensorType::Double),
        other => {
            let name = field.name();
            let message = format!(
                "`{name}` is {}, which is no input of ONNX",
                type_words(other)
            );
            let fault = Fault::new(codes::UNSUPPORTED, message).column(name);
            Err(fault.hint("export the model alone with `--without-steps`"))
        }
    }
}

fn column_of(columns: &BTreeMap<String, GraphColumn>, name: &str) -> Result<GraphColumn> {
    let column = columns.get(name).cloned();
    column.ok_or_else(|| Fault::internal(format!("the steps of the export lack `{name}`")))
}

/// All columns at once: names may be exchanged.
fn rename(columns: &mut BTreeMap<String, GraphColumn>, names: &[(String, String)]) -> Result<()> {
    let mut renamed = BTreeMap::new();
    for (old, new) in names {
        renamed.insert(new.clone(), column_of(columns, old)?);
    }
    *columns = renamed;
    Ok(())
}

fn compute(
    graph: &mut GraphBuilder,
    computed: &PortableColumn,
    input: &TypedValue,
) -> Result<TypedValue> {
    match &computed.map {
        PortableMap::Number(expression) => {
            let input = as_doubles(graph, input);
            let result = number(graph, expression, &input);
            let tensor_type = match computed.output.data_type() {
                DataType::Float32 => TensorType::Float,
                _ => TensorType::Double,
            };
            let value = match tensor_type {
                TensorType::Float => graph.cast(&result, TensorType::Float),
                _ => result,
            };
            Ok(TypedValue { value, tensor_type })
        }
        PortableMap::Ids(ids) => {
            let value = text_ids(graph, ids, &input.value);
            let tensor_type = TensorType::Int64;
            Ok(TypedValue { value, tensor_type })
        }
        PortableMap::Buckets(buckets) => {
            let value = text_buckets(graph, *buckets, &input.value);
            let tensor_type = TensorType::Int64;
            Ok(TypedValue { value, tensor_type })
        }
        PortableMap::WayBack(_) => {
            let name = computed.output.name();
            let message = format!("the step that makes `{name}` has no form that ONNX computes");
            let fault = Fault::new(codes::UNSUPPORTED, message).column(name);
            Err(fault.hint(
                "export the model alone with `--without-steps`: it takes the results of the steps",
            ))
        }
        PortableMap::Bins(boundaries) => {
            let input = as_doubles(graph, input);
            let value = bins(graph, boundaries, &input);
            let tensor_type = TensorType::Double;
            Ok(TypedValue { value, tensor_type })
        }
    }
}

/// The number of boundaries that are not above a number; NaN, which is a missing number, stays.
fn bins(graph: &mut GraphBuilder, boundaries: &[f64], numbers: &Value) -> Value {
    let column = graph.as_column(numbers);
    let boundaries = graph.constant(doubles(&[1, boundaries.len()], boundaries));
    let is_reached = graph.node("GreaterOrEqual", &[&column, &boundaries]);
    let reached = graph.cast(&is_reached, TensorType::Double);
    let axes = graph.constant(int64s(&[1], &[1]));
    let attributes = vec![int_attribute("keepdims", 0)];
    let count = graph.node_with("ReduceSum", &[&reached, &axes], attributes);
    let missing = graph.double(f64::NAN);
    let is_missing = graph.node("IsNaN", &[numbers]);
    graph.node("Where", &[&is_missing, &missing, &count])
}

fn text_ids(graph: &mut GraphBuilder, ids: &TextIds, texts: &Value) -> Value {
    let mut keys = ids.tokens.clone();
    let mut values = ids.ids.clone();
    // The empty text stands for a missing one, unless it is a token.
    if !keys.iter().any(String::is_empty) {
        keys.push(String::new());
        values.push(MISSING_ID);
    }
    let attributes = vec![
        strings_attribute("keys_strings", keys),
        ints_attribute("values_int64s", values),
        int_attribute("default_int64", ids.default),
    ];
    graph.ml_node("LabelEncoder", &[texts], attributes)
}

/// The remainder of MurmurHash3, an operator of onnxruntime. The empty text stands for a missing one.
fn text_buckets(graph: &mut GraphBuilder, buckets: TextBuckets, texts: &Value) -> Value {
    let attributes = vec![
        int_attribute("positive", 1),
        int_attribute("seed", i64::from(buckets.seed)),
    ];
    let hashes = graph.runtime_node("MurmurHash3", &[texts], attributes);
    let hashes = graph.cast(&hashes, TensorType::Int64);
    let count = graph.int64(i64::from(buckets.buckets));
    let bucket = graph.node("Mod", &[&hashes, &count]);
    let attributes = vec![
        strings_attribute("keys_strings", vec![String::new()]),
        ints_attribute("values_int64s", vec![1]),
        int_attribute("default_int64", 0),
    ];
    let marks = graph.ml_node("LabelEncoder", &[texts], attributes);
    let mark = graph.int64(1);
    let is_missing = graph.node("Equal", &[&marks, &mark]);
    let missing = graph.int64(MISSING_ID);
    graph.node("Where", &[&is_missing, &missing, &bucket])
}

/// The value of the expression, in double precision.
fn number(graph: &mut GraphBuilder, expression: &NumberExpr, input: &Value) -> Value {
    match expression {
        NumberExpr::Input => input.clone(),
        NumberExpr::Constant(value) => graph.double(*value),
        NumberExpr::Sum(a, right) => binary(graph, "Add", a, right, input),
        NumberExpr::Difference(a, right) => binary(graph, "Sub", a, right, input),
        NumberExpr::Product(a, right) => binary(graph, "Mul", a, right, input),
        NumberExpr::Quotient(a, right) => binary(graph, "Div", a, right, input),
        NumberExpr::Least(a, right) => binary(graph, "Min", a, right, input),
        NumberExpr::Greatest(a, right) => binary(graph, "Max", a, right, input),
        NumberExpr::Sigmoid(operand) => {
            let operand = number(graph, operand, input);
            graph.node("Sigmoid", &[&operand])
        }
        NumberExpr::LogOnePlus(operand) => {
            let operand = number(graph, operand, input);
            log_one_plus(graph, &operand)
        }
        NumberExpr::BoxCox(operand, exponent) => {
            let operand = number(graph, operand, input);
            let logarithm = graph.node("Log", &[&operand]);
            power_of_logarithm(graph, &logarithm, *exponent)
        }
        NumberExpr::YeoJohnson(operand, exponent) => {
            let operand = number(graph, operand, input);
            yeo_johnson(graph, &operand, *exponent)
        }
        NumberExpr::Coalesce(operand, replacement) => {
            let operand = number(graph, operand, input);
            let replacement = number(graph, replacement, input);
            let is_missing = graph.node("IsNaN", &[&operand]);
            graph.node("Where", &[&is_missing, &replacement, &operand])
        }
    }
}

fn binary(
    graph: &mut GraphBuilder,
    operator: &str,
    a: &NumberExpr,
    right: &NumberExpr,
    input: &Value,
) -> Value {
    let a = number(graph, a, input);
    let right = number(graph, right, input);
    graph.node(operator, &[&a, &right])
}

/// `(exp(exponent * logarithm) - 1) / exponent`.
fn power_of_logarithm(graph: &mut GraphBuilder, logarithm: &Value, exponent: f64) -> Value {
    if exponent == 0.0 {
        return logarithm.clone();
    }
    let unit = graph.double(1.0);
    let exponent = graph.double(exponent);
    let product = graph.node("Mul", &[logarithm, &exponent]);
    let power = graph.node("Exp", &[&product]);
    let difference = graph.node("Sub", &[&power, &unit]);
    graph.node("Div", &[&difference, &exponent])
}

/// The power of Yeo and Johnson, which both signs of a number have: each with an exponent of its own.
fn yeo_johnson(graph: &mut GraphBuilder, x: &Value, exponent: f64) -> Value {
    let size = graph.node("Abs", &[x]);
    let logarithm = log_one_plus(graph, &size);
    let upper = power_of_logarithm(graph, &logarithm, exponent);
    let mirrored = power_of_logarithm(graph, &logarithm, 2.0 - exponent);
    let lower = graph.node("Neg", &[&mirrored]);
    let zero = graph.double(0.0);
    let is_negative = graph.node("Less", &[x, &zero]);
    graph.node("Where", &[&is_negative, &lower, &upper])
}

/// `ln(1 + x)` from a logarithm of rounded arguments: with `u = 1 + x`, `ln(u) * x / (u - 1)`.
///
/// Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 1.14.1 (after Kahan).
fn log_one_plus(graph: &mut GraphBuilder, x: &Value) -> Value {
    let unit = graph.double(1.0);
    let zero = graph.double(0.0);
    let u = graph.node("Add", &[&unit, x]);
    let rounded_x = graph.node("Sub", &[&u, &unit]);
    let logarithm = graph.node("Log", &[&u]);
    let product = graph.node("Mul", &[&logarithm, x]);
    let corrected = graph.node("Div", &[&product, &rounded_x]);
    // Below the precision of 1, the logarithm is x itself.
    let is_tiny = graph.node("Equal", &[&rounded_x, &zero]);
    let small = graph.node("Where", &[&is_tiny, x, &corrected]);
    // Nothing was rounded, or x is infinite.
    let is_exact = graph.node("Equal", &[&rounded_x, x]);
    graph.node("Where", &[&is_exact, &logarithm, &small])
}
