//! Which worker does what. Decisions only: no clock, no threads, no network.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// How much slower than expected a task must be before another worker tries it, too.
const SLOW: f64 = 1.5;

/// Seconds below which nobody tries a task a second time.
const SLOW_SECONDS_MIN: f64 = 2.0;

/// How often a task may end its worker before it is given up.
const DEATHS_MAX: u32 = 3;

/// Names a task, an attempt at one, and a worker.
pub(crate) type TaskId = usize;
pub(crate) type AttemptId = u64;
pub(crate) type WorkerId = usize;

/// Something to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub task: TaskId,
    pub worker: WorkerId,
    pub attempt: AttemptId,
}

/// What follows from the end of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Another worker gets the task.
    Again,
    /// It has ended too many workers.
    GivenUp,
}

struct Task {
    cost: u64,
    after: Option<TaskId>,
    attempts: Vec<Attempt>,
    done_by: Option<WorkerId>,
    deaths: u32,
}

#[derive(Clone, Copy)]
struct Attempt {
    id: AttemptId,
    worker: WorkerId,
    began: f64,
}

struct Seat {
    slots: usize,
    running: usize,
    /// It takes nothing new.
    leaves: bool,
}

/// Tasks, workers, and who does what.
#[derive(Default)]
pub(crate) struct Schedule {
    tasks: BTreeMap<TaskId, Task>,
    workers: BTreeMap<WorkerId, Seat>,
    next_task: TaskId,
    next_attempt: AttemptId,
    /// What finished attempts cost, and the seconds that they took.
    seen: (f64, f64),
}

impl Schedule {
    /// Adds a task; it can begin once `after` is done. `cost` is in any unit, the same for all.
    pub fn add(&mut self, cost: u64, after: Option<TaskId>) -> TaskId {
        let id = self.next_task;
        self.next_task += 1;
        self.tasks.insert(id, Task { cost, after, attempts: Vec::new(), done_by: None, deaths: 0 });
        id
    }

    /// Forgets a task, whatever becomes of its attempts: gives those under way.
    pub fn forget(&mut self, task: TaskId) -> Vec<AttemptId> {
        let Some(task) = self.tasks.remove(&task) else { return Vec::new() };
        task.attempts.iter().for_each(|attempt| self.free(attempt.worker));
        task.attempts.iter().map(|attempt| attempt.id).collect()
    }

    /// A worker that can do so many tasks at a time.
    pub fn join(&mut self, worker: WorkerId, slots: usize) {
        self.workers.insert(worker, Seat { slots, running: 0, leaves: false });
    }

    /// A worker that ends what it does and takes nothing new.
    pub fn leaves(&mut self, worker: WorkerId) {
        if let Some(seat) = self.workers.get_mut(&worker) {
            seat.leaves = true;
        }
    }

    /// A worker is gone: gives its attempts, each of which is to be [`Schedule::lost`].
    pub fn gone(&mut self, worker: WorkerId) -> Vec<(TaskId, AttemptId)> {
        self.workers.remove(&worker);
        let of = |(id, task): (&TaskId, &Task)| {
            let on = task.attempts.iter().filter(|attempt| attempt.worker == worker);
            on.map(|attempt| (*id, attempt.id)).collect::<Vec<_>>()
        };
        self.tasks.iter().flat_map(of).collect()
    }

    /// How many tasks can run at the same time.
    pub fn slots(&self) -> usize {
        self.workers.values().filter(|seat| !seat.leaves).map(|seat| seat.slots).sum()
    }

    /// A task is done: gives the other attempts at it. `None` where the attempt does not count.
    pub fn done(&mut self, task: TaskId, attempt: AttemptId, now: f64) -> Option<Vec<AttemptId>> {
        let found = self.tasks.get_mut(&task)?;
        let by = *found.attempts.iter().find(|known| known.id == attempt)?;
        let attempts = std::mem::take(&mut found.attempts);
        found.done_by = Some(by.worker);
        self.seen.0 += found.cost as f64;
        self.seen.1 += (now - by.began).max(0.0);
        attempts.iter().for_each(|attempt| self.free(attempt.worker));
        Some(attempts.into_iter().map(|other| other.id).filter(|id| *id != attempt).collect())
    }

