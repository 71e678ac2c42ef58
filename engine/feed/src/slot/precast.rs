//! Early casts: the machine that reads the rows does the first step of packing, so that fewer bytes travel.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, FixedSizeListArray, Float32Array, Int32Array, Int64Array, RecordBatch,
};
use arrow::datatypes::{Field as ArrowField, Schema};
use forebay_model::{Fault, Result};

use super::features::{BatchFeatures, FeatureField};
use super::numeric_values::FeatureValues;

impl BatchFeatures {
    /// These features with NaN for numbers that are missing.
    pub fn with_missing_numbers(&self) -> BatchFeatures {
        let mut features = self.clone();
        for field in &mut features.dense {
            field.missing.get_or_insert(f64::NAN);
        }
        features
    }

    /// Casts the features of a batch, and checks missing values, as packing would: the packed bytes of the
    /// result are the same, and so are the faults. Values that packing fills stay null, since it counts them. `first_row` is the number of the first row, for faults.
    pub fn precast(&self, batch: &RecordBatch, first_row: u64) -> Result<RecordBatch> {
        // Categorical features are whole numbers, all others are not.
        let numbers = self.label.iter().chain(&self.weight);
        let dense = self.dense.iter().map(|field| (field, false));
        let categorical = self.categorical.iter().map(|field| (field, true));
        let fields = dense
            .chain(categorical)
            .chain(numbers.map(|field| (field, false)));
        let label = self.dense.len() + self.categorical.len();
        let mut arrays = batch.columns().to_vec();
        for (number, (array, (field, whole))) in arrays.iter_mut().zip(fields).enumerate() {
            if self.label_as_is && number == label {
                continue;
            }
            *array = precast_column(field, array, first_row, whole)?;
        }
        let mut fields = Vec::with_capacity(arrays.len());
        for (field, array) in batch.schema().fields().iter().zip(&arrays) {
            fields.push(ArrowField::new(
                field.name(),
                array.data_type().clone(),
                true,
            ));
        }
        Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)
    }
}

fn precast_column(
    field: &FeatureField,
    array: &ArrayRef,
    first_row: u64,
    whole: bool,
) -> Result<ArrayRef> {
    let column = FeatureValues::new(field, array, first_row, whole)?;
    // A cast would make these columns no smaller.
    let value_bytes = array.data_type().primitive_width();
    let is_small = value_bytes.is_some_and(|bytes| bytes <= size_of::<f32>());
    if column.width == 1 && is_small && array.null_count() == 0 {
        return Ok(array.clone());
    }
    let nulls = column.value_nulls();
    let flat: ArrayRef = if whole {
        let wide = column.wholes()?;
        let narrow = wide.iter().map(|value| i32::try_from(*value));
        match narrow.collect::<Result<Vec<i32>, _>>() {
            Ok(narrow) => Arc::new(Int32Array::new(narrow.into(), nulls)),
            // Packing decides about ids that are too large for 32 bits.
            Err(_) => Arc::new(Int64Array::new(wide.into(), nulls)),
        }
    } else {
        Arc::new(Float32Array::new(column.reals()?.into(), nulls))
    };
    if column.width == 1 {
        return Ok(flat);
    }
    let item = Arc::new(ArrowField::new("item", flat.data_type().clone(), true));
    let width = i32::try_from(column.width)
        .map_err(|error| Fault::internal("a wide column").cause(error))?;
    let lists = FixedSizeListArray::try_new(item, width, flat, None)?;
    Ok(Arc::new(lists))
}
