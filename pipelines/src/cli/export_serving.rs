//! `forebay export --for feast | kserve`: descriptions of a server for the systems that call it.

use std::fmt::Write as _;
use std::path::Path;

use arrow::datatypes::DataType;
use clap::ValueEnum;
use forebay_model::{Fault, Result, codes, logical_type};
use forebay_storage::StorageClient;

use crate::serve::{FACTS_VIEW, ServedModel, described_model};

/// System that a server is described for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ServingSystem {
    /// A directory with `feature_store.yaml` and `features.py`.
    Feast,
    /// A file with an `InferenceService`.
    Kserve,
}

/// A server to describe.
pub(super) struct DescribedServer<'a> {
    /// An artifact, a model, or the name of a pipeline.
    pub path: &'a str,
    /// The state directory.
    pub state: &'a str,
    /// Answers series with forecasts of their whole horizon.
    pub forecast: bool,
}

/// Writes the description of what would be served. Returns its bytes.
pub(super) fn export_serving(
    io: &StorageClient,
    server: &DescribedServer<'_>,
    to: &str,
    system: ServingSystem,
) -> Result<u64> {
    let model = described_model(io, server.path, server.state, server.forecast)?;
    match system {
        ServingSystem::Kserve => {
            let text =
                inference_service(&model, &served_words(server, model.reads_state_of_runs()));
            write_new(Path::new(to), &text)?;
            Ok(text.len() as u64)
        }
        ServingSystem::Feast => {
            let directory = Path::new(to);
            std::fs::create_dir_all(directory)
                .map_err(|error| Fault::disk("the directory cannot be made", error).file(to))?;
            let store = feature_store(&model);
            let features = feature_views(&model);
            write_new(&directory.join("features.py"), &features)?;
            write_new(&directory.join("feature_store.yaml"), &store)?;
            Ok((store.len() + features.len()) as u64)
        }
    }
}

fn write_new(path: &Path, text: &str) -> Result<()> {
    use std::io::Write;
    let name = path.display().to_string();
    let mut file = std::fs::File::create_new(path).map_err(|error| {
        if error.kind() == std::io::ErrorKind::AlreadyExists {
            let fault = Fault::new(codes::OUTPUT_CLASH, "the file is there already");
            return fault.file(&name).hint("remove it, or name another one");
        }
        Fault::disk("the description cannot be written", error).file(&name)
    })?;
    file.write_all(text.as_bytes())
        .map_err(|error| Fault::disk("the description cannot be written", error).file(&name))
}

/// Columns that a request gives: keys where the state has the rest, else all inputs.
fn entity_columns(model: &ServedModel) -> Vec<String> {
    if model.state().is_some() && !model.keys.is_empty() {
        return model.keys.clone();
    }
    let inputs = model.inputs().fields().iter();
    let names = inputs.map(|field| field.name().clone());
    names.filter(|name| !model.is_optional(name)).collect()
}

/// A text in YAML and Python: a string of JSON is one of both.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Name of an object in Kubernetes: lower case, digits and dashes.
fn object_name(name: &str) -> String {
    let letters = name.chars().map(|letter| {
        let letter = letter.to_ascii_lowercase();
        if letter.is_ascii_alphanumeric() {
            letter
        } else {
            '-'
        }
    });
    let name: String = letters.collect();
    name.trim_matches('-').to_owned()
}

/// Words of a command line that name what is served. The state directory has the artifacts of pipelines that are named,
/// and the serving states of models.
fn served_words(server: &DescribedServer<'_>, reads_state_of_runs: bool) -> String {
    let mut words = quoted(server.path);
    let is_name = !server.path.contains(['/', '\\']);
    if is_name || reads_state_of_runs {
        words += &format!(", {}", quoted(&format!("--state={}", server.state)));
    }
    if server.forecast {
        words += &format!(", {}", quoted("--forecast"));
    }
    words
}

