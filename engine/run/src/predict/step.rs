//! The step that predicts. No spec can name it: it needs a model at hand.

use std::sync::Arc;

use arrow::array::{ArrayRef, DictionaryArray, Int32Array, StringArray};
use arrow::datatypes::{DataType, Field, Int32Type};
use forebay_model::{Fault, Result, codes};
use forebay_plan::{
    BindScope, ConfiguredTransform, FutureFlow, HORIZON_STEP, KNOWN_UNTIL, MapOp, PlanOp,
    PredictionFeedback, RowMark, Transform, check_horizon, check_recursive_label, source_column,
    unknown_column,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::model::{LoadedModel, quantile_column};
use super::values::{PredictionBounds, bounded_columns};

/// Columns of a forecast beside keys, time, source columns and the prediction.
pub(super) const STEP: &str = "step";
pub(super) const KNOWN: &str = "known_until";
const MODEL: &str = "model";
const ARTIFACT: &str = "artifact";

/// The prediction until its row is put together.
const PREDICTED: &str = "__future_prediction";

/// Adds a model's prediction to the rows that it takes, and its quantiles, sorted.
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
    /// Makes rows of the future a forecast: keys, time and predictions in a fixed order, and nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<ForecastColumns>,
}

/// What a forecast says in each row.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForecastColumns {
    /// Source columns beside keys and time.
    pub columns: Vec<String>,
    /// The id of the artifact.
    pub artifact: String,
    /// The horizon for which the model was trained.
    pub horizon: Option<String>,
}

impl ConfiguredTransform for PredictTransform {
    const NAME: &'static str = "predict";
}

impl Transform for PredictTransform {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let model = LoadedModel::find(&self.model)?;
        let written = self.written_columns(&self.column, model.predictor.quantiles());
        let there = written
            .iter()
            .find(|name| self.forecast.is_none() && scope.schema.field_with_name(name).is_ok());
        if let Some(name) = there {
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
            let message = match by_step {
                true => {
                    "the model has trees for each step of the horizon, and predicts rows of the future only"
                }
                false => "the model predicts one step from another, and so rows of the future only",
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
        let names = if self.forecast.is_some() {
            self.written_columns(PREDICTED, &quantiles)
        } else {
            written
        };
        let predicted = names
            .iter()
            .map(|name| Field::new(name, DataType::Float32, true));
        let bounds = self.bounds();
        let predict = MapOp::new(reads, predicted, move |columns, rows| {
            let found = bounded_columns(model.predictor.predict(columns, rows)?, bounds);
            let marks: [ArrayRef; 2] = [Arc::new(found.clipped), Arc::new(found.crossed)];
            Ok(found.columns.into_iter().chain(marks).collect())
        });
        let predict = predict.marking([RowMark::Clipped, RowMark::Crossed]);
        match &self.forecast {
            None => Ok(vec![PlanOp::Map(predict)]),
            Some(forecast) => {
                let mut ops = self.forecast_ops(predict, forecast, &quantiles, scope)?;
                if let (Some(label), Some(PlanOp::Map(written))) = (recursive, ops.last_mut()) {
                    written.feedback = Some(self.feedback(label, scope)?);
                }
                Ok(ops)
            }
        }
    }
}

impl PredictTransform {
    pub(super) fn bounds(&self) -> PredictionBounds {
        PredictionBounds::new(self.min, self.max)
    }

    /// The columns of predictions in a forecast, whose model is loaded.
    pub(super) fn prediction_columns(&self) -> Result<Vec<String>> {
        Ok(self.written_columns(
            &self.column,
            LoadedModel::find(&self.model)?.predictor.quantiles(),
        ))
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

    /// How predictions of a label feed later rows.
    fn feedback(&self, label: String, scope: &BindScope<'_>) -> Result<PredictionFeedback> {
        let future = scope.future.ok_or_else(no_future)?;
        check_recursive_label(future, &label)?;
        Ok(PredictionFeedback {
            prediction: self.column.clone(),
            label,
            time: future.time.clone(),
        })
    }

    /// Predicts, drops all columns, and writes those of the forecast.
    fn forecast_ops(
        &self,
        predict: MapOp,
        forecast: &ForecastColumns,
        quantiles: &[f64],
        scope: &BindScope<'_>,
    ) -> Result<Vec<PlanOp>> {
        let future = scope.future.ok_or_else(no_future)?;
        check_horizon(future, forecast.horizon.as_deref())?;
        let time = future.source.field_with_name(&future.time)?.data_type();
        let mut reads = Vec::new();
        let mut writes: Vec<Field> = Vec::new();
        let mut add = |read: String, name: &str, data_type: &DataType| {
            if writes.iter().any(|known| known.name() == name) {
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
            add(read, &name, &DataType::Float32)?;
        }
        add(KNOWN_UNTIL.to_owned(), KNOWN, time)?;
        let ids = [
            (MODEL, self.model.clone()),
            (ARTIFACT, forecast.artifact.clone()),
        ];
        for (name, _) in &ids {
            if writes.iter().any(|known| known.name() == name) {
                let message = format!("two columns of the forecast would be called `{name}`");
                return Err(Fault::new(codes::COLUMN_CLASH, message)
                    .column(*name)
                    .hint("rename the one of the source"));
            }
            writes.push(Field::new(*name, DataType::Utf8, true));
        }
        let written = MapOp::new(reads, writes, move |columns, rows| {
            let ids = ids.iter().map(|(_, id)| repeated(id, rows));
            columns.iter().cloned().map(Ok).chain(ids).collect()
        });
        Ok(vec![
            PlanOp::Map(predict),
            PlanOp::Project(Vec::new()),
            PlanOp::Map(written),
        ])
    }
}

/// Keys, time, and the columns that were asked for.
pub(super) fn source_columns<'a>(future: &'a FutureFlow, columns: &'a [String]) -> Vec<&'a String> {
    let own = future.keys.iter().chain([&future.time]);
    let mut all: Vec<&String> = own.collect();
    for column in columns {
        if !all.contains(&column) {
            all.push(column);
        }
    }
    all
}

pub(super) fn no_future() -> Fault {
    let fault = Fault::new(
        codes::MISSING_FIELD,
        "the step has no rows of the future to predict",
    );
    fault.hint("add `future_rows` to its steps, before the windows; `aggregate`, `dedupe` and SQL end them")
}

/// A text in every row.
fn repeated(text: &str, rows: usize) -> Result<ArrayRef> {
    let values = Arc::new(StringArray::from(vec![text]));
    let keys = Int32Array::from(vec![0; rows]);
    Ok(Arc::new(DictionaryArray::<Int32Type>::try_new(
        keys, values,
    )?))
}
