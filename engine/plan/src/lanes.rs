//! Lanes: the division of a pass's analyzers by the columns that they read (decisions/lanes.md).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use forebay_model::{Dataset, NameIndex};

use crate::slice::{SliceTarget, StreamSlice, missing_targets, slice_stream};
use crate::{
    AnalyzerId, AnalyzerLane, BaseDataset, BaseId, BoundPipeline, ColumnScan, GatherBy, OpStream,
    PlanOp, ScanStream,
};

/// Minimum bytes per lane and span: below, opening files costs more than reading columns separately
/// saves.
const LANE_SPAN_BYTES_MIN: u64 = 256 << 10;

/// Minimum bytes per lane and span for each column of the files: to open one takes longer, the more
/// columns it has, whichever of them are read.
const LANE_SPAN_BYTES_MIN_PER_COLUMN: u64 = 4 << 10;

/// Minimum bytes of a lane's columns in a span of a remote store: small requests are slow.
const LANE_SPAN_BYTES_MIN_REMOTE: u64 = 8 << 20;

/// Every lane may decode the shared columns again if that adds at most one part in this many to the
/// bytes read.
const LANE_SHARED_PART_MAX: u64 = 5;

/// Columns by base.
type ColumnSet = BTreeSet<(BaseId, String)>;

/// Divides analyzers into lanes.
pub(crate) struct LanePlanner<'a> {
    pub bound: &'a BoundPipeline,
    pub datasets: &'a BTreeMap<String, Dataset>,
    /// Slices of the streams of each analyzer that the program needs
    pub slices: &'a [Option<Vec<StreamSlice>>],
    /// Positions of the columns of each source.
    positions: BTreeMap<BaseId, NameIndex<'a>>,
}

/// Analyzers that stay together: they share columns that no other analyzer reads.
#[derive(Default)]
struct ColumnGroup {
    columns: ColumnSet,
    analyzers: Vec<AnalyzerId>,
}

impl ColumnGroup {
    fn absorb(&mut self, other: ColumnGroup) {
        self.columns.extend(other.columns);
        self.analyzers.extend(other.analyzers);
    }
}

/// Groups that are put into one lane.
#[derive(Clone, Default)]
struct LaneLoad {
    /// Weight for balancing lanes: bytes, but at least one for each group.
    weight: u64,
    /// Stored bytes of their columns; 0 where the format does not record bytes per column.
    bytes: u64,
    analyzers: Vec<AnalyzerId>,
}

impl LaneLoad {
    fn add(&mut self, group: &ColumnGroup, bytes: u64) {
        self.weight += bytes.max(1);
        self.bytes += bytes;
        self.analyzers.extend(&group.analyzers);
    }
}

