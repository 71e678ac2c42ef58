//! The environment of a simulation: actors take turns, and one seed decides the order of turns, the
//! time, and the failures. An actor is a thread; at any time one of them runs.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use bytes::Bytes;
use forebay_commit::Shard;
use object_store::path::Path;

use crate::simulation::check::InvariantChecks;
use crate::simulation::request::{ActorId, PutCondition, StoreRequest};

/// Number of turns in which failures are injected.
const TROUBLED_TURNS: u64 = 1000;

/// Turns after which a run that has not ended never will.
const TURNS_MAX: u64 = 20_000;

/// Seconds that a request is late at most: longer than its sender's next attempt takes.
const LATE_SECONDS_MAX: f64 = 40.0;

/// Seconds that a message takes at most.
const DELAY_SECONDS_MAX: f64 = 8.0;

/// Messages between actors.
#[derive(Debug, Clone)]
pub enum ActorMessage {
    Do {
        coordinator: ActorId,
        run: u64,
        task: usize,
        attempt: u64,
        shard: usize,
    },
    Done {
        worker: ActorId,
        run: u64,
        task: usize,
        attempt: u64,
        shard: Shard,
    },
    Failed {
        worker: ActorId,
        run: u64,
        task: usize,
        attempt: u64,
    },
}

/// Answer of the store to a [`StoreRequest`].
#[derive(Debug, PartialEq)]
pub enum StoreAnswer {
    Done,
    Exists,
    Changed,
}

/// Failure of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NetworkFailure {
    None,
    /// The request never arrives.
    Lost,
    /// The request arrives; the answer does not.
    Unanswered,
    /// The sender times out; the request arrives later.
    Late,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum ActorStatus {
    Ready,
    Waiting(f64),
    Ended,
}

/// The payload of a thread that ends in the middle: its actor's process was killed.
pub struct ActorKilled;

/// Numbers without end; the same for the same seed.
pub struct SimulationRng(u64);

