//! The step that predicts. No spec can name it: it needs a loaded model.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, BooleanArray, DictionaryArray, Int32Array, StringArray, new_null_array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float32Type, Int32Type};
use forebay_contract::{
    HORIZON_STEP, ModelClasses, ModelPredictor, TargetChain, prediction_fields, quantile_column,
};
use forebay_model::{Fault, Result, RowChange, Step, codes};
use forebay_plan::{
    BindScope, FutureFlow, KNOWN_UNTIL, MapOp, PlanOp, PredictionFeedback, RowMark, Transform,
    TransformRegistry, ValueCount, admit_output, check_horizon, check_recursive_label,
    source_column, unknown_column,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::missing_values::missing_values;
use super::model::{LoadedModel, LoadedModels};
use super::values::{
    BoundedColumns, PredictionBounds, bounded_columns, in_units_of_rows, prediction_type,
};

/// Columns of a forecast in addition to keys, time, source columns and the prediction.
pub(crate) const STEP: &str = "step";
pub(super) const KNOWN: &str = "known_until";
const MODEL: &str = "model";
const ARTIFACT: &str = "artifact";

/// True for a column of a forecast that all rows of a series have in common, besides its keys.
pub(crate) fn is_constant_of_series(column: &str) -> bool {
    [KNOWN, MODEL, ARTIFACT].contains(&column)
}

/// Temporary column of the prediction.
const PREDICTED: &str = "__future_prediction";

/// Adds a model's prediction to the rows that it takes, and its quantiles, sorted; or the most probable class, and the
/// probability of each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PredictTransform {
    /// The id of the training.
    pub model: String,
    /// The new column.
    pub column: String,
    /// Least prediction: smaller ones are moved to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// Greatest prediction: greater ones are moved to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// True if predictions are written as doubles, although the target of the rows is not transformed: a naive forecast
    /// has the columns of the model that it replaces.
    #[serde(default, skip_serializing_if = "is_false")]
    pub doubles: bool,
    /// Columns of a forecast, for rows of the future: keys, time and predictions in a fixed order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<ForecastColumns>,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// Columns and constants of each row of a forecast.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForecastColumns {
    /// Source columns in addition to keys and time.
    pub columns: Vec<String>,
    /// The id of the artifact that the model's features are made with. The naive forecast has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<String>,
    /// The horizon for which the model was trained.
    pub horizon: Option<String>,
}

/// A step that predicts, with the models of its session.
#[derive(Debug)]
struct PredictStep {
    config: PredictTransform,
    models: LoadedModels,
}

impl Transform for PredictStep {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let model = self.models.find(&self.config.model)?;
        self.config.bind_model(model, scope)
    }
}

/// Adds the step that predicts to the transforms of a session.
pub(crate) fn register_predict_step(registry: &mut TransformRegistry, models: &LoadedModels) {
    let models = models.clone();
    registry.register_with(
        PredictTransform::NAME,
        move |config: PredictTransform| -> Arc<dyn Transform> {
            let models = models.clone();
            Arc::new(PredictStep { config, models })
        },
    );
}

impl PredictTransform {
    /// Kind of the step. No spec can name it.
    pub const NAME: &'static str = "predict";

    /// A step of a pipeline. The session that runs it must have loaded the model.
    pub fn step(&self) -> Result<Step> {
        let config = serde_json::to_value(self)
            .map_err(|error| Fault::internal("a step that predicts").cause(error))?;
        Ok(Step {
            kind: Self::NAME.to_owned(),
            config,
            at: None,
        })
    }

