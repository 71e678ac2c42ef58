//! The format `train` of a spec: `model` says which configuration it is.

use std::borrow::Cow;
use std::sync::Arc;

use forebay_model::{ConfigError, Result};
use forebay_run::Trainer;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use super::boosting::BoostingConfig;
use super::config::TrainConfig;
use crate::format::{ConnectorFormat, format, parse_config};

/// The key in a spec.
const NAME: &str = "train";

/// The models of `BoostingConfig`; those of `TrainConfig` are all others.
const BOOSTED: &str = "gbdt";
const NETWORKS: [&str; 3] = ["linear", "logistic", "mlp"];

/// The page of `train` in the reference.
const DESCRIPTION: &str = "\
Trains a model on the rows of a step. `model` says which, and so which fields there are.

```yaml
steps:
  features:
    from: sales
    do:
      - filter: \"qty IS NOT NULL\"
      - impute: { columns: [price], with: median }
      - standardize: { columns: [price] }
      - vocabulary: { columns: [item], min_count: 2, oov_buckets: 1 }
sinks:
  net: { from: features, train: { path: out/net, model: mlp, label: qty, dense: [price], categorical: [item] } }
```";

/// The schema of both configurations.
struct Training;

impl JsonSchema for Training {
    fn schema_name() -> Cow<'static, str> {
        "Training".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let configurations = [
            (NETWORK_FORMAT.schema)(generator),
            (BOOSTING_FORMAT.schema)(generator),
        ];
        json_schema!({
            "description": DESCRIPTION,
            "anyOf": configurations,
            "discriminator": { "propertyName": "model" }
        })
    }
}

const NETWORK_FORMAT: ConnectorFormat = format::<TrainConfig>(NAME);
const BOOSTING_FORMAT: ConnectorFormat = format::<BoostingConfig>(NAME);

/// What sinks can train.
pub(crate) const FORMAT: ConnectorFormat = ConnectorFormat {
    name: NAME,
    schema: |generator| generator.subschema_for::<Training>(),
    canonical: |config| {
        if is_boosted(&config) {
            return (BOOSTING_FORMAT.canonical)(config);
        }
        match config
            .get("model")
            .and_then(Value::as_str)
            .filter(|model| !NETWORKS.contains(model))
        {
            Some(model) => {
                let known = NETWORKS.join("`, `");
                Err(ConfigError::at(
                    "model",
                    format!("`{model}` is not one of `{known}`, `{BOOSTED}`"),
                ))
            }
            None => (NETWORK_FORMAT.canonical)(config),
        }
    },
};

fn is_boosted(config: &Value) -> bool {
    config.get("model").is_some_and(|model| model == BOOSTED)
}

/// The trainer of a configuration.
pub(crate) fn trainer(format: &str, config: &Value) -> Result<Arc<dyn Trainer>> {
    if is_boosted(config) {
        return Ok(Arc::new(parse_config::<BoostingConfig>(format, config)?));
    }
    Ok(Arc::new(parse_config::<TrainConfig>(format, config)?))
}
