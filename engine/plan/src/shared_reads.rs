//! Reads that aggregates share with statistics.

use std::collections::BTreeSet;

use crate::program::{OpId, PassWork, Program};
use crate::{BaseDataset, BaseId, GatherBy, GatherOp, PlanOp};

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
        let bases: BTreeSet<BaseId> = work
            .lanes
            .iter()
            .flat_map(|lane| &lane.scans)
            .map(|scan| scan.base)
            .collect();
        let gathers = self
            .passes
            .iter()
            .filter(|pass| pass.level == learn.level)
            .filter_map(|pass| match pass.work {
                PassWork::Gather(op) => Some(op),
                _ => None,
            });
        gathers
            .filter(|op| {
                self.only_source(*op)
                    .is_some_and(|base| bases.iter().eq([&base]))
            })
            .collect()
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
