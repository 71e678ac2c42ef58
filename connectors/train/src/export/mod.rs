//! Models in the formats of other runtimes.
//!
//! A model alone takes the features as the step delivers them: float32 numbers with NaN for missing ones, and int64 ids
//! with -1 for missing ones. With the steps, it takes columns of the source, and results of windows and joins.

mod categories;
mod classes;
mod graph;
mod inputs;
mod lightgbm;
mod network;
mod protobuf;
mod steps;
mod target;
mod trees;
mod typed_value;

use forebay_contract::{ModelClasses, PortableSteps, TargetStage};
use forebay_model::{Fault, Result, codes};

use self::graph::GraphBuilder;
use self::lightgbm::LightGbmTrees;
use self::steps::StepColumns;
use self::target::TargetInverse;
use super::boosting::{BoostedModel, BoostingCard, ModelOutput, Objective, TreeEnsemble};
use super::config::LossFunction;
use super::file::{ModelCard, Predictor, PredictorModel};
use super::group_names::GroupName;

/// Name of the output with the point forecast.
const PREDICTION: &str = "prediction";

/// The part of a model that is exported, where it consists of several.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelPart {
    /// Values of the columns in `by`, for models by group
    pub group: Option<Vec<String>>,
    /// Step of the horizon, counted from 1, for models by step
    pub step: Option<u64>,
}

/// Outputs of boosted trees.
enum TreeOutputs<'a> {
    /// The point forecast first, then the quantiles.
    Numbers(Vec<ModelOutput<'a>>),
    /// Trees of each class, in the order of the classes.
    Classes(&'a ModelClasses, Vec<&'a TreeEnsemble>),
}

/// The model as a file of ONNX (IR 10, `ai.onnx` 21, `ai.onnx.ml` 5), which onnxruntime 1.20 and later runs.
///
/// Inputs are named after columns, one value per row: the features, or what `steps` takes. Outputs are `prediction` and, for each quantile,
/// `prediction_q10` and so on; of a model of classes, they are the most probable class, and the probability of each,
/// `prediction_red` and so on. `target` has the stages by which a step transforms the label: with `steps`, predictions are
/// undone. Results differ from those of `forebay predict` by rounding alone. A row whose numbers are
/// not finite has the prediction NaN where `non_finite` of a network is `fail` or `skip`.
pub fn onnx_model(
    predictor: &Predictor,
    part: &ModelPart,
    steps: Option<&PortableSteps>,
    target: &[TargetStage],
) -> Result<Vec<u8>> {
    let card = &predictor.card;
    let mut graph = GraphBuilder::new(&card.origin.pipeline);
    let mut columns = match steps {
        Some(steps) => StepColumns::add(&mut graph, steps)?,
        None => StepColumns::none(),
    };
    let inverse = match steps {
        Some(_) => TargetInverse::add(&mut graph, &mut columns, target)?,
        None => TargetInverse::default(),
    };
    let unit = match &predictor.model {
        PredictorModel::Network(parameters) => {
            refuse_part(part)?;
            network::add_network(&mut graph, card, parameters, &mut columns, &inverse)?;
            match card.loss {
                LossFunction::SquaredError => "that of",
                LossFunction::Logistic => "probability of",
                LossFunction::Softmax => "class of",
            }
        }
        PredictorModel::Boosted(model) => match boosted_outputs(card, model, part)? {
            TreeOutputs::Numbers(outputs) => {
                trees::add_trees(&mut graph, &card.shape, &outputs, &mut columns, &inverse)?;
                unit_of_trees(&outputs)
            }
            TreeOutputs::Classes(classes, ensembles) => {
                let shape = &card.shape;
                trees::add_class_trees(&mut graph, shape, &ensembles, classes, &mut columns)?;
                "class of"
            }
        },
        PredictorModel::Series(_) => return Err(series_fault()),
    };
    let mut properties = metadata(card, part);
    let mut unit = format!("{unit} `{}`", card.label);
    if steps.is_none() && !target.is_empty() {
        unit += " as `target` transforms it";
    }
    properties.push(("unit", unit));
    Ok(graph.finish(properties))
}

