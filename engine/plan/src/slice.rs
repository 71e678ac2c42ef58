//! Backward slices: the fewest columns to read and operations to run for some columns.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow::datatypes::Field;
use datafusion::logical_expr::Expr;
use forebay_model::NameIndex;

use crate::split::PART_PREFIX;
use crate::{BaseId, BoundAnalyzer, BoundPipeline, ColumnScan, OpId, OpList, OpStream, PlanOp};

/// Columns requested at a point of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SliceTarget<'a> {
    /// Number of the stream's operations before the point.
    pub after: usize,
    /// Column names.
    pub columns: Vec<&'a str>,
}

impl BoundAnalyzer {
    /// The columns that the analyzer reads after `op_count` operations.
    pub(crate) fn slice_target(&self, op_count: usize) -> SliceTarget<'_> {
        SliceTarget {
            after: op_count,
            columns: self
                .ask
                .inputs
                .iter()
                .chain(&self.part)
                .map(String::as_str)
                .collect(),
        }
    }
}

/// The slice of a stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct StreamSlice {
    /// Indices into the stream's operations, ascending.
    pub ops: Vec<usize>,
    /// Columns of the base to read, in the order of its schema.
    pub columns: Vec<String>,
    /// Columns that select rows.
    pub row_columns: BTreeSet<String>,
    /// All columns that are read before the first operation, those of the base or not.
    pub live: BTreeSet<String>,
}

/// Slices a stream backward. An operation is needed if it selects rows, or if one of its outputs is needed after
/// it.
pub(crate) fn slice_stream(
    bound: &BoundPipeline,
    stream: &OpStream,
    targets: &[SliceTarget<'_>],
) -> StreamSlice {
    StreamIndex::new(bound, stream).slice(targets)
}

/// Targets for the operations that rows before a stream passed, and that its slice lacks. Windows over both are then
/// merged alike.
pub(crate) fn missing_targets<'b>(
    bound: &'b BoundPipeline,
    stream: &OpStream,
    needed: &[usize],
    passed: &BTreeSet<OpId>,
) -> Vec<SliceTarget<'b>> {
    let mut targets = Vec::new();
    for (position, op) in stream.ops.iter().enumerate() {
        if !passed.contains(op) || needed.binary_search(&position).is_ok() {
            continue;
        }
        let written = bound.ops[*op].op.written_columns();
        targets.push(SliceTarget {
            after: position + 1,
            columns: written.into_iter().map(String::as_str).collect(),
        });
    }
    targets
}

/// The operations of a stream by the columns that they write. A step over thousands of columns has an operation and an
/// analyzer for each: a slice finds the operations of one of them without a look at the others.
pub struct StreamIndex<'b> {
    bound: &'b BoundPipeline,
    base: BaseId,
    /// The list whose operations are indexed, with those that are expected to follow.
    ops: OpList,
    /// Positions of the operations that write a column, ascending.
    writers: HashMap<&'b str, Vec<usize>>,
    /// Positions of the operations that every slice has, ascending.
    row_ops: Vec<usize>,
    /// Positions of projections, ascending.
    projections: Vec<usize>,
    /// Position of the first operation over series.
    first_over_series: Option<usize>,
    base_columns: NameIndex<'b>,
}

