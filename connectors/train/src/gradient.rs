//! The gradient of a batch: slices on threads, added up in their order.

use super::compute::{SliceWorkspace, table_row};
use super::config::LossFunction;
use super::model_input::ModelInput;
use super::network::{ModelParameters, ModelShape};
use super::parallel::for_each_parallel;

/// Marks a row that is not touched.
const NOWHERE: u32 = u32::MAX;

/// The gradient of an embedding: of the rows of the table that the batch touches.
#[derive(Debug)]
pub struct SparseGradient {
    /// For each row of the table, its index among those that are touched.
    place: Vec<u32>,
    /// Touched rows, in the order of their first touch.
    pub rows: Vec<u32>,
    /// Gradients of the touched rows, one after the other.
    pub gradient: Vec<f32>,
    width: usize,
}

fn sum_of_squares(values: &[f32]) -> f64 {
    values
        .iter()
        .map(|value| f64::from(*value) * f64::from(*value))
        .sum()
}

fn scale_all(values: &mut [f32], scale: f32) {
    for value in values {
        *value *= scale;
    }
}

/// The gradient of a batch, used again and again.
#[derive(Debug)]
pub struct BatchGradient {
    slices: Vec<SliceWorkspace>,
    /// Gradient of the layers.
    pub layers: Vec<f32>,
    /// Gradients of the embeddings.
    pub tables: Vec<SparseGradient>,
    /// The mean loss.
    pub loss: f64,
    /// The sum of the rows' weights.
    pub weight: f64,
    /// A label that no probability can be.
    pub strange: Option<f32>,
    threads: usize,
}

impl SparseGradient {
    fn new(rows: usize, width: usize) -> SparseGradient {
        SparseGradient {
            place: vec![NOWHERE; rows],
            rows: Vec::new(),
            gradient: Vec::new(),
            width,
        }
    }

    fn clear(&mut self) {
        for row in self.rows.drain(..) {
            self.place[row as usize] = NOWHERE;
        }
        self.gradient.clear();
    }

    /// Adds the slopes of all rows of a batch by the columns of an embedding, given by its number.
    fn add_slices(
        &mut self,
        shape: &ModelShape,
        number: usize,
        batch: &ModelInput<'_>,
        slices: &[SliceWorkspace],
    ) {
        let Some((_, embedding, id_range)) = shape.embedding_columns().nth(number) else {
            return;
        };
        // Embedded values lie one embedding after another; added ones share one value.
        let earlier = shape.embeddings[..number].iter();
        let first_column: usize = earlier.map(|other| other.ids * other.width).sum();
        for (slice_number, slice) in slices.iter().enumerate() {
            let rows = batch.slice(slice_number);
            for (row, row_ids) in rows.ids.chunks_exact(shape.ids()).enumerate() {
                let slopes = slice.embedded_slopes(shape, row);
                for (position, id) in row_ids[id_range.clone()].iter().enumerate() {
                    let start = if shape.added {
                        0
                    } else {
                        first_column + position * embedding.width
                    };
                    let table_row = table_row(*id, embedding.rows);
                    self.add_slopes(table_row, &slopes[start..start + embedding.width]);
                }
            }
        }
    }

    fn add_slopes(&mut self, row: usize, slopes: &[f32]) {
        // Ids that training has not seen have nothing to learn.
        if row == 0 {
            return;
        }
        let index = match self.place[row] {
            NOWHERE => {
                self.place[row] = self.rows.len() as u32;
                self.rows.push(row as u32);
                self.gradient.extend(std::iter::repeat_n(0.0, self.width));
                self.rows.len() - 1
            }
            index => index as usize,
        };
        let sums = &mut self.gradient[index * self.width..(index + 1) * self.width];
        for (sum, slope) in sums.iter_mut().zip(slopes) {
            *sum += slope;
        }
    }
}

