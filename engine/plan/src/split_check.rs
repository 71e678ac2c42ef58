//! Parts of a split that overlap, leave rows out or are empty, as far as the conditions alone
//! decide it.
//!
//! Conditions that compare one column with constants change only at these constants. Their parts are evaluated at
//! each constant, between each two of them and beyond the last ones: that decides every value of the column.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, StringArray, new_null_array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, Schema};
use arrow::util::display::array_value_to_string;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Expr, Operator};
use forebay_model::{
    BoundValue, ColumnExtent, DataSplit, Dataset, Fault, Pipeline, Result, codes, logical_type,
};

use crate::bind_faults::section_location;
use crate::nan_comparison::is_comparison;
use crate::split::split_conditions;
use crate::{BaseDataset, BoundPipeline, CompiledExpression, NodeFlow, PlanOp, SqlCompiler};

/// Result of checking the conditions of a split.
#[derive(Debug, Default)]
pub struct SplitCheck {
    /// True if the conditions determine the parts of each value.
    pub is_decided: bool,
    /// Parts that overlap, leave rows out or are empty.
    pub warnings: Vec<Fault>,
}

/// Values of a column in order, and which parts have them.
struct SplitCells {
    column: String,
    values: ArrayRef,
    /// The number of parts that have each value, and the parts.
    parts: Vec<Vec<usize>>,
    /// True if there may be values below the first and above the last.
    is_open: bool,
    /// True if rows without a value are in a part, or if the column has one in each row.
    has_part_of_nulls: bool,
}

/// Neighbouring values that are in the same parts.
struct CellRun {
    first: usize,
    last: usize,
}

/// Checks the split of a pipeline, where its conditions compare one column with constants. The rows
/// of a source count only if the metadata of its files bound the values.
pub fn check_split(
    pipeline: &Pipeline,
    bound: &BoundPipeline,
    sql: &SqlCompiler,
    datasets: &BTreeMap<String, Dataset>,
) -> Result<SplitCheck> {
    let Some(split) = &pipeline.split else {
        return Ok(decided());
    };
    let Some(conditions) = split_conditions(split)? else {
        // A hash gives each row one part. Parts that no key falls into are found by counting alone. Boundaries that no
        // run has resolved decide nothing.
        return Ok(SplitCheck::default());
    };
    let Some((flow, source)) = first_divided(pipeline, bound) else {
        return Ok(SplitCheck::default());
    };
    let dataset = source.and_then(|source| datasets.get(source));
    let Some(cells) = split_cells(&conditions, &flow.schema, sql, dataset)? else {
        return Ok(SplitCheck::default());
    };
    let names: Vec<&str> = conditions.iter().map(|(name, _)| name.as_str()).collect();
    let has_gaps = matches!(
        split,
        DataSplit::Time {
            embargo: Some(_),
            ..
        }
    );
    let report = CellReport {
        cells: &cells,
        names: &names,
        dataset,
    };
    let mut warnings = report.overlaps();
    let gaps = report.gaps();
    if !has_gaps {
        warnings.extend(gaps.warnings);
    }
    warnings.extend(report.empty_parts());
    warnings.extend(report.reversed_parts(&learning_parts(pipeline)));
    let nulls = report.nulls();
    warnings.extend(nulls.warnings);
    let at = pipeline
        .sources
        .first()
        .and_then(|source| source.at.as_ref());
    let at = section_location(at, "split");
    Ok(SplitCheck {
        is_decided: (gaps.is_decided || has_gaps) && nulls.is_decided,
        warnings: warnings
            .into_iter()
            .map(|warning| warning.at(at.as_ref()))
            .collect(),
    })
}

/// The parts of a split that something is learned from: those under `fit_on`, and one that is called `train`.
fn learning_parts(pipeline: &Pipeline) -> BTreeSet<&str> {
    let nodes = pipeline.nodes.iter();
    let mut parts: BTreeSet<&str> = nodes.filter_map(|node| node.fit_on.as_deref()).collect();
    parts.insert("train");
    parts
}

fn decided() -> SplitCheck {
    SplitCheck {
        is_decided: true,
        warnings: Vec::new(),
    }
}

