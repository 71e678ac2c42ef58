//! Steps of an artifact in terms that other runtimes have.

use forebay_commit::Artifact;
use forebay_contract::{PortableSteps, TargetStage};
use forebay_model::{Fault, Result, codes};
use forebay_plan::{SqlCompiler, TransformRegistry, portable_steps};

use crate::learning_filters::without_learning_filters;

/// Steps that make these columns of `node` from the columns of its source, with what the artifact learned.
///
/// Results of windows and joins, and rows of a gather, are inputs. A row-wise step without a portable form is a fault that names it.
pub fn portable_artifact_steps(
    artifact: &Artifact,
    registry: &TransformRegistry,
    sql: &SqlCompiler,
    node: &str,
    columns: &[String],
) -> Result<PortableSteps> {
    // Rows that are scored pass filters for learning.
    let fitted = artifact.bind(registry, sql)?;
    let labels = &artifact.origin.labels;
    let served = Artifact {
        pipeline: without_learning_filters(registry, &artifact.pipeline, &fitted, labels)?,
        ..artifact.clone()
    };
    let bound = served.bind(registry, sql)?;
    let flow = bound.flows.get(node).ok_or_else(|| {
        let message = format!("the artifact has no step `{node}`");
        Fault::new(codes::UNKNOWN_NAME, message)
    })?;
    let [stream] = flow.streams.as_slice() else {
        let message = format!("`{node}` is a union, which other runtimes do not compute");
        return Err(Fault::new(codes::UNSUPPORTED, message).hint("export with `--without-steps`"));
    };
    let finding = |analyzer: usize| {
        let learned = artifact.findings.get(analyzer);
        learned
            .map(|learned| learned.finding.clone())
            .ok_or_else(|| Fault::new(codes::STATE_VERSION, "the artifact lacks a finding"))
    };
    portable_steps(&bound, stream, columns, &finding)
}

/// The stages by which the steps of `node` transform a model's label; none where they leave it as it is.
pub fn target_stages(
    artifact: &Artifact,
    registry: &TransformRegistry,
    sql: &SqlCompiler,
    node: &str,
    label: &str,
) -> Result<Vec<TargetStage>> {
    let bound = artifact.bind(registry, sql)?;
    let flow = bound.flows.get(node);
    let target = flow.and_then(|flow| flow.target.as_ref());
    let target = target.filter(|target| target.column == label);
    Ok(target.map_or_else(Vec::new, |target| target.stages.clone()))
}
