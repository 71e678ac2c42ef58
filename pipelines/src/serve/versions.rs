//! Versions of a served model or artifact: the current one, earlier ones for a rollback, and the switch to a newer one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use arrow::array::RecordBatch;
use forebay_model::{Fault, Result, codes};
use forebay_storage::StorageClient;
use serde_json::{Value, json};

use super::error::ServeError;
use super::location::ServedLocation;
use super::model::{AnswerOptions, ServedModel, short_id};

/// Requests that are kept to check a new version with.
const KEPT_REQUESTS: usize = 32;

/// Rows of a kept request at most.
const KEPT_ROWS: usize = 64;

/// One of so many requests is kept once there are enough of them.
const KEEP_ONE_OF: u32 = 64;

/// Result of a look for a newer version.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum FollowOutcome {
    /// There is no newer version.
    Unchanged,
    /// The version with this id answers from now on.
    Switched(String),
}

/// The versions of one location.
pub(super) struct VersionSet {
    location: ServedLocation,
    options: AnswerOptions,
    /// Earlier versions that are kept at most.
    keeps: usize,
    loaded: RwLock<LoadedVersions>,
    requests: Mutex<VecDeque<RecordBatch>>,
    /// Held while facts are added and while versions are switched: no fact comes between two versions.
    facts: Mutex<()>,
}

struct LoadedVersions {
    current: Arc<ServedModel>,
    /// Earlier versions, the latest last.
    earlier: Vec<EarlierVersion>,
    /// Newest publication that was looked at: one that was refused or rolled back is not loaded again.
    seen: String,
}

/// A version that is kept for a rollback.
struct EarlierVersion {
    model: Arc<ServedModel>,
    /// Appends that the version after it had taken from it: a rollback brings back what came later.
    appends_taken: usize,
}

impl VersionSet {
    /// Finds and loads the newest version at a path.
    pub fn load(
        io: &StorageClient,
        path: &str,
        state: &str,
        options: AnswerOptions,
        keeps: usize,
    ) -> Result<VersionSet> {
        let location = ServedLocation::find(io, path, state)?;
        let newest = location.newest()?;
        let current = Arc::new(location.load(&newest, &options)?);
        Ok(VersionSet {
            location,
            options,
            keeps,
            loaded: RwLock::new(LoadedVersions {
                current,
                earlier: Vec::new(),
                seen: newest,
            }),
            requests: Mutex::default(),
            facts: Mutex::default(),
        })
    }

    /// The version that answers.
    pub fn current(&self) -> Arc<ServedModel> {
        self.read().current.clone()
    }

    /// The loaded version with an id, or the beginning of one.
    pub fn find(&self, version: &str) -> Option<Arc<ServedModel>> {
        let loaded = self.read();
        let is_meant =
            |model: &&Arc<ServedModel>| version.len() >= 4 && model.version.starts_with(version);
        std::iter::once(&loaded.current)
            .chain(loaded.earlier.iter().rev().map(|earlier| &earlier.model))
            .find(is_meant)
            .cloned()
    }

    /// Short ids of the loaded versions, the current one first.
    pub fn ids(&self) -> Vec<String> {
        let loaded = self.read();
        std::iter::once(&loaded.current)
            .chain(loaded.earlier.iter().rev().map(|earlier| &earlier.model))
            .map(|model| short_id(&model.version).to_owned())
            .collect()
    }

    /// The path or name of the location.
    pub fn shown(&self) -> &str {
        &self.location.shown
    }

    /// True if later runs may publish another version.
    pub fn is_followed(&self) -> bool {
        self.location.is_followed()
    }

    /// Keeps a request among those that a new version has to answer.
    pub fn keep_request(&self, rows: &RecordBatch) {
        // Requests never wait for one another here.
        let Ok(mut requests) = self.requests.try_lock() else {
            return;
        };
        if requests.len() < KEPT_REQUESTS {
            requests.push_back(rows.slice(0, rows.num_rows().min(KEPT_ROWS)));
        } else if fastrand::u32(..KEEP_ONE_OF) == 0 {
            requests.pop_front();
            requests.push_back(rows.slice(0, rows.num_rows().min(KEPT_ROWS)));
        }
    }

