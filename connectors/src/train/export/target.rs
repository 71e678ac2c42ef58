//! Predictions of a transformed target in the units of its rows.

use forebay_model::{Fault, Result, codes};
use forebay_run::{TargetFunction, TargetStage};

use super::graph::{GraphBuilder, Value};
use super::protobuf::TensorType;

/// The greatest argument for which `exp(x) - 1` comes from a hyperbolic tangent.
const SMALL_EXPONENT: f64 = 0.5;

/// The inverse of a target's transformation, whose functions need the prediction alone.
#[derive(Debug, Default)]
pub struct TargetInverse {
    /// In the order in which they transform.
    functions: Vec<TargetFunction>,
}

impl TargetInverse {
    /// The inverse of some stages. Those that need values of the row's series are refused.
    pub fn of(stages: &[TargetStage]) -> Result<TargetInverse> {
        let mut functions = Vec::with_capacity(stages.len());
        for stage in stages {
            if stage.function.parameters() > 0 {
                let message = format!(
                    "`target` of `{}` is undone with values of the row's series, which other \
                     runtimes do not compute",
                    stage.column
                );
                return Err(Fault::new(codes::UNSUPPORTED, message)
                    .column(&stage.column)
                    .hint(
                        "export with `--without-steps`, whose predictions are of the transformed \
                         label, or use `forebay predict` or `forebay serve`",
                    ));
            }
            functions.push(stage.function);
        }
        Ok(TargetInverse { functions })
    }

    /// Gives a prediction its name among the outputs. Predictions that are undone are doubles, as published ones are.
    pub fn output(&self, graph: &mut GraphBuilder, name: &str, prediction: &Value) {
        if self.functions.is_empty() {
            graph.output(name, prediction, TensorType::Float);
            return;
        }
        let mut value = graph.cast(prediction, TensorType::Double);
        for function in self.functions.iter().rev() {
            value = match function {
                TargetFunction::Log1p => exp_minus_one(graph, &value),
                TargetFunction::Power(exponent) => root(graph, &value, *exponent),
                // Refused when the inverse was made.
                TargetFunction::BoxCox | TargetFunction::Difference | TargetFunction::Scale => {
                    value
                }
            };
        }
        graph.output(name, &value, TensorType::Double);
    }
}

/// `exp(x) - 1`, which has no operator. Near 0 it is `2t / (1 - t)` with `t = tanh(x / 2)`, so that nothing cancels.
fn exp_minus_one(graph: &mut GraphBuilder, x: &Value) -> Value {
    let unit = graph.double(1.0);
    let half = graph.double(0.5);
    let halved = graph.node("Mul", &[x, &half]);
    let tangent = graph.node("Tanh", &[&halved]);
    let doubled = graph.node("Add", &[&tangent, &tangent]);
    let distance = graph.node("Sub", &[&unit, &tangent]);
    let near = graph.node("Div", &[&doubled, &distance]);
    let exponential = graph.node("Exp", &[x]);
    let far = graph.node("Sub", &[&exponential, &unit]);
    let small = graph.double(SMALL_EXPONENT);
    // False for NaN, which the exponential keeps.
    let is_small = graph.node("Less", &[x, &small]);
    graph.node("Where", &[&is_small, &near, &far])
}

/// The value of at least 0 whose power is `x`.
fn root(graph: &mut GraphBuilder, x: &Value, exponent: f64) -> Value {
    let zero = graph.double(0.0);
    let reciprocal = graph.double(exponent.recip());
    let bounded = graph.node("Max", &[x, &zero]);
    graph.node("Pow", &[&bounded, &reciprocal])
}
