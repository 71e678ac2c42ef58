//! Cumulative statistics: each entry of a series is consumed once, in order.

mod ewm;
mod extremes;
mod last_value;
mod moments;
mod order_statistics;
mod seasonal;
mod trend;

use std::fmt::Debug;

use forebay_model::{Result, StateDecoder, StateEncoder};

use crate::WordEncoding;
use crate::batch::{BatchRow, WindowBatch};

pub(crate) use ewm::{EwmAccumulator, EwmWeights};
pub(crate) use extremes::{
    ExtremesAccumulator, FirstLastAccumulator, LastNonzeroAccumulator, ZeroShareAccumulator,
};
pub(crate) use last_value::{LastValidAccumulator, LastValidRequest};
pub(crate) use moments::{ShapeAccumulator, SumAccumulator, VarianceAccumulator};
pub(crate) use order_statistics::{DistinctValues, QuantileHeaps};
pub(crate) use seasonal::{SeasonalRequest, SeasonalSums};
pub(crate) use trend::SlopeAccumulator;

/// Progress of the cumulative statistics with one gap, per series.
#[derive(Debug, Clone)]
pub(crate) struct CumulativeFrontier {
    /// Index of the bound up to which entries are consumed.
    pub edge: usize,
    /// Per series: index of the first entry that is not consumed.
    pub taken: Vec<u64>,
    /// Per row of the batch: the distances of the entries that it consumes.
    pub spans: Vec<(u32, u32)>,
}

impl CumulativeFrontier {
    /// Determines the entries that each row consumes.
    pub fn advance(&mut self, rows: &[BatchRow], distances: &[Vec<u32>], series: usize) {
        self.taken.resize(series, 0);
        self.spans.clear();
        self.spans
            .extend(rows.iter().zip(&distances[self.edge]).map(|(row, &end)| {
                let taken_count = &mut self.taken[row.series as usize];
                let start = (row.number + 1 - *taken_count) as u32;
                let end = end.min(start);
                *taken_count = row.number + 1 - u64::from(end);
                (start, end)
            }));
    }
}

/// State of a statistic for all series.
pub(crate) trait CumulativeState: Debug + Send + Sync {
    /// Consumes the entries of a batch and appends the requested outputs.
    fn run(
        &mut self,
        batch: &WindowBatch<'_>,
        frontiers: &[CumulativeFrontier],
        series: usize,
        emit: &[bool],
        outputs: &mut [Vec<u64>],
    );

    /// Ensures state for each of `series` series.
    fn grow(&mut self, series: usize);

    /// Removes a series; the last series takes its number.
    fn remove(&mut self, series: usize);

    /// Removes all series but one.
    fn keep_only(&mut self, series: usize);

    /// Encodes the state of a series.
    fn encode(&self, series: usize, out: &mut StateEncoder<'_>) -> Result<()>;

    /// Decodes and appends the state of one more series.
    fn decode(&mut self, input: &mut StateDecoder<'_>) -> Result<()>;

    fn bytes(&self) -> usize;

    fn boxed(&self) -> Box<dyn CumulativeState>;
}

impl Clone for Box<dyn CumulativeState> {
    fn clone(&self) -> Self {
        self.boxed()
    }
}

/// An entry of a series.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConsumedEntry {
    pub word: u64,
    pub is_missing: bool,
    /// Time of the entry, if any statistic reads times.
    pub time: i64,
    /// Index in its series.
    pub number: u64,
}

/// State of a statistic for one series.
pub(crate) trait StatAccumulator: Debug + Clone + Default + Send + Sync + 'static {
    /// Parameters shared by all series.
    type Config: Debug + Clone + PartialEq + Send + Sync + 'static;
    /// Parameters of one output.
    type Question: Debug + Clone + Send + Sync + 'static;

    fn accumulate(&mut self, config: &Self::Config, entry: ConsumedEntry);

    /// The output word for a row; the missing word if there are fewer values than required.
    fn output_word(
        &self,
        config: &Self::Config,
        request: &StatRequest<Self::Question>,
        output: &OutputRow<'_>,
    ) -> u64;

