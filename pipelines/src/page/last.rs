//! Page of the results of earlier runs.

use forebay_model::{Pipeline, Result};
use forebay_run::Session;

use super::file::now;
use super::run::graph_blocks;
use super::{Block, Cell, Page};
use crate::present::units;

/// State of an output that readers see.
#[derive(Debug)]
pub(crate) struct LastOutput {
    pub sink: String,
    pub path: String,
    /// Published files; `None` if nothing is published.
    pub seen: Option<SeenFiles>,
}

/// The files of an output.
#[derive(Debug)]
pub(crate) struct SeenFiles {
    /// Number of rows; `None` if the files do not record it.
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
        let [sink, path] = [&output.sink, &output.path].map(|text| Cell::text(&**text));
        let count = |count: u64| Cell::number(units::grouped(count));
        match &output.seen {
            Some(SeenFiles { rows, files, bytes }) => {
                let rows = rows.map_or_else(Cell::default, count);
                vec![
                    sink,
                    rows,
                    count(*files),
                    Cell::number(units::bytes(*bytes)),
                    path,
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
                    path,
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
    /// Adds profiles of the last run and costs of runs from the state directory.
    pub(crate) fn add_kept(&mut self, pipeline: &Pipeline, session: &Session) -> Result<()> {
        self.add_profiles(&session.last_profiles(pipeline)?);
        self.add_costs(&session.run_costs(&pipeline.name)?);
        Ok(())
    }
}
