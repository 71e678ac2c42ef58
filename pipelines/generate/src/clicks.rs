//! An advertiser's log, in the shape of Criteo's: `label`, `f1..f13`, `c1..c26`.
//!
//! The world is the same under every seed (which tokens exist, how often each is seen, how each moves
//! the label); the seed only chooses which rows of it are seen. So two seeds are a training set and a
//! test set.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float32Array, Int32Array, StringArray};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Schema};
use forebay_model::Result;
use serde_json::json;

use crate::options::{GenerateSummary, OutputOptions, check_range};
use crate::random::{
    RandomStream, ZipfDistribution, exp, hex, mix, normal, probability_threshold, scramble, unit,
    word_quarter,
};
use crate::write::{BATCH_ROWS, BatchCallback, GeneratedFiles, field, io_fault};

const ROWS_PER_FILE_DEFAULT: u64 = 2_000_000;

/// Files of one log at most: beyond it, file numbers would lose their width, and with it their order.
const FILES_MAX: u64 = 100_000;

/// A column of numbers: exp(mean + deviation * z) with a normal z.
struct NumberProfile {
    mean: f64,
    deviation: f64,
    null: f64,
    zero: f64,
    /// Counts are rounded down to whole numbers.
    count: bool,
    /// Shift of the label's log-odds by one standard deviation.
    weight: f64,
}

const fn number(
    mean: f64,
    deviation: f64,
    null: f64,
    zero: f64,
    count: bool,
    weight: f64,
) -> NumberProfile {
    NumberProfile {
        mean,
        deviation,
        null,
        zero,
        count,
        weight,
    }
}

const NUMBERS: [NumberProfile; 13] = [
    number(0.6, 1.2, 0.45, 0.10, true, 0.35),
    number(1.5, 2.0, 0.00, 0.15, true, 0.00),
    number(1.8, 1.4, 0.21, 0.00, true, -0.20),
    number(1.6, 1.1, 0.22, 0.02, true, 0.00),
    number(7.5, 2.2, 0.03, 0.01, false, -0.25),
    number(3.4, 1.8, 0.22, 0.01, true, -0.15),
    number(1.4, 1.6, 0.04, 0.12, true, 0.30),
    number(2.1, 1.1, 0.001, 0.03, true, 0.00),
    number(4.2, 1.3, 0.04, 0.01, false, 0.10),
    number(-0.4, 0.7, 0.45, 0.20, true, 0.20),
    number(0.7, 0.9, 0.04, 0.00, true, 0.25),
    number(-0.9, 1.0, 0.40, 0.30, false, 0.00),
    number(1.7, 1.2, 0.22, 0.00, true, -0.10),
];

/// A column of tokens.
struct CategoryProfile {
    values: u32,
    /// The exponent of its Zipf law is 1 + 1/k, or 1 - 1/|k| when negative.
    k: i32,
    null: f64,
    /// Half the width of the uniform law from which each token's weight in the log-odds is drawn.
    weight: f64,
}

const fn category(values: u32, k: i32, null: f64, weight: f64) -> CategoryProfile {
    CategoryProfile {
        values,
        k,
        null,
        weight,
    }
}

const CATEGORIES: [CategoryProfile; 26] = [
    category(1_461, 5, 0.0, 0.75),
    category(558, 8, 0.0, 0.6),
    category(3_000_000, 10, 0.034, 0.5),
    category(212_000, 10, 0.034, 0.3),
    category(305, 3, 0.0, 0.45),
    category(20, 4, 0.12, 0.6),
    category(12_000, -12, 0.0, 0.7),
    category(633, 3, 0.0, 0.3),
    category(3, 2, 0.0, 0.75),
    category(91_000, 8, 0.0, 0.4),
    category(5_600, -10, 0.0, 0.7),
    category(1_500_000, 12, 0.034, 0.3),
    category(3_200, -8, 0.0, 0.45),
    category(27, 6, 0.0, 1.05),
    category(14_500, -15, 0.0, 0.4),
    category(280_000, 10, 0.034, 0.3),
    category(10, 5, 0.0, 1.35),
    category(5_500, 12, 0.0, 0.9),
    category(2_170, 5, 0.44, 0.45),
    category(4, 3, 0.44, 0.6),
    category(2_000_000, 9, 0.034, 0.3),
    category(18, 4, 0.76, 0.6),
    category(15, 4, 0.0, 0.75),
    category(290_000, 12, 0.034, 0.3),
    category(100, 4, 0.44, 0.6),
    category(5_000_000, -10, 0.05, 0.5),
];

/// The two columns of which each pair has a weight of its own, so that a network beats a line.
const PAIR: (usize, usize, f64) = (8, 16, 0.6);

/// Brings the share of ones near a quarter.
const INTERCEPT: f64 = -1.68;

/// Names of the streams of rows: numbers, their nulls, tokens, the label.
const NUMBER_STREAM: u64 = 0x0100;
const GAP_STREAM: u64 = 0x0200;
const TOKEN_STREAM: u64 = 0x0300;
const LABEL_STREAM: u64 = 0x0400;

