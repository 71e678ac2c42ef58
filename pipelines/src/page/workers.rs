//! Work of a run's workers.

use std::collections::{BTreeMap, HashMap};

use forebay_storage::Event;

use super::{Block, Cell};
use crate::present::units;

/// Workers that are listed.
const WORKERS_MAX: usize = 1_000;

/// Workers by address, collected from events.
#[derive(Debug, Clone, Default)]
pub(super) struct WorkerLog {
    workers: BTreeMap<String, WorkerUse>,
    /// Worker of each running task.
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

impl WorkerUse {
    fn cells(&self, address: &str) -> Vec<Cell> {
        let state = match &self.lost {
            None => Cell::default(),
            Some(why) => Cell {
                class: Some("bad"),
                ..Cell::text(format!("lost: {why}"))
            },
        };
        vec![
            Cell::text(address.to_owned()),
            Cell::number(units::grouped(self.slots as u64)),
            Cell::number(units::bytes(self.memory_bytes)),
            Cell::number(units::grouped(self.done)),
            Cell::number(units::grouped(self.other)),
            Cell::number(units::grouped(self.rows)),
            Cell::number(units::bytes(self.bytes)),
            Cell::number(units::bytes(self.spilled_bytes)),
            Cell::number(format!("{:.1}", self.cpu_seconds)),
            state,
        ]
    }
}

impl WorkerLog {
    /// Records an event.
    pub fn hear(&mut self, event: &Event) {
        match event {
            Event::WorkerJoined {
                worker,
                slots,
                memory_bytes,
            } => {
                if let Some(listed) = self.worker(worker) {
                    (listed.slots, listed.memory_bytes, listed.lost) =
                        (*slots, *memory_bytes, None);
                }
            }
            Event::WorkerLost { worker, why } => {
                if let Some(listed) = self.worker(worker) {
                    listed.lost = Some(why.clone());
                }
            }
            Event::WorkerMoved {
                worker,
                rows,
                bytes,
                spilled_bytes,
                cpu_seconds,
            } => {
                if let Some(listed) = self.worker(worker) {
                    listed.rows += rows;
                    listed.bytes += bytes;
                    listed.spilled_bytes += spilled_bytes;
                    listed.cpu_seconds += cpu_seconds;
                }
            }
            Event::TaskStarted { task, worker, .. } => {
                self.tasks.insert(*task, worker.clone());
            }
            Event::TaskEnded { task, outcome, .. } => {
                let worker = self.tasks.remove(task);
                if let Some(listed) = worker.and_then(|worker| self.workers.get_mut(&worker)) {
                    *(if *outcome == "done" {
                        &mut listed.done
                    } else {
                        &mut listed.other
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

    /// Table with a line for each worker, if there are any.
    pub fn table(&self) -> Option<Block> {
        if self.workers.is_empty() {
            return None;
        }
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
        let workers = self.workers.iter();
        let rows = workers.map(|(address, used)| used.cells(address));
        Some(Block::table("Workers", &head, rows.collect()))
    }
}
