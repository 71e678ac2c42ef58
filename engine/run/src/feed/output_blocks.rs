//! Blocks of rows that a run has written, which only need to be read.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_commit::{Manifest, Shard};
use forebay_contract::{ScanRequest, literal_path};
use forebay_execute::SourceInput;
use forebay_model::{ContentId, Fault, FileRange, IdBuilder, Result, Span, codes};
use forebay_plan::{OpStream, PlanOp, base_column, part_column};
use forebay_storage::StorageLocation;
use serde_json::json;

use crate::feed::late_steps::{LateSteps, UntoldPart, shared_operations};
use crate::feed::planner::{FeedPlanner, READ_ROWS_MAX, distinct};
use crate::feed::source_blocks::{RowCondition, RowTransform, ScanPlan};

/// An output that holds the rows.
pub(super) struct CommittedOutput {
    pub input: SourceInput,
    pub sink: String,
    /// Id of its rows.
    pub id: ContentId,
    /// Digest of each file's content, from the manifest.
    digests: BTreeMap<String, String>,
    parting: Option<PartCondition>,
    /// Steps to apply to its rows, where it holds those of an earlier step.
    pub late: Option<LateSteps>,
}

/// Condition that selects the rows of a part: an operation of the split, and the number of its
/// output.
pub(super) struct PartCondition {
    pub op: usize,
    output: usize,
    reads: Vec<String>,
}

/// Plans that read only the columns that decide which rows there are; `None` if all rows are kept.
pub(super) fn counting_plans(readings: &[ScanPlan]) -> Option<Vec<ScanPlan>> {
    let parted = readings.iter().map(|reading| match &reading.transform {
        RowTransform::Kept(Some(RowCondition {
            kernel,
            output,
            reads,
        })) => {
            let columns = reads
                .iter()
                .map(|position| reading.request.columns[*position].clone())
                .collect();
            let transform = RowTransform::Kept(Some(RowCondition {
                kernel: kernel.clone(),
                output: *output,
                reads: (0..reads.len()).collect(),
            }));
            let request = ScanRequest {
                columns,
                ..reading.request.clone()
            };
            Some(ScanPlan {
                input: reading.input.clone(),
                request,
                transform,
                positions: Vec::new(),
                flagged: false,
            })
        }
        _ => None,
    });
    parted.collect()
}

impl CommittedOutput {
    /// Id of the stored rows of a span by the content of its files, independent of the time and
    /// place at which they were written.
    pub fn block_id(&self, span: &Span) -> ContentId {
        let mut id = IdBuilder::new("rows of an output");
        for piece in &span.pieces {
            id.text(self.digests.get(&piece.path).map_or("", String::as_str));
            id.json(&json!([
                piece.row_groups,
                piece.row_range,
                piece.byte_range
            ]));
        }
        id.finish()
    }
}

