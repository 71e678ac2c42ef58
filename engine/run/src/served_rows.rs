//! The rows that applying an artifact writes, and the filters that they pass.

use forebay_model::{Fault, Interval, Pipeline, Result, Step, codes};
use forebay_plan::FUTURE_PART;
use serde_json::Value;

use crate::session::Session;

/// The kind of step that removes rows.
const FILTER: &str = "filter";

/// The rows that applying an artifact writes.
///
/// ```
/// use forebay_run::ServedRows;
///
/// let served = ServedRows { from: Some("2016-05-22".into()), ..ServedRows::default() };
/// # let _ = served;
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServedRows {
    /// The time from which on rows are written. Earlier rows are history: they are read for windows, and not written.
    /// All rows are written when left out.
    pub from: Option<String>,
    /// The given rows are all the history that windows need, however far windows reach.
    pub whole_history: bool,
    /// Columns that stand for what is predicted: new rows may lack them, and what is made of nothing else.
    pub labels: Vec<String>,
}

impl Session {
    /// A pipeline whose filters for learning let the rows pass that are written. Rows that are only history are
    /// filtered as in the run.
    pub(crate) fn served_pipeline(
        &self,
        pipeline: &Pipeline,
        interval: Option<&Interval>,
    ) -> Result<Pipeline> {
        let is_future = |part: Option<&str>| part == Some(FUTURE_PART);
        let writes_future = pipeline
            .sinks
            .iter()
            .any(|sink| is_future(sink.split.as_deref()));
        if self.served.from.is_some() && (writes_future || interval.is_some()) {
            let message = if writes_future {
                "rows of the future come after all given rows, and none of those is written"
            } else {
                "an interval says from when on rows are written"
            };
            return Err(Fault::new(codes::USAGE, message)
                .hint("leave out the time from which on rows are written (`--rows-from`)"));
        }
        let mut served = pipeline.clone();
        if writes_future {
            return Ok(served);
        }
        let written_from = interval
            .map(|interval| interval.from.clone())
            .or_else(|| self.served.from.clone());
        for node in &mut served.nodes {
            match &written_from {
                Some(from) => node
                    .steps
                    .iter_mut()
                    .filter(|step| is_for_learning(step))
                    .for_each(|step| {
                        step.config["history_until"] = Value::from(from.as_str());
                    }),
                None => node.steps.retain(|step| !is_for_learning(step)),
            }
        }
        Ok(served)
    }
}

/// A pipeline without the filters that are for learning.
pub(crate) fn without_learning_filters(pipeline: &Pipeline) -> Pipeline {
    let mut served = pipeline.clone();
    for node in &mut served.nodes {
        node.steps.retain(|step| !is_for_learning(step));
    }
    served
}

/// True for a filter of the rows to learn from.
fn is_for_learning(step: &Step) -> bool {
    step.kind == FILTER && step.config["when"] == "learning"
}
