//! State of the workers and tasks of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use forebay_model::{Fault, Result, RetryAdvice, codes};
use forebay_storage::{Event, EventListener};
use tokio::task::AbortHandle;

use crate::coordinator_event::{AvailabilityCell, ClusterOptions, CoordinatorEvent};
use crate::local_workers::workers_end_fault;
use crate::protocol::{TaskKind, TaskProgress, WorkerMessage};
use crate::query::QueryWorker;
use crate::scheduler::{AttemptId, FailureAction, TaskAssignment, TaskId, TaskScheduler, WorkerId};
use crate::stage::{
    AttemptRows, RowsSender, StageFailure, StageSpec, StageUpdate, TaskEvent, TaskSpec,
    no_workers_fault,
};
use crate::status::{ClusterStatus, StatusWriter, WorkerStatus};
use crate::worker_client::{WorkerCall, WorkerClient, WorkerConnection, WorkerLoss, silence};

/// Interval at which the coordinator looks for stalled attempts and workers.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Time until a worker that did not answer, or failed its proof, is contacted again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
const STRANGER_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Time between two pings of a worker without a task: pings come more often than it ends connections that are idle.
const PING_EVERY: Duration = Duration::from_secs(20);

/// Heartbeats per lease: a single late one does not end the lease.
const BEATS_PER_LEASE: u32 = 5;

/// Time for which an attempt may run without progress.
const STUCK_AFTER: Duration = Duration::from_secs(900);

/// Number of attempts that end before their worker took the task, after which the task fails.
const UNREACHED_MAX: u32 = 20;

/// Number of times that a task is tried after faults that may be temporary.
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
    /// Index of the task among those of its group.
    index: usize,
    what: TaskKind,
    tries: u32,
    unreached: u32,
    /// Attempts whose worker was lost.
    lost: u32,
}

/// Outcome of an attempt that completed its task.
const DONE: &str = "done";

struct RunningAttempt {
    task: TaskId,
    worker: WorkerId,
    abort: AbortHandle,
    progress: TaskProgress,
    moved: Instant,
    heard: bool,
}

/// The attempt that sent a message.
struct MessageSender {
    attempt: AttemptId,
    worker: WorkerId,
    task: TaskId,
    group: GroupId,
    /// Index of the task among those of its group.
    index: usize,
}

struct ConnectedWorker {
    address: String,
    slots: usize,
    link: Arc<WorkerClient>,
    /// Time of the last message to the worker, other than those of running tasks.
    spoken: Instant,
    /// When it was given a task that it has not reported on since. An attempt may end because another
    /// worker was first, before the coordinator knows that this worker is stalled.
    silent_since: Option<Instant>,
}

enum AddressState {
    Member,
    Asked,
    Away { again: Instant, why: String },
}

/// A thread that receives all events, queries the scheduler for the next actions, and executes
/// them.
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
    /// Workers by address, permanently.
    workers: BTreeMap<String, WorkerId>,
    addresses: BTreeMap<String, AddressState>,
    none_since: Option<Instant>,
    /// Time of the last check of the attempts and workers.
    looked: Instant,
    board: Option<StatusWriter>,
    /// Status of workers by address.
    tallies: BTreeMap<String, WorkerStatus>,
    /// The pipeline and pass of the last submitted tasks.
    about: (String, usize),
}

