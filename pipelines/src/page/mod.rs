//! Pages to look at: one HTML file each, that needs nothing else and opens offline.

mod backtest;
mod backtest_charts;
mod backtest_residuals;
mod backtest_series;
mod charts;
mod drift;
mod failed;
mod file;
mod forecast;
mod graph;
mod index;
mod last;
mod matrix;
mod profile;
mod recorded_run;
mod records;
mod run;
mod run_page;
mod run_tiles;
mod step_rows;
mod timeline;
mod trends;
mod workers;

use forebay_model::{Fault, Result, catch_panic};
use forebay_run::OutputColumn;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, context};
use serde::Serialize;

pub(crate) use self::backtest::{backtest_page, score_page};
pub(crate) use self::file::PageArgs;
pub(crate) use self::index::{StateView, index_page, pipeline_page};
pub(crate) use self::last::{LastOutput, SeenFiles, last_page};
pub(crate) use self::profile::{parts_page, profile_page};
pub(crate) use self::recorded_run::{
    missing_page, missing_report_page, pipeline_graph_page, recorded_run_page, server_fault_page,
};
pub(crate) use self::run_page::RunPage;
pub(crate) use self::step_rows::{
    StepPages, missing_artifact_page, run_steps_page, step_fault_page, step_profile_page,
    step_rows_page, uncomputed_step_page,
};

/// The template.
const TEMPLATE: &str = include_str!("page.html");

/// The script of served pages, and of files with tables to sort or a graph.
pub(crate) const SCRIPT: &str = include_str!("page.js");

/// Class of the drawing of a graph.
const GRAPH_CLASS: &str = "drawing";

/// A page.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Page {
    state: PageState,
    title: String,
    subtitle: String,
    /// The page above this one, of pages that a server shows.
    up: Option<PageLink>,
    /// Seconds after which a served page is read again; `None` of a page that is a file.
    refresh_seconds: Option<u32>,
    /// The script of a page that is a file, where it has something to sort or a graph.
    inline_script: Option<&'static str>,
    sections: Vec<Section>,
}

/// A link to another page of the same server.
#[derive(Debug, Clone, Serialize)]
struct PageLink {
    text: String,
    /// The path, encoded.
    href: String,
}

/// State of the command that a page describes.
#[derive(Debug, Clone, Copy, Default, Serialize)]
#[serde(rename_all = "snake_case")]
enum PageState {
    #[default]
    Done,
    Failed,
    Running,
}

/// A part of a page that its head links to.
#[derive(Debug, Serialize)]
struct Section {
    id: &'static str,
    title: &'static str,
    blocks: Vec<Block>,
}

/// Part of a section.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Block {
    Text {
        text: String,
        class: Option<&'static str>,
    },
    Heading {
        text: String,
        href: Option<String>,
    },
    /// Values at a glance, as many in a row as fit.
    Tiles {
        tiles: Vec<Tile>,
    },
    Table {
        label: String,
        head: Vec<Head>,
        rows: Vec<Vec<Cell>>,
        /// True if a narrow screen shows each row as a list.
        is_stacked: bool,
    },
    /// A drawing; `class` is `chart` for those in the colours of the page.
    Chart {
        label: String,
        class: &'static str,
        svg: String,
    },
    /// Charts in rows, as many in a row as fit.
    Charts {
        charts: Vec<SmallChart>,
    },
    Columns {
        columns: Vec<ColumnCard>,
    },
}

/// A value at a glance.
#[derive(Debug, Default, Serialize)]
struct Tile {
    label: &'static str,
    value: String,
    note: String,
    class: Option<&'static str>,
}

/// A drawing with a title.
#[derive(Debug, Serialize)]
struct SmallChart {
    title: String,
    label: String,
    svg: String,
}

/// The head of a column of a table.
#[derive(Debug, Serialize)]
struct Head {
    text: String,
    is_number: bool,
}

/// A cell of a table.
#[derive(Debug, Default, Serialize)]
struct Cell {
    text: String,
    class: Option<&'static str>,
    bar: Option<Bar>,
    /// A small drawing in place of the text.
    svg: Option<String>,
    /// The page that the text leads to, encoded.
    href: Option<String>,
    /// The number by which rows are sorted; by the text without it.
    sort: Option<f64>,
    /// The lineage of the column that the row describes.
    lineage: Option<CellLineage>,
}

/// Lineage of a column, by which the script lights up rows and boxes of the graph.
#[derive(Debug, Serialize)]
struct CellLineage {
    /// Name of the output's box in the graph.
    sink: String,
    /// Columns of sources that the column depends on: a list of pairs, as JSON.
    origins: String,
}

