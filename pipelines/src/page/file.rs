//! File of a page: it first states that the command is running, and later how the command ended.
//!
//! A page of an earlier run is replaced before any other work. So the file never shows the success
//! of another run.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use forebay_model::{Fault, Result};
use forebay_storage::timestamp::format_utc;
use forebay_storage::{Event, EventListener as _};
use jiff::Timestamp;

use super::failed::failed_page;
use super::{Block, Page, PageState};
use crate::present::fault::located;
use crate::present::report::WarningLines;
use crate::replace_file::replace_file;

/// Destination of a page.
#[derive(Debug, Args)]
pub(crate) struct PageArgs {
    /// Write a page to look at to this file: one HTML file that opens offline. A failed command
    /// writes one, too.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// The file of a running command's page, if one is requested.
#[derive(Debug)]
pub(crate) struct PageFile {
    path: Option<PathBuf>,
    /// Subject of the page.
    of: String,
    began: Instant,
}

impl PageArgs {
    /// Writes a page that states that the command is running.
    pub fn begin(&self, of: impl Into<String>) -> Result<PageFile> {
        let file = PageFile {
            path: self.report.clone(),
            of: of.into(),
            began: Instant::now(),
        };
        if file.is_wanted() {
            let text = "The command is at work, or was ended before it could write how it went.";
            let mut page = Page {
                state: PageState::Running,
                title: format!("{}: not ended", file.of),
                subtitle: format!("begun at {}", now()),
                ..Page::default()
            };
            page.add("run", "Run", vec![Block::text(text)]);
            file.write(&page)?;
        }
        Ok(file)
    }
}

impl PageFile {
    /// Subject of the page.
    pub(super) fn of(&self) -> &str {
        &self.of
    }

    /// The path from the root of the file system, as far as it is known and is text.
    pub(super) fn absolute_path(&self) -> Option<String> {
        let path = std::path::absolute(self.path.as_ref()?).ok()?;
        path.into_os_string().into_string().ok()
    }

    /// True if a page is requested.
    pub fn is_wanted(&self) -> bool {
        self.path.is_some()
    }

    /// Writes the page of a result: on success as `page` creates it, on failure with the fault.
    pub fn finish<T>(&self, ended: Result<T>, page: impl FnOnce(&T) -> Result<Page>) -> Result<T> {
        self.finish_with(ended, page, |fault| failed_page(&self.of, fault))
    }

    /// Writes the page of the end like `finish`; `failed` makes the page of a failure, without the
    /// fault.
    pub(super) fn finish_with<T>(
        &self,
        ended: Result<T>,
        page: impl FnOnce(&T) -> Result<Page>,
        failed: impl FnOnce(&Fault) -> Page,
    ) -> Result<T> {
        if !self.is_wanted() {
            return ended;
        }
        let seconds = self.began.elapsed().as_secs_f64();
        let fault = match ended.and_then(|done| Ok((page(&done)?, done))) {
            Ok((page, done)) => return self.write(&page).map(|()| done),
            Err(fault) => located(fault),
        };
        let page = failed(&fault);
        let subtitle = format!("failed after {seconds:.1} s, at {}", now());
        let written = self.write(&Page { subtitle, ..page });
        // The fault of the command comes before that of its page.
        if let Err(unwritten) = written {
            let path = unwritten.site().file.as_deref().unwrap_or_default();
            let message = format!("{} ({path})", unwritten.message());
            WarningLines.on_event(Event::Warning { message });
        }
        Err(fault)
    }

    fn write(&self, page: &Page) -> Result<()> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        replace_file(path, page.html()?, "the page cannot be written")
    }
}

/// The time, in the form of pages.
pub(super) fn now() -> String {
    format_utc(Timestamp::now())
}
