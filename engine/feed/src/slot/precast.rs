//! What packing does first, done ahead: on the machine that reads the rows, so that fewer bytes travel.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, FixedSizeListArray, Float32Array, Int32Array, Int64Array, RecordBatch,
};
use arrow::datatypes::{Field as ArrowField, Schema};
use forebay_model::{Fault, Result};

use super::features::{BatchFeatures, FeatureField};
use super::numeric_values::FeatureValues;

impl BatchFeatures {
    /// The same with NaN for numbers that are missing.
    pub fn with_missing_numbers(&self) -> BatchFeatures {
        let nan = |field: &FeatureField| FeatureField {
            missing: field.missing.or(Some(f64::NAN)),
            ..field.clone()
        };
        BatchFeatures {
            dense: self.dense.iter().map(nan).collect(),
            ..self.clone()
        }
    }

    /// Casts the features of a batch, and fills what is missing, as packing would: what is packed of the
    /// result is the same, and so are the faults. `first_row` is the number of the first row, for faults.
    pub fn precast(&self, batch: &RecordBatch, first_row: u64) -> Result<RecordBatch> {
        let fields = self.dense.iter().map(|field| (field, false));
        let fields = fields.chain(self.categorical.iter().map(|field| (field, true)));
        let fields = fields.chain(
            self.label
                .iter()
                .chain(&self.weight)
                .map(|field| (field, false)),
        );
        let mut arrays = batch.columns().to_vec();
        for (array, (field, whole)) in arrays.iter_mut().zip(fields) {
            *array = precast_column(field, array, first_row, whole)?;
        }
        let schema = batch.schema();
        let named = schema.fields().iter().zip(&arrays);
        let named = named
            .map(|(field, array)| ArrowField::new(field.name(), array.data_type().clone(), true));
        Ok(RecordBatch::try_new(
            Arc::new(Schema::new(named.collect::<Vec<_>>())),
            arrays,
        )?)
    }
}

fn precast_column(
    field: &FeatureField,
    array: &ArrayRef,
    first_row: u64,
    whole: bool,
) -> Result<ArrayRef> {
    let column = FeatureValues::new(field, array, first_row, whole)?;
    let is_small = array
        .data_type()
        .primitive_width()
        .is_some_and(|bytes| bytes <= size_of::<f32>());
    if column.width == 1 && is_small && array.null_count() == 0 {
        return Ok(array.clone());
    }
    let flat: ArrayRef = if whole {
        let wide = column.wholes()?;
        match wide
            .iter()
            .map(|value| i32::try_from(*value))
            .collect::<Result<Vec<i32>, _>>()
        {
            Ok(narrow) => Arc::new(Int32Array::from(narrow)),
            // Packing decides about ids that are too large for 32 bits.
            Err(_) => Arc::new(Int64Array::from(wide)),
        }
    } else {
        Arc::new(Float32Array::from(column.reals()?))
    };
    if column.width == 1 {
        return Ok(flat);
    }
    let item = Arc::new(ArrowField::new("item", flat.data_type().clone(), false));
    let width = i32::try_from(column.width)
        .map_err(|error| Fault::internal("a wide column").cause(error))?;
    Ok(Arc::new(FixedSizeListArray::try_new(
        item, width, flat, None,
    )?))
}