impl Coordinator {
    pub fn new(
        options: ClusterOptions,
        listener: Arc<dyn EventListener>,
        availability: Arc<AvailabilityCell>,
        to: Sender<CoordinatorEvent>,
        handle: tokio::runtime::Handle,
    ) -> Coordinator {
        let schedule = match &options.local {
            Some(_) => TaskScheduler::for_local_workers(),
            None => TaskScheduler::default(),
        };
        Coordinator {
            options,
            watch: listener,
            there: availability,
            to,
            handle,
            began: Instant::now(),
            schedule,
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
                self.lose_ended_processes();
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
                asks: stage,
                tasks,
                to,
                rows,
            } => self.submit(stage, tasks, to, rows),
            CoordinatorEvent::Roster(addresses) => self.connect_workers(&addresses),
            CoordinatorEvent::Connected(address, connection) => {
                self.worker_connected(address, connection)
            }
            CoordinatorEvent::Heard(attempt, message) => self.handle_message(attempt, *message),
            CoordinatorEvent::Over(attempt, ended) => self.attempt_over(attempt, ended),
            CoordinatorEvent::QueryWorkers(to) => {
                // A caller that has gone needs no workers.
                let _ = to.send(self.query_workers());
            }
            CoordinatorEvent::QueryLost { worker, why } => {
                let mut members = self.members.iter();
                let lost = members.find(|(_, member)| Arc::ptr_eq(&member.link, &worker.link));
                if let Some((worker, _)) = lost {
                    let worker = *worker;
                    self.lose_worker(worker, &why, false);
                }
            }
            CoordinatorEvent::Show(board) => self.board = Some(board),
            CoordinatorEvent::Quit => {}
        }
    }

    /// Handles the end of an attempt's connection before its task was done.
    fn attempt_over(&mut self, attempt: AttemptId, ended: Result<(), WorkerLoss>) {
        let Some(running) = self.attempts.get(&attempt) else {
            return;
        };
        match ended {
            Ok(()) => self.remove_worker(attempt, "it ended without an answer", true),
            Err(WorkerLoss::Silent(why)) => self.remove_worker(attempt, &why, true),
            Err(WorkerLoss::Unreached(why)) => self.remove_worker(attempt, &why, false),
            Err(WorkerLoss::Unwanted) => {
                if let Some(task) = self.tasks.get(&running.task) {
                    let group = task.group;
                    self.end_group(group);
                }
            }
        }
    }

    /// The workers that may take part in a query.
    fn query_workers(&self) -> Vec<QueryWorker> {
        let mut workers = Vec::new();
        for (worker, member) in &self.members {
            if !self.schedule.is_leaving(*worker) {
                workers.push(QueryWorker {
                    address: member.address.clone(),
                    slots: member.slots,
                    link: member.link.clone(),
                });
            }
        }
        workers
    }

    fn submit(
        &mut self,
        stage: Arc<StageSpec>,
        specs: Vec<TaskSpec>,
        to: Sender<StageUpdate>,
        rows: Option<RowsSender>,
    ) {
        let group = self.next_group;
        self.next_group += 1;
        let mut tasks: Vec<TaskId> = Vec::new();
        self.about = stage.pipeline_and_pass();
        for (
            index,
            TaskSpec {
                cost,
                after: predecessor,
                what: kind,
            },
        ) in specs.into_iter().enumerate()
        {
            let predecessor = predecessor.and_then(|index| tasks.get(index).copied());
            let task = self
                .schedule
                .add(cost, kind.kind(self.about.1), predecessor);
            self.tasks.insert(
                task,
                TaskState {
                    group,
                    index,
                    what: kind,
                    tries: 0,
                    unreached: 0,
                    lost: 0,
                },
            );
            tasks.push(task);
        }
        let task_count = tasks.len();
        self.groups.insert(
            group,
            TaskGroup {
                asks: stage,
                tasks,
                left: task_count,
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
            .is_some_and(|task_group| task_group.to.send(answer).is_err())
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

    /// Ends an attempt. `outcome` is the outcome in its event.
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
                // The reason of the absence is kept until it answers.
                Some(AddressState::Away { again, .. }) => {
                    *again = Instant::now() + STRANGER_AGAIN_AFTER
                }
                _ => drop(self.addresses.insert(address.clone(), AddressState::Asked)),
            }
            let to = self.to.clone();
            let security = self.options.security.clone();
            let address = address.clone();
            self.handle.spawn(async move {
                let connection = WorkerClient::connect(&address, &security).await;
                let _ = to.send(CoordinatorEvent::Connected(
                    address,
                    connection.map(Box::new),
                ));
            });
        }
        self.ping_idle_workers();
        // Workers that are no longer on the roster finish their running tasks and get no new ones.
        let former_members = self
            .members
            .iter()
            .filter(|(_, member)| !addresses.contains(&member.address));
        for worker in former_members
            .map(|(worker, _)| *worker)
            .collect::<Vec<_>>()
        {
            self.schedule.drain_worker(worker);
        }
        self.update_availability();
    }

    /// Asks workers without a task for a sign of life from time to time: a worker ends connections on which nothing is
    /// asked, and one that is gone is missed before it is needed.
    fn ping_idle_workers(&mut self) {
        let busy: BTreeSet<WorkerId> = self.attempts.values().map(|under| under.worker).collect();
        for (worker, member) in &mut self.members {
            if busy.contains(worker) || member.spoken.elapsed() < PING_EVERY {
                continue;
            }
            member.spoken = Instant::now();
            let worker = QueryWorker {
                address: member.address.clone(),
                slots: member.slots,
                link: member.link.clone(),
            };
            let to = self.to.clone();
            let lease = self.options.lease;
            self.handle.spawn(async move {
                if let Err(why) = worker.link.ping(lease).await {
                    // A coordinator that has ended needs no worker.
                    let _ = to.send(CoordinatorEvent::QueryLost { worker, why });
                }
            });
        }
    }

    fn worker_connected(&mut self, address: String, connection: Result<Box<WorkerConnection>>) {
        if matches!(self.addresses.get(&address), Some(AddressState::Member)) {
            return;
        }
        match connection.map(|boxed| *boxed) {
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
                        spoken: Instant::now(),
                    },
                );
                self.addresses.insert(address.clone(), AddressState::Member);
                let slots = hello.slots;
                let memory_bytes = hello.memory_bytes;
                self.tallies.entry(address.clone()).or_default().slots = slots;
                self.watch.on_event(Event::WorkerJoined {
                    worker: address,
                    slots,
                    memory_bytes,
                });
            }
            Ok(_) => self.mark_away(&address, AGAIN_AFTER, "it is leaving".to_owned()),
            Err(fault) => {
                let delay = if fault.code().retry == RetryAdvice::Later {
                    AGAIN_AFTER
                } else {
                    STRANGER_AGAIN_AFTER
                };
                let why = match fault.hint_text() {
                    Some(hint) => format!("{fault}: {hint}"),
                    None => fault.to_string(),
                };
                self.mark_away(&address, delay, why);
            }
        }
        self.update_availability();
    }

    fn mark_away(&mut self, address: &str, delay: Duration, why: String) {
        let is_repeated = match self.addresses.get(address) {
            Some(AddressState::Away {
                why: last_reason, ..
            }) => *last_reason == why,
            _ => false,
        };
        if !is_repeated {
            self.watch.on_event(Event::WorkerLost {
                worker: address.to_owned(),
                why: why.clone(),
            });
        }
        self.addresses.insert(
            address.to_owned(),
            AddressState::Away {
                again: Instant::now() + delay,
                why,
            },
        );
    }

    /// Informs waiting threads of the connected workers.
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
        let Some(sender) = self.message_sender(attempt) else {
            return;
        };
        match message {
            WorkerMessage::Hello(_) | WorkerMessage::Probed(_) => {}
            WorkerMessage::Beat(progress) => self.record_progress(attempt, progress),
            WorkerMessage::Part {
                first,
                made: results,
            } => {
                let is_new = self.complete_unit(&sender, first);
                if is_new {
                    let event = TaskEvent::Part {
                        first,
                        made: results,
                    };
                    self.notify_group(sender.group, StageUpdate::Said(event));
                }
            }
            WorkerMessage::Done { counts, progress } => {
                self.record_progress(attempt, progress);
                let event = TaskEvent::Done {
                    task: sender.index,
                    counts,
                };
                self.complete_task(&sender, event);
            }
            WorkerMessage::HandedBack => {
                self.schedule.drain_worker(sender.worker);
                self.end_attempt(attempt, "handed_back");
                self.schedule.attempt_failed(sender.task, attempt, false);
                self.update_availability();
            }
            WorkerMessage::Failed {
                fault,
                order_failure,
            } => {
                let failure = StageFailure {
                    fault: Fault::from(*fault),
                    order_failure,
                    deadly: None,
                };
                self.attempt_failed(&sender, failure);
            }
        }
    }

    /// The sender of a message; `None` for attempts that no longer count, whose messages are too late.
    fn message_sender(&mut self, attempt: AttemptId) -> Option<MessageSender> {
        let running = self.attempts.get_mut(&attempt)?;
        running.heard = true;
        let task = running.task;
        let worker = running.worker;
        if let Some(member) = self.members.get_mut(&worker) {
            member.silent_since = None;
        }
        let state = self.tasks.get(&task)?;
        Some(MessageSender {
            attempt,
            worker,
            task,
            group: state.group,
            index: state.index,
        })
    }

    /// Records that a unit is committed; false if another attempt has reported it.
    fn complete_unit(&mut self, sender: &MessageSender, first: usize) -> bool {
        if let Some(running) = self.attempts.get_mut(&sender.attempt) {
            running.moved = Instant::now();
        }
        self.schedule.clear_deaths(sender.task);
        let Some(task) = self.tasks.get_mut(&sender.task) else {
            return false;
        };
        let is_new = task.complete_unit(first);
        if is_new && let Some(tally) = self.worker_status(sender.worker) {
            tally.parts += 1;
        }
        is_new
    }

    /// Ends the attempts of a task that is done, and its group with its last task.
    fn complete_task(&mut self, sender: &MessageSender, event: TaskEvent) {
        let MessageSender {
            attempt,
            task,
            group,
            ..
        } = *sender;
        let Some(others) = self.schedule.complete(task, attempt, self.now()) else {
            return;
        };
        self.end_attempt(attempt, DONE);
        for other in others {
            self.end_attempt(other, "cancelled");
        }
        self.notify_group(group, StageUpdate::Said(event));
        let Some(task_group) = self.groups.get_mut(&group) else {
            return;
        };
        task_group.left -= 1;
        if task_group.left == 0 {
            self.notify_group(group, StageUpdate::AllDone);
            self.end_group(group);
        }
    }

    /// Ends an attempt that failed. Its task is tried again after faults that may be temporary.
    fn attempt_failed(&mut self, sender: &MessageSender, mut failure: StageFailure) {
        let mut address = String::new();
        if let Some(member) = self.members.get(&sender.worker) {
            address = member.address.clone();
        }
        failure.fault = failure.fault.worker(address);
        self.end_attempt(sender.attempt, "failed");
        self.schedule
            .attempt_failed(sender.task, sender.attempt, false);
        let mut tries = TRIES_MAX;
        if let Some(task) = self.tasks.get_mut(&sender.task) {
            task.tries += 1;
            tries = task.tries;
        }
        let is_lasting = failure.fault.code().retry == RetryAdvice::Never;
        if failure.order_failure.is_some() || is_lasting || tries >= TRIES_MAX {
            self.fail_group(sender.group, failure);
        } else {
            let message = format!("{}; it is tried again", failure.fault);
            self.watch.on_event(Event::Warning { message });
        }
    }

    fn record_progress(&mut self, attempt: AttemptId, progress: TaskProgress) {
        let Some(under) = self.attempts.get_mut(&attempt) else {
            return;
        };
        let earlier = std::mem::replace(&mut under.progress, progress);
        if earlier == progress {
            return;
        }
        under.moved = Instant::now();
        let rows = progress.rows.saturating_sub(earlier.rows);
        let bytes = progress.bytes.saturating_sub(earlier.bytes);
        let spilled = progress.spilled_bytes.saturating_sub(earlier.spilled_bytes);
        let cpu_seconds = (progress.cpu_seconds - earlier.cpu_seconds).max(0.0);
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

    /// Removes the worker of an attempt, and ends all of its attempts.
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
        let mut why = why.to_owned();
        let mut crashed = false;
        if let Some(member) = self.members.remove(&worker) {
            // How a process of this machine ended says more than that its connection did.
            if let Some(local) = &self.options.local
                && let Some(status) = local.exit_of(&member.address)
            {
                why = format!("its process ended with {status}");
                if !status.success() {
                    crashed = true;
                    local.replace();
                }
            }
            self.mark_away(&member.address, AGAIN_AFTER, why.clone());
        }
        for (task, attempt) in self.schedule.remove_worker(worker) {
            let heard = self
                .end_attempt(attempt, "lost")
                .is_some_and(|under| under.heard);
            // A worker elsewhere that was not heard may never have had the task. A process of this machine that crashed had
            // it, even if it ended before its first message, or if its connection failed in another way.
            let had_task = crashed || heard;
            let is_blamed = crashed || (blamed && heard);
            let verdict = self.schedule.attempt_failed(task, attempt, is_blamed);
            let Some(assigned) = self.tasks.get_mut(&task) else {
                continue;
            };
            assigned.lost += 1;
            assigned.unreached += u32::from(!had_task);
            if assigned.unreached >= UNREACHED_MAX {
                let group = assigned.group;
                let fault = Fault::new(codes::NO_WORKERS, format!("workers refuse a task: {why}"));
                self.fail_group(group, fault.into());
            } else if verdict == FailureAction::GivenUp {
                let group = assigned.group;
                let deadly = assigned.first_span();
                let fault = workers_end_fault("every worker that reads these rows ends");
                self.fail_group(
                    group,
                    StageFailure {
                        fault: fault.note(why.clone()),
                        order_failure: None,
                        deadly,
                    },
                );
            }
        }
        self.update_availability();
    }

    fn end_stalled(&mut self) {
        if let Some(attempt) = self.find_attempt(|attempt| self.is_stuck(attempt)) {
            self.remove_worker(
                attempt,
                &format!("it did not get on for {} s", STUCK_AFTER.as_secs()),
                true,
            );
        }
        if let Some(attempt) = self.find_attempt(|attempt| self.has_silent_worker(attempt)) {
            let why = silence(self.options.lease);
            self.remove_worker(attempt, &why, false);
        }
    }

    fn find_attempt(&self, is_wanted: impl Fn(&RunningAttempt) -> bool) -> Option<AttemptId> {
        let mut attempts = self.attempts.iter();
        let (id, _) = attempts.find(|(_, attempt)| is_wanted(attempt))?;
        Some(*id)
    }

    /// True if an attempt has made no progress for too long.
    fn is_stuck(&self, attempt: &RunningAttempt) -> bool {
        // An attempt that sends rows may wait for this process to take them: it is not stalled.
        attempt.moved.elapsed() > STUCK_AFTER && !self.sends_rows(attempt)
    }

    fn sends_rows(&self, attempt: &RunningAttempt) -> bool {
        let task = self.tasks.get(&attempt.task);
        let task_group = task.and_then(|task| self.groups.get(&task.group));
        task_group.is_some_and(|task_group| task_group.rows.is_some())
    }

    /// True if nothing was heard of the worker of an attempt for longer than its lease.
    fn has_silent_worker(&self, attempt: &RunningAttempt) -> bool {
        let member = self.members.get(&attempt.worker);
        let silent_since = member.and_then(|member| member.silent_since);
        silent_since.is_some_and(|since| since.elapsed() > self.options.lease)
    }

    /// Loses idle workers of this machine whose processes have ended: no message of theirs can be under way.
    fn lose_ended_processes(&mut self) {
        let Some(local) = self.options.local.clone() else {
            return;
        };
        let running = local.addresses();
        let mut ended = None;
        for (worker, member) in &self.members {
            if !running.contains(&member.address) && !self.is_busy(*worker) {
                ended = Some(*worker);
                break;
            }
        }
        if let Some(worker) = ended {
            self.lose_worker(worker, "its process ended", false);
        }
    }

    fn is_busy(&self, worker: WorkerId) -> bool {
        let mut attempts = self.attempts.values();
        attempts.any(|attempt| attempt.worker == worker)
    }

    fn start_attempts(&mut self) {
        if self.groups.is_empty() {
            return;
        }
        for assignment in self.schedule.assign(self.now()) {
            self.start_attempt(assignment);
        }
    }

    /// Sends a task to a worker.
    fn start_attempt(&mut self, assignment: TaskAssignment) {
        let TaskAssignment {
            task,
            worker,
            attempt,
        } = assignment;
        let Some(assigned) = self.tasks.get(&task) else {
            return;
        };
        let Some(member) = self.members.get_mut(&worker) else {
            return;
        };
        member.silent_since.get_or_insert_with(Instant::now);
        let link = member.link.clone();
        let address = member.address.clone();
        let Some(group) = self.groups.get(&assigned.group) else {
            return;
        };
        let lease = self.options.lease;
        let beat_every = lease / BEATS_PER_LEASE;
        let request = match group.asks.request(assigned.what.clone(), beat_every) {
            Ok(request) => request,
            Err(fault) => {
                self.fail_group(assigned.group, fault.into());
                return;
            }
        };
        let rows = group.rows.clone().map(|to| AttemptRows { attempt, to });
        self.watch.on_event(Event::TaskStarted {
            task: attempt,
            worker: address,
            kind: assigned.what.kind(self.about.1).what,
        });
        let call = WorkerCall {
            request,
            lease,
            trace: self.watch.task_context(attempt),
        };
        let running = RunningAttempt {
            task,
            worker,
            abort: self.spawn_call(link, attempt, call, rows),
            progress: TaskProgress::default(),
            moved: Instant::now(),
            heard: false,
        };
        self.attempts.insert(attempt, running);
    }

    /// Calls a worker; its messages and the end of the call become events.
    fn spawn_call(
        &self,
        link: Arc<WorkerClient>,
        attempt: AttemptId,
        call: WorkerCall,
        rows: Option<AttemptRows>,
    ) -> AbortHandle {
        let to = self.to.clone();
        let spawned = self.handle.spawn(async move {
            let mut hear =
                |message| drop(to.send(CoordinatorEvent::Heard(attempt, Box::new(message))));
            let ended = link.send_request(call, &mut hear, rows).await;
            let _ = to.send(CoordinatorEvent::Over(attempt, ended));
        });
        spawned.abort_handle()
    }

    /// Updates the status file of the run.
    fn publish_status(&mut self) {
        let Some(board) = &mut self.board else { return };
        let schedule = &self.schedule;
        let tallies = &self.tallies;
        let members = &self.members;
        let attempts = &self.attempts;
        let about = &self.about;
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
        if self.options.waits_for_launcher() {
            self.none_since = None;
            return;
        }
        let since = *self.none_since.get_or_insert_with(Instant::now);
        let is_over = since.elapsed() >= self.options.grace;
        let refusal = self.refusal();
        for group in self.groups.keys().copied().collect::<Vec<_>>() {
            // No other process will come once all that were started for this run have ended.
            let fault = self.options.all_ended().or_else(|| {
                is_over.then(|| no_workers_fault(self.options.grace, refusal.as_deref()))
            });
            if let Some(fault) = fault {
                let deadly = self.suspected_span(group);
                let failure = StageFailure {
                    deadly,
                    ..fault.into()
                };
                self.fail_group(group, failure);
            }
        }
    }

    /// First span of the task that lost the most workers; `None` if no task of the group lost one.
    fn suspected_span(&self, group: GroupId) -> Option<usize> {
        let tasks = self.tasks.values();
        let suspected = tasks
            .filter(|task| task.group == group && task.lost > 0)
            .max_by_key(|task| task.lost)?;
        suspected.first_span()
    }
}

impl TaskState {
    /// Removes a part from the remaining ones; false if it was done already.
    fn complete_unit(&mut self, first: usize) -> bool {
        let TaskKind::Parts { parts, .. } = &mut self.what else {
            return false;
        };
        let part_count = parts.len();
        parts.retain(|part| part.tasks.start != first);
        parts.len() < part_count
    }

    /// Number of the first span that is not done.
    fn first_span(&self) -> Option<usize> {
        match &self.what {
            TaskKind::Parts { parts, .. } => parts.first().map(|part| part.tasks.start),
            TaskKind::Advance { from, .. } => Some(*from),
            TaskKind::Merge { .. }
            | TaskKind::MergeRuns { .. }
            | TaskKind::Divide { .. }
            | TaskKind::Compute { .. }
            | TaskKind::Filter { .. }
            | TaskKind::Read { .. }
            | TaskKind::Train { .. } => None,
        }
    }
}
