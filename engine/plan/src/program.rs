//! Programs: the ordered passes of a pipeline, with analyzers arranged by level and fused into the fewest scans.

use std::collections::{BTreeMap, BTreeSet};

use forebay_model::{ContentId, Dataset, Fault, IdBuilder, Pipeline, Result, codes};
use serde_json::json;

use crate::lanes::{LanePlanner, analyzer_scans};
use crate::operation_id::add_source_format;
use crate::slice::{SliceTarget, StreamIndexes, StreamSlice, missing_targets};
use crate::split::part_column;
use crate::{
    AnalyzerId, BaseDataset, BaseId, BoundPipeline, CarriedFinding, ColumnScan, FUTURE_PART,
    LearnWork, OpId, OpStream, Pass, PassWork, PlanOp, ScanStream, SinkWork, needed_ops,
};

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
    let mut compiler = ProgramCompiler::new(pipeline, &bound, datasets);
    let analyzers: BTreeSet<AnalyzerId> = if learn_all {
        (0..compiler.bound.asks.len()).collect()
    } else {
        BTreeSet::new()
    };
    compiler.add_analyzers(analyzers)?;
    let mut writes = Vec::new();
    for sink in sinks {
        writes.push(compiler.sink(*sink)?);
    }
    let compiled = compiler.finish(writes, is_known)?;
    Ok(compiled.program(pipeline, bound))
}

/// Compiles the passes that some analyzers need.
pub fn compile_analyzers(
    pipeline: &Pipeline,
    bound: BoundPipeline,
    datasets: &BTreeMap<String, Dataset>,
    analyzers: BTreeSet<AnalyzerId>,
    is_known: IsKnown<'_>,
) -> Result<Program> {
    let mut compiler = ProgramCompiler::new(pipeline, &bound, datasets);
    compiler.add_analyzers(analyzers)?;
    let compiled = compiler.finish(Vec::new(), is_known)?;
    Ok(compiled.program(pipeline, bound))
}

/// The passes of a program, and the ids of their results.
struct CompiledPasses {
    state_ids: Vec<ContentId>,
    levels: Vec<usize>,
    gather_ids: BTreeMap<OpId, ContentId>,
    passes: Vec<Pass>,
}

impl CompiledPasses {
    fn program(self, pipeline: &Pipeline, bound: BoundPipeline) -> Program {
        Program {
            name: pipeline.name.clone(),
            bound,
            state_ids: self.state_ids,
            levels: self.levels,
            gather_ids: self.gather_ids,
            passes: self.passes,
        }
    }
}

