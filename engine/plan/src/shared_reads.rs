//! Reads that aggregates share with statistics.

use std::collections::BTreeSet;

use crate::{BaseDataset, BaseId, GatherBy, GatherOp, PlanOp};
use crate::{OpId, PassWork, Program};

impl Program {
    /// The aggregates whose groups can be learned in the read of a learn pass: those of its level that read nothing but
    /// its only source, in one stream without windows.
    pub fn aggregates_along(&self, pass: usize) -> Vec<OpId> {
        let Some(learn) = self.passes.get(pass) else {
            return Vec::new();
        };
        let PassWork::Learn(work) = &learn.work else {
            return Vec::new();
        };
        let mut bases: BTreeSet<BaseId> = BTreeSet::new();
        for lane in &work.lanes {
            bases.extend(lane.scans.iter().map(|scan| scan.base));
        }
        let mut aggregates = Vec::new();
        for pass in &self.passes {
            let PassWork::Gather(op) = pass.work else {
                continue;
            };
            if pass.level != learn.level {
                continue;
            }
            // All lanes read the one source that the aggregate reads.
            let source = self.only_source(op);
            if source.is_some() && bases.iter().copied().eq(source) {
                aggregates.push(op);
            }
        }
        aggregates
    }

    /// The source that an aggregate reads, if it reads one in one stream without windows.
    fn only_source(&self, op: OpId) -> Option<BaseId> {
        let PlanOp::Gather(GatherOp {
            lower: GatherBy::GroupBy(_),
            ..
        }) = &self.bound.ops[op].op
        else {
            return None;
        };
        let [(_, flow)] = self.bound.gather_inputs.get(&op)?.as_slice() else {
            return None;
        };
        let [stream] = flow.streams.as_slice() else {
            return None;
        };
        let is_windowed = stream
            .ops
            .iter()
            .any(|op| self.bound.ops[*op].op.is_over_series());
        let is_source = matches!(self.bound.bases[stream.base], BaseDataset::Source(_));
        (is_source && !is_windowed).then_some(stream.base)
    }
}
