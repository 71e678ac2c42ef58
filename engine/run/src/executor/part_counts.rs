//! Counts rows that are in several parts of a split or in none, where the conditions alone do not
//! decide it.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::AsArray;
use arrow::datatypes::UInt64Type;
use forebay_analyze::{ColumnCounts, PartCounts};
use forebay_commit::ReuseDecision;
use forebay_model::{DataSplit, Dataset, Fault, Finding, Result, codes};
use forebay_plan::{
    AnalyzerRequest, BaseDataset, BoundAnalyzer, BoundPipeline, OpId, OpStream, PlanOp,
    check_split, part_column,
};

use super::RunExecutor;

/// Adds a gather and those that its rows come from.
fn add_gather(bound: &BoundPipeline, op: OpId, gathers: &mut BTreeSet<OpId>) {
    if !gathers.insert(op) {
        return;
    }
    let inputs = bound.gather_inputs.get(&op).into_iter().flatten();
    for stream in inputs.flat_map(|(_, flow)| &flow.streams) {
        add_gathers_of(bound, stream, gathers);
    }
}

/// Adds the gathers that a stream reads, and those that the other sides of its joins read.
fn add_gathers_of(bound: &BoundPipeline, stream: &OpStream, gathers: &mut BTreeSet<OpId>) {
    if let BaseDataset::Gathered(op) = &bound.bases[stream.base] {
        add_gather(bound, *op, gathers);
    }
    for op in stream.ops.iter() {
        let Some(flow) = bound.join_inputs.get(op) else {
            continue;
        };
        for other_stream in &flow.streams {
            add_gathers_of(bound, other_stream, gathers);
        }
    }
}

/// The time column of a split with an embargo.
fn embargoed_time(split: &DataSplit) -> Option<&str> {
    match split {
        DataSplit::Time {
            column,
            embargo: Some(_),
            ..
        } => Some(column),
        _ => None,
    }
}