struct ProgramCompiler<'a> {
    pipeline: &'a Pipeline,
    datasets: &'a BTreeMap<String, Dataset>,
    bound: &'a BoundPipeline,
    indexes: StreamIndexes<'a>,
    slices: Vec<Option<Vec<StreamSlice>>>,
    state_ids: Vec<Option<ContentId>>,
    levels: Vec<usize>,
    gather_ids: BTreeMap<OpId, (ContentId, usize)>,
    /// Ids of source contents, cached: computing one visits all spans.
    source_ids: BTreeMap<BaseId, ContentId>,
    wanted: BTreeSet<AnalyzerId>,
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

    /// True if it has a write pass.
    pub fn writes(&self) -> bool {
        self.passes
            .iter()
            .any(|pass| matches!(pass.work, PassWork::Write(_)))
    }

    /// The scans of a single analyzer.
    pub fn scans_for(&self, analyzer: AnalyzerId) -> Vec<ColumnScan> {
        analyzer_scans(&self.bound, &[analyzer])
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
                for stream_slice in &scan.streams {
                    stream_slice.needed.iter().for_each(|position| {
                        self.gathers_of_other_side(&stream_slice.stream, *position, &mut needed)
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
        let own_stream = OpStream {
            base: stream.base,
            ops: stream.ops.first(position),
        };
        [&own_stream]
            .into_iter()
            .chain(&flow.streams)
            .for_each(|stream| self.gathers_of(stream, needed));
    }
}

/// Analyzers of one level that read bases which no other group reads.
struct BaseGroup {
    bases: BTreeSet<BaseId>,
    analyzers: Vec<AnalyzerId>,
}

impl<'a> ProgramCompiler<'a> {
    fn new(
        pipeline: &'a Pipeline,
        bound: &'a BoundPipeline,
        datasets: &'a BTreeMap<String, Dataset>,
    ) -> Self {
        let analyzers = bound.asks.len();
        ProgramCompiler {
            pipeline,
            datasets,
            bound,
            indexes: StreamIndexes::default(),
            slices: vec![None; analyzers],
            state_ids: vec![None; analyzers],
            levels: vec![0; analyzers],
            gather_ids: BTreeMap::new(),
            source_ids: BTreeMap::new(),
            wanted: BTreeSet::new(),
        }
    }

    fn add_analyzers(&mut self, analyzers: BTreeSet<AnalyzerId>) -> Result<()> {
        analyzers
            .into_iter()
            .try_for_each(|analyzer| self.add_analyzer(analyzer).map(drop))
    }

    /// Computes slice, state id and level of an analyzer, and adds it to the requested ones.
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
        if let Some(held_state) = &bound_ask.held {
            // Its content alone: the rows of this run have no part in it.
            name.text("held").id(held_state.digest()?);
            let state = name.finish();
            (self.state_ids[id], self.levels[id]) = (Some(state), 1);
            return Ok(state);
        }
        let (slices, level) = self.streams(&bound_ask.streams, &inputs, &mut name)?;
        match bound_ask.carried {
            Some(CarriedFinding::Continued(earlier) | CarriedFinding::Begun(earlier)) => {
                name.text("continued").id(earlier);
            }
            Some(CarriedFinding::Replaced(answer)) => {
                name.text("replaced").id(answer);
            }
            None => {}
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
            let targets = [SliceTarget {
                after: stream.ops.len(),
                columns: columns.to_vec(),
            }];
            let slice = self.indexes.of(self.bound, stream).slice(&targets);
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
                    let join = join.clone();
                    let flow = flow.clone();
                    let own_stream = OpStream {
                        base: stream.base,
                        ops: stream.ops.first(*position),
                    };
                    let columns: Vec<&str> = join.columns_here().map(String::as_str).collect();
                    level = level.max(self.streams(&[own_stream], &columns, name)?.1);
                    let columns: Vec<&str> = join.columns_there().map(String::as_str).collect();
                    level = level.max(self.streams(&flow.streams, &columns, name)?.1);
                }
                for analyzer in self.bound.ops[op].asks.clone() {
                    name.id(self.add_analyzer(analyzer)?);
                    level = level.max(self.levels[analyzer]);
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
                if let Some(id_and_level) = self.source_ids.get(&base) {
                    return Ok((*id_and_level, 0));
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
        if let Some(id_and_level) = self.gather_ids.get(&op) {
            return Ok(*id_and_level);
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
        for analyzer in self.bound.ops[op].asks.clone() {
            name.id(self.add_analyzer(analyzer)?);
            level = level.max(self.levels[analyzer]);
        }
        let id_and_level = (name.finish(), level + 1);
        self.gather_ids.insert(op, id_and_level);
        Ok(id_and_level)
    }

    /// Adds to the slices of rows of the future the operations that their history passes, such as those that a filter for
    /// learning reads: windows are then merged alike in both.
    fn follow_history(
        &mut self,
        streams: &[OpStream],
        first_scan: usize,
        columns: &[&str],
        slices: &mut [StreamSlice],
        name: &mut IdBuilder,
    ) {
        let bound = self.bound;
        let mut passed = BTreeSet::new();
        for (stream, slice) in streams.iter().zip(slices.iter()).take(first_scan) {
            passed.extend(slice.ops.iter().map(|position| stream.ops[*position]));
        }
        for (stream, slice) in streams.iter().zip(slices).skip(first_scan) {
            let missing = missing_targets(bound, stream, &slice.ops, &passed);
            if missing.is_empty() {
                continue;
            }
            let mut targets = vec![SliceTarget {
                after: stream.ops.len(),
                columns: columns.to_vec(),
            }];
            targets.extend(missing);
            *slice = self.indexes.of(bound, stream).slice(&targets);
            name.json(&json!([slice.columns, slice.ops.len()]));
        }
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
                let hint = "add `future_rows` to its steps; `aggregate`, `dedupe` and SQL end \
                            them, and so does a union with an input that has none";
                return Err(Fault::new(codes::UNKNOWN_NAME, message)
                    .hint(hint)
                    .at(sink.at.as_ref()));
            }
            Some(part) => {
                let split = self.pipeline.split.as_ref();
                let parts = split.map(|split| split.parts()).unwrap_or_default();
                if !parts.contains(&part.as_str()) {
                    let message = format!("the split has no part `{part}`");
                    let fault = Fault::new(codes::UNKNOWN_NAME, message);
                    return Err(fault
                        .suggest(part, parts, "its parts are")
                        .at(sink.at.as_ref()));
                }
                if !flow.parts {
                    let message = format!("`{}` has no part `{part}` of the split", sink.from);
                    return Err(Fault::new(codes::UNKNOWN_NAME, message).at(sink.at.as_ref()));
                }
                Some(part_column(part))
            }
        };
        let columns = flow.column_names();
        let columns_read: Vec<&str> = columns.iter().chain(&part).map(String::as_str).collect();
        let mut name = IdBuilder::new("write");
        name.text(&sink.format)
            .json(&sink.config)
            .json(&json!([columns, part]));
        if is_future {
            name.text(FUTURE_PART);
        }
        let (mut slices, level) = self.streams(&streams, &columns_read, &mut name)?;
        if is_future {
            self.follow_history(&streams, first_scan, &columns_read, &mut slices, &mut name);
        }
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

    fn finish(mut self, writes: Vec<Pass>, is_known: IsKnown<'_>) -> Result<CompiledPasses> {
        let mut passes: Vec<Pass> = Vec::new();
        for (op, (id, level)) in &self.gather_ids {
            passes.push(Pass {
                id: *id,
                level: *level,
                work: PassWork::Gather(*op),
            });
        }
        let levels: BTreeSet<usize> = self
            .wanted
            .iter()
            .map(|analyzer| self.levels[*analyzer])
            .collect();
        for level in levels {
            for analyzers in self.groups(level) {
                let mut name = IdBuilder::new("learn");
                analyzers
                    .iter()
                    .filter_map(|analyzer| self.state_ids[*analyzer])
                    .collect::<BTreeSet<_>>()
                    .into_iter()
                    .for_each(|id| {
                        name.id(id);
                    });
                let mut reused = Vec::new();
                let mut missing = Vec::new();
                for analyzer in analyzers {
                    let state = self.state_ids[analyzer]
                        .ok_or_else(|| Fault::internal("an analyzer without a state id"))?;
                    if self.bound.asks[analyzer].held.is_some() || is_known(analyzer, state)? {
                        reused.push(analyzer)
                    } else {
                        missing.push(analyzer)
                    }
                }
                let (windowed, plain): (Vec<_>, Vec<_>) = missing
                    .into_iter()
                    .partition(|analyzer| self.is_windowed(*analyzer));
                let planner = LanePlanner::new(self.bound, self.datasets, &self.slices);
                let mut lanes = Vec::new();
                if !plain.is_empty() {
                    lanes = planner.lanes(&plain);
                }
                lanes.extend(planner.windowed_lanes(&windowed));
                passes.push(Pass {
                    id: name.finish(),
                    level,
                    work: PassWork::Learn(LearnWork {
                        lanes,
                        known: reused,
                    }),
                });
            }
        }
        passes.extend(writes);
        // Learn passes learn the groups of aggregates of their level along.
        passes.sort_by_key(|pass| {
            let kind_rank = match pass.work {
                PassWork::Learn(_) => 0,
                PassWork::Gather(_) => 1,
                PassWork::Write(_) => 2,
            };
            (pass.level, kind_rank)
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
        Ok(CompiledPasses {
            state_ids,
            levels: self.levels,
            gather_ids,
            passes,
        })
    }

    /// True if the analyzer reads the output of a window or as-of join.
    fn is_windowed(&mut self, analyzer: AnalyzerId) -> bool {
        let mut streams = self.bound.asks[analyzer].streams.iter();
        streams.any(|stream| {
            let index = self.indexes.of(self.bound, stream);
            index.is_over_series(stream.ops.len())
        })
    }

    /// The analyzers of a level, one per state, in groups that share a base.
    fn groups(&self, level: usize) -> Vec<Vec<AnalyzerId>> {
        let mut seen = BTreeSet::new();
        let mut groups: Vec<BaseGroup> = Vec::new();
        for analyzer in &self.wanted {
            if self.levels[*analyzer] != level || !seen.insert(self.state_ids[*analyzer]) {
                continue;
            }
            let streams = self.bound.asks[*analyzer].streams.iter();
            let mut joined = BaseGroup {
                bases: streams.map(|stream| stream.base).collect(),
                analyzers: vec![*analyzer],
            };
            let mut disjoint = Vec::new();
            for mut group in groups {
                if group.bases.is_disjoint(&joined.bases) {
                    disjoint.push(group);
                    continue;
                }
                // The larger one takes in the other.
                if group.analyzers.len() > joined.analyzers.len() {
                    std::mem::swap(&mut group, &mut joined);
                }
                joined.bases.extend(group.bases);
                joined.analyzers.extend(group.analyzers);
            }
            groups = disjoint;
            groups.push(joined);
        }
        for group in &mut groups {
            group.analyzers.sort_unstable();
        }
        groups.into_iter().map(|group| group.analyzers).collect()
    }
}
