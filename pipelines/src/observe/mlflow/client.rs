//! The side of MLflow's REST API that tracks runs.

use std::collections::BTreeMap;

use forebay_model::{Fault, Result, codes};
use forebay_storage::WebClient;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::tracking_message::{NewTraining, TrackingMessage};

/// Maximum number of metrics per request, a limit of the server.
const METRICS_MAX: usize = 1000;

/// The tag by which a training is found that is taken up again.
const TRAINING_TAG: &str = "forebay.training";

/// Client of a tracking server.
pub(super) struct TrackingClient {
    web: WebClient,
    /// Experiments by API and name.
    experiments: BTreeMap<(String, String), String>,
    /// Runs by sink.
    runs: BTreeMap<String, ServerRun>,
}

/// A run on a server.
struct ServerRun {
    /// The API of the server.
    api: String,
    id: String,
}

fn pairs(of: &[(String, String)]) -> Vec<Value> {
    of.iter()
        .map(|(key, value)| json!({ "key": key, "value": value }))
        .collect()
}

fn text(answer: &Value, pointer: &str) -> Result<String> {
    let value = answer.pointer(pointer).and_then(Value::as_str);
    value
        .map(str::to_owned)
        .ok_or_else(|| Fault::new(codes::STORAGE, "MLflow's answer cannot be understood"))
}

impl TrackingClient {
    pub fn new(web: WebClient) -> TrackingClient {
        TrackingClient {
            web,
            experiments: BTreeMap::new(),
            runs: BTreeMap::new(),
        }
    }

    /// Sends messages to the server, in order; consecutive metrics share a request.
    pub fn handle(&mut self, messages: Vec<TrackingMessage>) -> Result<()> {
        let mut metrics: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for message in messages {
            match message {
                TrackingMessage::Metrics {
                    sink,
                    step,
                    millis,
                    values,
                } => {
                    // JSON has neither NaN nor infinities.
                    let values = values.into_iter().filter(|(_, value)| value.is_finite());
                    let metric = |(key, value)| {
                        json!({
                            "key": key,
                            "value": value,
                            "timestamp": millis,
                            "step": step,
                        })
                    };
                    metrics.entry(sink).or_default().extend(values.map(metric));
                }
                TrackingMessage::Begin(run) => {
                    self.log_metrics(std::mem::take(&mut metrics))?;
                    self.begin(run)?;
                }
                TrackingMessage::End {
                    status,
                    millis,
                    tags,
                } => {
                    self.log_metrics(std::mem::take(&mut metrics))?;
                    self.end(status, millis, &tags)?;
                }
            }
        }
        self.log_metrics(metrics)
    }

    fn begin(&mut self, run: NewTraining) -> Result<()> {
        let NewTraining {
            server,
            sink,
            training,
            experiment,
            millis,
            parameters,
            mut tags,
        } = run;
        let api = format!("{}/api/2.0/mlflow", server.trim_end_matches('/'));
        let experiment_id = self.experiment(&api, &experiment)?;
        if let Some(id) = self.interrupted_run(&api, &experiment_id, &training)? {
            self.post(
                &api,
                "runs/update",
                &json!({ "run_id": id, "status": "RUNNING" }),
            )?;
            self.runs.insert(sink, ServerRun { api, id });
            return Ok(());
        }
        tags.push((TRAINING_TAG.to_owned(), training));
        let create = json!({
            "experiment_id": experiment_id,
            "run_name": sink,
            "start_time": millis,
            "tags": pairs(&tags),
        });
        let id = text(
            &self.post(&api, "runs/create", &create)?,
            "/run/info/run_id",
        )?;
        self.post(
            &api,
            "runs/log-batch",
            &json!({ "run_id": id, "params": pairs(&parameters) }),
        )?;
        self.runs.insert(sink, ServerRun { api, id });
        Ok(())
    }

    fn log_metrics(&self, metrics: BTreeMap<String, Vec<Value>>) -> Result<()> {
        for (sink, metrics) in metrics {
            let Some(ServerRun { api, id }) = self.runs.get(&sink) else {
                continue;
            };
            for metrics in metrics.chunks(METRICS_MAX) {
                self.post(
                    api,
                    "runs/log-batch",
                    &json!({ "run_id": id, "metrics": metrics }),
                )?;
            }
        }
        Ok(())
    }

    fn end(
        &mut self,
        status: &str,
        millis: i64,
        tags: &[(String, Vec<(String, String)>)],
    ) -> Result<()> {
        for (sink, ServerRun { api, id }) in std::mem::take(&mut self.runs) {
            if let Some((_, tags)) = tags.iter().find(|(of, _)| *of == sink) {
                self.post(
                    &api,
                    "runs/log-batch",
                    &json!({ "run_id": id, "tags": pairs(tags) }),
                )?;
            }
            self.post(
                &api,
                "runs/update",
                &json!({ "run_id": id, "status": status, "end_time": millis }),
            )?;
        }
        Ok(())
    }

    /// Id of an experiment, which is created if it does not exist.
    fn experiment(&mut self, api: &str, name: &str) -> Result<String> {
        let key = (api.to_owned(), name.to_owned());
        if let Some(id) = self.experiments.get(&key) {
            return Ok(id.clone());
        }
        let encoded = utf8_percent_encode(name, NON_ALPHANUMERIC);
        let url = format!("{api}/experiments/get-by-name?experiment_name={encoded}");
        let answer = self.web.send("GET", &url, "application/json", Vec::new())?;
        let id = match answer.status {
            404 => text(
                &self.post(api, "experiments/create", &json!({ "name": name }))?,
                "/experiment_id",
            )?,
            200..=299 => text(&parse(&answer.body)?, "/experiment/experiment_id")?,
            status => {
                return Err(Fault::new(
                    codes::STORAGE,
                    format!("MLflow answered {status}"),
                ));
            }
        };
        self.experiments.insert(key, id.clone());
        Ok(id)
    }

    /// The run of a training that was cut off.
    fn interrupted_run(
        &self,
        api: &str,
        experiment: &str,
        training: &str,
    ) -> Result<Option<String>> {
        let filter =
            format!("tags.`{TRAINING_TAG}` = '{training}' AND attributes.status != 'FINISHED'");
        let search = json!({ "experiment_ids": [experiment], "filter": filter, "max_results": 1 });
        let answer = self.post(api, "runs/search", &search)?;
        Ok(answer
            .pointer("/runs/0/info/run_id")
            .and_then(Value::as_str)
            .map(str::to_owned))
    }

    fn post(&self, api: &str, endpoint: &str, body: &Value) -> Result<Value> {
        let url = format!("{api}/{endpoint}");
        parse(
            &self
                .web
                .post(&url, "application/json", body.to_string().into_bytes())?,
        )
    }
}

fn parse(body: &[u8]) -> Result<Value> {
    match body {
        [] => Ok(Value::Null),
        body => serde_json::from_slice(body).map_err(|error| {
            Fault::new(codes::STORAGE, "MLflow's answer cannot be understood").cause(error)
        }),
    }
}
