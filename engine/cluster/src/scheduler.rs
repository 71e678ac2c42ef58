//! Assignment of tasks to workers. Decisions only: no clock, no threads, no network.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Ratio of a task's time to its expected time above which another worker tries it, too.
const SLOW: f64 = 1.5;

/// Seconds that an attempt must have run before a second worker tries its task.
const SLOW_SECONDS_MIN: f64 = 2.0;

/// Seconds between two searches for slow attempts; each search checks all attempts.
const SLOW_SEARCH_SECONDS: f64 = 0.25;

/// Number of times that a task may end its worker before it fails.
const DEATHS_MAX: u32 = 3;

/// Most processes of this machine that a task may end. The cause of such an end is seen, not concluded.
const LOCAL_DEATHS_MAX: u32 = 2;

/// Rounds in which a pass is cut into tasks: so many for each that workers can do at a time.
pub const ROUNDS: usize = 12;

/// Weight of the tasks of a round relative to those of other rounds: each is a quarter smaller than
/// the one before. So the largest one takes a worker that is three times as slow as others no
/// longer than all, and the last ones are so small that all end together.
pub fn round_weight(round: usize) -> f64 {
    0.75f64.powi(round as i32)
}

/// Id of a task.
pub type TaskId = usize;
pub type AttemptId = u64;
pub type WorkerId = usize;

/// Tasks of which equal costs take equal times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CostClass {
    pub pass: usize,
    pub what: &'static str,
    /// True if these tasks start before all others: sequential work follows them, and the other
    /// tasks run at the same time.
    pub first: bool,
}

/// Cost of finished attempts, and their duration in seconds.
type ObservedCost = (f64, f64);

/// Attempt to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskAssignment {
    pub task: TaskId,
    pub worker: WorkerId,
    pub attempt: AttemptId,
}

/// Consequence of the end of a worker for its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureAction {
    /// Another worker gets the task.
    Again,
    /// The task has ended too many workers.
    GivenUp,
}

struct ScheduledTask {
    cost: u64,
    kind: CostClass,
    after: Option<TaskId>,
    /// The worker on which its predecessor ran.
    prefers: Option<WorkerId>,
    attempts: Vec<TaskAttempt>,
    done_by: Option<WorkerId>,
    deaths: u32,
}

#[derive(Clone, Copy)]
struct TaskAttempt {
    id: AttemptId,
    worker: WorkerId,
    began: f64,
}

struct WorkerSlots {
    slots: usize,
    running: usize,

    /// True if it takes no new tasks.
    leaves: bool,
}

/// A task that can begin. The order is that in which tasks begin, the last one first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ReadyTask {
    first: bool,
    cost: u64,
    task: Reverse<TaskId>,
}

/// Tasks, workers, and their assignment. An assignment takes time in proportion to the number of
/// workers, and to the logarithm of the number of tasks.
#[derive(Default)]
pub struct TaskScheduler {
    tasks: BTreeMap<TaskId, ScheduledTask>,
    /// Tasks that can begin.
    ready: BTreeSet<ReadyTask>,
    /// Ready tasks whose predecessor ran on a worker, by worker.
    followers: BTreeMap<WorkerId, BTreeSet<ReadyTask>>,
    /// Tasks that wait for another one, by that one.
    waiting: BTreeMap<TaskId, Vec<TaskId>>,
    /// Tasks with attempts.
    running: BTreeSet<TaskId>,
    /// Time of the last search for slow attempts.
    searched: Option<f64>,
    workers: BTreeMap<WorkerId, WorkerSlots>,
    next_task: TaskId,
    next_attempt: AttemptId,
    seen: BTreeMap<CostClass, ObservedCost>,
    /// Cost of finished attempts of each worker; lost workers stay, since they may come back.
    seen_of: BTreeMap<WorkerId, BTreeMap<CostClass, ObservedCost>>,
    /// True where the workers are processes of this machine.
    is_local: bool,
}

