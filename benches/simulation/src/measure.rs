//! What merging costs on this machine.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, Float64Array};
use fastrand::Rng;
use forebay_analyze::{QuantileRequest, SampledQuantiles};
use forebay_model::{AnalyzerInput, AnyAnalyzer, MemoryScratch, ScratchSpace};

const STATES: usize = 32;
const ROWS: usize = 200_000;
/// The rank error for which the states are sized.
pub(crate) const EPSILON: f64 = 0.01;

/// Encoded samples of quantiles: their bytes, and how many bytes one thread decodes and merges in a second.
pub(crate) struct MergeCost {
    pub state_bytes: u64,
    pub bytes_per_second: f64,
}

/// Merges samples of 200,000 rows each.
pub(crate) fn merge_cost() -> Result<MergeCost, Box<dyn Error>> {
    let analyzer = SampledQuantiles {
        epsilon: EPSILON,
        ask: QuantileRequest::Buckets(10),
    };
    let analyzer: &dyn AnyAnalyzer = &analyzer;
    let scratch: Arc<dyn ScratchSpace> = Arc::new(MemoryScratch::default());
    let mut rng = Rng::with_seed(1);
    let mut encoded = Vec::new();
    for _ in 0..STATES {
        let values: ArrayRef =
            Arc::new((0..ROWS).map(|_| Some(rng.f64())).collect::<Float64Array>());
        let keys: Vec<u64> = (0..ROWS).map(|_| rng.u64(..)).collect();
        let mut state = analyzer.zero(&scratch)?;
        let columns = [values];
        analyzer.update(
            &mut state,
            &AnalyzerInput {
                columns: &columns,
                rows: ROWS,
                keys: Some(&keys),
            },
        )?;
        let mut bytes = Vec::new();
        analyzer.encode(&mut state, &mut bytes)?;
        encoded.push(bytes);
    }
    let begin = Instant::now();
    let mut merged = analyzer.zero(&scratch)?;
    for bytes in &encoded {
        let state = analyzer.decode(&mut bytes.as_slice(), &scratch)?;
        analyzer.merge(&mut merged, state)?;
    }
    let bytes: usize = encoded.iter().map(Vec::len).sum();
    let bytes_per_second = bytes as f64 / begin.elapsed().as_secs_f64();
    Ok(MergeCost {
        state_bytes: (bytes / STATES) as u64,
        bytes_per_second,
    })
}
