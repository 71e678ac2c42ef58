//! Choice of the rows that a feed delivers.

use forebay_feed::FeedConfig;
use forebay_model::{Fault, Pipeline, Result, codes};
use forebay_plan::FUTURE_PART;

/// Step or source of the fed rows, and the part of the split.
pub(crate) fn feed_rows(
    pipeline: &Pipeline,
    config: &FeedConfig,
) -> Result<(String, Option<String>)> {
    let mut sinks = pipeline.sinks.iter();
    let sink = sinks.find(|sink| sink.split.as_deref() != Some(FUTURE_PART));
    // The named rows, else those of the first sink, else those of the last step, else those of a source.
    let from = match (&config.from, sink, pipeline.nodes.last()) {
        (Some(from), ..) => from.clone(),
        (None, Some(sink), _) => sink.from.clone(),
        (None, None, Some(node)) => node.name.clone(),
        (None, None, None) => match pipeline.sources.first() {
            Some(source) => source.name.clone(),
            None => {
                let message = "the pipeline has no rows to feed";
                return Err(Fault::new(codes::EMPTY, message).hint("add a source"));
            }
        },
    };
    let sink_split = match sink {
        Some(sink) if config.from.is_none() => sink.split.clone(),
        _ => None,
    };
    let split = config.split.clone().or(sink_split);
    if split.as_deref() == Some(FUTURE_PART) {
        let fault = Fault::new(
            codes::UNSUPPORTED,
            "a feed cannot deliver rows of the future",
        );
        return Err(fault.hint("write them with a sink, or let a `predict` sink use them"));
    }
    Ok((from, split))
}
