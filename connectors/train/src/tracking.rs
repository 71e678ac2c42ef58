//! Tracking of trainings in a spec.

use forebay_model::{ConfigError, ConfigResult};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A server of MLflow to which `forebay run` reports a training. The model does not depend on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MlflowTracking {
    /// The address of the server, such as `http://mlflow:5000`. `--mlflow` comes before it, and `MLFLOW_TRACKING_URI` is
    /// taken where there is none. A token comes from `MLFLOW_TRACKING_TOKEN` alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// The experiment. `--mlflow-experiment` comes before it; `MLFLOW_EXPERIMENT_NAME`, else the name of the pipeline,
    /// where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experiment: Option<String>,
}

impl MlflowTracking {
    /// Refuses addresses that are no URLs or hold a secret: specs are stored and shown.
    pub(super) fn check(&self) -> ConfigResult<()> {
        let Some(uri) = &self.uri else { return Ok(()) };
        let after_scheme = ["http://", "https://"]
            .iter()
            .find_map(|scheme| uri.strip_prefix(scheme));
        let wrong = |message: &str| Err(ConfigError::at("mlflow.uri", message.to_owned()));
        match after_scheme {
            None => wrong("the address of MLflow is no http:// or https:// URL"),
            Some(after_scheme)
                if after_scheme
                    .split('/')
                    .next()
                    .is_some_and(|host| host.contains('@')) =>
            {
                wrong(
                    "a spec holds no password: set `MLFLOW_TRACKING_TOKEN` where the run is \
                     started",
                )
            }
            Some(_) => Ok(()),
        }
    }
}