/// The first flow whose rows are divided. Its source comes with it where the split reads the columns of that.
fn first_divided<'a>(
    pipeline: &'a Pipeline,
    bound: &'a BoundPipeline,
) -> Option<(&'a NodeFlow, Option<&'a str>)> {
    let of_source = pipeline.sources.iter().find_map(|source| {
        let flow = bound.flows.get(&source.name).filter(|flow| flow.parts)?;
        let stream = flow.streams.first().filter(|_| flow.streams.len() == 1)?;
        let is_read =
            matches!(&bound.bases[stream.base], BaseDataset::Source(name) if *name == source.name);
        let is_plain = stream
            .ops
            .iter()
            .all(|op| matches!(bound.ops[*op].op, PlanOp::Map(_)));
        Some((flow, (is_read && is_plain).then_some(source.name.as_str())))
    });
    of_source.or_else(|| {
        let flows = pipeline
            .nodes
            .iter()
            .filter_map(|node| bound.flows.get(&node.name));
        Some((flows.into_iter().find(|flow| flow.parts)?, None))
    })
}

/// The values at which conditions are evaluated; `None` where they do not compare one column with constants.
fn split_cells(
    conditions: &[(String, String)],
    schema: &Schema,
    sql: &SqlCompiler,
    dataset: Option<&Dataset>,
) -> Result<Option<SplitCells>> {
    let mut columns = BTreeSet::new();
    let mut constants = Vec::new();
    let mut compiled = Vec::new();
    for (_, text) in conditions {
        let expression = sql.condition(text, schema)?;
        let Some(logical) = &expression.logical else {
            return Ok(None);
        };
        let simple = sql.simplify(logical, schema)?;
        if !collect_constants(&simple, &mut columns, &mut constants) {
            return Ok(None);
        }
        compiled.push(expression);
    }
    let mut columns = columns.into_iter();
    let Some(column) = columns.next() else {
        return Ok(None);
    };
    if columns.next().is_some() {
        return Ok(None);
    }
    let field = schema.field_with_name(&column)?;
    let data_type = logical_type(field.data_type());
    let extent = dataset.and_then(|dataset| column_extent(dataset, &column));
    let Some(values) = cell_values(&constants, &data_type, extent.as_ref())? else {
        return Ok(None);
    };
    let mut parts = vec![Vec::new(); values.len()];
    for (part, expression) in compiled.iter().enumerate() {
        let inputs: Vec<ArrayRef> = expression.reads.iter().map(|_| values.clone()).collect();
        // A text that stands between two constants may be no date, which the condition casts it to.
        let Ok(outputs) = (expression.kernel)(&inputs, values.len()) else {
            return Ok(None);
        };
        let Some(mask) = outputs.first().and_then(|output| output.as_boolean_opt()) else {
            return Ok(None);
        };
        add_part(&mut parts, part, mask);
    }
    let has_part_of_nulls = !field.is_nullable() || holds_nulls(&compiled, values.data_type());
    Ok(Some(SplitCells {
        column,
        values,
        parts,
        is_open: extent.is_none(),
        has_part_of_nulls,
    }))
}

/// True if a condition holds where its column is null.
fn holds_nulls(conditions: &[CompiledExpression], data_type: &DataType) -> bool {
    let null = new_null_array(data_type, 1);
    conditions.iter().any(|condition| {
        let inputs: Vec<ArrayRef> = condition.reads.iter().map(|_| null.clone()).collect();
        let Ok(outputs) = (condition.kernel)(&inputs, 1) else {
            return false;
        };
        let mask = outputs.first().and_then(|output| output.as_boolean_opt());
        mask.is_some_and(|mask| mask.true_count() > 0)
    })
}

fn add_part(parts: &mut [Vec<usize>], part: usize, mask: &BooleanArray) {
    for (cell, is_in) in mask.iter().enumerate() {
        if is_in == Some(true) {
            parts[cell].push(part);
        }
    }
}

