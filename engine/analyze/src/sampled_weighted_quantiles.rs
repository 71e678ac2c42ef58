//! Approximate quantiles of weighted values from a sample that is independent of the order of rows.

use std::io::{Read, Write};
use std::sync::Arc;

use forebay_model::{
    Analyzer, AnalyzerInput, Fault, Finding, Result, ScratchSpace, StateDecoder, StateEncoder,
    codes,
};
use serde_json::{Value, json};

use crate::exact_sum::ExactSum;
use crate::exponential_draws::ExponentialDraws;
use crate::numeric_column::{from_ordered_bits, ordered_bits};
use crate::quantile_request::QuantileRequest;
use crate::sampled_quantiles::{sample_rows, select_ranks};
use crate::weighted_column::{WeightedColumn, exact_weight, is_weight};
use crate::weighted_ranks::{WeightedRanks, equal_ranks, value_count, weighted_finding};

/// Quantiles of one numeric column whose rows have weights, with an error of at most `epsilon` times the sum of the
/// weights.
///
/// Each row has the events of a Poisson process: a row of weight `w` has one after about `1 / w`, at times that are a
/// function of its row key. The sample is the first `k` events of all rows, each with its row's value. They are `k`
/// independent draws of rows, in proportion to their weights (superposition and marking of Poisson processes: Kingman,
/// "Poisson Processes", 1993). By the inequality of Dvoretzky, Kiefer and Wolfowitz with the constant of Massart (Annals of
/// Probability 18, 1990), `k = ln(2 / delta) / (2 epsilon^2)` draws keep the share of the weight up to every value within
/// `epsilon` with probability `1 - 1e-6`. The result is exact while no more than `k` rows count.
///
/// Input columns, rows that count and the finding are those of `ExactWeightedQuantiles`.
#[derive(Debug, Clone, PartialEq)]
pub struct SampledWeightedQuantiles {
    /// Largest error of a rank, as a share of the weight.
    pub epsilon: f64,
    /// The requested order statistics.
    pub ask: QuantileRequest,
    /// The name of the column of weights, for faults.
    pub weight: String,
}

impl SampledWeightedQuantiles {
    /// Number of draws in the sample, and of rows up to which it is exact.
    pub fn sample_rows(&self) -> usize {
        sample_rows(self.epsilon)
    }
}

/// State of [`SampledWeightedQuantiles`]: 24 bytes a row while all rows are held, then at most twice the sample in 16
/// bytes a draw.
#[derive(Debug)]
pub struct SampledWeightedQuantilesState {
    /// All rows that count, while they are no more than the sample holds.
    whole: Vec<WeightedRow>,
    /// True if draws replace the rows.
    is_drawn: bool,
    draws: Vec<WeightedDraw>,
    /// The requested values in place of rows and draws once no rows follow.
    condensed: Option<Vec<f64>>,
    /// Later draws cannot enter the sample.
    time_max: f64,
    draws_max: usize,
    buffer_max: usize,
}

/// A row that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct WeightedRow {
    key: u64,
    /// Ordered bits.
    value: u64,
    /// The bits of a positive double.
    weight: u64,
}

/// An event of a row. Positive times sort like their bits. Events of one time and one value are interchangeable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct WeightedDraw {
    time: u64,
    /// Ordered bits.
    value: u64,
}

impl SampledWeightedQuantilesState {
    /// A fault for a condensed state, which accepts no further rows.
    fn expect_rows(&self) -> Result<()> {
        match &self.condensed {
            Some(_) => Err(Fault::internal("rows for a condensed sample")),
            None => Ok(()),
        }
    }

    fn add(&mut self, row: WeightedRow) {
        if !self.is_drawn && self.whole.len() < self.draws_max {
            grow(&mut self.whole, self.draws_max);
            self.whole.push(row);
            return;
        }
        self.draw_rows();
        self.draw_row(row);
    }

    /// Replaces the rows by their draws.
    fn draw_rows(&mut self) {
        if self.is_drawn {
            return;
        }
        self.is_drawn = true;
        for row in std::mem::take(&mut self.whole) {
            self.draw_row(row);
        }
    }

    /// Adds the draws of a row that may enter the sample.
    fn draw_row(&mut self, row: WeightedRow) {
        let weight = f64::from_bits(row.weight);
        let mut draws = ExponentialDraws::of_key(row.key);
        // Few rows enter a sample: this spares drawing for most others.
        if draws.lower_bound() / weight > self.time_max {
            return;
        }
        let mut time = draws.draw() / weight;
        while time <= self.time_max {
            self.push_draw(WeightedDraw {
                time: time.to_bits(),
                value: row.value,
            });
            time += draws.draw() / weight;
        }
    }

    fn push_draw(&mut self, draw: WeightedDraw) {
        if self.draws.len() == self.buffer_max {
            self.truncate_draws();
        }
        grow(&mut self.draws, self.buffer_max);
        self.draws.push(draw);
    }

