//! Memory layout of a training on a device.

use forebay_device::{Accelerator, Precision};
use forebay_model::{Fault, Result, codes};

use crate::network::{DenseLayer, ModelParameters, ModelShape};
use crate::state::TrainingState;

/// Number of threads that process all values together.
pub const THREADS: u64 = 8192;

/// Pairs that one thread adds up.
pub const PAIRS_PER_THREAD: u64 = 64;

/// Alignment of rows of values, in values: products of matrices are fastest with it.
const STRIDE: u64 = 8;

/// Words of the description of an embedded column: `Column` of the kernels.
const COLUMN_WORDS: usize = 6;

/// Distance from one row of `width` values to the next, in values.
pub fn row_stride(width: usize) -> u64 {
    (width as u64).next_multiple_of(STRIDE)
}

/// The shape of a model as kernels need it.
#[derive(Debug)]
pub struct DeviceModelShape {
    pub layers: Vec<DenseLayer>,
    /// Rows of a batch at most.
    pub rows: u64,
    pub dense: u64,
    /// Width of the input of the first layer.
    pub width: u64,
    /// Number of embedded values of a row.
    pub embedded: u64,
    pub ids: u64,
    /// True if embedded values are added to the result, instead of going through the layers.
    pub added: bool,
    /// Bits of the largest slope where gradients of tables are added up as integers.
    pub room: u64,
    /// Facts about each value of a table that kernels read.
    columns: Vec<u64>,
    parameters: usize,
    table_values: usize,
    table_rows: usize,
}

impl DeviceModelShape {
    pub fn new(shape: &ModelShape, batch_rows: u32) -> Result<DeviceModelShape> {
        let mut columns = Vec::new();
        let mut table_values = 0;
        let mut table_rows = 0;
        for (_, embedding, ids) in shape.embedding_columns() {
            for position in ids {
                for within in 0..embedding.width {
                    let column = [
                        table_values,
                        table_rows,
                        position,
                        embedding.rows,
                        embedding.width,
                        within,
                    ];
                    columns.extend(column.map(|word| word as u64));
                }
            }
            table_values += embedding.rows * embedding.width;
            table_rows += embedding.rows;
        }
        let layers = shape.layers();
        let embedded = (columns.len() / COLUMN_WORDS) as u64;
        let rows = u64::from(batch_rows);
        // Kernels number their threads with 32 bits.
        if rows.saturating_mul(embedded.max(shape.input_width() as u64)) > u64::from(u32::MAX) {
            let message = format!(
                "a batch of {rows} rows with {embedded} embedded values each is too large for a GPU"
            );
            return Err(Fault::new(codes::LIMIT, message)
                .hint("lower `batch_rows`, or the widths of `embeddings`"));
        }
        let adds = rows
            * shape
                .embeddings
                .iter()
                .map(|embedding| embedding.ids as u64)
                .max()
                .unwrap_or(1);
        Ok(DeviceModelShape {
            parameters: layers.last().map_or(0, |layer| layer.biases.end),
            layers,
            rows,
            dense: shape.dense_width() as u64,
            width: shape.input_width() as u64,
            embedded,
            ids: shape.ids() as u64,
            added: shape.added,
            room: 62 - u64::from(adds.next_power_of_two().trailing_zeros()),
            columns,
            table_values,
            table_rows,
        })
    }

    /// Number of the layers' parameters.
    pub fn parameters(&self) -> u64 {
        self.parameters as u64
    }
}

/// Memory of a training on a device.
pub struct DeviceBuffers<M> {
    pub layers: AdamBuffers<M>,
    pub tables: AdamBuffers<M>,
    /// Gradient of the layers.
    pub gradient: M,
    /// Weights of each layer as products of matrices take them.
    pub copies: Vec<M>,
    /// The gradient of tables, as integers.
    pub sums: M,
    /// Stamps of the entries that touch rows of tables first.
    pub stamps: M,
    pub columns: M,
    /// Inputs of each layer.
    pub inputs: Vec<M>,
    /// Derivatives of the outputs of each layer.
    pub slopes: Vec<M>,
    /// Products, before they go on.
    pub products: M,
    /// Slopes by the results.
    pub of_results: M,
    /// A one for each row: sums are products with them.
    pub ones: M,
    pub lost: M,
    pub squares: M,
    /// Buffers for sums of losses, and of squares.
    pub folds: [[M; 2]; 2],
    pub peak: M,
    pub strange: M,
    pub control: M,
    pub report: M,
}

/// Parameters that AdamW updates, and its state.
pub struct AdamBuffers<M> {
    pub values: M,
    pub means: M,
    pub squares: M,
}

/// Size in bytes of the smallest buffer.
const BUFFER_BYTES_MIN: usize = 256;

/// Size in bytes of the report of a step that is read back: `report` of the kernel `control`.
pub const REPORT_BYTES: usize = 32;

/// Allocates memory on the device; a buffer without any byte would have no address.
fn buffer<D: Accelerator>(device: &D, bytes: u64) -> Result<D::Memory> {
    device.memory((bytes as usize).max(BUFFER_BYTES_MIN))
}