/// Options of [`clicks`].
#[derive(Debug, Clone)]
pub struct ClicksOptions {
    /// Rows, exactly.
    pub rows: u64,
    /// Which rows: another seed gives other rows of the same world.
    pub seed: u64,
    /// Rows per file; the last file may have fewer.
    pub rows_per_file: u64,
    /// The output directory and format.
    pub output: OutputOptions,
}

impl ClicksOptions {
    /// Two million rows per file; for the rest see [`OutputOptions::new`].
    pub fn new(rows: u64, seed: u64, out: impl Into<PathBuf>) -> Self {
        ClicksOptions {
            rows,
            seed,
            rows_per_file: ROWS_PER_FILE_DEFAULT,
            output: OutputOptions::new(out),
        }
    }
}

/// Writes `clicks-00000.parquet` and so on.
///
/// `progress` is told the rows written so far, on the caller's thread. With [`OutputOptions::replace`], files
/// of an earlier and larger log in the same directory are removed, so that the directory holds one log.
pub fn clicks(options: &ClicksOptions, progress: &mut dyn FnMut(u64)) -> Result<GenerateSummary> {
    check_range("rows", options.rows, 1, u64::MAX)?;
    check_range("rows_per_file", options.rows_per_file, 1, u64::MAX)?;
    let files = options.rows.div_ceil(options.rows_per_file);
    check_range("rows / rows_per_file", files, 1, FILES_MAX)?;
    options.output.check()?;

    let names: Vec<String> = (0..files).map(name).collect();
    let world = ClickModel::new(options.seed);
    let files = GeneratedFiles {
        schema: Arc::new(schema()),
        note: json!({ "data": "clicks", "seed": options.seed }),
        sorted_by: &[],
        names: &names,
        output: &options.output,
    };
    let summary = files.write(
        &|index, put| {
            let first = index as u64 * options.rows_per_file;
            world.file(first, options.rows_per_file.min(options.rows - first), put)
        },
        progress,
    )?;
    let mut beyond = names.len() as u64;
    while options.output.replace && beyond < FILES_MAX {
        match fs::remove_file(options.output.out.join(name(beyond))) {
            Ok(()) => beyond += 1,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => break,
            Err(error) => {
                return Err(
                    io_fault(error, "a file of the earlier log cannot be removed")
                        .file(name(beyond)),
                );
            }
        }
    }
    Ok(summary)
}

fn name(file: u64) -> String {
    format!("clicks-{file:05}.parquet")
}

fn schema() -> Schema {
    let label = field("label", DataType::Int32, false);
    let numbers = (1..=NUMBERS.len()).map(|n| field(format!("f{n}"), DataType::Float32, true));
    let categories = (1..=CATEGORIES.len()).map(|n| field(format!("c{n}"), DataType::Utf8, true));
    Schema::new(
        std::iter::once(label)
            .chain(numbers)
            .chain(categories)
            .collect::<Vec<_>>(),
    )
}

/// The parameters that all rows share.
struct ClickModel {
    seed: u64,
    zipfs: Vec<ZipfDistribution>,
}

/// The columns of one batch, in the making.
struct ClickBatch<'a> {
    world: &'a ClickModel,
    first: u64,
    log_odds: Vec<f64>,
}

impl ClickModel {
    fn new(seed: u64) -> Self {
        ClickModel {
            seed,
            zipfs: CATEGORIES
                .iter()
                .map(|column| ZipfDistribution::new(column.values, column.k))
                .collect(),
        }
    }

    fn file(&self, first: u64, rows: u64, put: BatchCallback<'_>) -> Result<()> {
        let mut done = 0;
        while done < rows {
            let now = (rows - done).min(BATCH_ROWS as u64);
            put(ClickBatch {
                world: self,
                first: first + done,
                log_odds: vec![INTERCEPT; now as usize],
            }
            .columns()?)?;
            done += now;
        }
        Ok(())
    }

    fn stream(&self, kind: u64, column: usize) -> RandomStream {
        RandomStream::new(self.seed, kind + column as u64)
    }
}

