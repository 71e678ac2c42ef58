//! Asking for quantiles, exactly or from a sample.

use forebay_analyze::{ExactQuantiles, QuantileRequest as Wanted, SampledQuantiles};
use forebay_model::Result;
use forebay_plan::AnalyzerRequest;

use super::bad_value;

/// A question for quantiles of one column.
pub(crate) fn ask_quantiles(
    column: &str,
    request: Wanted,
    epsilon: f64,
    exact: bool,
) -> Result<AnalyzerRequest> {
    if exact {
        return Ok(AnalyzerRequest::new(
            ExactQuantiles { ask: request },
            [column],
        ));
    }
    if !(epsilon > 0.0 && epsilon < 1.0) {
        return Err(
            bad_value(format!("`epsilon` {epsilon} is not between 0 and 1"))
                .hint("or set `exact: true`"),
        );
    }
    Ok(AnalyzerRequest::new(
        SampledQuantiles {
            epsilon,
            ask: request,
        },
        [column],
    ))
}
