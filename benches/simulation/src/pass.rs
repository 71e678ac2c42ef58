//! One pass: the engine's scheduler gives tasks to workers that are slow, die and come back.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Instant;

use fastrand::Rng;
use forebay_cluster::{
    AttemptId, CostClass, ROUNDS, TaskAssignment, TaskScheduler, WorkerId, round_weight,
};

use crate::cluster::Cluster;
use crate::job::Pass;

/// How often the coordinator looks at its clock when it hears nothing.
const LOOK_SECONDS: f64 = 0.05;

/// What became of a pass.
#[derive(Debug, Default, Clone)]
pub(crate) struct PassOutcome {
    pub seconds: f64,
    /// Seconds that slots were busy, of all attempts.
    pub slot_seconds: f64,
    /// Seconds of attempts whose units another attempt committed, too.
    pub repeated_seconds: f64,
    pub tasks: usize,
    pub units: usize,
    pub deaths: usize,
    pub second_attempts: usize,
    pub gets_per_second: f64,
    pub puts_per_second: f64,
    /// CPU seconds of the coordinator for units and messages.
    pub message_seconds: f64,
    /// CPU seconds of the scheduler, as it took on this machine.
    pub scheduler_seconds: f64,
}

/// Something that happens at a time. Times are positive, so that their bits are in the order of their values.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Unit(AttemptId),
    Death,
    Return(WorkerId),
    Look,
}

struct RunningAttempt {
    assignment: TaskAssignment,
    /// The unit at hand.
    unit: usize,
    unit_began: f64,
    began: f64,
}

struct SimulatedTask {
    units: usize,
    done: Vec<bool>,
}

struct Simulation<'a> {
    cluster: &'a Cluster,
    unit_seconds: f64,
    rng: Rng,
    schedule: TaskScheduler,
    tasks: Vec<SimulatedTask>,
    running: BTreeMap<AttemptId, RunningAttempt>,
    events: BinaryHeap<Reverse<(u64, Happening)>>,
    now: f64,
    left: usize,
    outcome: PassOutcome,
}

/// Runs a pass.
pub(crate) fn simulate(cluster: &Cluster, pass: &Pass, seed: u64) -> PassOutcome {
    let units = pass.units();
    let storage = &cluster.storage;
    let requests = (pass.unit_bytes as f64 / storage.bytes_per_request as f64).ceil() + 1.0;
    let written = pass.unit_bytes as f64 * pass.written_share;
    let puts = (written / (8 << 20) as f64).ceil() + 2.0;
    let cpu = pass.unit_bytes as f64 / pass.bytes_per_slot_second;
    let share = cluster.network_bytes_per_second / cluster.slots_per_worker as f64;
    let connections = storage.connections_per_slot * storage.bytes_per_connection_second;
    let network = (pass.unit_bytes as f64).max(written) / share.min(connections);
    // Reading ahead hides all first bytes but the first of a unit; a commit is answered before the next unit begins.
    let alone = cpu.max(network) + storage.first_byte_seconds * 2.0;
    let busy_slots = cluster.slots().min(units) as f64;
    let throttled = (busy_slots * requests / storage.gets_per_second)
        .max(busy_slots * puts / storage.puts_per_second);
    let unit_seconds = alone.max(throttled);
    let mut simulation = Simulation {
        cluster,
        unit_seconds,
        rng: Rng::with_seed(seed),
        schedule: TaskScheduler::default(),
        tasks: Vec::new(),
        running: BTreeMap::new(),
        events: BinaryHeap::new(),
        now: 0.0,
        left: 0,
        outcome: PassOutcome {
            units,
            ..PassOutcome::default()
        },
    };
    simulation.submit(units, pass.unit_bytes);
    simulation.run();
    let mut outcome = simulation.outcome;
    outcome.seconds = simulation.now;
    let beats = outcome.slot_seconds / cluster.coordinator.beat_seconds;
    outcome.message_seconds = units as f64 * cluster.coordinator.unit_seconds
        + beats * cluster.coordinator.message_seconds;
    let per_slot = busy_slots / unit_seconds;
    (outcome.gets_per_second, outcome.puts_per_second) = (per_slot * requests, per_slot * puts);
    // One thread handles all events.
    outcome.seconds = outcome
        .seconds
        .max(outcome.message_seconds + outcome.scheduler_seconds);
    outcome
}