impl<'b> StreamIndex<'b> {
    /// Indexes the operations of a stream.
    pub fn new(bound: &'b BoundPipeline, stream: &OpStream) -> StreamIndex<'b> {
        let mut index = StreamIndex {
            bound,
            base: stream.base,
            ops: stream.ops.clone(),
            writers: HashMap::new(),
            row_ops: Vec::new(),
            projections: Vec::new(),
            first_over_series: None,
            base_columns: NameIndex::of_fields(bound.base_schemas[stream.base].fields()),
        };
        for (position, id) in stream.ops.with_expected().iter().enumerate() {
            // Operations that are expected may never have come.
            if let Some(op) = bound.ops.get(*id) {
                index.add(position, &op.op);
            }
        }
        index
    }

    fn add(&mut self, position: usize, op: &'b PlanOp) {
        if op.is_over_series() && self.first_over_series.is_none() {
            self.first_over_series = Some(position);
        }
        match op {
            PlanOp::Map(map) => self.add_writes(position, map.writes.iter()),
            PlanOp::Window(window) => self.add_writes(position, window.writes.iter()),
            PlanOp::Series(series) => self.add_writes(position, series.writes.iter()),
            PlanOp::Join(join) => self.add_writes(position, join.writes()),
            PlanOp::Expand(expand) => {
                self.row_ops.push(position);
                self.add_writes(position, expand.writes.iter());
            }
            PlanOp::Project(_) => {
                self.row_ops.push(position);
                self.projections.push(position);
            }
            PlanOp::Keep(_) => self.row_ops.push(position),
            PlanOp::Gather(_) => {}
        }
    }

    fn add_writes(&mut self, position: usize, fields: impl Iterator<Item = &'b Field>) {
        for field in fields {
            let positions = self.writers.entry(field.name()).or_default();
            positions.push(position);
        }
    }

    /// True if one of the first `op_count` operations is over series.
    pub(crate) fn is_over_series(&self, op_count: usize) -> bool {
        self.first_over_series.is_some_and(|first| first < op_count)
    }

    /// Number of operations through the last one, of the first `op_count`, that writes, renames or drops a column.
    pub(crate) fn changes(&self, op_count: usize, column: &str) -> usize {
        let writers = self.writers.get(column);
        let writers = writers.map(Vec::as_slice).unwrap_or_default();
        let written = last_before(writers, op_count);
        let projected = last_before(&self.projections, op_count);
        written.max(projected).map_or(0, |last| last + 1)
    }

    /// The slice for some columns after the first `op_count` operations: the indices of the operations, and the columns of
    /// the base.
    pub fn slice_for_columns(
        &self,
        op_count: usize,
        columns: &[&str],
    ) -> (Vec<usize>, Vec<String>) {
        let target = SliceTarget {
            after: op_count,
            columns: columns.to_vec(),
        };
        let slice = self.slice(&[target]);
        (slice.ops, slice.columns)
    }

    /// The slice for targets.
    pub(crate) fn slice(&self, targets: &[SliceTarget<'_>]) -> StreamSlice {
        let mut open_targets: Vec<&SliceTarget<'_>> = targets.iter().collect();
        open_targets.sort_by_key(|target| target.after);
        let op_count = open_targets.last().map_or(0, |target| target.after);
        let row_ops = self.row_ops.iter().copied();
        let mut walk = BackwardWalk {
            index: self,
            open_ops: row_ops
                .take_while(|position| *position < op_count)
                .collect(),
            live: BTreeSet::new(),
            live_rows: BTreeSet::new(),
        };
        let mut ops = Vec::new();
        loop {
            let next_op = walk.open_ops.last().copied();
            let target = open_targets
                .pop_if(|target| next_op.is_none_or(|position| position < target.after));
            if let Some(target) = target {
                walk.add_target(target);
                continue;
            }
            let Some(position) = walk.open_ops.pop_last() else {
                break;
            };
            if walk.passes(position) {
                ops.push(position);
            }
        }
        ops.reverse();
        StreamSlice {
            ops,
            columns: self.base_columns_of(&walk.live),
            row_columns: walk.live_rows,
            live: walk.live,
        }
    }

    /// The columns of the base among some, in the order of its schema.
    fn base_columns_of(&self, live: &BTreeSet<String>) -> Vec<String> {
        let positions = live.iter().filter_map(|name| self.base_columns.get(name));
        let mut positions: Vec<usize> = positions.collect();
        positions.sort_unstable();
        let schema = &self.bound.base_schemas[self.base];
        let mut columns = Vec::with_capacity(positions.len());
        for position in positions {
            columns.push(schema.field(position).name().clone());
        }
        columns
    }
}

/// The last of some ascending positions before another one.
fn last_before(positions: &[usize], end: usize) -> Option<usize> {
    let earlier = positions.partition_point(|position| *position < end);
    positions[..earlier].last().copied()
}

/// A walk from the end of a stream to its beginning.
struct BackwardWalk<'i> {
    index: &'i StreamIndex<'i>,
    /// Positions of operations that may be needed. Those of a column that is live: the last one that writes it.
    open_ops: BTreeSet<usize>,
    live: BTreeSet<String>,
    live_rows: BTreeSet<String>,
}

impl BackwardWalk<'_> {
    /// Adds a column that is read after the first `op_count` operations.
    fn add_live(&mut self, name: &str, op_count: usize) {
        let writers = self.index.writers.get(name);
        let writers = writers.map(Vec::as_slice).unwrap_or_default();
        self.open_ops.extend(last_before(writers, op_count));
        self.live.insert(name.to_owned());
    }

