//! As-of joins: both sides are sorted together by key and time, so that each row meets the row of the other side that
//! was valid at its time. Neither side has to fit into memory.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions,
    UInt64Array, make_comparator, new_null_array,
};
use arrow::compute::kernels::zip::zip;
use arrow::compute::{SortOptions, interleave, partition};
use arrow::datatypes::{DataType, Field, Int8Type, Int64Type, Schema, SchemaRef, UInt64Type};
use datafusion::common::{DataFusionError, ScalarValue};
use datafusion::logical_expr::{
    Expr, LogicalPlan, LogicalPlanBuilder, SortExpr, cast, ident, lit, when,
};
use forebay_model::Result;
use forebay_plan::{AsOf, GatherOp, JoinOp, PrecomputedOutputs, canonical_key};

use crate::sorted_outputs::SortedRows;
use crate::sorted_pass::{BatchFn, SortedOperator};

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
    here: LogicalPlan,
    there: LogicalPlan,
    keys: &[(String, DataType)],
) -> Result<(LogicalPlan, Vec<SortExpr>), DataFusionError> {
    let types: Vec<DataType> = keys
        .iter()
        .map(|(_, data_type)| data_type.clone())
        .collect();
    let both = union_sides(join, as_of, here, there, &types)?;
    let keys = (0..join.keys.len()).map(|key| ident(format!("__key{key}")).sort(true, true));
    let order = [
        ident(SEEN).sort(backward, true),
        ident(SIDE).sort(true, true),
        ident(GatherOp::ROW).sort(true, true),
    ];
    Ok((both, keys.chain(order).collect()))
}