    fn bind_model(&self, model: Arc<LoadedModel>, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        if model.predictor.classes().is_some() {
            self.check_classes(model.predictor.as_ref(), scope)?;
        }
        let data_type = prediction_type(scope.target.is_some() || self.doubles);
        let written = prediction_fields(model.predictor.as_ref(), &self.column, &data_type);
        let existing = written
            .iter()
            .map(Field::name)
            .find(|name| self.forecast.is_none() && scope.schema.field_with_name(name).is_ok());
        if let Some(name) = existing {
            let fault = Fault::new(
                codes::COLUMN_CLASH,
                format!("there is a column `{name}` already"),
            );
            return Err(fault
                .column(name)
                .hint("call the predictions something else: `--name`"));
        }
        let reads = model.predictor.columns();
        let by_step = reads.iter().any(|name| name == HORIZON_STEP);
        let recursive = model.predictor.feeds_back().map(str::to_owned);
        if (by_step || recursive.is_some()) && self.forecast.is_none() {
            let message = if by_step {
                "the model has trees for each step of the horizon, and predicts rows of the \
                 future only"
            } else {
                "the model predicts one step from another, and so rows of the future only"
            };
            return Err(Fault::new(codes::UNSUPPORTED, message)
                .hint("leave `--split` out, or name the part `future`"));
        }
        let is_missing =
            |name: &&String| *name != HORIZON_STEP && scope.schema.field_with_name(name).is_err();
        let missing = reads.iter().filter(is_missing);
        let missing = missing.map(|name| {
            unknown_column(name, scope.schema).note("the model was trained with this column")
        });
        let faults = missing
            .chain(model.predictor.check(scope.schema).err())
            .collect();
        if let Some(fault) = Fault::combine(faults) {
            return Err(fault);
        }
        let quantiles = model.predictor.quantiles().to_vec();
        let predicted = if self.forecast.is_some() {
            prediction_fields(model.predictor.as_ref(), PREDICTED, &data_type)
        } else {
            written
        };
        let target = transformed_target(model.predictor.as_ref(), scope);
        let bounds = self.bounds();
        let marks_empty = model.predictor.predicts_empty_rows();
        let filled = model.predictor.filled_columns();
        let unfilled = self.unfilled_columns(model.predictor.as_ref());
        let feedback = self.feedback_label(recursive, target.as_deref(), scope);
        let model_columns = reads.len();
        let undone = target.clone();
        let is_reconciled = model.predictor.reconciled().is_some();
        let reconciled_model = is_reconciled.then(|| model.clone());
        let parameters = target.iter().flat_map(|chain| chain.parameters());
        let reads: Vec<String> = reads.into_iter().chain(parameters).collect();
        let written_type = data_type.clone();
        let predict = MapOp::new(reads, predicted, move |columns, rows| {
            let (columns, parameters) = columns
                .split_at_checked(model_columns)
                .ok_or_else(|| Fault::internal("a model without its columns"))?;
            let classes = model.predictor.classes().map_or(0, ModelClasses::count);
            // Probabilities of each row together, and columns of them.
            admit_output((2 * size_of::<f32>() * classes).saturating_mul(rows))?;
            let predictions = model.predictor.predict(columns, rows)?;
            let bounded = match model.predictor.classes() {
                Some(classes) => BoundedColumns::of_classes(predictions, classes),
                None => {
                    let predictions = in_units_of_rows(predictions, undone.as_deref(), parameters)?;
                    bounded_columns(&predictions, bounds, &written_type)?
                }
            };
            let mut written = bounded.columns;
            written.push(Arc::new(bounded.clipped));
            written.push(Arc::new(bounded.crossed));
            if marks_empty {
                written.push(Arc::new(empty_rows(columns, rows)?));
            }
            Ok(written)
        });
        let mut marks = vec![RowMark::Clipped, RowMark::Crossed];
        if marks_empty {
            marks.push(RowMark::Constant);
        }
        let mut predict = predict.marking(marks);
        for column in filled {
            let position = predict.reads.iter().position(|read| *read == column);
            if let Some(position) = position {
                predict = predict.counting(ValueCount::filled(position, column));
            }
        }
        for column in unfilled {
            let position = predict.reads.iter().position(|read| *read == column);
            if let Some(position) = position {
                predict = predict.counting(ValueCount {
                    before: position,
                    column: Some(column),
                    ..ValueCount::new(RowChange::Missing, count_missing)
                });
            }
        }
        match &self.forecast {
            None => Ok(vec![PlanOp::Map(predict)]),
            Some(forecast) => {
                let mut ops =
                    self.forecast_ops(predict, forecast, &quantiles, &data_type, scope)?;
                if let Some(model) = reconciled_model {
                    // Right behind the operation whose predictions it replaces.
                    ops.insert(1, self.reconcile_op(model, &data_type, scope)?);
                }
                if let (Some(label), Some(PlanOp::Map(written))) = (feedback, ops.last_mut()) {
                    written.feedback = Some(self.feedback(label, scope)?);
                }
                Ok(ops)
            }
        }
    }
}

/// Counts the values of a column of a model that are missing.
fn count_missing(column: &ArrayRef, _: &ArrayRef) -> Result<u64> {
    Ok(missing_values(column)?.true_count() as u64)
}

/// Marks the rows in which no column of numbers has a finite value.
fn empty_rows(columns: &[ArrayRef], rows: usize) -> Result<BooleanArray> {
    let mut is_empty = vec![true; rows];
    for column in columns {
        let numbers = cast(column, &DataType::Float32)?;
        for (is_empty, number) in is_empty
            .iter_mut()
            .zip(numbers.as_primitive::<Float32Type>())
        {
            *is_empty &= !number.is_some_and(f32::is_finite);
        }
    }
    Ok(BooleanArray::from(is_empty))
}

impl PredictTransform {
    pub(super) fn bounds(&self) -> PredictionBounds {
        PredictionBounds::new(self.min, self.max)
    }