    /// Looks for a newer version, loads it beside the current one, checks it, and switches to it.
    pub fn follow(&self) -> Result<FollowOutcome> {
        let newest = self.location.newest()?;
        if newest == self.read().seen {
            return Ok(FollowOutcome::Unchanged);
        }
        let loaded = self.location.load(&newest, &self.options);
        // A version that cannot be used is looked at once; a newer one is tried again.
        let checked = loaded.and_then(|model| self.check(&model).map(|()| model));
        let _no_facts_come = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        let taken_over = checked.and_then(|model| {
            let appends_taken = take_over_facts(&self.current(), &model)?;
            Ok((model, appends_taken))
        });
        let mut versions = self.loaded.write().unwrap_or_else(PoisonError::into_inner);
        versions.seen = newest;
        let (model, appends_taken) = taken_over?;
        if model.version == versions.current.version {
            return Ok(FollowOutcome::Unchanged);
        }
        let id = model.version.clone();
        let replaced = std::mem::replace(&mut versions.current, Arc::new(model));
        versions.earlier.push(EarlierVersion {
            model: replaced,
            appends_taken,
        });
        let surplus = versions.earlier.len().saturating_sub(self.keeps);
        versions.earlier.drain(..surplus);
        Ok(FollowOutcome::Switched(id))
    }

    /// Adds facts to the current version. Returns the number of rows.
    pub fn append(&self, rows: &RecordBatch) -> Result<usize> {
        let _versions_stay = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        self.current().append(rows)
    }

    /// Refuses a version that lacks columns of the current one, or fails where it answers.
    fn check(&self, model: &ServedModel) -> Result<()> {
        let current = self.current();
        for field in current.outputs().fields() {
            let is_same = model
                .outputs()
                .field_with_name(field.name())
                .is_ok_and(|other| other.data_type() == field.data_type());
            if !is_same {
                let message = format!(
                    "version {} has no column `{}` of the type that the current version answers \
                     with",
                    short_id(&model.version),
                    field.name()
                );
                return Err(Fault::new(codes::UNSUPPORTED, message)
                    .column(field.name())
                    .hint("restart the server to serve other columns"));
            }
        }
        let requests: Vec<RecordBatch> = {
            let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            requests.iter().cloned().collect()
        };
        for rows in &requests {
            let Ok(expected) = current.apply_batch(rows) else {
                continue;
            };
            let answers = match model.apply_batch(rows) {
                Err(fault) if is_outdated(rows, model, &fault) => continue,
                answers => answers?,
            };
            if answers.num_rows() != expected.num_rows() {
                let message = format!(
                    "version {} answers {} rows where the current version answers {}",
                    short_id(&model.version),
                    answers.num_rows(),
                    expected.num_rows()
                );
                return Err(Fault::new(codes::UNSUPPORTED, message)
                    .hint("restart the server where a filter has been changed on purpose"));
            }
        }
        Ok(())
    }

    /// Switches back to the version before. The version that it leaves is not followed again.
    pub fn roll_back(&self) -> Result<String, ServeError> {
        let _no_facts_come = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut versions = self.loaded.write().unwrap_or_else(PoisonError::into_inner);
        let earlier = versions.earlier.last().ok_or_else(|| {
            ServeError::bad_request(
                "no earlier version is loaded; the server keeps those that it has served",
            )
        })?;
        return_facts(&versions.current, earlier).map_err(ServeError::from)?;
        let model = earlier.model.clone();
        versions.earlier.pop();
        versions.current = model;
        Ok(versions.current.version.clone())
    }

    /// Description of all versions.
    pub fn card(&self) -> Value {
        let loaded = self.read();
        // The newest first.
        let earlier = loaded.earlier.iter().rev();
        let earlier: Vec<_> = earlier.map(|earlier| &earlier.model.version).collect();
        json!({
            "path": self.location.shown,
            "current": loaded.current.card(),
            "earlier": earlier,
        })
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, LoadedVersions> {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// True for a fault that a request has because it is older than the run of a version.
fn is_outdated(rows: &RecordBatch, model: &ServedModel, fault: &Fault) -> bool {
    match fault.code() {
        // The run has the rows of this request, or later ones of its series.
        codes::OUT_OF_ORDER => true,
        // A series that began with a fact has no row in the run, whose version gets the facts afterwards, and one that
        // ended long ago has no forecast any more.
        codes::NO_HISTORY => model.answers_series(),
        // The request gives values of the future up to the end of an earlier horizon.
        codes::BAD_ROW => model.answers_series() && rows.num_columns() > model.keys.len(),
        _ => false,
    }
}

/// Adds the facts of a version that are later than the run of the next one to that. Returns the number of appends that
/// the next version then has.
fn take_over_facts(current: &ServedModel, next: &ServedModel) -> Result<usize> {
    if next.version == current.version || next.take_log_over(current)? {
        return Ok(0);
    }
    next.append_after_run(&current.appended()?)?;
    Ok(next.appended()?.len())
}

/// Adds the facts that came since the switch from an earlier version to that.
fn return_facts(current: &ServedModel, earlier: &EarlierVersion) -> Result<()> {
    if earlier.model.take_log_over(current)? {
        return Ok(());
    }
    for facts in current.appended()?.iter().skip(earlier.appends_taken) {
        earlier.model.append(facts)?;
    }
    Ok(())
}
