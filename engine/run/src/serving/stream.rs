//! The operations that serve rows of one step, and the steps that cannot be served row by row.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::DataType;
use forebay_commit::Artifact;
use forebay_model::{CalendarSpan, ContentId, Fault, Finding, IdBuilder, Pipeline, Result, codes};
use forebay_plan::{
    AnalyzerId, BaseDataset, BoundOp, BoundPipeline, ChainContext, ChainWindow, ColumnTap, JoinBy,
    JoinOp, MatchDirection, OpChain, OpId, OpStream, PlanOp, WindowOp, WindowRowOrder, base_column,
    slice_for_columns,
};

/// The rows of a step, as operations on the rows of one source.
#[derive(Clone, Copy)]
pub(crate) struct ServedStream<'a> {
    pub bound: &'a BoundPipeline,
    pub stream: &'a OpStream,
    pub node: &'a str,
}

/// A step that cannot be served row by row, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnservedStep {
    /// Label of the step, such as `features.lag`.
    pub step: String,
    /// The reason, phrased to follow the step's name.
    pub reason: String,
}

/// A step that has learned from the rows of all series by time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PooledStep {
    /// Label of the step, such as `features.pooled`.
    pub step: String,
    /// Distance before a row at which the rows end that it is computed from. Its ticks are nanoseconds, or those of a
    /// column of whole numbers.
    pub behind: CalendarSpan,
}

/// The compiled operations of a step.
pub(crate) struct ServedChain {
    /// The chain; its first tap has the columns of the step.
    pub chain: OpChain,
    /// Columns of the source that it reads.
    pub base_columns: Vec<String>,
    /// The steps that may remove rows, in order: each has a tap after that of the columns.
    pub removing: Vec<RemovingStep>,
    /// The joins by time, in order: each has a tap after those of the steps that may remove rows, with the keys and the
    /// time of the rows that reach it.
    pub joins: Vec<OpId>,
}

impl ServedChain {
    /// The windows that keep a state.
    pub fn windows(&self) -> Vec<&ChainWindow> {
        let windows = self.chain.windows().iter();
        windows.filter(|window| window.plan.is_some()).collect()
    }
}

/// A step that may remove rows.
pub(crate) struct RemovingStep {
    /// Label of the step, such as `features.filter`.
    pub label: String,
    /// The condition of a filter.
    pub condition: Option<String>,
}

/// The operations that windows need, and the columns that these read.
pub(crate) struct WindowOps {
    /// Positions of the operations in the stream, ascending.
    pub positions: Vec<usize>,
    /// Columns of the source that they read.
    pub columns: Vec<String>,
}

