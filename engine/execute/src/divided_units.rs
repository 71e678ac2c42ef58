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
    /// What was learned of consecutive pieces, which wait for their neighbours.
    waiting: Mutex<Vec<PieceStates>>,
}

/// Work units that threads read in pieces, side by side.
pub(crate) struct DividedUnits<'a> {
    pub units: &'a [DividedUnit],
    /// All spans: states of whole units that are not committed wait here.
    pub unkept: &'a DividedUnit,
}

/// The states of some spans of a unit, by analyzer.
pub(crate) struct PieceStates {
    pub tasks: Range<usize>,
    pub states: BTreeMap<usize, AnyState>,
}

impl DividedUnit {
    pub fn new(tasks: Range<usize>, wanted: Vec<bool>) -> DividedUnit {
        DividedUnit { tasks, wanted, waiting: Mutex::default() }
    }

    pub fn holds(&self, tasks: &Range<usize>) -> bool {
        self.tasks.start <= tasks.start && tasks.end <= self.tasks.end
    }

    /// Takes out what was learned of all its spans.
    pub fn take_whole(&self) -> Result<Option<PieceStates>> {
        let mut waiting = lock(&self.waiting)?;
        let place = waiting.iter().position(|states| states.tasks == self.tasks);
        Ok(place.map(|place| waiting.swap_remove(place)))
    }

    /// What was learned of its spans, in their order.
    pub fn into_waiting(self) -> Result<Vec<PieceStates>> {
        let mut waiting = self.waiting.into_inner().map_err(|_| poisoned_lock())?;
        waiting.sort_by_key(|states| states.tasks.start);
        Ok(waiting)
    }

    /// Takes out a neighbour of some spans. Without any, what was learned of them waits for one.
    pub fn neighbour_of(&self, own: PieceStates) -> Result<Option<[PieceStates; 2]>> {
        let mut waiting = lock(&self.waiting)?;
        let is_near = |other: &PieceStates| other.tasks.end == own.tasks.start || own.tasks.end == other.tasks.start;
        let Some(place) = waiting.iter().position(is_near) else {
            waiting.push(own);
            return Ok(None);
        };
        let other = waiting.swap_remove(place);
        Ok(Some(if other.tasks.end == own.tasks.start { [other, own] } else { [own, other] }))
    }
}
