//! Sources that arrive late: a run waits for them as long as the spec permits.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

use forebay_model::{Fault, Pipeline, PipelineSource, ReadinessCondition, Result, codes};
use forebay_storage::{Event, StorageLocation};

use crate::session::Session;

/// Initial interval between checks; it doubles with each.
const LOOK_AFTER: Duration = Duration::from_millis(500);

/// Maximum interval between checks.
const LOOK_AFTER_MAX: Duration = Duration::from_secs(30);

/// Longest sleep between checks for cancellation.
const NAP: Duration = Duration::from_millis(200);

/// Missing input: the condition, and the current state.
struct MissingInput {
    wanted: String,
    found: String,
    cause: Option<Fault>,
}

impl MissingInput {
    fn new(condition: String, current: impl Into<String>) -> Option<MissingInput> {
        Some(MissingInput {
            wanted: condition,
            found: current.into(),
            cause: None,
        })
    }
}

impl Session {
    /// Waits until all sources are ready; a fault names one that was not in time.
    pub(crate) fn wait_until_ready(&self, pipeline: &Pipeline) -> Result<()> {
        let began = Instant::now();
        for source in &pipeline.sources {
            if let Some(ready) = &source.ready {
                self.wait_for_source(source, ready, began)
                    .map_err(|fault| fault.at(source.at.as_ref()))?;
            }
        }
        Ok(())
    }

    fn wait_for_source(
        &self,
        source: &PipelineSource,
        ready: &ReadinessCondition,
        began: Instant,
    ) -> Result<()> {
        let mut pause = LOOK_AFTER;
        let mut last_reported = None;
        while let Some(missing) = self.missing_input(source, ready)? {
            let remaining = ready.timeout.saturating_sub(began.elapsed());
            let name = &source.name;
            if remaining.is_zero() {
                let message = format!(
                    "`{name}` is not ready: {} wanted, {} found",
                    missing.wanted, missing.found
                );
                let fault = Fault::new(codes::NOT_READY, message);
                let fault =
                    fault.hint("run again when it is, or let the run wait longer (`timeout`)");
                return Err(missing.cause.into_iter().fold(fault, Fault::cause));
            }
            if last_reported.as_ref() != Some(&missing.found) {
                self.watch.on_event(Event::Waiting {
                    source: name.clone(),
                    wanted: missing.wanted,
                    found: missing.found.clone(),
                });
                last_reported = Some(missing.found);
            }
            self.sleep(pause.min(remaining))?;
            self.check_fence()?;
            pause = (pause * 2).min(LOOK_AFTER_MAX);
        }
        Ok(())
    }

    fn sleep(&self, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        loop {
            self.interrupt().check()?;
            let remaining = until.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Ok(());
            }
            std::thread::sleep(remaining.min(NAP));
        }
    }

    /// First unmet condition of a source.
    fn missing_input(
        &self,
        source: &PipelineSource,
        ready: &ReadinessCondition,
    ) -> Result<Option<MissingInput>> {
        if let Some(marker) = &ready.marker
            && self.io.head(&self.io.resolve(marker)?)?.is_none()
        {
            return Ok(MissingInput::new(format!("the marker {marker}"), "none"));
        }
        if ready.files.is_none() && ready.min_age.is_none() {
            return Ok(None);
        }
        let file_count = |count: u64| match count {
            1 => "1 file".to_owned(),
            _ => format!("{count} files"),
        };
        let least = ready.files.unwrap_or(1);
        let reader = self.connectors.source(&source.format, &source.config)?;
        let files: BTreeSet<String> = match reader.discover(&self.io, &[]) {
            Ok(dataset) => dataset
                .spans
                .into_iter()
                .flat_map(|span| span.pieces)
                .map(|piece| piece.path)
                .collect(),
            Err(fault) if fault.code() == codes::NO_INPUT => BTreeSet::new(),
            // A file that is being written looks like a broken one.
            Err(fault) if fault.code() == codes::CORRUPT => {
                let missing = MissingInput {
                    wanted: file_count(least),
                    found: "one that is not whole".into(),
                    cause: Some(fault),
                };
                return Ok(Some(missing));
            }
            Err(fault) => return Err(fault),
        };
        if (files.len() as u64) < least {
            return Ok(MissingInput::new(
                file_count(least),
                files.len().to_string(),
            ));
        }
        let Some(min_age) = ready.min_age else {
            return Ok(None);
        };
        let youngest = self.youngest(&files)?;
        let age = youngest
            .and_then(|time| SystemTime::now().duration_since(time).ok())
            .unwrap_or_default();
        if age >= min_age {
            return Ok(None);
        }
        let condition = format!("files that are {} s old", min_age.as_secs());
        Ok(MissingInput::new(
            condition,
            format!("one of {} s", age.as_secs()),
        ))
    }

    /// Time at which the youngest of some files was written.
    fn youngest(&self, files: &BTreeSet<String>) -> Result<Option<SystemTime>> {
        let locations = files
            .iter()
            .map(|file| self.io.resolve(file))
            .collect::<Result<Vec<StorageLocation>>>()?;
        let paths: BTreeSet<&str> = locations
            .iter()
            .map(|location| location.path.as_ref())
            .collect();
        let folders: BTreeSet<&str> = files
            .iter()
            .map(|file| file.rsplit_once('/').map_or("", |(folder, _)| folder))
            .collect();
        let mut youngest = None;
        for folder in folders {
            for object in self.io.list(&self.io.resolve(folder)?)? {
                if paths.contains(object.location.as_ref()) {
                    let millis = object.last_modified.timestamp_millis().max(0) as u64;
                    youngest =
                        youngest.max(Some(SystemTime::UNIX_EPOCH + Duration::from_millis(millis)));
                }
            }
        }
        Ok(youngest)
    }
}
