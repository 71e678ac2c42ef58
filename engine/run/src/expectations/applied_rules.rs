//! The rules that are judged where an artifact is applied.

use std::collections::BTreeSet;

use forebay_plan::{FUTURE_PART, OpId, OpStream};
use forebay_storage::Event;

use crate::executor::RunExecutor;
use crate::row_rules::{RulesOfStreams, columns_of_rule, expectation_of, rules_of_streams};
use crate::serving_inputs::is_absent;

impl RunExecutor<'_> {
    /// Operations whose rules are judged. Where an artifact is applied, these are the rules about
    /// values and keys of the given rows: the number of rows, their age and their distribution are
    /// those of runs, and new rows may lack what only the label needs.
    pub(super) fn judged_rules(&self) -> Vec<OpId> {
        let bound = &self.program.bound;
        if !self.session.attempt.served_inputs.is_application {
            let ops = 0..bound.ops.len();
            return ops
                .filter(|op| expectation_of(&bound.ops[*op]).is_some())
                .collect();
        }
        let label_columns = self.label_columns();
        let has_future = self
            .pipeline
            .sinks
            .iter()
            .any(|sink| sink.split.as_deref() == Some(FUTURE_PART));
        let mut judged = Vec::new();
        let mut about_labels = Vec::new();
        for (op, (stream, position)) in self.rules_of_sinks() {
            let Some(expectation) = expectation_of(&bound.ops[op]) else {
                continue;
            };
            let Some(reads) = columns_of_rule(bound, op, &stream, position) else {
                continue;
            };
            if expectation.of_future && !has_future {
                continue;
            }
            let is_about_labels = reads.iter().any(|column| label_columns.contains(column));
            if expectation.passes_scored || is_about_labels {
                about_labels.push(format!("`{}` ({})", expectation.name, bound.ops[op].label));
            } else {
                judged.push(op);
            }
        }
        if !about_labels.is_empty() {
            let message = format!(
                "rules about columns that only the label needs take out no row that is written, \
                 and are not judged: {}",
                about_labels.join(", ")
            );
            self.session.watch.on_event(Event::Warning { message });
        }
        judged
    }

    /// Labels, and columns that the given files lack.
    fn label_columns(&self) -> BTreeSet<String> {
        let mut columns = self.session.attempt.served_inputs.labels.clone();
        for input in self.state.sources.values() {
            let absent = input
                .dataset
                .schema
                .fields()
                .iter()
                .filter(|field| is_absent(field));
            columns.extend(absent.map(|field| field.name().clone()));
        }
        columns
    }

    fn rules_of_sinks(&self) -> RulesOfStreams {
        let bound = &self.program.bound;
        let mut open: Vec<OpStream> = Vec::new();
        for sink in &self.pipeline.sinks {
            let Some(flow) = bound.flows.get(&sink.from) else {
                continue;
            };
            open.extend(flow.streams.iter().cloned());
            open.extend(flow.streams_of(sink.split.as_deref()).0);
        }
        rules_of_streams(bound, open)
    }
}