impl TaskScheduler {
    /// A scheduler of tasks for processes of this machine.
    pub fn for_local_workers() -> TaskScheduler {
        TaskScheduler {
            is_local: true,
            ..TaskScheduler::default()
        }
    }

    /// Adds a task; it can begin once `predecessor` is done. `cost` is in any unit, the same for
    /// all of its kind.
    pub fn add(&mut self, cost: u64, kind: CostClass, predecessor: Option<TaskId>) -> TaskId {
        let id = self.next_task;
        self.next_task += 1;
        let attempts = Vec::new();
        let prefers = None;
        let done_by = None;
        let deaths = 0;
        self.tasks.insert(
            id,
            ScheduledTask {
                cost,
                kind,
                after: predecessor,
                prefers,
                attempts,
                done_by,
                deaths,
            },
        );
        match predecessor.filter(|predecessor| {
            self.tasks
                .get(predecessor)
                .is_some_and(|task| task.done_by.is_none())
        }) {
            Some(predecessor) => self.waiting.entry(predecessor).or_default().push(id),
            None => self.make_ready(id),
        }
        id
    }

    fn make_ready(&mut self, id: TaskId) {
        let prior_worker = self
            .tasks
            .get(&id)
            .and_then(|task| self.tasks.get(&task.after?)?.done_by);
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        task.prefers = task.prefers.or(prior_worker);
        let ready = task.ready(id);
        if let Some(worker) = task.prefers {
            self.followers.entry(worker).or_default().insert(ready);
        }
        self.ready.insert(ready);
    }

    fn take_ready(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get(&id) else {
            return;
        };
        let ready = task.ready(id);
        self.ready.remove(&ready);
        if let Some(followers) = task
            .prefers
            .and_then(|worker| self.followers.get_mut(&worker))
        {
            followers.remove(&ready);
        }
    }

    fn release_followers(&mut self, id: TaskId) {
        self.waiting
            .remove(&id)
            .into_iter()
            .flatten()
            .for_each(|next| self.make_ready(next));
    }

    /// Removes a task and returns its running attempts.
    pub fn cancel(&mut self, task: TaskId) -> Vec<AttemptId> {
        self.take_ready(task);
        self.running.remove(&task);
        let id = task;
        let Some(task) = self.tasks.remove(&task) else {
            return Vec::new();
        };
        if let Some(others) = task
            .after
            .and_then(|predecessor| self.waiting.get_mut(&predecessor))
        {
            others.retain(|other| *other != id);
        }
        self.release_followers(id);
        task.attempts
            .iter()
            .for_each(|attempt| self.release_slot(attempt.worker));
        task.attempts.iter().map(|attempt| attempt.id).collect()
    }

    /// Adds a worker with `slots` slots; one that reconnects keeps its id.
    pub fn add_worker(&mut self, worker: WorkerId, slots: usize) {
        self.workers.insert(
            worker,
            WorkerSlots {
                slots,
                running: 0,
                leaves: false,
            },
        );
    }

    /// Marks a worker that completes its attempts and takes no new ones.
    pub fn drain_worker(&mut self, worker: WorkerId) {
        if let Some(seat) = self.workers.get_mut(&worker) {
            seat.leaves = true;
        }
    }

    /// True if a worker gets no new tasks.
    pub fn is_leaving(&self, worker: WorkerId) -> bool {
        self.workers.get(&worker).is_none_or(|seat| seat.leaves)
    }

    /// Removes a lost worker; returns its attempts, each of which is to be passed to
    /// [`TaskScheduler::attempt_failed`].
    pub fn remove_worker(&mut self, worker: WorkerId) -> Vec<(TaskId, AttemptId)> {
        self.workers.remove(&worker);
        let of = |id: &TaskId| {
            let attempts = self
                .tasks
                .get(id)
                .into_iter()
                .flat_map(|task| &task.attempts);
            let on = attempts.filter(|attempt| attempt.worker == worker);
            on.map(|attempt| (*id, attempt.id)).collect::<Vec<_>>()
        };
        self.running.iter().flat_map(of).collect()
    }

