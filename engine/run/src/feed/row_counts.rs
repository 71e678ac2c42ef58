//! Numbers of rows of the blocks of a feed.

use forebay_model::{IdBuilder, Result, Span};
use forebay_plan::{SinkWork, slice_for_columns};

use crate::feed::planner::FeedPlanner;
use crate::feed::source_blocks::{RowTransform, ScanPlan, count_block_rows};
use crate::feed::{FeedInput, output_blocks, with_part};

impl FeedPlanner<'_> {
    /// Rows of each block: those that the format records, if no operation adds or drops rows; else
    /// they are counted once, and the counts are kept.
    pub(super) fn block_row_counts(
        &self,
        readings: &[ScanPlan],
        blocks: &[(usize, Span)],
        source: &FeedInput<'_>,
    ) -> Result<Vec<u64>> {
        let stored_counts: Option<Vec<u64>> = blocks.iter().map(|(_, span)| span.rows()).collect();
        let counting = match source.committed {
            None => self.row_counting_plans(source.work)?,
            Some(committed) => match &committed.late {
                None => output_blocks::counting_plans(readings),
                Some(late) => self.late_counting_plans(&committed.input, late)?,
            },
        };
        if let (Some(stored_counts), None) = (&stored_counts, &counting) {
            return Ok(stored_counts.clone());
        }
        let mut id = IdBuilder::new("rows of blocks");
        id.id(source.fingerprint);
        for (_, span) in blocks {
            id.id(span.fingerprint());
        }
        let threads = self.session.options.threads.max(1);
        self.load_or_compute(id.finish(), blocks.len(), &mut || {
            count_block_rows(
                &self.io,
                counting.as_deref().unwrap_or(readings),
                blocks,
                threads,
            )
        })
    }

    /// Plans that read only the columns that decide which rows there are; `None` if all rows are
    /// kept.
    fn row_counting_plans(&self, work: &SinkWork) -> Result<Option<Vec<ScanPlan>>> {
        let mut readings = Vec::new();
        let mut changes = work.part.is_some();
        for scan in &work.scans {
            let stream = self.stream(scan)?;
            let (ops, base_columns) =
                slice_for_columns(self.bound(), stream, &with_part(&[], work));
            changes |= ops
                .iter()
                .any(|at| self.bound().ops[stream.ops[*at]].op.changes_rows());
            let chain = self.chain(stream, &ops, &base_columns, &[], work.part.clone())?;
            let input = self.state.input(self.program, scan.base)?.clone();
            let request = self.request(scan, base_columns)?;
            let transform = RowTransform::Chain(Box::new(chain));
            readings.push(ScanPlan {
                input,
                request,
                transform,
                positions: Vec::new(),
                flagged: false,
            });
        }
        Ok(changes.then_some(readings))
    }
}
