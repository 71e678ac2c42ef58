//! Work of a learning pass that another pass has done on the rows that it wrote.

use std::collections::BTreeSet;

use forebay_model::Result;
use forebay_plan::RowCounts;

/// Spans and counts that were learned before the pass read anything itself.
#[derive(Default)]
pub struct FusedCoverage {
    /// The spans that were read, by their positions in the timeline.
    pub tasks: BTreeSet<usize>,
    /// The counts of their rows.
    pub counts: RowCounts,
}

/// Finalizes lanes once everything that can be fused was learned.
pub type FinalizeLanesFn<'a> = &'a (dyn Fn(FusedCoverage) -> Result<()> + Sync);
