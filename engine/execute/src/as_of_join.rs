//! As-of joins: both sides are sorted together by key and time, so that each row is matched with
//! the row of the other side that was valid at its time. Neither side has to fit into memory.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int8Array, Int64Array, RecordBatch, RecordBatchOptions, UInt64Array,
    make_comparator, new_null_array,
};
use arrow::compute::{SortOptions, interleave, partition};
use arrow::datatypes::{DataType, Field, Int8Type, Int64Type, Schema, SchemaRef, UInt64Type};
use datafusion::common::{DataFusionError, ScalarValue};
use datafusion::logical_expr::{
    Expr, LogicalPlan, LogicalPlanBuilder, SortExpr, cast, ident, lit, when,
};
use forebay_model::{AdmittedMemory, Result, picked_text_bytes, picks_within};
use forebay_plan::{AdmitBytes, AsOf, GatherOp, JoinOp, canonical_key};
use forebay_storage::MemoryBudget;

use crate::admission::admission;
use crate::sorted_operator::{BatchFn, GiveOutputsFn, OUTPUT_TEXT_BYTES, SortedOperator};

/// The time by which both sides are sorted: the row's own time on the left, the time from which the row is visible on
/// the right.
const SEEN: &str = "__seen";
/// The order among rows of the same time; `LEFT_SIDE` for the left side.
const SIDE: &str = "__side";
/// The right side's own time; null on the left side.
const TIME: &str = "__time";
/// The left side's value of [`SIDE`].
const HERE: i8 = 1;

/// The union of both sides, and the order in which each left row meets the right rows.
pub fn as_of_order(
    join: &JoinOp,
    as_of: &AsOf,
    backward: bool,
    own_side: LogicalPlan,
    other_side: LogicalPlan,
    keys: &[(String, DataType)],
) -> Result<(LogicalPlan, Vec<SortExpr>), DataFusionError> {
    let types: Vec<DataType> = keys
        .iter()
        .map(|(_, data_type)| data_type.clone())
        .collect();
    let union = union_sides(join, as_of, own_side, other_side, &types)?;
    let keys = (0..join.keys.len()).map(|key| ident(format!("__key{key}")).sort(true, true));
    let order = [
        ident(SEEN).sort(backward, true),
        ident(SIDE).sort(true, true),
        ident(GatherOp::ROW).sort(true, true),
    ];
    Ok((union, keys.chain(order).collect()))
}

fn type_of(plan: &LogicalPlan, column: &str) -> Result<DataType, DataFusionError> {
    let field = plan.schema().field_with_unqualified_name(column)?;
    Ok(field.data_type().clone())
}

/// The time as a number of ticks of a type. The cast fails if the finer unit cannot hold the time.
fn ticks_of(column: &str, time_type: &DataType) -> Expr {
    cast(cast(ident(column), time_type.clone()), DataType::Int64)
}

fn join_key(column: &str, data_type: &DataType) -> Expr {
    canonical_key(cast(ident(column), data_type.clone()), data_type)
}

/// The rows of both sides with the same columns: keys, `VISIBLE_AT`, [`SIDE`], [`TIME`], the joined columns, the row's
/// position.
fn union_sides(
    join: &JoinOp,
    as_of: &AsOf,
    own_side: LogicalPlan,
    other_side: LogicalPlan,
    types: &[DataType],
) -> Result<LogicalPlan, DataFusionError> {
    let mut common = type_of(&own_side, &as_of.time)?;
    for name in [&as_of.other_time].into_iter().chain(&as_of.known_at) {
        let other_type = type_of(&other_side, name)?;
        let unlike = || DataFusionError::Internal("times that cannot be compared".to_owned());
        common = AsOf::time_type(&common, &other_type).ok_or_else(unlike)?;
    }
    let mut own_columns = Vec::new();
    let mut right = Vec::new();
    for (number, ((own_key, other_key), data_type)) in join.keys.iter().zip(types).enumerate() {
        let alias = format!("__key{number}");
        own_columns.push(join_key(own_key, data_type).alias(alias.clone()));
        right.push(join_key(other_key, data_type).alias(alias));
    }
    own_columns.extend([
        ticks_of(&as_of.time, &common).alias(SEEN),
        lit(HERE).alias(SIDE),
        lit(ScalarValue::Int64(None)).alias(TIME),
    ]);
    let time = ticks_of(&as_of.other_time, &common);
    let seen = match &as_of.known_at {
        None => time.clone(),
        // A row is seen once it is known, but not before its own time.
        Some(known_at) => {
            let known_time = ticks_of(known_at, &common);
            when(known_time.clone().gt(time.clone()), known_time).otherwise(time.clone())?
        }
    };
    // A right row of the same time matches only if it sorts before the left row.
    let side = if as_of.exact { HERE - 1 } else { HERE + 1 };
    right.extend([
        seen.alias(SEEN),
        lit(side).alias(SIDE),
        time.clone().alias(TIME),
    ]);
    for (index, (other_name, field)) in join.columns.iter().enumerate() {
        let name = format!("__column{index}");
        own_columns.push(lit(ScalarValue::try_from(field.data_type())?).alias(name.clone()));
        right.push(cast(ident(other_name.as_str()), field.data_type().clone()).alias(name));
    }
    own_columns.push(ident(GatherOp::ROW));
    right.push(ident(GatherOp::ROW));
    let mut is_usable = time.is_not_null();
    if let Some(column) = &as_of.known_at {
        is_usable = is_usable.and(ident(column.as_str()).is_not_null());
    }
    let right = LogicalPlanBuilder::from(other_side)
        .filter(is_usable)?
        .project(right)?
        .build()?;
    LogicalPlanBuilder::from(own_side)
        .project(own_columns)?
        .union(right)?
        .build()
}