impl BatchGradient {
    /// Allocates gradients for batches of at most `batch_rows` rows.
    pub fn new(shape: &ModelShape, batch_rows: usize, threads: usize) -> BatchGradient {
        let empty = ModelInput {
            rows: batch_rows,
            dense: &[],
            ids: &[],
            labels: &[],
            weights: &[],
            mask: &[],
        };
        let tables = shape
            .embeddings
            .iter()
            .map(|embedding| SparseGradient::new(embedding.rows, embedding.width));
        BatchGradient {
            slices: (0..empty.slices())
                .map(|_| SliceWorkspace::new(shape))
                .collect(),
            layers: vec![0.0; shape.layers().last().map_or(0, |layer| layer.biases.end)],
            tables: tables.collect(),
            loss: 0.0,
            weight: 0.0,
            strange: None,
            threads: threads.max(1),
        }
    }

    /// The gradient of the mean loss of a batch.
    pub fn compute_batch(
        &mut self,
        shape: &ModelShape,
        parameters: &ModelParameters,
        rows: &ModelInput<'_>,
        loss: LossFunction,
    ) {
        let count = rows.slices();
        let slices = &mut self.slices[..count];
        for_each_parallel(self.threads, slices, |number, slice| {
            let rows = rows.slice(number);
            slice.forward(shape, parameters, &rows);
            slice.backward(parameters, &rows, loss);
        });
        // Slices are added up in their order, so that threads change no bit.
        self.weight = slices.iter().map(|slice| slice.weight).sum();
        let weight = self.weight.max(f64::MIN_POSITIVE);
        self.loss = slices.iter().map(|slice| slice.loss).sum::<f64>() / weight;
        self.strange = slices.iter().find_map(|slice| slice.strange);
        let scale = (1.0 / weight) as f32;
        self.layers.fill(0.0);
        for slice in slices.iter() {
            for (sum, part) in self.layers.iter_mut().zip(&slice.gradient) {
                *sum += part;
            }
        }
        scale_all(&mut self.layers, scale);
        let slices = &*slices;
        for_each_parallel(self.threads, &mut self.tables, |number, touched| {
            touched.clear();
            touched.add_slices(shape, number, rows, slices);
            scale_all(&mut touched.gradient, scale);
        });
    }

