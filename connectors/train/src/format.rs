//! Format `train` of a spec; `model` selects the configuration.

use std::borrow::Cow;
use std::sync::Arc;

use forebay_contract::{ConnectorConfig, ConnectorFormat, Trainer, TrainerFormat, parse_config};
use forebay_model::{ConfigError, Result};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use super::boosting::BoostingConfig;
use super::config::TrainConfig;
use super::series::SeriesModelConfig;

/// Models of `BoostingConfig` and of `SeriesModelConfig`; all others are models of `TrainConfig`.
const BOOSTED: &str = "gbdt";
const OF_SERIES: [&str; 3] = ["theta", "ets", "ensemble"];
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
  net:
    from: features
    train: { path: out/net, model: mlp, label: qty, dense: [price], categorical: [item] }
```";

/// The schema of all configurations.
struct Training;

impl JsonSchema for Training {
    fn schema_name() -> Cow<'static, str> {
        "Training".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let configurations = [
            (NETWORK_FORMAT.schema)(generator),
            (BOOSTING_FORMAT.schema)(generator),
            (SERIES_FORMAT.schema)(generator),
        ];
        json_schema!({
            "description": DESCRIPTION,
            "anyOf": configurations,
            "discriminator": { "propertyName": "model" }
        })
    }
}

impl TrainerFormat for TrainConfig {}

impl TrainerFormat for BoostingConfig {}

impl TrainerFormat for SeriesModelConfig {}

const NETWORK_FORMAT: ConnectorFormat = ConnectorFormat::of::<TrainConfig>();
const BOOSTING_FORMAT: ConnectorFormat = ConnectorFormat::of::<BoostingConfig>();
const SERIES_FORMAT: ConnectorFormat = ConnectorFormat::of::<SeriesModelConfig>();

/// The trainer as a format of sinks.
pub const FORMAT: ConnectorFormat = ConnectorFormat {
    name: TrainConfig::NAME,
    schema: |generator| generator.subschema_for::<Training>(),
    canonical: |config| {
        if is_boosted(&config) {
            return (BOOSTING_FORMAT.canonical)(config);
        }
        if is_of_series(&config) {
            return (SERIES_FORMAT.canonical)(config);
        }
        match config
            .get("model")
            .and_then(Value::as_str)
            .filter(|model| !NETWORKS.contains(model))
        {
            Some(model) => {
                let networks = NETWORKS.join("`, `");
                let of_series = OF_SERIES.join("`, `");
                Err(ConfigError::at(
                    "model",
                    format!("`{model}` is not one of `{networks}`, `{BOOSTED}`, `{of_series}`"),
                ))
            }
            None => (NETWORK_FORMAT.canonical)(config),
        }
    },
};

fn is_boosted(config: &Value) -> bool {
    config.get("model").is_some_and(|model| model == BOOSTED)
}

fn is_of_series(config: &Value) -> bool {
    let model = config.get("model").and_then(Value::as_str);
    model.is_some_and(|model| OF_SERIES.contains(&model))
}

/// The trainer of a configuration.
pub fn trainer(config: &Value) -> Result<Arc<dyn Trainer>> {
    if is_boosted(config) {
        return Ok(Arc::new(parse_config::<BoostingConfig>(config)?));
    }
    if is_of_series(config) {
        return Ok(Arc::new(parse_config::<SeriesModelConfig>(config)?));
    }
    Ok(Arc::new(parse_config::<TrainConfig>(config)?))
}