impl<'a> LanePlanner<'a> {
    pub fn new(
        bound: &'a BoundPipeline,
        datasets: &'a BTreeMap<String, Dataset>,
        slices: &'a [Option<Vec<StreamSlice>>],
    ) -> LanePlanner<'a> {
        let mut planner = LanePlanner {
            bound,
            datasets,
            slices,
            positions: BTreeMap::new(),
        };
        for base in 0..bound.bases.len() {
            if let Some(dataset) = planner.dataset(base) {
                let index = NameIndex::of_fields(dataset.schema.fields());
                planner.positions.insert(base, index);
            }
        }
        planner
    }

    /// Divides analyzers into lanes by the columns that they read.
    pub fn lanes(&self, analyzers: &[AnalyzerId]) -> Vec<AnalyzerLane> {
        let groups = self.column_groups(analyzers);
        let group_bytes: Vec<u64> = groups
            .iter()
            .map(|group| self.stored_bytes(&group.columns))
            .collect();
        let mut shared_columns = ColumnSet::new();
        for analyzer in analyzers {
            shared_columns.extend(self.columns(*analyzer, ColumnUse::SelectsRows));
        }
        let shared_bytes = self.stored_bytes(&shared_columns);
        let total_bytes = group_bytes.iter().sum::<u64>() + shared_bytes;
        let count_max = self.lane_count_max(analyzers, total_bytes, shared_bytes);
        let count = count_max.min(groups.len() as u64).max(1) as usize;
        let loads = if self.is_remote(analyzers) {
            self.load_by_position(&groups, &group_bytes, count)
        } else {
            load_evenly(&groups, &group_bytes, count)
        };
        let mut lanes = Vec::new();
        for load in loads {
            if load.analyzers.is_empty() {
                continue;
            }
            let mut analyzers = load.analyzers;
            analyzers.sort_unstable();
            lanes.push(AnalyzerLane {
                scans: analyzer_scans(self.bound, &analyzers),
                asks: analyzers,
                bytes: load.bytes + shared_bytes,
            });
        }
        lanes
    }

    /// Analyzers that share a column are in one group, so that no column is decoded twice.
    fn column_groups(&self, analyzers: &[AnalyzerId]) -> Vec<ColumnGroup> {
        let mut groups: Vec<ColumnGroup> = Vec::with_capacity(analyzers.len());
        let mut group_of: HashMap<(BaseId, String), usize> = HashMap::new();
        for analyzer in analyzers {
            let columns = self.columns(*analyzer, ColumnUse::Learned);
            let mut joined = groups.len();
            let mut meeting = BTreeSet::new();
            for column in &columns {
                meeting.extend(group_of.insert(column.clone(), joined));
            }
            groups.push(ColumnGroup {
                columns,
                analyzers: vec![*analyzer],
            });
            // A larger group takes in a smaller one, so that few columns change their group.
            for mut other in meeting {
                if groups[other].columns.len() > groups[joined].columns.len() {
                    std::mem::swap(&mut joined, &mut other);
                }
                let smaller = std::mem::take(&mut groups[other]);
                for column in &smaller.columns {
                    group_of.insert(column.clone(), joined);
                }
                groups[joined].absorb(smaller);
            }
        }
        groups.retain(|group| !group.analyzers.is_empty());
        for group in &mut groups {
            group.analyzers.sort_unstable();
        }
        groups.sort_by_key(|group| group.analyzers.last().copied());
        self.join_keyed(groups)
    }

    /// Joins the groups that need row keys: these are computed once for all of them.
    fn join_keyed(&self, groups: Vec<ColumnGroup>) -> Vec<ColumnGroup> {
        let mut joined: Option<ColumnGroup> = None;
        let mut others = Vec::new();
        for group in groups {
            if !self.needs_row_keys(&group) {
                others.push(group);
                continue;
            }
            match &mut joined {
                Some(keyed) => keyed.absorb(group),
                None => joined = Some(group),
            }
        }
        others.extend(joined);
        others
    }

    fn needs_row_keys(&self, group: &ColumnGroup) -> bool {
        let mut analyzers = group.analyzers.iter();
        analyzers.any(|analyzer| self.bound.asks[*analyzer].ask.analyzer.needs_row_keys())
    }

    fn columns(&self, analyzer: AnalyzerId, column_use: ColumnUse) -> ColumnSet {
        let slices = self.slices[analyzer].iter().flatten();
        let streams = &self.bound.asks[analyzer].streams;
        let mut columns = ColumnSet::new();
        for (stream, slice) in streams.iter().zip(slices) {
            let names: Vec<&String> = match column_use {
                ColumnUse::SelectsRows => slice.row_columns.iter().collect(),
                ColumnUse::Learned => {
                    let names = slice.columns.iter();
                    names
                        .filter(|name| !slice.row_columns.contains(*name))
                        .collect()
                }
            };
            columns.extend(names.into_iter().map(|name| (stream.base, name.clone())));
        }
        columns
    }

    /// Number of lanes beyond which dividing the columns costs more than it saves.
    fn lane_count_max(&self, analyzers: &[AnalyzerId], total_bytes: u64, shared_bytes: u64) -> u64 {
        // A row format is decoded as a whole, so a second lane would read everything again.
        if !self.is_columnar(analyzers) {
            return 1;
        }
        // Each lane decodes the shared columns again: their number is limited so that this adds at
        // most one part in `LANE_SHARED_PART_MAX` to the bytes.
        let by_sharing = total_bytes
            .checked_div(shared_bytes * LANE_SHARED_PART_MAX)
            .unwrap_or(u64::MAX)
            .saturating_add(1);
        let source = LaneSource {
            spans: self.spans(analyzers),
            columns: self.width(analyzers),
            is_remote: self.is_remote(analyzers),
        };
        let by_size = (total_bytes / source.lane_bytes_min()).max(1);
        by_sharing.min(by_size)
    }

    /// Fills lanes in the order of the files: neighbours come with one request.
    fn load_by_position(
        &self,
        groups: &[ColumnGroup],
        group_bytes: &[u64],
        count: usize,
    ) -> Vec<LaneLoad> {
        let mut order: Vec<usize> = (0..groups.len()).collect();
        order.sort_by_key(|index| self.first_position(&groups[*index].columns));
        let total_weight: u64 = group_bytes.iter().map(|bytes| (*bytes).max(1)).sum();
        let mut loads = vec![LaneLoad::default(); count];
        let mut weight_before = 0;
        for index in order {
            let weight = group_bytes[index].max(1);
            // The lane in whose share of the weight the middle of the group lies.
            let lane = (weight_before + weight / 2) * count as u64 / total_weight;
            weight_before += weight;
            loads[lane as usize].add(&groups[index], group_bytes[index]);
        }
        loads
    }

    /// Lanes for analyzers of window outputs. Analyzers share a lane if their streams continue each
    /// other.
    pub fn windowed_lanes(&self, analyzers: &[AnalyzerId]) -> Vec<AnalyzerLane> {
        let mut lanes: Vec<Vec<AnalyzerId>> = Vec::new();
        for analyzer in analyzers {
            let lane = lanes.iter_mut().find(|lane| {
                let mut members = lane.iter();
                members.all(|member| self.continue_each_other(*member, *analyzer))
            });
            match lane {
                Some(lane) => lane.push(*analyzer),
                None => lanes.push(vec![*analyzer]),
            }
        }
        lanes
            .into_iter()
            .map(|analyzers| self.windowed_lane(analyzers))
            .collect()
    }

    /// True if of each pair of streams one begins with the operations of the other.
    fn continue_each_other(&self, first: AnalyzerId, second: AnalyzerId) -> bool {
        let first = &self.bound.asks[first].streams;
        let second = &self.bound.asks[second].streams;
        let mut pairs = first.iter().zip(second);
        first.len() == second.len() && pairs.all(|(first, second)| is_continued(first, second))
    }

    fn windowed_lane(&self, analyzers: Vec<AnalyzerId>) -> AnalyzerLane {
        let scans = analyzer_scans(self.bound, &analyzers);
        let mut columns = ColumnSet::new();
        for scan in &scans {
            columns.extend(scan.columns.iter().map(|name| (scan.base, name.clone())));
        }
        AnalyzerLane {
            bytes: self.stored_bytes(&columns),
            asks: analyzers,
            scans,
        }
    }

    fn dataset(&self, base: BaseId) -> Option<&'a Dataset> {
        match &self.bound.bases[base] {
            BaseDataset::Source(name) => self.datasets.get(name),
            BaseDataset::Gathered(_) => None,
        }
    }

    fn stored_bytes(&self, columns: &ColumnSet) -> u64 {
        let mut bytes = 0;
        for (base, name) in columns {
            bytes += self.column_bytes(*base, name).unwrap_or(0);
        }
        bytes
    }

    fn column_bytes(&self, base: BaseId, name: &str) -> Option<u64> {
        let dataset = self.dataset(base)?;
        let position = self.position(base, name)?;
        dataset.column_bytes.as_ref()?.get(position).copied()
    }

    fn position(&self, base: BaseId, name: &str) -> Option<usize> {
        self.positions.get(&base)?.get(name)
    }

    fn bases(&self, analyzers: &[AnalyzerId]) -> BTreeSet<BaseId> {
        let streams = analyzers
            .iter()
            .flat_map(|analyzer| &self.bound.asks[*analyzer].streams);
        streams.map(|stream| stream.base).collect()
    }

    fn spans(&self, analyzers: &[AnalyzerId]) -> u64 {
        let bases = self.bases(analyzers).into_iter();
        let datasets = bases.filter_map(|base| self.dataset(base));
        datasets.map(|dataset| dataset.spans.len() as u64).sum()
    }

    /// The number of columns of the widest base.
    fn width(&self, analyzers: &[AnalyzerId]) -> u64 {
        let bases = self.bases(analyzers).into_iter();
        let datasets = bases.filter_map(|base| self.dataset(base));
        let widths = datasets.map(|dataset| dataset.schema.fields().len() as u64);
        widths.max().unwrap_or(0)
    }

    /// The place in the files of the first of some columns.
    fn first_position(&self, columns: &ColumnSet) -> usize {
        let positions = columns
            .iter()
            .filter_map(|(base, name)| self.position(*base, name));
        positions.min().unwrap_or(usize::MAX)
    }

    /// True if some base lies in a remote store.
    fn is_remote(&self, analyzers: &[AnalyzerId]) -> bool {
        self.bases(analyzers).into_iter().any(|base| {
            let span = self.dataset(base).and_then(|dataset| dataset.spans.first());
            let piece = span.and_then(|span| span.pieces.first());
            piece.is_some_and(|piece| piece.path.contains("://"))
        })
    }

    /// True if all bases are columnar, so that reading columns separately costs nothing.
    fn is_columnar(&self, analyzers: &[AnalyzerId]) -> bool {
        self.bases(analyzers).into_iter().all(|base| {
            self.dataset(base)
                .is_some_and(|dataset| dataset.column_bytes.is_some())
        })
    }
}

