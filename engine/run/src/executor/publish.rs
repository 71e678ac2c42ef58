//! Publishing of outputs.

use forebay_commit::{
    IntervalEntry, Manifest, PublishedOutput, PublishedTable, TableTarget, visible_location,
};
use forebay_contract::{OutputSum, TableLog, TableScope};
use forebay_model::{Fault, Pipeline, PipelineSink, Result, RowSum, codes};
use forebay_plan::{BaseDataset, ColumnLineage, SinkWork};
use forebay_storage::{Event, StorageLocation};

use super::RunExecutor;
use crate::report::{OutputColumn, OutputReport};
use crate::sink_schema::table_schema;

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
    /// Counts of its rows, from the sources on.
    pub(super) row_sum: RowSum,
    /// Name of its pass in faults.
    pub(super) label: String,
}

impl StagedOutput {
    /// Sink, location and manifest of the output.
    pub fn parts<'p>(
        &'p self,
        pipeline: &'p Pipeline,
    ) -> (&'p PipelineSink, &'p StorageLocation, &'p Manifest) {
        (&pipeline.sinks[self.work.sink], &self.out, &self.manifest)
    }
}

impl RunExecutor<'_> {
    /// Refuses a whole output without rows where its inputs or the visible output have rows. An
    /// interval may be empty, since days may be without data. Only the first `sinks` sinks are the
    /// user's, and checked.
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
            let visible_rows =
                Manifest::read(&self.session.io, out)?.map_or(0, |visible| visible.rows);
            // A gather may have dropped all rows of the sources.
            let bases = &self.program.bound.bases;
            let gathered = work
                .scans
                .iter()
                .any(|scan| matches!(bases[scan.base], BaseDataset::Gathered(_)));
            let source_rows = self
                .state
                .sources
                .values()
                .filter(|_| gathered)
                .filter_map(|input| input.dataset.rows());
            let had = match (*rows_in).max(source_rows.sum()) {
                0 if visible_rows == 0 => continue,
                0 => format!("readers see {visible_rows} rows of it"),
                read => format!("{read} rows were read"),
            };
            let fault = Fault::new(
                codes::EMPTY,
                format!("the output would have no row, and {had}: it is not published"),
            );
            let hint = "look at the filters, the split and the joins; \
                        where it may be empty, run with --allow-empty";
            let at = self.pipeline.sinks[work.sink].at.as_ref();
            faults.push(fault.file(&out.shown).pass(label).hint(hint).at(at));
        }
        Fault::combine(faults).map_or(Ok(()), Err)
    }

    /// Makes the outputs visible to readers, after checking that all of them can be published.
    pub fn publish(&mut self, staged: Vec<StagedOutput>) -> Result<Vec<OutputReport>> {
        let session = self.session;
        // All checks come before the first publication, so that a fault leaves all outputs as
        // they were.
        for StagedOutput {
            out,
            manifest,
            interval,
            row_sum,
            label,
            ..
        } in &staged
        {
            Self::check_row_sum(row_sum, manifest.rows, label)?;
            manifest
                .check_interval(&session.io, out, interval.as_ref())
                .map_err(|fault| fault.pass(label))?;
        }
        for output in &staged {
            self.warn_of_no_rows(output);
        }
        let planned = staged
            .iter()
            .map(|output| output.manifest.files().count() as u64)
            .sum();
        session.watch.on_event(Event::Worked { done: 0, planned });
        let mut outputs = Vec::new();
        for output in staged {
            outputs.push(self.publish_output(output)?);
        }
        Ok(outputs)
    }

    /// Warns of an output without rows of an interval, or of new rows: the time may lie beyond the data.
    fn warn_of_no_rows(&self, staged: &StagedOutput) {
        if staged.manifest.rows > 0 || self.session.allow_empty {
            return;
        }
        let times = match (&staged.interval, &self.session.served.from) {
            (Some(interval), _) => {
                format!("in the interval from {} to {}", interval.from, interval.to)
            }
            (None, Some(from)) => format!("from {from} on"),
            (None, None) => return,
        };
        let sink = &self.pipeline.sinks[staged.work.sink];
        let message = format!(
            "sink `{}` has no row {times}; look at the newest time of the sources; where it may be \
             empty, run with --allow-empty",
            sink.name
        );
        self.session.watch.on_event(Event::Warning { message });
    }

    fn publish_output(&mut self, staged: StagedOutput) -> Result<OutputReport> {
        let session = self.session;
        let StagedOutput {
            work,
            out,
            manifest,
            interval,
            scope,
            row_sum,
            label,
            ..
        } = staged;
        let numbering =
            session.published_numbering(self.pipeline, &self.program.bound, work.sink)?;
        let manifest = Manifest {
            numbering,
            ..manifest
        };
        let rows = manifest.rows;
        let files = manifest.files().count();
        let counts = manifest.counts();
        let bytes = manifest.files().map(|file| file.bytes).sum();
        // Checked directly before each manifest is replaced: a later attempt of the run may
        // have taken over (decisions/fencing.md).
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
                    // Compaction and checkpoints come after the commit, so that they cannot
                    // delay or fail it.
                    self.tidy_table(log, &out.shown);
                }
                published.map(
                    |PublishedTable {
                         manifest,
                         copied,
                         is_new,
                     }| { (PublishedOutput { manifest, is_new }, copied.rows) },
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
        session.watch.on_event(Event::Worked {
            done: files as u64,
            planned: 0,
        });
        let columns = self.output_columns(&work, &published)?;
        let is_table = sink.table().is_some();
        let path = visible_location(&out).shown;
        let data = if is_table {
            path.clone()
        } else {
            published.shown_at(&out)
        };
        Ok(OutputReport {
            sink: self.pipeline.sinks[work.sink].name.clone(),
            path,
            table: is_table,
            data,
            rows,
            sum: OutputSum::new(row_sum, rows),
            rows_copied,
            files,
            bytes,
            clipped: counts.clipped,
            crossed: counts.crossed,
            rows_without_history: counts.without_history,
            duplicates: counts.duplicates,
            columns,
            is_new,
        })
    }

    /// Compacts a table and writes its checkpoints. Its rows are committed: a failure is no failure
    /// of the run.
    fn tidy_table(&self, log: &dyn TableLog, table: &str) {
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
        for (problem, result) in done {
            if let Err(fault) = result {
                let message = format!("{table}: {problem}: {}", fault.message());
                self.session.watch.on_event(Event::Warning { message });
            }
        }
    }

    /// The columns of an output with their origins.
    fn output_columns(&self, work: &SinkWork, manifest: &Manifest) -> Result<Vec<OutputColumn>> {
        let bound = &self.program.bound;
        let flow = bound.flows.get(&self.pipeline.sinks[work.sink].from);
        let flow = flow.ok_or_else(|| Fault::internal("a sink without rows"))?;
        let mut lineage = ColumnLineage::new(bound);
        let mut columns = Vec::with_capacity(manifest.columns.len());
        for (name, data_type) in &manifest.columns {
            columns.push(OutputColumn::traced(
                &mut lineage,
                flow,
                name,
                data_type.clone(),
            ));
        }
        Ok(columns)
    }
}
