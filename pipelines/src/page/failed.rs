//! Page of a failure: the fault, and all faults that were found with it.

use forebay_model::{Fault, SpecLocation};

use super::{Block, Cell, Page, PageState};
use crate::present::diagnostic::step_of;
use crate::present::fault::causes;
use crate::present::units;

/// Faults that are shown in full; more are counted only.
const FAULTS_SHOWN: usize = 50;

/// A page that explains a failure.
pub(super) fn failed_page(of: &str, fault: &Fault) -> Page {
    let mut page = Page {
        state: PageState::Failed,
        title: format!("{of}: failed"),
        ..Page::default()
    };
    page.add("fault", "What failed", fault_blocks(fault));
    page
}

/// A fault, and all faults that were found with it.
pub(super) fn fault_blocks(fault: &Fault) -> Vec<Block> {
    let mut blocks = Vec::new();
    for fault in std::iter::once(fault)
        .chain(fault.others())
        .take(FAULTS_SHOWN)
    {
        let text = format!("{}: {}", fault.code().name, fault.message());
        blocks.push(Block::Text {
            text,
            class: Some("bad"),
        });
        let facts = facts(fault)
            .into_iter()
            .map(|(name, text)| vec![Cell::text(name), Cell::long(text)]);
        let facts: Vec<Vec<Cell>> = facts.collect();
        if !facts.is_empty() {
            blocks.push(Block::table(
                &format!("What is known of {}", fault.code().name),
                &["", "known"],
                facts,
            ));
        }
    }
    let hidden = (1 + fault.others().len()).saturating_sub(FAULTS_SHOWN);
    if hidden > 0 {
        blocks.push(Block::text(format!(
            "{} more are not shown.",
            units::grouped(hidden as u64)
        )));
    }
    blocks
}

/// Names and values of the facts of a fault.
fn facts(fault: &Fault) -> Vec<(&'static str, String)> {
    let site = fault.site();
    let rows: Vec<String> = site.rows.iter().map(u64::to_string).collect();
    let rows = Some(rows.join(", ")).filter(|rows| !rows.is_empty());
    let named = [
        ("hint", fault.hint_text().map(str::to_owned)),
        ("file", site.file.clone()),
        ("row group", site.row_group.map(|number| number.to_string())),
        ("rows", rows),
        ("column", site.column.clone()),
        ("step", step_of(site)),
        ("pass", site.pass.clone()),
        ("worker", site.worker.clone()),
        ("spec", site.spec.as_ref().map(place)),
    ];
    let mut facts = Vec::new();
    for (name, text) in named {
        facts.extend(text.map(|text| (name, text)));
    }
    for cause in causes(fault) {
        facts.push(("because", cause));
    }
    for note in fault.notes() {
        facts.push(("note", note.clone()));
    }
    for related in fault.related_places() {
        let note = format!("{}: {}", related.message, place(&related.at));
        facts.push(("note", note));
    }
    facts
}

/// `demand.yaml, line 12, column 7 (steps.features.do[0].expect)`.
fn place(at: &SpecLocation) -> String {
    let path = if at.path.is_empty() {
        String::new()
    } else {
        format!(" ({})", at.path)
    };
    format!("{}, line {}, column {}{path}", at.file, at.line, at.column)
}