/// The unit of predictions, before the label.
fn unit_of_trees(outputs: &[ModelOutput<'_>]) -> &'static str {
    let point = outputs.first();
    if point.is_some_and(|point| matches!(point.objective, Objective::Logistic)) {
        "probability of"
    } else {
        "that of"
    }
}

/// Boosted trees as a text model of LightGBM 4, which SHAP, treelite and Triton's FIL read. It holds the point forecast, or
/// the trees of each class, in the order of the classes.
///
/// Features are numbers first, then ids, in the order of the model.
pub fn lightgbm_model(predictor: &Predictor, part: &ModelPart) -> Result<String> {
    match &predictor.model {
        PredictorModel::Network(_) => {
            let message = "LightGBM's text format holds trees, and the model is a network";
            Err(Fault::new(codes::UNSUPPORTED, message).hint("export it to `model.onnx`"))
        }
        PredictorModel::Boosted(model) => {
            let card = &predictor.card;
            let trees = match boosted_outputs(card, model, part)? {
                TreeOutputs::Numbers(outputs) => LightGbmTrees::of_point(&outputs)?,
                TreeOutputs::Classes(_, ensembles) => LightGbmTrees::of_classes(ensembles),
            };
            lightgbm::lightgbm_text(&card.shape, &trees)
        }
        PredictorModel::Series(_) => Err(series_fault()),
    }
}

/// The fault of models of single series, which look at times and at no features.
fn series_fault() -> Fault {
    let message = "the model forecasts each series from its own values, and takes no features";
    Fault::new(codes::UNSUPPORTED, message).hint("publish its forecasts with a `predict` sink")
}

fn refuse_part(part: &ModelPart) -> Result<()> {
    if *part == ModelPart::default() {
        return Ok(());
    }
    let message = "the model has neither groups nor models by step";
    Err(Fault::new(codes::BAD_VALUE, message).hint("leave out `--group` and `--step`"))
}

fn boosted_outputs<'a>(
    card: &'a ModelCard,
    model: &'a BoostedModel,
    part: &ModelPart,
) -> Result<TreeOutputs<'a>> {
    let Some(boosting) = &card.boosting else {
        return Err(Fault::internal("boosted trees have no description"));
    };
    if let Some(classes) = &boosting.classes {
        refuse_part(part)?;
        let ensembles = model.ensembles().iter().collect();
        return Ok(TreeOutputs::Classes(classes, ensembles));
    }
    let group = group_name(boosting, part)?;
    let step = horizon_step(boosting, part)?;
    let outputs = model.outputs(group.as_ref(), step)?;
    Ok(TreeOutputs::Numbers(outputs))
}

/// The group whose model is exported; none where one model serves all rows.
fn group_name(boosting: &BoostingCard, part: &ModelPart) -> Result<Option<GroupName>> {
    let columns = boosting.by.join(", ");
    match &part.group {
        None if boosting.by.is_empty() => Ok(None),
        None => {
            let message = format!("the model has a model for each group by {columns}");
            let fault = Fault::new(codes::UNSUPPORTED, message);
            Err(fault.hint("export that of one group: `--group VALUE,...`"))
        }
        Some(_) if boosting.by.is_empty() => {
            refuse_part(part)?;
            Ok(None)
        }
        Some(values) if values.len() == boosting.by.len() => {
            Ok(Some(values.iter().cloned().map(Some).collect()))
        }
        Some(values) => {
            let count = values.len();
            let message = format!("`--group` gives {count} values, and groups are by {columns}");
            Err(Fault::new(codes::BAD_VALUE, message).hint("give one value for each column"))
        }
    }
}

/// The step of the horizon whose model is exported, counted from 1.
fn horizon_step(boosting: &BoostingCard, part: &ModelPart) -> Result<u64> {
    let Some(steps) = &boosting.steps else {
        return match part.step {
            None | Some(1) => Ok(1),
            Some(_) => {
                let message = "one model predicts all steps of the horizon";
                Err(Fault::new(codes::BAD_VALUE, message).hint("leave out `--step`"))
            }
        };
    };
    let last = steps.step_count();
    match part.step {
        Some(step) if (1..=last).contains(&step) => Ok(step),
        _ => {
            let message = format!("the model has models for the steps 1 to {last} of the horizon");
            Err(Fault::new(codes::UNSUPPORTED, message).hint("export that of one: `--step 1`"))
        }
    }
}

fn metadata(card: &ModelCard, part: &ModelPart) -> Vec<(&'static str, String)> {
    let mut properties = vec![
        ("training", card.origin.training.clone()),
        ("artifact", card.origin.artifact.clone()),
        ("pipeline", card.origin.pipeline.clone()),
        ("step", card.origin.from.clone()),
        ("label", card.label.clone()),
    ];
    if let Some(horizon) = &card.origin.horizon {
        properties.push(("horizon", horizon.clone()));
    }
    if let Some(group) = &part.group {
        properties.push(("group", group.join(",")));
    }
    if let Some(step) = part.step {
        properties.push(("horizon_step", step.to_string()));
    }
    properties
}