/// A pass over both sides in order.
pub struct AsOfOperator {
    keys: usize,
    tolerance: Option<i64>,
    /// Right rows become visible in another order than their own times: the latest one matches.
    by_time: bool,
    schema: SchemaRef,
    /// Asked for long texts that many rows match.
    admit: Option<AdmitBytes>,
}

impl AsOfOperator {
    pub fn new(join: &JoinOp, as_of: &AsOf) -> Self {
        let mut fields = vec![Field::new("distance", DataType::Int64, true)];
        fields.extend(
            join.columns
                .iter()
                .map(|(_, field)| field.clone().with_nullable(true)),
        );
        fields.push(Field::new(GatherOp::ROW, DataType::UInt64, false));
        AsOfOperator {
            keys: join.keys.len(),
            tolerance: as_of.tolerance,
            by_time: as_of.known_at.is_some(),
            schema: Arc::new(Schema::new(fields)),
            admit: None,
        }
    }

    /// Bounds the memory of a batch of matches.
    pub fn within(self, memory: MemoryBudget) -> Self {
        AsOfOperator {
            admit: Some(admission(memory)),
            ..self
        }
    }
}

/// The right row that matches so far.
#[derive(Clone, Copy)]
struct AsOfCandidate {
    /// A row of the current batch; `None` for the row carried over from an earlier batch.
    row: Option<usize>,
    time: i64,
}

/// State carried from one batch to the next: the last key and its matching row.
struct AsOfCarryover {
    keys: Vec<ArrayRef>,
    best: Option<(Vec<ArrayRef>, i64)>,
}

impl SortedOperator for AsOfOperator {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn start(&self) -> BatchFn {
        let mut matcher = AsOfMatcher {
            key_count: self.keys,
            tolerance: self.tolerance,
            by_time: self.by_time,
            schema: self.schema.clone(),
            carryover: None,
            admit: self.admit.clone(),
        };
        Box::new(move |batch, give| match batch {
            Some(batch) => matcher.join(batch, give),
            None => Ok(()),
        })
    }
}

/// Matches the rows of consecutive batches, sorted by key and time.
struct AsOfMatcher {
    key_count: usize,
    tolerance: Option<i64>,
    by_time: bool,
    schema: SchemaRef,
    carryover: Option<AsOfCarryover>,
    admit: Option<AdmitBytes>,
}

/// Columns of the union of both sides.
struct UnionColumns<'a> {
    keys: &'a [ArrayRef],
    seen: &'a Int64Array,
    side: &'a Int8Array,
    time: &'a Int64Array,
    values: &'a [ArrayRef],
    positions: &'a UInt64Array,
}

