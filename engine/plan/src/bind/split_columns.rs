//! The split: hidden columns that mark the part of each row.

use forebay_model::{Fault, IdBuilder, codes};

use super::PipelineBinder;
use crate::bind_faults::{BindResult, section_location};
use crate::split::{part_column, split_operation};
use crate::{NodeFlow, PlanOp};

impl PipelineBinder<'_> {
    /// Adds the hidden columns of the split once all columns that it reads are present.
    pub(super) fn add_split_columns(&mut self, flow: &mut NodeFlow) {
        let Some(split) = &self.pipeline.split else {
            return;
        };
        if flow.parts {
            return;
        }
        match split_operation(split, &flow.schema, self.sql) {
            Ok(map) => {
                let mut identity = IdBuilder::new("split");
                identity.json(&split.config());
                self.push(
                    flow,
                    PlanOp::Map(map),
                    "split".into(),
                    identity.finish(),
                    None,
                );
                flow.parts = true;
            }
            Err(fault) if fault.code() == codes::UNKNOWN_COLUMN => {}
            Err(fault) => self.report_split(fault),
        }
    }

    /// True if the columns of a flow decide about those of the split.
    pub(super) fn reads_split(&self, flow: &NodeFlow) -> bool {
        self.pipeline.split.is_some() && !flow.parts
    }

    /// Adds a fault of the split unless it was reported before.
    fn report_split(&mut self, fault: Fault) {
        let is_known = self
            .faults
            .iter()
            .any(|reported| reported.message() == fault.message());
        if !is_known && !self.doubts.values().any(|doubt| doubt.covers(&fault, None)) {
            let source = self
                .pipeline
                .sources
                .first()
                .and_then(|source| source.at.as_ref());
            self.faults
                .push(fault.at(section_location(source, "split").as_ref()));
        }
    }

    /// Reports a split whose columns no step has.
    pub(super) fn check_split(&mut self) {
        let Some(split) = &self.pipeline.split else {
            return;
        };
        let flows = &self.bound.flows;
        if flows.values().any(|flow| flow.parts) || !self.failed.is_empty() {
            return;
        }
        let sources = self
            .pipeline
            .sources
            .iter()
            .filter_map(|source| flows.get(&source.name));
        let faults =
            sources.filter_map(|flow| split_operation(split, &flow.schema, self.sql).err());
        if let Some(fault) = faults.min_by_key(|fault| {
            fault
                .hint_text()
                .is_none_or(|hint| !hint.starts_with("did"))
        }) {
            self.report_split(fault);
        }
    }

    /// The hidden column of the part that `label` learns from.
    pub(super) fn part_column_of(
        &mut self,
        flow: &NodeFlow,
        part: Option<&str>,
        label: &str,
    ) -> BindResult<Option<String>> {
        let Some(part) = part else {
            return Ok(None);
        };
        let Some(split) = &self.pipeline.split else {
            let message = format!("the split has no part `{part}`");
            return Err(Fault::new(codes::UNKNOWN_NAME, message).into());
        };
        if !split.parts().contains(&part) {
            let fault = Fault::new(
                codes::UNKNOWN_NAME,
                format!("the split has no part `{part}`"),
            );
            return Err(fault
                .hint(format!("its parts are: {}", split.parts().join(", ")))
                .into());
        }
        if flow.parts {
            return Ok(Some(part_column(part)));
        }
        if let Err(fault) = split_operation(split, &flow.schema, self.sql) {
            self.report_split(fault.note(format!("`{label}` learns from the part `{part}`")));
        }
        // The step is bound all the same, for the faults of those after it.
        Ok(None)
    }
}
