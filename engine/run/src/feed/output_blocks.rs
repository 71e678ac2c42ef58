//! Rows that a run has written: nothing is left to do but to read them.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_commit::{Manifest, Shard};
use forebay_execute::SourceInput;
use forebay_model::{ContentId, Fault, FileRange, IdBuilder, Result, Span, codes};
use forebay_plan::{OpStream, PlanOp, base_column, part_column};
use forebay_storage::{ScanRequest, StorageLocation, literal_path};
use serde_json::json;

use crate::feed::late_steps::{LateSteps, UntoldPart, shared_operations};
use crate::feed::source_blocks::{RowCondition, RowTransform, ScanPlan};
use crate::feed::{FeedPlanner, READ_ROWS_MAX, distinct};

/// An output that holds the rows.
pub(super) struct CommittedOutput {
    pub input: SourceInput,
    pub sink: String,
    /// Names its rows.
    pub id: ContentId,
    /// What the manifest says of each file's content.
    digests: BTreeMap<String, String>,
    parting: Option<PartCondition>,
    /// What is applied to its rows, where it holds those of a step before.
    pub late: Option<LateSteps>,
}

/// What gives the rows of a part among all rows: a step of the split, and which of its results.
pub(super) struct PartCondition {
    pub op: usize,
    output: usize,
    reads: Vec<String>,
}

/// The same readings with nothing but what decides which rows there are; `None` where nothing does.
pub(super) fn counting_plans(readings: &[ScanPlan]) -> Option<Vec<ScanPlan>> {
    let parted = readings.iter().map(|reading| match &reading.transform {
        RowTransform::Kept(Some(RowCondition {
            kernel,
            output,
            reads,
        })) => {
            let columns = reads
                .iter()
                .map(|place| reading.request.columns[*place].clone())
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
                places: Vec::new(),
                flagged: false,
            })
        }
        _ => None,
    });
    parted.collect()
}

