//! Layout of a batch's parts in a slot, and in a record.
//!
//! A *slot* holds a batch part by part: `[dense | categorical | label | weight | mask]`, each
//! aligned to 256 bytes (what copies to a device and its kernels like best). A *record* holds all
//! parts of one row together; tiles of a few records are what a shuffle window holds.

use forebay_model::{Fault, Result, codes};

use super::features::{BatchFeatures, CategoricalType, DenseType, NonFinite, total_width};

/// Alignment of the parts of a slot in bytes.
pub const ALIGN: usize = 256;

/// Bytes that note where the steps of a row of a sequence begin, and the number of the row.
const STEP_PLACE_BYTES: usize = 8;

/// A slot's bytes at most: offsets and lengths of copies are 31 bits wide in some drivers.
const SLOT_BYTES_MAX: usize = 1 << 30;

/// A part of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartRole {
    /// Dense features.
    Dense,
    /// Categorical features.
    Categorical,
    /// Labels.
    Label,
    /// Weights.
    Weight,
    /// 1 where there is a row (or a step of its series), 0 where there is padding.
    Mask,
}

impl PartRole {
    /// As batches and reports call it.
    pub fn name(self) -> &'static str {
        match self {
            PartRole::Dense => "dense",
            PartRole::Categorical => "categorical",
            PartRole::Label => "label",
            PartRole::Weight => "weight",
            PartRole::Mask => "mask",
        }
    }
}

/// The type of a part's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// Single precision.
    F32,
    /// Half precision.
    F16,
    /// Brain floating point.
    Bf16,
    /// 32-bit integer.
    I32,
    /// 64-bit integer.
    I64,
    /// One byte.
    U8,
}

impl ValueType {
    /// Bytes of one value.
    pub fn bytes(self) -> usize {
        match self {
            ValueType::U8 => 1,
            ValueType::F16 | ValueType::Bf16 => 2,
            ValueType::F32 | ValueType::I32 => 4,
            ValueType::I64 => 8,
        }
    }
}

/// Position of a part in a slot and in a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartLayout {
    /// Its content.
    pub role: PartRole,
    /// The type of its values.
    pub data_type: ValueType,
    /// Rows of the batch, steps where there are series, values.
    pub shape: Vec<usize>,
    /// First byte in the slot.
    pub offset: usize,
    /// Bytes of one row.
    pub row_bytes: usize,
    /// First byte in a record; `None` for a mask that is 1 in all of them.
    pub(super) record_offset: Option<usize>,
}

impl PartLayout {
    /// Bytes in the slot.
    pub fn bytes(&self) -> usize {
        self.row_bytes * self.shape[0]
    }
}

/// Layout of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchLayout {
    /// In the order of the slot.
    pub parts: Vec<PartLayout>,
    /// Rows of a batch.
    pub rows: usize,
    /// Bytes of a slot.
    pub bytes: usize,
    /// Bytes of a record.
    pub record_bytes: usize,
    /// Bytes that a row takes until it is delivered: its record; of sequences, its own step.
    pub held_bytes: usize,
}

impl BatchLayout {
    /// The layout of batches of `rows` rows.
    pub fn new(features: &BatchFeatures, rows: usize) -> Result<BatchLayout> {
        let masked = features.series.is_some() || features.non_finite == NonFinite::Skip;
        let mut layout = BatchLayout::with_mask(features, rows, masked)?;
        if features.series.is_some() {
            // A row of a sequence is held once, as a single step, however many sequences it is part of.
            let mut step_features = features.clone();
            step_features.series = None;
            let step = BatchLayout::with_mask(&step_features, 1, true)?;
            layout.held_bytes = step.record_bytes + STEP_PLACE_BYTES;
        }
        Ok(layout)
    }

    /// Bytes that a shuffle holds at most for each row of its window. A unit of sequences is held until
    /// the last of its rows is delivered, of others each row until its own turn.
    pub fn window_row_bytes(&self, features: &BatchFeatures) -> usize {
        if features.series.is_some() {
            2 * self.held_bytes
        } else {
            self.held_bytes
        }
    }

    /// The layout of batches of `rows` rows; records have a mask if `masked`, else all of them count.
    pub(super) fn with_mask(
        features: &BatchFeatures,
        rows: usize,
        masked: bool,
    ) -> Result<BatchLayout> {
        let steps = features.steps();
        if steps == 0 || rows == 0 {
            let message = format!("batches of {rows} rows of {steps} steps hold nothing");
            return Err(Fault::new(codes::BAD_VALUE, message));
        }
        let dense = match features.dense_type {
            DenseType::F32 => ValueType::F32,
            DenseType::F16 => ValueType::F16,
            DenseType::Bf16 => ValueType::Bf16,
        };
        let categorical = match features.categorical_type {
            CategoricalType::I32 => ValueType::I32,
            CategoricalType::I64 => ValueType::I64,
        };
        // Shapes below the rows: [steps,] [values]. Label and weight are single values of the row.
        let mut step_shape = Vec::new();
        if features.series.is_some() {
            step_shape.push(steps);
        }
        let dense_shape = [step_shape.clone(), vec![total_width(&features.dense)]].concat();
        let categorical_width = total_width(&features.categorical);
        let categorical_shape = [step_shape.clone(), vec![categorical_width]].concat();
        let mut parts = vec![
            (PartRole::Dense, dense, dense_shape),
            (PartRole::Categorical, categorical, categorical_shape),
        ];
        if features.label.is_some() {
            parts.push((PartRole::Label, ValueType::F32, Vec::new()));
        }
        if features.weight.is_some() {
            parts.push((PartRole::Weight, ValueType::F32, Vec::new()));
        }
        parts.push((PartRole::Mask, ValueType::U8, step_shape));
        let mut layout = BatchLayout {
            parts: Vec::new(),
            rows,
            bytes: 0,
            record_bytes: 0,
            held_bytes: 0,
        };
        for (role, data_type, row_shape) in parts {
            // A batch without such features does not have the part.
            if row_shape.contains(&0) {
                continue;
            }
            let row_bytes = row_shape.iter().product::<usize>() * data_type.bytes();
            let mut record_offset = None;
            if role != PartRole::Mask || masked {
                let offset = layout.record_bytes.next_multiple_of(data_type.bytes());
                layout.record_bytes = offset + row_bytes;
                record_offset = Some(offset);
            }
            layout.parts.push(PartLayout {
                role,
                data_type,
                shape: [vec![rows], row_shape].concat(),
                offset: layout.bytes,
                row_bytes,
                record_offset,
            });
            layout.bytes = (layout.bytes + row_bytes * rows).next_multiple_of(ALIGN);
        }
        layout.record_bytes = layout.record_bytes.next_multiple_of(8);
        layout.held_bytes = layout.record_bytes;
        if layout.bytes > SLOT_BYTES_MAX {
            let message = format!(
                "a batch of {rows} rows takes {} bytes, more than {SLOT_BYTES_MAX}",
                layout.bytes
            );
            let fault = Fault::new(codes::LIMIT, message);
            return Err(fault.hint("lower `batch_rows`, or use a smaller type"));
        }
        Ok(layout)
    }

    /// One part, if the batch has it.
    pub fn part(&self, role: PartRole) -> Option<&PartLayout> {
        self.parts.iter().find(|part| part.role == role)
    }
}
