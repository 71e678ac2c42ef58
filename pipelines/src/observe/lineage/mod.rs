//! Lineage events in the shape of OpenLineage 2-0-2: <https://openlineage.io/spec/2-0-2/OpenLineage.json>.
//!
//! A run sends START, and then COMPLETE, FAIL or ABORT. Inputs are the folders of its sources,
//! outputs the directories of its sinks.

mod datasets;
mod facets;
mod settings;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use forebay_model::{ContentId, Fault, Interval, Pipeline, Result, codes};
use forebay_run::{DatasetProfile, LearnedProfile, RunReport, Session};
use forebay_storage::timestamp::format_utc;
use forebay_storage::{Event, StorageClient, WebClient};
use jiff::Timestamp;
use jiff::civil::DateTime;
use serde_json::{Value, json};

use self::datasets::{EventData, SeenSource};
use self::facets::{Facets, PRODUCER, event_schema};
use self::settings::{LineageSettings, LineageTarget, ParentRun};
use super::JudgedRules;
use super::outbox::Outbox;
use super::run_observer::{ObservedSession, RunObserver};

/// Reports runs as OpenLineage events.
pub(super) struct LineageObserver {
    settings: LineageSettings,
    out: Outbox<Value>,
    session: OnceLock<Session>,
    /// The name that the user gave to the run.
    run_id: OnceLock<String>,
    current: Mutex<Option<CurrentRun>>,
    /// Latest description of each source. Of concurrent intervals, only the first one reports them.
    seen: Mutex<BTreeMap<String, SeenSource>>,
    /// Rules of the current run, for the case that it fails.
    judged: Mutex<JudgedRules>,
}

/// The current run.
struct CurrentRun {
    id: String,
    pipeline: Pipeline,
    interval: Option<Interval>,
}

impl LineageObserver {
    /// Creates the observer, if lineage is requested.
    pub fn new(flag: Option<&str>) -> Result<Option<LineageObserver>> {
        let Some(settings) = LineageSettings::resolve(flag)? else {
            return Ok(None);
        };
        let session = OnceLock::new();
        let run_id = OnceLock::new();
        let (current, seen, judged) = Default::default();
        Ok(Some(LineageObserver {
            settings,
            out: Outbox::new(),
            session,
            run_id,
            current,
            seen,
            judged,
        }))
    }

    fn current(&self) -> MutexGuard<'_, Option<CurrentRun>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen(&self) -> MutexGuard<'_, BTreeMap<String, SeenSource>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn judged(&self) -> MutexGuard<'_, JudgedRules> {
        self.judged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn event(
        &self,
        kind: &str,
        run: &CurrentRun,
        ended: Option<Result<&RunReport, &Fault>>,
    ) -> Value {
        let report = ended.and_then(Result::ok);
        let session = self.session.get();
        let columns_of = |report: &RunReport| {
            let path = report.artifact_path.as_deref()?;
            artifact_columns(session?.io(), path).ok()
        };
        let columns = report.and_then(columns_of).unwrap_or_default();
        let seen = self.seen().clone();
        let profiles =
            report.and_then(|report| source_profiles(session?, &run.pipeline, report).ok());
        let judged = self.judged().rules().to_vec();
        let data = EventData {
            pipeline: &run.pipeline,
            seen: &seen,
            columns: &columns,
            profiles: &profiles.unwrap_or_default(),
            rules: report.map_or(&judged, |report| &report.expectations),
            report,
        };
        let mut facets = Facets::default();
        let engine = json!({ "version": env!("CARGO_PKG_VERSION"), "name": "forebay" });
        facets.add("processing_engine", engine);
        let interval = run
            .interval
            .as_ref()
            .and_then(|interval| instant(&interval.from).zip(instant(&interval.to)));
        if let Some((from, to)) = interval {
            facets.add(
                "nominalTime",
                json!({ "nominalStartTime": from, "nominalEndTime": to }),
            );
        }
        if let Some(ParentRun {
            namespace,
            job,
            run,
        }) = &self.settings.parent
        {
            let job = json!({ "namespace": namespace, "name": job });
            facets.add("parent", json!({ "run": { "runId": run }, "job": job }));
        }
        if let Some(Err(fault)) = ended {
            let message = format!("{}: {}", fault.code().name, fault.message());
            facets.add(
                "errorMessage",
                json!({ "message": message, "programmingLanguage": "RUST" }),
            );
        }
        let mut job = Facets::default();
        job.add(
            "jobType",
            json!({ "processingType": "BATCH", "integration": "FOREBAY", "jobType": "PIPELINE" }),
        );
        json!({
            "eventType": kind,
            "eventTime": format_utc(Timestamp::now()),
            "run": { "runId": run.id, "facets": facets.into_value() },
            "job": {
                "namespace": self.settings.namespace,
                "name": run.pipeline.name,
                "facets": job.into_value(),
            },
            "inputs": data.inputs(),
            "outputs": data.outputs(),
            "producer": PRODUCER,
            "schemaURL": event_schema(),
        })
    }
}

impl RunObserver for LineageObserver {
    fn begin(&self, observed: &ObservedSession<'_>) -> Result<()> {
        let _ = self.session.set(observed.session.clone());
        if let Some(run_id) = observed.run_id {
            let _ = self.run_id.set(run_id.to_owned());
        }
        match self.settings.to.clone() {
            LineageTarget::Service { url, headers } => {
                let client = WebClient::new(observed.session.io(), "the lineage service", headers)?;
                self.out.start(observed.watch, move |events: Vec<Value>| {
                    for event in events {
                        client.post(&url, "application/json", event.to_string().into_bytes())?;
                    }
                    Ok(())
                })
            }
            LineageTarget::File(path) => {
                self.out.start(observed.watch, move |events: Vec<Value>| {
                    append_events(&path, &events).map_err(|error| {
                        Fault::disk("the file of lineage events cannot be written", error)
                    })
                })
            }
        }
    }