/// The cost of opening the files of a source.
#[derive(Clone, Copy)]
struct LaneSource {
    spans: u64,
    /// Columns of the files.
    columns: u64,
    is_remote: bool,
}

impl LaneSource {
    /// Minimum stored bytes of the columns of a lane, which opens each span once.
    fn lane_bytes_min(self) -> u64 {
        let span_bytes = if self.is_remote {
            LANE_SPAN_BYTES_MIN_REMOTE
        } else {
            LANE_SPAN_BYTES_MIN
        };
        let by_columns = LANE_SPAN_BYTES_MIN_PER_COLUMN * self.columns;
        self.spans.max(1) * span_bytes.max(by_columns)
    }
}

/// Use of a column by an analyzer.
#[derive(Clone, Copy)]
enum ColumnUse {
    /// Its values are learned.
    Learned,
    /// It decides which rows there are.
    SelectsRows,
}

/// Balances lanes greedily: the largest group first, to the lane with the smallest weight.
fn load_evenly(groups: &[ColumnGroup], group_bytes: &[u64], count: usize) -> Vec<LaneLoad> {
    let mut order: Vec<usize> = (0..groups.len()).collect();
    order.sort_by_key(|index| Reverse(group_bytes[*index]));
    let mut loads = vec![LaneLoad::default(); count];
    for index in order {
        let lightest = loads.iter_mut().min_by_key(|load| load.weight);
        if let Some(load) = lightest {
            load.add(&groups[index], group_bytes[index]);
        }
    }
    loads
}

