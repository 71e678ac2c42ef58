//! Programs: the ordered passes of a pipeline, with analyzers arranged by level and fused into the fewest scans.

use std::collections::{BTreeMap, BTreeSet};

use forebay_model::{ContentId, Dataset, Fault, IdBuilder, Pipeline, Result, codes};
use serde_json::json;

use crate::operation_id::add_source_format;
use crate::slice::{SliceTarget, StreamSlice, slice_stream};
use crate::split::part_column;
use crate::{
    BaseDataset, BaseId, BoundPipeline, CarriedFinding, ColumnTap, FUTURE_PART, OpStream, PlanOp,
};

/// Index into `BoundPipeline::ops`.
pub type OpId = usize;
/// Index into `BoundPipeline::analyzers`.
pub type AnalyzerId = usize;

/// Fewest bytes per lane and span: below, opening files costs more than reading columns separately saves.
const LANE_SPAN_BYTES_MIN: u64 = 256 << 10;

/// The same where a remote store is asked for each lane's columns of a span: small requests are slow.
const LANE_SPAN_BYTES_MIN_REMOTE: u64 = 8 << 20;

/// Every lane may decode the shared columns again if that adds at most one part in this many to the bytes read.
const LANE_SHARED_PART_MAX: u64 = 5;

/// The ordered passes and the ids of their results.
#[derive(Clone)]
pub struct Program {
    /// The pipeline's name.
    pub name: String,
    /// The typed pipeline.
    pub bound: BoundPipeline,
    /// Id of each analyzer's state; analyzers with equal ids share one state.
    pub state_ids: Vec<ContentId>,
    /// Level of each analyzer: 1 if it depends on no other.
    pub levels: Vec<usize>,
    /// The id of each gathered dataset.
    pub gather_ids: BTreeMap<OpId, ContentId>,
    /// Passes in execution order.
    pub passes: Vec<Pass>,
}

/// One read of the data.
#[derive(Debug, Clone)]
pub struct Pass {
    /// `hash(format version, span fingerprints, configuration, ids of the states it reads)`.
    pub id: ContentId,
    /// Passes of one level are independent of each other.
    pub level: usize,
    /// Its work.
    pub work: PassWork,
}

/// Work of a pass.
#[derive(Debug, Clone)]
pub enum PassWork {
    /// Computes findings.
    Learn(LearnWork),
    /// Materializes an intermediate dataset.
    Gather(OpId),
    /// Writes a sink (an index into the pipeline's sinks).
    Write(SinkWork),
}

/// The analyzers of a pass: those to compute, and those whose findings are known.
#[derive(Debug, Clone)]
pub struct LearnWork {
    /// Lanes to run; empty if all findings are known.
    pub lanes: Vec<AnalyzerLane>,
    /// Analyzers whose states were committed by an earlier run.
    pub known: Vec<AnalyzerId>,
}

/// Analyzers that run together because they read the same columns. Lanes of one pass read disjoint columns, except
/// for columns that select rows. Each lane therefore holds its states once, regardless of the number of threads,
/// and frees them when it is done.
#[derive(Debug, Clone)]
pub struct AnalyzerLane {
    /// The analyzers, one per state.
    pub asks: Vec<AnalyzerId>,
    /// Their scans, in order.
    pub scans: Vec<ColumnScan>,
    /// Stored bytes that it reads, if known.
    pub bytes: u64,
}

/// A scan of some columns of a base dataset.
#[derive(Debug, Clone)]
pub struct ColumnScan {
    /// The base dataset.
    pub base: BaseId,
    /// Columns, in the order of the base's schema.
    pub columns: Vec<String>,
    /// Operations applied to the rows.
    pub streams: Vec<ScanStream>,
}

/// A stream and the points at which analyzers read it.
#[derive(Debug, Clone)]
pub struct ScanStream {
    /// All operations of the stream; only those in `needed` run.
    pub stream: OpStream,
    /// Positions in the stream's operations.
    pub needed: Vec<usize>,
    /// Analyzers, and the number of operations after which each reads.
    pub taps: Vec<(AnalyzerId, usize)>,
}