    /// Truncates the draws to the first of the sample.
    fn truncate_draws(&mut self) {
        if self.draws.len() > self.draws_max {
            let (_, last, _) = self.draws.select_nth_unstable(self.draws_max - 1);
            self.time_max = f64::from_bits(last.time);
            self.draws.truncate(self.draws_max);
        }
    }

    /// Replaces rows or draws by the values that a request needs of them.
    fn condense_to_values(&mut self, request: &QuantileRequest) {
        if self.condensed.is_some() {
            return;
        }
        let values = if self.is_drawn {
            self.drawn_values(request)
        } else {
            self.row_values(request)
        };
        self.condensed = Some(values);
    }

    /// The requested values of the rows, which are all there are.
    fn row_values(&mut self, request: &QuantileRequest) -> Vec<f64> {
        let mut rows = std::mem::take(&mut self.whole);
        rows.sort_unstable_by_key(|row| row.value);
        let mut total = ExactSum::default();
        for row in &rows {
            total.merge(&exact_weight(f64::from_bits(row.weight)));
        }
        let mut ranks = WeightedRanks::new(request, total);
        for row in &rows {
            let weight = exact_weight(f64::from_bits(row.weight));
            ranks.pass(from_ordered_bits(row.value), &weight);
        }
        ranks.into_values()
    }

    /// The requested values of the draws, of which each counts once.
    fn drawn_values(&mut self, request: &QuantileRequest) -> Vec<f64> {
        self.truncate_draws();
        let draws = std::mem::take(&mut self.draws);
        let mut bits: Vec<u64> = draws.into_iter().map(|draw| draw.value).collect();
        let ranks = equal_ranks(request, bits.len() as u64);
        let mut distinct_ranks = ranks.clone();
        distinct_ranks.dedup();
        let selected = select_ranks(&mut bits, &distinct_ranks);
        let mut values = Vec::with_capacity(ranks.len());
        for rank in ranks {
            let index = distinct_ranks.partition_point(|other| *other < rank);
            values.push(from_ordered_bits(selected[index]));
        }
        values
    }
}

/// Makes room for one more item: doubles, but never beyond `length_max`.
fn grow<T>(list: &mut Vec<T>, length_max: usize) {
    if list.len() == list.capacity() {
        let free = length_max.saturating_sub(list.len());
        list.reserve_exact(list.len().max(1024).min(free));
    }
}

/// Kinds of states: their first byte.
const WHOLE: u8 = 0;
const DRAWN: u8 = 1;
const CONDENSED: u8 = 2;

fn corrupt(message: &str) -> Fault {
    Fault::new(codes::CORRUPT, message)
}

fn read_row(input: &mut StateDecoder<'_>) -> Result<WeightedRow> {
    let key = input.u64()?;
    let value = input.number()?;
    let weight = input.number()?;
    if value.is_nan() || !is_weight(weight) {
        return Err(corrupt("a state holds a row without a value or a weight"));
    }
    Ok(WeightedRow {
        key,
        value: ordered_bits(value),
        weight: weight.to_bits(),
    })
}

fn read_draw(input: &mut StateDecoder<'_>) -> Result<WeightedDraw> {
    let time = f64::from_bits(input.u64()?);
    let value = input.number()?;
    if value.is_nan() || !time.is_finite() || time.is_sign_negative() {
        return Err(corrupt("a state holds a draw without a value or a time"));
    }
    Ok(WeightedDraw {
        time: time.to_bits(),
        value: ordered_bits(value),
    })
}

impl Analyzer for SampledWeightedQuantiles {
    type State = SampledWeightedQuantilesState;

