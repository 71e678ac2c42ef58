//! The workers of a run, for those who have errands done.

use std::collections::BTreeSet;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_model::{Fault, Result, codes};
use forebay_plan::{OpId, Way};
use serde_json::Value;
use tokio::runtime::Runtime;
use uuid::Uuid;

use super::driver::Driver;
use super::link::{Link, Lost};
use super::message::{Hello, Job, Message, What, Work};
use super::roster::Roster;
use super::schedule::AttemptId;
use super::security::Security;
use super::status::Board;
use crate::events::Watch;
use crate::interrupt::Interrupt;
use crate::pass::exchange::Exchange;
use crate::{Io, Place};

/// How often somebody who waits looks whether to stop.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// How often the roster is read.
const ROSTER_EVERY: Duration = Duration::from_secs(1);

/// Which workers, and how patient one is with them.
#[derive(Debug, Clone)]
pub struct CrewOptions {
    /// `host:port` (a host may stand for many), or `@file` with one such a line.
    pub workers: Vec<String>,
    /// What proves that they belong to the cluster.
    pub security: Security,
    /// How long a worker may be silent before its errands go to others.
    pub lease: Duration,
    /// How long a run waits when no worker is there.
    pub grace: Duration,
}

/// What all errands of some work share.
#[derive(Debug, Clone)]
pub(crate) struct Common {
    pub job: Job,
    pub work: Work,
    pub ways: Vec<(OpId, Way)>,
    pub exchanges: Vec<Exchange>,
}

/// Something for a worker to do.
#[derive(Debug, Clone)]
pub(crate) struct Errand {
    /// Bytes, about.
    pub cost: u64,
    /// The errand that has to be done before.
    pub after: Option<usize>,
    pub what: What,
}

/// What is heard of errands while they are done.
pub(crate) enum Said {
    /// A part is committed; comes once for each.
    Part { first: usize, made: Value },
    /// An errand is done.
    Done { errand: usize, gaps: u64 },
    /// Work moved on; counts are differences.
    Moved { rows: u64, bytes: u64, spilled: u64 },
}

/// Why errands were not done.
pub(crate) struct Failure {
    pub fault: Fault,
    /// The window whose way was wrong.
    pub fallen: Option<OpId>,
    /// The first task of a part that ends every worker.
    pub deadly: Option<usize>,
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Failure { fault, fallen: None, deadly: None }
    }
}

/// The workers of a run.
pub struct Crew {
    to: Sender<Input>,
    there: Arc<There>,
    grace: Duration,
    driver: Option<JoinHandle<()>>,
    runtime: Option<Runtime>,
}

impl std::fmt::Debug for Crew {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Crew")
    }
}

/// Who is there: for those who wait for somebody.
#[derive(Default)]
pub(super) struct There {
    pub now: Mutex<Now>,
    pub moved: Condvar,
}

#[derive(Default)]
pub(super) struct Now {
    pub slots: usize,
    /// Whether all that should be there were asked once.
    pub asked: bool,
    pub refusal: Option<String>,
}

/// What the driver hears.
pub(super) enum Input {
    Submit { common: Arc<Common>, errands: Vec<Errand>, to: Sender<Answer> },
    Roster(BTreeSet<String>),
    Connected(String, Result<Box<(Link, Hello)>>),
    Heard(AttemptId, Box<Message>),
    Over(AttemptId, Result<(), Lost>),
    Show(Board),
    Quit,
}

/// What those hear who wait for errands.
pub(super) enum Answer {
    Said(Said),
    Failed(Failure),
    AllDone,
}

impl Crew {
    /// Begins to look for the workers.
    pub fn new(options: CrewOptions, watch: Arc<dyn Watch>) -> Result<Crew> {
        let roster = Roster::new(&options.workers)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("forebay-crew")
            .enable_all()
            .build()
            .map_err(|error| Fault::new(codes::STORAGE, "the network threads cannot be started").cause(error))?;
        let (to, from) = channel();
        let there: Arc<There> = Arc::default();
        let to_driver = to.clone();
        runtime.spawn(async move {
            while to_driver.send(Input::Roster(roster.addresses().await)).is_ok() {
                tokio::time::sleep(ROSTER_EVERY).await;
            }
        });
        let grace = options.grace;
        let driver = Driver::new(options, watch, there.clone(), to.clone(), runtime.handle().clone());
        let driver = std::thread::Builder::new()
            .name("forebay-crew".to_owned())
            .spawn(move || driver.drive(&from))
            .map_err(|error| Fault::new(codes::STORAGE, "a thread cannot be started").cause(error))?;
        Ok(Crew { to, there, grace, driver: Some(driver), runtime: Some(runtime) })
    }

    /// Shows in the state directory how it goes.
    pub(crate) fn show_in(&self, io: Io, state: &Place) -> Result<()> {
        let board = Board::new(io, state, &Uuid::new_v4().simple().to_string()[..12])?;
        // A crew that has ended has nothing to show.
        let _ = self.to.send(Input::Show(board));
        Ok(())
    }

    /// How many tasks the workers can do at a time; waits until one is there.
    pub(crate) fn slots(&self, interrupt: &Interrupt) -> Result<usize> {
        let begin = Instant::now();
        let mut now = self.there.now.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if now.slots > 0 && now.asked {
                return Ok(now.slots);
            }
            interrupt.check()?;
            if begin.elapsed() >= self.grace {
                return if now.slots > 0 { Ok(now.slots) } else { Err(nobody(self.grace, now.refusal.as_deref())) };
            }
            now = self.there.moved.wait_timeout(now, CHECK_EVERY).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Has errands done; `hear` is told how it goes.
    pub(crate) fn run(
        &self,
        common: &Common,
        errands: Vec<Errand>,
        interrupt: &Interrupt,
        hear: &mut dyn FnMut(Said) -> Result<()>,
    ) -> Result<(), Failure> {
        if errands.is_empty() {
            return Ok(());
        }
        let gone = || Failure::from(Fault::internal("the crew's thread has ended"));
        let (to, answers) = channel();
        self.to.send(Input::Submit { common: Arc::new(common.clone()), errands, to }).map_err(|_| gone())?;
        // Whoever returns early drops `answers`, and that ends the errands.
        loop {
            interrupt.check()?;
            match answers.recv_timeout(CHECK_EVERY) {
                Ok(Answer::Said(said)) => hear(said)?,
                Ok(Answer::Failed(failure)) => return Err(failure),
                Ok(Answer::AllDone) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(gone()),
            }
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        let _ = self.to.send(Input::Quit);
        if let Some(driver) = self.driver.take() {
            let _ = driver.join();
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The fault when no worker is there.
pub(super) fn nobody(grace: Duration, refusal: Option<&str>) -> Fault {
    let fault = Fault::new(codes::NO_WORKERS, format!("no worker was there for {} s", grace.as_secs_f64()));
    let fault = fault.hint("what is committed stays; start workers, and run the same command again to go on");
    match refusal {
        Some(refusal) => fault.note(refusal),
        None => fault,
    }
}