    /// An attempt came to nothing. `blamed`: its worker ended while it did the task.
    pub fn lost(&mut self, task: TaskId, attempt: AttemptId, blamed: bool) -> Verdict {
        let Some(found) = self.tasks.get_mut(&task) else { return Verdict::Again };
        let Some(at) = found.attempts.iter().position(|known| known.id == attempt) else { return Verdict::Again };
        let worker = found.attempts.remove(at).worker;
        found.deaths += u32::from(blamed);
        let given_up = found.deaths >= DEATHS_MAX;
        self.free(worker);
        if given_up { Verdict::GivenUp } else { Verdict::Again }
    }

    /// A task got on before its worker ended: it is not what ends workers.
    pub fn acquit(&mut self, task: TaskId) {
        if let Some(task) = self.tasks.get_mut(&task) {
            task.deaths = 0;
        }
    }

    /// What should begin now: the largest tasks first, where the one before ran if it can; and when
    /// nothing is left, a second attempt at those that take much longer than others did.
    pub fn assign(&mut self, now: f64) -> Vec<Assignment> {
        let mut begun = Vec::new();
        while let Some(worker) = self.freest() {
            let ready = |(id, task): &(&TaskId, &Task)| {
                let waits = task.after.is_some_and(|after| self.tasks.get(&after).is_some_and(|a| a.done_by.is_none()));
                (task.done_by.is_none() && task.attempts.is_empty() && !waits).then_some((**id, task.cost))
            };
            let follows = |task: TaskId| {
                let before = self.tasks.get(&task).and_then(|task| self.tasks.get(&task.after?));
                before.is_some_and(|before| before.done_by == Some(worker))
            };
            let open = self.tasks.iter().filter_map(|entry| ready(&entry));
            let next = open.max_by_key(|(id, cost)| (follows(*id), *cost, Reverse(*id))).map(|(id, _)| id);
            let Some(task) = next.or_else(|| self.straggler(worker, now)) else { break };
            begun.push(self.begin(task, worker, now));
        }
        // Whoever has nothing left to begin may still help with what is slow.
        let idle: Vec<WorkerId> = self.workers.iter().filter(|(_, seat)| seat.is_free()).map(|(id, _)| *id).collect();
        for worker in idle {
            if let Some(task) = self.straggler(worker, now) {
                begun.push(self.begin(task, worker, now));
            }
        }
        begun
    }

    fn begin(&mut self, task: TaskId, worker: WorkerId, now: f64) -> Assignment {
        let attempt = self.next_attempt;
        self.next_attempt += 1;
        if let Some(found) = self.tasks.get_mut(&task) {
            found.attempts.push(Attempt { id: attempt, worker, began: now });
        }
        if let Some(seat) = self.workers.get_mut(&worker) {
            seat.running += 1;
        }
        Assignment { task, worker, attempt }
    }

    fn free(&mut self, worker: WorkerId) {
        if let Some(seat) = self.workers.get_mut(&worker) {
            seat.running = seat.running.saturating_sub(1);
        }
    }

    /// The worker with the largest share of its slots free.
    fn freest(&self) -> Option<WorkerId> {
        let free = self.workers.iter().filter(|(_, seat)| seat.is_free());
        free.min_by_key(|(id, seat)| (seat.running * 1000 / seat.slots.max(1), **id)).map(|(id, _)| *id)
    }

    /// The task that is furthest behind what others of its cost took, if another worker has it alone.
    fn straggler(&self, worker: WorkerId, now: f64) -> Option<TaskId> {
        let pace = if self.seen.0 > 0.0 { self.seen.1 / self.seen.0 } else { return None };
        let late = |(id, task): (&TaskId, &Task)| match task.attempts.as_slice() {
            [one] if one.worker != worker => {
                let (elapsed, expected) = (now - one.began, task.cost as f64 * pace);
                (elapsed > SLOW_SECONDS_MIN && elapsed > SLOW * expected).then_some((*id, elapsed / expected.max(1e-9)))
            }
            _ => None,
        };
        let latest = self.tasks.iter().filter_map(late).max_by(|a, b| a.1.total_cmp(&b.1));
        latest.map(|(id, _)| id)
    }
}

impl Seat {
    fn is_free(&self) -> bool {
        !self.leaves && self.running < self.slots
    }
}
