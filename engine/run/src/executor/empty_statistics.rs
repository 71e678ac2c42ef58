//! Statistics of no rows, of no values, and of infinite ones.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Float64Type, UInt64Type};
use forebay_analyze::ColumnCounts;
use forebay_model::{Fault, Finding, PipelineNode, Result, codes};
use forebay_plan::{AnalyzerId, AnalyzerRequest, BoundAnalyzer, LearnWork, part_name, step_kind};

use super::RunExecutor;

/// Steps that compute with means and bounds of all values: an infinity makes them infinite, and the values of all rows
/// zero, infinite or NaN.
const STEPS_OF_MOMENTS: [&str; 4] = ["impute", "max_abs", "min_max", "standardize"];

/// Rows without a value for an analyzer.
struct RowsWithoutValues {
    rows: u64,
    nulls: u64,
}

/// The columns of a step without rows or values.
#[derive(Default)]
struct EmptyColumns {
    /// Columns of no rows.
    of_no_rows: Vec<String>,
    /// Columns without a value, and the number of rows.
    of_no_values: Vec<(String, RowsWithoutValues)>,
}

impl RunExecutor<'_> {
    /// Refuses statistics of no rows, unless their step allows them, and warns of those of no values and of infinite ones.
    ///
    /// Findings that are held need no rows of this run, and those that continue an earlier one need none if that holds
    /// something.
    pub(super) fn check_statistics(&self, work: &LearnWork) -> Result<()> {
        if !self.makes_artifact || self.on_worker {
            return Ok(());
        }
        let mut empty = Vec::new();
        let mut infinite = BTreeSet::new();
        let asks = work.lanes.iter().flat_map(|lane| &lane.asks);
        for ask in asks.chain(&work.known) {
            let bound = &self.program.bound.asks[*ask];
            if !self.program.bound.is_statistic(bound) || bound.held.is_some() {
                continue;
            }
            let finding = self.state.finding(&self.program, *ask)?;
            let is_empty = if bound.ask.continues.is_some() {
                finding.rows() == 0
            } else {
                holds_nothing(&finding)
            };
            if is_empty {
                empty.push(*ask);
            }
            let op = &self.program.bound.ops[bound.op];
            let reads_moments = STEPS_OF_MOMENTS.contains(&step_kind(op));
            if reads_moments && holds_infinity(&finding) {
                infinite.insert((op.label.as_str(), bound.ask.inputs.first()));
            }
        }
        for (label, column) in infinite {
            self.report_infinite(label, column);
        }
        if empty.is_empty() {
            return Ok(());
        }
        let counts = self.count_rows_of(&empty)?;
        let mut by_step: BTreeMap<(&str, Option<&str>), EmptyColumns> = BTreeMap::new();
        for (ask, counted) in empty.iter().zip(counts) {
            let bound = &self.program.bound.asks[*ask];
            let label = self.program.bound.ops[bound.op].label.as_str();
            let part = bound.part.as_deref().map(part_name);
            let columns = by_step.entry((label, part)).or_default();
            let column = bound.ask.inputs.first().cloned().unwrap_or_default();
            if counted.rows == 0 {
                columns.of_no_rows.push(column);
            } else {
                columns.of_no_values.push((column, counted));
            }
        }
        let mut faults = Vec::new();
        for ((label, part), columns) in by_step {
            self.report_empty(label, part, columns, &mut faults);
        }
        Fault::combine(faults).map_or(Ok(()), Err)
    }

    /// Counts the rows that some analyzers read, and the nulls of their first columns.
    fn count_rows_of(&self, asks: &[AnalyzerId]) -> Result<Vec<RowsWithoutValues>> {
        let copies = asks.iter().map(|ask| {
            let bound = &self.program.bound.asks[*ask];
            BoundAnalyzer {
                ask: AnalyzerRequest::new(ColumnCounts, bound.ask.inputs.iter().take(1)),
                carried: None,
                ..bound.clone()
            }
        });
        let findings = self.learn_extra(copies.collect())?;
        findings
            .iter()
            .map(|finding| {
                Ok(RowsWithoutValues {
                    rows: first_count(finding, "rows")?,
                    nulls: first_count(finding, "nulls")?,
                })
            })
            .collect()
    }

    fn report_empty(
        &self,
        label: &str,
        part: Option<&str>,
        columns: EmptyColumns,
        faults: &mut Vec<Fault>,
    ) {
        let node = self.node_of(label);
        let step = self.program.bound.ops.iter().find(|op| op.label == label);
        let at = step.and_then(|step| step.at.as_ref());
        if let Some(first) = columns.of_no_rows.first() {
            let names = quoted(&columns.of_no_rows);
            let rows = match part {
                Some(part) => format!("the part `{part}` of the split has none"),
                None => "the step has none".to_owned(),
            };
            let message = format!("`{label}` learns {names} from no rows: {rows}");
            let hint = match part {
                Some(_) => {
                    "look at the bounds of the part and at the filters before the step, \
                     or set `allow_empty: true` beside `fit_on`"
                }
                None => {
                    "look at the source and at the filters before the step, \
                     or set `allow_empty: true` beside `do`"
                }
            };
            let fault = Fault::new(codes::EMPTY, message)
                .column(first)
                .step(label)
                .at(at);
            if node.is_some_and(|node| node.allow_empty) {
                self.session.warn(&fault);
            } else {
                faults.push(fault.hint(hint));
            }
        }
        for (column, counted) in columns.of_no_values {
            let rows = counted.rows;
            let of = part.map_or_else(String::new, |part| format!(" of the part `{part}`"));
            let message = if counted.nulls == rows {
                format!(
                    "`{label}` learns nothing of `{column}`: it is missing in all {rows} rows{of}"
                )
            } else {
                format!(
                    "`{label}` learns nothing of `{column}`: \
                     none of its values counts in the {rows} rows{of}"
                )
            };
            let hint = "look at the source of the column, or leave it out";
            self.session
                .warn(&Fault::new(codes::EMPTY, message).column(column).hint(hint));
        }
    }

    fn report_infinite(&self, label: &str, column: Option<&String>) {
        let column = column.map_or("", String::as_str);
        let message = format!(
            "`{label}` learns from infinite values of `{column}`: what it learns is infinite, too"
        );
        let hint = "`clip` the column before the step, or `filter` these rows";
        let fault = Fault::new(codes::NOT_FINITE, message).column(column);
        self.session.warn(&fault.hint(hint));
    }

    /// The node of an operation, by its label.
    fn node_of(&self, label: &str) -> Option<&PipelineNode> {
        let (node, _) = label.rsplit_once('.')?;
        self.pipeline.node(node)
    }
}

/// True if a finding may be of no values: it is empty, its counts are 0, or its numbers are
/// missing.
fn holds_nothing(finding: &Finding) -> bool {
    if finding.rows() == 0 {
        return true;
    }
    let counts = finding.column("count").ok();
    let counts = counts.and_then(|column| column.as_primitive_opt::<UInt64Type>());
    if let Some(counts) = counts {
        return counts.values().iter().all(|count| *count == 0);
    }
    finding
        .column("value")
        .is_ok_and(|values| values.null_count() == values.len())
}

/// True if a finding has an infinite mean or bound, of all rows or of a key.
fn holds_infinity(finding: &Finding) -> bool {
    ["mean", "min", "max"].into_iter().any(|name| {
        let numbers = finding.column(name).ok();
        let numbers = numbers.and_then(|column| column.as_primitive_opt::<Float64Type>());
        numbers.is_some_and(|numbers| numbers.iter().flatten().any(f64::is_infinite))
    })
}

fn first_count(finding: &Finding, name: &str) -> Result<u64> {
    let column = finding.column(name)?.as_primitive::<UInt64Type>();
    Ok(column.values().first().copied().unwrap_or_default())
}

fn quoted(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}