    /// Refuses settings and rows for which classes have no meaning.
    fn check_classes(&self, model: &dyn ModelPredictor, scope: &BindScope<'_>) -> Result<()> {
        if self.forecast.is_some() {
            return Err(classes_in_forecast_fault()
                .hint("predict known rows: name another part than `future` with `--split`"));
        }
        if self.min.is_some() || self.max.is_some() {
            let message = "the model predicts classes, and `min` and `max` bound numbers";
            return Err(Fault::new(codes::BAD_VALUE, message).hint("leave them out"));
        }
        if let Some(target) = transformed_target(model, scope) {
            let label = &target.column;
            let message = format!("the model predicts classes, and a step transforms `{label}`");
            return Err(Fault::new(codes::UNSUPPORTED, message)
                .column(label)
                .hint("train it on the label as it is"));
        }
        Ok(())
    }

    /// The columns of a model whose missing values a forecast counts: the model predicts by them, and does not fill them.
    fn unfilled_columns(&self, model: &dyn ModelPredictor) -> Vec<String> {
        if self.forecast.is_none() || model.predicts_empty_rows() {
            return Vec::new();
        }
        let filled = model.filled_columns();
        let mut columns = model.decisive_columns();
        columns.retain(|column| column != HORIZON_STEP && !filled.contains(column));
        // A column that has two parts in a model counts once.
        columns.sort();
        columns.dedup();
        columns
    }

    /// The columns of predictions in a forecast of a model.
    pub(super) fn prediction_columns(&self, model: &LoadedModel) -> Vec<String> {
        self.written_columns(&self.column, model.predictor.quantiles())
    }

    /// The column of the point forecast and those of quantiles.
    fn written_columns(&self, point: &str, quantiles: &[f64]) -> Vec<String> {
        let of_quantiles = quantiles
            .iter()
            .map(|quantile| quantile_column(point, *quantile));
        std::iter::once(point.to_owned())
            .chain(of_quantiles)
            .collect()
    }

    /// The label that predictions are values of in later rows: that of a recursive model, or a target whose differences
    /// reach back to rows of the horizon.
    fn feedback_label(
        &self,
        recursive: Option<String>,
        target: Option<&TargetChain>,
        scope: &BindScope<'_>,
    ) -> Option<String> {
        if recursive.is_some() {
            return recursive;
        }
        let future = scope.future?;
        let chain = target?;
        chain
            .reaches_into(future.horizon, future.steps)
            .then(|| chain.column.clone())
    }

    /// Feedback of predictions of a label to later rows.
    fn feedback(&self, label: String, scope: &BindScope<'_>) -> Result<PredictionFeedback> {
        let future = scope.future.ok_or_else(no_future)?;
        check_recursive_label(future, &label)?;
        Ok(PredictionFeedback {
            prediction: self.column.clone(),
            label,
            time: future.time.clone(),
        })
    }

    /// Replaces predictions by the reconciled forecasts of their series and time.
    fn reconcile_op(
        &self,
        model: Arc<LoadedModel>,
        data_type: &DataType,
        scope: &BindScope<'_>,
    ) -> Result<PlanOp> {
        let future = scope.future.ok_or_else(no_future)?;
        let keys = future.keys.len();
        let mut reads: Vec<String> = future.keys.iter().map(|key| source_column(key)).collect();
        reads.push(source_column(&future.time));
        reads.push(PREDICTED.to_owned());
        let writes = [Field::new(PREDICTED, data_type.clone(), true)];
        let written_type = data_type.clone();
        let reconcile = MapOp::new(reads, writes, move |columns, _| {
            let forecasts = model.predictor.reconciled();
            let forecasts =
                forecasts.ok_or_else(|| Fault::internal("a model without its forecasts"))?;
            let (keys, time) = columns.split_at(keys);
            let time = time
                .first()
                .ok_or_else(|| Fault::internal("a forecast without a time"))?;
            let rows = forecasts.of_rows(keys, time, &written_type)?;
            Ok(vec![rows.values, Arc::new(rows.clipped) as ArrayRef])
        });
        Ok(PlanOp::Map(reconcile.marking([RowMark::Clipped])))
    }

