//! The cadence of a training.

use forebay_contract::parse_refit;
use forebay_model::{ConfigError, ConfigResult, RefitPolicy, Result};

/// Reads the policy of a training; `None` trains in each run.
pub(super) fn training_refit(refit: Option<&str>) -> Result<Option<RefitPolicy>> {
    Ok(refit.map(parse_refit).transpose()?.flatten())
}

/// Refuses policies that trainings cannot follow.
pub(super) fn check_refit(refit: Option<&str>) -> ConfigResult<()> {
    let policy = training_refit(refit)
        .map_err(|fault| ConfigError::at("refit", fault.message().to_owned()))?;
    if policy.is_some_and(|policy| policy.drift_above.is_some()) {
        let message = "`drift above` measures the statistics of steps, and a model has none: \
                       write a length such as 7d";
        return Err(ConfigError::at("refit", message));
    }
    Ok(())
}