impl<'a> ServedStream<'a> {
    /// The stream of a step. Steps that need all rows at once have none.
    pub fn of(bound: &'a BoundPipeline, node: &'a str) -> Result<ServedStream<'a>> {
        let flow = bound.flows.get(node).ok_or_else(|| {
            let message = format!("the artifact has no step `{node}`");
            Fault::new(codes::UNKNOWN_NAME, message)
        })?;
        let [stream] = flow.streams.as_slice() else {
            let message = format!("`{node}` is a union: apply its inputs one by one");
            return Err(Fault::new(codes::UNSUPPORTED, message));
        };
        if let BaseDataset::Gathered(op) = &bound.bases[stream.base] {
            let label = &bound.ops[*op].label;
            let message = format!(
                "`{label}` needs all rows at once, so `{node}` cannot be applied to a batch"
            );
            return Err(Fault::new(codes::UNSUPPORTED, message)
                .hint("use `forebay apply` on a whole dataset"));
        }
        Ok(ServedStream {
            bound,
            stream,
            node,
        })
    }

    /// The source of its rows.
    pub fn source(&self) -> Option<&'a str> {
        match &self.bound.bases[self.stream.base] {
            BaseDataset::Source(name) => Some(name),
            BaseDataset::Gathered(_) => None,
        }
    }

    /// Names of its columns.
    pub fn columns(&self) -> Vec<String> {
        let fields = self
            .bound
            .flows
            .get(self.node)
            .map(|flow| flow.schema.fields());
        let names = fields.into_iter().flatten();
        names.map(|field| field.name().clone()).collect()
    }

    fn op_at(&self, position: usize) -> OpId {
        self.stream.ops[position]
    }

    /// Positions of the operations that its columns need.
    fn needed(&self) -> Vec<usize> {
        let columns = self.columns();
        let names: Vec<&str> = columns.iter().map(String::as_str).collect();
        slice_for_columns(self.bound, self.stream, &names).0
    }

    /// The operations that windows need: the filters before them, and what their inputs are made of.
    pub fn window_ops(&self) -> WindowOps {
        let mut positions = BTreeSet::new();
        let mut columns = BTreeSet::new();
        for position in self.needed() {
            let PlanOp::Window(window) = &self.bound.ops[self.op_at(position)].op else {
                continue;
            };
            let upstream = OpStream {
                base: self.stream.base,
                ops: self.stream.ops.first(position),
            };
            let reads: Vec<&str> = window.columns().map(String::as_str).collect();
            let (needed, read) = slice_for_columns(self.bound, &upstream, &reads);
            positions.extend(needed);
            positions.insert(position);
            columns.extend(read);
        }
        // The order of the source's columns.
        let schema = &self.bound.base_schemas[self.stream.base];
        let names = schema.fields().iter().map(|field| field.name());
        WindowOps {
            positions: positions.into_iter().collect(),
            columns: names
                .filter(|name| columns.contains(*name))
                .cloned()
                .collect(),
        }
    }

    /// Hash of the operations that windows need, with what they learned.
    pub fn operations_id(
        &self,
        ops: &WindowOps,
        digest: &dyn Fn(AnalyzerId) -> ContentId,
    ) -> ContentId {
        let mut id = IdBuilder::new("serving state");
        let schema = &self.bound.base_schemas[self.stream.base];
        for column in &ops.columns {
            let data_type = schema
                .field_with_name(column)
                .map(|field| field.data_type());
            let data_type = data_type.map_or_else(|_| String::new(), DataType::to_string);
            id.text(column).text(&data_type);
        }
        for position in &ops.positions {
            let op = &self.bound.ops[self.op_at(*position)];
            id.id(op.identity);
            for ask in &op.asks {
                id.id(digest(*ask));
            }
        }
        id.finish()
    }

    /// The operations, compiled. All chains of a step compute its windows in the same groups.
    pub fn chain(
        &self,
        finding: &dyn Fn(AnalyzerId) -> Result<Arc<Finding>>,
    ) -> Result<ServedChain> {
        let columns = self.columns();
        let names: Vec<&str> = columns.iter().map(String::as_str).collect();
        let (needed, base_columns) = slice_for_columns(self.bound, self.stream, &names);
        let mut taps = vec![ColumnTap {
            after: self.stream.ops.len(),
            columns,
            part: None,
            marks_unfound: true,
        }];
        let mut removing = Vec::new();
        let mut joins = Vec::new();
        let mut join_taps = Vec::new();
        for position in &needed {
            let op = &self.bound.ops[self.op_at(*position)];
            if let PlanOp::Join(join) = &op.op {
                joins.push(self.op_at(*position));
                join_taps.push(ColumnTap {
                    after: *position,
                    columns: join.columns_here().cloned().collect(),
                    part: None,
                    marks_unfound: false,
                });
            }
            let condition = match &op.op {
                PlanOp::Keep(keep) => keep.condition.as_ref().map(ToString::to_string),
                PlanOp::Expand(_) => None,
                _ => continue,
            };
            taps.push(ColumnTap {
                after: position + 1,
                columns: Vec::new(),
                part: None,
                marks_unfound: false,
            });
            removing.push(RemovingStep {
                label: op.label.clone(),
                condition,
            });
        }
        taps.extend(join_taps);
        let context = ChainContext {
            finding,
            row_order: &|_| WindowRowOrder::Time,
            admit: None,
            check_stop: None,
        };
        let chain = OpChain::new(
            self.bound,
            self.stream,
            &needed,
            &base_columns,
            &taps,
            context,
        )?;
        Ok(ServedChain {
            chain,
            base_columns,
            removing,
            joins,
        })
    }

    /// True if each row must be later than the newest of its series: the window's series are at least as fine as those of
    /// the source.
    pub fn is_strict(&self, window: &ChainWindow, source_keys: &[String]) -> bool {
        let PlanOp::Window(op) = &self.bound.ops[window.op].op else {
            return false;
        };
        !source_keys.is_empty() && source_keys.iter().all(|key| op.keys.contains(key))
    }

    /// The columns of the source that are keys of all these windows: rows that differ in one share no series.
    pub fn common_keys(&self, windows: &[&ChainWindow]) -> Vec<String> {
        let mut common: Option<Vec<String>> = None;
        for window in windows {
            let keys = self.source_keys_of(window);
            common = Some(match common {
                Some(mut common) => {
                    common.retain(|key| keys.contains(key));
                    common
                }
                None => keys,
            });
        }
        common.unwrap_or_default()
    }

    /// The keys of a window that are columns of the source.
    pub fn source_keys_of(&self, window: &ChainWindow) -> Vec<String> {
        let mut ops = self.stream.ops.iter();
        let Some(position) = ops.position(|candidate| *candidate == window.op) else {
            return Vec::new();
        };
        let mut keys = Vec::new();
        for key in self.keys_of(window) {
            keys.extend(self.source_column(position, &key));
        }
        keys
    }

    /// Names of the key columns of a window.
    pub fn keys_of(&self, window: &ChainWindow) -> Vec<String> {
        match &self.bound.ops[window.op].op {
            PlanOp::Window(op) => op.keys.clone(),
            _ => Vec::new(),
        }
    }

    /// The analyzers of the operations that its columns need, each with the position of the operation.
    pub fn analyzers(&self) -> Vec<(usize, AnalyzerId)> {
        let mut analyzers = Vec::new();
        for position in self.needed() {
            for analyzer in &self.bound.ops[self.op_at(position)].asks {
                analyzers.push((position, *analyzer));
            }
        }
        analyzers
    }

    /// The column of the source that a column at a position is.
    pub fn source_column(&self, position: usize, column: &str) -> Option<String> {
        let upstream = OpStream {
            base: self.stream.base,
            ops: self.stream.ops.first(position),
        };
        base_column(self.bound, &upstream, column)
    }

    /// The column of the source that holds the times by which a join matches.
    pub fn join_time(&self, op: OpId) -> Option<String> {
        let position = self
            .stream
            .ops
            .iter()
            .position(|candidate| *candidate == op)?;
        match &self.bound.ops[op].op {
            PlanOp::Join(join) => self.source_column(position, &join.as_of()?.time),
            _ => None,
        }
    }

    /// The column of the source that holds the times of windows and joins.
    pub fn time_column(&self) -> Option<String> {
        let mut ops = self.needed().into_iter();
        ops.find_map(|position| match &self.bound.ops[self.op_at(position)].op {
            PlanOp::Window(window) => self.source_column(position, &window.time),
            PlanOp::Join(join) => self.source_column(position, &join.as_of()?.time),
            _ => None,
        })
    }

    /// The column of times by which the rows of a state are told from later ones. Steps over all series alone are served
    /// by the time that the source declares.
    pub fn state_time(&self, pipeline: &Pipeline) -> Option<String> {
        let mut needed = self.needed().into_iter();
        let reads_rows =
            needed.any(|position| self.bound.ops[self.op_at(position)].op.is_over_series());
        if reads_rows {
            return self.time_column();
        }
        pipeline.source(self.source()?)?.time.clone()
    }

    /// The steps that cannot be served row by row although the state holds what windows need.
    pub fn unserved(&self) -> Vec<UnservedStep> {
        let mut unserved = Vec::new();
        for position in self.needed() {
            let op = &self.bound.ops[self.op_at(position)];
            let reason = match &op.op {
                PlanOp::Window(window) if window.backward => {
                    "reads rows that come later than the row".to_owned()
                }
                PlanOp::Window(window) => match self.join_before(position, window) {
                    Some(join) => format!("reads columns that `{join}` joins by time"),
                    None => continue,
                },
                PlanOp::Series(_) => "is given whole series".to_owned(),
                PlanOp::Join(join) if is_held(join) => continue,
                PlanOp::Join(join) => match &join.by {
                    JoinBy::Equality(_) => format!(
                        "joins all rows of `{}`, which are too many for a lookup table",
                        join.other
                    ),
                    JoinBy::Time(_) => format!(
                        "joins rows of `{}` that may come later than the row",
                        join.other
                    ),
                },
                PlanOp::Map(_) if learned_behind(op) == Some(CalendarSpan::default()) => {
                    "takes the rows of all series up to the row's own time; \
                     with a `gap` it can be served that far beyond the state"
                        .to_owned()
                }
                _ => continue,
            };
            let step = op.label.clone();
            if !unserved
                .iter()
                .any(|listed: &UnservedStep| listed.step == step)
            {
                unserved.push(UnservedStep { step, reason });
            }
        }
        unserved
    }

    /// The join by time that inputs of a window come from.
    fn join_before(&self, position: usize, window: &WindowOp) -> Option<&'a str> {
        let upstream = OpStream {
            base: self.stream.base,
            ops: self.stream.ops.first(position),
        };
        let reads: Vec<&str> = window.columns().map(String::as_str).collect();
        let needed = slice_for_columns(self.bound, &upstream, &reads)
            .0
            .into_iter();
        let mut ops = needed.map(|position| &self.bound.ops[self.stream.ops[position]]);
        let join = ops.find(|op| matches!(op.op, PlanOp::Join(_)))?;
        Some(&join.label)
    }

    /// The steps that have learned from the rows of all series by time.
    pub fn pooled_steps(&self) -> Vec<PooledStep> {
        let mut pooled: Vec<PooledStep> = Vec::new();
        for position in self.needed() {
            let op = &self.bound.ops[self.op_at(position)];
            let Some(behind) = learned_behind(op) else {
                continue;
            };
            let step = PooledStep {
                step: op.label.clone(),
                behind,
            };
            // A step has an operation for each of its columns.
            if !pooled.contains(&step) {
                pooled.push(step);
            }
        }
        pooled
    }

    /// The fault of steps that cannot be served.
    pub fn refuse_unserved(&self) -> Result<()> {
        let unserved = self.unserved().into_iter();
        let faults = unserved.map(|unserved| unserved.fault(self.node));
        Fault::combine(faults.collect()).map_or(Ok(()), Err)
    }
}