/// Two buffers for a sum over pairs: each pass reads one and writes the other.
fn fold_buffers<D: Accelerator>(device: &D, pairs: u64) -> Result<[D::Memory; 2]> {
    let bytes = pairs.div_ceil(PAIRS_PER_THREAD) * 16;
    Ok([buffer(device, bytes)?, buffer(device, bytes)?])
}

impl<M> AdamBuffers<M> {
    fn new<D: Accelerator<Memory = M>>(device: &D, count: usize) -> Result<AdamBuffers<M>> {
        let bytes = count as u64 * 4;
        Ok(AdamBuffers {
            values: buffer(device, bytes)?,
            means: buffer(device, bytes)?,
            squares: buffer(device, bytes)?,
        })
    }
}

impl<M> DeviceBuffers<M> {
    pub fn new<D: Accelerator<Memory = M>>(
        device: &D,
        plan: &DeviceModelShape,
        precision: Precision,
    ) -> Result<DeviceBuffers<M>> {
        let rows = plan.rows;
        let real_bytes = match precision {
            Precision::F32 => 4,
            Precision::Bf16 => 2,
        };
        let mut widest = 1;
        let mut copies = Vec::with_capacity(plan.layers.len());
        let mut inputs = Vec::with_capacity(plan.layers.len());
        let mut slopes = Vec::with_capacity(plan.layers.len());
        for layer in &plan.layers {
            let input_stride = row_stride(layer.inputs) * real_bytes;
            let output_stride = row_stride(layer.outputs) * real_bytes;
            widest = widest.max(layer.inputs).max(layer.outputs);
            copies.push(buffer(device, layer.outputs as u64 * input_stride)?);
            inputs.push(buffer(device, rows * input_stride)?);
            slopes.push(buffer(device, rows * output_stride)?);
        }
        Ok(DeviceBuffers {
            layers: AdamBuffers::new(device, plan.parameters)?,
            tables: AdamBuffers::new(device, plan.table_values)?,
            gradient: buffer(device, plan.parameters() * 4)?,
            copies,
            sums: buffer(device, plan.table_values as u64 * 8)?,
            stamps: buffer(device, plan.table_rows as u64 * 8)?,
            columns: buffer(device, plan.columns.len() as u64 * 8)?,
            inputs,
            slopes,
            products: buffer(device, rows * widest as u64 * 4)?,
            of_results: buffer(device, rows * 4)?,
            ones: buffer(device, rows * real_bytes)?,
            lost: buffer(device, rows * 16)?,
            squares: buffer(device, THREADS * 16)?,
            folds: [fold_buffers(device, rows)?, fold_buffers(device, THREADS)?],
            peak: buffer(device, 8)?,
            strange: buffer(device, 8)?,
            control: buffer(device, 16)?,
            report: buffer(device, REPORT_BYTES as u64)?,
        })
    }

    /// Copies the state of a training and the tables of its plan to the device.
    pub fn upload_state<D: Accelerator<Memory = M>>(
        &mut self,
        device: &D,
        plan: &DeviceModelShape,
        precision: Precision,
        state: &TrainingState,
    ) -> Result<()> {
        let unit: &[u8] = match precision {
            Precision::F32 => &[0, 0, 0x80, 0x3f],
            Precision::Bf16 => &[0x80, 0x3f],
        };
        device.upload(&unit.repeat(plan.rows as usize), &mut self.ones)?;
        device.upload(bytemuck::cast_slice(&plan.columns), &mut self.columns)?;
        let parts = [&state.parameters, &state.adam.means, &state.adam.squares];
        for (part, (layers, tables)) in parts.into_iter().zip(self.parameter_buffers()) {
            device.upload(bytemuck::cast_slice(&part.layers), layers)?;
            device.upload(bytemuck::cast_slice(&part.tables.concat()), tables)?;
        }
        Ok(())
    }

    /// Copies the state of the training back from the device, after all queued work.
    pub fn download_state<D: Accelerator<Memory = M>>(
        &mut self,
        device: &D,
        state: &mut TrainingState,
    ) -> Result<()> {
        let TrainingState {
            parameters, adam, ..
        } = state;
        let parts: [&mut ModelParameters; 3] = [parameters, &mut adam.means, &mut adam.squares];
        for (part, (layers, tables)) in parts.into_iter().zip(self.parameter_buffers()) {
            device.download(layers, bytemuck::cast_slice_mut(&mut part.layers))?;
            let mut values = part.tables.concat();
            device.download(tables, bytemuck::cast_slice_mut(&mut values))?;
            let mut remaining = values.as_slice();
            for table in &mut part.tables {
                let (table_values, remainder) = remaining.split_at(table.len());
                table.copy_from_slice(table_values);
                remaining = remainder;
            }
        }
        Ok(())
    }

    fn parameter_buffers(&mut self) -> [(&mut M, &mut M); 3] {
        let layers = &mut self.layers;
        let tables = &mut self.tables;
        [
            (&mut layers.values, &mut tables.values),
            (&mut layers.means, &mut tables.means),
            (&mut layers.squares, &mut tables.squares),
        ]
    }
}