    /// Number of tasks that can run at the same time.
    pub fn slots(&self) -> usize {
        self.workers
            .values()
            .filter(|seat| !seat.leaves)
            .map(|seat| seat.slots)
            .sum()
    }

    /// Number of tasks without an attempt.
    pub fn queued(&self) -> usize {
        self.ready.len() + self.waiting.values().map(Vec::len).sum::<usize>()
    }

    /// Completes a task; returns the other attempts at it. `None` if the attempt does not count.
    pub fn complete(
        &mut self,
        task: TaskId,
        attempt: AttemptId,
        now: f64,
    ) -> Option<Vec<AttemptId>> {
        let completed = self.tasks.get_mut(&task)?;
        let by = *completed
            .attempts
            .iter()
            .find(|candidate| candidate.id == attempt)?;
        let attempts = std::mem::take(&mut completed.attempts);
        completed.done_by = Some(by.worker);
        let cost = completed.cost as f64;
        let kind = completed.kind;
        let seconds = (now - by.began).max(0.0);
        for seen in [&mut self.seen, self.seen_of.entry(by.worker).or_default()] {
            let seen = seen.entry(kind).or_default();
            *seen = (seen.0 + cost, seen.1 + seconds);
        }
        attempts
            .iter()
            .for_each(|attempt| self.release_slot(attempt.worker));
        self.running.remove(&task);
        self.release_followers(task);
        Some(
            attempts
                .into_iter()
                .map(|other| other.id)
                .filter(|id| *id != attempt)
                .collect(),
        )
    }

    /// Records that an attempt failed. `blamed`: its worker ended during the task.
    pub fn attempt_failed(
        &mut self,
        task: TaskId,
        attempt: AttemptId,
        blamed: bool,
    ) -> FailureAction {
        let deaths_max = if self.is_local {
            LOCAL_DEATHS_MAX
        } else {
            DEATHS_MAX
        };
        let Some(failed) = self.tasks.get_mut(&task) else {
            return FailureAction::Again;
        };
        let Some(at) = failed
            .attempts
            .iter()
            .position(|candidate| candidate.id == attempt)
        else {
            return FailureAction::Again;
        };
        let worker = failed.attempts.remove(at).worker;
        failed.deaths += u32::from(blamed);
        let given_up = failed.deaths >= deaths_max;
        let is_alone = failed.attempts.is_empty();
        if is_alone {
            self.running.remove(&task);
            self.make_ready(task);
        }
        self.release_slot(worker);
        if given_up {
            FailureAction::GivenUp
        } else {
            FailureAction::Again
        }
    }

    /// Resets the count of workers that ended during a task, after an attempt made progress: the task
    /// is then not the cause.
    pub fn clear_deaths(&mut self, task: TaskId) {
        if let Some(task) = self.tasks.get_mut(&task) {
            task.deaths = 0;
        }
    }

    /// Attempts to start now: the largest tasks first (after classes that precede others),
    /// preferably on the worker that ran the task before; and when no task is ready, a second
    /// attempt at those that take much longer than others did.
    pub fn assign(&mut self, now: f64) -> Vec<TaskAssignment> {
        let mut begun = Vec::new();
        while let Some(freest) = self.least_loaded() {
            let Some((task, worker)) = self.next_task(freest) else {
                break;
            };
            begun.push(self.start_attempt(task, worker, now));
        }
        self.try_slow_tasks_again(now, &mut begun);
        begun
    }

    /// The task that begins next, and its worker: the one on which its predecessor ran if that is free, else `freest`.
    fn next_task(&self, freest: WorkerId) -> Option<(TaskId, WorkerId)> {
        let last = self.ready.last()?;
        let candidates = TaskCandidates {
            // While tasks of a preceding class are ready, only they are candidates.
            first: last.first,
            // Slow workers get the small tasks, so that the run does not wait for them at the end.
            smallest: self.is_slow(freest),
        };
        if let Some((ready, follower)) = self.best_follower(&candidates) {
            return Some((ready.task.0, follower));
        }
        let ready = candidates.pick(&self.ready)?;
        Some((ready.task.0, freest))
    }