impl ScanStream {
    /// Taps of its analyzers, in order.
    pub fn column_taps(&self, bound: &BoundPipeline) -> impl Iterator<Item = ColumnTap> {
        self.taps.iter().map(|(ask, after)| {
            let question = &bound.asks[*ask];
            ColumnTap {
                after: *after,
                columns: question.ask.inputs.clone(),
                part: question.part.clone(),
            }
        })
    }
}

/// Work of a write pass.
#[derive(Debug, Clone)]
pub struct SinkWork {
    /// An index into the pipeline's sinks.
    pub sink: usize,
    /// Its scans, in order.
    pub scans: Vec<ColumnScan>,
    /// Written columns.
    pub columns: Vec<String>,
    /// Hidden column that restricts the rows to a part.
    pub part: Option<String>,
    /// The first scan whose rows are written. Those before it only warm up window state: the history before rows of the
    /// future.
    pub first_scan: usize,
}

/// Returns whether the finding of an analyzer with this state id is known.
pub type IsKnown<'a> = &'a mut dyn FnMut(AnalyzerId, ContentId) -> Result<bool>;

/// Compiles a bound pipeline. `sinks` are indices of the sinks to write. With `learn_all` every analyzer runs,
/// otherwise only those that the sinks need.
pub fn compile(
    pipeline: &Pipeline,
    bound: BoundPipeline,
    datasets: &BTreeMap<String, Dataset>,
    sinks: &[usize],
    learn_all: bool,
    is_known: IsKnown<'_>,
) -> Result<Program> {
    let mut compiler = ProgramCompiler::new(pipeline, bound, datasets);
    let asks: BTreeSet<AnalyzerId> = if learn_all {
        (0..compiler.bound.asks.len()).collect()
    } else {
        BTreeSet::new()
    };
    compiler.add_analyzers(asks)?;
    let mut writes = Vec::new();
    for sink in sinks {
        writes.push(compiler.sink(*sink)?);
    }
    compiler.finish(writes, is_known)
}

/// Compiles what some analyzers need.
pub fn compile_analyzers(
    pipeline: &Pipeline,
    bound: BoundPipeline,
    datasets: &BTreeMap<String, Dataset>,
    asks: BTreeSet<AnalyzerId>,
    is_known: IsKnown<'_>,
) -> Result<Program> {
    let mut compiler = ProgramCompiler::new(pipeline, bound, datasets);
    compiler.add_analyzers(asks)?;
    compiler.finish(Vec::new(), is_known)
}

/// Columns by base.
type ColumnSet = BTreeSet<(BaseId, String)>;

struct ProgramCompiler<'a> {
    pipeline: &'a Pipeline,
    datasets: &'a BTreeMap<String, Dataset>,
    bound: BoundPipeline,
    slices: Vec<Option<Vec<StreamSlice>>>,
    state_ids: Vec<Option<ContentId>>,
    levels: Vec<usize>,
    gather_ids: BTreeMap<OpId, (ContentId, usize)>,
    /// Ids of source contents, cached: computing one visits all spans.
    source_ids: BTreeMap<BaseId, ContentId>,
    wanted: BTreeSet<AnalyzerId>,
}

/// The operations that the rows of some scans go through.
pub fn needed_ops<'a>(
    scans: impl IntoIterator<Item = &'a ColumnScan>,
) -> impl Iterator<Item = OpId> {
    let streams = scans.into_iter().flat_map(|scan| &scan.streams);
    streams.flat_map(|stream| {
        stream
            .needed
            .iter()
            .map(|position| stream.stream.ops[*position])
    })
}

