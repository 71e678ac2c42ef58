//! Work units that threads read in pieces: the states of a piece wait for those of its neighbours.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;

use forebay_model::{AnyState, Result};
use forebay_threads::{lock, poisoned_lock};

/// A work unit that threads read in pieces.
pub(crate) struct DividedUnit {
    pub tasks: Range<usize>,
    /// For each analyzer, true if its state is needed.
    pub wanted: Vec<bool>,
    pub waiting: WaitingPieces,
}

/// Work units that threads read in pieces in parallel.
pub(crate) struct DividedUnits<'a> {
    pub units: &'a [DividedUnit],
    /// States of whole units that are not committed.
    pub unkept: &'a WaitingPieces,
}

/// States of consecutive pieces, which wait for those of their neighbours.
#[derive(Default)]
pub(crate) struct WaitingPieces(Mutex<Vec<PieceStates>>);

/// The states of some spans, by analyzer.
pub(crate) struct PieceStates {
    pub tasks: Range<usize>,
    pub states: BTreeMap<usize, AnyState>,
}

impl DividedUnit {
    pub fn holds(&self, tasks: &Range<usize>) -> bool {
        self.tasks.start <= tasks.start && tasks.end <= self.tasks.end
    }
}

impl PieceStates {
    /// True if some of its spans are among these.
    pub fn overlaps(&self, tasks: &Range<usize>) -> bool {
        tasks.start < self.tasks.end && self.tasks.start < tasks.end
    }
}

impl WaitingPieces {
    /// Takes out the states of exactly these spans.
    pub fn take(&self, tasks: &Range<usize>) -> Result<Option<PieceStates>> {
        let mut waiting = lock(&self.0)?;
        let position = waiting.iter().position(|states| states.tasks == *tasks);
        Ok(position.map(|position| waiting.swap_remove(position)))
    }

    /// All states, in the order of their spans.
    pub fn into_sorted(self) -> Result<Vec<PieceStates>> {
        let mut waiting = self.0.into_inner().map_err(|_| poisoned_lock())?;
        waiting.sort_by_key(|states| states.tasks.start);
        Ok(waiting)
    }

    /// Takes out the states of a neighbour of some spans. Without a neighbour, the states of the
    /// spans wait for one.
    pub fn neighbour_of(&self, states: PieceStates) -> Result<Option<[PieceStates; 2]>> {
        let mut waiting = lock(&self.0)?;
        let is_near = |other: &PieceStates| {
            other.tasks.end == states.tasks.start || states.tasks.end == other.tasks.start
        };
        let Some(position) = waiting.iter().position(is_near) else {
            waiting.push(states);
            return Ok(None);
        };
        let other = waiting.swap_remove(position);
        Ok(Some(if other.tasks.end == states.tasks.start {
            [other, states]
        } else {
            [states, other]
        }))
    }
}
