//! Steps before a model as nodes of ONNX.

use std::collections::BTreeMap;

use arrow::datatypes::{DataType, Field};
use forebay_contract::{
    NumberExpr, PortableColumn, PortableMap, PortableStep, PortableSteps, TextBuckets,
};
use forebay_model::{Fault, Result, codes, type_words};

use super::categories::{
    category_numbers, ids_of_categories, indicators, kept_texts, key_numbers, parameters_of_keys,
    part_indicators,
};
use super::graph::{
    GraphBuilder, Value, doubles, int_attribute, int64s, ints_attribute, string_attribute,
    strings_attribute,
};
use super::protobuf::TensorType;
use super::typed_value::{MISSING_ID, TypedValue, plain_type, whole_numbers};

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
    /// where the empty text is a missing one; lists of texts as rows of strings, with empty texts at their ends.
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
                    let mut values = Vec::with_capacity(computed.reads.len());
                    for name in &computed.reads {
                        let column = column_of(&columns, name)?;
                        values.push(read_column(graph, &mut inputs, column)?);
                    }
                    let output = compute(graph, computed, &values)?;
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
        Ok(computed.as_type(graph, tensor_type))
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
    let value = if field.data_type().is_nested() {
        graph.list_input(field.name())
    } else {
        graph.input(field.name(), tensor_type, 1)
    };
    let input = TypedValue {
        value,
        tensor_type,
        name: field.name().clone(),
        data_type: field.data_type().clone(),
    };
    inputs.insert(field.name().clone(), input.clone());
    Ok(input)
}

fn input_type(field: &Field) -> Result<TensorType> {
    match plain_type(field.data_type()) {
        DataType::Float32 => Ok(TensorType::Float),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Ok(TensorType::String),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _)
            if plain_type(item.data_type()).is_string() =>
        {
            Ok(TensorType::String)
        }
        other if other.is_numeric() || *other == DataType::Boolean => Ok(TensorType::Double),
        other => Err(input_fault(field.name(), other)),
    }
}

fn input_fault(name: &str, data_type: &DataType) -> Fault {
    let words = type_words(data_type);
    let message = format!("`{name}` is {words}, which is no input of ONNX");
    let fault = Fault::new(codes::UNSUPPORTED, message).column(name);
    fault.hint("export the model alone with `--without-steps`")
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
    inputs: &[TypedValue],
) -> Result<TypedValue> {
    let (value, tensor_type) = match (&computed.map, inputs) {
        (PortableMap::PartIndicators(indicators), [list, ..]) => {
            let value = part_indicators(graph, &indicators.tokens, &list.value);
            (value, TensorType::Float)
        }
        (PortableMap::KeyNumbers(numbers), keys) => {
            let value = key_numbers(graph, numbers, keys)?;
            (value, TensorType::Double)
        }
        (PortableMap::NumberByKeys(number), [input, keys @ ..]) => {
            let inputs = NumberInputs {
                number: input.as_doubles(graph),
                parameters: parameters_of_keys(graph, number, keys)?,
            };
            number_of_type(graph, computed, &number.expression, &inputs)
        }
        (_, [input]) if input.data_type.is_nested() => {
            return Err(input_fault(&input.name, &input.data_type));
        }
        (_, [input]) => compute_from_column(graph, computed, input)?,
        _ => {
            let name = computed.output.name();
            let message = format!("`{name}` is not computed from one column");
            return Err(Fault::internal(message));
        }
    };
    Ok(TypedValue {
        value,
        tensor_type,
        name: computed.output.name().clone(),
        data_type: computed.output.data_type().clone(),
    })
}

