//! The page of what failed: the fault, and everything that was found with it.

use forebay_model::{Fault, FaultSite, SpecLocation};

use super::{Block, Cell, Page, PageState};
use crate::present::diagnostic::step_of;
use crate::present::fault::causes;
use crate::present::units;

/// Faults that are shown in full; more are counted only.
const FAULTS_SHOWN: usize = 50;

/// A page that tells why something failed.
pub(super) fn failed_page(of: &str, fault: &Fault) -> Page {
    let mut page = Page {
        state: PageState::Failed,
        title: format!("{of}: failed"),
        ..Page::default()
    };
    page.add("fault", "What failed", fault_blocks(fault));
    page
}

fn fault_blocks(fault: &Fault) -> Vec<Block> {
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
    let more = (1 + fault.others().len()).saturating_sub(FAULTS_SHOWN);
    if more > 0 {
        blocks.push(Block::text(format!(
            "{} more are not shown.",
            units::grouped(more as u64)
        )));
    }
    blocks
}

/// Names and texts.
fn facts(fault: &Fault) -> Vec<(&'static str, String)> {
    let site = fault.site();
    let FaultSite {
        spec,
        file,
        row_group,
        column,
        rows,
        pass,
        worker,
        ..
    } = site;
    let mut facts = Vec::new();
    let mut add = |name, text: Option<String>| facts.extend(text.map(|text| (name, text)));
    add("hint", fault.hint_text().map(str::to_owned));
    add("file", file.clone());
    add(
        "row group",
        row_group.map(|row_group| row_group.to_string()),
    );
    add(
        "rows",
        (!rows.is_empty()).then(|| {
            rows.iter()
                .map(u64::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        }),
    );
    add("column", column.clone());
    add("step", step_of(site));
    add("pass", pass.clone());
    add("worker", worker.clone());
    add("spec", spec.as_ref().map(place));
    causes(fault)
        .into_iter()
        .for_each(|cause| add("because", Some(cause)));
    fault
        .notes()
        .iter()
        .for_each(|note| add("note", Some(note.clone())));
    let related = fault.related_places().iter();
    related.for_each(|other| {
        add(
            "note",
            Some(format!("{}: {}", other.message, place(&other.at))),
        )
    });
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
