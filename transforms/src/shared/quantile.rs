//! Asking for quantiles, exactly or from a sample.

use arrow::datatypes::Field;
use forebay_analyze::{
    ExactQuantiles, ExactWeightedQuantiles, QuantileRequest as Wanted, SampledQuantiles,
    SampledWeightedQuantiles,
};
use forebay_model::{Fault, Result, codes, type_words};
use forebay_plan::{AnalyzerRequest, BindScope};

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
    check_epsilon(epsilon)?;
    Ok(AnalyzerRequest::new(
        SampledQuantiles {
            epsilon,
            ask: request,
        },
        [column],
    ))
}

/// A question for quantiles of one column, of rows that count by a column of weights where there is one.
pub(crate) fn ask_weighted_quantiles(
    column: &str,
    weight: Option<&str>,
    request: Wanted,
    epsilon: f64,
    exact: bool,
) -> Result<AnalyzerRequest> {
    let Some(weight) = weight else {
        return ask_quantiles(column, request, epsilon, exact);
    };
    let inputs = [column, weight];
    let weight = weight.to_owned();
    if exact {
        let quantiles = ExactWeightedQuantiles {
            ask: request,
            weight,
        };
        return Ok(AnalyzerRequest::new(quantiles, inputs));
    }
    check_epsilon(epsilon)?;
    let quantiles = SampledWeightedQuantiles {
        epsilon,
        ask: request,
        weight,
    };
    Ok(AnalyzerRequest::new(quantiles, inputs))
}

fn check_epsilon(epsilon: f64) -> Result<()> {
    if epsilon > 0.0 && epsilon < 1.0 {
        return Ok(());
    }
    let fault = bad_value(format!("`epsilon` {epsilon} is not between 0 and 1"));
    Err(fault.hint("or set `exact: true`"))
}

/// Refuses a column of weights that holds no numbers, and one that is among the columns of its step: the step would replace
/// the weights of the columns behind it.
pub(crate) fn check_weight(
    scope: &BindScope<'_>,
    weight: Option<&str>,
    fields: &[&Field],
) -> Result<()> {
    let Some(weight) = weight else {
        return Ok(());
    };
    let data_type = scope.field(weight)?.data_type();
    if !data_type.is_numeric() {
        let message = format!("`{weight}` is {}, not a number", type_words(data_type));
        return Err(Fault::new(codes::COLUMN_TYPE, message).column(weight));
    }
    if fields.iter().any(|field| field.name() == weight) {
        let fault = bad_value("`columns` hold the weight").column(weight);
        return Err(fault.hint("leave it out of `columns`"));
    }
    Ok(())
}
