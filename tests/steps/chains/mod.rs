//! Random chains: sources, transforms, gathers, joins and windows drawn from a seed, run under several
//! layouts and options, against an interpreter that computes everything row by row from the reference.
//!
//! A chain that fails is shrunk and printed as a spec with its data. The number of chains and the first
//! seed come from the environment:
//!
//! ```text
//! FOREBAY_CHAINS=20000 cargo test -p forebay --test forebay steps::chains::
//! FOREBAY_CHAINS=1:4711 cargo test -p forebay --test forebay steps::chains::
//! ```

mod categorical;
mod chain;
mod columns;
mod compare;
mod config;
mod expression;
mod generator;
mod interpreter;
mod numeric;
mod relational;
mod shrink;
mod table;
mod windows;

use std::collections::BTreeMap;
use std::io::Write;

use chain::{ChainFailure, RandomChain};
use table::{CellTable, CellValue};

/// Chains where the environment does not say how many.
const CHAINS: u64 = 300;

/// How many, and the first seed.
fn requested_chains() -> (u64, u64) {
    let given = std::env::var("FOREBAY_CHAINS").unwrap_or_default();
    let (count, first) = given.split_once(':').unwrap_or((&given, "0"));
    (count.parse().unwrap_or(CHAINS), first.parse().unwrap())
}

/// How a chain fails; `None` where it does not, or where it is not valid.
fn find_failure(chain: &RandomChain) -> Option<ChainFailure> {
    let mut known: Vec<(Vec<CellTable>, CellTable)> = Vec::new();
    for layout in &chain.layouts {
        let world = interpreter::interpret_chain(chain, layout.files).ok()?;
        let found = match chain.run(*layout) {
            Ok(batch) => CellTable::of(&batch),
            Err(failure) => return Some(failure),
        };
        let mut checked = compare::compare_tables(&found, &world.tables[chain.last()]);
        // Where files are read in another order, rows come in another order.
        let read: Vec<CellTable> = chain
            .sources
            .iter()
            .map(|source| source.in_reading_order(layout.files))
            .collect();
        let alike = known.iter().find(|(other, _)| {
            other
                .iter()
                .zip(&read)
                .all(|(a, b)| compare::same_bits(a, b).is_ok())
        });
        if let Some((_, other)) = alike {
            checked = checked.and_then(|()| compare::same_bits(&found, other));
        }
        if let Err(difference) = checked {
            return Some(ChainFailure {
                message: format!("{layout:?}: {}", difference.message),
                ..difference
            });
        }
        known.push((read, found));
    }
    None
}

fn table_text(table: &CellTable) -> String {
    let names = table
        .columns
        .iter()
        .map(|column| format!("{}: {:?}", column.name, column.kind));
    let rows = table.rows.iter().map(|row| {
        format!(
            "  {:?}{}\n",
            row.cells,
            if row.fitted { "" } else { " (not fitted)" }
        )
    });
    format!(
        "{}\n{}",
        names.collect::<Vec<_>>().join(", "),
        rows.collect::<String>()
    )
}

/// Everything that it takes to see a failure again.
fn report(seed: u64, chain: RandomChain, failed: ChainFailure) -> String {
    // The smaller chain may fail for another reason.
    let first_message = failed.message.clone();
    let (chain, ChainFailure { message, .. }) = shrink::shrink_chain(chain, failed, find_failure);
    let sources = chain
        .sources
        .iter()
        .map(|source| format!("{}: {}", source.name, table_text(&source.table)));
    let expected = interpreter::interpret_chain(&chain, chain.layouts[0].files)
        .map(|world| table_text(&world.tables[chain.last()]));
    format!(
        "seed {seed}: {first_message}\nsmaller: {message}\n{}\n{}\n{:?}\nexpected {}",
        chain.spec("data", "out"),
        sources.collect::<String>(),
        chain.layouts,
        expected.unwrap_or_default()
    )
}

