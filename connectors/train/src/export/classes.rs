//! Outputs of models of classes: the most probable class, then the probability of each.

use forebay_contract::{ModelClasses, class_column};

use super::graph::{GraphBuilder, Value, int_attribute, int64s, texts};
use super::protobuf::TensorType;

/// Class of a row without a prediction, where classes are whole numbers.
const NO_NUMBER: i64 = i64::MIN;

/// Adds the outputs for scores: a matrix of doubles with a column for each class. Of equal probabilities, the first class
/// is predicted. Rows that are marked as unusable have probabilities that are NaN, and no class: the empty text, or the
/// least whole number.
pub fn add_classes(
    graph: &mut GraphBuilder,
    scores: &Value,
    classes: &ModelClasses,
    unusable_rows: Option<&Value>,
) {
    let by_class = vec![int_attribute("axis", 1)];
    let probabilities = graph.node_with("Softmax", &[scores], by_class);
    let mut probabilities = graph.cast(&probabilities, TensorType::Float);
    let of_rows = vec![int_attribute("axis", 1), int_attribute("keepdims", 0)];
    let mut number = graph.node_with("ArgMax", &[&probabilities], of_rows);
    if let Some(unusable) = unusable_rows {
        let nothing = graph.int64(classes.count() as i64);
        number = graph.node("Where", &[unusable, &nothing, &number]);
        let column = graph.as_column(unusable);
        let missing = graph.float(f32::NAN);
        probabilities = graph.node("Where", &[&column, &missing, &probabilities]);
    }
    let names = add_names(graph, classes);
    let class = graph.node("Gather", &[&names, &number]);
    let tensor_type = match classes {
        ModelClasses::Integers(_) => TensorType::Int64,
        ModelClasses::Texts(_) => TensorType::String,
    };
    graph.output(super::PREDICTION, &class, tensor_type);
    for (number, name) in classes.names().iter().enumerate() {
        let probability = graph.column(&probabilities, number);
        let output = class_column(super::PREDICTION, name);
        graph.output(&output, &probability, TensorType::Float);
    }
}

/// The classes, and behind them that of a row without a prediction.
fn add_names(graph: &mut GraphBuilder, classes: &ModelClasses) -> Value {
    let tensor = match classes {
        ModelClasses::Integers(values) => {
            let mut values = values.clone();
            values.push(NO_NUMBER);
            int64s(&[values.len()], &values)
        }
        ModelClasses::Texts(values) => {
            let mut values = values.clone();
            values.push(String::new());
            texts(&values)
        }
    };
    graph.constant(tensor)
}
