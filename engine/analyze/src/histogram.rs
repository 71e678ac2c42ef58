//! Counts of numbers in given bins.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Builder, UInt64Array};
use forebay_model::{
    Analyzer, AnalyzerInput, Fault, Finding, Result, ScratchSpace, StateDecoder, StateEncoder,
    codes,
};
use serde_json::{Value, json};

use crate::numeric_column::{NumericColumn, single_column, valid_slices};

/// Counts per half-open bin `[edges[i], edges[i + 1])`, and of values outside the bins.
///
/// The finding has the columns `lower`, `upper` (Float64) and `count` (UInt64). Its first row counts values below
/// all edges (`lower` is -inf). The bins follow, then values at or above the last edge (`upper` is inf), NaN (both
/// are NaN), and nulls (both are null).
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    /// Finite and strictly increasing; at least one.
    pub edges: Vec<f64>,
}

/// State of [`Histogram`].
#[derive(Debug)]
pub struct HistogramState {
    /// Counts below the first edge, per bin, and from the last edge on.
    counts: Vec<u64>,
    nans: u64,
    nulls: u64,
}

impl Histogram {
    fn push_values<T: Copy>(
        &self,
        state: &mut HistogramState,
        values: &[T],
        to_f64: impl Fn(T) -> f64,
    ) {
        for &value in values {
            let value = to_f64(value);
            if value.is_nan() {
                state.nans += 1;
            } else {
                state.counts[self.edges.partition_point(|&edge| edge <= value)] += 1;
            }
        }
    }
}

impl Analyzer for Histogram {
    type State = HistogramState;

    fn kind(&self) -> &'static str {
        "histogram"
    }

    fn config(&self) -> Value {
        json!({ "edges": self.edges })
    }

    fn zero(&self, _: &Arc<dyn ScratchSpace>) -> Result<HistogramState> {
        let is_increasing = self.edges.windows(2).all(|pair| pair[0] < pair[1]);
        let is_finite = self.edges.iter().all(|edge| edge.is_finite());
        if self.edges.is_empty() || !is_increasing || !is_finite {
            return Err(Fault::new(
                codes::BAD_VALUE,
                "edges of a histogram have to be finite and increasing",
            ));
        }
        Ok(HistogramState {
            counts: vec![0; self.edges.len() + 1],
            nans: 0,
            nulls: 0,
        })
    }

    fn update(&self, state: &mut HistogramState, input: &AnalyzerInput<'_>) -> Result<()> {
        let column = single_column(input)?;
        state.nulls += column.logical_null_count() as u64;
        match NumericColumn::of(column)? {
            NumericColumn::Float64(array) => valid_slices(&array, |values| {
                self.push_values(state, values, |value| value)
            }),
            NumericColumn::Float32(array) => {
                valid_slices(&array, |values| self.push_values(state, values, f64::from))
            }
            NumericColumn::Int64(array) => valid_slices(&array, |values| {
                self.push_values(state, values, |value| value as f64)
            }),
            NumericColumn::UInt64(array) => valid_slices(&array, |values| {
                self.push_values(state, values, |value| value as f64)
            }),
        }
        Ok(())
    }

    fn merge(&self, state: &mut HistogramState, later_state: HistogramState) -> Result<()> {
        for (count, later_count) in state.counts.iter_mut().zip(&later_state.counts) {
            *count += later_count;
        }
        state.nans += later_state.nans;
        state.nulls += later_state.nulls;
        Ok(())
    }

    fn encode(&self, state: &mut HistogramState, out: &mut dyn Write) -> Result<()> {
        let mut out = StateEncoder(out);
        out.varint(state.nans)?;
        out.varint(state.nulls)?;
        for count in &state.counts {
            out.varint(*count)?;
        }
        Ok(())
    }

    fn decode(
        &self,
        input: &mut dyn Read,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<HistogramState> {
        let mut state = Analyzer::zero(self, scratch)?;
        let mut input = StateDecoder(input);
        state.nans = input.count()?;
        state.nulls = input.count()?;
        for count in &mut state.counts {
            *count = input.count()?;
        }
        Ok(state)
    }

    fn finish(&self, state: HistogramState) -> Result<Finding> {
        let mut lower = Float64Builder::new();
        lower.append_value(f64::NEG_INFINITY);
        lower.append_slice(&self.edges);
        let mut upper = Float64Builder::new();
        upper.append_slice(&self.edges);
        upper.append_value(f64::INFINITY);
        // The last two rows count NaN and nulls.
        for bounds in [&mut lower, &mut upper] {
            bounds.append_value(f64::NAN);
            bounds.append_null();
        }
        let lower = lower.finish();
        let upper = upper.finish();
        let counts = UInt64Array::from([state.counts, vec![state.nans, state.nulls]].concat());
        Finding::of([
            ("lower", Arc::new(lower) as ArrayRef),
            ("upper", Arc::new(upper) as ArrayRef),
            ("count", Arc::new(counts) as ArrayRef),
        ])
    }

    fn size_bytes(&self, state: &HistogramState) -> usize {
        size_of::<HistogramState>() + state.counts.capacity() * 8
    }

    fn size_bytes_max(&self, _: usize) -> usize {
        size_of::<HistogramState>() + (self.edges.len() + 1) * 8
    }
}
