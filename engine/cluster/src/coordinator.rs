//! What the workers of a run are doing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use forebay_model::{Fault, Result, RetryAdvice, codes};
use forebay_storage::{Event, EventListener};
use tokio::task::AbortHandle;

use crate::cluster::{
    AttemptRows, AvailabilityCell, ClusterOptions, CoordinatorEvent, RowsSender, StageFailure,
    StageSpec, StageUpdate, TaskEvent, TaskSpec, no_workers_fault,
};
use crate::protocol::{TaskKind, TaskProgress, WorkerMessage};
use crate::query::QueryWorker;
use crate::scheduler::{AttemptId, FailureAction, TaskAssignment, TaskId, TaskScheduler, WorkerId};
use crate::status::{ClusterStatus, StatusWriter, WorkerStatus};
use crate::worker_client::{WorkerCall, WorkerClient, WorkerConnection, WorkerLoss};

/// How often the coordinator looks for attempts and workers that are stalled.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How long until a worker that did not answer, or did not belong, is asked again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
const STRANGER_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Beats in a lease: one that is late is not the last one.
const BEATS_PER_LEASE: u32 = 5;

/// How long an attempt may run without progress.
const STUCK_AFTER: Duration = Duration::from_secs(900);

/// A task fails after so many attempts that ended before their worker took it.
const UNREACHED_MAX: u32 = 20;

/// How often a task is tried again after a fault that may be temporary.
const TRIES_MAX: u32 = 3;

type GroupId = usize;

/// Tasks that were submitted together, and the channels of the caller that waits for them.
struct TaskGroup {
    asks: Arc<StageSpec>,
    tasks: Vec<TaskId>,
    left: usize,
    to: Sender<StageUpdate>,
    rows: Option<RowsSender>,
}

struct TaskState {
    group: GroupId,
    /// Its index among the tasks of its group.
    index: usize,
    what: TaskKind,
    tries: u32,
    unreached: u32,
}

/// The outcome of an attempt that ended by itself and well.
const DONE: &str = "done";

struct RunningAttempt {
    task: TaskId,
    worker: WorkerId,
    abort: AbortHandle,
    progress: TaskProgress,
    moved: Instant,
    heard: bool,
}

struct ConnectedWorker {
    address: String,
    slots: usize,
    link: Arc<WorkerClient>,
    /// When it was given a task that it has not reported on since. An attempt may end because another
    /// worker was first, before the coordinator knows that this worker is stalled.
    silent_since: Option<Instant>,
}

enum AddressState {
    Member,
    Asked,
    Away { again: Instant, why: String },
}

/// A thread that hears of everything, asks the schedule what follows, and does it.
pub struct Coordinator {
    options: ClusterOptions,
    watch: Arc<dyn EventListener>,
    there: Arc<AvailabilityCell>,
    to: Sender<CoordinatorEvent>,
    handle: tokio::runtime::Handle,
    began: Instant,
    schedule: TaskScheduler,
    groups: BTreeMap<GroupId, TaskGroup>,
    next_group: GroupId,
    tasks: BTreeMap<TaskId, TaskState>,
    attempts: BTreeMap<AttemptId, RunningAttempt>,
    members: BTreeMap<WorkerId, ConnectedWorker>,
    /// By address, for good.
    workers: BTreeMap<String, WorkerId>,
    addresses: BTreeMap<String, AddressState>,
    none_since: Option<Instant>,
    /// When the attempts and workers were looked at.
    looked: Instant,
    board: Option<StatusWriter>,
    /// By address.
    tallies: BTreeMap<String, WorkerStatus>,
    /// The pipeline and pass of the last submitted tasks.
    about: (String, usize),
}

impl Coordinator {
    pub fn new(
        options: ClusterOptions,
        watch: Arc<dyn EventListener>,
        there: Arc<AvailabilityCell>,
        to: Sender<CoordinatorEvent>,
        handle: tokio::runtime::Handle,
    ) -> Coordinator {
        Coordinator {
            options,
            watch,
            there,
            to,
            handle,
            began: Instant::now(),
            schedule: TaskScheduler::default(),
            groups: BTreeMap::new(),
            next_group: 0,
            tasks: BTreeMap::new(),
            attempts: BTreeMap::new(),
            members: BTreeMap::new(),
            workers: BTreeMap::new(),
            addresses: BTreeMap::new(),
            none_since: None,
            looked: Instant::now(),
            board: None,
            tallies: BTreeMap::new(),
            about: Default::default(),
        }
    }

