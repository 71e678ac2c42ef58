//! Publishing of outputs.

use forebay_commit::{
    IntervalEntry, Manifest, PublishedOutput, PublishedTable, TableTarget, visible_location,
};
use forebay_model::{Fault, Pipeline, PipelineSink, Result, codes};
use forebay_plan::{BaseDataset, ColumnOrigin, RowCounts, SinkWork, origins};
use forebay_storage::{Event, StorageLocation, TableLog, TableScope};

use super::RunExecutor;
use crate::report::{OriginColumn, OutputColumn, OutputReport};
use crate::tables::table_schema;

/// An output that is written and recorded, and that readers do not see yet. A run publishes its outputs when no other
/// part of it can fail any more.
pub(crate) struct StagedOutput {
    pub(super) work: SinkWork,
    pub(super) out: StorageLocation,
    pub(super) manifest: Manifest,
    /// The interval that was written, if not everything.
    pub(super) interval: Option<IntervalEntry>,
    /// The rows of a table that it takes the place of.
    pub(super) scope: TableScope,
    /// Rows that its pass read.
    pub(super) rows_in: u64,
    /// What faults call its pass.
    pub(super) label: String,
}

impl StagedOutput {
    /// Its sink, its location and its manifest.
    pub fn parts<'p>(
        &'p self,
        pipeline: &'p Pipeline,
    ) -> (&'p PipelineSink, &'p StorageLocation, &'p Manifest) {
        (&pipeline.sinks[self.work.sink], &self.out, &self.manifest)
    }
}

impl RunExecutor<'_> {
    /// Refuses a whole output without rows where its inputs or the visible output have rows. An interval may be empty:
    /// there are days without data. Only the first `sinks` sinks are the user's, and checked.
    pub fn check_rows(&self, staged: &[StagedOutput], sinks: usize) -> Result<()> {
        let mut faults = Vec::new();
        for StagedOutput {
            work,
            out,
            manifest,
            interval,
            rows_in,
            label,
            ..
        } in staged
        {
            if manifest.rows > 0
                || interval.is_some()
                || work.sink >= sinks
                || self.session.allow_empty
            {
                continue;
            }
            let shown = Manifest::read(&self.session.io, out)?.map_or(0, |visible| visible.rows);
            // A gather may have dropped all rows of the sources.
            let bases = &self.program.bound.bases;
            let gathered = work
                .scans
                .iter()
                .any(|scan| matches!(bases[scan.base], BaseDataset::Gathered(_)));
            let known = self
                .state
                .sources
                .values()
                .filter(|_| gathered)
                .filter_map(|input| input.dataset.rows());
            let had = match (*rows_in).max(known.sum()) {
                0 if shown == 0 => continue,
                0 => format!("readers see {shown} rows of it"),
                read => format!("{read} rows were read"),
            };
            let fault = Fault::new(
                codes::EMPTY,
                format!("the output would have no row, and {had}: it is not published"),
            );
            let hint = "look at the filters, the split and the joins; where it may be empty, run with --allow-empty";
            let at = self.pipeline.sinks[work.sink].at.as_ref();
            faults.push(fault.file(&out.shown).pass(label).hint(hint).at(at));
        }
        Fault::combine(faults).map_or(Ok(()), Err)
    }

    /// Makes the outputs visible to readers, after checking that all of them can be published.
    pub fn publish(&mut self, staged: Vec<StagedOutput>) -> Result<Vec<OutputReport>> {
        let session = self.session;
        for StagedOutput {
            out,
            manifest,
            interval,
            label,
            ..
        } in &staged
        {
            manifest
                .check_interval(&session.io, out, interval.as_ref())
                .map_err(|fault| fault.pass(label))?;
        }
        let mut outputs = Vec::new();
        for StagedOutput {
            work,
            out,
            manifest,
            interval,
            scope,
            label,
            ..
        } in staged
        {
            let manifest = Manifest {
                numbering: session.published_numbering(
                    self.pipeline,
                    &self.program.bound,
                    work.sink,
                )?,
                ..manifest
            };
            let (rows, files) = (manifest.rows, manifest.files().count());
            let RowCounts {
                clipped,
                crossed,
                duplicates,
                ..
            } = manifest.counts();
            let bytes = manifest.files().map(|file| file.bytes).sum();
            let check_fence = || session.check_fence();
            let sink = session.sink(self.pipeline, work.sink)?;
            let published = match sink.table() {
                Some(log) => {
                    let schema = &table_schema(&self.program.bound, self.pipeline, work.sink)?;
                    let table = TableTarget {
                        log,
                        schema,
                        scope,
                        scratch: &self.scratch,
                    };
                    let published = manifest.publish_to_table(
                        &session.io,
                        &out,
                        &table,
                        interval.as_ref(),
                        &check_fence,
                    );
                    if published.is_ok() {
                        self.tidy_table(log, &out.shown);
                    }
                    published.map(
                        |PublishedTable {
                             manifest,
                             copied,
                             is_new,
                         }| {
                            (PublishedOutput { manifest, is_new }, copied.rows)
                        },
                    )
                }
                None => manifest
                    .publish(
                        &session.io,
                        &out,
                        interval.as_ref(),
                        (&check_fence, &mut self.background),
                    )
                    .map(|published| (published, 0)),
            };
            let (published, rows_copied) = published.map_err(|fault| fault.pass(label))?;
            let PublishedOutput {
                manifest: published,
                is_new,
            } = published;
            let columns = self.output_columns(&work, &published)?;
            let (table, path) = (sink.table().is_some(), visible_location(&out).shown);
            let data = if table {
                path.clone()
            } else {
                published.shown_at(&out)
            };
            let sink = self.pipeline.sinks[work.sink].name.clone();
            outputs.push(OutputReport {
                sink,
                path,
                table,
                data,
                rows,
                rows_copied,
                files,
                bytes,
                clipped,
                crossed,
                duplicates,
                columns,
                is_new,
            });
        }
        Ok(outputs)
    }

    /// Keeps a table cheap to read. Its rows are there: a failure fails no run.
    fn tidy_table(&self, log: &dyn TableLog, shown: &str) {
        let done = [
            (
                "small files stay apart",
                log.compact(&self.session.io, &self.scratch),
            ),
            (
                "the log gets no checkpoint",
                log.checkpoint(&self.session.io, &self.scratch),
            ),
        ];
        for (what, done) in done {
            if let Err(fault) = done {
                let message = format!("{shown}: {what}: {}", fault.message());
                self.session.watch.on_event(Event::Warning { message });
            }
        }
    }

    /// The columns of an output with their origins.
    fn output_columns(&self, work: &SinkWork, manifest: &Manifest) -> Result<Vec<OutputColumn>> {
        let bound = &self.program.bound;
        let flow = bound.flows.get(&self.pipeline.sinks[work.sink].from);
        let flow = flow.ok_or_else(|| Fault::internal("a sink without rows"))?;
        let column = |(name, data_type): &(String, String)| {
            let origin = |ColumnOrigin { source, column }| OriginColumn { source, column };
            let from = origins(bound, flow, name).into_iter().map(origin).collect();
            OutputColumn {
                name: name.clone(),
                data_type: data_type.clone(),
                from,
            }
        };
        Ok(manifest.columns.iter().map(column).collect())
    }
}