/// The computation of a column from one column.
fn compute_from_column(
    graph: &mut GraphBuilder,
    computed: &PortableColumn,
    input: &TypedValue,
) -> Result<(Value, TensorType)> {
    let typed_value = match &computed.map {
        PortableMap::Number(expression) => {
            let inputs = NumberInputs {
                number: input.as_doubles(graph),
                parameters: Vec::new(),
            };
            number_of_type(graph, computed, expression, &inputs)
        }
        PortableMap::Ids(ids) => ids_of_categories(graph, ids, input)?,
        PortableMap::Texts(texts) => {
            let value = kept_texts(graph, texts, input)?;
            (value, TensorType::String)
        }
        PortableMap::CategoryNumbers(numbers) => {
            let value = category_numbers(graph, numbers, input)?;
            (value, TensorType::Double)
        }
        PortableMap::Indicators(tokens) => {
            let value = indicators(graph, tokens, input)?;
            (value, TensorType::Float)
        }
        PortableMap::Parts(delimiter) => {
            let attributes = vec![string_attribute("delimiter", delimiter)];
            let (parts, _) = graph.node_with_pair("StringSplit", &[&input.value], attributes);
            (parts, TensorType::String)
        }
        PortableMap::Missing => {
            let input = input.as_doubles(graph);
            let is_missing = graph.node("IsNaN", &[&input]);
            (
                graph.cast(&is_missing, TensorType::Double),
                TensorType::Double,
            )
        }
        PortableMap::Buckets(buckets) => {
            let value = text_buckets(graph, *buckets, &input.value);
            (value, TensorType::Int64)
        }
        PortableMap::Bins(boundaries) => {
            let input = input.as_doubles(graph);
            (bins(graph, boundaries, &input), TensorType::Double)
        }
        PortableMap::Ranks(boundaries) => {
            let input = input.as_doubles(graph);
            (ranks(graph, boundaries, &input), TensorType::Double)
        }
        PortableMap::WayBack(_) => {
            let name = computed.output.name();
            let message = format!("the step that makes `{name}` has no form that ONNX computes");
            let fault = Fault::new(codes::UNSUPPORTED, message).column(name);
            return Err(fault.hint(
                "export the model alone with `--without-steps`: it takes the results of the steps",
            ));
        }
        PortableMap::KeyNumbers(_)
        | PortableMap::NumberByKeys(_)
        | PortableMap::PartIndicators(_)
        | PortableMap::Columns(_) => {
            let name = computed.output.name();
            let message = format!("`{name}` has a computation of several columns");
            return Err(Fault::internal(message));
        }
    };
    Ok(typed_value)
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

/// The share of boundaries that are below a number, interpolated between the two around it; NaN, which is a missing
/// number, stays.
fn ranks(graph: &mut GraphBuilder, boundaries: &[f64], numbers: &Value) -> Value {
    // For each number of boundaries that are not above: the rank there, the boundary and the distance for a rank of 1.
    let mut starts = vec![if boundaries.is_empty() { 0.5 } else { 0.0 }];
    let mut lower = vec![0.0];
    let mut distances = vec![f64::INFINITY];
    let intervals = boundaries.len().saturating_sub(1) as f64;
    for (index, boundary) in boundaries.iter().enumerate() {
        let next = boundaries.get(index + 1);
        starts.push(next.map_or(1.0, |_| index as f64 / intervals));
        match next.filter(|next| boundary.is_finite() && next.is_finite()) {
            Some(next) => {
                lower.push(*boundary);
                distances.push((next - boundary) * intervals);
            }
            None => {
                lower.push(0.0);
                distances.push(f64::INFINITY);
            }
        }
    }
    let count = bins(graph, boundaries, numbers);
    let count = whole_numbers(graph, &count, 0);
    let size = [starts.len()];
    let starts = graph.constant(doubles(&size, &starts));
    let start = graph.node("Gather", &[&starts, &count]);
    let lower = graph.constant(doubles(&size, &lower));
    let lower = graph.node("Gather", &[&lower, &count]);
    let distances = graph.constant(doubles(&size, &distances));
    let distance = graph.node("Gather", &[&distances, &count]);
    let difference = graph.node("Sub", &[numbers, &lower]);
    let share = graph.node("Div", &[&difference, &distance]);
    // That of infinite numbers, which lie beyond all boundaries, is not a number.
    let zero = graph.double(0.0);
    let is_beyond = graph.node("IsNaN", &[&share]);
    let share = graph.node("Where", &[&is_beyond, &zero, &share]);
    let rank = graph.node("Add", &[&start, &share]);
    let missing = graph.double(f64::NAN);
    let is_missing = graph.node("IsNaN", &[numbers]);
    graph.node("Where", &[&is_missing, &missing, &rank])
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

/// The values of which an expression is computed.
struct NumberInputs {
    number: Value,
    /// The parameters of each row's keys
    parameters: Vec<Value>,
}

/// The value of the expression in the type of the column.
fn number_of_type(
    graph: &mut GraphBuilder,
    computed: &PortableColumn,
    expression: &NumberExpr,
    inputs: &NumberInputs,
) -> (Value, TensorType) {
    let result = number(graph, expression, inputs);
    match computed.output.data_type() {
        DataType::Float32 => (graph.cast(&result, TensorType::Float), TensorType::Float),
        _ => (result, TensorType::Double),
    }
}

/// The value of the expression, in double precision.
fn number(graph: &mut GraphBuilder, expression: &NumberExpr, input: &NumberInputs) -> Value {
    match expression {
        NumberExpr::Input => input.number.clone(),
        NumberExpr::Parameter(index) => input.parameters[*index].clone(),
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
    input: &NumberInputs,
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
pub fn log_one_plus(graph: &mut GraphBuilder, x: &Value) -> Value {
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
