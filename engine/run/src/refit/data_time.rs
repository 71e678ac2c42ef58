//! The newest time of the data.

use std::collections::BTreeSet;

use forebay_model::{Fault, PipelineNode, Result, codes};
use forebay_plan::{BaseDataset, BoundPipeline, OpId, OpStream};

use super::RefitContext;
use super::policy::data_tick;
use crate::leak_check::{TimeRange, time_text};
use crate::session::Session;

impl Session {
    /// The end of the interval, or the newest time of the inputs of a step. Files that do not
    /// record their times are read only if the policy of the step refits by time.
    pub(super) fn data_time(
        &self,
        context: &RefitContext<'_>,
        node: &PipelineNode,
    ) -> Result<Option<String>> {
        let by_time = node
            .refit
            .as_ref()
            .and_then(|policy| policy.after.as_deref());
        let read = sources_of(context.bound, &node.name);
        self.newest_time_text(context, read, by_time)
            .map_err(|fault| fault.at(node.at.as_ref()))
    }

    /// The end of the interval, or the newest time of some sources; of all, if none of them has a time. Files that do
    /// not record their times are read only for a policy with a length.
    pub(crate) fn newest_time_text(
        &self,
        context: &RefitContext<'_>,
        read: BTreeSet<String>,
        length: Option<&str>,
    ) -> Result<Option<String>> {
        let end = context.interval.map(|interval| interval.to.as_str());
        if let Some(end) = end.or(self.as_of.as_ref().map(|end| end.text())) {
            return Ok(Some(end.to_owned()));
        }
        let has_time = |name: &String| {
            context
                .pipeline
                .source(name)
                .is_some_and(|source| source.time.is_some())
        };
        let mut sources: Vec<String> = read.into_iter().filter(has_time).collect();
        if sources.is_empty() {
            sources = context
                .sources
                .keys()
                .filter(|name| has_time(name))
                .cloned()
                .collect();
        }
        if let (true, Some(length)) = (sources.is_empty(), length) {
            let message = format!(
                "`refit: {length}` counts the time of the data, and no source declares its `time`"
            );
            return Err(Fault::new(codes::MISSING_FIELD, message)
                .hint("name the column of times: `time: date`"));
        }
        let mut newest: Option<String> = None;
        for name in &sources {
            let time = context
                .pipeline
                .source(name)
                .and_then(|source| source.time.as_ref());
            let Some(time) = time else { continue };
            let Some(input) = context.sources.get(name) else {
                continue;
            };
            let range = match length {
                Some(_) => TimeRange::of(&self.io, input, time)?,
                None => TimeRange::of_bounds(&input.dataset, time)?,
            };
            let Some(range) = range else { continue };
            let text = time_text(range.max, &range.field)?;
            if newest
                .as_ref()
                .is_none_or(|time| data_tick(time) < data_tick(&text))
            {
                newest = Some(text);
            }
        }
        Ok(newest)
    }
}

/// The sources whose rows a step learns from.
fn sources_of(bound: &BoundPipeline, step: &str) -> BTreeSet<String> {
    let mut streams: Vec<&OpStream> = Vec::new();
    for ask in bound.held_analyzers(step) {
        streams.extend(&bound.asks[ask].streams);
    }
    base_sources(bound, streams)
}

/// The sources whose rows streams have, without those that joins look up.
pub(crate) fn base_sources(bound: &BoundPipeline, streams: Vec<&OpStream>) -> BTreeSet<String> {
    let mut open = streams;
    let mut sources = BTreeSet::new();
    let mut seen: BTreeSet<OpId> = BTreeSet::new();
    while let Some(stream) = open.pop() {
        match &bound.bases[stream.base] {
            BaseDataset::Source(name) => drop(sources.insert(name.clone())),
            BaseDataset::Gathered(op) if seen.insert(*op) => {
                let inputs = bound.gather_inputs.get(op).into_iter().flatten();
                open.extend(inputs.flat_map(|(_, flow)| &flow.streams));
            }
            BaseDataset::Gathered(_) => {}
        }
    }
    sources
}
