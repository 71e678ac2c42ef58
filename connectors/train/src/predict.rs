//! A trained model as a predictor of rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float32Array, Float32Builder, RecordBatch};
use arrow::datatypes::{DataType, Field as Column, Schema};
use forebay_contract::{HORIZON_STEP, ModelClasses, ModelPredictor, Predictions, ReadModelFile};
use forebay_feed::{BatchFeatures, CategoricalType, FeatureField, PackedRows, PartRole};
use forebay_model::{Fault, Result, codes, type_words};

use super::config::MISSING_ID;
use super::file::{MODEL_FILE, ModelCard, Predictor};

/// The model in a directory; `None` if it has no file of a model.
pub fn read_predictor(files: ReadModelFile<'_>) -> Result<Option<Arc<dyn ModelPredictor>>> {
    let Some(bytes) = files(MODEL_FILE)? else {
        return Ok(None);
    };
    Ok(Some(Arc::new(Predictor::read(&bytes)?)))
}

impl ModelPredictor for Predictor {
    fn id(&self) -> &str {
        &self.card.origin.training
    }

    fn horizon(&self) -> Option<&str> {
        self.card.origin.horizon.as_deref()
    }

    fn columns(&self) -> Vec<String> {
        let mut columns = model_features(&self.card).columns();
        if self
            .card
            .boosting
            .as_ref()
            .is_some_and(|boosting| boosting.steps.is_some())
        {
            columns.push(HORIZON_STEP.to_owned());
        }
        columns
    }

    fn filled_columns(&self) -> Vec<String> {
        let dense = self.card.shape.dense.iter();
        // A model of trees takes NaN for a missing number.
        let filled = dense.filter(|field| field.missing.is_some_and(|value| !value.is_nan()));
        filled.map(|field| field.column.clone()).collect()
    }

    fn decisive_columns(&self) -> Vec<String> {
        let features = model_features(&self.card);
        match &self.card.boosting {
            Some(boosting) => boosting.decisive_columns(&features),
            None => features.columns(),
        }
    }

    fn check(&self, schema: &Schema) -> Result<()> {
        let features = model_features(&self.card);
        let fields = features.dense.iter().chain(&features.categorical);
        let faults = fields.filter_map(|field| check_feature_column(field, schema).err());
        Fault::combine(faults.collect()).map_or(Ok(()), Err)
    }

    fn label(&self) -> Option<&str> {
        Some(&self.card.label)
    }

    fn feeds_back(&self) -> Option<&str> {
        self.card
            .boosting
            .as_ref()
            .filter(|boosting| boosting.recursive)
            .map(|_| self.card.label.as_str())
    }

    fn quantiles(&self) -> &[f64] {
        if let Some(series) = &self.card.series {
            return series.quantiles();
        }
        self.card
            .boosting
            .as_ref()
            .map_or(&[], |boosting| &boosting.quantiles)
    }

    fn rows_with_models(&self, columns: &[ArrayRef], rows: usize) -> Result<Option<BooleanArray>> {
        let features = model_features(&self.card);
        self.rows_of_groups(&features, columns, rows)
    }

    fn classes(&self) -> Option<&ModelClasses> {
        self.card.classes()
    }