    fn kind(&self) -> &'static str {
        "weighted_quantiles"
    }

    fn config(&self) -> Value {
        json!({ "epsilon": self.epsilon, "ask": self.ask.config() })
    }

    fn needs_row_keys(&self) -> bool {
        true
    }

    fn zero(&self, scratch: &Arc<dyn ScratchSpace>) -> Result<SampledWeightedQuantilesState> {
        let draws_max = self.sample_rows();
        if self.epsilon.is_nan() || self.epsilon <= 0.0 {
            return Err(Fault::new(
                codes::BAD_VALUE,
                format!("epsilon {} is not positive", self.epsilon),
            ));
        }
        // Rows are held until all of them are drawn. A quarter more than the sample makes truncation cheap enough.
        let row_bytes = draws_max * size_of::<WeightedRow>();
        let free_bytes = scratch.budget_bytes().saturating_sub(row_bytes);
        let fits = free_bytes / size_of::<WeightedDraw>();
        if draws_max + (draws_max / 4).max(1) > fits {
            let message = format!(
                "weighted quantiles with epsilon {} need a sample of {draws_max} rows, \
                 more than {} bytes of memory hold",
                self.epsilon,
                scratch.budget_bytes()
            );
            let fault = Fault::new(codes::MEMORY, message);
            return Err(fault.hint("raise epsilon, or use exact quantiles"));
        }
        Ok(SampledWeightedQuantilesState {
            whole: Vec::new(),
            is_drawn: false,
            draws: Vec::new(),
            condensed: None,
            time_max: f64::INFINITY,
            draws_max,
            buffer_max: (2 * draws_max).min(fits),
        })
    }

    fn update(
        &self,
        state: &mut SampledWeightedQuantilesState,
        input: &AnalyzerInput<'_>,
    ) -> Result<()> {
        state.expect_rows()?;
        let column = WeightedColumn::of(input)?;
        let keys = input.keys.filter(|keys| keys.len() == column.len());
        let keys = keys.ok_or_else(|| Fault::internal("quantiles received no key per row"))?;
        column.for_each(&self.weight, |row, value, weight| {
            state.add(WeightedRow {
                key: keys[row],
                value: ordered_bits(value),
                weight: weight.to_bits(),
            });
            Ok(())
        })
    }

    fn merge(
        &self,
        state: &mut SampledWeightedQuantilesState,
        mut later_state: SampledWeightedQuantilesState,
    ) -> Result<()> {
        state.expect_rows()?;
        later_state.expect_rows()?;
        // Rows are drawn fastest beside a sample, which most of them cannot enter.
        if later_state.is_drawn && !state.is_drawn {
            std::mem::swap(state, &mut later_state);
        }
        for row in later_state.whole {
            state.add(row);
        }
        // The first draws of both samples are the first draws of all rows.
        for draw in later_state.draws {
            if f64::from_bits(draw.time) <= state.time_max {
                state.push_draw(draw);
            }
        }
        Ok(())
    }

    fn encode(&self, state: &mut SampledWeightedQuantilesState, out: &mut dyn Write) -> Result<()> {
        let mut out = StateEncoder(out);
        if let Some(values) = &state.condensed {
            out.raw(&[CONDENSED])?;
            out.varint(values.len() as u64)?;
            for value in values {
                out.number(*value)?;
            }
            return Ok(());
        }
        if state.is_drawn {
            state.truncate_draws();
            state.draws.sort_unstable();
            out.raw(&[DRAWN])?;
            out.varint(state.draws.len() as u64)?;
            for draw in &state.draws {
                out.u64(draw.time)?;
                out.number(from_ordered_bits(draw.value))?;
            }
            return Ok(());
        }
        state.whole.sort_unstable();
        out.raw(&[WHOLE])?;
        out.varint(state.whole.len() as u64)?;
        for row in &state.whole {
            out.u64(row.key)?;
            out.number(from_ordered_bits(row.value))?;
            out.number(f64::from_bits(row.weight))?;
        }
        Ok(())
    }

    fn decode(
        &self,
        input: &mut dyn Read,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<SampledWeightedQuantilesState> {
        let mut state = Analyzer::zero(self, scratch)?;
        let mut input = StateDecoder(input);
        let mut kind = [0];
        input.raw(&mut kind)?;
        match kind {
            [WHOLE] => {
                for _ in 0..input.length(state.draws_max)? {
                    let row = read_row(&mut input)?;
                    grow(&mut state.whole, state.draws_max);
                    state.whole.push(row);
                }
            }
            [DRAWN] => {
                state.is_drawn = true;
                for _ in 0..input.length(state.draws_max)? {
                    let draw = read_draw(&mut input)?;
                    state.push_draw(draw);
                }
                // A full sample refuses draws that are later than all of its own.
                if state.draws.len() == state.draws_max
                    && let Some(last) = state.draws.iter().max()
                {
                    state.time_max = f64::from_bits(last.time);
                }
            }
            [CONDENSED] => {
                let mut values = Vec::new();
                for _ in 0..input.length(value_count(&self.ask))? {
                    values.push(input.number()?);
                }
                state.condensed = Some(values);
            }
            _ => return Err(corrupt("a state holds a sample of an unknown kind")),
        }
        Ok(state)
    }

    fn condense(&self, state: &mut SampledWeightedQuantilesState) -> Result<()> {
        state.condense_to_values(&self.ask);
        Ok(())
    }

    fn finish(&self, mut state: SampledWeightedQuantilesState) -> Result<Finding> {
        state.condense_to_values(&self.ask);
        let values = state.condensed.unwrap_or_default();
        // Without rows there are none.
        if !values.is_empty() && values.len() != value_count(&self.ask) {
            return Err(corrupt("a state holds too many or too few quantiles"));
        }
        weighted_finding(&self.ask, &values)
    }

    fn size_bytes(&self, state: &SampledWeightedQuantilesState) -> usize {
        let condensed = state.condensed.as_ref();
        let values = condensed.map_or(0, |values| values.capacity());
        size_of::<SampledWeightedQuantilesState>()
            + state.whole.capacity() * size_of::<WeightedRow>()
            + state.draws.capacity() * size_of::<WeightedDraw>()
            + values * size_of::<f64>()
    }

    fn size_bytes_max(&self, budget_bytes: usize) -> usize {
        let draw_bytes = size_of::<WeightedRow>() + 2 * size_of::<WeightedDraw>();
        (self.sample_rows() * draw_bytes).min(budget_bytes)
    }
}
