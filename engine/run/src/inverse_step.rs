//! Whole datasets on the way back: the step that inverts columns, and the pipeline around it.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Field, Schema};
use forebay_commit::Artifact;
use forebay_model::{
    DayRules, DuplicateRows, Fault, NodeInput, Pipeline, PipelineNode, PipelineSink,
    PipelineSource, Result, Step,
};
use forebay_plan::{
    BindScope, MapOp, PlanOp, SqlCompiler, Transform, TransformRegistry, ValueCount, WrittenNulls,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::inverse::InverseColumns;
use crate::report::RunReport;
use crate::session::Session;

/// Kind of the step. No spec can name it: it needs a loaded artifact.
const STEP: &str = "inverse";

/// Name of the source and of its rows in faults.
const FEATURES: &str = "features";

/// Rows that a step of an artifact made, and the place for those of its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InverseRequest {
    /// The path of the rows.
    pub path: String,
    /// Output path of the columns of the source.
    pub output: String,
    /// The format of both, such as `parquet`.
    pub format: String,
    /// The step that made the rows.
    pub node: String,
    /// The columns to invert; none means all.
    pub columns: Vec<String>,
}

impl Session {
    /// Writes columns of the source, computed from the columns that an artifact made of them, on this machine. See
    /// [`InverseColumns`].
    pub fn apply_inverse(
        &self,
        artifact: &Artifact,
        request: &InverseRequest,
    ) -> Result<RunReport> {
        // Workers do not have the artifact.
        let mut session = Session {
            cluster: None,
            ..self.clone()
        };
        register_inverse_step(&mut session, artifact);
        let config = InverseConfig {
            artifact: artifact.id.to_string(),
            node: request.node.clone(),
            columns: request.columns.clone(),
        };
        let config = serde_json::to_value(config)
            .map_err(|error| Fault::internal("a step that inverts").cause(error))?;
        let step = Step {
            kind: STEP.to_owned(),
            config,
            at: None,
        };
        let input = NodeInput::From(FEATURES.to_owned());
        let pipeline = Pipeline {
            name: format!("{}_inverse", artifact.pipeline.name),
            sources: vec![source_of(request)],
            nodes: vec![PipelineNode::new(STEP, input, vec![step])],
            sinks: vec![PipelineSink {
                name: STEP.to_owned(),
                from: STEP.to_owned(),
                format: request.format.clone(),
                config: session
                    .canonical_sink(&request.format, json!({ "path": request.output }))?,
                split: None,
                optional: false,
                at: None,
            }],
            ..Pipeline::default()
        };
        session.run(&pipeline)
    }
}

fn source_of(request: &InverseRequest) -> PipelineSource {
    PipelineSource {
        name: FEATURES.to_owned(),
        format: request.format.clone(),
        config: json!({ "path": request.path }),
        time: None,
        keys: Vec::new(),
        duplicates: Some(DuplicateRows::Allow),
        ready: None,
        lookback: None,
        days: DayRules::default(),
        at: None,
    }
}

/// Adds the step that inverts columns of an artifact to the transforms of a session.
fn register_inverse_step(session: &mut Session, artifact: &Artifact) {
    let artifact = Arc::new(artifact.clone());
    let registry = session.registry.clone();
    let sql = session.sql.clone();
    session
        .registry
        .register_with(STEP, move |config: InverseConfig| -> Arc<dyn Transform> {
            Arc::new(InverseTransform {
                config,
                artifact: artifact.clone(),
                registry: registry.clone(),
                sql: sql.clone(),
            })
        });
}

/// Everything that decides the values of the step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct InverseConfig {
    /// The id of the artifact.
    artifact: String,
    /// Its step that made the columns.
    node: String,
    /// The columns; none means all.
    columns: Vec<String>,
}

/// Computes columns of the source of an artifact, and leaves out all others.
struct InverseTransform {
    config: InverseConfig,
    artifact: Arc<Artifact>,
    registry: TransformRegistry,
    sql: SqlCompiler,
}

impl Debug for InverseTransform {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Debug::fmt(&self.config, f)
    }
}

impl Transform for InverseTransform {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let columns = self.columns(scope)?;
        let node = Some(self.config.node.as_str());
        let inverse =
            InverseColumns::new(&self.artifact, &self.registry, &self.sql, node, &columns)?;
        let outputs = inverse.fields();
        let names: Vec<String> = outputs.iter().map(|field| field.name().clone()).collect();
        let made_columns = columns.clone();
        let map = MapOp::new(columns.clone(), outputs, move |inputs, _| {
            invert(&inverse, &made_columns, inputs)
        });
        let mut map = map.written_nulls(WrittenNulls::Made("has no category for unknown ids"));
        for index in 0..names.len() {
            map = map.counting(ValueCount {
                before: index,
                after: index,
                ..ValueCount::nulled()
            });
        }
        Ok(vec![
            // Another column may have the name of a column of the source.
            PlanOp::keep_columns(columns),
            PlanOp::Map(map),
            PlanOp::keep_columns(names),
        ])
    }
}

impl InverseTransform {
    /// The columns to invert.
    fn columns(&self, scope: &BindScope<'_>) -> Result<Vec<String>> {
        let mut columns = Vec::new();
        if self.config.columns.is_empty() {
            for field in scope.schema.fields() {
                columns.push(field.name().clone());
            }
        }
        for column in &self.config.columns {
            columns.push(scope.field(column)?.name().clone());
        }
        Ok(columns)
    }
}

fn invert(
    inverse: &InverseColumns,
    names: &[String],
    inputs: &[ArrayRef],
) -> Result<Vec<ArrayRef>> {
    let mut fields = Vec::with_capacity(inputs.len());
    for (name, input) in names.iter().zip(inputs) {
        fields.push(Field::new(name, input.data_type().clone(), true));
    }
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), inputs.to_vec())?;
    Ok(inverse.apply(&batch)?.columns().to_vec())
}
