//! How the runs of a unit are dealt to its ticks.
//!
//! From every `span` consecutive runs (a group), one goes to each tick. Each group takes one of a few
//! permutations that the epoch has, and turns it: that costs a load and an addition per run.

use super::KeyedPermutation;
use super::seed::splitmix64;

/// How many permutations there are: with their turns, far more than the groups that a tick mixes.
const PERMUTATIONS: u64 = 64;

/// The permutations of an epoch.
#[derive(Debug, Clone)]
pub(super) struct GroupPermutations {
    seed: u64,
    span: u32,
    /// One after another: the place of each run.
    forward: Vec<u32>,
    /// And the run of each place.
    inverse: Vec<u32>,
}

/// How one group is dealt.
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
            deals
                .forward
                .extend((0..span).map(|run| permutation.forward(run.into()) as u32));
            deals
                .inverse
                .extend((0..span).map(|place| permutation.inverse(place.into()) as u32));
        }
        deals
    }

    /// How a group of a unit is dealt.
    #[inline]
    pub fn permutation(&self, unit: u32, group: u64) -> GroupPermutation<'_> {
        let hash = splitmix64(self.seed ^ (u64::from(unit) << 40) ^ group);
        let first = (hash % PERMUTATIONS) as usize * self.span as usize;
        let range = first..first + self.span as usize;
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
        self.forward[runs].iter().map(|place| self.turned(*place))
    }

    /// The run of the group that a tick gets.
    #[inline]
    pub fn run(&self, tick: u32) -> u32 {
        let span = self.inverse.len() as u32;
        let place = if tick >= self.turn {
            tick - self.turn
        } else {
            tick + span - self.turn
        };
        self.inverse[place as usize]
    }

    #[inline]
    fn turned(&self, place: u32) -> u32 {
        let (tick, span) = (place + self.turn, self.forward.len() as u32);
        if tick >= span { tick - span } else { tick }
    }
}