impl Program {
    /// The windows and as-of joins in scans, upstream first.
    pub fn windows_of<'a>(
        &self,
        scans: impl IntoIterator<Item = &'a ColumnScan>,
    ) -> BTreeSet<OpId> {
        needed_ops(scans)
            .filter(|op| self.bound.ops[*op].op.is_over_series())
            .collect()
    }

    /// Whether it has a write pass.
    pub fn writes(&self) -> bool {
        self.passes
            .iter()
            .any(|pass| matches!(pass.work, PassWork::Write(_)))
    }

    /// The scans of a single analyzer.
    pub fn scans_for(&self, ask: AnalyzerId) -> Vec<ColumnScan> {
        analyzer_scans(&self.bound, &[ask])
    }

    /// The gathers whose rows are still needed, given which writes are needed.
    pub fn needed_gathers(&self, write_needed: &dyn Fn(ContentId) -> bool) -> BTreeSet<OpId> {
        let mut needed = BTreeSet::new();
        for pass in self.passes.iter().rev() {
            let scans: Vec<&ColumnScan> = match &pass.work {
                PassWork::Learn(work) => work.lanes.iter().flat_map(|lane| &lane.scans).collect(),
                PassWork::Write(work) if write_needed(pass.id) => work.scans.iter().collect(),
                PassWork::Gather(op) if needed.contains(op) => {
                    let inputs = self.bound.gather_inputs.get(op).into_iter().flatten();
                    inputs
                        .flat_map(|(_, flow)| &flow.streams)
                        .for_each(|stream| self.gathers_of(stream, &mut needed));
                    continue;
                }
                PassWork::Write(_) | PassWork::Gather(_) => continue,
            };
            for scan in scans {
                needed.extend(self.gathered(scan.base));
                for own in &scan.streams {
                    own.needed.iter().for_each(|position| {
                        self.gathers_of_other_side(&own.stream, *position, &mut needed)
                    });
                }
            }
        }
        needed
    }

    fn gathered(&self, base: BaseId) -> Option<OpId> {
        match &self.bound.bases[base] {
            BaseDataset::Gathered(op) => Some(*op),
            BaseDataset::Source(_) => None,
        }
    }

    /// Adds the gathers that a whole stream reads.
    fn gathers_of(&self, stream: &OpStream, needed: &mut BTreeSet<OpId>) {
        needed.extend(self.gathered(stream.base));
        (0..stream.ops.len())
            .for_each(|position| self.gathers_of_other_side(stream, position, needed));
    }

    /// Adds the gathers that one operation reads besides its own rows: an as-of join sorts both sides.
    fn gathers_of_other_side(
        &self,
        stream: &OpStream,
        position: usize,
        needed: &mut BTreeSet<OpId>,
    ) {
        let Some(flow) = self.bound.join_inputs.get(&stream.ops[position]) else {
            return;
        };
        let here = OpStream {
            base: stream.base,
            ops: stream.ops[..position].to_vec(),
        };
        [&here]
            .into_iter()
            .chain(&flow.streams)
            .for_each(|stream| self.gathers_of(stream, needed));
    }
}

impl<'a> ProgramCompiler<'a> {
    fn new(
        pipeline: &'a Pipeline,
        bound: BoundPipeline,
        datasets: &'a BTreeMap<String, Dataset>,
    ) -> Self {
        let asks = bound.asks.len();
        ProgramCompiler {
            pipeline,
            datasets,
            bound,
            slices: vec![None; asks],
            state_ids: vec![None; asks],
            levels: vec![0; asks],
            gather_ids: BTreeMap::new(),
            source_ids: BTreeMap::new(),
            wanted: BTreeSet::new(),
        }
    }

    fn add_analyzers(&mut self, asks: BTreeSet<AnalyzerId>) -> Result<()> {
        asks.into_iter()
            .try_for_each(|ask| self.add_analyzer(ask).map(drop))
    }

    /// Computes slice, state id and level of an analyzer, and marks it as wanted.
    fn add_analyzer(&mut self, id: AnalyzerId) -> Result<ContentId> {
        self.wanted.insert(id);
        if let Some(state) = self.state_ids[id] {
            return Ok(state);
        }
        let bound_ask = self.bound.asks[id].clone();
        let inputs: Vec<&str> = bound_ask
            .ask
            .inputs
            .iter()
            .chain(&bound_ask.part)
            .map(String::as_str)
            .collect();
        let analyzer = &bound_ask.ask.analyzer;
        let mut name = IdBuilder::new("state");
        name.text(analyzer.kind())
            .json(&json!([analyzer.version(), analyzer.config(), inputs]));
        if let Some(held) = &bound_ask.held {
            // Its content alone: the rows of this run have no part in it.
            name.text("held").id(held.digest()?);
            let state = name.finish();
            (self.state_ids[id], self.levels[id]) = (Some(state), 1);
            return Ok(state);
        }
        let (slices, level) = self.streams(&bound_ask.streams, &inputs, &mut name)?;
        if let Some(CarriedFinding::Continued(earlier) | CarriedFinding::Begun(earlier)) =
            bound_ask.carried
        {
            name.text("continued").id(earlier);
        }
        let state = name.finish();
        self.slices[id] = Some(slices);
        self.state_ids[id] = Some(state);
        self.levels[id] = level + 1;
        Ok(state)
    }