impl ClickBatch<'_> {
    fn columns(&mut self) -> Result<Vec<ArrayRef>> {
        let rows = self.log_odds.len();
        let numbers: Vec<ArrayRef> = NUMBERS
            .iter()
            .enumerate()
            .map(|(at, column)| self.number(at, column))
            .collect::<Result<_>>()?;
        // Every token has eight bytes, so all columns share their offsets.
        let offsets: OffsetBuffer<i32> =
            OffsetBuffer::new((0..=rows as i32).map(|row| row * 8).collect());
        let mut pair = vec![0; rows];
        let categories: Vec<ArrayRef> = CATEGORIES
            .iter()
            .enumerate()
            .map(|(at, column)| self.category(at, column, &offsets, &mut pair))
            .collect::<Result<_>>()?;
        for (log_odds, pair) in self.log_odds.iter_mut().zip(&pair) {
            *log_odds += weight(usize::MAX, *pair) * PAIR.2;
        }
        let stream = self.world.stream(LABEL_STREAM, 0);
        let label: Int32Array = (self.first..)
            .zip(&self.log_odds)
            .map(|(row, log_odds)| i32::from(unit(stream.at(row)) * (1.0 + exp(-log_odds)) < 1.0))
            .collect();
        Ok(std::iter::once(Arc::new(label) as ArrayRef)
            .chain(numbers)
            .chain(categories)
            .collect())
    }

    fn number(&mut self, at: usize, column: &NumberProfile) -> Result<ArrayRef> {
        let stream = self.world.stream(NUMBER_STREAM, at);
        let gaps = self.world.stream(GAP_STREAM, at);
        let null = probability_threshold(column.null);
        let zero = probability_threshold(column.zero);
        let mut valid = ValidityBits::new(self.log_odds.len());
        let mut values = Vec::with_capacity(self.log_odds.len());
        for (index, log_odds) in self.log_odds.iter_mut().enumerate() {
            let row = self.first + index as u64;
            let gap = gaps.at(row);
            let z = normal(stream.at(row));
            let value = exp(column.mean + column.deviation * z);
            let value = if column.count {
                (value as i64) as f64
            } else {
                value
            };
            let present = word_quarter(gap, 0) >= null;
            let nonzero = word_quarter(gap, 1) >= zero;
            valid.put(index, present);
            values.push(if present && nonzero {
                value as f32
            } else {
                0.0
            });
            *log_odds += if present && nonzero {
                column.weight * z
            } else {
                0.0
            };
        }
        Ok(Arc::new(Float32Array::try_new(
            ScalarBuffer::from(values),
            valid.nulls(),
        )?))
    }

    fn category(
        &mut self,
        at: usize,
        column: &CategoryProfile,
        offsets: &OffsetBuffer<i32>,
        pair: &mut [u32],
    ) -> Result<ArrayRef> {
        let stream = self.world.stream(TOKEN_STREAM, at);
        let zipf = &self.world.zipfs[at];
        let null = probability_threshold(column.null);
        // The bijection of ranks to tokens, one for each column.
        let salt = mix(TOKEN_STREAM + at as u64) as u32;
        let mut valid = ValidityBits::new(self.log_odds.len());
        let mut bytes = Vec::with_capacity(self.log_odds.len() * 8);
        for (index, log_odds) in self.log_odds.iter_mut().enumerate() {
            let word = stream.at(self.first + index as u64);
            // The lowest 16 bits decide on the null; the upper 53 are the draw, of which the last five
            // overlap, which no result depends on.
            let present = word_quarter(word, 0) >= null;
            let rank = zipf.rank(unit(word));
            valid.put(index, present);
            bytes.extend_from_slice(&hex(scramble(rank ^ salt)));
            *log_odds += if present {
                column.weight * weight(at, rank)
            } else {
                0.0
            };
            if at == PAIR.0 || at == PAIR.1 {
                pair[index] = pair[index] << 16 | rank;
            }
        }
        let bytes = Buffer::from_vec(bytes);
        Ok(Arc::new(StringArray::try_new(
            offsets.clone(),
            bytes,
            valid.nulls(),
        )?))
    }
}

/// The weight of a token, between -1 and 1 and uniform: the same under every seed.
#[inline]
fn weight(column: usize, rank: u32) -> f64 {
    unit(mix(
        (column as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(rank)
    )) * 2.0
        - 1.0
}

/// The validity of a column's values.
struct ValidityBits {
    bytes: Vec<u8>,
    rows: usize,
}

impl ValidityBits {
    fn new(rows: usize) -> Self {
        ValidityBits {
            bytes: vec![0; rows.div_ceil(8)],
            rows,
        }
    }

    #[inline]
    fn put(&mut self, row: usize, valid: bool) {
        self.bytes[row >> 3] |= u8::from(valid) << (row & 7);
    }

    fn nulls(self) -> Option<NullBuffer> {
        let nulls = NullBuffer::new(BooleanBuffer::new(
            Buffer::from_vec(self.bytes),
            0,
            self.rows,
        ));
        (nulls.null_count() > 0).then_some(nulls)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::Int32Type;

    use super::*;

    /// The best that any model can do: a little more than the best models do on Criteo's log, which know less.
    #[test]
    fn label_is_as_hard_as_criteos() {
        let world = ClickModel::new(1);
        let rows = 50_000;
        let mut batch = ClickBatch {
            world: &world,
            first: 0,
            log_odds: vec![INTERCEPT; rows],
        };
        let columns = batch.columns().unwrap();
        let labels = columns[0].as_primitive::<Int32Type>();
        let mut scores: Vec<(f64, i32)> = batch
            .log_odds
            .iter()
            .copied()
            .zip(labels.values().iter().copied())
            .collect();
        scores.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut below = 0.0;
        let mut wins = 0.0;
        let mut ones = 0.0;
        for (_, label) in scores {
            if label == 1 {
                wins += below;
                ones += 1.0;
            } else {
                below += 1.0;
            }
        }
        let area = wins / (below * ones);
        let ones = ones / rows as f64;
        assert!(
            (0.82..0.86).contains(&area),
            "the area under the curve is {area}"
        );
        assert!((0.24..0.26).contains(&ones), "the share of ones is {ones}");
    }
}
