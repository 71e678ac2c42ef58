//! The batch plan: the number of batches, and the positions that each delivers.
//!
//! Step `s` takes `batch * world` consecutive positions, of which each rank delivers `batch`
//! consecutive ones. The positions that do not fill a last step are treated as `last` says; they
//! are shared evenly, and every rank has the same number of steps, so that no rank waits for
//! another in vain.

use std::ops::Range;

use forebay_model::{BATCH_ROWS_MAX, Fault, Result, codes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Treatment of the rows that do not fill a last step.
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

/// Division of positions into batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchPlan {
    /// Positions from the first step to the end of the epoch.
    pub rows: u64,
    /// Rows of a batch.
    pub batch: u32,
    /// Number of ranks that share the positions.
    pub world: u32,
    /// Treatment of the rows that do not fill a last step.
    pub last: RemainderPolicy,
}

/// Rows that one rank delivers in one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankSlice {
    /// Positions, counted from the law's first; beyond `rows` they wrap into the next epoch.
    pub positions: Range<u64>,
    /// Rows of the batch's shape; more than the positions where it is padded.
    pub shape_rows: u32,
}

impl BatchPlan {
    /// Checks a rank and the sizes of batch and world.
    pub fn check(batch: u32, rank: u32, world: u32) -> Result<()> {
        if batch == 0 || batch as usize > BATCH_ROWS_MAX {
            let message = format!("a batch of {batch} rows is not between 1 and {BATCH_ROWS_MAX}");
            return Err(Fault::new(codes::BAD_VALUE, message));
        }
        if rank >= world {
            let message = format!("rank {rank} is outside a world of {world}");
            let fault = Fault::new(codes::BAD_VALUE, message);
            return Err(fault.hint("ranks count from 0 to the world size less one"));
        }
        Ok(())
    }

    fn step_rows(&self) -> u64 {
        u64::from(self.batch) * u64::from(self.world)
    }

    /// Number of steps, and thus of batches of every rank.
    pub fn steps(&self) -> u64 {
        match self.last {
            RemainderPolicy::Drop => self.rows / self.step_rows(),
            RemainderPolicy::Short | RemainderPolicy::Pad | RemainderPolicy::Wrap => {
                self.rows.div_ceil(self.step_rows())
            }
        }
    }

    /// Refuses an epoch without a step: a training over it would end well, and learn nothing.
    pub fn require_steps(&self) -> Result<()> {
        if self.steps() > 0 {
            return Ok(());
        }
        if self.rows == 0 {
            let fault = Fault::new(codes::EMPTY, "there are no rows to deliver");
            return Err(fault.hint("look at the part of the split, and at what the steps filter"));
        }
        let consumers = if self.world == 1 {
            String::new()
        } else {
            format!(" ({} for each of {} consumers)", self.batch, self.world)
        };
        let message = format!(
            "an epoch has {} rows, and its steps have {}{consumers}: no batch is delivered, since \
             rows that do not fill a step are left out",
            self.rows,
            self.step_rows()
        );
        Err(Fault::new(codes::EMPTY, message).hint(
            "lower `batch_rows`, or deliver such rows too: `last: short`, `last: pad` or \
             `last: wrap`",
        ))
    }

    /// Positions that the first `steps` steps have used up; after the last step, all.
    pub fn consumed(&self, steps: u64) -> u64 {
        if steps >= self.steps() {
            self.rows
        } else {
            steps * self.step_rows()
        }
    }

    /// The rows that a rank delivers in a step.
    pub fn rank_slice(&self, rank: u32, step: u64) -> RankSlice {
        let start = step * self.step_rows();
        let batch = u64::from(self.batch);
        let unfilled = self.rows - start.min(self.rows);
        if unfilled >= self.step_rows() || self.last == RemainderPolicy::Wrap {
            let start = start + u64::from(rank) * batch;
            return RankSlice {
                positions: start..start + batch,
                shape_rows: self.batch,
            };
        }
        let world = u64::from(self.world);
        let rank = u64::from(rank);
        // The first ranks get one row more each where the rows do not divide evenly.
        let start_of = |rank: u64| start + unfilled / world * rank + rank.min(unfilled % world);
        let positions = start_of(rank)..start_of(rank + 1);
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