    /// The best candidate among the tasks whose predecessors ran on workers with a free slot.
    fn best_follower(&self, candidates: &TaskCandidates) -> Option<(ReadyTask, WorkerId)> {
        let mut best: Option<(ReadyTask, WorkerId)> = None;
        for (worker, tasks) in &self.followers {
            let slots = self.workers.get(worker);
            if !slots.is_some_and(WorkerSlots::is_free) {
                continue;
            }
            let Some(ready) = candidates.pick(tasks) else {
                continue;
            };
            let is_better = best.is_none_or(|(best_ready, _)| {
                candidates.rank(&ready) >= candidates.rank(&best_ready)
            });
            if is_better {
                best = Some((ready, *worker));
            }
        }
        best
    }

    /// Starts further attempts of slow tasks on idle workers. Tasks are taken in the order of their
    /// delay, relative to the times of others of their cost.
    fn try_slow_tasks_again(&mut self, now: f64, begun: &mut Vec<TaskAssignment>) {
        let is_due = self
            .searched
            .is_none_or(|searched| now >= searched + SLOW_SEARCH_SECONDS || now < searched);
        if !is_due || self.running.is_empty() {
            return;
        }
        let idle: Vec<WorkerId> = self
            .workers
            .iter()
            .filter(|(_, seat)| seat.is_free())
            .map(|(id, _)| *id)
            .collect();
        if idle.is_empty() {
            return;
        }
        self.searched = Some(now);
        let mut late: Vec<SlowTask> = self
            .running
            .iter()
            .filter_map(|id| self.slow_task(*id, now))
            .collect();
        late.sort_by(|a, b| a.lateness.total_cmp(&b.lateness).then(a.task.cmp(&b.task)));
        for worker in idle {
            // The latest task first; on its own worker a second attempt would be as slow.
            if let Some(position) = late.iter().rposition(|slow| slow.worker != worker) {
                let slow = late.remove(position);
                begun.push(self.start_attempt(slow.task, worker, now));
            }
        }
    }

    fn start_attempt(&mut self, task: TaskId, worker: WorkerId, now: f64) -> TaskAssignment {
        let attempt = self.next_attempt;
        self.next_attempt += 1;
        self.take_ready(task);
        self.running.insert(task);
        if let Some(entry) = self.tasks.get_mut(&task) {
            entry.attempts.push(TaskAttempt {
                id: attempt,
                worker,
                began: now,
            });
        }
        if let Some(seat) = self.workers.get_mut(&worker) {
            seat.running += 1;
        }
        TaskAssignment {
            task,
            worker,
            attempt,
        }
    }

    fn release_slot(&mut self, worker: WorkerId) {
        if let Some(seat) = self.workers.get_mut(&worker) {
            seat.running = seat.running.saturating_sub(1);
        }
    }

    /// The worker with the largest share of its slots free.
    fn least_loaded(&self) -> Option<WorkerId> {
        let free = self.workers.iter().filter(|(_, seat)| seat.is_free());
        free.min_by_key(|(id, seat)| (seat.running * 1000 / seat.slots.max(1), **id))
            .map(|(id, _)| *id)
    }

    /// Expected duration of a task of this cost; `None` if no other of its class is done.
    fn expected_seconds(&self, kind: CostClass, cost: f64) -> Option<f64> {
        let (total_cost, seconds) = self.seen.get(&kind).filter(|(cost, _)| *cost > 0.0)?;
        Some(cost * seconds / total_cost)
    }

    /// True if its finished work took much longer than on other workers.
    fn is_slow(&self, worker: WorkerId) -> bool {
        let seen = || self.seen_of.get(&worker).into_iter().flatten();
        let took: f64 = seen().map(|(_, (_, seconds))| seconds).sum();
        let expected: f64 = seen()
            .filter_map(|(kind, (cost, _))| self.expected_seconds(*kind, *cost))
            .sum();
        took > SLOW * expected
    }