    /// Slices streams for columns at their ends, and adds everything that determines those columns to an id.
    /// Returns the slices and the level of their dependencies.
    fn streams(
        &mut self,
        streams: &[OpStream],
        columns: &[&str],
        name: &mut IdBuilder,
    ) -> Result<(Vec<StreamSlice>, usize)> {
        let mut slices = Vec::new();
        let mut level = 0;
        for stream in streams {
            let wanted = [SliceTarget {
                after: stream.ops.len(),
                columns: columns.to_vec(),
            }];
            let slice = slice_stream(&self.bound, stream, &wanted);
            let (base, base_level) = self.base(stream.base)?;
            level = level.max(base_level);
            name.id(base).json(&json!([slice.columns, slice.ops.len()]));
            for position in &slice.ops {
                let op = stream.ops[*position];
                name.id(self.bound.ops[op].identity);
                if let (PlanOp::Join(join), Some(flow)) =
                    (&self.bound.ops[op].op, self.bound.join_inputs.get(&op))
                {
                    // Slices do not contain the columns read for sorting.
                    let (join, flow) = (join.clone(), flow.clone());
                    let here = OpStream {
                        base: stream.base,
                        ops: stream.ops[..*position].to_vec(),
                    };
                    let columns: Vec<&str> = join.columns_here().map(String::as_str).collect();
                    level = level.max(self.streams(&[here], &columns, name)?.1);
                    let columns: Vec<&str> = join.columns_there().map(String::as_str).collect();
                    level = level.max(self.streams(&flow.streams, &columns, name)?.1);
                }
                for ask in self.bound.ops[op].asks.clone() {
                    name.id(self.add_analyzer(ask)?);
                    level = level.max(self.levels[ask]);
                }
            }
            slices.push(slice);
        }
        Ok((slices, level))
    }

    /// Id of a base's content, and the level at which it exists.
    fn base(&mut self, base: BaseId) -> Result<(ContentId, usize)> {
        let op = match &self.bound.bases[base] {
            BaseDataset::Gathered(op) => *op,
            BaseDataset::Source(source) => {
                if let Some(known) = self.source_ids.get(&base) {
                    return Ok((*known, 0));
                }
                let dataset = self.datasets.get(source);
                let dataset = dataset.ok_or_else(|| {
                    Fault::internal(format!("source `{source}` was not discovered"))
                })?;
                let mut id = IdBuilder::new("base");
                id.id(dataset.fingerprint());
                // Inferred types are not part of the stored bytes.
                for field in dataset.schema.fields() {
                    id.text(field.name()).text(&field.data_type().to_string());
                }
                add_source_format(&mut id, self.pipeline, source);
                let id = id.finish();
                self.source_ids.insert(base, id);
                return Ok((id, 0));
            }
        };
        if let Some(known) = self.gather_ids.get(&op) {
            return Ok(*known);
        }
        let mut name = IdBuilder::new("gather");
        name.id(self.bound.ops[op].identity);
        let mut level = 0;
        for (input, flow) in self
            .bound
            .gather_inputs
            .get(&op)
            .cloned()
            .unwrap_or_default()
        {
            name.text(&input);
            let columns: Vec<&str> = flow
                .schema
                .fields()
                .iter()
                .map(|field| field.name().as_str())
                .collect();
            level = level.max(self.streams(&flow.streams, &columns, &mut name)?.1);
        }
        for ask in self.bound.ops[op].asks.clone() {
            name.id(self.add_analyzer(ask)?);
            level = level.max(self.levels[ask]);
        }
        let known = (name.finish(), level + 1);
        self.gather_ids.insert(op, known);
        Ok(known)
    }