    /// Scales the gradient down to this norm, if it is longer.
    pub fn clip(&mut self, norm_max: f64) {
        let mut squares = sum_of_squares(&self.layers);
        // Tables are added up apart: the order of the sum decides on its last bits.
        let tables = self
            .tables
            .iter()
            .map(|touched| sum_of_squares(&touched.gradient))
            .sum::<f64>();
        squares += tables;
        let norm = squares.sqrt();
        if norm > norm_max {
            let scale = (norm_max / norm) as f32;
            scale_all(&mut self.layers, scale);
            for touched in &mut self.tables {
                scale_all(&mut touched.gradient, scale);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class_loss::class_loss;
    use crate::network::EmbeddingTable;
    use forebay_feed::FeatureField;

    fn shape(hidden: &[usize], added: bool, outputs: usize) -> ModelShape {
        let table = |column: &str, ids, rows, width| EmbeddingTable {
            column: column.into(),
            ids,
            rows,
            width,
        };
        let (first, second) = if added { (outputs, outputs) } else { (3, 2) };
        ModelShape {
            dense: vec![
                FeatureField::new("x"),
                FeatureField {
                    width: 2,
                    ..FeatureField::new("y")
                },
            ],
            embeddings: vec![table("a", 1, 5, first), table("b", 2, 4, second)],
            hidden: hidden.to_vec(),
            added,
            outputs,
        }
    }

    /// The mean loss, in double precision but for the forward pass.
    fn loss_of(
        shape: &ModelShape,
        parameters: &ModelParameters,
        rows: &ModelInput<'_>,
        loss: LossFunction,
    ) -> f64 {
        let mut workspace = SliceWorkspace::new(shape);
        let mut lost = 0.0;
        let mut weight = 0.0;
        for number in 0..rows.slices() {
            let rows = rows.slice(number);
            workspace.forward(shape, parameters, &rows);
            let results = workspace.outputs(rows.rows).chunks_exact(shape.outputs);
            for (row, results) in results.enumerate() {
                let label = rows.labels[row];
                let of_row = match loss {
                    LossFunction::Softmax => {
                        let scores = results.iter().map(|result| f64::from(*result));
                        class_loss(&scores.collect::<Vec<_>>(), label as usize)
                    }
                    _ => loss.value_and_slope(results[0], label).0,
                };
                lost += f64::from(rows.weight(row)) * of_row;
                weight += f64::from(rows.weight(row));
            }
        }
        lost / weight
    }

    #[test]
    fn gradients_are_slopes() {
        // More than a slice, so that slices are added up; ids out of range and missing; weights and a mask.
        let rows = 1100;
        let value = |at: usize| ((at * 7919 % 1000) as f32 / 500.0) - 1.0;
        let dense: Vec<f32> = (0..rows * 3).map(value).collect();
        let ids: Vec<i32> = (0..rows * 3).map(|at| (at * 31 % 7) as i32 - 1).collect();
        let labels: Vec<f32> = (0..rows)
            .map(|at| f32::from(u8::from(at * 13 % 5 < 2)))
            .collect();
        let weights: Vec<f32> = (0..rows).map(|at| 0.5 + (at % 3) as f32).collect();
        let mask: Vec<u8> = (0..rows).map(|at| u8::from(at % 11 != 0)).collect();
        let rows = ModelInput {
            rows,
            dense: &dense,
            ids: &ids,
            labels: &labels,
            weights: &weights,
            mask: &mask,
        };
        for (shape, loss) in [
            (shape(&[5, 4], false, 1), LossFunction::Logistic),
            (shape(&[6], false, 1), LossFunction::SquaredError),
            (shape(&[], true, 1), LossFunction::Logistic),
            (shape(&[], true, 1), LossFunction::SquaredError),
            // The labels are two of three classes.
            (shape(&[5, 4], false, 3), LossFunction::Softmax),
            (shape(&[], true, 3), LossFunction::Softmax),
        ] {
            let mut parameters = ModelParameters::initial(&shape, 3);
            let all = parameters
                .layers
                .iter_mut()
                .chain(parameters.tables.iter_mut().flatten());
            // Larger than the first weights are: then slopes are as well.
            for (at, parameter) in all.enumerate() {
                *parameter = *parameter * 2.0 + value(at) * 0.3;
            }
            let mut gradient = BatchGradient::new(&shape, rows.rows, 2);
            gradient.compute_batch(&shape, &parameters, &rows, loss);
            assert!((gradient.loss - loss_of(&shape, &parameters, &rows, loss)).abs() < 1e-9);
            let slope = |change: &dyn Fn(&mut ModelParameters, f32)| {
                const STEP: f32 = 1.0 / 128.0;
                let at = |step: f32| {
                    let mut moved = parameters.clone();
                    change(&mut moved, step);
                    loss_of(&shape, &moved, &rows, loss)
                };
                (at(STEP) - at(-STEP)) / (2.0 * f64::from(STEP))
            };
            let close = |found: f32, wanted: f64, what: &str| {
                assert!(
                    (f64::from(found) - wanted).abs() < 2e-3 + 2e-2 * wanted.abs(),
                    "{what}: {found}, not {wanted}"
                );
            };
            for at in 0..parameters.layers.len() {
                close(
                    gradient.layers[at],
                    slope(&|moved, step| moved.layers[at] += step),
                    "a layer",
                );
            }
            for (number, embedding) in shape.embeddings.iter().enumerate() {
                let touched = &gradient.tables[number];
                assert!(
                    !touched.rows.contains(&0),
                    "ids that were not seen learn nothing"
                );
                for (place, row) in touched.rows.iter().enumerate() {
                    for column in 0..embedding.width {
                        let at = *row as usize * embedding.width + column;
                        let wanted = slope(&|moved, step| moved.tables[number][at] += step);
                        close(
                            touched.gradient[place * embedding.width + column],
                            wanted,
                            "a table",
                        );
                    }
                }
            }
        }
    }
}
