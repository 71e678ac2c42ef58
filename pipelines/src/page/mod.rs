//! Pages to look at: one HTML file each, that needs nothing else and opens offline.

mod backtest;
mod charts;
mod graph;
mod profile;
mod run;
mod timeline;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use forebay_model::{Fault, Pipeline, Result, catch_panic};
use forebay_run::{RunReport, Session};
use forebay_storage::EventListener;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, context};
use serde::Serialize;

use crate::replace_file::replace_file;

pub(crate) use self::backtest::backtest_page;
pub(crate) use self::profile::{parts_page, profile_page};
use self::run::run_page;
use self::timeline::Timeline;

/// The template.
const TEMPLATE: &str = include_str!("page.html");

/// Where a page goes.
#[derive(Debug, Args)]
pub(crate) struct PageArgs {
    /// Write a page to look at to this file: one HTML file that opens offline.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// The page of a run that is at work.
pub(crate) struct RunPage {
    path: PathBuf,
    timeline: Arc<Timeline>,
}

impl RunPage {
    /// Writes it, when the run has ended.
    pub fn write(&self, pipeline: &Pipeline, report: &RunReport, session: &Session) -> Result<()> {
        let mut page = run_page(pipeline, report, &self.timeline, session.memory_bytes());
        for (of, profile) in session.learned_profiles(pipeline, report)? {
            page.add_profile(&of, &profile);
        }
        page.add_costs(&session.run_costs(&pipeline.name)?);
        page.write(&self.path)
    }
}

impl PageArgs {
    /// What listens to a run, and its page, where one is asked for.
    pub fn listen(&self, inner: Arc<dyn EventListener>) -> (Arc<dyn EventListener>, Option<RunPage>) {
        let Some(path) = self.report.clone() else { return (inner, None) };
        let timeline = Arc::new(Timeline::new(inner));
        (timeline.clone(), Some(RunPage { path, timeline }))
    }

    /// Writes the page, where one is asked for.
    pub fn write(&self, page: impl FnOnce() -> Result<Page>) -> Result<()> {
        match &self.report {
            Some(path) => page()?.write(path),
            None => Ok(()),
        }
    }
}

/// A page.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Page {
    title: String,
    subtitle: String,
    sections: Vec<Section>,
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
    Columns {
        columns: Vec<ColumnCard>,
    },
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
        Block::Text { text: text.into(), class: None }
    }

    /// A table; names of columns that begin with `#` are of numbers.
    fn table(label: &str, head: &[&str], rows: Vec<Vec<Cell>>) -> Block {
        let head = head.iter().map(|text| match text.strip_prefix('#') {
            Some(text) => Head { text: text.to_owned(), is_number: true },
            None => Head { text: (*text).to_owned(), is_number: false },
        });
        Block::Table { label: label.to_owned(), head: head.collect(), rows }
    }
}

impl Cell {
    fn text(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), ..Cell::default() }
    }

    /// A text that is broken into lines.
    fn long(text: impl Into<String>) -> Cell {
        Cell { class: Some("long"), ..Cell::text(text) }
    }

    fn number(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), class: Some("number"), bar: None }
    }
}

impl Page {
    /// Adds a section, if there is anything in it.
    fn add(&mut self, id: &'static str, title: &'static str, blocks: Vec<Block>) {
        if !blocks.is_empty() {
            self.sections.push(Section { id, title, blocks });
        }
    }

    fn html(&self) -> Result<String> {
        let failed = |error: minijinja::Error| Fault::internal("a page that cannot be made").cause(error);
        let mut templates = Environment::new();
        templates.add_template("page.html", TEMPLATE).map_err(failed)?;
        templates
            .get_template("page.html")
            .and_then(|page| page.render(context! { page => Value::from(Serde(self)) }))
            .map_err(failed)
    }

    fn write(&self, path: &Path) -> Result<()> {
        replace_file(path, &self.html()?, "the page cannot be written")
    }
}

/// A drawing, or nothing where the library that draws it fails: a page is worth having without it.
fn drawn(draw: impl FnOnce() -> Option<String>) -> Option<String> {
    let svg = catch_panic(|| Ok(draw())).ok().flatten()?;
    // Inside of a page, a drawing has no head of its own.
    Some(svg.find("<svg").map_or_else(|| svg.clone(), |at| svg[at..].to_owned()))
}