    fn sink(&mut self, index: usize) -> Result<Pass> {
        let sink = self
            .pipeline
            .sinks
            .get(index)
            .ok_or_else(|| Fault::internal("there is no such sink"))?;
        let flow = self.bound.flows.get(&sink.from).cloned().ok_or_else(|| {
            Fault::new(
                codes::UNKNOWN_NAME,
                format!("there is no step or source `{}`", sink.from),
            )
            .at(sink.at.as_ref())
        })?;
        let is_future = sink.split.as_deref() == Some(FUTURE_PART) && flow.future.is_some();
        let (streams, first_scan) = flow.streams_of(sink.split.as_deref());
        let part = match &sink.split {
            None => None,
            Some(_) if is_future => None,
            Some(part) if part == FUTURE_PART => {
                let message = format!("`{}` has no rows of the future", sink.from);
                let hint = "add `future_rows` to its steps; `aggregate`, `dedupe` and SQL end them";
                return Err(Fault::new(codes::UNKNOWN_NAME, message)
                    .hint(hint)
                    .at(sink.at.as_ref()));
            }
            Some(part) => {
                let known = self
                    .pipeline
                    .split
                    .as_ref()
                    .map(|split| split.parts())
                    .unwrap_or_default();
                if !known.contains(&part.as_str()) || !flow.parts {
                    let message = format!("`{}` has no part `{part}` of the split", sink.from);
                    return Err(Fault::new(codes::UNKNOWN_NAME, message).at(sink.at.as_ref()));
                }
                Some(part_column(part))
            }
        };
        let columns: Vec<String> = flow
            .schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect();
        let wanted: Vec<&str> = columns.iter().chain(&part).map(String::as_str).collect();
        let mut name = IdBuilder::new("write");
        name.text(&sink.format)
            .json(&sink.config)
            .json(&json!([columns, part]));
        if is_future {
            name.text(FUTURE_PART);
        }
        let (slices, level) = self.streams(&streams, &wanted, &mut name)?;
        let scans = streams
            .iter()
            .zip(slices)
            .map(|(stream, slice)| ColumnScan {
                base: stream.base,
                columns: slice.columns,
                streams: vec![ScanStream {
                    stream: stream.clone(),
                    needed: slice.ops,
                    taps: Vec::new(),
                }],
            })
            .collect();
        let work = SinkWork {
            sink: index,
            scans,
            columns,
            part,
            first_scan,
        };
        Ok(Pass {
            id: name.finish(),
            level: level + 1,
            work: PassWork::Write(work),
        })
    }

    fn finish(mut self, writes: Vec<Pass>, is_known: IsKnown<'_>) -> Result<Program> {
        let mut passes: Vec<Pass> = Vec::new();
        for (op, (id, level)) in &self.gather_ids {
            passes.push(Pass {
                id: *id,
                level: *level,
                work: PassWork::Gather(*op),
            });
        }
        let levels: BTreeSet<usize> = self.wanted.iter().map(|ask| self.levels[*ask]).collect();
        for level in levels {
            for asks in self.groups(level) {
                let mut name = IdBuilder::new("learn");
                asks.iter()
                    .filter_map(|ask| self.state_ids[*ask])
                    .collect::<BTreeSet<_>>()
                    .into_iter()
                    .for_each(|id| {
                        name.id(id);
                    });
                let (mut known, mut missing) = (Vec::new(), Vec::new());
                for ask in asks {
                    let state = self.state_ids[ask]
                        .ok_or_else(|| Fault::internal("an analyzer without a state id"))?;
                    if self.bound.asks[ask].held.is_some() || is_known(ask, state)? {
                        known.push(ask)
                    } else {
                        missing.push(ask)
                    }
                }
                let (windowed, plain): (Vec<_>, Vec<_>) = missing
                    .into_iter()
                    .partition(|ask| is_windowed(&self.bound, *ask));
                let mut lanes = if plain.is_empty() {
                    Vec::new()
                } else {
                    self.lanes(&plain)
                };
                lanes.extend(self.windowed_lanes(&windowed));
                passes.push(Pass {
                    id: name.finish(),
                    level,
                    work: PassWork::Learn(LearnWork { lanes, known }),
                });
            }
        }
        passes.extend(writes);
        // Learn passes learn the groups of aggregates of their level along.
        passes.sort_by_key(|pass| {
            let turn = match pass.work {
                PassWork::Learn(_) => 0,
                PassWork::Gather(_) => 1,
                PassWork::Write(_) => 2,
            };
            (pass.level, turn)
        });
        let mut state_ids = Vec::new();
        for (index, id) in std::mem::take(&mut self.state_ids).into_iter().enumerate() {
            state_ids
                .push(id.unwrap_or_else(|| ContentId::of(format!("unused {index}").as_bytes())));
        }
        let gather_ids = self
            .gather_ids
            .into_iter()
            .map(|(op, (id, _))| (op, id))
            .collect();
        Ok(Program {
            name: self.pipeline.name.clone(),
            bound: self.bound,
            state_ids,
            levels: self.levels,
            gather_ids,
            passes,
        })
    }

