//! The page of what runs have left.

use forebay_model::{Pipeline, Result};
use forebay_run::Session;

use super::file::now;
use super::run::graph_blocks;
use super::{Block, Cell, Page};
use crate::present::units;

/// What readers see of an output.
#[derive(Debug)]
pub(crate) struct LastOutput {
    pub sink: String,
    pub path: String,
    /// `None` where nothing is published.
    pub seen: Option<SeenFiles>,
}

/// The files of an output.
#[derive(Debug)]
pub(crate) struct SeenFiles {
    /// `None` where they do not tell.
    pub rows: Option<u64>,
    pub files: u64,
    pub bytes: u64,
}

/// A page without profiles and costs.
pub(crate) fn last_page(pipeline: &Pipeline, outputs: &[LastOutput]) -> Page {
    let mut page = Page {
        title: pipeline.name.clone(),
        subtitle: format!("as its runs have left it, seen at {}", now()),
        ..Page::default()
    };
    let rows = outputs.iter().map(|output| {
        let [sink, place] = [&output.sink, &output.path].map(|text| Cell::text(&**text));
        let count = |count: u64| Cell::number(units::grouped(count));
        match &output.seen {
            Some(SeenFiles { rows, files, bytes }) => {
                let rows = rows.map_or_else(Cell::default, count);
                vec![
                    sink,
                    rows,
                    count(*files),
                    Cell::number(units::bytes(*bytes)),
                    place,
                    Cell::default(),
                ]
            }
            None => {
                let state = Cell {
                    class: Some("bad"),
                    ..Cell::text("nothing is published")
                };
                vec![
                    sink,
                    Cell::default(),
                    Cell::default(),
                    Cell::default(),
                    place,
                    state,
                ]
            }
        }
    });
    let head = ["sink", "#rows", "#files", "#size", "place", ""];
    page.add(
        "outputs",
        "Outputs",
        vec![Block::table("Outputs", &head, rows.collect())],
    );
    page.add("pipeline", "Pipeline", graph_blocks(pipeline, &[]));
    page
}

impl Page {
    /// Adds what the state directory has: profiles of the last run, and what runs cost.
    pub(crate) fn add_kept(&mut self, pipeline: &Pipeline, session: &Session) -> Result<()> {
        self.add_profiles(&session.last_profiles(pipeline)?);
        self.add_costs(&session.run_costs(&pipeline.name)?);
        Ok(())
    }
}
