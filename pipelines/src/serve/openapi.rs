//! The OpenAPI document of a server, with the columns of the version that it serves.

use arrow::datatypes::{DataType, Schema};
use forebay_model::logical_type;
use serde_json::{Map, Value, json};

use super::formats::ARROW_STREAM;
use super::model::ServedModel;

/// The document. `needs_token` is true where clients have to show one.
pub(super) fn document(name: &str, model: &ServedModel, needs_token: bool) -> Value {
    let mut paths = Paths::default();
    add_tensor_paths(&mut paths, name);
    add_row_paths(&mut paths);
    add_feast_paths(&mut paths);
    add_server_paths(&mut paths);
    let security = if needs_token {
        json!([{ "token": [] }])
    } else {
        json!([])
    };
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": name,
            "version": model.version,
            "description": "Features, predictions and forecasts, served by Forebay",
        },
        "security": security,
        "paths": paths.0,
        "components": {
            "schemas": {
                "Row": row_schema(model),
                "Fact": fact_schema(model),
                "Answer": answer_schema(model),
                "InferRequest": infer_schema(),
                "InferResponse": infer_answer_schema(),
                "OnlineFeatures": online_features_schema(),
                "Error": { "type": "object", "properties": { "error": { "type": "string" } } },
            },
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

/// Paths with their operations.
#[derive(Default)]
struct Paths(Map<String, Value>);

impl Paths {
    fn get(&mut self, path: &str, summary: &str, answer: &Value) {
        let operation = json!({
            "summary": summary,
            "responses": {
                "200": { "description": "the answer", "content": answer },
                "401": refusal("the token is missing or wrong"),
                "404": refusal("the server has no such thing"),
            },
        });
        self.add(path, "get", operation);
    }

    /// A path that tells whether the server takes requests, and needs no token.
    fn probe(&mut self, path: &str, summary: &str) {
        let operation = json!({
            "summary": summary,
            "security": [],
            "responses": {
                "200": { "description": "yes" },
                "503": { "description": "no: the server ends" },
            },
        });
        self.add(path, "get", operation);
    }

    fn post(&mut self, path: &str, operation: Value) {
        self.add(path, "post", operation);
    }

    fn add(&mut self, path: &str, method: &str, mut operation: Value) {
        let parameters = path_parameters(path);
        if !parameters.is_empty() {
            operation["parameters"] = Value::from(parameters);
        }
        self.0.insert(path.to_owned(), json!({ method: operation }));
    }
}

/// The parts of a path in braces, as parameters.
fn path_parameters(path: &str) -> Vec<Value> {
    let mut parameters = Vec::new();
    for part in path.split('/') {
        let name = part
            .strip_prefix('{')
            .and_then(|name| name.strip_suffix('}'));
        if let Some(name) = name {
            let schema = json!({ "type": "string" });
            parameters.push(json!({
                "name": name,
                "in": "path",
                "required": true,
                "schema": schema,
            }));
        }
    }
    parameters
}

fn json_of(schema: &Value) -> Value {
    json!({ "application/json": { "schema": schema } })
}

fn any_object() -> Value {
    json_of(&json!({ "type": "object" }))
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

fn add_tensor_paths(paths: &mut Paths, name: &str) {
    paths.probe("/v2/health/live", "The process answers.");
    paths.probe("/v2/health/ready", "The server takes requests.");
    paths.get(
        "/v2",
        "Name, version and extensions of the server (Open Inference Protocol).",
        &any_object(),
    );
    let model = format!("/v2/models/{name}");
    for path in [model.clone(), format!("{model}/versions/{{version}}")] {
        paths.get(
            &path,
            "Names, types and shapes of the tensors (Open Inference Protocol).",
            &any_object(),
        );
        paths.get(
            &format!("{path}/ready"),
            "True where the version is loaded and the server takes requests.",
            &any_object(),
        );
        let tensors = json!({
            "application/json": { "schema": reference("InferRequest") },
            "application/octet-stream": {},
            ARROW_STREAM: {},
        });
        let answers = json!({
            "application/json": { "schema": reference("InferResponse") },
            "application/octet-stream": {},
            ARROW_STREAM: {},
        });
        let summary = "Answers tensors (Open Inference Protocol, with the extension for binary \
                       tensors), or an Arrow stream with one.";
        paths.post(
            &format!("{path}/infer"),
            operation(summary, &tensors, &answers),
        );
    }
}

fn add_row_paths(paths: &mut Paths) {
    let answers = json!({
        "application/json": { "schema": answered_rows("rows") },
        ARROW_STREAM: {},
    });
    let summary = "Answers rows of JSON, or an Arrow stream with one.";
    paths.post("/apply", operation(summary, &rows_content("Row"), &answers));
    let count = json!({ "type": "object", "properties": { "rows": { "type": "integer" } } });
    let summary = "Adds facts, which later answers see once they are on the disk.";
    paths.post(
        "/rows",
        operation(summary, &rows_content("Fact"), &json_of(&count)),
    );
    let forms = json!({
        "application/json": { "schema": scoring_schema() },
        "text/csv": {},
        "application/vnd.apache.parquet": {},
        ARROW_STREAM: {},
    });
    let answers = json!({
        "application/json": { "schema": answered_rows("predictions") },
        ARROW_STREAM: {},
    });
    let mut invocations = operation(
        "Answers rows in the forms of MLflow and SageMaker.",
        &forms,
        &answers,
    );
    invocations["responses"]["415"] = refusal("the content type is not supported");
    paths.post("/invocations", invocations);
}

fn add_feast_paths(paths: &mut Paths) {
    let entities = json!({
        "type": "object",
        "required": ["entities"],
        "properties": {
            "entities": { "type": "object", "additionalProperties": { "type": "array" } },
            "features": { "type": "array", "items": { "type": "string" } },
            "feature_service": { "type": "string" },
            "full_feature_names": { "type": "boolean" },
        },
    });
    let answers = json_of(&reference("OnlineFeatures"));
    let summary = "Answers features of entities, as Feast's feature server does.";
    let online = feast_operation(summary, &json_of(&entities), &answers);
    paths.post("/get-online-features", online);
    let facts = json!({ "type": "object", "additionalProperties": { "type": "array" } });
    let pushed = json!({
        "type": "object",
        "required": ["push_source_name", "df"],
        "properties": {
            "push_source_name": { "type": "string" },
            "df": facts,
            "to": { "type": "string", "enum": ["online", "offline", "online_and_offline"] },
        },
    });
    let summary = "Adds facts, as Feast's feature server does.";
    let push = feast_operation(summary, &json_of(&pushed), &json!({}));
    paths.post("/push", push);
    let written = json!({
        "type": "object",
        "required": ["feature_view_name", "df"],
        "properties": { "feature_view_name": { "type": "string" }, "df": facts },
    });
    let write = feast_operation(summary, &json_of(&written), &json!({}));
    paths.post("/write-to-online-store", write);
}

fn add_server_paths(paths: &mut Paths) {
    paths.probe("/ping", "The server takes requests (SageMaker).");
    paths.probe("/health", "The server takes requests (MLflow, Feast).");
    let text = json!({ "text/plain": { "schema": { "type": "string" } } });
    paths.get("/", "Name of the model, and where to go on.", &text);
    paths.get("/version", "Version of Forebay (MLflow).", &text);
    paths.get(
        "/versions",
        "Loaded versions, with their columns and state.",
        &any_object(),
    );
    let version = json!({ "type": "object", "properties": { "version": { "type": "string" } } });
    paths.post(
        "/versions/rollback",
        json!({
            "summary": "Switches back to the version before.",
            "responses": responses(&json_of(&version)),
        }),
    );
    paths.get(
        "/shadow",
        "Differences between the answers of two versions.",
        &any_object(),
    );
    paths.get(
        "/metrics",
        "Metrics in the text format of Prometheus.",
        &text,
    );
    paths.get("/openapi.json", "This document.", &any_object());
}

fn operation(summary: &str, request: &Value, answer: &Value) -> Value {
    json!({
        "summary": summary,
        "requestBody": { "required": true, "content": request },
        "responses": responses(answer),
    })
}

/// An operation whose refusals are a JSON text that holds an object, as Feast's SDK reads them.
fn feast_operation(summary: &str, request: &Value, answer: &Value) -> Value {
    let mut operation = operation(summary, request, answer);
    let text = json_of(&json!({ "type": "string", "contentMediaType": "application/json" }));
    for status in ["400", "404", "422"] {
        operation["responses"][status] =
            json!({ "description": "the request has to be changed", "content": text });
    }
    operation
}

fn responses(answer: &Value) -> Value {
    json!({
        "200": { "description": "the answer", "content": answer },
        "400": refusal("the request has to be changed"),
        "401": refusal("the token is missing or wrong"),
        "403": refusal("the server may not read or write a file"),
        "404": refusal("the server has no such model or version"),
        "413": refusal("the request has too many bytes or rows"),
        "429": refusal("the server is busy: try again after `Retry-After` seconds"),
        "504": refusal("no answer within the time limit"),
    })
}

fn refusal(description: &str) -> Value {
    json!({ "description": description, "content": json_of(&reference("Error")) })
}

/// The body of MLflow's scoring server: exactly one of its fields.
fn scoring_schema() -> Value {
    let rows = json!({ "type": "array", "items": { "$ref": "#/components/schemas/Row" } });
    let frame = json!({
        "type": "object",
        "required": ["columns", "data"],
        "properties": {
            "columns": { "type": "array", "items": { "type": "string" } },
            "data": { "type": "array", "items": { "type": "array" } },
        },
    });
    json!({
        "type": "object",
        "properties": {
            "dataframe_split": frame,
            "dataframe_records": rows,
            "instances": {},
            "inputs": {},
        },
    })
}

/// Rows with the columns of a schema.
fn rows_content(schema: &str) -> Value {
    let rows = json!({ "type": "array", "items": reference(schema) });
    json!({
        "application/json": { "schema": { "type": "object", "properties": { "rows": rows } } },
        ARROW_STREAM: {},
    })
}

fn answered_rows(field: &str) -> Value {
    let rows = json!({ "type": "array", "items": { "$ref": "#/components/schemas/Answer" } });
    json!({ "type": "object", "properties": { field: rows } })
}

fn row_schema(model: &ServedModel) -> Value {
    let mut required = Vec::new();
    for field in model.inputs().fields() {
        if !model.is_optional(field.name()) {
            required.push(field.name());
        }
    }
    json!({
        "type": "object",
        "required": required,
        "properties": value_schemas(model.inputs()),
    })
}

/// Schema of new facts. A version without a state takes none.
fn fact_schema(model: &ServedModel) -> Value {
    let Some(columns) = model.fact_columns() else {
        return json!({ "type": "object" });
    };
    let names: Vec<&String> = columns.fields().iter().map(|field| field.name()).collect();
    json!({
        "type": "object",
        "required": names,
        "properties": value_schemas(columns),
    })
}

fn answer_schema(model: &ServedModel) -> Value {
    json!({ "type": "object", "properties": value_schemas(model.outputs()) })
}

fn value_schemas(schema: &Schema) -> Map<String, Value> {
    let mut properties = Map::new();
    for field in schema.fields() {
        properties.insert(field.name().clone(), value_schema(field.data_type()));
    }
    properties
}

/// Schema of a value; each may be null.
fn value_schema(data_type: &DataType) -> Value {
    match logical_type(data_type) {
        DataType::Boolean => json!({ "type": ["boolean", "null"] }),
        integer if integer.is_integer() => json!({ "type": ["integer", "null"] }),
        number if number.is_floating() => json!({ "type": ["number", "null"] }),
        DataType::Date32 => json!({ "type": ["string", "null"], "format": "date" }),
        DataType::Timestamp(..) => json!({ "type": ["string", "null"], "format": "date-time" }),
        DataType::List(item) | DataType::LargeList(item) => {
            json!({ "type": ["array", "null"], "items": value_schema(item.data_type()) })
        }
        DataType::FixedSizeList(item, length) => json!({
            "type": ["array", "null"],
            "items": value_schema(item.data_type()),
            "minItems": length,
            "maxItems": length,
        }),
        _ => json!({ "type": ["string", "null"] }),
    }
}

fn tensor_schema() -> Value {
    json!({
        "type": "object",
        "required": ["name", "datatype", "shape"],
        "properties": {
            "name": { "type": "string" },
            "datatype": { "type": "string" },
            "shape": { "type": "array", "items": { "type": "integer" } },
            "parameters": { "type": "object" },
            "data": { "type": "array" },
        },
    })
}

fn infer_schema() -> Value {
    let output = json!({
        "type": "object",
        "required": ["name"],
        "properties": { "name": { "type": "string" }, "parameters": { "type": "object" } },
    });
    json!({
        "type": "object",
        "required": ["inputs"],
        "properties": {
            "id": { "type": "string" },
            "parameters": { "type": "object" },
            "inputs": { "type": "array", "items": tensor_schema() },
            "outputs": { "type": "array", "items": output },
        },
    })
}

fn infer_answer_schema() -> Value {
    json!({
        "type": "object",
        "required": ["model_name", "model_version", "outputs"],
        "properties": {
            "model_name": { "type": "string" },
            "model_version": { "type": "string" },
            "id": { "type": "string" },
            "outputs": { "type": "array", "items": tensor_schema() },
        },
    })
}

fn online_features_schema() -> Value {
    let texts = json!({ "type": "array", "items": { "type": "string" } });
    let result = json!({
        "type": "object",
        "properties": {
            "values": { "type": "array" },
            "statuses": texts,
            "event_timestamps": texts,
        },
    });
    json!({
        "type": "object",
        "properties": {
            "metadata": { "type": "object", "properties": { "feature_names": texts } },
            "results": { "type": "array", "items": result },
        },
    })
}
