//! Page of a running command.

use std::sync::Arc;

use forebay_model::{Fault, Pipeline, Result};
use forebay_run::{RunReport, Session};
use forebay_storage::EventListener;

use super::Page;
use super::file::PageFile;
use super::run::{RunFacts, failed_run_page, run_page};
use super::timeline::Timeline;

/// Observations of a run for its page.
pub(crate) struct RunPage {
    file: PageFile,
    timeline: Option<Arc<Timeline>>,
    pipeline: Option<Pipeline>,
    memory_limit: Option<u64>,
    /// Page of a run that succeeded.
    page: Option<Page>,
}

impl RunPage {
    /// The page of a run that has not begun.
    pub fn new(file: PageFile) -> RunPage {
        RunPage {
            file,
            timeline: None,
            pipeline: None,
            memory_limit: None,
            page: None,
        }
    }

    /// Listener of the run.
    pub fn listen(&mut self, inner: Arc<dyn EventListener>) -> Arc<dyn EventListener> {
        if !self.file.is_wanted() {
            return inner;
        }
        let timeline = Arc::new(Timeline::new(inner));
        self.timeline = Some(timeline.clone());
        timeline
    }

    /// The file of the page, for the record of the run.
    pub fn path(&self) -> Option<String> {
        self.file.absolute_path()
    }

    /// The run of a pipeline begins.
    pub fn begin(&mut self, pipeline: &Pipeline, session: &Session) {
        if self.file.is_wanted() {
            self.pipeline = Some(pipeline.clone());
            self.memory_limit = Some(session.memory_bytes());
        }
    }

    /// Creates the page of a run that succeeded, while its session exists.
    pub fn make(&mut self, report: &RunReport, session: &Session) -> Result<()> {
        let Some(pipeline) = self.pipeline.as_ref().filter(|_| self.file.is_wanted()) else {
            return Ok(());
        };
        let mut page = run_page(pipeline, report, &self.facts());
        let profiles = session.compared_profiles(pipeline, report)?;
        page.add_matrix(report, &profiles);
        page.add_profiles(&profiles);
        for forecast in &report.forecasts {
            // A page only describes a run: a failed drawing does not fail it.
            match session.forecast_examples(pipeline, forecast) {
                Ok(examples) => page.add_forecast(&forecast.sink, &examples),
                Err(fault) => page.add_missing_forecast(&forecast.sink, &fault),
            }
        }
        page.add_costs(&session.run_costs(&pipeline.name)?);
        self.page = Some(page);
        Ok(())
    }

    /// Writes the page.
    pub fn finish(mut self, ended: Result<RunReport>) -> Result<RunReport> {
        let page = self.page.take();
        let failed = |fault: &_| {
            failed_run_page(self.file.of(), self.pipeline.as_ref(), fault, &self.facts())
        };
        self.file.finish_with(
            ended,
            |_| page.ok_or_else(|| Fault::internal("a run without its page")),
            failed,
        )
    }

    fn facts(&self) -> RunFacts {
        let record = self
            .timeline
            .as_ref()
            .map(|timeline| timeline.record())
            .unwrap_or_default();
        RunFacts {
            record,
            memory_limit: self.memory_limit,
        }
    }
}
