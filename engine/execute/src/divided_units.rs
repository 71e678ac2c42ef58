//! Work units that threads read in pieces: what was learned of a piece waits for its neighbours.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;

use forebay_model::{AnyState, Result};
use forebay_threads::{lock, poisoned_lock};

/// A work unit that threads read in pieces.
pub(crate) struct DividedUnit {
    pub tasks: Range<usize>,
    /// For which analyzers.
    pub wanted: Vec<bool>,
    pub waiting: WaitingPieces,
}

/// Work units that threads read in pieces, side by side.
pub(crate) struct DividedUnits<'a> {
    pub units: &'a [DividedUnit],
    /// States of whole units that are not committed.
    pub unkept: &'a WaitingPieces,
}

/// What was learned of consecutive pieces, which wait for their neighbours.
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
    /// Whether some of its spans are among these.
    pub fn overlaps(&self, tasks: &Range<usize>) -> bool {
        tasks.start < self.tasks.end && self.tasks.start < tasks.end
    }
}

impl WaitingPieces {
    /// Takes out what was learned of exactly these spans.
    pub fn take(&self, tasks: &Range<usize>) -> Result<Option<PieceStates>> {
        let mut waiting = lock(&self.0)?;
        let place = waiting.iter().position(|states| states.tasks == *tasks);
        Ok(place.map(|place| waiting.swap_remove(place)))
    }

    /// All of them, in the order of their spans.
    pub fn into_sorted(self) -> Result<Vec<PieceStates>> {
        let mut waiting = self.0.into_inner().map_err(|_| poisoned_lock())?;
        waiting.sort_by_key(|states| states.tasks.start);
        Ok(waiting)
    }

    /// Takes out a neighbour of some spans. Without any, what was learned of them waits for one.
    pub fn neighbour_of(&self, own: PieceStates) -> Result<Option<[PieceStates; 2]>> {
        let mut waiting = lock(&self.0)?;
        let is_near = |other: &PieceStates| {
            other.tasks.end == own.tasks.start || own.tasks.end == other.tasks.start
        };
        let Some(place) = waiting.iter().position(is_near) else {
            waiting.push(own);
            return Ok(None);
        };
        let other = waiting.swap_remove(place);
        Ok(Some(if other.tasks.end == own.tasks.start {
            [other, own]
        } else {
            [own, other]
        }))
    }
}