    fn predict(&self, columns: &[ArrayRef], rows: usize) -> Result<Predictions> {
        if rows == 0 {
            let nothing = Float32Array::new_null(0);
            let classes = self.classes().map_or(0, ModelClasses::count);
            return Ok(Predictions {
                quantiles: vec![nothing.clone(); self.quantiles().len()],
                probabilities: vec![nothing.clone(); classes],
                point: nothing,
            });
        }
        let features = model_features(&self.card);
        if let Some(predicted) = self.predict_columns(&features, columns, rows)? {
            return Ok(predicted);
        }
        // Features are taken by position: the names of the columns do not matter.
        let mut fields = Vec::with_capacity(columns.len());
        for (number, array) in columns.iter().enumerate() {
            let data_type = array.data_type().clone();
            fields.push(Column::new(number.to_string(), data_type, true));
        }
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns.to_vec())?;
        let packed = PackedRows::new(&features, &batch)
            .map_err(|fault| fault.note("rows count from the first of a batch"))?;
        let dense = packed.numbers(PartRole::Dense);
        let ids = packed.numbers(PartRole::Categorical);
        let predicted = Predictor::predict(self, rows, dense, ids);
        let mask = packed.numbers::<u8>(PartRole::Mask);
        if let Some(classes) = &self.card.classes {
            return Ok(class_predictions(&predicted, mask, classes.count()));
        }
        let mut point = Float32Builder::with_capacity(rows);
        for (value, mask) in predicted.into_iter().zip(mask) {
            // A row that does not count has no prediction.
            point.append_option((*mask != 0).then_some(value));
        }
        Ok(Predictions::from(point.finish()))
    }
}

/// Predictions of classes, given the probabilities of each row together, and 0 in `mask` for rows that do not count.
fn class_predictions(probabilities: &[f32], mask: &[u8], classes: usize) -> Predictions {
    let rows = probabilities.len() / classes.max(1);
    let mut point = Float32Builder::with_capacity(rows);
    let mut columns = Vec::with_capacity(classes);
    for _ in 0..classes {
        columns.push(Float32Builder::with_capacity(rows));
    }
    for (of_row, mask) in probabilities.chunks_exact(classes).zip(mask) {
        // A row that does not count has no prediction.
        let is_counted = *mask != 0;
        let greatest = of_row.iter().copied().fold(0.0, f32::max);
        point.append_option(is_counted.then_some(greatest));
        for (column, probability) in columns.iter_mut().zip(of_row) {
            column.append_option(is_counted.then_some(*probability));
        }
    }
    let mut probabilities = Vec::with_capacity(classes);
    for mut column in columns {
        probabilities.push(column.finish());
    }
    Predictions {
        point: point.finish(),
        quantiles: Vec::new(),
        probabilities,
    }
}

/// The columns that choose a model: those that name groups, or those of a series and its times.
fn other_columns(card: &ModelCard) -> Vec<String> {
    if let Some(series) = &card.series {
        return series.columns();
    }
    match &card.boosting {
        Some(boosting) => boosting.by.clone(),
        None => Vec::new(),
    }
}

/// Features of the model, as batches had them when it was trained.
fn model_features(card: &ModelCard) -> BatchFeatures {
    let categorical = card.shape.embeddings.iter();
    let categorical = categorical.map(|embedding| FeatureField {
        width: embedding.ids as u32,
        ..FeatureField::new(&embedding.column).missing(f64::from(MISSING_ID))
    });
    BatchFeatures {
        dense: card.shape.dense.clone(),
        categorical: categorical.collect(),
        categorical_type: CategoricalType::I32,
        beside: other_columns(card),
        non_finite: card.non_finite.feed_policy(),
        ..BatchFeatures::default()
    }
}

/// Checks that a column, if it exists, suits the feature. The widths of lists are known when they
/// are read.
fn check_feature_column(field: &FeatureField, schema: &Schema) -> Result<()> {
    let Ok(column) = schema.field_with_name(&field.column) else {
        return Ok(());
    };
    let is_number =
        |data_type: &DataType| data_type.is_numeric() || *data_type == DataType::Boolean;
    let suits = match column.data_type() {
        DataType::FixedSizeList(item, _) | DataType::List(item) | DataType::LargeList(item) => {
            is_number(item.data_type())
        }
        other => is_number(other) && field.width == 1,
    };
    if suits {
        return Ok(());
    }
    let message = format!(
        "`{}` is {}, and the model takes {} numbers",
        field.column,
        type_words(column.data_type()),
        field.width
    );
    Err(Fault::new(codes::COLUMN_TYPE, message)
        .column(&field.column)
        .hint("predict with the data that the model is for"))
}