impl FeedPlanner<'_> {
    /// The committed output that holds the rows; `None` if there is none of this data and these
    /// steps.
    pub(super) fn committed_output(&self) -> Result<Option<CommittedOutput>> {
        let feed_sink = self.feed_sink()?;
        let last = self.pipeline.sinks.len() - 1;
        // One that holds just these rows is better than one that holds more.
        let mut writes: Vec<_> = self
            .writes()
            .filter(|(_, work)| work.sink != last)
            .collect();
        writes.sort_by_key(|(_, work)| {
            let sink = &self.pipeline.sinks[work.sink];
            // Of steps before, the nearest leaves least to do.
            let shared = shared_operations(self.bound(), &feed_sink.from, &sink.from).unwrap_or(0);
            (
                sink.from != feed_sink.from,
                sink.split != feed_sink.split,
                std::cmp::Reverse(shared),
            )
        });
        for (pass, work) in writes {
            let sink = &self.pipeline.sinks[work.sink];
            let mut parting = match (&feed_sink.split, &sink.split) {
                (feed_part, sink_part) if feed_part == sink_part => None,
                (Some(part), None) => match self.part_condition(&sink.from, part)? {
                    Some(parting) => Some(parting),
                    // A step after the output may still mark the part.
                    None if sink.from != feed_sink.from => None,
                    None => continue,
                },
                _ => continue,
            };
            let late = if sink.from == feed_sink.from {
                None
            } else {
                let untold = feed_sink.split.as_deref().filter(|_| sink.split.is_none());
                let part = untold.map(|part| UntoldPart {
                    column: part_column(part),
                    split_op: parting.take().map(|condition| condition.op),
                });
                match LateSteps::new(self.bound(), &feed_sink.from, &sink.from, part) {
                    Some(late) => Some(late),
                    None => continue,
                }
            };
            let (out, Some(manifest)) = self.output_of(pass, work.sink)? else {
                continue;
            };
            if manifest.files().next().is_none() {
                continue;
            }
            // The manifest names the files of a table.
            let written_sink = self.session.sink(self.pipeline, work.sink)?;
            let format = match written_sink.table() {
                Some(table) => table.file_format(),
                None => sink.format.as_str(),
            };
            let (input, digests) = self.open_output(format, &out, &manifest)?;
            if late
                .as_ref()
                .is_some_and(|late| !late.suits(&input.dataset.schema))
            {
                continue;
            }
            let mut id = IdBuilder::new("fed output");
            for file in manifest.files() {
                id.text(&file.digest);
            }
            let tells_part = parting.is_some() || late.is_some();
            match (tells_part, &self.pipeline.split) {
                // The files also hold rows of other parts: the condition selects rows.
                (true, Some(split)) => id.json(&json!([feed_sink.split, split.config()])),
                _ => id.json(&json!(feed_sink.split)),
            };
            if let Some(late) = &late {
                self.add_late_steps(late, &mut id)?;
            }
            return Ok(Some(CommittedOutput {
                input,
                sink: sink.name.clone(),
                id: id.finish(),
                digests,
                parting,
                late,
            }));
        }
        Ok(None)
    }

    /// The files that the manifest names, in its order, and the digest of each path.
    fn open_output(
        &self,
        format: &str,
        out: &StorageLocation,
        manifest: &Manifest,
    ) -> Result<(SourceInput, BTreeMap<String, String>)> {
        let session = self.session;
        let directories: Vec<String> = {
            let filled = manifest
                .shards
                .iter()
                .filter(|shard| !shard.files.is_empty());
            let mut names = filled.map(Shard::directory).collect::<Result<Vec<_>>>()?;
            names.dedup();
            names
                .iter()
                .map(|directory| literal_path(&out.join(directory).shown))
                .collect()
        };
        let source = session
            .connectors
            .source(format, &json!({ "paths": directories }))?;
        let watched: Vec<String> = self
            .pipeline
            .sources
            .iter()
            .filter_map(|source| source.time.clone())
            .collect();
        let mut dataset = source.discover(&self.io, &watched)?;
        let mut remaining_pieces: Vec<FileRange> = dataset
            .spans
            .into_iter()
            .flat_map(|span| span.pieces)
            .collect();
        let mut pieces = Vec::new();
        let mut digests = BTreeMap::new();
        for file in manifest.files() {
            let (of_file, others) = remaining_pieces
                .into_iter()
                .partition(|piece: &FileRange| piece.path.ends_with(&*file.path));
            let of_file: Vec<FileRange> = of_file;
            if of_file.is_empty() {
                return Err(
                    Fault::new(codes::NOT_FOUND, "a file of the output is missing")
                        .file(out.join(&file.path).shown)
                        .hint("run the spec again: it writes what is missing"),
                );
            }
            let is_whole =
                |piece: &&FileRange| piece.row_groups.is_none() && piece.byte_range.is_none();
            if let Some(piece) = of_file
                .iter()
                .find(|piece| is_whole(piece) && piece.bytes != file.bytes)
            {
                let message = format!(
                    "a file of the output has {} bytes, and {} were written",
                    piece.bytes, file.bytes
                );
                return Err(Fault::new(codes::CORRUPT, message)
                    .file(out.join(&file.path).shown)
                    .hint("remove the output, and run the spec again"));
            }
            digests.extend(
                of_file
                    .iter()
                    .map(|piece| (piece.path.clone(), file.digest.clone())),
            );
            pieces.extend(of_file);
            remaining_pieces = others;
        }
        dataset.spans = pieces
            .into_iter()
            .map(|piece| Span {
                pieces: vec![piece],
            })
            .collect();
        let source = session.cancellable(source);
        Ok((
            SourceInput {
                dataset: Arc::new(dataset),
                source,
                in_time_order: false,
            },
            digests,
        ))
    }

    /// Plan that reads columns from an output; for sequences, with the rows of other parts.
    pub(super) fn output_plan(
        &self,
        committed: &CommittedOutput,
        columns: &[String],
        flagged: bool,
    ) -> Result<ScanPlan> {
        if let Some(late) = &committed.late {
            return self.late_plan(&committed.input, late, columns, flagged);
        }
        let CommittedOutput { input, parting, .. } = committed;
        let (mut columns, positions) = distinct(columns);
        let input = input.clone();
        let flagged = flagged && parting.is_some();
        let transform = match parting {
            None => RowTransform::Kept(None),
            Some(PartCondition { op, output, reads }) => {
                let PlanOp::Map(map) = &self.bound().ops[*op].op else {
                    return Err(Fault::internal("a split is no map"));
                };
                let mut read_positions = Vec::with_capacity(reads.len());
                for name in reads {
                    let position = columns.iter().position(|column| column == name);
                    read_positions.push(position.unwrap_or(columns.len()));
                    if position.is_none() {
                        columns.push(name.clone());
                    }
                }
                RowTransform::Kept(Some(RowCondition {
                    kernel: (map.lower)(&[])?.kernel,
                    output: *output,
                    reads: read_positions,
                }))
            }
        };
        let request = ScanRequest {
            columns,
            schema: input.dataset.schema.clone(),
            pruning: Vec::new(),
            batch_rows: self.session.options.batch_rows.min(READ_ROWS_MAX),
            row_keys: false,
        };
        Ok(ScanPlan {
            input,
            request,
            transform,
            positions,
            flagged,
        })
    }

    /// Condition that selects the rows of a part among those of a step, from columns that leave the
    /// step unchanged.
    fn part_condition(&self, from: &str, part: &str) -> Result<Option<PartCondition>> {
        let bound = self.bound();
        let Some(flow) = bound.flows.get(from) else {
            return Ok(None);
        };
        let hidden = part_column(part);
        let condition_of = |stream: &OpStream| -> Option<PartCondition> {
            stream.ops.iter().enumerate().find_map(|(at, op)| {
                let PlanOp::Map(map) = &bound.ops[*op].op else {
                    return None;
                };
                let output = map
                    .writes
                    .iter()
                    .position(|field| *field.name() == hidden)?;
                let upstream = OpStream {
                    base: stream.base,
                    ops: stream.ops.first(at),
                };
                // The same column of the base before and after: nothing has changed it between.
                let unchanged = |name: &String| {
                    flow.schema.field_with_name(name).is_ok()
                        && base_column(bound, stream, name).is_some()
                        && base_column(bound, stream, name) == base_column(bound, &upstream, name)
                };
                let suits = map.asks.is_empty() && map.reads.iter().all(unchanged);
                suits.then(|| PartCondition {
                    op: *op,
                    output,
                    reads: map.reads.clone(),
                })
            })
        };
        match flow.streams.as_slice() {
            [stream] => Ok(condition_of(stream)),
            _ => Ok(None),
        }
    }
}
