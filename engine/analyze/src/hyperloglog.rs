//! Approximate number of distinct values of a column.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, Float64Array, PrimitiveArray, StringArray, UInt64Array,
};
use forebay_model::{
    Analyzer, AnalyzerInput, Fault, Finding, Result, ScratchSpace, StateDecoder, StateEncoder,
    StringColumn, codes, logical_type,
};
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

use crate::dictionary_counts::{DictionaryCounts, string_elements};
use crate::numeric_column::{NumericColumn, single_column};
use crate::value_examples::ValueExamples;

/// HyperLogLog estimate of the number of distinct values.
///
/// Flajolet, Fusy, Gandouet and Meunier, "HyperLogLog" (AofA 2007), over 64-bit xxh3 hashes, with the improved raw
/// estimator of Ertl, "New cardinality estimation algorithms for HyperLogLog sketches" (2017), which needs no bias
/// tables. The standard error is `1.04 / sqrt(2^precision)`, 0.81 % by default; small counts are nearly exact.
///
/// Nulls and NaN are not counted as values; -0.0 equals 0.0. List elements count as values. The finding has one
/// row: `estimate` (Float64), `nulls`, `nans` (UInt64), and `examples` (Utf8): a JSON array of the five values with
/// the least hashes, as text, cut after some 250 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DistinctCount {
    /// The state holds `2^precision` bytes; 4 to 18.
    pub precision: u8,
}

impl Default for DistinctCount {
    fn default() -> Self {
        DistinctCount { precision: 14 }
    }
}

/// State of [`DistinctCount`].
#[derive(Debug)]
pub struct DistinctCountState {
    nulls: u64,
    nans: u64,
    values: SeenValues,
    dictionary: DictionaryCounts,
}

/// Registers and examples of the values.
#[derive(Debug)]
struct SeenValues {
    registers: HllRegisters,
    examples: ValueExamples,
}

impl SeenValues {
    /// Adds a value by the bytes that stand for it. `text` is called only for an example.
    #[inline]
    fn add(&mut self, bytes: &[u8], text: impl FnOnce() -> String) {
        let hash = xxh3_64(bytes);
        self.registers.add(hash);
        self.examples.add(hash, text);
    }

    fn add_integers<T: ArrowPrimitiveType<Native: ToString>, const N: usize>(
        &mut self,
        array: &PrimitiveArray<T>,
        bytes: impl Fn(T::Native) -> [u8; N],
    ) {
        for value in array.iter().flatten() {
            self.add(&bytes(value), || value.to_string());
        }
    }
}

#[derive(Debug)]
struct HllRegisters {
    ranks: Vec<u8>,
    precision: u32,
}

impl HllRegisters {
    fn add(&mut self, hash: u64) {
        let RegisterRank { register, rank } = RegisterRank::of(hash, self.precision);
        self.ranks[register] = self.ranks[register].max(rank);
    }
}

/// The register that a hash belongs to, and the rank that it has there.
pub(crate) struct RegisterRank {
    pub(crate) register: usize,
    /// One more than the number of zero bits behind those of the register, at most `65 - precision`.
    pub(crate) rank: u8,
}

impl RegisterRank {
    pub(crate) fn of(hash: u64, precision: u32) -> Self {
        // The sentinel bit limits the rank.
        let rank = ((hash << precision) | (1 << (precision - 1))).leading_zeros() as u8 + 1;
        RegisterRank {
            register: (hash >> (64 - precision)) as usize,
            rank,
        }
    }
}

/// The number of distinct hashes that `2^precision` registers have seen: Ertl 2017, algorithm 6.
pub(crate) fn estimate(ranks: &[u8]) -> f64 {
    let m = ranks.len() as f64;
    let q = 64 - ranks.len().trailing_zeros() as usize;
    let mut counts = [0.0; 66];
    for &rank in ranks {
        counts[usize::from(rank).min(65)] += 1.0;
    }
    let mut z = m * tau(1.0 - counts[q + 1] / m);
    for &count in counts[1..=q].iter().rev() {
        z = 0.5 * (z + count);
    }
    z += m * sigma(counts[0] / m);
    m * m / (2.0 * std::f64::consts::LN_2 * z)
}

/// Ertl's correction for registers that no value reached.
fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let mut y = 1.0;
    let mut z = x;
    loop {
        x *= x;
        let previous = z;
        z += x * y;
        y += y;
        if z == previous {
            return z;
        }
    }
}

/// Ertl's correction for registers that reached the highest rank.
fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let mut y = 1.0;
    let mut z = 1.0 - x;
    loop {
        x = x.sqrt();
        let previous = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if z == previous {
            return z / 3.0;
        }
    }
}

impl DistinctCountState {
    fn flush(&mut self) -> Result<()> {
        let DistinctCountState {
            nulls,
            values,
            dictionary,
            ..
        } = self;
        dictionary.flush(|text, count| add_text(values, nulls, text, count))
    }

    /// Adds numbers by their values as doubles; `text` writes them as the column's type does.
    fn push_floats<T: ArrowPrimitiveType<Native: Into<f64>>>(
        &mut self,
        array: &PrimitiveArray<T>,
        text: impl Fn(T::Native) -> String,
    ) {
        for value in array.iter().flatten() {
            let double: f64 = value.into();
            if double.is_nan() {
                self.nans += 1;
            } else {
                self.values
                    .add(&(double + 0.0).to_le_bytes(), || text(value));
            }
        }
        self.nulls += array.null_count() as u64;
    }
}

