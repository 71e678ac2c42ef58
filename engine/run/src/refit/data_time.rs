//! The time that the data has come to.

use std::collections::BTreeSet;

use forebay_model::{Fault, PipelineNode, Result, codes};
use forebay_plan::{BaseDataset, BoundPipeline, OpId, OpStream};

use super::RefitContext;
use super::policy::data_tick;
use crate::leak_check::{TimeRange, time_text};
use crate::session::Session;

impl Session {
    /// The end of the interval, or the newest time of what a step reads. Where files do not tell their times, they are
    /// read only if the step learns anew by time.
    pub(super) fn data_time(
        &self,
        context: &RefitContext<'_>,
        node: &PipelineNode,
    ) -> Result<Option<String>> {
        let end = context.interval.map(|interval| interval.to.as_str());
        if let Some(end) = end.or(self.as_of.as_ref().map(|end| end.text())) {
            return Ok(Some(end.to_owned()));
        }
        let by_time = node.refit.as_ref().and_then(|policy| policy.after.as_ref());
        let has_time = |name: &String| {
            context
                .pipeline
                .source(name)
                .is_some_and(|source| source.time.is_some())
        };
        let mut sources: Vec<String> = sources_of(context.bound, &node.name)
            .into_iter()
            .filter(has_time)
            .collect();
        if sources.is_empty() {
            sources = context
                .sources
                .keys()
                .filter(|name| has_time(name))
                .cloned()
                .collect();
        }
        if let (true, Some(after)) = (sources.is_empty(), by_time) {
            let message = format!(
                "`refit: {after}` counts the time of the data, and no source declares its `time`"
            );
            let fault = Fault::new(codes::MISSING_FIELD, message)
                .hint("name the column of times: `time: date`");
            return Err(fault.at(node.at.as_ref()));
        }
        let mut newest: Option<String> = None;
        for name in &sources {
            let time = context
                .pipeline
                .source(name)
                .and_then(|source| source.time.as_ref());
            let (Some(time), Some(input)) = (time, context.sources.get(name)) else {
                continue;
            };
            let range = match by_time {
                Some(_) => TimeRange::of(&self.io, input, time)?,
                None => TimeRange::told(&input.dataset, time)?,
            };
            let Some(range) = range else { continue };
            let text = time_text(range.max, &range.field)?;
            if newest
                .as_ref()
                .is_none_or(|known| data_tick(known) < data_tick(&text))
            {
                newest = Some(text);
            }
        }
        Ok(newest)
    }
}

/// The sources whose rows a step learns from.
fn sources_of(bound: &BoundPipeline, step: &str) -> BTreeSet<String> {
    let asks = bound.held_analyzers(step).into_iter();
    let mut open: Vec<&OpStream> = asks.flat_map(|ask| &bound.asks[ask].streams).collect();
    let (mut found, mut seen): (_, BTreeSet<OpId>) = (BTreeSet::new(), BTreeSet::new());
    while let Some(stream) = open.pop() {
        match &bound.bases[stream.base] {
            BaseDataset::Source(name) => drop(found.insert(name.clone())),
            BaseDataset::Gathered(op) if seen.insert(*op) => {
                let inputs = bound.gather_inputs.get(op).into_iter().flatten();
                open.extend(inputs.flat_map(|(_, flow)| &flow.streams));
            }
            BaseDataset::Gathered(_) => {}
        }
    }
    found
}