    /// A task that one worker has alone, and that takes much longer than others of its cost took.
    fn slow_task(&self, id: TaskId, now: f64) -> Option<SlowTask> {
        let task = self.tasks.get(&id)?;
        let [attempt] = task.attempts.as_slice() else {
            return None;
        };
        let elapsed = now - attempt.began;
        let expected = self.expected_seconds(task.kind, task.cost as f64)?;
        let is_slow = elapsed > SLOW_SECONDS_MIN && elapsed > SLOW * expected;
        is_slow.then_some(SlowTask {
            task: id,
            worker: attempt.worker,
            lateness: elapsed / expected.max(1e-9),
        })
    }
}

/// A task that takes long, the worker that has it, and how many times longer than expected it has taken.
struct SlowTask {
    task: TaskId,
    worker: WorkerId,
    lateness: f64,
}

/// Ready tasks among which a worker chooses.
struct TaskCandidates {
    /// Candidates are of a class that precedes others.
    first: bool,
    /// The smallest task is chosen rather than the largest.
    smallest: bool,
}

impl TaskCandidates {
    fn pick(&self, tasks: &BTreeSet<ReadyTask>) -> Option<ReadyTask> {
        if !self.smallest {
            let largest = tasks.last().filter(|task| task.first == self.first);
            return largest.copied();
        }
        let least = ReadyTask {
            first: self.first,
            cost: 0,
            task: Reverse(TaskId::MAX),
        };
        let cost = tasks.range(least..).next()?.cost;
        // The oldest of the tasks of this cost: ids count downwards in the order of the set.
        let oldest = ReadyTask {
            cost,
            task: Reverse(0),
            ..least
        };
        tasks.range(least..=oldest).next_back().copied()
    }

    /// Order in which the choice among several workers' tasks prefers them.
    fn rank(&self, ready: &ReadyTask) -> (u64, Reverse<TaskId>) {
        let cost_rank = if self.smallest {
            u64::MAX - ready.cost
        } else {
            ready.cost
        };
        (cost_rank, ready.task)
    }
}

impl ScheduledTask {
    /// Entry of the task among the ready ones.
    fn ready(&self, id: TaskId) -> ReadyTask {
        ReadyTask {
            first: self.kind.first,
            cost: self.cost,
            task: Reverse(id),
        }
    }
}

