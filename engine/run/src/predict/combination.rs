//! Forecasts of several models: their combination, and a model for rows of groups that another one has no model of.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, Float32Array, Float32Builder};
use arrow::compute::{filter, not};
use arrow::datatypes::Schema;
use forebay_contract::{
    EnsembleCombination, ForecastEnsemble, ModelPredictor, PredictConfig, Predictions,
};
use forebay_model::{Fault, Result, median};

/// The model of a forecast, of the models that its configuration names in the order of [`PredictConfig::models`].
pub(super) fn forecast_predictor(
    config: &PredictConfig,
    predictors: Vec<Arc<dyn ModelPredictor>>,
) -> Result<Arc<dyn ModelPredictor>> {
    let mut predictors = predictors.into_iter();
    let mut model = predictors.next().ok_or_else(missing_model)?;
    if config.fallback.is_some() {
        let fallback = predictors.next().ok_or_else(missing_model)?;
        model = Arc::new(CombinedModels::with_fallback(model, fallback));
    }
    let Some(ensemble) = &config.ensemble else {
        return Ok(model);
    };
    let mut members = vec![model];
    members.extend(predictors);
    Ok(Arc::new(CombinedModels::of_ensemble(members, ensemble)))
}

fn missing_model() -> Fault {
    Fault::internal("a forecast of fewer models than it names")
}

/// Models that predict together.
#[derive(Debug)]
struct CombinedModels {
    id: String,
    models: Vec<Arc<dyn ModelPredictor>>,
    columns: SharedColumns,
    rule: CombinationRule,
}

/// The way from predictions of several models to one.
#[derive(Debug)]
enum CombinationRule {
    /// The mean, with weights that add up to one.
    Mean(Vec<f64>),
    /// The median.
    Median,
    /// The first model for rows that it has a model of, and the second one for all others.
    Fallback,
}

impl CombinedModels {
    fn with_fallback(
        model: Arc<dyn ModelPredictor>,
        fallback: Arc<dyn ModelPredictor>,
    ) -> CombinedModels {
        let id = format!("{}, else {}", model.id(), fallback.id());
        let models = vec![model, fallback];
        CombinedModels {
            id,
            columns: SharedColumns::of(&models),
            models,
            rule: CombinationRule::Fallback,
        }
    }

    fn of_ensemble(
        models: Vec<Arc<dyn ModelPredictor>>,
        ensemble: &ForecastEnsemble,
    ) -> CombinedModels {
        let rule = match ensemble.combine {
            // Learned weights are declared by now.
            EnsembleCombination::Mean | EnsembleCombination::Nnls => {
                CombinationRule::Mean(whole_weights(&ensemble.weights, models.len()))
            }
            EnsembleCombination::Median => CombinationRule::Median,
        };
        CombinedModels {
            id: ensemble_id(&models, &rule),
            columns: SharedColumns::of(&models),
            models,
            rule,
        }
    }

    /// The combination of the predictions of all models. A row that does not count for one of them has none.
    fn combined(
        &self,
        columns: &[ArrayRef],
        rows: usize,
        combine: &dyn Fn(&mut [f64]) -> f64,
    ) -> Result<Predictions> {
        let mut predictions_by_model = Vec::with_capacity(self.models.len());
        for (number, model) in self.models.iter().enumerate() {
            let model_columns = self.columns.of_model(number, columns)?;
            predictions_by_model.push(model.predict(&model_columns, rows)?);
        }
        let points: Vec<&Float32Array> = predictions_by_model
            .iter()
            .map(|predictions| &predictions.point)
            .collect();
        let point = combined_column(&points, combine);
        let mut quantiles = Vec::with_capacity(self.quantiles().len());
        for number in 0..self.quantiles().len() {
            let mut of_models = Vec::with_capacity(self.models.len());
            for predictions in &predictions_by_model {
                of_models.push(quantile_of(predictions, number)?);
            }
            quantiles.push(combined_column(&of_models, combine));
        }
        Ok(Predictions {
            point,
            quantiles,
            // Forecasts are of numbers.
            probabilities: Vec::new(),
        })
    }

    /// The predictions of the first model for its rows, and those of the second one for all others.
    fn predicted_with_fallback(&self, columns: &[ArrayRef], rows: usize) -> Result<Predictions> {
        let [model, fallback] = self.models.as_slice() else {
            return Err(missing_model());
        };
        let model_columns = self.columns.of_model(0, columns)?;
        let Some(has_model) = model.rows_with_models(&model_columns, rows)? else {
            return model.predict(&model_columns, rows);
        };
        let fallback_columns = self.columns.of_model(1, columns)?;
        let predicted = predict_rows(model.as_ref(), &model_columns, &has_model)?;
        let others = predict_rows(fallback.as_ref(), &fallback_columns, &not(&has_model)?)?;
        let mut quantiles = Vec::with_capacity(self.quantiles().len());
        for number in 0..self.quantiles().len() {
            let column = quantile_of(&predicted, number)?;
            quantiles.push(merged(&has_model, column, quantile_of(&others, number)?));
        }
        Ok(Predictions {
            point: merged(&has_model, &predicted.point, &others.point),
            quantiles,
            probabilities: Vec::new(),
        })
    }
}