/// Adds the columns and constants of a condition. Returns whether it compares columns with constants alone.
fn collect_constants(
    condition: &Expr,
    columns: &mut BTreeSet<String>,
    constants: &mut Vec<ScalarValue>,
) -> bool {
    match condition {
        Expr::Literal(..) => true,
        Expr::BinaryExpr(binary) if matches!(binary.op, Operator::And | Operator::Or) => {
            collect_constants(&binary.left, columns, constants)
                && collect_constants(&binary.right, columns, constants)
        }
        Expr::BinaryExpr(binary) if is_comparison(binary.op) => {
            collect_operand(&binary.left, columns, constants)
                && collect_operand(&binary.right, columns, constants)
        }
        Expr::Not(inner) => collect_constants(inner, columns, constants),
        Expr::IsNull(inner) | Expr::IsNotNull(inner) => collect_operand(inner, columns, constants),
        Expr::Between(between) => {
            collect_operand(&between.expr, columns, constants)
                && collect_operand(&between.low, columns, constants)
                && collect_operand(&between.high, columns, constants)
        }
        Expr::InList(list) => {
            collect_operand(&list.expr, columns, constants)
                && list
                    .list
                    .iter()
                    .all(|item| collect_operand(item, columns, constants))
        }
        _ => false,
    }
}

fn collect_operand(
    operand: &Expr,
    columns: &mut BTreeSet<String>,
    constants: &mut Vec<ScalarValue>,
) -> bool {
    match operand {
        Expr::Column(column) => {
            columns.insert(column.name.clone());
            true
        }
        Expr::Literal(value, _) => {
            constants.push(value.clone());
            true
        }
        // A cast to a time keeps the order of values.
        Expr::Cast(inner) if inner.field.data_type().is_temporal() => {
            matches!(*inner.expr, Expr::Column(_))
                && collect_operand(&inner.expr, columns, constants)
        }
        _ => false,
    }
}

fn column_extent(dataset: &Dataset, column: &str) -> Option<ColumnExtent> {
    let watched = dataset.watched.iter().position(|name| name == column)?;
    let extents: Vec<Option<ColumnExtent>> = dataset
        .spans
        .iter()
        .map(|span| span.extent(watched))
        .collect();
    ColumnExtent::union(extents.iter().map(Option::as_ref))
}

/// Each constant, a value between each two of them, and one beyond the first and the last; within the extent where it is
/// known. `None` for types whose values have no such order.
fn cell_values(
    constants: &[ScalarValue],
    data_type: &DataType,
    extent: Option<&ColumnExtent>,
) -> Result<Option<ArrayRef>> {
    let constants: Vec<ArrayRef> = constants
        .iter()
        .filter(|constant| !constant.is_null())
        .map(|constant| constant.to_array().map_err(arrow_fault))
        .collect::<Result<_>>()?;
    if *data_type == DataType::Utf8 {
        let mut texts = BTreeSet::from([String::new()]);
        for constant in &constants {
            let text = cast(constant, &DataType::Utf8)?;
            let text = text.as_string::<i32>().value(0).to_owned();
            texts.insert(format!("{text}\0"));
            texts.insert(text);
        }
        if let Some(ColumnExtent {
            min: BoundValue::Text(min),
            max: BoundValue::Text(max),
            ..
        }) = extent
        {
            texts.extend([min.clone(), max.clone()]);
            texts.retain(|text| min <= text && text <= max);
        }
        let texts: StringArray = texts.into_iter().map(Some).collect();
        return Ok(Some(std::sync::Arc::new(texts)));
    }
    if !(data_type.is_integer() || data_type.is_temporal()) {
        return Ok(None);
    }
    let mut ticks = BTreeSet::new();
    for constant in &constants {
        let Ok(constant) = cast(constant, data_type) else {
            return Ok(None);
        };
        let Some(tick) = tick_of(&constant)? else {
            return Ok(None);
        };
        ticks.extend([tick.saturating_sub(1), tick, tick.saturating_add(1)]);
    }
    if let Some(ColumnExtent {
        min: BoundValue::Int(min),
        max: BoundValue::Int(max),
        ..
    }) = extent
    {
        ticks.extend([*min, *max]);
        ticks.retain(|tick| min <= tick && tick <= max);
    }
    from_ticks(ticks.into_iter().collect(), data_type)
}

fn tick_of(constant: &ArrayRef) -> Result<Option<i64>> {
    let ticks = match constant.data_type() {
        DataType::Date32 | DataType::Time32(_) => {
            cast(&cast(constant, &DataType::Int32)?, &DataType::Int64)?
        }
        _ => cast(constant, &DataType::Int64)?,
    };
    let ticks = ticks.as_primitive::<Int64Type>();
    Ok(ticks.is_valid(0).then(|| ticks.value(0)))
}