    /// The analyzers of a level, one per state, in groups that share a base.
    fn groups(&self, level: usize) -> Vec<Vec<AnalyzerId>> {
        let mut seen = BTreeSet::new();
        let mut groups: Vec<(BTreeSet<BaseId>, Vec<AnalyzerId>)> = Vec::new();
        for ask in self.wanted.iter().filter(|ask| self.levels[**ask] == level) {
            if !seen.insert(self.state_ids[*ask]) {
                continue;
            }
            let mut bases: BTreeSet<BaseId> = self.bound.asks[*ask]
                .streams
                .iter()
                .map(|stream| stream.base)
                .collect();
            let mut asks = vec![*ask];
            let (joined, apart) = groups
                .into_iter()
                .partition(|(known, _)| !known.is_disjoint(&bases));
            groups = apart;
            for (known, others) in joined {
                let joined: (BTreeSet<BaseId>, Vec<AnalyzerId>) = (known, others);
                bases.extend(joined.0);
                asks.extend(joined.1);
            }
            asks.sort_unstable();
            groups.push((bases, asks));
        }
        groups.into_iter().map(|(_, asks)| asks).collect()
    }

    /// Divides analyzers into lanes by the columns that they read.
    fn lanes(&self, asks: &[AnalyzerId]) -> Vec<AnalyzerLane> {
        let columns_of = |ask: AnalyzerId, rows_only: bool| -> ColumnSet {
            let slices = self.slices[ask].iter().flatten();
            let streams = &self.bound.asks[ask].streams;
            let names = streams.iter().zip(slices).flat_map(|(stream, slice)| {
                let names: Vec<String> = if rows_only {
                    slice.row_columns.iter().cloned().collect()
                } else {
                    slice
                        .columns
                        .iter()
                        .filter(|name| !slice.row_columns.contains(*name))
                        .cloned()
                        .collect()
                };
                names.into_iter().map(|name| (stream.base, name))
            });
            names.collect()
        };
        let mut groups: Vec<(ColumnSet, Vec<AnalyzerId>)> = Vec::new();
        for ask in asks {
            let mut columns = columns_of(*ask, false);
            let mut members = vec![*ask];
            let (joined, apart): (Vec<_>, Vec<_>) = groups
                .into_iter()
                .partition(|(known, _)| !known.is_disjoint(&columns));
            groups = apart;
            for (known, others) in joined {
                columns.extend(known);
                members.extend(others);
            }
            members.sort_unstable();
            groups.push((columns, members));
        }
        // Row keys are computed once for all analyzers that need them.
        let keyed = |asks: &[AnalyzerId]| {
            asks.iter()
                .any(|ask| self.bound.asks[*ask].ask.analyzer.needs_row_keys())
        };
        let (keyed, mut groups): (Vec<_>, Vec<_>) =
            groups.into_iter().partition(|(_, asks)| keyed(asks));
        groups.extend(
            keyed
                .into_iter()
                .reduce(|(mut columns, mut members), (more, others)| {
                    columns.extend(more);
                    members.extend(others);
                    (columns, members)
                }),
        );
        let shared: ColumnSet = asks.iter().flat_map(|ask| columns_of(*ask, true)).collect();
        let bytes =
            |columns: &ColumnSet| columns.iter().map(|column| self.column_bytes(column)).sum();
        let own: Vec<u64> = groups.iter().map(|(columns, _)| bytes(columns)).collect();
        let shared_bytes: u64 = bytes(&shared);
        let total: u64 = own.iter().sum::<u64>() + shared_bytes;
        let spans = self.spans(asks).max(1);
        let by_sharing = total
            .checked_div(shared_bytes * LANE_SHARED_PART_MAX)
            .unwrap_or(u64::MAX)
            .saturating_add(1);
        let is_remote = self.is_remote(asks);
        let span_bytes = if is_remote {
            LANE_SPAN_BYTES_MIN_REMOTE
        } else {
            LANE_SPAN_BYTES_MIN
        };
        let by_size = (total / (spans * span_bytes)).max(1);
        let apart = self.is_columnar(asks);
        let count = if apart {
            by_sharing.min(by_size).min(groups.len() as u64) as usize
        } else {
            1
        };
        let mut order: Vec<usize> = (0..groups.len()).collect();
        let mut lanes: Vec<(u64, Vec<AnalyzerId>)> = vec![(0, Vec::new()); count.max(1)];
        let add = |lanes: &mut Vec<(u64, Vec<AnalyzerId>)>, lane: usize, index: usize| {
            lanes[lane].0 += own[index].max(1);
            lanes[lane].1.extend(&groups[index].1);
        };
        if is_remote {
            // Neighbours in the files come with one request.
            order.sort_by_key(|index| self.first_position(&groups[*index].0));
            let (all, mut seen) = (own.iter().map(|bytes| (*bytes).max(1)).sum::<u64>(), 0);
            for index in order {
                let bytes = own[index].max(1);
                let lane = (seen + bytes / 2) * lanes.len() as u64 / all;
                seen += bytes;
                add(&mut lanes, lane as usize, index);
            }
        } else {
            // Greedy balancing: the largest group first, to the lane with the fewest bytes.
            order.sort_by_key(|index| std::cmp::Reverse(own[*index]));
            for index in order {
                let lightest = (0..lanes.len())
                    .min_by_key(|lane| lanes[*lane].0)
                    .unwrap_or(0);
                add(&mut lanes, lightest, index);
            }
        }
        lanes
            .into_iter()
            .filter(|(_, asks)| !asks.is_empty())
            .map(|(own, mut asks)| {
                asks.sort_unstable();
                AnalyzerLane {
                    scans: analyzer_scans(&self.bound, &asks),
                    asks,
                    bytes: own + shared_bytes,
                }
            })
            .collect()
    }