fn add_text(
    values: &mut SeenValues,
    nulls: &mut u64,
    text: Option<&str>,
    count: u64,
) -> Result<()> {
    match text {
        Some(text) => values.add(text.as_bytes(), || text.to_owned()),
        None => *nulls += count,
    }
    Ok(())
}

impl Analyzer for DistinctCount {
    type State = DistinctCountState;

    fn kind(&self) -> &'static str {
        "distinct_count"
    }

    fn version(&self) -> u32 {
        2
    }

    fn config(&self) -> Value {
        json!({ "precision": self.precision })
    }

    fn zero(&self, _: &Arc<dyn ScratchSpace>) -> Result<DistinctCountState> {
        if !(4..=18).contains(&self.precision) {
            let message = format!("precision {} is not between 4 and 18", self.precision);
            return Err(Fault::new(codes::BAD_VALUE, message));
        }
        let registers = HllRegisters {
            ranks: vec![0; 1 << self.precision],
            precision: u32::from(self.precision),
        };
        let values = SeenValues {
            registers,
            examples: ValueExamples::default(),
        };
        Ok(DistinctCountState {
            nulls: 0,
            nans: 0,
            values,
            dictionary: DictionaryCounts::default(),
        })
    }

    fn update(&self, state: &mut DistinctCountState, input: &AnalyzerInput<'_>) -> Result<()> {
        let (parts, null_lists) = string_elements(single_column(input)?)?;
        state.nulls += null_lists;
        for part in &parts {
            if !logical_type(part.data_type()).is_numeric() {
                let DistinctCountState {
                    nulls,
                    values,
                    dictionary,
                    ..
                } = state;
                dictionary.push(&StringColumn::of(part)?, |text, count| {
                    add_text(values, nulls, text, count)
                })?;
                continue;
            }
            match NumericColumn::of(part)? {
                // The sum is 0.0 for -0.0, whichever comes first.
                NumericColumn::Float64(array) => {
                    state.push_floats(&array, |value| format!("{:?}", value + 0.0))
                }
                NumericColumn::Float32(array) => {
                    state.push_floats(&array, |value| format!("{:?}", value + 0.0))
                }
                NumericColumn::Int64(array) => {
                    state.values.add_integers(&array, i64::to_le_bytes);
                    state.nulls += array.null_count() as u64;
                }
                NumericColumn::UInt64(array) => {
                    state.values.add_integers(&array, u64::to_le_bytes);
                    state.nulls += array.null_count() as u64;
                }
            }
        }
        // A dictionary is kept only while it is about as small as the registers.
        if state.dictionary.size_bytes() > 1 << 20 {
            state.flush()?;
        }
        Ok(())
    }

    fn merge(
        &self,
        state: &mut DistinctCountState,
        mut later_state: DistinctCountState,
    ) -> Result<()> {
        later_state.flush()?;
        state.nulls += later_state.nulls;
        state.nans += later_state.nans;
        let ranks = &mut state.values.registers.ranks;
        for (rank, &later_rank) in ranks.iter_mut().zip(&later_state.values.registers.ranks) {
            *rank = (*rank).max(later_rank);
        }
        state.values.examples.merge(later_state.values.examples);
        Ok(())
    }

    fn encode(&self, state: &mut DistinctCountState, out: &mut dyn Write) -> Result<()> {
        state.flush()?;
        let mut out = StateEncoder(out);
        out.varint(state.nulls)?;
        out.varint(state.nans)?;
        out.raw(&state.values.registers.ranks)?;
        state.values.examples.encode(&mut out)
    }

    fn decode(
        &self,
        input: &mut dyn Read,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<DistinctCountState> {
        let mut state = Analyzer::zero(self, scratch)?;
        let mut input = StateDecoder(input);
        state.nulls = input.count()?;
        state.nans = input.count()?;
        input.raw(&mut state.values.registers.ranks)?;
        let ranks = &state.values.registers.ranks;
        if ranks.iter().any(|&rank| rank > 65 - self.precision) {
            return Err(Fault::new(
                codes::CORRUPT,
                "a state has a register value out of range",
            ));
        }
        state.values.examples = ValueExamples::decode(&mut input)?;
        Ok(state)
    }

    fn finish(&self, mut state: DistinctCountState) -> Result<Finding> {
        state.flush()?;
        let count = |value: u64| Arc::new(UInt64Array::from(vec![value])) as ArrayRef;
        let estimate = Float64Array::from(vec![estimate(&state.values.registers.ranks)]);
        let texts: Vec<_> = state.values.examples.texts().collect();
        let examples = json!(texts).to_string();
        Finding::of([
            ("estimate", Arc::new(estimate) as ArrayRef),
            ("nulls", count(state.nulls)),
            ("nans", count(state.nans)),
            ("examples", Arc::new(StringArray::from(vec![examples]))),
        ])
    }

    fn size_bytes(&self, state: &DistinctCountState) -> usize {
        let SeenValues {
            registers,
            examples,
        } = &state.values;
        size_of::<DistinctCountState>()
            + registers.ranks.len()
            + examples.size_bytes()
            + state.dictionary.size_bytes()
    }

    fn size_bytes_max(&self, _: usize) -> usize {
        (1 << self.precision.min(18)) + ValueExamples::SIZE_MAX + (1 << 20)
    }
}