    fn run_begins(&self, pipeline: &Pipeline, interval: Option<&Interval>) {
        let id = run_uuid(self.run_id.get(), &pipeline.name, interval);
        let run = CurrentRun {
            id,
            pipeline: pipeline.clone(),
            interval: interval.cloned(),
        };
        *self.judged() = JudgedRules::default();
        self.out.send(self.event("START", &run, None));
        *self.current() = Some(run);
    }

    fn on_event(&self, event: &Event) {
        self.judged().hear(event);
        let Event::Discovered {
            source,
            spans,
            rows,
            bytes,
            folder,
        } = event
        else {
            return;
        };
        let seen = SeenSource {
            folder: folder.clone(),
            spans: *spans,
            rows: *rows,
            bytes: *bytes,
        };
        self.seen().insert(source.clone(), seen);
    }

    fn run_ends(&self, ended: Result<&RunReport, &Fault>) {
        let Some(run) = self.current().take() else {
            return;
        };
        let kind = match ended {
            Ok(_) => "COMPLETE",
            Err(fault) if fault.code() == codes::INTERRUPTED => "ABORT",
            Err(_) => "FAIL",
        };
        self.out.send(self.event(kind, &run, Some(ended)));
    }

    fn finish(&self) {
        self.out.close();
    }
}

/// A UUID: for a run that the user named, a hash of its name; else a random one.
fn run_uuid(run_id: Option<&String>, pipeline: &str, interval: Option<&Interval>) -> String {
    let bits = match run_id {
        Some(run_id) => {
            let id = ContentId::of(json!([run_id, pipeline, interval]).to_string().as_bytes())
                .to_string();
            u128::from_str_radix(&id, 16).unwrap_or_default()
        }
        None => fastrand::u128(..),
    };
    // Version 8 where a content decides, version 4 where chance does (RFC 9562).
    let version: u128 = if run_id.is_some() { 8 } else { 4 };
    let bits = bits & !(0xf << 76) & !(0x3 << 62) | version << 76 | 0x2 << 62;
    let hex = format!("{bits:032x}");
    [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-")
}

/// An end of an interval as an instant: dates and times without a zone are in UTC. `None` where times are numbers.
fn instant(text: &str) -> Option<String> {
    let civil = |text: &str| text.parse::<DateTime>().ok().map(|time| format!("{time}Z"));
    text.parse::<Timestamp>()
        .ok()
        .map(format_utc)
        .or_else(|| civil(text))
}

/// The columns of an artifact's sources, with their types.
fn artifact_columns(
    io: &StorageClient,
    artifact: &str,
) -> Result<BTreeMap<String, Vec<(String, String)>>> {
    let bytes = io
        .get(&io.resolve(artifact)?.join("artifact.json"))?
        .unwrap_or_default();
    let artifact: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let mut columns_by_source = BTreeMap::new();
    for (name, source) in artifact["sources"].as_object().into_iter().flatten() {
        let mut columns = Vec::new();
        for (column, kind) in source["columns"].as_object().into_iter().flatten() {
            let kind = match kind.as_str() {
                Some(kind) => kind.to_owned(),
                None => kind.to_string(),
            };
            columns.push((column.clone(), kind));
        }
        columns_by_source.insert(name.clone(), columns);
    }
    Ok(columns_by_source)
}

/// Profiles of unchanged sources that the run has learned: those of `profile` steps that come
/// first.
fn source_profiles(
    session: &Session,
    pipeline: &Pipeline,
    report: &RunReport,
) -> Result<BTreeMap<String, DatasetProfile>> {
    let mut profiles = BTreeMap::new();
    for LearnedProfile { profile, .. } in session.learned_profiles(pipeline, report)? {
        if pipeline.source(&profile.of).is_some() {
            profiles.entry(profile.of.clone()).or_insert(profile);
        }
    }
    Ok(profiles)
}

/// Appends events to a file, one a line.
fn append_events(path: &Path, events: &[Value]) -> std::io::Result<()> {
    let mut lines = String::new();
    for event in events {
        lines += &format!("{event}\n");
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)?;
    file.write_all(lines.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_with_a_name_have_the_same_uuid_again() {
        let interval = |to: &str| Interval {
            from: "2016-05-21".to_owned(),
            to: to.to_owned(),
        };
        let named =
            |name: &str, to: &str| run_uuid(Some(&name.to_owned()), "demand", Some(&interval(to)));
        let id = named("night", "2016-05-22");
        assert_eq!(named("night", "2016-05-22"), id);
        assert_ne!(named("night", "2016-05-23"), id);
        assert_ne!(named("other", "2016-05-22"), id);
        assert_ne!(
            run_uuid(None, "demand", None),
            run_uuid(None, "demand", None)
        );
        let parts: Vec<usize> = id.split('-').map(str::len).collect();
        assert!(
            parts == [8, 4, 4, 4, 12] && &id[14..15] == "8" && "89ab".contains(&id[19..20]),
            "{id}"
        );
    }

    #[test]
    fn intervals_become_instants() {
        for (text, expected) in [
            ("2016-05-21", Some("2016-05-21T00:00:00Z")),
            ("2016-05-21T06:00:00", Some("2016-05-21T06:00:00Z")),
            ("2016-05-21 06:00:00", Some("2016-05-21T06:00:00Z")),
            ("2016-05-21T06:00:00Z", Some("2016-05-21T06:00:00Z")),
            ("2016-05-21T06:00:00+02:00", Some("2016-05-21T04:00:00Z")),
            ("17", None),
        ] {
            assert_eq!(instant(text).as_deref(), expected, "{text}");
        }
    }
}
