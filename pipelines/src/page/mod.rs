//! Pages to look at: one HTML file each, that needs nothing else and opens offline.

mod backtest;
mod charts;
mod drift;
mod failed;
mod file;
mod forecast;
mod graph;
mod last;
mod profile;
mod run;
mod run_page;
mod timeline;
mod workers;

use forebay_model::{Fault, Result, catch_panic};
use minijinja::value::{Serde, Value};
use minijinja::{Environment, context};
use serde::Serialize;

pub(crate) use self::backtest::backtest_page;
pub(crate) use self::file::PageArgs;
pub(crate) use self::last::{LastOutput, SeenFiles, last_page};
pub(crate) use self::profile::{parts_page, profile_page};
pub(crate) use self::run_page::RunPage;

/// The template.
const TEMPLATE: &str = include_str!("page.html");

/// A page.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Page {
    state: PageState,
    title: String,
    subtitle: String,
    sections: Vec<Section>,
}

/// How what a page is about ended.
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

/// Something in a section.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Block {
    Text {
        text: String,
        class: Option<&'static str>,
    },
    Heading {
        text: String,
    },
    Table {
        label: String,
        head: Vec<Head>,
        rows: Vec<Vec<Cell>>,
    },
    /// A drawing; `class` is `chart` for those in the colours of the page.
    Chart {
        label: String,
        class: &'static str,
        svg: String,
    },
    /// Drawings beside each other, where there is room.
    Charts {
        charts: Vec<SmallChart>,
    },
    Columns {
        columns: Vec<ColumnCard>,
    },
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
}

/// A stretch of a line, in percent.
#[derive(Debug, Serialize)]
struct Bar {
    from: f64,
    width: f64,
}

/// What a column of data holds.
#[derive(Debug, Serialize)]
struct ColumnCard {
    name: String,
    r#type: String,
    lines: Vec<String>,
    svg: Option<String>,
}

impl Block {
    fn text(text: impl Into<String>) -> Block {
        Block::Text {
            text: text.into(),
            class: None,
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
        }
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
            bar: None,
        }
    }
}

impl Page {
    /// Adds a section, if there is anything in it.
    fn add(&mut self, id: &'static str, title: &'static str, blocks: Vec<Block>) {
        if !blocks.is_empty() {
            self.sections.push(Section { id, title, blocks });
        }
    }

    /// Adds to a section, which need not be there.
    fn extend(&mut self, id: &'static str, title: &'static str, blocks: Vec<Block>) {
        match self.sections.iter_mut().find(|section| section.id == id) {
            Some(section) => section.blocks.extend(blocks),
            None => self.add(id, title, blocks),
        }
    }

    fn html(&self) -> Result<String> {
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

/// A drawing, or nothing where the library that draws it fails: a page is worth having without it.
fn drawn(draw: impl FnOnce() -> Option<String>) -> Option<String> {
    let svg = catch_panic(|| Ok(draw())).ok().flatten()?;
    // Inside of a page, a drawing has no head of its own.
    Some(
        svg.find("<svg")
            .map_or_else(|| svg.clone(), |at| svg[at..].to_owned()),
    )
}