    fn encode(&self, out: &mut StateEncoder<'_>) -> Result<()>;

    fn decode(config: &Self::Config, input: &mut StateDecoder<'_>) -> Result<Self>;

    /// Bytes of heap memory.
    #[inline(always)]
    fn heap_bytes(&self) -> usize {
        0
    }
}

/// The row whose output is computed.
pub(crate) struct OutputRow<'a> {
    pub row: &'a BatchRow,
    pub keep: WordEncoding,
}

/// One requested output of a statistic.
#[derive(Debug, Clone)]
pub(crate) struct StatRequest<Q> {
    pub function: usize,
    pub question: Q,
    pub min_periods: u64,
}

/// A statistic with an accumulator for each series.
#[derive(Debug, Clone)]
pub(crate) struct CumulativeStat<A: StatAccumulator> {
    pub input: usize,
    pub keep: WordEncoding,
    /// Index of its frontier.
    pub frontier: usize,
    pub config: A::Config,
    pub asked: Vec<StatRequest<A::Question>>,
    states: Vec<A>,
    heap_bytes: usize,
}

impl<A: StatAccumulator> CumulativeStat<A> {
    pub fn new(input: usize, keep: WordEncoding, frontier: usize, config: A::Config) -> Self {
        CumulativeStat {
            input,
            keep,
            frontier,
            config,
            asked: Vec::new(),
            states: Vec::new(),
            heap_bytes: 0,
        }
    }
}

impl<A: StatAccumulator> CumulativeState for CumulativeStat<A> {
    fn run(
        &mut self,
        batch: &WindowBatch<'_>,
        frontiers: &[CumulativeFrontier],
        series: usize,
        emit: &[bool],
        outputs: &mut [Vec<u64>],
    ) {
        self.grow(series);
        let keep = self.keep;
        let input = &batch.inputs[self.input];
        let has_times = !batch.times.ends.is_empty();
        for (at, (row, &(start, end))) in batch
            .rows
            .iter()
            .zip(&frontiers[self.frontier].spans)
            .enumerate()
        {
            let state = &mut self.states[row.series as usize];
            let bytes_before = state.heap_bytes();
            let times = if has_times {
                batch.times.slice(at, start, end)
            } else {
                &[]
            };
            let first = row.number + 1 - u64::from(start);
            for (index, &word) in input.slice(at, start, end).iter().enumerate() {
                let time = times.get(index).map_or(0, |&time| time as i64);
                let number = first + index as u64;
                state.accumulate(
                    &self.config,
                    ConsumedEntry {
                        word,
                        is_missing: keep.is_missing(word),
                        time,
                        number,
                    },
                );
            }
            self.heap_bytes = self.heap_bytes + state.heap_bytes() - bytes_before;
            let output = OutputRow { row, keep };
            for request in &self.asked {
                if emit[request.function] {
                    outputs[request.function].push(state.output_word(
                        &self.config,
                        request,
                        &output,
                    ));
                }
            }
        }
    }

    fn grow(&mut self, series: usize) {
        self.states.resize_with(series, A::default);
    }

    fn remove(&mut self, series: usize) {
        self.heap_bytes -= self.states.swap_remove(series).heap_bytes();
    }

    fn keep_only(&mut self, series: usize) {
        self.states.swap(0, series);
        self.states.truncate(1);
        self.heap_bytes = self.states.iter().map(A::heap_bytes).sum();
    }

    fn encode(&self, series: usize, out: &mut StateEncoder<'_>) -> Result<()> {
        self.states[series].encode(out)
    }

    fn decode(&mut self, input: &mut StateDecoder<'_>) -> Result<()> {
        let state = A::decode(&self.config, input)?;
        self.heap_bytes += state.heap_bytes();
        self.states.push(state);
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.states.capacity() * size_of::<A>() + self.heap_bytes
    }

    fn boxed(&self) -> Box<dyn CumulativeState> {
        Box::new(self.clone())
    }
}

/// The word of `value`, or the missing word if there are fewer than `min_periods` values.
#[inline]
pub(crate) fn if_enough(count: u64, min_periods: u64, value: f64) -> u64 {
    if count >= min_periods {
        value.to_bits()
    } else {
        crate::special_words::NO_NUMBER
    }
}