fn from_ticks(ticks: Vec<i64>, data_type: &DataType) -> Result<Option<ArrayRef>> {
    let wide: ArrayRef = std::sync::Arc::new(Int64Array::from(ticks));
    let values = match data_type {
        DataType::Date32 | DataType::Time32(_) => {
            cast(&wide, &DataType::Int32).and_then(|narrow| cast(&narrow, data_type))
        }
        _ => cast(&wide, data_type),
    };
    // Values beyond the type's range are null.
    Ok(values.ok().filter(|values| values.null_count() == 0))
}

fn arrow_fault(error: datafusion::common::DataFusionError) -> Fault {
    Fault::internal("a constant of a split").cause(error)
}

/// Writes warnings about cells.
struct CellReport<'a> {
    cells: &'a SplitCells,
    names: &'a [&'a str],
    dataset: Option<&'a Dataset>,
}

impl CellReport<'_> {
    /// Runs of values that are in the same several parts.
    fn overlaps(&self) -> Vec<Fault> {
        let mut warnings = Vec::new();
        for run in self.runs(&|parts| parts.len() > 1) {
            let parts = self.cells.parts[run.first]
                .iter()
                .map(|part| format!("`{}`", self.names[*part]));
            let parts = parts.collect::<Vec<_>>().join(" and ");
            let message = format!(
                "parts of the split overlap: rows with {} are in {parts}{}",
                self.describe(&run),
                self.count(&run)
            );
            let hint = "let one part end where the next begins; what is learned from one part \
                        knows the rows of the other";
            warnings.push(Fault::new(codes::LEAKAGE, message).hint(hint));
        }
        warnings
    }

    /// Runs of values that are in no part. Without the extent of the column, only times between two others are taken for
    /// values that the rows have.
    fn gaps(&self) -> SplitCheck {
        let mut warnings = Vec::new();
        let mut is_decided = true;
        for run in self.runs(&|parts| parts.is_empty()) {
            let is_at_end = run.first == 0 || run.last + 1 == self.cells.values.len();
            let is_time = self.cells.values.data_type().is_temporal();
            if self.cells.is_open && (is_at_end || !is_time) {
                is_decided = false;
                continue;
            }
            let message = format!(
                "the split leaves rows out: those with {} are in no part{}",
                self.describe(&run),
                self.count(&run)
            );
            let hint = "widen a part, or filter these rows before";
            warnings.push(Fault::new(codes::EMPTY, message).hint(hint));
        }
        SplitCheck {
            is_decided,
            warnings,
        }
    }

    /// Rows without a value that are in no part, where metadata count them.
    fn nulls(&self) -> SplitCheck {
        if self.cells.has_part_of_nulls {
            return decided();
        }
        let column = &self.cells.column;
        let count = self.dataset.and_then(|dataset| dataset.null_count(column));
        let Some(count) = count else {
            return SplitCheck::default();
        };
        let mut warnings = Vec::new();
        if count > 0 {
            let message = format!(
                "the split leaves rows out: those without a `{column}` are in no part, {count} of \
                 them"
            );
            let hint = format!("say `OR {column} IS NULL` in a part, or filter these rows before");
            warnings.push(Fault::new(codes::EMPTY, message).hint(hint));
        }
        SplitCheck {
            is_decided: true,
            warnings,
        }
    }

    /// Parts that have none of the values.
    fn empty_parts(&self) -> Vec<Fault> {
        let mut warnings = Vec::new();
        for (part, name) in self.names.iter().enumerate() {
            if self.cells.parts.iter().any(|parts| parts.contains(&part)) {
                continue;
            }
            let column = &self.cells.column;
            let message = match (self.cells.is_open, self.text_of_last()) {
                (false, Some((first, last))) => format!(
                    "the part `{name}` of the split has no rows: `{column}` runs from {first} to \
                     {last}"
                ),
                _ => format!(
                    "the part `{name}` of the split has no rows: no value of `{column}` is in it"
                ),
            };
            let hint = "look at the bounds of the part, and at the times of the data";
            warnings.push(Fault::new(codes::EMPTY, message).hint(hint));
        }
        warnings
    }

    /// Parts to learn from whose times all lie behind those of a part that is listed after them.
    fn reversed_parts(&self, learning: &BTreeSet<&str>) -> Vec<Fault> {
        let mut warnings = Vec::new();
        if !self.cells.values.data_type().is_temporal() {
            return warnings;
        }
        let cells = &self.cells.parts;
        for (part, name) in self.names.iter().enumerate() {
            let begin = cells.iter().position(|parts| parts.contains(&part));
            let Some(begin) = begin.filter(|_| learning.contains(name)) else {
                continue;
            };
            for (other, other_name) in self.names.iter().enumerate().skip(part + 1) {
                let end = cells.iter().rposition(|parts| parts.contains(&other));
                let Some(end) = end.filter(|end| *end < begin) else {
                    continue;
                };
                let column = &self.cells.column;
                let message = format!(
                    "the part `{name}` of the split is later than `{other_name}`: its `{column}` \
                     begins at {}, and that of `{other_name}` ends at {}",
                    self.text(begin),
                    self.text(end)
                );
                let hint = "what is learned from later rows knows the future of earlier ones: \
                            exchange the conditions if they were mixed up";
                warnings.push(Fault::new(codes::LEAKAGE, message).hint(hint));
            }
        }
        warnings
    }

    fn text_of_last(&self) -> Option<(String, String)> {
        let last = self.cells.values.len().checked_sub(1)?;
        Some((self.text(0), self.text(last)))
    }

    /// The longest runs of neighbouring values with equal parts, among those that satisfy
    /// `is_wanted`.
    fn runs(&self, is_wanted: &dyn Fn(&[usize]) -> bool) -> Vec<CellRun> {
        let parts = &self.cells.parts;
        let mut runs: Vec<CellRun> = Vec::new();
        for cell in 0..parts.len() {
            if !is_wanted(&parts[cell]) {
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.last + 1 == cell && parts[run.first] == parts[cell] => {
                    run.last = cell;
                }
                _ => runs.push(CellRun {
                    first: cell,
                    last: cell,
                }),
            }
        }
        runs
    }

    fn text(&self, cell: usize) -> String {
        array_value_to_string(&self.cells.values, cell).unwrap_or_default()
    }

    fn describe(&self, run: &CellRun) -> String {
        let column = &self.cells.column;
        let first = self.text(run.first);
        let last = self.text(run.last);
        let is_open = self.cells.is_open;
        let from_start = is_open && run.first == 0;
        let to_end = is_open && run.last + 1 == self.cells.values.len();
        match (from_start, to_end) {
            (true, true) => format!("any `{column}`"),
            (true, false) => format!("`{column}` up to {last}"),
            (false, true) => format!("`{column}` from {first} on"),
            (false, false) if first == last => format!("`{column}` {first}"),
            (false, false) => format!("`{column}` from {first} to {last}"),
        }
    }

    /// The number of rows of a run, as far as the metadata of files bound it.
    fn count(&self, run: &CellRun) -> String {
        let Some(dataset) = self.dataset else {
            return String::new();
        };
        let Some(watched) = dataset
            .watched
            .iter()
            .position(|name| *name == self.cells.column)
        else {
            return String::new();
        };
        let Some(first) = self.bound(run.first) else {
            return String::new();
        };
        let Some(last) = self.bound(run.last) else {
            return String::new();
        };
        let mut least = 0;
        let mut most = 0;
        let mut total = 0;
        for piece in dataset.spans.iter().flat_map(|span| &span.pieces) {
            let Some(rows) = piece.rows else {
                return String::new();
            };
            let Some(extent) = piece.extents.get(watched).and_then(Option::as_ref) else {
                return String::new();
            };
            total += rows;
            if first <= extent.min && extent.max <= last && !extent.nulls {
                least += rows;
            }
            if first <= extent.max && extent.min <= last {
                most += rows;
            }
        }
        match (least, most) {
            (0, most) => format!(", at most {most} of {total} rows"),
            (least, most) if least == most => format!(", {least} of {total} rows"),
            (least, most) => format!(", between {least} and {most} of {total} rows"),
        }
    }

    fn bound(&self, cell: usize) -> Option<BoundValue> {
        let value = self.cells.values.slice(cell, 1);
        match value.data_type() {
            DataType::Utf8 => Some(BoundValue::Text(
                value.as_string::<i32>().value(0).to_owned(),
            )),
            _ => tick_of(&value).ok().flatten().map(BoundValue::Int),
        }
    }
}
