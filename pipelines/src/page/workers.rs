//! What the workers of a run did.

use std::collections::{BTreeMap, HashMap};

use forebay_storage::Event;

use super::{Block, Cell};
use crate::present::units;

/// Workers that are listed.
const WORKERS_MAX: usize = 1_000;

/// Workers by address, as events tell of them.
#[derive(Debug, Clone, Default)]
pub(super) struct WorkerLog {
    workers: BTreeMap<String, WorkerUse>,
    /// The worker of each task at work.
    tasks: HashMap<u64, String>,
}

#[derive(Debug, Clone, Default)]
struct WorkerUse {
    slots: usize,
    memory_bytes: u64,
    done: u64,
    /// Tasks that ended in another way.
    other: u64,
    rows: u64,
    bytes: u64,
    spilled_bytes: u64,
    cpu_seconds: f64,
    lost: Option<String>,
}

impl WorkerLog {
    /// Takes in an event.
    pub fn hear(&mut self, event: &Event) {
        match event {
            Event::WorkerJoined {
                worker,
                slots,
                memory_bytes,
            } => {
                if let Some(known) = self.worker(worker) {
                    (known.slots, known.memory_bytes, known.lost) = (*slots, *memory_bytes, None);
                }
            }
            Event::WorkerLost { worker, why } => {
                if let Some(known) = self.worker(worker) {
                    known.lost = Some(why.clone());
                }
            }
            Event::WorkerMoved {
                worker,
                rows,
                bytes,
                spilled_bytes,
                cpu_seconds,
            } => {
                if let Some(known) = self.worker(worker) {
                    known.rows += rows;
                    known.bytes += bytes;
                    known.spilled_bytes += spilled_bytes;
                    known.cpu_seconds += cpu_seconds;
                }
            }
            Event::TaskStarted { task, worker, .. } => {
                self.tasks.insert(*task, worker.clone());
            }
            Event::TaskEnded { task, outcome, .. } => {
                let worker = self.tasks.remove(task);
                if let Some(known) = worker.and_then(|worker| self.workers.get_mut(&worker)) {
                    *(if *outcome == "done" {
                        &mut known.done
                    } else {
                        &mut known.other
                    }) += 1;
                }
            }
            _ => {}
        }
    }

    fn worker(&mut self, address: &str) -> Option<&mut WorkerUse> {
        if self.workers.len() >= WORKERS_MAX && !self.workers.contains_key(address) {
            return None;
        }
        Some(self.workers.entry(address.to_owned()).or_default())
    }

    /// A table with a line for each worker, where there are some.
    pub fn table(&self) -> Option<Block> {
        let row = |(address, used): (&String, &WorkerUse)| {
            let count = |count: u64| Cell::number(units::grouped(count));
            let state = match &used.lost {
                None => Cell::default(),
                Some(why) => Cell {
                    class: Some("bad"),
                    ..Cell::text(format!("lost: {why}"))
                },
            };
            vec![
                Cell::text(address.clone()),
                count(used.slots as u64),
                Cell::number(units::bytes(used.memory_bytes)),
                count(used.done),
                count(used.other),
                count(used.rows),
                Cell::number(units::bytes(used.bytes)),
                Cell::number(units::bytes(used.spilled_bytes)),
                Cell::number(format!("{:.1}", used.cpu_seconds)),
                state,
            ]
        };
        let head = [
            "worker",
            "#slots",
            "#memory",
            "#tasks",
            "#not done",
            "#rows",
            "#read",
            "#spilled",
            "#CPU seconds",
            "",
        ];
        let rows: Vec<_> = self.workers.iter().map(row).collect();
        (!rows.is_empty()).then(|| Block::table("Workers", &head, rows))
    }
}