    /// Handles events until the coordinator ends.
    pub fn run(mut self, from: &Receiver<CoordinatorEvent>) {
        loop {
            match from.recv_timeout(LOOK_EVERY) {
                Ok(CoordinatorEvent::Quit) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(input) => self.handle_event(input),
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.start_attempts();
            // What depends on the clock looks at every attempt: it follows time, and not the number of events.
            if self.looked.elapsed() >= LOOK_EVERY {
                self.looked = Instant::now();
                self.end_stalled();
                self.fail_without_workers();
                self.publish_status();
            }
        }
        self.attempts.values().for_each(|under| under.abort.abort());
    }

    fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    fn handle_event(&mut self, input: CoordinatorEvent) {
        match input {
            CoordinatorEvent::Submit {
                asks,
                tasks,
                to,
                rows,
            } => self.submit(asks, tasks, to, rows),
            CoordinatorEvent::Roster(addresses) => self.connect_workers(&addresses),
            CoordinatorEvent::Connected(address, found) => self.worker_connected(address, found),
            CoordinatorEvent::Heard(attempt, message) => self.handle_message(attempt, *message),
            CoordinatorEvent::Over(attempt, ended) => {
                if !self.attempts.contains_key(&attempt) {
                    return;
                }
                match ended {
                    Ok(()) => self.remove_worker(attempt, "it ended without an answer", true),
                    Err(WorkerLoss::Silent(why)) => self.remove_worker(attempt, &why, true),
                    Err(WorkerLoss::Unreached(why)) => self.remove_worker(attempt, &why, false),
                    Err(WorkerLoss::Unwanted) => {
                        let task = self
                            .attempts
                            .get(&attempt)
                            .and_then(|under| self.tasks.get(&under.task));
                        if let Some(group) = task.map(|task| task.group) {
                            self.end_group(group);
                        }
                    }
                }
            }
            CoordinatorEvent::QueryWorkers(to) => {
                // A caller that has gone needs no workers.
                let _ = to.send(self.query_workers());
            }
            CoordinatorEvent::QueryLost { worker, why } => {
                let is_it = |member: &ConnectedWorker| Arc::ptr_eq(&member.link, &worker.link);
                let lost = self
                    .members
                    .iter()
                    .find(|(_, member)| is_it(member))
                    .map(|(id, _)| *id);
                if let Some(lost) = lost {
                    self.lose_worker(lost, &why, false);
                }
            }
            CoordinatorEvent::Show(board) => self.board = Some(board),
            CoordinatorEvent::Quit => {}
        }
    }

    /// The workers that may take part in a query.
    fn query_workers(&self) -> Vec<QueryWorker> {
        let stays = |worker: &WorkerId| !self.schedule.is_leaving(*worker);
        let members = self.members.iter().filter(|(worker, _)| stays(worker));
        members
            .map(|(_, member)| QueryWorker {
                address: member.address.clone(),
                slots: member.slots,
                link: member.link.clone(),
            })
            .collect()
    }

    fn submit(
        &mut self,
        asks: Arc<StageSpec>,
        specs: Vec<TaskSpec>,
        to: Sender<StageUpdate>,
        rows: Option<RowsSender>,
    ) {
        let group = self.next_group;
        self.next_group += 1;
        let mut tasks: Vec<TaskId> = Vec::new();
        self.about = asks.pipeline_and_pass();
        for (index, TaskSpec { cost, after, what }) in specs.into_iter().enumerate() {
            let after = after.and_then(|after| tasks.get(after).copied());
            let task = self.schedule.add(cost, what.kind(self.about.1), after);
            self.tasks.insert(
                task,
                TaskState {
                    group,
                    index,
                    what,
                    tries: 0,
                    unreached: 0,
                },
            );
            tasks.push(task);
        }
        let left = tasks.len();
        self.groups.insert(
            group,
            TaskGroup {
                asks,
                tasks,
                left,
                to,
                rows,
            },
        );
    }

    /// Sends an update to a group's caller; where the caller has gone, the group's tasks end.
    fn notify_group(&mut self, group: GroupId, answer: StageUpdate) {
        if self
            .groups
            .get(&group)
            .is_some_and(|known| known.to.send(answer).is_err())
        {
            self.end_group(group);
        }
    }

    fn end_group(&mut self, group: GroupId) {
        let Some(group) = self.groups.remove(&group) else {
            return;
        };
        for task in group.tasks {
            self.tasks.remove(&task);
            for attempt in self.schedule.cancel(task) {
                self.end_attempt(attempt, "cancelled");
            }
        }
    }

    /// Ends an attempt. `outcome` is that of the event.
    fn end_attempt(&mut self, attempt: AttemptId, outcome: &'static str) -> Option<RunningAttempt> {
        let under = self.attempts.remove(&attempt)?;
        // One that is done sends nothing more.
        if outcome != DONE {
            under.abort.abort();
        }
        self.watch.on_event(Event::TaskEnded {
            task: attempt,
            outcome,
            rows: under.progress.rows,
        });
        Some(under)
    }

    fn fail_group(&mut self, group: GroupId, failure: StageFailure) {
        self.notify_group(group, StageUpdate::Failed(failure));
        self.end_group(group);
    }

    fn connect_workers(&mut self, addresses: &BTreeSet<String>) {
        for address in addresses {
            let due = match self.addresses.get(address) {
                None => true,
                Some(AddressState::Away { again, .. }) => Instant::now() >= *again,
                Some(AddressState::Member | AddressState::Asked) => false,
            };
            if !due {
                continue;
            }
            match self.addresses.get_mut(address) {
                // Why it is away is said until it answers.
                Some(AddressState::Away { again, .. }) => {
                    *again = Instant::now() + STRANGER_AGAIN_AFTER
                }
                _ => drop(self.addresses.insert(address.clone(), AddressState::Asked)),
            }
            let (to, security, address) = (
                self.to.clone(),
                self.options.security.clone(),
                address.clone(),
            );
            self.handle.spawn(async move {
                let found = WorkerClient::connect(&address, &security).await;
                let _ = to.send(CoordinatorEvent::Connected(address, found.map(Box::new)));
            });
        }
        // Workers that are no longer on the roster finish their running tasks and get no new ones.
        let left = self
            .members
            .iter()
            .filter(|(_, member)| !addresses.contains(&member.address));
        for worker in left.map(|(worker, _)| *worker).collect::<Vec<_>>() {
            self.schedule.drain_worker(worker);
        }
        self.update_availability();
    }

    fn worker_connected(&mut self, address: String, found: Result<Box<WorkerConnection>>) {
        if matches!(self.addresses.get(&address), Some(AddressState::Member)) {
            return;
        }
        match found.map(|found| *found) {
            Ok(WorkerConnection { link, hello }) if !hello.leaves => {
                let next = self.workers.len();
                let worker = *self.workers.entry(address.clone()).or_insert(next);
                self.schedule.add_worker(worker, hello.slots.max(1));
                self.members.insert(
                    worker,
                    ConnectedWorker {
                        address: address.clone(),
                        slots: hello.slots.max(1),
                        link: Arc::new(link),
                        silent_since: None,
                    },
                );
                self.addresses.insert(address.clone(), AddressState::Member);
                let (slots, memory_bytes) = (hello.slots, hello.memory_bytes);
                self.tallies.entry(address.clone()).or_default().slots = slots;
                self.watch.on_event(Event::WorkerJoined {
                    worker: address,
                    slots,
                    memory_bytes,
                });
            }
            Ok(_) => self.mark_away(&address, AGAIN_AFTER, "it is leaving".to_owned()),
            Err(fault) => {
                let after = if fault.code().retry == RetryAdvice::Later {
                    AGAIN_AFTER
                } else {
                    STRANGER_AGAIN_AFTER
                };
                let why = match fault.hint_text() {
                    Some(hint) => format!("{fault}: {hint}"),
                    None => fault.to_string(),
                };
                self.mark_away(&address, after, why);
            }
        }
        self.update_availability();
    }

    fn mark_away(&mut self, address: &str, after: Duration, why: String) {
        let said = match self.addresses.get(address) {
            Some(AddressState::Away { why: before, .. }) => *before == why,
            _ => false,
        };
        if !said {
            self.watch.on_event(Event::WorkerLost {
                worker: address.to_owned(),
                why: why.clone(),
            });
        }
        self.addresses.insert(
            address.to_owned(),
            AddressState::Away {
                again: Instant::now() + after,
                why,
            },
        );
    }

    /// Tells those who wait who is there.
    fn update_availability(&self) {
        let mut now = self
            .there
            .now
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        now.slots = self.schedule.slots();
        now.asked = !self.addresses.is_empty()
            && self
                .addresses
                .values()
                .all(|standing| !matches!(standing, AddressState::Asked));
        now.refusal = self.refusal();
        drop(now);
        self.there.moved.notify_all();
    }

    fn refusal(&self) -> Option<String> {
        self.addresses
            .iter()
            .find_map(|(address, standing)| match standing {
                AddressState::Away { why, .. } => Some(format!("{address}: {why}")),
                _ => None,
            })
    }

    fn handle_message(&mut self, attempt: AttemptId, message: WorkerMessage) {
        // What comes of attempts that no longer count is too late.
        let Some(under) = self.attempts.get_mut(&attempt) else {
            return;
        };
        under.heard = true;
        let (task, worker) = (under.task, under.worker);
        if let Some(member) = self.members.get_mut(&worker) {
            member.silent_since = None;
        }
        let Some((group, index)) = self.tasks.get(&task).map(|task| (task.group, task.index))
        else {
            return;
        };
        match message {
            WorkerMessage::Hello(_) => {}
            WorkerMessage::Beat(progress) => self.record_progress(attempt, progress),
            WorkerMessage::Part { first, made } => {
                under.moved = Instant::now();
                self.schedule.clear_deaths(task);
                if self
                    .tasks
                    .get_mut(&task)
                    .is_some_and(|task| task.complete_unit(first))
                {
                    if let Some(tally) = self.worker_status(worker) {
                        tally.parts += 1;
                    }
                    self.notify_group(group, StageUpdate::Said(TaskEvent::Part { first, made }));
                }
            }
            WorkerMessage::Done { counts, progress } => {
                self.record_progress(attempt, progress);
                let Some(others) = self.schedule.complete(task, attempt, self.now()) else {
                    return;
                };
                self.end_attempt(attempt, DONE);
                others
                    .into_iter()
                    .for_each(|other| drop(self.end_attempt(other, "cancelled")));
                self.notify_group(
                    group,
                    StageUpdate::Said(TaskEvent::Done {
                        task: index,
                        counts,
                    }),
                );
                let Some(known) = self.groups.get_mut(&group) else {
                    return;
                };
                known.left -= 1;
                if known.left == 0 {
                    self.notify_group(group, StageUpdate::AllDone);
                    self.end_group(group);
                }
            }
            WorkerMessage::HandedBack => {
                self.schedule.drain_worker(worker);
                self.end_attempt(attempt, "handed_back");
                self.schedule.attempt_failed(task, attempt, false);
                self.update_availability();
            }
            WorkerMessage::Failed {
                fault,
                order_failure,
            } => {
                let address = self
                    .members
                    .get(&worker)
                    .map(|member| member.address.clone())
                    .unwrap_or_default();
                let fault = Fault::from(*fault).worker(address);
                self.end_attempt(attempt, "failed");
                self.schedule.attempt_failed(task, attempt, false);
                let tries = self.tasks.get_mut(&task).map_or(TRIES_MAX, |task| {
                    task.tries += 1;
                    task.tries
                });
                if order_failure.is_some()
                    || fault.code().retry == RetryAdvice::Never
                    || tries >= TRIES_MAX
                {
                    self.fail_group(
                        group,
                        StageFailure {
                            fault,
                            order_failure,
                            deadly: None,
                        },
                    );
                } else {
                    self.watch.on_event(Event::Warning {
                        message: format!("{fault}; it is tried again"),
                    });
                }
            }
        }
    }

    fn record_progress(&mut self, attempt: AttemptId, progress: TaskProgress) {
        let Some(under) = self.attempts.get_mut(&attempt) else {
            return;
        };
        let before = std::mem::replace(&mut under.progress, progress);
        if before == progress {
            return;
        }
        under.moved = Instant::now();
        let rows = progress.rows.saturating_sub(before.rows);
        let bytes = progress.bytes.saturating_sub(before.bytes);
        let spilled = progress.spilled_bytes.saturating_sub(before.spilled_bytes);
        let cpu_seconds = (progress.cpu_seconds - before.cpu_seconds).max(0.0);
        if let Some(member) = self.members.get(&under.worker) {
            let worker = member.address.clone();
            let by = TaskProgress {
                rows,
                bytes,
                spilled_bytes: spilled,
                cpu_seconds,
            };
            self.tallies
                .entry(worker.clone())
                .or_default()
                .add_progress(by);
            self.watch.on_event(Event::WorkerMoved {
                worker,
                rows,
                bytes,
                spilled_bytes: spilled,
                cpu_seconds,
            });
        }
        if let Some(task) = self.tasks.get(&under.task) {
            self.notify_group(
                task.group,
                StageUpdate::Said(TaskEvent::Moved {
                    rows,
                    bytes,
                    spilled,
                }),
            );
        }
    }

    fn worker_status(&mut self, worker: WorkerId) -> Option<&mut WorkerStatus> {
        let address = &self.members.get(&worker)?.address;
        self.tallies.get_mut(address)
    }

    /// The worker of an attempt is gone, with everything that it was doing.
    fn remove_worker(&mut self, attempt: AttemptId, why: &str, blamed: bool) {
        if let Some(worker) = self.attempts.get(&attempt).map(|under| under.worker) {
            self.lose_worker(worker, why, blamed);
        }
    }

    fn lose_worker(&mut self, worker: WorkerId, why: &str, blamed: bool) {
        let lost = self
            .attempts
            .values()
            .filter(|under| under.worker == worker)
            .count() as u64;
        if let Some(tally) = self.worker_status(worker) {
            tally.retries += lost;
        }
        if let Some(member) = self.members.remove(&worker) {
            self.mark_away(&member.address, AGAIN_AFTER, why.to_owned());
        }
        for (task, attempt) in self.schedule.remove_worker(worker) {
            let heard = self
                .end_attempt(attempt, "lost")
                .is_some_and(|under| under.heard);
            let verdict = self.schedule.attempt_failed(task, attempt, blamed && heard);
            let Some(assigned) = self.tasks.get_mut(&task) else {
                continue;
            };
            assigned.unreached += u32::from(!heard);
            if assigned.unreached >= UNREACHED_MAX {
                let group = assigned.group;
                let fault = Fault::new(codes::NO_WORKERS, format!("workers refuse a task: {why}"));
                self.fail_group(group, fault.into());
            } else if verdict == FailureAction::GivenUp {
                let (group, deadly) = (assigned.group, assigned.first_span());
                let fault = Fault::new(
                    codes::KILLS_WORKERS,
                    "every worker that reads these rows ends",
                );
                let fault = fault.hint(
                    "look at the workers' own messages; they may need more memory, or the file may be broken in a \
                     way that ends the process",
                );
                self.fail_group(
                    group,
                    StageFailure {
                        fault: fault.note(why.to_owned()),
                        order_failure: None,
                        deadly,
                    },
                );
            }
        }
        self.update_availability();
    }

    fn end_stalled(&mut self) {
        // Attempts that send rows may be waiting for this process to take them: they are not stalled.
        let group = |under: &RunningAttempt| self.groups.get(&self.tasks.get(&under.task)?.group);
        let waits = |under: &RunningAttempt| group(under).is_some_and(|group| group.rows.is_some());
        let is_stuck =
            |under: &RunningAttempt| under.moved.elapsed() > STUCK_AFTER && !waits(under);
        let stuck = self
            .attempts
            .iter()
            .find(|(_, under)| is_stuck(under))
            .map(|(id, _)| *id);
        if let Some(attempt) = stuck {
            self.remove_worker(
                attempt,
                &format!("it did not get on for {} s", STUCK_AFTER.as_secs()),
                true,
            );
        }
        let lease = self.options.lease;
        let is_silent = |member: &ConnectedWorker| {
            member
                .silent_since
                .is_some_and(|since| since.elapsed() > lease)
        };
        let is_silent =
            |under: &RunningAttempt| self.members.get(&under.worker).is_some_and(is_silent);
        let silent = self
            .attempts
            .iter()
            .find(|(_, under)| is_silent(under))
            .map(|(id, _)| *id);
        if let Some(attempt) = silent {
            self.remove_worker(
                attempt,
                &format!("nothing was heard of it for {} s", lease.as_secs_f64()),
                false,
            );
        }
    }

    fn start_attempts(&mut self) {
        if self.groups.is_empty() {
            return;
        }
        for TaskAssignment {
            task,
            worker,
            attempt,
        } in self.schedule.assign(self.now())
        {
            let (Some(assigned), Some(member)) =
                (self.tasks.get(&task), self.members.get_mut(&worker))
            else {
                continue;
            };
            member.silent_since.get_or_insert_with(Instant::now);
            let Some(group) = self.groups.get(&assigned.group) else {
                continue;
            };
            let lease = self.options.lease;
            let request = match group
                .asks
                .request(assigned.what.clone(), lease / BEATS_PER_LEASE)
            {
                Ok(request) => request,
                Err(fault) => {
                    self.fail_group(assigned.group, fault.into());
                    continue;
                }
            };
            let rows = group.rows.clone().map(|to| AttemptRows { attempt, to });
            let (link, to) = (member.link.clone(), self.to.clone());
            let (address, kind) = (
                member.address.clone(),
                assigned.what.kind(self.about.1).what,
            );
            self.watch.on_event(Event::TaskStarted {
                task: attempt,
                worker: address,
                kind,
            });
            let request = WorkerCall {
                request,
                lease,
                trace: self.watch.task_context(attempt),
            };
            let spawned = self.handle.spawn(async move {
                let mut hear =
                    |message| drop(to.send(CoordinatorEvent::Heard(attempt, Box::new(message))));
                let ended = link.send_request(request, &mut hear, rows).await;
                let _ = to.send(CoordinatorEvent::Over(attempt, ended));
            });
            let (abort, moved) = (spawned.abort_handle(), Instant::now());
            let under = RunningAttempt {
                task,
                worker,
                abort,
                progress: TaskProgress::default(),
                moved,
                heard: false,
            };
            self.attempts.insert(attempt, under);
        }
    }

    /// Keeps those informed who look from outside.
    fn publish_status(&mut self) {
        let Some(board) = &mut self.board else { return };
        let (schedule, tallies, members) = (&self.schedule, &self.tallies, &self.members);
        let (attempts, about) = (&self.attempts, &self.about);
        board.write_if_due(|| {
            let mut workers = tallies.clone();
            for (id, member) in members {
                let worker = workers.entry(member.address.clone()).or_default();
                worker.there = true;
                worker.busy = attempts
                    .values()
                    .filter(|under| under.worker == *id)
                    .count();
            }
            let (pipeline, pass) = about.clone();
            ClusterStatus {
                pipeline,
                pass,
                at: 0,
                queued: schedule.queued(),
                running: attempts.len(),
                workers,
            }
        });
    }

    /// Fails all groups once no worker has been connected for a while.
    fn fail_without_workers(&mut self) {
        if self.groups.is_empty() || !self.members.is_empty() {
            self.none_since = None;
            return;
        }
        let since = *self.none_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= self.options.grace {
            let refusal = self.refusal();
            for group in self.groups.keys().copied().collect::<Vec<_>>() {
                self.fail_group(
                    group,
                    no_workers_fault(self.options.grace, refusal.as_deref()).into(),
                );
            }
        }
    }
}

impl TaskState {
    /// Takes a part off what is left to do; false where that is done already.
    fn complete_unit(&mut self, first: usize) -> bool {
        let TaskKind::Parts { parts, .. } = &mut self.what else {
            return false;
        };
        let before = parts.len();
        parts.retain(|part| part.tasks.start != first);
        parts.len() < before
    }

    /// The first task that is left to do.
    fn first_span(&self) -> Option<usize> {
        match &self.what {
            TaskKind::Parts { parts, .. } => parts.first().map(|part| part.tasks.start),
            TaskKind::Advance { from, .. } => Some(*from),
            TaskKind::Merge { .. }
            | TaskKind::MergeRuns { .. }
            | TaskKind::Divide { .. }
            | TaskKind::Compute { .. }
            | TaskKind::Read { .. }
            | TaskKind::Train { .. } => None,
        }
    }
}
