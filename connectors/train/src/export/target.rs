//! Predictions of a transformed target in the units of its rows.

use forebay_contract::{TargetFunction, TargetStage};
use forebay_model::{Fault, Result, codes};

use super::graph::{GraphBuilder, Value};
use super::protobuf::TensorType;
use super::steps::{StepColumns, log_one_plus};

/// The greatest argument for which `exp(x) - 1` comes from a hyperbolic tangent.
const SMALL_EXPONENT: f64 = 0.5;

/// The inverse of a target's transformation.
#[derive(Debug, Default)]
pub struct TargetInverse {
    /// In the order in which they transform
    stages: Vec<InverseStage>,
}

/// The inverse of one function.
#[derive(Debug)]
struct InverseStage {
    function: TargetFunction,
    /// The numbers of each row's series that it takes
    parameters: Vec<Value>,
}

impl TargetInverse {
    /// The inverse of some stages, with the parameters that the steps compute from keys. Differences are refused: they need
    /// earlier values.
    pub fn add(
        graph: &mut GraphBuilder,
        columns: &mut StepColumns,
        stages: &[TargetStage],
    ) -> Result<TargetInverse> {
        let mut inverses = Vec::with_capacity(stages.len());
        for stage in stages {
            if stage.function == TargetFunction::Difference {
                return Err(earlier_values_fault(&stage.column));
            }
            let mut parameters = Vec::with_capacity(stage.parameters.len());
            for name in &stage.parameters {
                parameters.push(columns.take(graph, name, TensorType::Double, 1)?);
            }
            if parameters.len() != stage.function.parameters() {
                return Err(Fault::internal(
                    "a target without the numbers of its series",
                ));
            }
            inverses.push(InverseStage {
                function: stage.function,
                parameters,
            });
        }
        Ok(TargetInverse { stages: inverses })
    }

    /// Gives a prediction its name among the outputs. Predictions that are undone are doubles, as published ones are.
    pub fn output(&self, graph: &mut GraphBuilder, name: &str, prediction: &Value) {
        if self.stages.is_empty() {
            graph.output(name, prediction, TensorType::Float);
            return;
        }
        let mut value = graph.cast(prediction, TensorType::Double);
        for stage in self.stages.iter().rev() {
            value = stage.undo(graph, value);
        }
        graph.output(name, &value, TensorType::Double);
    }
}

impl InverseStage {
    fn undo(&self, graph: &mut GraphBuilder, value: Value) -> Value {
        match (self.function, self.parameters.as_slice()) {
            (TargetFunction::Log1p, _) => exp_minus_one(graph, &value),
            (TargetFunction::Power(exponent), _) => root(graph, &value, exponent),
            (TargetFunction::BoxCox, [exponent]) => box_cox_inverse(graph, &value, exponent),
            (TargetFunction::Scale, [centre, scale]) => {
                let distance = graph.node("Mul", &[&value, scale]);
                graph.node("Add", &[&distance, centre])
            }
            // Refused when the inverse was made.
            (TargetFunction::Difference | TargetFunction::BoxCox | TargetFunction::Scale, _) => {
                value
            }
        }
    }
}

fn earlier_values_fault(column: &str) -> Fault {
    let message = format!(
        "`target` of `{column}` is undone with earlier values of the row's series, which other \
         runtimes do not have"
    );
    Fault::new(codes::UNSUPPORTED, message).column(column).hint(
        "export with `--without-steps`, whose predictions are of the transformed label, or use \
         `forebay predict` or `forebay serve`",
    )
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

/// The value of which `x` is the transformation of Box and Cox. Beyond its range, it is the bound of the domain.
fn box_cox_inverse(graph: &mut GraphBuilder, x: &Value, exponent: &Value) -> Value {
    let zero = graph.double(0.0);
    let least_product = graph.double(-1.0);
    let greatest = graph.double(f64::MAX);
    let product = graph.node("Mul", &[exponent, x]);
    let logarithm = log_one_plus(graph, &product);
    let quotient = graph.node("Div", &[&logarithm, exponent]);
    let in_domain = graph.node("Exp", &[&quotient]);
    let is_positive = graph.node("Greater", &[exponent, &zero]);
    let bound_of_domain = graph.node("Where", &[&is_positive, &zero, &greatest]);
    // False for NaN, which the logarithm keeps.
    let is_beyond = graph.node("LessOrEqual", &[&product, &least_product]);
    let power = graph.node("Where", &[&is_beyond, &bound_of_domain, &in_domain]);
    let exponential = graph.node("Exp", &[x]);
    let is_logarithm = graph.node("Equal", &[exponent, &zero]);
    graph.node("Where", &[&is_logarithm, &exponential, &power])
}
