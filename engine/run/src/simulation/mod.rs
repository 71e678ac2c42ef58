//! A deterministic simulation: two coordinators that begin the same runs, their workers, and a
//! store, while requests, messages and processes are lost, late and repeated and clocks jump. The
//! code under test is the real one: the scheduler, fences, records of shards and passes, and the
//! publishing of manifests. One seed decides everything else.
//!
//! ```text
//! FOREBAY_SIMULATION_SEEDS  how many seeds are tried (default: 200)
//! FOREBAY_SIMULATION_SEED   the first of them (default: 0); a failure prints its own
//! ```

mod check;
mod request;
mod store;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use bytes::Bytes;
use forebay_cluster::{CostClass, FailureAction, TaskScheduler};
use forebay_commit::{AttemptFence, Manifest, ReuseDecision, Shard, StateStore, record_is_intact};
use forebay_contract::{EncodedPiece, FileLayout, FileWriter, Sink};
use forebay_execute::WriteTarget;
use forebay_model::{ContentId, Fault, RelativePath, Result, codes};
use forebay_storage::{BackgroundTasks, IgnoreEvents, ScratchDir, StorageClient, StorageLocation};
use object_store::path::Path;
use serde_json::{Value, json};

use crate::simulation::check::{OUT, SimulatedAttempt, written_file};
use crate::simulation::request::ActorId;
use crate::simulation::store::SimulatedStore;
use crate::simulation::world::{ActorHandle, ActorKilled, ActorMessage, SimulatedWorld};

const COORDINATORS: usize = 2;
const WORKERS: usize = 3;

/// Number of runs, which write one whole output after the other; each has some of the shards of the
/// one before.
const RUNS: u64 = 5;
const SHARDS: usize = 4;

/// Number of runs after which the first shards come back: their directories may be being removed at
/// that time.
const PERIOD: u64 = 3;

/// Seconds without an answer after which a worker counts as lost.
const LEASE_SECONDS: f64 = 6.0;

/// Seconds of the other passes of a run.
const PASS_SECONDS: f64 = 15.0;

/// Seconds between a run's failure and its next attempt.
const RETRY_SECONDS: f64 = 2.0;

#[derive(Debug)]
struct NullSink;

impl Sink for NullSink {
    fn path(&self) -> &str {
        OUT
    }

    fn extension(&self) -> &'static str {
        "rows"
    }

    fn layout(&self) -> FileLayout {
        FileLayout {
            partition_by: Vec::new(),
            sort_by: Vec::new(),
            file_bytes_target: 1,
            group_rows_max: 1,
            is_plain: false,
        }
    }

    fn encode_piece(&self, _: &SchemaRef, _: &[RecordBatch], _: usize) -> Result<EncodedPiece> {
        Err(Fault::internal("the simulation encodes no rows"))
    }

    fn open_writer(
        &self,
        _: &SchemaRef,
        _: Box<dyn std::io::Write + Send>,
    ) -> Result<Box<dyn FileWriter>> {
        Err(Fault::internal("the simulation encodes no rows"))
    }
}

/// Environment of an actor.
struct SimulatedActor {
    me: ActorHandle,
    io: StorageClient,
    out: StorageLocation,
    store: StateStore,
    scratch: ScratchDir,
}

fn shard_id(number: usize) -> ContentId {
    ContentId::of(format!("shard {number}").as_bytes())
}

/// The shards of a run.
fn shards(run: u64) -> impl Iterator<Item = usize> {
    let first = (run % PERIOD) as usize * SHARDS / 2;
    first..first + SHARDS
}

impl SimulatedActor {
    fn new(me: ActorHandle, io: StorageClient, scratch: ScratchDir) -> SimulatedActor {
        let store = Arc::new(SimulatedStore(me.clone()));
        let place = |path: &str| StorageLocation {
            store: store.clone(),
            path: Path::from(path),
            local: None,
            shown: format!("s3://simulated/{path}"),
        };
        let out = place(OUT);
        let state = place("state");
        SimulatedActor {
            store: StateStore::new(io.clone(), state),
            io,
            out,
            scratch,
            me,
        }
    }