/// True if one of two streams begins with the operations of the other.
pub(crate) fn is_continued(first: &OpStream, second: &OpStream) -> bool {
    first.base == second.base && first.ops.continues(&second.ops)
}

/// The scans of a lane with these analyzers: streams that continue each other are merged.
pub fn analyzer_scans(bound: &BoundPipeline, analyzers: &[AnalyzerId]) -> Vec<ColumnScan> {
    let streams = tapped_streams(bound, analyzers);
    // With windows, rows must come stream by stream; otherwise streams share a scan.
    let mut ops = streams.iter().flat_map(|tapped| &tapped.stream.ops);
    let in_order = ops.any(|op| bound.ops[*op].op.is_over_series());
    let mut scans: Vec<ColumnScan> = Vec::new();
    let mut passed = BTreeSet::new();
    for tapped in streams {
        let mut targets: Vec<SliceTarget<'_>> = tapped
            .taps
            .iter()
            .map(|(analyzer, op_count)| bound.asks[*analyzer].slice_target(*op_count))
            .collect();
        let mut slice = slice_stream(bound, &tapped.stream, &targets);
        let base = tapped.stream.base;
        if in_order && is_future(bound, base) {
            // Their windows continue those of the history.
            targets.extend(missing_targets(bound, &tapped.stream, &slice.ops, &passed));
            slice = slice_stream(bound, &tapped.stream, &targets);
        }
        passed.extend(
            slice
                .ops
                .iter()
                .map(|position| tapped.stream.ops[*position]),
        );
        let scan_stream = ScanStream {
            stream: tapped.stream,
            needed: slice.ops,
            taps: tapped.taps,
        };
        match scans.iter_mut().find(|scan| !in_order && scan.base == base) {
            Some(scan) => {
                scan.columns = columns_of_either(bound, base, &scan.columns, &slice.columns);
                scan.streams.push(scan_stream);
            }
            None => scans.push(ColumnScan {
                base,
                columns: slice.columns,
                streams: vec![scan_stream],
            }),
        }
    }
    if !in_order {
        scans.sort_by_key(|scan| scan.base);
    }
    scans
}