impl ModelPredictor for CombinedModels {
    fn id(&self) -> &str {
        &self.id
    }

    fn horizon(&self) -> Option<&str> {
        self.models.first().and_then(|model| model.horizon())
    }

    fn columns(&self) -> Vec<String> {
        self.columns.names.clone()
    }

    fn filled_columns(&self) -> Vec<String> {
        let mut names = self.columns.names.clone();
        names.retain(|name| {
            let readers = self.models.iter().filter(|model| reads(model, name));
            let mut fills = readers.map(|model| model.filled_columns().contains(name));
            fills.all(|is_filled| is_filled)
        });
        names
    }

    fn decisive_columns(&self) -> Vec<String> {
        let mut names = self.columns.names.clone();
        names.retain(|name| {
            let mut models = self.models.iter();
            models.any(|model| model.decisive_columns().contains(name))
        });
        names
    }

    fn check(&self, schema: &Schema) -> Result<()> {
        let faults = self
            .models
            .iter()
            .filter_map(|model| model.check(schema).err());
        Fault::combine(faults.collect()).map_or(Ok(()), Err)
    }

    fn quantiles(&self) -> &[f64] {
        self.models.first().map_or(&[], |model| model.quantiles())
    }

    fn label(&self) -> Option<&str> {
        self.models.first().and_then(|model| model.label())
    }

    fn feeds_back(&self) -> Option<&str> {
        self.models.iter().find_map(|model| model.feeds_back())
    }

    fn predict(&self, columns: &[ArrayRef], rows: usize) -> Result<Predictions> {
        match &self.rule {
            CombinationRule::Mean(weights) => {
                self.combined(columns, rows, &|values: &mut [f64]| {
                    let weighted = values.iter().zip(weights);
                    weighted.map(|(value, weight)| value * weight).sum()
                })
            }
            CombinationRule::Median => self.combined(columns, rows, &median),
            CombinationRule::Fallback => self.predicted_with_fallback(columns, rows),
        }
    }
}

/// The columns that several models read, each once.
#[derive(Debug)]
struct SharedColumns {
    names: Vec<String>,
    /// Positions of the columns of each model.
    positions: Vec<Vec<usize>>,
}

impl SharedColumns {
    fn of(models: &[Arc<dyn ModelPredictor>]) -> SharedColumns {
        let mut names: Vec<String> = Vec::new();
        let mut positions = Vec::with_capacity(models.len());
        for model in models {
            let mut of_model = Vec::new();
            for column in model.columns() {
                let position = names.iter().position(|name| *name == column);
                of_model.push(position.unwrap_or(names.len()));
                if position.is_none() {
                    names.push(column);
                }
            }
            positions.push(of_model);
        }
        SharedColumns { names, positions }
    }

    /// The columns of a model, of those of all.
    fn of_model(&self, model: usize, columns: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
        let positions = self.positions.get(model).ok_or_else(missing_model)?;
        let mut model_columns = Vec::with_capacity(positions.len());
        for position in positions {
            let column = columns.get(*position);
            let column = column.ok_or_else(|| Fault::internal("a model without its columns"))?;
            model_columns.push(column.clone());
        }
        Ok(model_columns)
    }
}

fn reads(model: &Arc<dyn ModelPredictor>, name: &str) -> bool {
    model.columns().iter().any(|column| column == name)
}

/// Weights that add up to one: equal ones where none are declared.
fn whole_weights(declared: &[f64], count: usize) -> Vec<f64> {
    if declared.len() != count {
        return vec![1.0 / count as f64; count];
    }
    let total: f64 = declared.iter().sum();
    declared.iter().map(|weight| weight / total).collect()
}

/// Everything that determines the predictions of an ensemble, as text.
fn ensemble_id(models: &[Arc<dyn ModelPredictor>], rule: &CombinationRule) -> String {
    let mut texts = Vec::with_capacity(models.len());
    for (number, model) in models.iter().enumerate() {
        let id = model.id();
        match rule {
            CombinationRule::Mean(weights) => {
                let weight = weights.get(number).copied().unwrap_or(0.0);
                texts.push(format!("{weight} of {id}"));
            }
            CombinationRule::Median | CombinationRule::Fallback => texts.push(id.to_owned()),
        }
    }
    match rule {
        CombinationRule::Mean(_) => texts.join(" + "),
        CombinationRule::Median | CombinationRule::Fallback => {
            format!("median of {}", texts.join(" and "))
        }
    }
}

