//! The deal of a unit's runs to its ticks.
//!
//! From every `span` consecutive runs (a group), one goes to each tick. Each group takes one of a few
//! permutations that the epoch has, and turns it: that costs a load and an addition per run.

use super::KeyedPermutation;
use super::seed::splitmix64;

/// Number of permutations: with their turns, far more than the groups that a tick mixes.
const PERMUTATIONS: u64 = 64;

/// The permutations of an epoch.
#[derive(Debug, Clone)]
pub(super) struct GroupPermutations {
    seed: u64,
    span: u32,
    /// The position of each run, one permutation after another.
    forward: Vec<u32>,
    /// The run of each position.
    inverse: Vec<u32>,
}

/// The deal of one group.
#[derive(Debug, Clone, Copy)]
pub(super) struct GroupPermutation<'a> {
    forward: &'a [u32],
    inverse: &'a [u32],
    turn: u32,
}

impl GroupPermutations {
    /// The permutations of groups of `span` runs.
    pub fn new(seed: u64, span: u32) -> GroupPermutations {
        let mut deals = GroupPermutations {
            seed,
            span,
            forward: Vec::new(),
            inverse: Vec::new(),
        };
        for number in 0..PERMUTATIONS {
            let permutation = KeyedPermutation::new(span.into(), splitmix64(seed ^ number));
            for index in 0..span {
                deals.forward.push(permutation.forward(index.into()) as u32);
                deals.inverse.push(permutation.inverse(index.into()) as u32);
            }
        }
        deals
    }

    /// The deal of a group of a unit.
    #[inline]
    pub fn permutation(&self, unit: u32, group: u64) -> GroupPermutation<'_> {
        let hash = splitmix64(self.seed ^ (u64::from(unit) << 40) ^ group);
        let first = (hash % PERMUTATIONS) as usize * self.span as usize;
        let range = first..first + self.span as usize;
        // The upper half of the hash, scaled to `0..span`.
        let turn = (((hash >> 32) * u64::from(self.span)) >> 32) as u32;
        GroupPermutation {
            forward: &self.forward[range.clone()],
            inverse: &self.inverse[range],
            turn,
        }
    }
}

impl GroupPermutation<'_> {
    /// The tick of a run of the group.
    #[inline]
    pub fn tick(&self, run: u32) -> u32 {
        self.turned(self.forward[run as usize])
    }

    /// The ticks of consecutive runs of the group.
    #[inline]
    pub fn ticks(&self, runs: std::ops::Range<usize>) -> impl Iterator<Item = u32> + '_ {
        self.forward[runs]
            .iter()
            .map(|position| self.turned(*position))
    }

    /// The run of the group that a tick gets.
    #[inline]
    pub fn run(&self, tick: u32) -> u32 {
        let span = self.inverse.len() as u32;
        let position = if tick >= self.turn {
            tick - self.turn
        } else {
            tick + span - self.turn
        };
        self.inverse[position as usize]
    }

    #[inline]
    fn turned(&self, position: u32) -> u32 {
        let tick = position + self.turn;
        let span = self.forward.len() as u32;
        if tick >= span { tick - span } else { tick }
    }
}
