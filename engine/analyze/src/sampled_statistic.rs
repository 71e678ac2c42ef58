//! Statistics of the sample of `SampledQuantiles`.

use std::fmt::Debug;
use std::io::{Read, Write};
use std::sync::Arc;

use forebay_model::{Analyzer, AnalyzerInput, Finding, Result, ScratchSpace};
use serde_json::Value;

use crate::quantile_request::QuantileRequest;
use crate::sampled_quantiles::{SAMPLE_VERSION, SampledQuantiles, SampledQuantilesState};

/// A statistic of the values of one numeric column.
pub trait SampleStatistic: Debug + Send + Sync + 'static {
    /// The name of the analyzer, see [`Analyzer::kind`].
    fn kind(&self) -> &'static str;

    /// The configuration of the analyzer, see [`Analyzer::config`].
    fn config(&self) -> Value;

    /// Largest rank error of the sample, as a share of the rows.
    fn epsilon(&self) -> f64;

    /// Computes the result from values in ascending order, infinities among them.
    fn finding(&self, values: Vec<f64>) -> Result<Finding>;
}

/// Analyzer that computes a statistic from the sample of [`SampledQuantiles`].
#[derive(Debug, Clone, PartialEq)]
pub struct SampledStatistic<S>(pub S);

impl<S: SampleStatistic> SampledStatistic<S> {
    fn sample(&self) -> SampledQuantiles {
        SampledQuantiles {
            epsilon: self.0.epsilon(),
            // Quantiles are not computed: the request has no effect on the sample.
            ask: QuantileRequest::Buckets(2),
        }
    }
}

impl<S: SampleStatistic> Analyzer for SampledStatistic<S> {
    type State = SampledQuantilesState;

    fn kind(&self) -> &'static str {
        self.0.kind()
    }

    fn version(&self) -> u32 {
        SAMPLE_VERSION
    }

    fn config(&self) -> Value {
        self.0.config()
    }

    fn needs_row_keys(&self) -> bool {
        true
    }

    fn zero(&self, scratch: &Arc<dyn ScratchSpace>) -> Result<SampledQuantilesState> {
        Analyzer::zero(&self.sample(), scratch)
    }

    fn update(&self, state: &mut SampledQuantilesState, input: &AnalyzerInput<'_>) -> Result<()> {
        Analyzer::update(&self.sample(), state, input)
    }

    fn merge(
        &self,
        state: &mut SampledQuantilesState,
        later_state: SampledQuantilesState,
    ) -> Result<()> {
        Analyzer::merge(&self.sample(), state, later_state)
    }

    fn encode(&self, state: &mut SampledQuantilesState, out: &mut dyn Write) -> Result<()> {
        Analyzer::encode(&self.sample(), state, out)
    }

    fn decode(
        &self,
        input: &mut dyn Read,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<SampledQuantilesState> {
        Analyzer::decode(&self.sample(), input, scratch)
    }

    fn condense(&self, state: &mut SampledQuantilesState) -> Result<()> {
        state.condense_to_values();
        Ok(())
    }

    fn finish(&self, state: SampledQuantilesState) -> Result<Finding> {
        self.0.finding(state.sorted_values()?)
    }

    fn size_bytes(&self, state: &SampledQuantilesState) -> usize {
        Analyzer::size_bytes(&self.sample(), state)
    }

    fn size_bytes_max(&self, budget_bytes: usize) -> usize {
        Analyzer::size_bytes_max(&self.sample(), budget_bytes)
    }
}
