//! The workers of a run, for those who have errands done.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use forebay_model::{Fault, Result, codes};
use forebay_plan::{OpId, Way};
use forebay_storage::{Interrupt, Io, Place, Watch};
use serde_json::Value;
use tokio::runtime::Runtime;
use uuid::Uuid;

use super::driver::Driver;
use super::link::{Link, Lost};
use super::message::{FeedJob, Hello, Job, Message, Request, RowsRequest, TaskRequest, What, Work};
use super::roster::Roster;
use super::rows::decode;
use super::schedule::AttemptId;
use super::security::Security;
use super::status::Board;
use crate::pass::exchange::Exchange;

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

/// What errands are of.
#[derive(Debug)]
pub(crate) enum Asks {
    Pass(Box<Common>),
    Feed(Box<FeedJob>),
}

impl Asks {
    /// What a worker is told of one of them.
    pub(super) fn request(&self, what: What, beat: Duration) -> Result<Request> {
        let beat_ms = beat.as_millis() as u64;
        match (self, what) {
            (Asks::Feed(job), What::Read { dataset, block }) => {
                Ok(Request::Rows(Box::new(RowsRequest { job: job.as_ref().clone(), dataset, block, beat_ms })))
            }
            (Asks::Feed(_), _) => Err(Fault::internal("a feed's errands read rows")),
            (Asks::Pass(common), what) => {
                let Common { job, work, ways, exchanges } = common.as_ref().clone();
                Ok(Request::Task(Box::new(TaskRequest { job, work, ways, exchanges, what, beat_ms })))
            }
        }
    }

    /// The pipeline, and the pass from 1, or 0 of a feed.
    pub(super) fn about(&self) -> (String, usize) {
        match self {
            Asks::Pass(common) => (common.job.pipeline.name.clone(), common.work.pass() + 1),
            Asks::Feed(job) => (job.pipeline.name.clone(), 0),
        }
    }
}

/// Where the rows of errands go: what each attempt gives, in order.
pub(super) type RowsTo = tokio::sync::mpsc::Sender<(AttemptId, Buffer)>;

/// Pieces of rows that wait for whoever asked.
pub(super) const ROWS_AHEAD: usize = 2;

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
    Submit { asks: Arc<Asks>, errands: Vec<Errand>, to: Sender<Answer>, rows: Option<RowsTo> },
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
        let gone = || Failure::from(ended());
        let (to, answers) = channel();
        let asks = Arc::new(Asks::Pass(Box::new(common.clone())));
        self.to.send(Input::Submit { asks, errands, to, rows: None }).map_err(|_| gone())?;
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

    /// Has the rows of an errand read, and hands them over in order, each once, whoever reads them. Gives
    /// how long it waited for them.
    pub(crate) fn read(
        &self,
        asks: &Arc<Asks>,
        errand: Errand,
        interrupt: &Interrupt,
        give: &mut dyn FnMut(RecordBatch) -> ControlFlow<()>,
    ) -> Result<Duration> {
        let runtime = self.runtime.as_ref().ok_or_else(ended)?;
        let (to, answers) = channel();
        let (rows, mut pieces) = tokio::sync::mpsc::channel(ROWS_AHEAD);
        let errands = vec![errand];
        let submit = Input::Submit { asks: asks.clone(), errands, to, rows: Some(rows) };
        self.to.send(submit).map_err(|_| ended())?;
        // Whoever tries again begins with the first row; the rows are the same.
        let (mut given, mut seen) = (0_usize, BTreeMap::<AttemptId, usize>::new());
        let mut waited = Duration::ZERO;
        loop {
            interrupt.check()?;
            let begin = Instant::now();
            let piece = runtime.block_on(async { tokio::time::timeout(CHECK_EVERY, pieces.recv()).await });
            waited += begin.elapsed();
            let Ok(piece) = piece else { continue };
            // All have let go of it: all is said.
            let Some((attempt, bytes)) = piece else { break };
            let batch = decode(bytes)?;
            let seen = seen.entry(attempt).or_default();
            let known = given.saturating_sub(*seen).min(batch.num_rows());
            *seen += batch.num_rows();
            given = given.max(*seen);
            if known < batch.num_rows() && give(batch.slice(known, batch.num_rows() - known)).is_break() {
                return Ok(waited);
            }
        }
        for answer in answers.try_iter() {
            match answer {
                Answer::AllDone => return Ok(waited),
                Answer::Failed(failure) => return Err(failure.fault),
                Answer::Said(_) => {}
            }
        }
        Err(ended())
    }
}

fn ended() -> Fault {
    Fault::internal("the crew's thread has ended")
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