impl CommittedOutput {
    /// Names the stored rows of a span by the content of its files: when and where they were written does not matter.
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
    /// The output of a run that holds the rows, if there is one of this data and these steps.
    pub(super) fn committed_output(&self) -> Result<Option<CommittedOutput>> {
        let wanted = self.feed_sink()?;
        let last = self.pipeline.sinks.len() - 1;
        // One that holds just these rows is better than one that holds more.
        let mut writes: Vec<_> = self
            .writes()
            .filter(|(_, work)| work.sink != last)
            .collect();
        writes.sort_by_key(|(_, work)| {
            let sink = &self.pipeline.sinks[work.sink];
            // Of steps before, the nearest leaves least to do.
            let shared = shared_operations(self.bound(), &wanted.from, &sink.from).unwrap_or(0);
            (
                sink.from != wanted.from,
                sink.split != wanted.split,
                std::cmp::Reverse(shared),
            )
        });
        for (pass, work) in writes {
            let sink = &self.pipeline.sinks[work.sink];
            let mut parting = match (&wanted.split, &sink.split) {
                (wanted, of_sink) if wanted == of_sink => None,
                (Some(part), None) => match self.part_condition(&sink.from, part)? {
                    Some(parting) => Some(parting),
                    // A later step may tell the part.
                    None if sink.from != wanted.from => None,
                    None => continue,
                },
                _ => continue,
            };
            let late = if sink.from == wanted.from {
                None
            } else {
                let untold = wanted.split.as_deref().filter(|_| sink.split.is_none());
                let part = untold.map(|part| UntoldPart {
                    column: part_column(part),
                    condition: parting.take(),
                });
                match LateSteps::new(self.bound(), &wanted.from, &sink.from, part) {
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
            let is_table = self
                .session
                .sink(self.pipeline, work.sink)?
                .table()
                .is_some();
            let format = if is_table { "parquet" } else { &sink.format };
            let (input, digests) = self.open_output(format, &out, &manifest)?;
            if late
                .as_ref()
                .is_some_and(|late| !late.suits(&input.dataset.schema))
            {
                continue;
            }
            let mut id = IdBuilder::new("fed output");
            manifest.files().for_each(|file| {
                id.text(&file.digest);
            });
            let tells_part = parting.is_some() || late.is_some();
            match (tells_part, &self.pipeline.split) {
                // The files hold rows of other parts, too: the condition tells which rows there are.
                (true, Some(split)) => id.json(&json!([wanted.split, split.config()])),
                _ => id.json(&json!(wanted.split)),
            };
            if let Some(late) = &late {
                self.add_late_steps(late, &mut id)?;
            }
            let (sink, id) = (sink.name.clone(), id.finish());
            return Ok(Some(CommittedOutput {
                input,
                sink,
                id,
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
            let mut all = filled.map(Shard::directory).collect::<Result<Vec<_>>>()?;
            all.dedup();
            all.iter()
                .map(|directory| literal_path(&out.join(directory).shown))
                .collect()
        };
        let source = session
            .connectors
            .source(format, &json!({ "paths": directories }))?;
        let watch: Vec<String> = self
            .pipeline
            .sources
            .iter()
            .filter_map(|source| source.time.clone())
            .collect();
        let mut dataset = source.discover(&self.io, &watch)?;
        let mut found: Vec<FileRange> = dataset
            .spans
            .into_iter()
            .flat_map(|span| span.pieces)
            .collect();
        let (mut pieces, mut digests) = (Vec::new(), BTreeMap::new());
        for file in manifest.files() {
            let (of_file, others) = found
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
            found = others;
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

    /// How columns are read from it; where there are sequences, with the rows of other parts.
    pub(super) fn output_plan(
        &self,
        committed: &CommittedOutput,
        columns: &[String],
        flagged: bool,
    ) -> Result<ScanPlan> {
        if let Some(late) = &committed.late {
            return self.late_plan(committed, late, columns, flagged);
        }
        let CommittedOutput { input, parting, .. } = committed;
        let (mut columns, places) = distinct(columns);
        let (input, flagged) = (input.clone(), flagged && parting.is_some());
        let transform = match parting {
            None => RowTransform::Kept(None),
            Some(PartCondition { op, output, reads }) => {
                let PlanOp::Map(map) = &self.bound().ops[*op].op else {
                    return Err(Fault::internal("a split is no map"));
                };
                let place = |name: &String| {
                    columns
                        .iter()
                        .position(|known| known == name)
                        .unwrap_or_else(|| {
                            columns.push(name.clone());
                            columns.len() - 1
                        })
                };
                let reads = reads.iter().map(place).collect();
                RowTransform::Kept(Some(RowCondition {
                    kernel: (map.lower)(&[])?.kernel,
                    output: *output,
                    reads,
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
            places,
            flagged,
        })
    }

    /// How rows of a part can be told among those of a step: by columns that come out as they went in.
    fn part_condition(&self, from: &str, part: &str) -> Result<Option<PartCondition>> {
        let bound = self.bound();
        let Some(flow) = bound.flows.get(from) else {
            return Ok(None);
        };
        let hidden = part_column(part);
        let of = |stream: &OpStream| -> Option<PartCondition> {
            stream.ops.iter().enumerate().find_map(|(at, op)| {
                let PlanOp::Map(map) = &bound.ops[*op].op else {
                    return None;
                };
                let output = map
                    .writes
                    .iter()
                    .position(|field| *field.name() == hidden)?;
                let before = OpStream {
                    base: stream.base,
                    ops: stream.ops[..at].to_vec(),
                };
                // The same column of the base before and after: nothing has changed it between.
                let unchanged = |name: &String| {
                    flow.schema.field_with_name(name).is_ok()
                        && base_column(bound, stream, name).is_some()
                        && base_column(bound, stream, name) == base_column(bound, &before, name)
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
            [stream] => Ok(of(stream)),
            _ => Ok(None),
        }
    }
}