impl Simulation<'_> {
    /// Tasks as the engine cuts them: in rounds, each smaller than the one before.
    fn submit(&mut self, units: usize, unit_bytes: u64) {
        let slots = self.cluster.slots();
        let ranges = (slots * ROUNDS).min(units).max(1);
        let weight = |range: usize| round_weight(range / slots);
        let all: f64 = (0..ranges).map(weight).sum();
        let kind = CostClass {
            pass: 0,
            what: "parts",
            first: false,
        };
        let mut given = 0;
        let mut goal = 0.0;
        for range in 0..ranges {
            goal += weight(range) / all * units as f64;
            let end = if range + 1 == ranges {
                units
            } else {
                (goal.round() as usize).clamp(given, units)
            };
            if end > given {
                self.tasks.push(SimulatedTask {
                    units: end - given,
                    done: vec![false; end - given],
                });
                self.schedule
                    .add((end - given) as u64 * unit_bytes, kind, None);
                given = end;
            }
        }
        self.left = self.tasks.len();
        self.outcome.tasks = self.tasks.len();
        (0..self.cluster.workers).for_each(|worker| {
            self.schedule
                .add_worker(worker, self.cluster.slots_per_worker)
        });
        self.at(LOOK_SECONDS, Happening::Look);
        self.plan_death();
    }

    fn at(&mut self, time: f64, what: Happening) {
        self.events.push(Reverse((time.to_bits(), what)));
    }

    fn plan_death(&mut self) {
        let mean = self.cluster.trouble.life_hours * 3600.0 / self.cluster.workers as f64;
        let wait = -(1.0 - self.rng.f64()).ln() * mean;
        self.at(self.now + wait, Happening::Death);
    }

    fn run(&mut self) {
        self.assign();
        while self.left > 0 {
            let Some(Reverse((time, what))) = self.events.pop() else {
                return;
            };
            self.now = f64::from_bits(time);
            match what {
                Happening::Unit(attempt) => self.end_unit(attempt),
                Happening::Death => self.lose_worker(),
                Happening::Return(worker) => {
                    self.schedule
                        .add_worker(worker, self.cluster.slots_per_worker);
                    self.assign();
                }
                Happening::Look => {
                    self.at(self.now + LOOK_SECONDS, Happening::Look);
                    self.assign();
                }
            }
        }
    }

    fn assign(&mut self) {
        let begin = Instant::now();
        let begun = self.schedule.assign(self.now);
        self.outcome.scheduler_seconds += begin.elapsed().as_secs_f64();
        for assignment in begun {
            let task = &self.tasks[assignment.task];
            let is_second = self
                .running
                .values()
                .any(|other| other.assignment.task == assignment.task);
            self.outcome.second_attempts += usize::from(is_second);
            let unit = task
                .done
                .iter()
                .position(|done| !done)
                .unwrap_or(task.units);
            let attempt = RunningAttempt {
                assignment,
                unit,
                unit_began: self.now,
                began: self.now,
            };
            self.running.insert(assignment.attempt, attempt);
            self.plan_unit(assignment);
        }
    }

    fn plan_unit(&mut self, assignment: TaskAssignment) {
        let trouble = self.cluster.trouble;
        let is_slow = assignment.worker % trouble.slow_one_in == trouble.slow_one_in / 2;
        let slowdown = if is_slow { trouble.slowdown } else { 1.0 };
        let seconds = self.unit_seconds * slowdown * (0.9 + 0.2 * self.rng.f64());
        self.at(self.now + seconds, Happening::Unit(assignment.attempt));
    }

    fn end_unit(&mut self, attempt: AttemptId) {
        // Attempts of lost workers, and those that came second, have ended.
        let Some(running) = self.running.get_mut(&attempt) else {
            return;
        };
        let task = &mut self.tasks[running.assignment.task];
        if let Some(done) = task.done.get_mut(running.unit) {
            if *done {
                self.outcome.repeated_seconds += self.now - running.unit_began;
            }
            *done = true;
        }
        (running.unit, running.unit_began) = (running.unit + 1, self.now);
        if running.unit < task.units {
            let assignment = running.assignment;
            return self.plan_unit(assignment);
        }
        let Some(ended) = self.running.remove(&attempt) else {
            return;
        };
        self.outcome.slot_seconds += self.now - ended.began;
        let begin = Instant::now();
        let others = self
            .schedule
            .complete(ended.assignment.task, attempt, self.now);
        self.outcome.scheduler_seconds += begin.elapsed().as_secs_f64();
        let Some(others) = others else { return };
        self.left -= 1;
        for other in others {
            if let Some(other) = self.running.remove(&other) {
                self.outcome.slot_seconds += self.now - other.began;
                self.outcome.repeated_seconds += self.now - other.unit_began;
            }
        }
        self.assign();
    }

    fn lose_worker(&mut self) {
        let worker = self.rng.usize(..self.cluster.workers);
        self.outcome.deaths += 1;
        for (task, attempt) in self.schedule.remove_worker(worker) {
            if let Some(lost) = self.running.remove(&attempt) {
                self.outcome.slot_seconds += self.now - lost.began;
                self.outcome.repeated_seconds += self.now - lost.unit_began;
            }
            self.schedule.attempt_failed(task, attempt, false);
        }
        self.at(
            self.now + self.cluster.trouble.back_seconds,
            Happening::Return(worker),
        );
        self.plan_death();
        self.assign();
    }
}
