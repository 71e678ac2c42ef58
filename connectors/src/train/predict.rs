//! A trained model as a predictor of rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float32Array, RecordBatch};
use arrow::datatypes::{DataType, Field as Column, Schema};
use forebay_feed::{BatchFeatures, CategoricalType, FeatureField, PackedRows, PartRole};
use forebay_model::{Fault, Result, codes};
use forebay_run::{HORIZON_STEP, ModelPredictor, Predictions, ReadModelFile};

use super::config::MISSING_ID;
use super::file::{MODEL_FILE, ModelCard, Predictor};

/// The model in a directory.
pub(crate) fn read_predictor(files: ReadModelFile<'_>) -> Result<Arc<dyn ModelPredictor>> {
    let bytes = files(MODEL_FILE)?.ok_or_else(|| {
        let fault = Fault::new(codes::NOT_FOUND, "there is no model here");
        fault.hint("give the directory of a `train` sink, as `forebay run` prints it")
    })?;
    Ok(Arc::new(Predictor::read(&bytes)?))
}

impl ModelPredictor for Predictor {
    fn id(&self) -> &str {
        &self.card.origin.training
    }

    fn artifact(&self) -> &str {
        &self.card.origin.artifact
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

    fn check(&self, schema: &Schema) -> Result<()> {
        let features = model_features(&self.card);
        let fields = features.dense.iter().chain(&features.categorical);
        let faults = fields.filter_map(|field| check_feature_column(field, schema).err());
        Fault::combine(faults.collect()).map_or(Ok(()), Err)
    }

    fn feeds_back(&self) -> Option<&str> {
        self.card
            .boosting
            .as_ref()
            .filter(|boosting| boosting.recursive)
            .map(|_| self.card.label.as_str())
    }

    fn quantiles(&self) -> &[f64] {
        self.card
            .boosting
            .as_ref()
            .map_or(&[], |boosting| &boosting.quantiles)
    }

    fn predict(&self, columns: &[ArrayRef], rows: usize) -> Result<Predictions> {
        if rows == 0 {
            let none = || Float32Array::new_null(0);
            return Ok(Predictions {
                point: none(),
                quantiles: self.quantiles().iter().map(|_| none()).collect(),
            });
        }
        let features = model_features(&self.card);
        if let Some(predicted) = self.predict_columns(&features, columns, rows)? {
            return Ok(predicted);
        }
        let fields = columns.iter().enumerate();
        let fields = fields.map(|(number, array)| {
            Column::new(number.to_string(), array.data_type().clone(), true)
        });
        let batch = RecordBatch::try_new(
            Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            columns.to_vec(),
        )?;
        let packed = PackedRows::new(&features, &batch)
            .map_err(|fault| fault.note("rows count from the first of a batch"))?;
        let (dense, ids) = (
            packed.numbers(PartRole::Dense),
            packed.numbers(PartRole::Categorical),
        );
        let predicted = Predictor::predict(self, rows, dense, ids);
        let counts = packed
            .numbers::<u8>(PartRole::Mask)
            .iter()
            .map(|mask| *mask != 0);
        let point: Float32Array = predicted
            .into_iter()
            .zip(counts)
            .map(|(value, counts)| counts.then_some(value))
            .collect();
        Ok(Predictions::from(point))
    }
}

/// What the model takes, as batches had it when it was trained.
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
        beside: card
            .boosting
            .iter()
            .flat_map(|boosting| boosting.by.clone())
            .collect(),
        non_finite: card.non_finite.feed_policy(),
        ..BatchFeatures::default()
    }
}

/// Whether a column, where it is there, has what the model takes. The widths of lists are known when they are there.
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
        column.data_type(),
        field.width
    );
    Err(Fault::new(codes::COLUMN_TYPE, message)
        .column(&field.column)
        .hint("predict with the data that the model is for"))
}
