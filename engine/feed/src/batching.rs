//! The batch law: how many batches there are, and which positions each delivers.
//!
//! Step `s` takes `batch * world` consecutive positions, of which each rank delivers `batch`
//! consecutive ones. The positions that do not fill a last step are treated as `last` says; they
//! are shared evenly, and every rank has the same number of steps, so that no rank waits for
//! another in vain.

use std::ops::Range;

use forebay_model::{BATCH_ROWS_MAX, Fault, Result, codes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What becomes of the rows that do not fill a last step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RemainderPolicy {
    /// They are not delivered.
    Drop,
    /// The last batch is shorter, perhaps empty: every row exactly once.
    Short,
    /// The last batch is filled up with rows of mask 0: every row exactly once, one shape.
    Pad,
    /// The last batch is filled up with the first rows of the next epoch.
    Wrap,
}

/// How positions are cut into batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchPlan {
    /// Positions from the first step to the end of the epoch.
    pub rows: u64,
    /// Rows of a batch.
    pub batch: u32,
    /// How many ranks share the positions.
    pub world: u32,
    /// What becomes of the rest.
    pub last: RemainderPolicy,
}

/// What one rank delivers in one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankSlice {
    /// Positions, counted from the law's first; beyond `rows` they wrap into the next epoch.
    pub positions: Range<u64>,
    /// Rows of the batch's shape; more than the positions where it is padded.
    pub shape_rows: u32,
}

impl BatchPlan {
    /// A fault where there is nothing to cut.
    pub fn check(batch: u32, rank: u32, world: u32) -> Result<()> {
        if batch == 0 || batch as usize > BATCH_ROWS_MAX {
            return Err(Fault::new(
                codes::BAD_VALUE,
                format!("a batch of {batch} rows is not between 1 and {BATCH_ROWS_MAX}"),
            ));
        }
        if rank >= world {
            return Err(Fault::new(
                codes::BAD_VALUE,
                format!("rank {rank} is outside a world of {world}"),
            )
            .hint("ranks count from 0 to the world size less one"));
        }
        Ok(())
    }

    fn step_rows(&self) -> u64 {
        u64::from(self.batch) * u64::from(self.world)
    }

    /// How many steps, and thus batches of every rank.
    pub fn steps(&self) -> u64 {
        match self.last {
            RemainderPolicy::Drop => self.rows / self.step_rows(),
            RemainderPolicy::Short | RemainderPolicy::Pad | RemainderPolicy::Wrap => {
                self.rows.div_ceil(self.step_rows())
            }
        }
    }

    /// How many positions the first `steps` steps have used up; after the last step, all.
    pub fn consumed(&self, steps: u64) -> u64 {
        if steps >= self.steps() {
            self.rows
        } else {
            steps * self.step_rows()
        }
    }

    /// What a rank delivers in a step.
    pub fn rank_slice(&self, rank: u32, step: u64) -> RankSlice {
        let (start, batch) = (step * self.step_rows(), u64::from(self.batch));
        let rest = self.rows - start.min(self.rows);
        if rest >= self.step_rows() || self.last == RemainderPolicy::Wrap {
            let start = start + u64::from(rank) * batch;
            return RankSlice {
                positions: start..start + batch,
                shape_rows: self.batch,
            };
        }
        let (world, rank) = (u64::from(self.world), u64::from(rank));
        let before = |rank: u64| start + rest / world * rank + rank.min(rest % world);
        let positions = before(rank)..before(rank + 1);
        let shape_rows = match self.last {
            RemainderPolicy::Pad => self.batch,
            _ => (positions.end - positions.start) as u32,
        };
        RankSlice {
            positions,
            shape_rows,
        }
    }
}