impl UnservedStep {
    /// The fault of a spec that serves a step behind this one.
    pub(crate) fn fault(&self, node: &str) -> Fault {
        let message = format!(
            "`{}` {}, so `{node}` cannot be served row by row",
            self.step, self.reason
        );
        Fault::new(codes::UNSUPPORTED, message)
            .step(&self.step)
            .hint("serve a step before it, or use `forebay apply` on a whole dataset")
    }
}

/// The finding of an artifact for an analyzer of its pipeline.
pub(super) fn artifact_finding(artifact: &Artifact, analyzer: AnalyzerId) -> Result<Arc<Finding>> {
    match artifact.findings.get(analyzer) {
        Some(learned) => Ok(learned.finding.clone()),
        None => {
            let message = "the artifact lacks a finding";
            Err(Fault::new(codes::STATE_VERSION, message))
        }
    }
}

/// Refuses a pipeline whose rows cannot be served as it declares.
pub(crate) fn check_serving(pipeline: &Pipeline, bound: &BoundPipeline) -> Result<()> {
    let Some(serving) = &pipeline.serving else {
        return Ok(());
    };
    let unserved = unserved_steps(bound, &serving.from).into_iter();
    let faults = unserved.map(|step| step.fault(&serving.from).at(serving.at.as_ref()));
    Fault::combine(faults.collect()).map_or(Ok(()), Err)
}

