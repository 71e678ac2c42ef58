//! Trained models, and their forecasts of series.

use forebay::model::{Fault, codes};
use forebay::run::StorageClient;
use forebay::settings::Settings;
use forebay::{Forebay, ForecastForm, ServingModel, TrainedModel};
use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::json;

use crate::arrow_c::{Table, whole_batch};
use crate::fault::IntoPyResult;
use crate::session::request;

/// A model of rows of the future, ready to forecast series.
#[pyclass(frozen, module = "forebay._forebay")]
pub(crate) struct Model {
    model: ServingModel,
    training: String,
}

/// A model to load, and the form of its forecasts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelRequest {
    path: String,
    /// The state directory; that of the settings when left out.
    state: Option<String>,
    name: Option<String>,
    columns: Vec<String>,
    minimum: Option<f64>,
    maximum: Option<f64>,
    /// A directory in which processes share the states of series.
    states: Option<String>,
}

impl ModelRequest {
    fn load(self) -> Result<Model, Fault> {
        let io = StorageClient::new()?;
        let state = Settings::load()?.state(self.state.as_deref()).value;
        let trained = TrainedModel::load(&io, &self.path)?.with_state(&io, &state)?;
        if trained.artifact.serving.is_none() {
            return Err(without_state(&trained.card().origin.from, &state));
        }
        let form = ForecastForm {
            name: self.name,
            columns: self.columns,
            bounds: (self.minimum, self.maximum),
        };
        let model = trained.forecasts(&Forebay::new(), &form)?;
        let model = match self.states {
            Some(directory) => model.with_shared_states(directory),
            None => model,
        };
        Ok(Model {
            model,
            training: trained.card().origin.training.clone(),
        })
    }
}

/// The fault of a state directory that has no serving state of a step.
fn without_state(step: &str, state: &str) -> Fault {
    let message =
        format!("`{state}` has no serving state of `{step}`, after which forecasts begin");
    Fault::new(codes::UNSUPPORTED, message)
        .step(step)
        .hint(format!(
            "declare `serving: {{ from: {step} }}` in the spec, run it, and give its state \
             directory as `state`"
        ))
}

#[pymethods]
impl Model {
    /// Loads the model of a request, which is JSON.
    #[new]
    fn new(py: Python<'_>, text: &str) -> PyResult<Self> {
        let model: ModelRequest = request(py, text)?;
        py.detach(|| model.load()).into_py_result(py)
    }

    /// Returns the id of the training.
    #[getter]
    fn id(&self) -> &str {
        &self.training
    }

    /// The columns that name a series.
    #[getter]
    fn keys(&self) -> Vec<&str> {
        let keys = self.model.forecast_keys().iter();
        keys.map(|key| key.name().as_str()).collect()
    }

    /// The columns of a forecast.
    #[getter]
    fn outputs(&self) -> Vec<&str> {
        let Some(output) = self.model.forecast_output() else {
            return Vec::new();
        };
        let fields = output.fields().iter();
        fields.map(|field| field.name().as_str()).collect()
    }

    /// The columns of facts.
    #[getter]
    fn facts(&self) -> Vec<&str> {
        let Some(columns) = self.model.fact_columns() else {
            return Vec::new();
        };
        let fields = columns.fields().iter();
        fields.map(|field| field.name().as_str()).collect()
    }

    /// The columns that tables may have besides the keys: the time of a row of the future, and values of it.
    #[getter]
    fn values(&self) -> Vec<&str> {
        let values = self.model.forecast_values().into_iter();
        values.map(|field| field.name().as_str()).collect()
    }

    /// Forecasts the series of a table: anything with `__arrow_c_stream__` or `__arrow_c_array__`.
    fn forecast(&self, py: Python<'_>, table: &Bound<'_, PyAny>) -> PyResult<Table> {
        let series = whole_batch(table)?;
        let forecast = py.detach(|| self.model.forecast(&series));
        Ok(Table::new(forecast.into_py_result(py)?))
    }

    /// Like `forecast`, with a row for each row of the table, and lists with an item for each step.
    fn forecast_by_series(&self, py: Python<'_>, table: &Bound<'_, PyAny>) -> PyResult<Table> {
        let series = whole_batch(table)?;
        let forecast = py.detach(|| self.model.forecast_by_series(&series));
        Ok(Table::new(forecast.into_py_result(py)?))
    }

    /// Makes the rows of a table part of the next forecasts; returns their number. They are on the disk then.
    fn append(&self, py: Python<'_>, table: &Bound<'_, PyAny>) -> PyResult<u64> {
        let facts = whole_batch(table)?;
        let appended = py.detach(|| self.model.append(&facts));
        Ok(appended.into_py_result(py)?.rows)
    }

    /// Contents of the serving state, as JSON.
    fn state(&self, py: Python<'_>) -> String {
        let state = py.detach(|| self.model.state());
        let state = state.map(
            |state| json!({ "as_of": state.as_of, "series": state.series, "bytes": state.bytes }),
        );
        json!(state).to_string()
    }
}