    fn target(&self) -> Result<WriteTarget<'_>> {
        Ok(WriteTarget {
            io: &self.io,
            sink: &NullSink,
            out: &self.out,
            store: &self.store,
            scratch: &self.scratch,
            pass: ContentId::of(b"pass"),
            shape: ContentId::of(b"shape"),
            shards: ContentId::of(b"shards"),
            within: None,
            shared: true,
            removed: Manifest::removed_directories(&self.io, &self.out)?,
        })
    }

    /// Runs a worker: it executes tasks until its process is killed; then another one replaces it.
    fn run_worker(&self) {
        while let Some(message) = self.me.receive(1e6) {
            let ActorMessage::Do {
                coordinator,
                run,
                task,
                attempt,
                shard,
            } = message
            else {
                continue;
            };
            let worker = self.me.id;
            let answer = match self.find_or_write_shard(shard) {
                Ok(shard) => ActorMessage::Done {
                    worker,
                    run,
                    task,
                    attempt,
                    shard,
                },
                Err(_) => ActorMessage::Failed {
                    worker,
                    run,
                    task,
                    attempt,
                },
            };
            self.me.send(coordinator, answer);
        }
    }

    /// Finds a shard, or computes it and keeps it.
    fn find_or_write_shard(&self, number: usize) -> Result<Shard> {
        let id = shard_id(number);
        let target = self.target()?;
        let looked = self.me.world.state().turns;
        if let Some(kept) = target.kept(id)? {
            return Ok(kept);
        }
        let mut state = self.me.world.state();
        if let Err(wrong) = state.checks.check_computation(&id.to_string(), looked) {
            state.wrong.get_or_insert(wrong);
        }
        // Each writing has a directory of its own.
        let writing = format!("{}-{}", self.me.id, state.turns);
        drop(state);
        let mut files = Vec::new();
        for file in 0..2 {
            let path = RelativePath::new(format!("_data/{id}.{writing}/part-{file}.rows"))?;
            let bytes = format!("rows of {number}, {file}");
            self.io
                .put(&self.out.join(&path), Bytes::from(bytes.clone()))?;
            files.push(written_file(path, bytes.as_bytes()));
        }
        let spans = vec![number.to_string()];
        target.keep(
            id,
            Shard {
                id: id.to_string(),
                spans,
                rows_in: 2,
                files,
                ..Shard::default()
            },
        )
    }

    /// A coordinator's life: it brings the runs to their ends one after the other, and begins a run again that
    /// failed, unless another attempt has it. It does not wait for that attempt: two runs may publish at the same time.
    fn coordinate(&self, done: &mut u64) {
        while *done < RUNS {
            match self.run(*done) {
                Err(fault) if fault.code() != codes::TAKEN_OVER => self.me.sleep(RETRY_SECONDS),
                // The other coordinator goes on with it.
                _ => *done += 1,
            }
        }
    }

    fn run(&self, run: u64) -> Result<()> {
        let id = ContentId::of(format!("run {run}").as_bytes());
        let claim = AttemptFence::acquire(&self.io, self.store.root(), &format!("run {run}"), id)?;
        self.me.world.state().checks.attempts.insert(
            self.me.id,
            SimulatedAttempt {
                run,
                number: claim.number(),
            },
        );
        let intact = |record: &Value| record_is_intact(&self.io, &self.out, record);
        let (before, record) = self.store.pass_record(id, intact)?;
        let known = record.and_then(|record| Manifest::from_record(&record).ok());
        let manifest = match known.filter(|_| before == ReuseDecision::Reuse) {
            Some(manifest) => manifest,
            None => {
                let manifest =
                    Manifest::new(id, &Schema::empty(), self.collect_shards(run, &claim)?)?;
                claim.check()?;
                self.store
                    .put_pass_record(id, before, &json!({ "manifest": manifest }), intact)?;
                manifest
            }
        };
        // Other passes of a run take their time, too.
        if self.me.world.state().goes_wrong(0.3) {
            self.me.sleep(PASS_SECONDS);
        }
        let mut later = BackgroundTasks::default();
        manifest.publish(&self.io, &self.out, None, (&|| claim.check(), &mut later))?;
        later.join_all()
    }

    /// Collects all shards of a run from workers.
    fn collect_shards(&self, run: u64, claim: &AttemptFence) -> Result<Vec<Shard>> {
        // An attempt ignores the answers to earlier attempts, whose tasks have the same numbers.
        let of_attempt = run * 1000 + claim.number();
        let mut schedule = TaskScheduler::default();
        let kind = CostClass {
            pass: 0,
            what: "parts",
            first: false,
        };
        let mut shard_states = BTreeMap::new();
        let mut tasks = BTreeMap::new();
        let target = self.target()?;
        for shard in shards(run) {
            match target.kept(shard_id(shard))? {
                Some(kept) => drop(shard_states.insert(shard, kept)),
                None => drop(tasks.insert(schedule.add(1 + shard as u64, kind, None), shard)),
            }
        }
        let all = COORDINATORS..COORDINATORS + WORKERS;
        all.clone()
            .for_each(|worker| schedule.add_worker(worker, 1));
        // By worker: its attempts, and since when nothing was heard of it.
        let mut busy: BTreeMap<ActorId, (BTreeSet<u64>, f64)> = BTreeMap::new();
        let mut ended: BTreeSet<usize> = BTreeSet::new();
        while shard_states.len() < SHARDS {
            if self.me.world.state().random.chance(0.2) {
                claim.check()?;
            }
            let now = self.me.clock();
            for begun in schedule.assign(now) {
                let Some(&shard) = tasks.get(&begun.task) else {
                    return Err(Fault::internal("an unknown task"));
                };
                let (running, heard) = busy.entry(begun.worker).or_insert((BTreeSet::new(), now));
                self.expect(!ended.contains(&begun.task), "a task is begun that is done");
                self.expect(running.is_empty(), "a worker got more than it has slots");
                running.insert(begun.attempt);
                *heard = now;
                let task = begun.task;
                let attempt = begun.attempt;
                self.me.send(
                    begun.worker,
                    ActorMessage::Do {
                        coordinator: self.me.id,
                        run: of_attempt,
                        task,
                        attempt,
                        shard,
                    },
                );
            }
            let answer = self.me.receive(0.5);
            let now = self.me.clock();
            match answer {
                Some(ActorMessage::Done {
                    worker,
                    run,
                    task,
                    attempt,
                    shard,
                }) if run == of_attempt => {
                    busy.entry(worker)
                        .and_modify(|(running, _)| running.retain(|id| *id != attempt));
                    if let Some(others) = schedule.complete(task, attempt, now) {
                        self.expect(ended.insert(task), "a task is done twice");
                        busy.values_mut()
                            .for_each(|(running, _)| running.retain(|id| !others.contains(id)));
                        shard_states.insert(tasks[&task], shard);
                    }
                }
                Some(ActorMessage::Failed {
                    worker,
                    run,
                    task,
                    attempt,
                }) if run == of_attempt => {
                    busy.entry(worker)
                        .and_modify(|(running, _)| running.retain(|id| *id != attempt));
                    schedule.attempt_failed(task, attempt, false);
                }
                _ => {}
            }
            let silent = |(_, (running, heard)): &(&ActorId, &(BTreeSet<u64>, f64))| {
                !running.is_empty() && (now - *heard).abs() > LEASE_SECONDS
            };
            for worker in busy
                .iter()
                .filter(silent)
                .map(|(worker, _)| *worker)
                .collect::<Vec<_>>()
            {
                busy.remove(&worker);
                for (task, attempt) in schedule.remove_worker(worker) {
                    if schedule.attempt_failed(task, attempt, true) == FailureAction::GivenUp {
                        return Err(Fault::new(
                            codes::KILLS_WORKERS,
                            "a task ended too many workers",
                        ));
                    }
                }
                // Another process takes its place.
                schedule.add_worker(worker, 1);
            }
        }
        Ok(shard_states.into_values().collect())
    }

    fn expect(&self, is_so: bool, wrong: &str) {
        if !is_so {
            self.me
                .world
                .state()
                .wrong
                .get_or_insert_with(|| wrong.to_owned());
        }
    }
}

