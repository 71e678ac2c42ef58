//! A failing chain made smaller while it still fails: fewer rows, steps, columns, options.

use std::time::{Duration, Instant};

use serde_json::Value as Json;

use super::chain::{ChainFailure, ProgramOptions, RandomChain};
use super::table::CellTable;

/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(90);

/// The smallest chain that was found to fail in the same way, and how it fails.
pub fn shrink_chain(
    chain: RandomChain,
    failure: ChainFailure,
    fails: impl Fn(&RandomChain) -> Option<ChainFailure>,
) -> (RandomChain, ChainFailure) {
    let begin = Instant::now();
    let mut best = (chain, failure);
    loop {
        let smaller = candidates(&best.0).into_iter().find_map(|candidate| {
            if begin.elapsed() > PATIENCE {
                return None;
            }
            let failure = fails(&candidate).filter(|failure| failure.way == best.1.way)?;
            Some((candidate, failure))
        });
        match smaller {
            Some(smaller) => best = smaller,
            None => return best,
        }
    }
}

/// Chains that are a little smaller, the much smaller ones first.
fn candidates(chain: &RandomChain) -> Vec<RandomChain> {
    let mut all = Vec::new();
    let mut change = |change: &dyn Fn(&mut RandomChain)| {
        let mut smaller = chain.clone();
        change(&mut smaller);
        all.push(smaller);
    };
    for layout in 0..chain.layouts.len() {
        if chain.layouts.len() > 1 {
            change(&|chain| {
                chain.layouts.remove(layout);
            });
        }
    }
    for node in 0..chain.nodes.len() {
        for step in (0..chain.nodes[node].steps.len()).rev() {
            change(&|chain| drop(chain.nodes[node].steps.remove(step)));
        }
        if chain.nodes.len() > 1 {
            change(&|chain| drop(chain.nodes.remove(node)));
        }
    }
    for source in 0..chain.sources.len() {
        let rows = chain.sources[source].table.rows.len();
        let mut piece = rows.div_ceil(2);
        while piece > 0 && rows > 0 {
            for from in (0..rows).step_by(piece) {
                change(&|chain| {
                    drop(
                        chain.sources[source]
                            .table
                            .rows
                            .drain(from..rows.min(from + piece)),
                    )
                });
            }
            piece /= 2;
        }
        if chain.sources.len() > 1 {
            change(&|chain| drop(chain.sources.remove(source)));
        }
        let columns = chain.sources[source].table.columns.len();
        for column in (0..columns).filter(|_| columns > 1) {
            change(&|chain| without(&mut chain.sources[source].table, column));
        }
    }
    for node in 0..chain.nodes.len() {
        for step in 0..chain.nodes[node].steps.len() {
            for smaller in simpler_configs(&chain.nodes[node].steps[step], 0) {
                change(&|chain| chain.nodes[node].steps[step] = smaller.clone());
            }
        }
        if chain.nodes[node].fitted {
            change(&|chain| chain.nodes[node].fitted = false);
        }
    }
    if chain.split.is_some() {
        change(&|chain| chain.split = None);
    }
    for at in 0..chain.layouts.len() {
        let layout = chain.layouts[at];
        if let Some(program) = layout.program {
            change(&|chain| chain.layouts[at].program = None);
            change(&|chain| {
                chain.layouts[at].program = Some(ProgramOptions {
                    killed_at: None,
                    ..program
                })
            });
            change(&|chain| {
                chain.layouts[at].program = Some(ProgramOptions {
                    local_workers: 0,
                    ..program
                })
            });
        }
        if layout.files > 1 {
            change(&|chain| chain.layouts[at].files = layout.files / 2);
        }
        if layout.threads > 1 {
            change(&|chain| chain.layouts[at].threads = 1);
        }
        if layout.batch_rows < 8192 {
            change(&|chain| chain.layouts[at].batch_rows = 8192);
        }
        if layout.group_rows < 1000 {
            change(&|chain| chain.layouts[at].group_rows = 1000);
        }
    }
    all
}

fn without(table: &mut CellTable, column: usize) {
    table.columns.remove(column);
    table
        .rows
        .iter_mut()
        .for_each(|row| drop(row.cells.remove(column)));
}

/// A configuration without one of its fields or one of the items of a list.
fn simpler_configs(config: &Json, depth: usize) -> Vec<Json> {
    let mut all = Vec::new();
    match config {
        Json::Object(fields) => {
            for name in fields.keys() {
                if depth > 0 {
                    let mut fewer = fields.clone();
                    fewer.shift_remove(name);
                    all.push(Json::Object(fewer));
                }
                for smaller in simpler_configs(&fields[name], depth + 1) {
                    let mut changed = fields.clone();
                    changed[name] = smaller;
                    all.push(Json::Object(changed));
                }
            }
        }
        Json::Array(items) if items.len() > 1 => {
            for at in 0..items.len() {
                let mut fewer = items.clone();
                fewer.remove(at);
                all.push(Json::Array(fewer));
            }
        }
        _ => {}
    }
    all
}
