//! A join by equal keys, as a sorted pass runs it.

use arrow::datatypes::DataType;
use forebay_plan::{JoinOp, OpId};

use crate::sorted_pass::SortedPass;

/// Column with the position of the other side's row, where rows multiply.
pub(super) const MATCH: &str = "__match";

/// A join by equal keys.
pub struct HashJoin<'a> {
    pub pass: &'a SortedPass<'a>,
    pub op: OpId,
    pub join: &'a JoinOp,
    /// The keys of this side, in the types in which they are compared.
    pub keys: &'a [(String, DataType)],
    /// Key columns of the other side.
    pub other_keys: &'a [(String, DataType)],
    /// Output rows for each row of this side.
    pub rows: RowsPerMatch,
}

/// Output rows for a row of this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowsPerMatch {
    /// One row, with nulls where nothing matches.
    One,
    /// One row for each match. With `unmatched`, a row without a match stays, with nulls.
    Each { unmatched: bool },
}
