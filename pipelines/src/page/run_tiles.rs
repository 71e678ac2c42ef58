//! A run at a glance: rows, freshness, time against the deadline, memory, rules and skill.

use forebay_run::{RecordedModel, RunRecord};

use super::records::{deadline_text, duration_text, is_live, seconds};
use super::trends::days_behind;
use super::{Block, Tile};
use crate::present::units;

/// The tiles of a run. A value that the run does not have has no tile.
pub(super) fn run_tiles(record: &RunRecord, now: u64) -> Block {
    let mut tiles = vec![rows_tile(record), time_tile(record, now)];
    tiles.extend(freshness_tile(record));
    tiles.extend(memory_tile(record));
    tiles.push(Tile {
        label: "Read",
        value: units::bytes(record.read_bytes),
        note: spilled_note(record),
        class: None,
    });
    tiles.extend(rules_tile(record));
    tiles.extend(record.models.iter().filter_map(skill_tile));
    Block::Tiles { tiles }
}

fn rows_tile(record: &RunRecord) -> Tile {
    let rows_in: u64 = record.outputs.iter().map(|output| output.rows_in).sum();
    let outputs = record.outputs.len() as u64;
    Tile {
        label: "Rows",
        value: units::grouped(record.rows()),
        note: if outputs == 0 {
            "nothing is published".to_owned()
        } else {
            let outputs = units::counted(outputs, "output");
            format!("in {outputs}, of {} read", units::grouped(rows_in))
        },
        class: None,
    }
}

fn time_tile(record: &RunRecord, now: u64) -> Tile {
    let is_missed = record
        .deadline
        .as_ref()
        .is_some_and(|deadline| !deadline.on_time);
    let expected_end = record
        .expected_end
        .as_ref()
        .filter(|_| is_live(record, now));
    Tile {
        label: "Time",
        value: duration_text(seconds(record, now)),
        note: match expected_end {
            Some(end) => format!("expected to end at {end}"),
            None => deadline_text(record),
        },
        class: is_missed.then_some("bad"),
    }
}

fn freshness_tile(record: &RunRecord) -> Option<Tile> {
    let until = record.data_until.clone()?;
    let note = days_behind(record).map_or_else(String::new, |days| {
        format!("{days:.1} days before the run began")
    });
    Some(Tile {
        label: "Data until",
        value: until,
        note,
        class: None,
    })
}

fn memory_tile(record: &RunRecord) -> Option<Tile> {
    let bytes = record.memory_bytes?;
    let limit = record.memory_limit_bytes;
    Some(Tile {
        label: "Memory",
        value: units::bytes(bytes),
        note: format!("at most, of {}", units::bytes(limit)),
        class: (limit > 0 && bytes > limit).then_some("bad"),
    })
}

fn spilled_note(record: &RunRecord) -> String {
    match record.spilled_bytes {
        0 => String::new(),
        bytes => format!("{} spilled to disk", units::bytes(bytes)),
    }
}

fn rules_tile(record: &RunRecord) -> Option<Tile> {
    if record.rules == 0 {
        return None;
    }
    let failed = record.failed_rules.len();
    let rules = units::counted(record.rules as u64, "rule");
    Some(Tile {
        label: "Rules",
        value: if failed == 0 {
            "all hold".to_owned()
        } else {
            format!("{} failed", record.failed_rules_text())
        },
        note: format!("of {rules}"),
        class: Some(if failed == 0 { "good" } else { "bad" }),
    })
}

/// Loss of a model against the best forecast without one.
fn skill_tile(model: &RecordedModel) -> Option<Tile> {
    let loss = model.loss?;
    let baseline = model.baseline.filter(|baseline| *baseline > 0.0)?;
    let better = 100.0 * (1.0 - loss / baseline);
    Some(Tile {
        label: "Skill",
        value: format!("{better:+.1} %"),
        note: format!("{}: loss {loss:.5} against {baseline:.5}", model.sink),
        class: Some(if better > 0.0 { "good" } else { "bad" }),
    })
}