/// The rows of both sides with the same columns: keys, `VISIBLE_AT`, [`SIDE`], [`TIME`], the joined columns, the row's
/// position.
fn union_sides(
    join: &JoinOp,
    as_of: &AsOf,
    here: LogicalPlan,
    there: LogicalPlan,
    types: &[DataType],
) -> Result<LogicalPlan, DataFusionError> {
    let types_of = |plan: &LogicalPlan, name: &String| -> Result<DataType, DataFusionError> {
        Ok(plan
            .schema()
            .field_with_unqualified_name(name)?
            .data_type()
            .clone())
    };
    let mut common = types_of(&here, &as_of.time)?;
    for name in [&as_of.other_time].into_iter().chain(&as_of.known_at) {
        let found = types_of(&there, name)?;
        let unlike = || DataFusionError::Internal("times that cannot be compared".to_owned());
        common = AsOf::time_type(&common, &found).ok_or_else(unlike)?;
    }
    // Casting a time fails if the finer unit cannot hold it.
    let ticks = |name: &String| cast(cast(ident(name.as_str()), common.clone()), DataType::Int64);
    let key = |(place, (name, data_type)): (usize, (&String, &DataType))| {
        canonical_key(cast(ident(name.as_str()), data_type.clone()), data_type)
            .alias(format!("__key{place}"))
    };
    let mut left: Vec<Expr> = join
        .keys
        .iter()
        .map(|(here, _)| here)
        .zip(types)
        .enumerate()
        .map(key)
        .collect();
    left.extend([
        ticks(&as_of.time).alias(SEEN),
        lit(HERE).alias(SIDE),
        lit(ScalarValue::Int64(None)).alias(TIME),
    ]);
    let mut right: Vec<Expr> = join
        .keys
        .iter()
        .map(|(_, there)| there)
        .zip(types)
        .enumerate()
        .map(key)
        .collect();
    let time = ticks(&as_of.other_time);
    let seen = match &as_of.known_at {
        None => time.clone(),
        Some(known) => when(ticks(known).gt(time.clone()), ticks(known)).otherwise(time.clone())?,
    };
    // A right row of the same time matches only if it sorts before the left row.
    let side = if as_of.exact { HERE - 1 } else { HERE + 1 };
    right.extend([
        seen.alias(SEEN),
        lit(side).alias(SIDE),
        time.clone().alias(TIME),
    ]);
    for (index, (there, field)) in join.columns.iter().enumerate() {
        let name = format!("__column{index}");
        left.push(lit(ScalarValue::try_from(field.data_type())?).alias(name.clone()));
        right.push(cast(ident(there.as_str()), field.data_type().clone()).alias(name));
    }
    left.push(ident(GatherOp::ROW));
    right.push(ident(GatherOp::ROW));
    let mut known = time.is_not_null();
    if let Some(column) = &as_of.known_at {
        known = known.and(ident(column.as_str()).is_not_null());
    }
    let right = LogicalPlanBuilder::from(there)
        .filter(known)?
        .project(right)?
        .build()?;
    LogicalPlanBuilder::from(here)
        .project(left)?
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

/// What one batch carries over to the next: the last key and its matching row.
struct AsOfCarryover {
    keys: Vec<ArrayRef>,
    best: Option<(Vec<ArrayRef>, i64)>,
}

impl SortedOperator for AsOfOperator {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn start(&self) -> BatchFn {
        let (count, tolerance, by_time, schema) =
            (self.keys, self.tolerance, self.by_time, self.schema.clone());
        let mut kept: Option<AsOfCarryover> = None;
        Box::new(move |batch| {
            let columns = batch.columns();
            let keys = &columns[..count];
            let seen = columns[count].as_primitive::<Int64Type>();
            let side = columns[count + 1].as_primitive::<Int8Type>();
            let time = columns[count + 2].as_primitive::<Int64Type>();
            let values = &columns[count + 3..columns.len() - 1];
            let positions = columns[columns.len() - 1].as_primitive::<UInt64Type>();
            let groups = match (batch.num_rows(), keys) {
                (0, _) => Vec::new(),
                (rows, []) => std::iter::once(0..rows).collect(),
                (_, keys) => partition(keys)?.ranges(),
            };
            let mut best = match &kept {
                Some(kept) if batch.num_rows() > 0 && same_key(&kept.keys, keys)? => {
                    kept.best.as_ref().map(|(_, time)| AsOfCandidate {
                        row: None,
                        time: *time,
                    })
                }
                _ => None,
            };
            let (mut picks, mut distances, mut rows) = (Vec::new(), Vec::new(), Vec::new());
            for (index, group) in groups.into_iter().enumerate() {
                if index > 0 {
                    best = None;
                }
                let whole = keys.iter().all(|key| key.is_valid(group.start));
                for row in group {
                    if side.value(row) != HERE {
                        let newer =
                            best.is_none_or(|best| !by_time || time.value(row) >= best.time);
                        if whole && newer {
                            best = Some(AsOfCandidate {
                                row: Some(row),
                                time: time.value(row),
                            });
                        }
                        continue;
                    }
                    let near = best
                        .filter(|_| seen.is_valid(row))
                        .map(|best| (best, seen.value(row).abs_diff(best.time)));
                    let near = near.filter(|(_, distance)| {
                        tolerance.is_none_or(|most| *distance <= most.unsigned_abs())
                    });
                    picks.push(match near {
                        None => (0, 0),
                        Some((AsOfCandidate { row: None, .. }, _)) => (1, 0),
                        Some((AsOfCandidate { row: Some(row), .. }, _)) => (2, row),
                    });
                    distances.push(
                        near.map(|(_, distance)| i64::try_from(distance).unwrap_or(i64::MAX)),
                    );
                    rows.push(positions.value(row));
                }
            }
            let mut outputs: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(distances))];
            let before = kept.as_ref().and_then(|kept| kept.best.as_ref());
            for (index, column) in values.iter().enumerate() {
                let null = new_null_array(column.data_type(), 1);
                let before =
                    before.map_or_else(|| null.clone(), |(columns, _)| columns[index].clone());
                outputs.push(interleave(&[&null, &before, column], &picks)?);
            }
            let count = rows.len();
            outputs.push(Arc::new(UInt64Array::from(rows)));
            if let Some(last) = batch.num_rows().checked_sub(1) {
                let one = |columns: &[ArrayRef], row: usize| {
                    columns
                        .iter()
                        .map(|column| copy_row(column, row))
                        .collect::<Vec<_>>()
                };
                let best = match (best, kept.take().and_then(|kept| kept.best)) {
                    (None, _) => None,
                    (
                        Some(AsOfCandidate {
                            row: Some(row),
                            time,
                        }),
                        _,
                    ) => Some((one(values, row), time)),
                    (Some(AsOfCandidate { row: None, .. }), before) => before,
                };
                kept = Some(AsOfCarryover {
                    keys: one(keys, last),
                    best,
                });
            }
            let options = RecordBatchOptions::new().with_row_count(Some(count));
            Ok(RecordBatch::try_new_with_options(
                schema.clone(),
                outputs,
                &options,
            )?)
        })
    }
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

/// The outputs of an as-of join for the rows of one span; with two directions, the nearer match.
pub struct AsOfRows {
    pub before: SortedRows,
    pub after: Option<SortedRows>,
}

impl PrecomputedOutputs for AsOfRows {
    fn take(&mut self, rows: usize, emit: &[bool]) -> Result<Vec<ArrayRef>> {
        // The distance is the first column of the files.
        let wanted: Vec<bool> = std::iter::once(self.after.is_some())
            .chain(emit.iter().copied())
            .collect();
        let before = self.before.take(rows, &wanted)?;
        let Some(after) = &mut self.after else {
            return Ok(before);
        };
        let after = after.take(rows, &wanted)?;
        let distance = |columns: &[ArrayRef]| -> Vec<Option<i64>> {
            columns
                .first()
                .map(|column| column.as_primitive::<Int64Type>().iter().collect())
                .unwrap_or_default()
        };
        let pairs = distance(&before).into_iter().zip(distance(&after));
        let earlier: BooleanArray = pairs
            .map(|(before, after)| match (before, after) {
                (Some(before), Some(after)) => Some(before <= after),
                (_, after) => Some(after.is_none()),
            })
            .collect();
        before
            .iter()
            .zip(&after)
            .skip(1)
            .map(|(before, after)| Ok(zip(&earlier, before, after)?))
            .collect()
    }
}