impl RunExecutor<'_> {
    /// Counts the rows of the parts of the split, and warns of those that are in several parts or
    /// in none, and of parts without rows. Reads no rows if the conditions prove that there are no
    /// such rows.
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
        let time = embargoed_time(split).filter(|_| !check.is_decided);
        let mut seen = BTreeSet::new();
        let mut names = Vec::new();
        let mut analyzers = Vec::new();
        let mut time_counts = Vec::new();
        for name in self.divided_steps() {
            let Some(flow) = bound.flows.get(name).filter(|flow| flow.parts) else {
                continue;
            };
            if !self.are_gathers_stored(&flow.streams)? {
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
            let stream_keys: Vec<(usize, Vec<usize>)> = streams
                .iter()
                .map(|stream| (stream.base, stream.ops.to_vec()))
                .collect();
            if !seen.insert(stream_keys) {
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
            if let Some(time) = time {
                time_counts.push(BoundAnalyzer {
                    op,
                    ask: AnalyzerRequest::new(ColumnCounts, [time]).per_run(),
                    streams: self.before_split(&flow.streams),
                    part: None,
                    carried: None,
                    held: None,
                });
            }
        }
        let step_count = analyzers.len();
        analyzers.extend(time_counts);
        let findings = self.learn_extra(analyzers)?;
        let (part_findings, time_findings) = findings.split_at(step_count);
        for (name, finding) in names.iter().zip(part_findings) {
            self.report_parts(name, split, finding)?;
        }
        for (name, finding) in names.iter().zip(time_findings) {
            self.report_rows_without_time(name, time.unwrap_or_default(), finding)?;
        }
        Ok(())
    }

    /// Warns of rows without a time. The others in no part may lie in the embargo.
    fn report_rows_without_time(&self, step: &str, time: &str, counts: &Finding) -> Result<()> {
        let rows = counts.number("rows")?.unwrap_or(0.0) as u64;
        let nulls = counts.number("nulls")?.unwrap_or(0.0) as u64;
        if nulls == 0 {
            return Ok(());
        }
        let message = format!(
            "{nulls} of {rows} rows of `{step}` have no `{time}`: they are in no part of the split"
        );
        let hint = "filter these rows before, or fill the column";
        self.session
            .warn(&Fault::new(codes::EMPTY, message).column(time).hint(hint));
        Ok(())
    }

    /// Streams up to the split.
    fn before_split(&self, streams: &[OpStream]) -> Vec<OpStream> {
        let mut shortened = Vec::with_capacity(streams.len());
        for stream in streams {
            let mut ops = stream.ops.iter();
            let split = ops.position(|op| self.program.bound.ops[*op].label == "split");
            shortened.push(OpStream {
                base: stream.base,
                ops: stream.ops.first(split.unwrap_or(stream.ops.len())),
            });
        }
        shortened
    }

    /// True if the results of all gathers behind some streams are in the state store. Others would be computed for the
    /// counts alone: no pass of this run reads them, and the run that does counts their rows.
    fn are_gathers_stored(&self, streams: &[OpStream]) -> Result<bool> {
        let bound = &self.program.bound;
        let mut gathers = BTreeSet::new();
        for stream in streams {
            let BaseDataset::Gathered(op) = &bound.bases[stream.base] else {
                continue;
            };
            if !self.program.gather_ids.contains_key(op) {
                return Ok(false);
            }
            add_gather(bound, *op, &mut gathers);
        }
        for op in gathers {
            // The others belong to joins whose columns no pass reads.
            let Some(id) = self.program.gather_ids.get(&op) else {
                continue;
            };
            let location = self.store.materialized_location(*id);
            let recorded = self.recorded_pass(*id, &location)?;
            if recorded.decision != ReuseDecision::Reuse {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The steps whose rows are taken by part.
    fn divided_steps(&self) -> Vec<&str> {
        let mut steps = Vec::new();
        for node in &self.pipeline.nodes {
            if node.fit_on.is_some() {
                steps.push(node.name.as_str());
            }
        }
        for sink in &self.pipeline.sinks {
            if sink.split.is_some() {
                steps.push(sink.from.as_str());
            }
        }
        for training in &self.pipeline.trainings {
            steps.push(training.from.as_str());
        }
        steps
    }

    /// A stream up to its first window, join or gather: the rows that windows see, without computing these.
    fn before_windows(&self, stream: &OpStream) -> OpStream {
        let is_of_rows = |op: &usize| {
            matches!(
                self.program.bound.ops[*op].op,
                PlanOp::Map(_) | PlanOp::Keep(_) | PlanOp::Project(_) | PlanOp::Expand(_)
            )
        };
        let mut ops = stream.ops.iter();
        let end = ops.position(|op| !is_of_rows(op));
        let mut end = end.unwrap_or(stream.ops.len());
        // The parts are known behind the split only, even where a window comes before it.
        let mut ops = stream.ops.iter();
        if let Some(split) = ops.position(|op| self.program.bound.ops[*op].label == "split") {
            end = end.max(split + 1);
        }
        OpStream {
            base: stream.base,
            ops: stream.ops.first(end),
        }
    }

    fn report_parts(&self, step: &str, split: &DataSplit, finding: &Finding) -> Result<()> {
        let parts = split.parts();
        let sets = finding.column("parts")?.as_primitive::<UInt64Type>();
        let counts = finding.column("count")?.as_primitive::<UInt64Type>();
        let total: u64 = counts.values().iter().sum();
        let mut rows_of = vec![0; parts.len()];
        for (set, count) in sets.values().iter().zip(counts.values()) {
            // Bit `part` of a set stands for the part of that number.
            let mut names = Vec::new();
            for (part, name) in parts.iter().enumerate() {
                if set >> part & 1 == 1 {
                    rows_of[part] += count;
                    names.push(format!("`{name}`"));
                }
            }
            let is_declared_gap = matches!(
                split,
                DataSplit::Time {
                    embargo: Some(_),
                    ..
                }
            );
            let message = match names.len() {
                0 if !is_declared_gap => {
                    format!("{count} of {total} rows of `{step}` are in no part of the split")
                }
                0 | 1 => continue,
                _ => format!(
                    "parts of the split overlap: {count} of {total} rows of `{step}` are in {}",
                    names.join(" and ")
                ),
            };
            let warning = if names.is_empty() {
                let hint = "widen a part, or filter these rows before; a row whose columns of the \
                            split are null is in no part unless a condition says `IS NULL`";
                Fault::new(codes::EMPTY, message).hint(hint)
            } else {
                let hint = "let one part end where the next begins; what is learned from one part \
                            knows the rows of the other";
                Fault::new(codes::LEAKAGE, message).hint(hint)
            };
            self.session.warn(&warning);
        }
        // A sample may have no rows of a part.
        if !self.session.records_runs {
            return Ok(());
        }
        for (part, rows) in parts.iter().zip(rows_of) {
            if rows == 0 && total > 0 {
                let message = format!(
                    "the part `{part}` of the split has none of the {total} rows of `{step}`"
                );
                let hint = match split {
                    DataSplit::Hash { .. } => {
                        "divide by keys with more values, or give the part a larger share"
                    }
                    DataSplit::Expressions(_) | DataSplit::Time { .. } => {
                        "look at the bounds of the part, and at the values of the data"
                    }
                };
                self.session
                    .warn(&Fault::new(codes::EMPTY, message).hint(hint));
            }
        }
        Ok(())
    }
}
