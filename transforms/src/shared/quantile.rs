//! Asking for quantiles, exactly or from a sample.

use forebay_analyze::{Ask as Wanted, ExactQuantiles, Quantiles};
use forebay_model::Result;
use forebay_plan::Ask;

use super::bad_value;

/// A question for quantiles of one column.
pub(crate) fn ask_quantiles(column: &str, wanted: Wanted, epsilon: f64, exact: bool) -> Result<Ask> {
    if exact {
        return Ok(Ask::new(ExactQuantiles { ask: wanted }, [column]));
    }
    if !(epsilon > 0.0 && epsilon < 1.0) {
        return Err(bad_value(format!("`epsilon` {epsilon} is not between 0 and 1")).hint("or set `exact: true`"));
    }
    Ok(Ask::new(Quantiles { epsilon, ask: wanted }, [column]))
}