#[test]
fn random_chains_match_the_interpreter() {
    let (count, first) = requested_chains();
    let mut failures = Vec::new();
    let mut used: BTreeMap<String, u64> = BTreeMap::new();
    for seed in first..first + count {
        let chain = generator::chain(seed);
        for step in chain.nodes.iter().flat_map(|node| &node.steps) {
            *used
                .entry(step.as_object().unwrap().keys().next().unwrap().clone())
                .or_default() += 1;
        }
        if let Some(failed) = find_failure(&chain) {
            let report = report(seed, chain, failed);
            let _ = writeln!(std::io::stderr(), "{report}");
            failures.push(report);
            if failures.len() == 20 {
                break;
            }
        }
    }
    if count >= CHAINS {
        // A generator that forgets a transform would not be noticed otherwise.
        let all = generator::TRANSFORMS
            .iter()
            .chain(&generator::GATHERS)
            .chain(&["join", "as_of_join"]);
        let forgotten: Vec<_> = all.filter(|name| !used.contains_key(**name)).collect();
        assert!(forgotten.is_empty(), "never drawn: {forgotten:?}");
    }
    assert!(
        failures.is_empty(),
        "{} chains fail: {}",
        failures.len(),
        failures.join("\n")
    );
}

/// Writes what every transform of some chains is given and comes to, for `peer.py`: a JSON object a line into the
/// file that `FOREBAY_CHAINS_STEPS` names.
#[test]
#[ignore = "for peer.py"]
fn steps_for_peers() {
    let (count, first) = requested_chains();
    let mut out = std::fs::File::create(std::env::var("FOREBAY_CHAINS_STEPS").unwrap()).unwrap();
    for seed in first..first + count {
        let chain = generator::chain(seed);
        for node in 0..chain.nodes.len() {
            for step in 0..chain.nodes[node].steps.len() {
                // The chain up to the step, and with it.
                let upto = |steps: usize| {
                    let mut part = chain.clone();
                    part.nodes.truncate(node + 1);
                    part.nodes[node].steps.truncate(steps);
                    interpreter::interpret_chain(&part, 1).unwrap()
                };
                let before = upto(step);
                let after = upto(step + 1);
                let name = &chain.nodes[node].name;
                let others = before.tables.iter().filter(|(other, _)| *other != name);
                let others: serde_json::Map<_, _> = others
                    .map(|(name, table)| (name.clone(), json(table)))
                    .collect();
                let line = serde_json::json!({
                    "seed": seed,
                    "step": chain.nodes[node].steps[step],
                    "fitted": chain.nodes[node].fitted,
                    "time": before.series[name].time,
                    "keys": before.series[name].keys,
                    "before": json(&before.tables[name]),
                    "after": json(&after.tables[name]),
                    "others": others,
                });
                writeln!(out, "{line}").unwrap();
            }
        }
    }
}

/// A table as JSON; floats that JSON lacks are text.
fn json(table: &CellTable) -> serde_json::Value {
    fn cell(value: &CellValue) -> serde_json::Value {
        match value {
            CellValue::Null => serde_json::Value::Null,
            CellValue::Bool(x) => (*x).into(),
            CellValue::Int(x) => {
                i64::try_from(*x).map_or_else(|_| x.to_string().into(), serde_json::Value::from)
            }
            CellValue::Float(x) if x.is_finite() => (*x).into(),
            CellValue::Float(x) => x.to_string().into(),
            CellValue::Text(x) => x.as_str().into(),
            CellValue::List(x) => x.iter().map(cell).collect(),
        }
    }
    let columns = table
        .columns
        .iter()
        .map(|column| (&column.name, format!("{:?}", column.kind)));
    serde_json::json!({
        "columns": columns.collect::<Vec<_>>(),
        "rows": table.rows.iter().map(|row| row.cells.iter().map(cell).collect()).collect::<Vec<serde_json::Value>>(),
        "fitted": table.rows.iter().map(|row| row.fitted).collect::<Vec<_>>(),
    })
}