    fn add_target(&mut self, target: &SliceTarget<'_>) {
        for column in &target.columns {
            self.add_live(column, target.after);
            if column.starts_with(PART_PREFIX) {
                self.live_rows.insert((*column).to_owned());
            }
        }
    }

    /// Passes an operation. True if it is needed.
    fn passes(&mut self, position: usize) -> bool {
        let index = self.index;
        match &index.bound.ops[index.ops.with_expected()[position]].op {
            PlanOp::Map(map) => self.passes_writer(position, &map.writes, || map.reads.iter()),
            PlanOp::Keep(keep) => {
                for name in &keep.reads {
                    self.add_live(name, position);
                    self.live_rows.insert(name.clone());
                }
                true
            }
            PlanOp::Expand(expand) => {
                for field in &expand.writes {
                    self.live.remove(field.name());
                    self.live_rows.remove(field.name());
                }
                for name in &expand.reads {
                    self.add_live(name, position);
                    self.live_rows.insert(name.clone());
                }
                true
            }
            PlanOp::Project(columns) => {
                self.rename(position, columns);
                true
            }
            // Outputs are sliced one by one, but inputs are read as a whole: the window state must not depend on
            // which outputs are requested.
            PlanOp::Window(window) => {
                self.passes_writer(position, &window.writes, || window.columns())
            }
            // The columns that inputs are computed from must exist before rows are sorted.
            PlanOp::Series(series) => {
                self.passes_writer(position, &series.writes, || series.columns())
            }
            // The sorts before have read its inputs; with precomputed outputs none of them is needed.
            PlanOp::Join(join) => {
                if !join.writes().any(|field| self.live.contains(field.name())) {
                    return false;
                }
                for field in join.writes() {
                    self.live.remove(field.name());
                    self.live_rows.remove(field.name());
                }
                true
            }
            PlanOp::Gather(_) => false,
        }
    }

    /// Passes an operation that replaces its outputs by its inputs, if any of them is read.
    fn passes_writer<'n, N: Iterator<Item = &'n String>>(
        &mut self,
        position: usize,
        writes: &[Field],
        reads: impl Fn() -> N,
    ) -> bool {
        if !removes_any(&mut self.live, writes) {
            return false;
        }
        for name in reads() {
            self.add_live(name, position);
        }
        if removes_any(&mut self.live_rows, writes) {
            self.live_rows.extend(reads().cloned());
        }
        true
    }

    /// Gives columns their names before a projection.
    fn rename(&mut self, position: usize, columns: &[(String, String)]) {
        let new_names = NameIndex::new(columns.iter().map(|(_, to)| to.as_str()));
        for set in [&mut self.live, &mut self.live_rows] {
            let renamed = set.iter().map(|name| match new_names.get(name) {
                Some(at) => columns[at].0.clone(),
                None => name.clone(),
            });
            *set = renamed.collect();
        }
        for name in std::mem::take(&mut self.live) {
            self.add_live(&name, position);
        }
    }
}