impl WorkerSlots {
    fn is_free(&self) -> bool {
        !self.leaves && self.running < self.slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts (of which each is committed when it is done) of the largest tasks.
    const PARTS_MAX: f64 = 20.0;

    const PARTS: CostClass = CostClass {
        pass: 1,
        what: "parts",
        first: false,
    };

    /// Result of a simulated run.
    struct SimulatedRun {
        seconds: f64,
        /// CPU seconds of all attempts, including failed ones.
        spent: f64,
        second_attempts: usize,
        deaths: usize,
    }

    /// Numbers without end; the same for the same seed.
    struct SchedulerRng(u64);

    impl SchedulerRng {
        fn next(&mut self) -> f64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    /// Runs tasks of these costs (seconds) on workers of one slot. One in twenty workers takes three
    /// times as long for everything; every minute one worker ends, and is there again ten seconds later.
    fn simulate(costs: &[f64], workers: usize, seed: u64, troubled: bool) -> SimulatedRun {
        let mut random = SchedulerRng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut schedule = TaskScheduler::default();
        for cost in costs {
            schedule.add((cost * 1000.0) as u64, PARTS, None);
        }
        let slow = |worker: WorkerId| {
            if troubled && worker % 20 == 7 {
                3.0
            } else {
                1.0
            }
        };
        (0..workers).for_each(|worker| schedule.add_worker(worker, 1));
        let mut running: BTreeMap<AttemptId, (f64, f64, TaskAssignment)> = BTreeMap::new();
        // The remaining cost of each task: committed units are not repeated.
        let mut rest = costs.to_vec();
        let kept = |(began, end, _): &(f64, f64, TaskAssignment), rest: f64, now: f64| {
            let part = costs.iter().copied().fold(0.0, f64::max) / PARTS_MAX;
            let done = rest * (now - began) / (end - began).max(1e-9);
            (done / part).floor() * part
        };
        let mut now = 0.0;
        let mut left = costs.len();
        let mut next_death = 60.0;
        let mut back: Vec<(f64, WorkerId)> = Vec::new();
        let mut run = SimulatedRun {
            seconds: 0.0,
            spent: 0.0,
            second_attempts: 0,
            deaths: 0,
        };
        let mut begun = vec![0; costs.len()];
        while left > 0 {
            for next in schedule.assign(now) {
                // Spans of one size do not take the same time.
                if let Some(other) = running.values().find(|(.., other)| other.task == next.task) {
                    rest[next.task] -= kept(other, rest[next.task], now);
                }
                let seconds = rest[next.task] * slow(next.worker) * (0.9 + 0.2 * random.next());
                running.insert(next.attempt, (now, now + seconds, next));
                run.second_attempts += usize::from(begun[next.task] > 0);
                begun[next.task] += 1;
            }
            // The driver looks around every now and then, too.
            let ends = running
                .values()
                .map(|(_, end, _)| *end)
                .fold(now + 0.5, f64::min);
            let next = ends.min(if troubled { next_death } else { f64::INFINITY });
            now = back
                .iter()
                .map(|(time, _)| *time)
                .fold(next, f64::min)
                .max(now);
            for (_, worker) in back.extract_if(.., |(time, _)| *time <= now) {
                schedule.add_worker(worker, 1);
            }
            if troubled && now >= next_death {
                next_death += 60.0;
                let victim = (random.next() * workers as f64) as usize;
                run.deaths += 1;
                for (task, attempt) in schedule.remove_worker(victim) {
                    let lost = running.remove(&attempt).unwrap();
                    run.spent += now - lost.0;
                    rest[task] -= kept(&lost, rest[task], now);
                    schedule.attempt_failed(task, attempt, false);
                }
                back.push((now + 10.0, victim));
            }
            let done: Vec<AttemptId> = running
                .iter()
                .filter(|(_, (_, end, _))| *end <= now)
                .map(|(attempt, _)| *attempt)
                .collect();
            for attempt in done {
                let Some((began, _, assignment)) = running.remove(&attempt) else {
                    continue;
                };
                run.spent += now - began;
                let Some(others) = schedule.complete(assignment.task, attempt, now) else {
                    continue;
                };
                left -= 1;
                for other in others {
                    let (began, ..) = running.remove(&other).unwrap();
                    run.spent += now - began;
                }
            }
        }
        run.seconds = now;
        run
    }

    /// Costs as parts of a pass are cut for workers: those of a round are all of one size.
    fn shrinking_costs(total: f64, workers: usize) -> Vec<f64> {
        let weights = || (0..ROUNDS).map(round_weight);
        let all: f64 = weights().sum();
        weights()
            .flat_map(|weight| std::iter::repeat_n(total * weight / all / workers as f64, workers))
            .collect()
    }

    #[test]
    fn a_hundred_workers_end_together_in_spite_of_slow_and_lost_ones() {
        for seed in 0..20 {
            // Twenty minutes of work for each.
            let costs = shrinking_costs(100.0 * 1200.0, 100);
            let total: f64 = costs.iter().sum();
            let power = 95.0 + 5.0 / 3.0;
            let run = simulate(&costs, 100, seed, true);
            let ratio = run.seconds / (total / power);
            assert!(run.deaths > 10);
            assert!(
                ratio < 1.1,
                "{ratio:.3} of the lower bound, {} second attempts",
                run.second_attempts
            );
            assert!(
                run.spent < 1.2 * total * 100.0 / power,
                "{} of {total}",
                run.spent
            );
        }
    }

    #[test]
    fn without_trouble_nothing_is_done_twice() {
        for workers in [1, 2, 7, 40] {
            let costs = shrinking_costs(600.0 * workers as f64, workers);
            let run = simulate(&costs, workers, 3, false);
            assert_eq!(run.second_attempts, 0);
            assert!(run.seconds < 1.05 * 600.0 * 1.1, "{} s", run.seconds);
        }
    }

    #[test]
    fn a_task_waits_for_its_predecessor_and_runs_on_its_worker() {
        let mut schedule = TaskScheduler::default();
        let first = schedule.add(10, PARTS, None);
        let second = schedule.add(1, PARTS, Some(first));
        let big = schedule.add(100, PARTS, None);
        (0..2).for_each(|worker| schedule.add_worker(worker, 1));
        let begun = schedule.assign(0.0);
        assert_eq!(
            begun.iter().map(|next| next.task).collect::<Vec<_>>(),
            [big, first]
        );
        let big = begun[0];
        let first = begun[1];
        assert!(schedule.assign(0.0).is_empty());
        assert_eq!(
            schedule.complete(first.task, first.attempt, 1.0),
            Some(Vec::new())
        );
        assert_eq!(
            schedule.complete(big.task, big.attempt, 1.0),
            Some(Vec::new())
        );
        let next = schedule.assign(1.0);
        assert_eq!((next[0].task, next[0].worker), (second, first.worker));
    }

    /// The choice of the next task from a look at all tasks.
    fn chosen_of_all(schedule: &TaskScheduler) -> Option<(TaskId, WorkerId)> {
        let freest = schedule.least_loaded()?;
        let waits = |task: &ScheduledTask| {
            let before = task.after.and_then(|after| schedule.tasks.get(&after));
            before.is_some_and(|before| before.done_by.is_none())
        };
        let follows = |task: &ScheduledTask| {
            let worker = task.prefers?;
            schedule
                .workers
                .get(&worker)
                .is_some_and(WorkerSlots::is_free)
                .then_some(worker)
        };
        let size = |cost: u64| {
            if schedule.is_slow(freest) {
                u64::MAX - cost
            } else {
                cost
            }
        };
        let ready = schedule.tasks.iter().filter(|(_, task)| {
            let is_open = task.done_by.is_none() && task.attempts.is_empty();
            is_open && !waits(task)
        });
        let key = |(id, task): &(&TaskId, &ScheduledTask)| {
            (
                task.kind.first,
                follows(task).is_some(),
                size(task.cost),
                Reverse(**id),
            )
        };
        ready
            .max_by_key(key)
            .map(|(id, task)| (*id, follows(task).unwrap_or(freest)))
    }

    #[test]
    fn the_next_task_is_that_of_a_look_at_all_tasks() {
        for seed in 1..200 {
            let mut random = SchedulerRng(seed);
            let mut below = |limit: usize| (random.next() * limit as f64) as usize;
            let mut schedule = TaskScheduler::default();
            let mut tasks: Vec<TaskId> = Vec::new();
            let mut running: Vec<TaskAssignment> = Vec::new();
            for now in 0..120 {
                match below(10) {
                    0..4 => {
                        let kind = CostClass {
                            first: below(8) == 0,
                            ..PARTS
                        };
                        let after =
                            (below(2) == 0 && !tasks.is_empty()).then(|| tasks[below(tasks.len())]);
                        tasks.push(schedule.add(below(5) as u64, kind, after));
                    }
                    4 => schedule.add_worker(below(5), 1 + below(2)),
                    5 => {
                        for (task, attempt) in schedule.remove_worker(below(5)) {
                            running.retain(|known| known.attempt != attempt);
                            schedule.attempt_failed(task, attempt, false);
                        }
                    }
                    6 if !tasks.is_empty() => {
                        let ended = schedule.cancel(tasks.swap_remove(below(tasks.len())));
                        running.retain(|known| !ended.contains(&known.attempt));
                    }
                    7 if !running.is_empty() => {
                        let TaskAssignment { task, attempt, .. } =
                            running.swap_remove(below(running.len()));
                        schedule.attempt_failed(task, attempt, false);
                    }
                    _ if !running.is_empty() => {
                        let TaskAssignment { task, attempt, .. } =
                            running.swap_remove(below(running.len()));
                        let others = schedule.complete(task, attempt, f64::from(now)).unwrap();
                        running.retain(|known| !others.contains(&known.attempt));
                    }
                    _ => {}
                }
                let open =
                    |task: &&ScheduledTask| task.done_by.is_none() && task.attempts.is_empty();
                assert_eq!(
                    schedule.queued(),
                    schedule.tasks.values().filter(open).count(),
                    "seed {seed}"
                );
                if below(3) > 0 {
                    while let Some(freest) = schedule.least_loaded() {
                        let expected = chosen_of_all(&schedule);
                        let found = schedule.next_task(freest);
                        assert_eq!(found, expected, "seed {seed}, step {now}");
                        let Some((task, worker)) = found else { break };
                        running.push(schedule.start_attempt(task, worker, f64::from(now)));
                    }
                }
            }
        }
    }

    #[test]
    fn priority_tasks_go_before_large_ones() {
        let mut schedule = TaskScheduler::default();
        schedule.add_worker(0, 1);
        let large = schedule.add(100, PARTS, None);
        let merge = schedule.add(
            1,
            CostClass {
                what: "merge",
                first: true,
                ..PARTS
            },
            None,
        );
        let begun = schedule.assign(0.0)[0];
        assert_eq!(begun.task, merge);
        assert_eq!(
            schedule.complete(merge, begun.attempt, 1.0),
            Some(Vec::new())
        );
        assert_eq!(schedule.assign(1.0)[0].task, large);
    }

    #[test]
    fn a_task_is_late_beside_others_of_its_kind() {
        let mut schedule = TaskScheduler::default();
        (0..2).for_each(|worker| schedule.add_worker(worker, 1));
        // What comes first is cheap for what it costs.
        let first = schedule.add(1000, PARTS, None);
        let begun = schedule.assign(0.0)[0];
        assert_eq!(
            schedule.complete(first, begun.attempt, 1.0),
            Some(Vec::new())
        );
        let writes: Vec<TaskId> = (0..3)
            .map(|_| schedule.add(1000, CostClass { pass: 2, ..PARTS }, None))
            .collect();
        let begun = schedule.assign(1.0);
        assert_eq!(begun.len(), 2);
        assert_eq!(
            schedule.complete(writes[0], begun[0].attempt, 11.0),
            Some(Vec::new())
        );
        assert_eq!(schedule.assign(11.0).len(), 1, "the third one");
        assert_eq!(
            schedule.complete(writes[1], begun[1].attempt, 11.0),
            Some(Vec::new())
        );
        assert!(
            schedule.assign(14.0).is_empty(),
            "the third one takes what the others took"
        );
        assert_eq!(schedule.assign(27.0).len(), 1, "it is late");
    }

    #[test]
    fn late_answers_are_ignored_and_deadly_tasks_given_up() {
        let mut schedule = TaskScheduler::default();
        let task = schedule.add(1, PARTS, None);
        for death in 1..=3 {
            schedule.add_worker(death, 1);
            let begun = schedule.assign(0.0)[0];
            let lost = schedule.remove_worker(death as WorkerId);
            assert_eq!(lost, [(task, begun.attempt)]);
            let verdict = schedule.attempt_failed(task, begun.attempt, true);
            assert_eq!(
                verdict,
                if death < 3 {
                    FailureAction::Again
                } else {
                    FailureAction::GivenUp
                }
            );
            assert_eq!(schedule.complete(task, begun.attempt, 1.0), None);
        }
    }
}