impl<'a> UnionColumns<'a> {
    fn new(batch: &'a RecordBatch, key_count: usize) -> UnionColumns<'a> {
        let columns = batch.columns();
        let last = columns.len() - 1;
        UnionColumns {
            keys: &columns[..key_count],
            seen: columns[key_count].as_primitive::<Int64Type>(),
            side: columns[key_count + 1].as_primitive::<Int8Type>(),
            time: columns[key_count + 2].as_primitive::<Int64Type>(),
            values: &columns[key_count + 3..last],
            positions: columns[last].as_primitive::<UInt64Type>(),
        }
    }

    /// Rows of each key.
    fn groups(&self) -> Result<Vec<Range<usize>>> {
        match (self.side.len(), self.keys) {
            (0, _) => Ok(Vec::new()),
            (rows, []) => Ok(std::iter::once(0..rows).collect()),
            (_, keys) => Ok(partition(keys)?.ranges()),
        }
    }
}

/// Matches of the own side's rows of a batch.
#[derive(Default)]
struct BatchMatches {
    /// Array and row of each match: null, the row carried over, or a row of the batch.
    picks: Vec<(usize, usize)>,
    distances: Vec<Option<i64>>,
    /// Positions of the rows
    rows: Vec<u64>,
    /// Candidate behind the last row
    best: Option<AsOfCandidate>,
}

impl AsOfMatcher {
    fn join(&mut self, batch: &RecordBatch, give: GiveOutputsFn<'_>) -> Result<()> {
        let columns = UnionColumns::new(batch, self.key_count);
        let matches = self.match_rows(&columns)?;
        let mut nulls = Vec::with_capacity(columns.values.len());
        for column in columns.values {
            nulls.push(new_null_array(column.data_type(), 1));
        }
        let sources = self.sources(&columns, &nulls);
        let mut from = 0;
        while from < matches.rows.len() {
            let picks = &matches.picks[from..];
            let until = from + picks_within(&sources, picks, OUTPUT_TEXT_BYTES);
            give(&self.outputs(&sources, &matches, from..until)?)?;
            from = until;
        }
        self.carry_over(&columns, matches.best);
        Ok(())
    }

    /// The arrays that matches pick each column from.
    fn sources<'s>(
        &'s self,
        columns: &UnionColumns<'s>,
        nulls: &'s [ArrayRef],
    ) -> Vec<[&'s dyn Array; 3]> {
        let carryover = self.carryover.as_ref();
        let earlier = carryover.and_then(|carryover| carryover.best.as_ref());
        let mut sources: Vec<[&dyn Array; 3]> = Vec::with_capacity(nulls.len());
        for (index, (column, null)) in columns.values.iter().zip(nulls).enumerate() {
            let earlier_value = match earlier {
                Some((values, _)) => &values[index],
                None => null,
            };
            sources.push([null, earlier_value, column]);
        }
        sources
    }

    /// The outputs of some matches.
    fn outputs(
        &self,
        sources: &[[&dyn Array; 3]],
        matches: &BatchMatches,
        rows: Range<usize>,
    ) -> Result<RecordBatch> {
        let picks = &matches.picks[rows.clone()];
        let distances = matches.distances[rows.clone()].to_vec();
        let positions = matches.rows[rows.clone()].to_vec();
        let mut outputs: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(distances))];
        for sources in sources {
            // Reserved until the column is made.
            let _admitted = match &self.admit {
                Some(admit) => admit(picked_text_bytes(sources, picks))?,
                None => AdmittedMemory::default(),
            };
            outputs.push(interleave(sources, picks)?);
        }
        outputs.push(Arc::new(UInt64Array::from(positions)));
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let schema = self.schema.clone();
        Ok(RecordBatch::try_new_with_options(
            schema, outputs, &options,
        )?)
    }

    fn match_rows(&self, columns: &UnionColumns<'_>) -> Result<BatchMatches> {
        let mut matches = BatchMatches {
            best: self.carried_candidate(columns)?,
            ..BatchMatches::default()
        };
        for (index, group) in columns.groups()?.into_iter().enumerate() {
            if index > 0 {
                matches.best = None;
            }
            let is_whole_key = columns.keys.iter().all(|key| key.is_valid(group.start));
            for row in group {
                if columns.side.value(row) == HERE {
                    let nearest = self.nearest(columns, row, matches.best);
                    matches.push(columns, row, nearest);
                } else if is_whole_key && self.is_newer(columns, row, matches.best) {
                    matches.best = Some(AsOfCandidate {
                        row: Some(row),
                        time: columns.time.value(row),
                    });
                }
            }
        }
        Ok(matches)
    }

    /// The row carried over, if the batch begins with its key.
    fn carried_candidate(&self, columns: &UnionColumns<'_>) -> Result<Option<AsOfCandidate>> {
        let Some(carryover) = &self.carryover else {
            return Ok(None);
        };
        if columns.side.is_empty() || !same_key(&carryover.keys, columns.keys)? {
            return Ok(None);
        }
        let best = carryover.best.as_ref();
        Ok(best.map(|(_, time)| AsOfCandidate {
            row: None,
            time: *time,
        }))
    }

    /// True if a row of the other side replaces the candidate before it.
    fn is_newer(
        &self,
        columns: &UnionColumns<'_>,
        row: usize,
        best: Option<AsOfCandidate>,
    ) -> bool {
        best.is_none_or(|best| !self.by_time || columns.time.value(row) >= best.time)
    }

    /// The candidate with its distance, unless it is too far away.
    fn nearest(
        &self,
        columns: &UnionColumns<'_>,
        row: usize,
        best: Option<AsOfCandidate>,
    ) -> Option<(AsOfCandidate, u64)> {
        if !columns.seen.is_valid(row) {
            return None;
        }
        let best = best?;
        let distance = columns.seen.value(row).abs_diff(best.time);
        let is_near = self
            .tolerance
            .is_none_or(|most| distance <= most.unsigned_abs());
        is_near.then_some((best, distance))
    }

    /// Keeps the last key and its matching row for the next batch.
    fn carry_over(&mut self, columns: &UnionColumns<'_>, best: Option<AsOfCandidate>) {
        let Some(last) = columns.side.len().checked_sub(1) else {
            return;
        };
        let earlier = self.carryover.take();
        let best = match best {
            None => None,
            Some(AsOfCandidate {
                row: Some(row),
                time,
            }) => Some((copy_rows(columns.values, row), time)),
            Some(AsOfCandidate { row: None, .. }) => earlier.and_then(|earlier| earlier.best),
        };
        self.carryover = Some(AsOfCarryover {
            keys: copy_rows(columns.keys, last),
            best,
        });
    }
}