/// Removes the outputs of an operation from some columns. True if any of them was there.
fn removes_any(columns: &mut BTreeSet<String>, writes: &[Field]) -> bool {
    let mut is_any = false;
    for field in writes {
        is_any |= columns.remove(field.name());
    }
    is_any
}

/// Indexes of streams: one for all that share a list of operations.
#[derive(Default)]
pub(crate) struct StreamIndexes<'b> {
    indexes: HashMap<(BaseId, usize), Arc<StreamIndex<'b>>>,
}

impl<'b> StreamIndexes<'b> {
    /// The index of a stream.
    pub fn of(&mut self, bound: &'b BoundPipeline, stream: &OpStream) -> Arc<StreamIndex<'b>> {
        // The index keeps the list, so that no other one gets its address.
        let key = (stream.base, stream.ops.address());
        let index = self.indexes.entry(key);
        index
            .or_insert_with(|| Arc::new(StreamIndex::new(bound, stream)))
            .clone()
    }
}

/// A column behind some operations: the base, the address of the list of operations, their number, and the name. Equal
/// for all streams of which indexes keep the same list.
pub(crate) type ColumnKey = (BaseId, usize, usize, String);

/// The key of a column behind the first `op_count` operations of a stream.
pub(crate) fn column_key(stream: &OpStream, op_count: usize, name: &str) -> ColumnKey {
    (stream.base, stream.ops.address(), op_count, name.to_owned())
}

/// Pruning conditions: they hold for every row that a scan needs, over columns of its base. Taken from the filters
/// at the start of its only stream, before anything else changes a column.
pub fn pruning_conditions(bound: &BoundPipeline, scan: &ColumnScan) -> Vec<Expr> {
    let [stream] = scan.streams.as_slice() else {
        return Vec::new();
    };
    let mut written: BTreeSet<&str> = BTreeSet::new();
    let mut conditions = Vec::new();
    for (position, op) in stream.stream.ops.iter().enumerate() {
        // An analyzer before a filter also reads the rows that the filter removes.
        if stream
            .taps
            .iter()
            .any(|(_, tap_position)| *tap_position <= position)
        {
            break;
        }
        match &bound.ops[*op].op {
            PlanOp::Keep(keep) => {
                if keep
                    .reads
                    .iter()
                    .all(|column| !written.contains(column.as_str()))
                {
                    conditions.extend(keep.condition.clone());
                }
            }
            PlanOp::Map(map) => {
                written.extend(map.writes.iter().map(|field| field.name().as_str()))
            }
            // A window needs the rows that a later filter removes, and so does a function of series.
            PlanOp::Window(_)
            | PlanOp::Series(_)
            | PlanOp::Join(_)
            | PlanOp::Expand(_)
            | PlanOp::Project(_)
            | PlanOp::Gather(_) => break,
        }
    }
    conditions
}

/// The columns after `op_count` operations of a stream that columns at its end are computed of.
pub fn live_columns(
    bound: &BoundPipeline,
    stream: &OpStream,
    op_count: usize,
    columns: &[&str],
) -> BTreeSet<String> {
    let behind = OpStream {
        base: stream.base,
        ops: stream.ops[op_count..].to_vec().into(),
    };
    let target = SliceTarget {
        after: behind.ops.len(),
        columns: columns.to_vec(),
    };
    slice_stream(bound, &behind, &[target]).live
}

/// Slices a stream for columns at its end. Returns the indices of the operations and the columns of the base.
pub fn slice_for_columns(
    bound: &BoundPipeline,
    stream: &OpStream,
    columns: &[&str],
) -> (Vec<usize>, Vec<String>) {
    StreamIndex::new(bound, stream).slice_for_columns(stream.ops.len(), columns)
}