fn combined_column(columns: &[&Float32Array], combine: &dyn Fn(&mut [f64]) -> f64) -> Float32Array {
    let rows = columns.first().map_or(0, |column| column.len());
    let mut values = Vec::with_capacity(columns.len());
    let mut predicted = Float32Builder::with_capacity(rows);
    for row in 0..rows {
        values.clear();
        let present = columns.iter().filter(|column| column.is_valid(row));
        values.extend(present.map(|column| f64::from(column.value(row))));
        let is_whole = values.len() == columns.len();
        predicted.append_option(is_whole.then(|| combine(&mut values) as f32));
    }
    predicted.finish()
}

fn quantile_of(predictions: &Predictions, number: usize) -> Result<&Float32Array> {
    let column = predictions.quantiles.get(number);
    column.ok_or_else(|| Fault::internal("a model without a quantile"))
}

/// The predictions of a model for the rows that a mask has.
fn predict_rows(
    model: &dyn ModelPredictor,
    columns: &[ArrayRef],
    mask: &BooleanArray,
) -> Result<Predictions> {
    let rows = mask.true_count();
    if rows == 0 {
        return Ok(Predictions {
            point: Float32Array::new_null(0),
            quantiles: vec![Float32Array::new_null(0); model.quantiles().len()],
            probabilities: Vec::new(),
        });
    }
    let mut chosen = Vec::with_capacity(columns.len());
    for column in columns {
        chosen.push(filter(column, mask)?);
    }
    model.predict(&chosen, rows)
}