/// The steps behind which rows of a step cannot be served, with the reasons.
pub(crate) fn unserved_steps(bound: &BoundPipeline, node: &str) -> Vec<UnservedStep> {
    let Some(flow) = bound.flows.get(node) else {
        return Vec::new();
    };
    let [stream] = flow.streams.as_slice() else {
        return vec![UnservedStep {
            step: node.to_owned(),
            reason: "is a union, whose inputs can be served one by one".to_owned(),
        }];
    };
    if let BaseDataset::Gathered(op) = &bound.bases[stream.base] {
        return vec![UnservedStep {
            step: bound.ops[*op].label.clone(),
            reason: "needs all rows at once".to_owned(),
        }];
    }
    let served = ServedStream {
        bound,
        stream,
        node,
    };
    served.unserved()
}

/// True for a join by time whose rows a state can hold.
fn is_held(join: &JoinOp) -> bool {
    join.as_of()
        .is_some_and(|as_of| as_of.direction == MatchDirection::Backward)
}

/// Distance before a row at which the rows of all series end that an operation has learned by time from; `None` for
/// operations that have learned nothing by time.
fn learned_behind(op: &BoundOp) -> Option<CalendarSpan> {
    match &op.op {
        PlanOp::Map(map) if !op.asks.is_empty() => map.behind?.span(),
        _ => None,
    }
}