/// A stretch of a line, in percent.
#[derive(Debug, Serialize)]
struct Bar {
    from: f64,
    width: f64,
}

/// Profile of a column.
#[derive(Debug, Serialize)]
struct ColumnCard {
    name: String,
    r#type: String,
    lines: Vec<String>,
    svg: Option<String>,
}

impl Block {
    fn is_graph(&self) -> bool {
        matches!(self, Block::Chart { class, .. } if *class == GRAPH_CLASS)
    }

    fn text(text: impl Into<String>) -> Block {
        Block::Text {
            text: text.into(),
            class: None,
        }
    }

    fn heading(text: impl Into<String>) -> Block {
        Block::Heading {
            text: text.into(),
            href: None,
        }
    }

    /// A table; names of columns that begin with `#` are of numbers.
    fn table(label: &str, head: &[&str], rows: Vec<Vec<Cell>>) -> Block {
        let head = head.iter().map(|text| match text.strip_prefix('#') {
            Some(text) => Head {
                text: text.to_owned(),
                is_number: true,
            },
            None => Head {
                text: (*text).to_owned(),
                is_number: false,
            },
        });
        Block::Table {
            label: label.to_owned(),
            head: head.collect(),
            rows,
            is_stacked: false,
        }
    }

    /// A table like [`Block::table`], whose rows are lists on a narrow screen.
    fn stacked_table(label: &str, head: &[&str], rows: Vec<Vec<Cell>>) -> Block {
        let mut block = Block::table(label, head, rows);
        if let Block::Table { is_stacked, .. } = &mut block {
            *is_stacked = true;
        }
        block
    }
}

impl Cell {
    fn text(text: impl Into<String>) -> Cell {
        Cell {
            text: text.into(),
            ..Cell::default()
        }
    }

    /// A text that is broken into lines.
    fn long(text: impl Into<String>) -> Cell {
        Cell {
            class: Some("long"),
            ..Cell::text(text)
        }
    }

    fn number(text: impl Into<String>) -> Cell {
        Cell {
            text: text.into(),
            class: Some("number"),
            ..Cell::default()
        }
    }

    /// A number with its words.
    fn measure(text: impl Into<String>, number: f64) -> Cell {
        Cell {
            sort: Some(number).filter(|number| number.is_finite()),
            ..Cell::number(text)
        }
    }

    /// The name of a column of an output, with its lineage.
    fn column(sink: &str, column: &OutputColumn) -> Cell {
        let origins: Vec<[&str; 2]> = column
            .from
            .iter()
            .map(|origin| [origin.source.as_str(), origin.column.as_str()])
            .collect();
        let lineage = CellLineage {
            sink: graph::sink_node_name(sink),
            origins: serde_json::json!(origins).to_string(),
        };
        Cell {
            lineage: Some(lineage),
            ..Cell::text(column.name.clone())
        }
    }

    fn link(text: impl Into<String>, href: String) -> Cell {
        Cell {
            href: Some(href),
            ..Cell::text(text)
        }
    }
}

impl Page {
    /// Adds a section, if it has content.
    fn add(&mut self, id: &'static str, title: &'static str, blocks: Vec<Block>) {
        if blocks.is_empty() {
            return;
        }
        if blocks.iter().any(Block::is_graph) {
            self.inline_script = Some(SCRIPT);
        }
        self.sections.push(Section { id, title, blocks });
    }

    /// Adds to a section, which need not be there.
    fn extend(&mut self, id: &'static str, title: &'static str, blocks: Vec<Block>) {
        match self.sections.iter_mut().find(|section| section.id == id) {
            Some(section) => section.blocks.extend(blocks),
            None => self.add(id, title, blocks),
        }
    }

    /// The text of the page.
    pub(crate) fn html(&self) -> Result<String> {
        let failed =
            |error: minijinja::Error| Fault::internal("a page that cannot be made").cause(error);
        let mut templates = Environment::new();
        templates
            .add_template("page.html", TEMPLATE)
            .map_err(failed)?;
        templates
            .get_template("page.html")
            .and_then(|page| page.render(context! { page => Value::from(Serde(self)) }))
            .map_err(failed)
    }
}

/// Returns a chart, or nothing if the chart library fails: the page is useful without it.
fn drawn(draw: impl FnOnce() -> Option<String>) -> Option<String> {
    let svg = catch_panic(|| Ok(draw())).ok().flatten()?;
    // Inside of a page, a drawing has no head of its own.
    Some(
        svg.find("<svg")
            .map_or_else(|| svg.clone(), |at| svg[at..].to_owned()),
    )
}