impl SimulationRng {
    pub fn new(seed: u64) -> SimulationRng {
        SimulationRng(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Random number from 0 to 1.
    pub fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn below(&mut self, end: usize) -> usize {
        ((self.next() * end as f64) as usize).min(end - 1)
    }

    pub fn chance(&mut self, share: f64) -> bool {
        self.next() < share
    }
}

pub struct WorldState {
    pub random: SimulationRng,
    pub objects: BTreeMap<Path, Bytes>,
    pub checks: InvariantChecks,
    /// The broken invariant, if any; ends the simulation.
    pub wrong: Option<String>,
    pub turns: u64,
    now: f64,
    status: Vec<ActorStatus>,
    /// Offset of each actor's clock, in seconds.
    skews: Vec<f64>,
    inboxes: Vec<Vec<(f64, ActorMessage)>>,
    late: Vec<(f64, StoreRequest)>,
    running: Option<ActorId>,
}

pub struct SimulatedWorld {
    state: Mutex<WorldState>,
    turns: Vec<Condvar>,
}

/// An actor's view of the world.
#[derive(Clone)]
pub struct ActorHandle {
    pub world: Arc<SimulatedWorld>,
    pub id: ActorId,
}

impl SimulatedWorld {
    pub fn new(seed: u64, actors: usize) -> Arc<SimulatedWorld> {
        let state = WorldState {
            random: SimulationRng::new(seed),
            objects: BTreeMap::new(),
            checks: InvariantChecks::default(),
            wrong: None,
            turns: 0,
            now: 0.0,
            status: vec![ActorStatus::Ready; actors],
            skews: vec![0.0; actors],
            inboxes: vec![Vec::new(); actors],
            late: Vec::new(),
            running: None,
        };
        Arc::new(SimulatedWorld {
            state: Mutex::new(state),
            turns: (0..actors).map(|_| Condvar::new()).collect(),
        })
    }

    pub fn state(&self) -> MutexGuard<'_, WorldState> {
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Begins the first turn.
    pub fn begin(&self) {
        let mut state = self.state();
        self.hand_over(&mut state);
    }

    fn hand_over(&self, state: &mut WorldState) {
        state.running = state.choose();
        match state.running {
            Some(next) => self.turns[next].notify_one(),
            // Something is wrong, or all have ended.
            None => self.turns.iter().for_each(Condvar::notify_one),
        }
    }
}

impl WorldState {
    /// True while failures are injected.
    fn is_troubled(&self) -> bool {
        self.turns < TROUBLED_TURNS
    }

    /// True with this probability while failures are injected.
    pub fn goes_wrong(&mut self, share: f64) -> bool {
        self.is_troubled() && self.random.chance(share)
    }

    pub fn trouble(&mut self) -> NetworkFailure {
        if !self.is_troubled() {
            return NetworkFailure::None;
        }
        match self.random.next() {
            share if share < 0.03 => NetworkFailure::Lost,
            share if share < 0.06 => NetworkFailure::Unanswered,
            share if share < 0.10 => NetworkFailure::Late,
            _ => NetworkFailure::None,
        }
    }

    fn delay(&mut self) -> f64 {
        let most = if self.is_troubled() && self.random.chance(0.2) {
            DELAY_SECONDS_MAX
        } else {
            0.2
        };
        self.now + self.random.next() * most
    }

    /// Delays a request so that it arrives after its sender has timed out.
    pub fn postpone(&mut self, request: StoreRequest) {
        let at = self.now + 1.0 + self.random.next() * LATE_SECONDS_MAX;
        self.late.push((at, request));
    }

    /// Applies a request, and checks the state that readers see then.
    pub fn apply(&mut self, request: &StoreRequest) -> StoreAnswer {
        let there = self.objects.get(&request.path);
        match &request.on {
            PutCondition::Absent if there.is_some() => return StoreAnswer::Exists,
            PutCondition::Version(wanted) if there.map(version).as_ref() != Some(wanted) => {
                return StoreAnswer::Changed;
            }
            _ => {}
        }
        match &request.bytes {
            Some(bytes) => self.objects.insert(request.path.clone(), bytes.clone()),
            None => self.objects.remove(&request.path),
        };
        let WorldState {
            checks,
            objects,
            turns,
            ..
        } = self;
        if let Err(wrong) = checks.check_write(request, objects, *turns) {
            self.wrong.get_or_insert(wrong);
        }
        StoreAnswer::Done
    }

    /// The party that acts next: time passes until one has something to do.
    fn choose(&mut self) -> Option<ActorId> {
        self.turns += 1;
        if self.turns > TURNS_MAX {
            self.wrong
                .get_or_insert_with(|| "the runs do not end".to_owned());
        }
        if self.goes_wrong(0.005) {
            let whose = self.random.below(self.skews.len());
            let jump = (self.random.next() - 0.5) * 7200.0;
            self.skews[whose] += jump;
        }
        self.now += self.random.next() * 0.05;
        while self.wrong.is_none() {
            let now = self.now;
            for (_, request) in self
                .late
                .extract_if(.., |(at, _)| *at <= now)
                .collect::<Vec<_>>()
            {
                self.apply(&request);
            }
            let due = |actor: &ActorId| match self.status[*actor] {
                ActorStatus::Ready => true,
                ActorStatus::Waiting(until) => {
                    until <= now || self.inboxes[*actor].iter().any(|(at, _)| *at <= now)
                }
                ActorStatus::Ended => false,
            };
            let ready: Vec<ActorId> = (0..self.status.len()).filter(due).collect();
            if !ready.is_empty() {
                return Some(ready[self.random.below(ready.len())]);
            }
            let waiting = |actor: &ActorId| match self.status[*actor] {
                ActorStatus::Waiting(until) => Some(
                    self.inboxes[*actor]
                        .iter()
                        .map(|(at, _)| *at)
                        .fold(until, f64::min),
                ),
                _ => None,
            };
            let next = (0..self.status.len())
                .filter_map(|actor| waiting(&actor))
                .min_by(f64::total_cmp)?;
            self.now = next.max(now);
        }
        None
    }
}

/// Version of an object: as in S3, equal bytes are equal versions.
pub fn version(bytes: &Bytes) -> String {
    format!("{:x}", xxhash_rust::xxh3::xxh3_128(bytes))
}

impl ActorHandle {
    /// Yields to other actors; ends this actor's process if it is killed meanwhile.
    pub fn yield_turn(&self) {
        self.wait(None);
        if self.world.state().goes_wrong(0.004) {
            resume_unwind(Box::new(ActorKilled));
        }
    }

    fn wait(&self, until: Option<f64>) {
        let mut state = self.world.state();
        state.status[self.id] = until.map_or(ActorStatus::Ready, ActorStatus::Waiting);
        self.world.hand_over(&mut state);
        self.take_turn(state);
    }

    fn take_turn<'w>(&'w self, mut state: MutexGuard<'w, WorldState>) {
        while state.running != Some(self.id) {
            if state.wrong.is_some() {
                drop(state);
                resume_unwind(Box::new(ActorKilled));
            }
            state = self.world.turns[self.id]
                .wait(state)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        state.status[self.id] = ActorStatus::Ready;
    }

    /// Waits for the first turn.
    pub fn wait_for_first_turn(&self) {
        self.take_turn(self.world.state());
    }

    /// Has no more turns.
    pub fn finish(&self) {
        let mut state = self.world.state();
        state.status[self.id] = ActorStatus::Ended;
        self.world.hand_over(&mut state);
    }

    /// Time of this actor's own clock, which may jump.
    pub fn clock(&self) -> f64 {
        let state = self.world.state();
        state.now + state.skews[self.id]
    }

    /// Pauses for about `seconds`.
    pub fn sleep(&self, seconds: f64) {
        let until = self.world.state().now + seconds;
        while self.world.state().now < until {
            self.wait(Some(until));
            self.world.state().inboxes[self.id].clear();
        }
    }

    /// Sends a message, which may come late, twice, or never.
    pub fn send(&self, to: ActorId, message: ActorMessage) {
        let mut state = self.world.state();
        let copies = if state.goes_wrong(0.05) {
            0
        } else {
            1 + usize::from(state.goes_wrong(0.05))
        };
        for _ in 0..copies {
            let at = state.delay();
            state.inboxes[to].push((at, message.clone()));
        }
    }

    /// The next message, if one comes in time.
    pub fn receive(&self, seconds: f64) -> Option<ActorMessage> {
        let until = self.world.state().now + seconds;
        loop {
            self.wait(Some(until));
            let mut state = self.world.state();
            let now = state.now;
            let inbox = &mut state.inboxes[self.id];
            if let Some(at) = inbox.iter().position(|(at, _)| *at <= now) {
                return Some(inbox.remove(at).1);
            }
            if now >= until {
                return None;
            }
        }
    }
}