impl BatchMatches {
    fn push(
        &mut self,
        columns: &UnionColumns<'_>,
        row: usize,
        nearest: Option<(AsOfCandidate, u64)>,
    ) {
        self.picks.push(match nearest {
            None => (0, 0),
            Some((AsOfCandidate { row: None, .. }, _)) => (1, 0),
            Some((AsOfCandidate { row: Some(row), .. }, _)) => (2, row),
        });
        let distance = nearest.map(|(_, distance)| i64::try_from(distance).unwrap_or(i64::MAX));
        self.distances.push(distance);
        self.rows.push(columns.positions.value(row));
    }
}

fn copy_rows(columns: &[ArrayRef], row: usize) -> Vec<ArrayRef> {
    columns.iter().map(|column| copy_row(column, row)).collect()
}

/// Copies one row, so that the batch can be freed.
fn copy_row(column: &ArrayRef, row: usize) -> ArrayRef {
    interleave(&[column.as_ref()], &[(0, row)]).unwrap_or_else(|_| column.slice(row, 1))
}

fn same_key(last: &[ArrayRef], keys: &[ArrayRef]) -> Result<bool> {
    for (last, key) in last.iter().zip(keys) {
        if make_comparator(last, key, SortOptions::default())?(0, 0) != Ordering::Equal {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use arrow::array::StringArray;

    use super::*;

    /// Each row here gets a copy of the text there.
    #[test]
    fn long_texts_are_given_with_few_rows_at_a_time() {
        let fields = [
            ("distance", DataType::Int64),
            ("text", DataType::Utf8),
            ("row", DataType::UInt64),
        ];
        let fields = fields.map(|(name, data_type)| Field::new(name, data_type, true));
        let mut matcher = AsOfMatcher {
            key_count: 0,
            tolerance: None,
            by_time: true,
            schema: Arc::new(Schema::new(fields.to_vec())),
            carryover: None,
            admit: None,
        };
        let text = "x".repeat(1 << 20);
        let mut texts = vec![None; 13];
        texts[0] = Some(text.as_str());
        let sides = (0..13).map(|row| if row == 0 { 1 - HERE } else { HERE });
        let columns: [(&str, ArrayRef); 5] = [
            ("seen", Arc::new(Int64Array::from_iter_values(0..13))),
            ("side", Arc::new(Int8Array::from_iter_values(sides))),
            ("time", Arc::new(Int64Array::from_iter_values(0..13))),
            ("text", Arc::new(StringArray::from(texts))),
            ("row", Arc::new(UInt64Array::from_iter_values(0..13))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut parts = Vec::new();
        let joined = matcher.join(&batch, &mut |part| {
            parts.push(part.clone());
            Ok(())
        });
        joined.unwrap();
        let rows: Vec<usize> = parts.iter().map(RecordBatch::num_rows).collect();
        assert_eq!(rows, [4, 4, 4]);
        for part in &parts {
            let texts = part.column(1).as_string::<i32>();
            assert!(texts.iter().all(|read| read == Some(text.as_str())));
        }
        let last = parts[2].column(2).as_primitive::<UInt64Type>();
        assert_eq!(last.values(), &[9, 10, 11, 12]);
        // The text counts for the rows of the next batch, too.
        let mut next = Vec::new();
        let joined = matcher.join(&batch.slice(1, 2), &mut |part| {
            next.push(part.num_rows());
            Ok(())
        });
        joined.unwrap();
        assert_eq!(next, [2]);
    }
}