fn inference_service(model: &ServedModel, served: &str) -> String {
    let name = quoted(&object_name(&model.pipeline));
    let model_name = quoted(&format!("--name={}", model.pipeline));
    format!(
        "\
# A server of `{pipeline}`, written by `forebay export --for kserve`. The token:
#   kubectl create secret generic forebay-token \\
#     --from-literal=token=\"$(head -c 24 /dev/urandom | base64)\"
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: {name}
spec:
  predictor:
    containers:
      - name: kserve-container
        image: forebay:{version}
        args: [forebay, serve, {served}, {model_name}, \"--listen=0.0.0.0:8080\", \"--memory=1GiB\"]
        ports:
          - {{ containerPort: 8080, protocol: TCP }}
        env:
          - name: FOREBAY_TOKEN
            valueFrom:
              secretKeyRef: {{ name: forebay-token, key: token }}
        readinessProbe:
          httpGet: {{ path: /v2/health/ready, port: 8080 }}
          periodSeconds: 2
        livenessProbe:
          httpGet: {{ path: /v2/health/live, port: 8080 }}
          periodSeconds: 10
        resources:
          requests: {{ cpu: \"1\", memory: 1536Mi }}
          limits: {{ memory: 1536Mi }}
",
        pipeline = model.pipeline,
        version = env!("CARGO_PKG_VERSION"),
    )
}

fn feature_store(model: &ServedModel) -> String {
    format!(
        "\
# A client of `forebay serve`, written by `forebay export --for feast`.
project: {project}
provider: local
registry: {{ registry_type: file, path: registry.db }}
online_store: {{ type: remote, path: \"http://127.0.0.1:8080\" }}
entity_key_serialization_version: 3
",
        project = quoted(&object_name(&model.pipeline).replace('-', "_")),
    )
}

/// The columns of facts besides keys and the time, which Feast's rows have anyway. `None` where facts change no answer.
fn fact_fields(model: &ServedModel, entities: &[String], time: &str) -> Option<String> {
    let columns = model.fact_columns()?;
    let mut text = String::new();
    for field in columns.fields() {
        let name = field.name();
        if name != time && !entities.contains(name) {
            text += &field_line(name, field.data_type());
        }
    }
    Some(text)
}

/// A column of a view.
fn field_line(name: &str, data_type: &DataType) -> String {
    let dtype = feast_type(data_type);
    format!("        Field(name={}, dtype={dtype}),\n", quoted(name))
}

fn feature_views(model: &ServedModel) -> String {
    let entities = entity_columns(model);
    let view = quoted(&model.pipeline);
    let time = model
        .time
        .clone()
        .unwrap_or_else(|| "event_timestamp".to_owned());
    let mut text = format!(
        "\
\"\"\"Features of `{pipeline}` (version {version}), written by `forebay export --for feast`.\"\"\"

from datetime import timedelta

from feast import Entity, FeatureView, Field, FileSource, PushSource, ValueType
from feast.types import Array, Bool, Float32, Float64, Int32, Int64, String

# The history that the pipeline reads. Only `feast materialize` would read the path.
history = FileSource(name={history}, path=\"history.parquet\", timestamp_field={time})

entities = [
",
        pipeline = model.pipeline,
        version = model.version,
        history = quoted(&format!("{}_history", model.pipeline)),
        time = quoted(&time),
    );
    for name in &entities {
        let value_type = model
            .source_field(name)
            .map_or("STRING", |field| value_type(field.data_type()));
        // Writing to a text cannot fail.
        let _ = writeln!(
            text,
            "    Entity(name={name}, join_keys=[{name}], value_type=ValueType.{value_type}),",
            name = quoted(name)
        );
    }
    let _ = write!(
        text,
        "\
]

features = FeatureView(
    name={view},
    entities=entities,
    ttl=timedelta(0),
    online=True,
    source=PushSource(name={view}, batch_source=history),
    schema=[
"
    );
    // Feast reads the history for the types of entities that the schema lacks.
    let mut entity_fields = String::new();
    for name in &entities {
        let field = model.source_field(name);
        let data_type = field.map_or(DataType::Utf8, |field| field.data_type().clone());
        entity_fields += &field_line(name, &data_type);
    }
    text += &entity_fields;
    for field in model.outputs().fields() {
        // Columns that answers only repeat, such as a label, are no features.
        let is_time = *field.name() == time && !model.answers_series();
        let is_repeated = model.is_repeated(field.name()) || is_time;
        if is_repeated || entities.contains(field.name()) {
            continue;
        }
        text += &field_line(field.name(), field.data_type());
    }
    text.push_str("    ],\n)\n");
    if let Some(fact_fields) = fact_fields(model, &entities, &time) {
        let view = quoted(&format!("{}{FACTS_VIEW}", model.pipeline));
        let _ = write!(
            text,
            "
# New rows: `store.push({view}, frame)` makes them part of later answers.
facts = FeatureView(
    name={view},
    entities=entities,
    ttl=timedelta(0),
    online=True,
    source=PushSource(name={view}, batch_source=history),
    schema=[
{entity_fields}{fact_fields}    ],
)
"
        );
    }
    text
}

fn value_type(data_type: &DataType) -> &'static str {
    match logical_type(data_type) {
        DataType::Boolean => "BOOL",
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::UInt8 | DataType::UInt16 => {
            "INT32"
        }
        integer if integer.is_integer() => "INT64",
        DataType::Float32 => "FLOAT",
        number if number.is_floating() => "DOUBLE",
        _ => "STRING",
    }
}

/// The type of a feature. Lists of one length, such as the steps of a forecast, are arrays; other lists are answered as
/// texts.
fn feast_type(data_type: &DataType) -> String {
    if let DataType::FixedSizeList(item, _) = data_type {
        return format!("Array({})", feast_type(item.data_type()));
    }
    let name = match value_type(data_type) {
        "BOOL" => "Bool",
        "INT32" => "Int32",
        "INT64" => "Int64",
        "FLOAT" => "Float32",
        "DOUBLE" => "Float64",
        _ => "String",
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{Field, TimeUnit};

    use super::*;

    #[test]
    fn names_of_pipelines_and_models_with_a_state_are_served_from_their_state() {
        let cases = [
            (
                "demand",
                false,
                false,
                "\"demand\", \"--state=s3://lake/state\"",
            ),
            ("s3://lake/net", false, false, "\"s3://lake/net\""),
            ("out/net", false, false, "\"out/net\""),
            (
                "out/net",
                true,
                true,
                "\"out/net\", \"--state=s3://lake/state\", \"--forecast\"",
            ),
        ];
        for (path, reads_state_of_runs, forecast, expected) in cases {
            let server = DescribedServer {
                path,
                state: "s3://lake/state",
                forecast,
            };
            assert_eq!(served_words(&server, reads_state_of_runs), expected);
        }
    }

    #[test]
    fn steps_of_forecasts_are_arrays_for_feast() {
        let list = |data_type: DataType| {
            let item = Arc::new(Field::new("item", data_type, true));
            DataType::FixedSizeList(item, 28)
        };
        let cases = [
            (list(DataType::Float32), "Array(Float32)"),
            (list(DataType::UInt32), "Array(Int64)"),
            (
                list(DataType::Timestamp(TimeUnit::Second, None)),
                "Array(String)",
            ),
            (DataType::Float32, "Float32"),
            (DataType::Date32, "String"),
        ];
        for (data_type, expected) in cases {
            assert_eq!(feast_type(&data_type), expected);
        }
    }
}
