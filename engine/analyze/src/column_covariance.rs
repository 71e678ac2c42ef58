//! The covariance of several numeric columns.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array, UInt64Array};
use forebay_model::{
    Analyzer, AnalyzerInput, Fault, Finding, Result, ScratchSpace, StateDecoder, StateEncoder,
};
use serde_json::{Value, json};

use crate::compact_sum::CompactSum;
use crate::exact_sum::{ExactSum, covariance};
use crate::moment_accumulator::decompose;
use crate::numeric_column::NumericColumn;

/// Means and population covariances (ddof 0) of numeric columns.
///
/// A row counts if all of its values are finite numbers. The sums are exact; each mean and each covariance is rounded
/// once. One update costs an exact addition for each row and pair of columns.
///
/// The finding has a row for each column: `count` (UInt64, the same in all rows), `mean` and `covariance_0`,
/// `covariance_1`, ... (Float64, null if no row counts).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnCovariance {
    /// Number of columns.
    pub columns: usize,
}

/// State of [`ColumnCovariance`]: a sum of at most 700 bytes for each column and each pair of columns.
#[derive(Debug, Default)]
pub struct ColumnCovarianceState {
    rows: u64,
    sums: Vec<CompactSum>,
    /// Sums of products of the pairs (i, j), j from i on.
    products: Vec<CompactSum>,
}

/// A finite double as its mantissa and the weight of the mantissa's last bit.
type Parts = (i64, i32);

/// Rows that are decomposed at a time, so that the parts of some hundred columns stay in the cache.
const BLOCK_ROWS: usize = 256;

impl ColumnCovariance {
    fn pairs(&self) -> usize {
        self.columns * (self.columns + 1) / 2
    }

    fn empty(&self) -> ColumnCovarianceState {
        ColumnCovarianceState {
            rows: 0,
            sums: vec![CompactSum::default(); self.columns],
            products: vec![CompactSum::default(); self.pairs()],
        }
    }
}

impl ColumnCovarianceState {
    /// Accumulates rows, column by column.
    fn push_block(&mut self, block: &[Vec<Parts>]) {
        self.rows += block.first().map_or(0, Vec::len) as u64;
        for (sum, column) in self.sums.iter_mut().zip(block) {
            for (mantissa, bit) in column {
                sum.add(*bit, i128::from(*mantissa));
            }
        }
        let mut products = self.products.iter_mut();
        for (index, first) in block.iter().enumerate() {
            for (second, sum) in block[index..].iter().zip(products.by_ref()) {
                add_products(sum, first, second);
            }
        }
    }
}

fn add_products(sum: &mut CompactSum, first: &[Parts], second: &[Parts]) {
    for ((a, a_bit), (b, b_bit)) in first.iter().zip(second) {
        sum.add(a_bit + b_bit, i128::from(*a) * i128::from(*b));
    }
}

impl Analyzer for ColumnCovariance {
    type State = ColumnCovarianceState;

    fn kind(&self) -> &'static str {
        "covariance"
    }

    fn config(&self) -> Value {
        json!({ "columns": self.columns })
    }

    fn zero(&self, _: &Arc<dyn ScratchSpace>) -> Result<ColumnCovarianceState> {
        Ok(self.empty())
    }

    fn update(&self, state: &mut ColumnCovarianceState, input: &AnalyzerInput<'_>) -> Result<()> {
        if input.columns.len() != self.columns {
            return Err(Fault::internal("a covariance received other columns"));
        }
        let mut columns = Vec::with_capacity(self.columns);
        for column in input.columns {
            columns.push(NumericColumn::doubles(column)?);
        }
        let mut block: Vec<Vec<Parts>> = vec![Vec::new(); self.columns];
        for row in 0..input.rows {
            let is_complete = columns.iter().all(|column| {
                // Values under nulls are any.
                column.is_valid(row) && column.value(row).is_finite()
            });
            if !is_complete {
                continue;
            }
            for (parts, column) in block.iter_mut().zip(&columns) {
                parts.push(decompose(column.value(row)));
            }
            if block.first().is_some_and(|parts| parts.len() == BLOCK_ROWS) {
                state.push_block(&block);
                block.iter_mut().for_each(Vec::clear);
            }
        }
        state.push_block(&block);
        Ok(())
    }

    fn merge(
        &self,
        state: &mut ColumnCovarianceState,
        later_state: ColumnCovarianceState,
    ) -> Result<()> {
        state.rows += later_state.rows;
        for (sum, later_sum) in state.sums.iter_mut().zip(&later_state.sums) {
            sum.merge(later_sum);
        }
        for (sum, later_sum) in state.products.iter_mut().zip(&later_state.products) {
            sum.merge(later_sum);
        }
        Ok(())
    }

    fn encode(&self, state: &mut ColumnCovarianceState, out: &mut dyn Write) -> Result<()> {
        let mut out = StateEncoder(out);
        out.varint(state.rows)?;
        for sum in state.sums.iter().chain(&state.products) {
            sum.encode(&mut out)?;
        }
        Ok(())
    }

    fn decode(
        &self,
        input: &mut dyn Read,
        _: &Arc<dyn ScratchSpace>,
    ) -> Result<ColumnCovarianceState> {
        let mut input = StateDecoder(input);
        let mut state = self.empty();
        state.rows = input.count()?;
        for sum in state.sums.iter_mut().chain(&mut state.products) {
            *sum = CompactSum::decode(&mut input)?;
        }
        Ok(state)
    }

    fn finish(&self, state: ColumnCovarianceState) -> Result<Finding> {
        let rows = state.rows;
        let mut matrix = vec![vec![None; self.columns]; self.columns];
        let sums: Vec<ExactSum> = state.sums.iter().map(CompactSum::exact).collect();
        let mut products = state.products.iter().map(CompactSum::exact);
        for (index, sum) in sums.iter().enumerate() {
            for (other, product) in (index..self.columns).zip(products.by_ref()) {
                let value = (rows > 0).then(|| covariance(rows, [sum, &sums[other]], &product));
                matrix[index][other] = value;
                matrix[other][index] = value;
            }
        }
        let mean = |sum: &ExactSum| (rows > 0).then(|| sum.divided(rows));
        let means: Float64Array = sums.iter().map(mean).collect();
        let counts = UInt64Array::from(vec![rows; self.columns]);
        let mut columns: Vec<(String, ArrayRef)> = vec![
            ("count".to_owned(), Arc::new(counts)),
            ("mean".to_owned(), Arc::new(means)),
        ];
        for (index, values) in matrix.into_iter().enumerate() {
            let values = Float64Array::from(values);
            columns.push((format!("covariance_{index}"), Arc::new(values)));
        }
        let named = columns
            .iter()
            .map(|(name, column)| (name.as_str(), column.clone()));
        Finding::of(named)
    }

    fn size_bytes(&self, state: &ColumnCovarianceState) -> usize {
        let sums = state.sums.iter().chain(&state.products);
        let heap: usize = sums.map(CompactSum::heap_bytes).sum();
        let tables = (self.columns + self.pairs()) * size_of::<CompactSum>();
        size_of::<ColumnCovarianceState>() + tables + heap
    }

    fn size_bytes_max(&self, _: usize) -> usize {
        let block = self.columns * BLOCK_ROWS * size_of::<Parts>();
        block + (self.columns + self.pairs()) * (1 << 10)
    }
}