/// True for rows that `future_rows` makes.
fn is_future(bound: &BoundPipeline, base: BaseId) -> bool {
    let BaseDataset::Gathered(op) = &bound.bases[base] else {
        return false;
    };
    let PlanOp::Gather(gather) = &bound.ops[*op].op else {
        return false;
    };
    matches!(gather.lower, GatherBy::Future(_))
}

/// A stream with the analyzers that read it, each after a number of operations.
struct TappedStream {
    stream: OpStream,
    taps: Vec<(AnalyzerId, usize)>,
}

fn tapped_streams(bound: &BoundPipeline, analyzers: &[AnalyzerId]) -> Vec<TappedStream> {
    let mut tapped: Vec<TappedStream> = Vec::new();
    for analyzer in analyzers {
        for stream in &bound.asks[*analyzer].streams {
            let tap = (*analyzer, stream.ops.len());
            let shared = tapped
                .iter_mut()
                .find(|tapped| is_continued(&tapped.stream, stream));
            let Some(shared) = shared else {
                tapped.push(TappedStream {
                    stream: stream.clone(),
                    taps: vec![tap],
                });
                continue;
            };
            if stream.ops.len() > shared.stream.ops.len() {
                shared.stream.ops = stream.ops.clone();
            }
            shared.taps.push(tap);
        }
    }
    tapped
}

/// Columns of two scans of a base, in the order of its schema.
fn columns_of_either(
    bound: &BoundPipeline,
    base: BaseId,
    first: &[String],
    second: &[String],
) -> Vec<String> {
    let read: HashSet<&String> = first.iter().chain(second).collect();
    let mut columns = Vec::new();
    for field in bound.base_schemas[base].fields() {
        let name = field.name();
        if read.contains(name) {
            columns.push(name.clone());
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_lanes_open_are_linear_in_the_columns_of_a_source() {
        let column_bytes = 180_000;
        for is_remote in [false, true] {
            for spans in [1, 8] {
                for columns in [10, 100, 1000, 2000, 20_000] {
                    let source = LaneSource {
                        spans,
                        columns,
                        is_remote,
                    };
                    let lanes = columns * column_bytes / source.lane_bytes_min();
                    let opened_columns = lanes * spans * columns;
                    assert!(
                        opened_columns <= columns * 44,
                        "{lanes} lanes open {opened_columns} of {columns} columns"
                    );
                }
            }
        }
    }

    #[test]
    fn lanes_of_few_columns_are_small() {
        let source = LaneSource {
            spans: 1,
            columns: 64,
            is_remote: false,
        };
        assert_eq!(source.lane_bytes_min(), LANE_SPAN_BYTES_MIN);
    }
}