    /// Predicts, drops all columns, and writes those of the forecast.
    fn forecast_ops(
        &self,
        predict: MapOp,
        forecast: &ForecastColumns,
        quantiles: &[f64],
        data_type: &DataType,
        scope: &BindScope<'_>,
    ) -> Result<Vec<PlanOp>> {
        let future = scope.future.ok_or_else(no_future)?;
        check_horizon(future, forecast.horizon.as_deref())?;
        let time = future.source.field_with_name(&future.time)?.data_type();
        let mut reads = Vec::new();
        let mut writes: Vec<Field> = Vec::new();
        let mut add = |read: String, name: &str, data_type: &DataType| {
            if writes.iter().any(|field| field.name() == name) {
                let message = format!("two columns of the forecast would be called `{name}`");
                let hint =
                    "leave it out of `columns`, or call the prediction or the key something else";
                return Err(Fault::new(codes::COLUMN_CLASH, message)
                    .column(name)
                    .hint(hint));
            }
            reads.push(read);
            writes.push(Field::new(name, data_type.clone(), true));
            Ok(())
        };
        for name in source_columns(future, &forecast.columns) {
            let field = future
                .source
                .field_with_name(name)
                .map_err(|_| unknown_column(name, &future.source))?;
            add(source_column(name), name, field.data_type())?;
        }
        add(HORIZON_STEP.to_owned(), STEP, &DataType::UInt32)?;
        let predicted = self.written_columns(PREDICTED, quantiles);
        for (read, name) in predicted
            .into_iter()
            .zip(self.written_columns(&self.column, quantiles))
        {
            add(read, &name, data_type)?;
        }
        add(KNOWN_UNTIL.to_owned(), KNOWN, time)?;
        let ids = [
            (MODEL, Some(self.model.clone())),
            (ARTIFACT, forecast.artifact.clone()),
        ];
        for (name, _) in &ids {
            if writes.iter().any(|field| field.name() == name) {
                let message = format!("two columns of the forecast would be called `{name}`");
                return Err(Fault::new(codes::COLUMN_CLASH, message)
                    .column(*name)
                    .hint("rename the one of the source"));
            }
            writes.push(Field::new(*name, DataType::Utf8, true));
        }
        let written = MapOp::new(reads, writes, move |columns, rows| {
            let ids = ids.iter().map(|(_, id)| match id {
                Some(id) => repeated(id, rows),
                None => Ok(new_null_array(&DataType::Utf8, rows)),
            });
            columns.iter().cloned().map(Ok).chain(ids).collect()
        });
        Ok(vec![
            PlanOp::Map(predict),
            PlanOp::Project(Vec::new()),
            PlanOp::Map(written),
        ])
    }
}

/// Keys, time, and the requested columns.
pub(super) fn source_columns<'a>(future: &'a FutureFlow, columns: &'a [String]) -> Vec<&'a String> {
    let mut written: Vec<&String> = future.keys.iter().chain([&future.time]).collect();
    for column in columns {
        if !written.contains(&column) {
            written.push(column);
        }
    }
    written
}

/// The transformation of the target that a model learned.
fn transformed_target(
    model: &dyn ModelPredictor,
    scope: &BindScope<'_>,
) -> Option<Arc<TargetChain>> {
    let chain = scope.target?;
    (model.label() == Some(chain.column.as_str())).then(|| chain.clone())
}

/// The fault of a forecast by a model of classes.
pub(super) fn classes_in_forecast_fault() -> Fault {
    let message = "a forecast is of numbers, and the model predicts classes";
    Fault::new(codes::UNSUPPORTED, message)
}

pub(super) fn no_future() -> Fault {
    let fault = Fault::new(
        codes::MISSING_FIELD,
        "the step has no rows of the future to predict",
    );
    fault.hint(
        "add `future_rows` to its steps, before the windows; `aggregate`, `dedupe` and SQL end \
         them, and so does a union with an input that has none",
    )
}

/// A text in every row.
fn repeated(text: &str, rows: usize) -> Result<ArrayRef> {
    let values = Arc::new(StringArray::from(vec![text]));
    let keys = Int32Array::from(vec![0; rows]);
    Ok(Arc::new(DictionaryArray::<Int32Type>::try_new(
        keys, values,
    )?))
}

#[cfg(test)]
mod tests {
    use super::*;

    use arrow::array::{Float64Array, Int64Array};

    #[test]
    fn nulls_and_nan_are_missing() {
        let numbers: ArrayRef = Arc::new(Float64Array::from(vec![
            None,
            Some(0.0),
            Some(f64::NAN),
            Some(f64::INFINITY),
        ]));
        let counts: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, None, None]));
        assert_eq!(count_missing(&numbers, &numbers).unwrap(), 2);
        assert_eq!(count_missing(&counts, &numbers).unwrap(), 3);
    }

    #[test]
    fn rows_without_a_finite_number_are_empty() {
        let counts: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, None, None]));
        let numbers: ArrayRef = Arc::new(Float64Array::from(vec![
            None,
            Some(0.0),
            Some(f64::NAN),
            None,
        ]));
        let empty = empty_rows(&[counts, numbers], 4).unwrap();
        assert_eq!(empty, BooleanArray::from(vec![false, false, true, true]));
    }
}