/// The values of two columns in the order of the rows: of the first one where the mask is true.
fn merged(mask: &BooleanArray, column: &Float32Array, others: &Float32Array) -> Float32Array {
    let mut column_values = column.iter();
    let mut other_values = others.iter();
    let mut values = Float32Builder::with_capacity(mask.len());
    for row in 0..mask.len() {
        let value = if mask.value(row) {
            column_values.next()
        } else {
            other_values.next()
        };
        values.append_option(value.flatten());
    }
    values.finish()
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, StringArray};
    use arrow::datatypes::Float32Type;

    use super::*;

    /// A model that predicts a multiple of a column, and has models of the items that it lists.
    #[derive(Debug)]
    struct MultipleModel {
        id: &'static str,
        column: &'static str,
        factor: f32,
        items: Option<Vec<&'static str>>,
        fills: bool,
    }

    impl MultipleModel {
        fn new(id: &'static str, column: &'static str, factor: f32) -> MultipleModel {
            MultipleModel {
                id,
                column,
                factor,
                items: None,
                fills: false,
            }
        }
    }

    impl ModelPredictor for MultipleModel {
        fn id(&self) -> &str {
            self.id
        }

        fn horizon(&self) -> Option<&str> {
            Some("7d")
        }

        fn columns(&self) -> Vec<String> {
            vec![self.column.to_owned(), "item".to_owned()]
        }

        fn filled_columns(&self) -> Vec<String> {
            let mut columns = vec![self.column.to_owned()];
            columns.retain(|_| self.fills);
            columns
        }

        fn check(&self, _: &Schema) -> Result<()> {
            Ok(())
        }

        fn quantiles(&self) -> &[f64] {
            &[0.9]
        }

        fn rows_with_models(
            &self,
            columns: &[ArrayRef],
            rows: usize,
        ) -> Result<Option<BooleanArray>> {
            let Some(items) = &self.items else {
                return Ok(None);
            };
            let names = columns[1].as_string::<i32>();
            let has_model = (0..rows).map(|row| items.contains(&names.value(row)));
            Ok(Some(BooleanArray::from(has_model.collect::<Vec<bool>>())))
        }

        fn predict(&self, columns: &[ArrayRef], rows: usize) -> Result<Predictions> {
            let numbers = columns[0].as_primitive::<Float32Type>();
            assert_eq!(numbers.len(), rows);
            let point: Float32Array = numbers.unary(|number| number * self.factor);
            let upper: Float32Array = point.unary(|value| value + 1.0);
            Ok(Predictions {
                point,
                quantiles: vec![upper],
                probabilities: Vec::new(),
            })
        }
    }

    fn numbers(values: &[Option<f32>]) -> Float32Array {
        Float32Array::from(values.to_vec())
    }

    /// Columns `price`, `item` and `qty`, as the models of a test read them.
    fn columns() -> Vec<ArrayRef> {
        vec![
            Arc::new(numbers(&[Some(1.0), Some(2.0), None, Some(4.0)])),
            Arc::new(StringArray::from(vec!["a", "b", "a", "c"])),
            Arc::new(numbers(&[Some(10.0), Some(20.0), Some(30.0), Some(40.0)])),
        ]
    }

    fn models(models: [MultipleModel; 2]) -> Vec<Arc<dyn ModelPredictor>> {
        let mut shared: Vec<Arc<dyn ModelPredictor>> = Vec::new();
        for model in models {
            shared.push(Arc::new(model));
        }
        shared
    }

    fn two_models() -> Vec<Arc<dyn ModelPredictor>> {
        models([
            MultipleModel::new("trees", "price", 2.0),
            MultipleModel::new("theta", "qty", 1.0),
        ])
    }

    #[track_caller]
    fn assert_combined(combine: EnsembleCombination, weights: &[f64], expected: &[Option<f32>]) {
        let ensemble = ForecastEnsemble {
            with: vec!["theta".to_owned()],
            combine,
            weights: weights.to_vec(),
            ..ForecastEnsemble::default()
        };
        let combined = CombinedModels::of_ensemble(two_models(), &ensemble);
        assert_eq!(combined.columns(), ["price", "item", "qty"]);
        let predictions = combined.predict(&columns(), 4).unwrap();
        assert_eq!(predictions.point, numbers(expected));
        let upper: Vec<Option<f32>> = expected
            .iter()
            .map(|value| value.map(|value| value + 1.0))
            .collect();
        assert_eq!(predictions.quantiles, [numbers(&upper)]);
    }

    #[test]
    fn ensembles_combine_the_predictions_of_each_row() {
        let mean = [Some(6.0), Some(12.0), None, Some(24.0)];
        assert_combined(EnsembleCombination::Mean, &[], &mean);
        assert_combined(EnsembleCombination::Median, &[], &mean);
        let weighted = [Some(4.0), Some(8.0), None, Some(16.0)];
        assert_combined(EnsembleCombination::Mean, &[3.0, 1.0], &weighted);
    }

    fn id_of(ensemble: &ForecastEnsemble) -> String {
        CombinedModels::of_ensemble(two_models(), ensemble).id
    }

    #[test]
    fn the_id_of_an_ensemble_tells_its_models_and_weights() {
        let mut ensemble = ForecastEnsemble {
            with: vec!["theta".to_owned()],
            ..ForecastEnsemble::default()
        };
        assert_eq!(id_of(&ensemble), "0.5 of trees + 0.5 of theta");
        ensemble.weights = vec![3.0, 1.0];
        assert_eq!(id_of(&ensemble), "0.75 of trees + 0.25 of theta");
        ensemble.weights.clear();
        ensemble.combine = EnsembleCombination::Median;
        assert_eq!(id_of(&ensemble), "median of trees and theta");
    }

    #[test]
    fn a_fallback_predicts_rows_of_groups_without_a_model() {
        for (items, expected) in [
            (Some(vec!["a"]), [Some(2.0), Some(20.0), None, Some(40.0)]),
            (
                Some(vec![]),
                [Some(10.0), Some(20.0), Some(30.0), Some(40.0)],
            ),
            (
                Some(vec!["a", "b", "c"]),
                [Some(2.0), Some(4.0), None, Some(8.0)],
            ),
            (None, [Some(2.0), Some(4.0), None, Some(8.0)]),
        ] {
            let trees = MultipleModel {
                items,
                ..MultipleModel::new("trees", "price", 2.0)
            };
            let theta = MultipleModel::new("theta", "qty", 1.0);
            let config = PredictConfig {
                fallback: Some("theta".to_owned()),
                ..PredictConfig::new("trees", "out")
            };
            let model = forecast_predictor(&config, models([trees, theta])).unwrap();
            assert_eq!(model.id(), "trees, else theta");
            let predictions = model.predict(&columns(), 4).unwrap();
            assert_eq!(predictions.point, numbers(&expected));
            let upper = expected.map(|value: Option<f32>| value.map(|value| value + 1.0));
            assert_eq!(predictions.quantiles, [numbers(&upper)]);
        }
    }

    #[test]
    fn columns_are_filled_where_all_models_that_read_them_fill_them() {
        for (fills, expected) in [
            ([true, true], vec!["price"]),
            ([true, false], vec![]),
            ([false, false], vec![]),
        ] {
            let [trees, theta] = fills.map(|fills| MultipleModel {
                fills,
                ..MultipleModel::new("model", "price", 1.0)
            });
            let combined =
                CombinedModels::of_ensemble(models([trees, theta]), &ForecastEnsemble::default());
            assert_eq!(combined.filled_columns(), expected);
            assert_eq!(combined.decisive_columns(), ["price", "item"]);
        }
    }

    #[test]
    fn a_model_alone_is_not_combined() {
        let config = PredictConfig::new("trees", "out");
        let alone = vec![two_models().swap_remove(0)];
        let model = forecast_predictor(&config, alone).unwrap();
        assert_eq!(model.id(), "trees");
        assert!(forecast_predictor(&config, Vec::new()).is_err());
    }
}
