//! Where everything of a training lies on a device.

use forebay_model::{Fault, Result, codes};

use super::accelerator::Accelerator;
use crate::train::network::{DenseLayer, ModelParameters, ModelShape};
use crate::train::place::Precision;
use crate::train::state::TrainingState;

/// Threads that go over all values together.
pub const THREADS: u64 = 8192;

/// Pairs that one thread adds up.
pub const PAIRS_PER_THREAD: u64 = 64;

/// What a device's rows of values begin at a multiple of: products of matrices are fastest then.
const STRIDE: u64 = 8;

/// Words of what is known of a column that comes out of a table: `Column` of the kernels.
const COLUMN_WORDS: usize = 6;

/// From one row of so many values to the next.
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
    /// What the first layer takes.
    pub width: u64,
    /// Values of a row that come out of tables.
    pub embedded: u64,
    pub ids: u64,
    /// Whether what is embedded is added to the result, instead of going through the layers.
    pub added: bool,
    /// Bits of the largest slope where gradients of tables are added up as integers.
    pub room: u64,
    /// What kernels know of each value that comes out of a table.
    columns: Vec<u64>,
    parameters: usize,
    table_values: usize,
    table_rows: usize,
}

impl DeviceModelShape {
    pub fn new(shape: &ModelShape, batch_rows: u32) -> Result<DeviceModelShape> {
        let mut columns = Vec::new();
        let (mut table_values, mut table_rows) = (0, 0);
        for (_, embedding, ids) in shape.embedding_columns() {
            for place in ids {
                for within in 0..embedding.width {
                    let column = [
                        table_values,
                        table_rows,
                        place,
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
        // Kernels number what they do with 32 bits.
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

    /// How many numbers the layers have.
    pub fn parameters(&self) -> u64 {
        self.parameters as u64
    }
}

/// Everything of a training that lies on a device.
pub struct DeviceBuffers<M> {
    pub layers: AdamBuffers<M>,
    pub tables: AdamBuffers<M>,
    /// Of the layers.
    pub gradient: M,
    /// Weights of each layer as products of matrices take them.
    pub copies: Vec<M>,
    /// The gradient of tables, as integers.
    pub sums: M,
    /// Who touches the rows of tables first.
    pub stamps: M,
    pub columns: M,
    /// What goes into each layer.
    pub inputs: Vec<M>,
    /// Slopes by what comes out of each layer.
    pub slopes: Vec<M>,
    /// Products, before they go on.
    pub products: M,
    /// Slopes by the results.
    pub of_results: M,
    /// As many as there are rows: sums are products with them.
    pub ones: M,
    pub lost: M,
    pub squares: M,
    /// For sums of losses, and of squares.
    pub folds: [[M; 2]; 2],
    pub peak: M,
    pub strange: M,
    pub control: M,
    pub report: M,
}

/// What AdamW moves, and what it remembers.
pub struct AdamBuffers<M> {
    pub values: M,
    pub means: M,
    pub squares: M,
}

/// What a step comes to, as it is read back: `report` of the kernel `control`.
pub const REPORT_BYTES: usize = 32;

impl<M> DeviceBuffers<M> {
    pub fn new<D: Accelerator<Memory = M>>(
        device: &D,
        plan: &DeviceModelShape,
        precision: Precision,
    ) -> Result<DeviceBuffers<M>> {
        // Nothing at all has no address.
        let bytes = |bytes: u64| device.memory((bytes as usize).max(256));
        let moved = |count: usize| -> Result<AdamBuffers<M>> {
            let one = || bytes(count as u64 * 4);
            Ok(AdamBuffers {
                values: one()?,
                means: one()?,
                squares: one()?,
            })
        };
        let rows = plan.rows;
        let real = match precision {
            Precision::F32 => 4,
            Precision::Bf16 => 2,
        };
        let layers = || plan.layers.iter();
        let widest = layers()
            .map(|layer| layer.inputs.max(layer.outputs))
            .max()
            .unwrap_or(1) as u64;
        let fold = |pairs: u64| -> Result<[M; 2]> {
            Ok([
                bytes(pairs.div_ceil(PAIRS_PER_THREAD) * 16)?,
                bytes(pairs.div_ceil(PAIRS_PER_THREAD) * 16)?,
            ])
        };
        let each = |count: &dyn Fn(&DenseLayer) -> u64| -> Result<Vec<M>> {
            layers().map(|layer| bytes(count(layer) * real)).collect()
        };
        Ok(DeviceBuffers {
            layers: moved(plan.parameters)?,
            tables: moved(plan.table_values)?,
            gradient: bytes(plan.parameters() * 4)?,
            copies: each(&|layer| layer.outputs as u64 * row_stride(layer.inputs))?,
            sums: bytes(plan.table_values as u64 * 8)?,
            stamps: bytes(plan.table_rows as u64 * 8)?,
            columns: bytes(plan.columns.len() as u64 * 8)?,
            inputs: each(&|layer| rows * row_stride(layer.inputs))?,
            slopes: each(&|layer| rows * row_stride(layer.outputs))?,
            products: bytes(rows * widest * 4)?,
            of_results: bytes(rows * 4)?,
            ones: bytes(rows * real)?,
            lost: bytes(rows * 16)?,
            squares: bytes(THREADS * 16)?,
            folds: [fold(rows)?, fold(THREADS)?],
            peak: bytes(8)?,
            strange: bytes(8)?,
            control: bytes(16)?,
            report: bytes(REPORT_BYTES as u64)?,
        })
    }

    /// Brings a training there, and what the plan says of it.
    pub fn upload_state<D: Accelerator<Memory = M>>(
        &mut self,
        device: &D,
        plan: &DeviceModelShape,
        precision: Precision,
        state: &TrainingState,
    ) -> Result<()> {
        let one: &[u8] = match precision {
            Precision::F32 => &[0, 0, 0x80, 0x3f],
            Precision::Bf16 => &[0x80, 0x3f],
        };
        device.upload(&one.repeat(plan.rows as usize), &mut self.ones)?;
        device.upload(bytemuck::cast_slice(&plan.columns), &mut self.columns)?;
        let parts = [&state.parameters, &state.adam.means, &state.adam.squares];
        for (part, (layers, tables)) in parts.into_iter().zip(self.parameter_buffers()) {
            device.upload(bytemuck::cast_slice(&part.layers), layers)?;
            device.upload(bytemuck::cast_slice(&part.tables.concat()), tables)?;
        }
        Ok(())
    }

    /// Brings it back, once everything so far is done.
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
            let mut all = part.tables.concat();
            device.download(tables, bytemuck::cast_slice_mut(&mut all))?;
            let mut rest = all.as_slice();
            for table in &mut part.tables {
                let (own, after) = rest.split_at(table.len());
                table.copy_from_slice(own);
                rest = after;
            }
        }
        Ok(())
    }

    fn parameter_buffers(&mut self) -> [(&mut M, &mut M); 3] {
        let (layers, tables) = (&mut self.layers, &mut self.tables);
        [
            (&mut layers.values, &mut tables.values),
            (&mut layers.means, &mut tables.means),
            (&mut layers.squares, &mut tables.squares),
        ]
    }
}
