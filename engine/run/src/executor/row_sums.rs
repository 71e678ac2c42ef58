//! The rows of datasets and outputs, counted from the sources on.
//!
//! A pass counts the rows that it reads and those that it makes of them. Where it reads an intermediate dataset, the counts of
//! that dataset come before its own. The sums of committed results are those that were counted when they were made.

use forebay_commit::Manifest;
use forebay_model::{Fault, Result, RowChange, RowSum, codes};
use forebay_plan::{
    BaseDataset, BaseId, GatherBy, GatherOp, NodeFlow, OpId, PlanOp, RowCounts, SinkWork,
};

use super::RunExecutor;

impl RunExecutor<'_> {
    /// Keeps the sum of an intermediate dataset for the passes that read it.
    pub(super) fn keep_row_sum(&mut self, op: OpId, manifest: &Manifest) -> Result<()> {
        let mut counts = manifest.counts();
        // A record of an earlier version counts output rows only, not input rows.
        let uncounted = manifest.rows as i64 - counts.output();
        if counts.input == 0 && uncounted > 0 {
            counts.append("", RowChange::Uncounted, uncounted.unsigned_abs());
        }
        // Outputs report those of windows in their own passes alone.
        self.warn_of_duplicates(&self.program.bound.ops[op].label, counts.duplicates);
        let sum = self.row_sum(&counts, self.gathered_before(op))?;
        sum.changes.check_sum(sum.rows_in, manifest.rows)?;
        self.row_sums.insert(op, sum);
        Ok(())
    }

    /// Warns of rows with the keys and the time of an earlier row that windows met before an operation.
    pub(super) fn warn_of_duplicates(&self, target: &str, rows: u64) {
        if rows == 0 {
            return;
        }
        let message = format!(
            "windows before `{target}` met {rows} rows with the same keys and the same time \
             as a row before them: a key may be missing"
        );
        let hint = "name all columns that tell series apart in `keys`, `dedupe` the rows, \
                    or declare `duplicates: allow` beside `keys`";
        self.session
            .warn(&Fault::new(codes::OUT_OF_ORDER, message).hint(hint));
    }

    /// The sum of the rows that a write pass reads from intermediate datasets alone: what happened before it.
    pub(super) fn sums_before(&self, work: &SinkWork) -> Vec<RowSum> {
        let written = work.scans.iter().skip(work.first_scan);
        let gathered = written.filter_map(|scan| self.gathered_base(scan.base));
        gathered
            .filter_map(|op| self.row_sums.get(&op).cloned())
            .collect()
    }

    /// Counts of a pass: those of the datasets that it reads, then its own.
    pub(super) fn row_sum(&self, counts: &RowCounts, inputs: Vec<RowSum>) -> Result<RowSum> {
        let mut sum = RowSum::default();
        let mut intermediate_rows = 0;
        for dataset in &inputs {
            intermediate_rows += dataset.rows_out()?;
            sum.add(dataset);
        }
        // Rows of sources are counted together with those of intermediate datasets. An interval
        // reads a part of the latter.
        sum.rows_in += counts.input.saturating_sub(intermediate_rows);
        let unread = intermediate_rows.saturating_sub(counts.input);
        sum.changes.record("", RowChange::OutsideInterval, unread);
        sum.changes.add(&counts.changes);
        Ok(sum)
    }

    /// Counts of the datasets whose rows become those of a gather.
    fn gathered_before(&self, op: OpId) -> Vec<RowSum> {
        let bound = &self.program.bound;
        let inputs = bound.gather_inputs.get(&op).map(Vec::as_slice);
        let mut flows: Vec<&NodeFlow> = inputs
            .unwrap_or_default()
            .iter()
            .map(|(_, flow)| flow)
            .collect();
        // The rows of the other side of a join are looked up.
        if let PlanOp::Gather(GatherOp {
            lower: GatherBy::Join { .. },
            ..
        }) = &bound.ops[op].op
        {
            flows.truncate(1);
        }
        let streams = flows.iter().flat_map(|flow| &flow.streams);
        let gathered = streams.filter_map(|stream| self.gathered_base(stream.base));
        gathered
            .filter_map(|op| self.row_sums.get(&op).cloned())
            .collect()
    }

    fn gathered_base(&self, base: BaseId) -> Option<OpId> {
        match self.program.bound.bases[base] {
            BaseDataset::Gathered(op) => Some(op),
            BaseDataset::Source(_) => None,
        }
    }

    /// Refuses an output whose rows do not add up.
    pub(super) fn check_row_sum(sum: &RowSum, rows: u64, label: &str) -> Result<()> {
        let checked = sum.changes.check_sum(sum.rows_in, rows);
        checked.map_err(|fault: Fault| fault.pass(label))
    }
}