/// Lives again and again, as long as its process is killed.
fn restart_when_killed(me: &ActorHandle, life: &mut dyn FnMut()) {
    while let Err(end) = catch_unwind(AssertUnwindSafe(&mut *life)) {
        let over = me.world.state().wrong.is_some();
        match end.downcast::<ActorKilled>() {
            Ok(_) if !over => me.sleep(RETRY_SECONDS),
            Ok(_) => return,
            Err(panic) => {
                me.world
                    .state()
                    .wrong
                    .get_or_insert_with(|| "an actor panicked".to_owned());
                resume_unwind(panic);
            }
        }
    }
}

/// Publications and computations of a seed.
fn simulate(
    seed: u64,
    io: &StorageClient,
    scratch: &ScratchDir,
) -> std::result::Result<(usize, usize), String> {
    let world = SimulatedWorld::new(seed, COORDINATORS + WORKERS);
    thread::scope(|scope| {
        for id in 0..COORDINATORS + WORKERS {
            let me = ActorHandle {
                world: world.clone(),
                id,
            };
            let actor = SimulatedActor::new(me.clone(), io.clone(), scratch.clone());
            scope.spawn(move || {
                let _ = catch_unwind(AssertUnwindSafe(|| {
                    me.wait_for_first_turn();
                    if id < COORDINATORS {
                        let mut done = 0;
                        restart_when_killed(&me, &mut || actor.coordinate(&mut done));
                    } else {
                        restart_when_killed(&me, &mut || actor.run_worker())
                    }
                }));
                me.finish();
            });
        }
        world.begin();
    });
    let state = world.state();
    if let Some(wrong) = &state.wrong {
        return Err(wrong.clone());
    }
    let published = &state.checks.publications;
    if let Some(run) =
        (0..RUNS).find(|run| !published.iter().any(|(.., attempt)| attempt.run == *run))
    {
        return Err(format!("readers never saw run {run}: {published:?}"));
    }
    let seen = state.checks.visible().map(|manifest| manifest.shards.len());
    if seen != Some(SHARDS) {
        return Err(format!(
            "readers see {seen:?} shards at the end: {published:?}"
        ));
    }
    Ok((published.len(), state.checks.computations))
}

fn env_or(name: &str, otherwise: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

#[test]
fn outputs_stay_whole_under_random_failures() {
    let io = StorageClient::new().unwrap();
    let scratch = ScratchDir::new(None, Arc::new(IgnoreEvents)).unwrap();
    let first = env_or("FOREBAY_SIMULATION_SEED", 0);
    let mut publications = 0;
    let mut computations = 0;
    for seed in first..first + env_or("FOREBAY_SIMULATION_SEEDS", 200) {
        match simulate(seed, &io, &scratch) {
            Ok((published, computed)) => {
                (publications, computations) = (publications + published, computations + computed)
            }
            Err(wrong) => {
                panic!("FOREBAY_SIMULATION_SEED={seed} FOREBAY_SIMULATION_SEEDS=1: {wrong}")
            }
        }
        // The same seed is the same simulation.
        if seed == first {
            assert_eq!(
                simulate(seed, &io, &scratch).unwrap(),
                simulate(seed, &io, &scratch).unwrap()
            );
        }
    }
    assert!(publications > 0 && computations > 0);
}