    /// Lanes for analyzers behind windows. Analyzers share a lane if their streams continue each other, so that
    /// each window runs once and its rows come in order.
    fn windowed_lanes(&self, asks: &[AnalyzerId]) -> Vec<AnalyzerLane> {
        let continues = |a: AnalyzerId, b: AnalyzerId| {
            let (a, b) = (&self.bound.asks[a].streams, &self.bound.asks[b].streams);
            let pairs = || a.iter().zip(b);
            let same = |(a, b): (&OpStream, &OpStream)| {
                let shorter = a.ops.len().min(b.ops.len());
                a.base == b.base && a.ops[..shorter] == b.ops[..shorter]
            };
            a.len() == b.len() && pairs().all(same)
        };
        let mut lanes: Vec<Vec<AnalyzerId>> = Vec::new();
        for ask in asks {
            match lanes
                .iter_mut()
                .find(|lane| lane.iter().all(|known| continues(*known, *ask)))
            {
                Some(lane) => lane.push(*ask),
                None => lanes.push(vec![*ask]),
            }
        }
        let lane = |asks: Vec<AnalyzerId>| {
            let scans = analyzer_scans(&self.bound, &asks);
            let columns: ColumnSet = scans
                .iter()
                .flat_map(|scan| scan.columns.iter().map(|name| (scan.base, name.clone())))
                .collect();
            AnalyzerLane {
                bytes: columns.iter().map(|column| self.column_bytes(column)).sum(),
                asks,
                scans,
            }
        };
        lanes.into_iter().map(lane).collect()
    }

    fn dataset(&self, base: BaseId) -> Option<&Dataset> {
        match &self.bound.bases[base] {
            BaseDataset::Source(name) => self.datasets.get(name),
            BaseDataset::Gathered(_) => None,
        }
    }

