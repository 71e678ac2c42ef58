//! Rows that several parts of a split have, or none, where the conditions alone do not tell.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::AsArray;
use arrow::datatypes::UInt64Type;
use forebay_analyze::PartCounts;
use forebay_model::{DataSplit, Dataset, Fault, Finding, Result, codes};
use forebay_plan::{
    AnalyzerRequest, BaseDataset, BoundAnalyzer, OpStream, PlanOp, check_split, part_column,
};

use super::RunExecutor;

impl RunExecutor<'_> {
    /// Counts the rows of the parts of the split, and warns of those that are in several parts or in none, and of parts
    /// without rows. Where the conditions tell that there are no such rows, none is read.
    pub(crate) fn count_parts(&self, datasets: &BTreeMap<String, Dataset>) -> Result<()> {
        let Some(split) = &self.pipeline.split else {
            return Ok(());
        };
        let bound = &self.program.bound;
        let check = check_split(self.pipeline, bound, &self.session.sql, datasets)?;
        if check.is_decided && check.warnings.is_empty() {
            return Ok(());
        }
        let parts = split.parts();
        let mut seen = BTreeSet::new();
        let mut names = Vec::new();
        let mut analyzers = Vec::new();
        for name in self.divided_steps() {
            let Some(flow) = bound.flows.get(name).filter(|flow| flow.parts) else {
                continue;
            };
            // Rows that a query makes would be computed once more.
            let is_read =
                |stream: &OpStream| matches!(bound.bases[stream.base], BaseDataset::Source(_));
            if !flow.streams.iter().all(is_read) {
                continue;
            }
            let streams: Vec<OpStream> = flow
                .streams
                .iter()
                .map(|stream| self.before_windows(stream))
                .collect();
            let Some(op) = streams
                .first()
                .and_then(|stream| stream.ops.last().copied())
            else {
                continue;
            };
            let places: Vec<(usize, Vec<usize>)> = streams
                .iter()
                .map(|stream| (stream.base, stream.ops.clone()))
                .collect();
            if !seen.insert(places) {
                continue;
            }
            let columns = parts.iter().map(|part| part_column(part));
            names.push(name);
            analyzers.push(BoundAnalyzer {
                op,
                ask: AnalyzerRequest::new(PartCounts, columns).per_run(),
                streams,
                part: None,
                carried: None,
                held: None,
            });
        }
        let findings = self.learn_extra(analyzers)?;
        for (name, finding) in names.into_iter().zip(findings) {
            self.report_parts(name, split, &finding)?;
        }
        Ok(())
    }

    /// The steps whose rows are taken by part.
    fn divided_steps(&self) -> Vec<&str> {
        let learned = self
            .pipeline
            .nodes
            .iter()
            .filter(|node| node.fit_on.is_some())
            .map(|node| node.name.as_str());
        let written = self
            .pipeline
            .sinks
            .iter()
            .filter(|sink| sink.split.is_some())
            .map(|sink| sink.from.as_str());
        let trained = self
            .pipeline
            .trainings
            .iter()
            .map(|training| training.from.as_str());
        learned.chain(written).chain(trained).collect()
    }

    /// A stream up to its first window, join or gather: the rows that windows see, without computing these.
    fn before_windows(&self, stream: &OpStream) -> OpStream {
        let is_of_rows = |op: &usize| {
            matches!(
                self.program.bound.ops[*op].op,
                PlanOp::Map(_) | PlanOp::Keep(_) | PlanOp::Project(_) | PlanOp::Expand(_)
            )
        };
        let end = stream
            .ops
            .iter()
            .position(|op| !is_of_rows(op))
            .unwrap_or(stream.ops.len());
        let split = stream
            .ops
            .iter()
            .position(|op| self.program.bound.ops[*op].label == "split");
        let end = end.max(split.map_or(0, |split| split + 1));
        OpStream {
            base: stream.base,
            ops: stream.ops[..end].to_vec(),
        }
    }

    fn report_parts(&self, step: &str, split: &DataSplit, finding: &Finding) -> Result<()> {
        let parts = split.parts();
        let sets = finding.column("parts")?.as_primitive::<UInt64Type>();
        let counts = finding.column("count")?.as_primitive::<UInt64Type>();
        let total: u64 = counts.values().iter().sum();
        let mut rows_of = vec![0; parts.len()];
        for (set, count) in sets.values().iter().zip(counts.values()) {
            let members: Vec<usize> = (0..parts.len())
                .filter(|part| set >> part & 1 == 1)
                .collect();
            members.iter().for_each(|part| rows_of[*part] += count);
            let names: Vec<String> = members
                .iter()
                .map(|part| format!("`{}`", parts[*part]))
                .collect();
            let is_declared_gap = matches!(
                split,
                DataSplit::Time {
                    embargo: Some(_),
                    ..
                }
            );
            let message = match members.len() {
                0 if !is_declared_gap => {
                    format!("{count} of {total} rows of `{step}` are in no part of the split")
                }
                0 | 1 => continue,
                _ => format!(
                    "parts of the split overlap: {count} of {total} rows of `{step}` are in {}",
                    names.join(" and ")
                ),
            };
            let code = if members.is_empty() {
                codes::EMPTY
            } else {
                codes::LEAKAGE
            };
            self.session.warn(&Fault::new(code, message));
        }
        for (part, rows) in parts.iter().zip(rows_of) {
            if rows == 0 && total > 0 {
                let message = format!(
                    "the part `{part}` of the split has none of the {total} rows of `{step}`"
                );
                self.session.warn(&Fault::new(codes::EMPTY, message));
            }
        }
        Ok(())
    }
}