    fn column_bytes(&self, (base, name): &(BaseId, String)) -> u64 {
        let dataset = self.dataset(*base);
        let known = dataset.and_then(|dataset| {
            let index = dataset.schema.index_of(name).ok()?;
            dataset.column_bytes.as_ref()?.get(index).copied()
        });
        known.unwrap_or(0)
    }

    fn spans(&self, asks: &[AnalyzerId]) -> u64 {
        let bases: BTreeSet<BaseId> = asks
            .iter()
            .flat_map(|ask| {
                self.bound.asks[*ask]
                    .streams
                    .iter()
                    .map(|stream| stream.base)
            })
            .collect();
        bases
            .into_iter()
            .filter_map(|base| self.dataset(base))
            .map(|dataset| dataset.spans.len() as u64)
            .sum()
    }

    /// The place in the files of the first of some columns.
    fn first_position(&self, columns: &ColumnSet) -> usize {
        let position =
            |(base, name): &(BaseId, String)| self.dataset(*base)?.schema.index_of(name).ok();
        columns
            .iter()
            .filter_map(position)
            .min()
            .unwrap_or(usize::MAX)
    }

    /// Whether some base lies in a remote store.
    fn is_remote(&self, asks: &[AnalyzerId]) -> bool {
        let mut bases = asks.iter().flat_map(|ask| {
            self.bound.asks[*ask]
                .streams
                .iter()
                .map(|stream| stream.base)
        });
        bases.any(|base| {
            let span = self.dataset(base).and_then(|dataset| dataset.spans.first());
            span.and_then(|span| span.pieces.first())
                .is_some_and(|piece| piece.path.contains("://"))
        })
    }

    /// Whether all bases are columnar, so that reading columns separately costs nothing.
    fn is_columnar(&self, asks: &[AnalyzerId]) -> bool {
        let mut bases = asks.iter().flat_map(|ask| {
            self.bound.asks[*ask]
                .streams
                .iter()
                .map(|stream| stream.base)
        });
        bases.all(|base| {
            self.dataset(base)
                .is_some_and(|dataset| dataset.column_bytes.is_some())
        })
    }
}

/// Whether the analyzer reads behind a window or as-of join.
fn is_windowed(bound: &BoundPipeline, ask: AnalyzerId) -> bool {
    let mut ops = bound.asks[ask]
        .streams
        .iter()
        .flat_map(|stream| &stream.ops);
    ops.any(|op| bound.ops[*op].op.is_over_series())
}

/// The scans of a lane with these analyzers: streams that continue each other are merged.
pub fn analyzer_scans(bound: &BoundPipeline, asks: &[AnalyzerId]) -> Vec<ColumnScan> {
    let mut streams: Vec<(OpStream, Vec<(AnalyzerId, usize)>)> = Vec::new();
    for ask in asks {
        for stream in &bound.asks[*ask].streams {
            let tap = (*ask, stream.ops.len());
            let known = streams.iter_mut().find(|(known, _)| {
                let shorter = known.ops.len().min(stream.ops.len());
                known.base == stream.base && known.ops[..shorter] == stream.ops[..shorter]
            });
            match known {
                Some((known, taps)) => {
                    if stream.ops.len() > known.ops.len() {
                        known.ops = stream.ops.clone();
                    }
                    taps.push(tap);
                }
                None => streams.push((stream.clone(), vec![tap])),
            }
        }
    }
    // With windows, rows must come stream by stream; otherwise streams share a scan.
    let in_order = asks.iter().any(|ask| is_windowed(bound, *ask));
    let mut scans: Vec<ColumnScan> = Vec::new();
    for (stream, taps) in streams {
        let wanted: Vec<SliceTarget<'_>> = taps
            .iter()
            .map(|(ask, after)| bound.asks[*ask].slice_target(*after))
            .collect();
        let slice = slice_stream(bound, &stream, &wanted);
        let base = stream.base;
        let scan_stream = ScanStream {
            stream,
            needed: slice.ops,
            taps,
        };
        match scans.iter_mut().find(|scan| !in_order && scan.base == base) {
            Some(scan) => {
                let names = bound.base_schemas[base]
                    .fields()
                    .iter()
                    .map(|field| field.name());
                scan.columns = names
                    .filter(|name| scan.columns.contains(name) || slice.columns.contains(name))
                    .cloned()
                    .collect();
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
