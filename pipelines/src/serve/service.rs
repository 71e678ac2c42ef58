//! Answers to rows: the part that all protocols share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::RecordBatch;
use forebay_model::Result;
use forebay_run::ClusterToken;
use forebay_storage::StorageClient;
use tokio::sync::Semaphore;

use super::batch_queue::{AnswerForm, BatchQueue};
use super::error::ServeError;
use super::limits::ServeLimits;
use super::model::{ServedModel, short_id};
use super::operator::tell;
use super::request_log::RequestLog;
use super::shadow::{ShadowVersions, SplitRows};
use super::turns::in_turn;
use super::versions::{FollowOutcome, VersionSet};
use crate::metrics::{MetricsPage, ServeMetrics};

/// Bytes that a permit of the memory for requests stands for.
pub(super) const PERMIT_BYTES: usize = 1024;

/// A server's versions, queue and limits.
pub(super) struct ServeService {
    /// Name of the model in the protocols.
    pub name: String,
    pub versions: VersionSet,
    pub shadow: Option<ShadowVersions>,
    pub limits: ServeLimits,
    /// Reads files in requests within the memory of the server.
    pub reader: StorageClient,
    pub metrics: Arc<ServeMetrics>,
    pub page: MetricsPage,
    /// The token that clients have to show.
    pub token: Option<ClusterToken>,
    pub queue: BatchQueue,
    pub log: Option<RequestLog>,
    /// Memory for requests, in units of [`PERMIT_BYTES`].
    pub request_memory: Arc<Semaphore>,
    pub requests: Arc<Semaphore>,
    /// Bodies that are decoded at the same time, off the threads of the network.
    pub decoding: Arc<Semaphore>,
    /// The turn to append facts.
    pub appending: Arc<Semaphore>,
    pub is_draining: Arc<AtomicBool>,
}

/// Rows to answer.
pub(super) struct RowsQuestion {
    pub rows: RecordBatch,
    pub form: AnswerForm,
    /// A version that the client has named.
    pub version: Option<String>,
}

/// Rows with the version that answered them.
pub(super) struct RowsAnswer {
    pub rows: RecordBatch,
    pub version: String,
}

impl ServeService {
    /// True if the server takes requests.
    pub fn is_ready(&self) -> bool {
        !self.is_draining.load(Ordering::Relaxed)
    }

    /// The version that a request means: a named one, or the current one.
    pub fn model(&self, version: Option<&str>) -> Result<Arc<ServedModel>, ServeError> {
        let Some(version) = version.filter(|version| !version.is_empty()) else {
            return Ok(self.versions.current());
        };
        let of_shadow = || self.shadow.as_ref()?.versions.find(version);
        let model = self.versions.find(version).or_else(of_shadow);
        model.ok_or_else(|| {
            let ids = self.versions.ids().join(", ");
            ServeError::not_found(format!("version `{version}` is not loaded; loaded: {ids}"))
        })
    }

    /// Refuses a name that is not the model's.
    pub fn check_name(&self, name: &str) -> Result<(), ServeError> {
        if name == self.name {
            return Ok(());
        }
        Err(ServeError::not_found(format!(
            "there is no model `{name}`; this server has `{}`",
            self.name
        )))
    }

    /// Answers rows.
    pub async fn answer(
        self: &Arc<Self>,
        question: RowsQuestion,
    ) -> Result<RowsAnswer, ServeError> {
        let rows = question.rows;
        if rows.num_rows() > self.limits.request_rows {
            return Err(ServeError::too_large(format!(
                "the request has {} rows, and {} is the most; send several requests",
                rows.num_rows(),
                self.limits.request_rows
            )));
        }
        let model = self.model(question.version.as_deref())?;
        let is_pinned = question.version.is_some_and(|version| !version.is_empty());
        let split = if is_pinned {
            None
        } else {
            self.split(&model, &rows, question.form)
        };
        let answers = match split {
            Some(split) => self.answer_split(&model, &split).await?,
            None => {
                self.queue
                    .apply(model.clone(), rows.clone(), question.form)
                    .await?
            }
        };
        self.metrics.rows.inc_by(rows.num_rows() as u64);
        self.metrics
            .missing_keys
            .inc_by(model.rows_without_key(&rows) as u64);
        if !model.answers_series() {
            model.drift.observe(&rows);
        }
        if let Some(log) = &self.log {
            log.offer(&model, &rows, &answers);
        }
        if !is_pinned {
            self.versions.keep_request(&rows);
            self.compare_shadow(&rows, &answers, question.form);
        }
        Ok(RowsAnswer {
            rows: answers,
            version: short_id(&model.version).to_owned(),
        })
    }

    fn split(
        &self,
        model: &ServedModel,
        rows: &RecordBatch,
        form: AnswerForm,
    ) -> Option<SplitRows> {
        let shadow = self.shadow.as_ref().filter(|shadow| shadow.share > 0.0)?;
        if form != AnswerForm::Aligned {
            return None;
        }
        SplitRows::new(rows, &model.keys, shadow.share)
    }

    async fn answer_split(
        &self,
        model: &Arc<ServedModel>,
        split: &SplitRows,
    ) -> Result<RecordBatch, ServeError> {
        let Some(shadow) = &self.shadow else {
            return Err(ServeError::internal("rows of a version that is not there"));
        };
        let second = shadow.versions.current();
        self.metrics
            .split_rows
            .inc_by(split.shadow.num_rows() as u64);
        let form = AnswerForm::Aligned;
        let shadow_answers = self.queue.apply(second, split.shadow.clone(), form);
        if split.served.num_rows() == 0 {
            return split.join_shadow(shadow_answers.await?, model.outputs());
        }
        let answers = self.queue.apply(model.clone(), split.served.clone(), form);
        let (answers, shadow_answers) = tokio::try_join!(answers, shadow_answers)?;
        split.join(answers, shadow_answers)
    }

    /// Computes the answers of the second version beside, where there is time for it.
    fn compare_shadow(
        self: &Arc<Self>,
        rows: &RecordBatch,
        answers: &RecordBatch,
        form: AnswerForm,
    ) {
        let Some(shadow) = &self.shadow else { return };
        if shadow.share > 0.0 || !self.queue.has_room() {
            return;
        }
        let model = shadow.versions.current();
        let service = self.clone();
        let rows = rows.clone();
        let answers = answers.clone();
        tokio::spawn(async move {
            let compared = service.queue.apply(model, rows, form).await;
            let Some(shadow) = &service.shadow else {
                return;
            };
            let differences = shadow.compare(&answers, &compared);
            service
                .metrics
                .shadow_rows
                .inc_by(answers.num_rows() as u64);
            service.metrics.shadow_differences.inc_by(differences);
        });
    }

    /// Adds facts to the state of the current version. Returns the number of rows.
    pub async fn append(self: &Arc<Self>, rows: RecordBatch) -> Result<usize, ServeError> {
        let service = self.clone();
        let facts = rows.clone();
        // A log is written before facts are acknowledged. Appends follow each other, and wait without a thread.
        let appended = in_turn(self.appending.clone(), move || {
            let appended = service.versions.append(&rows)?;
            if let Some(shadow) = &service.shadow
                && let Err(fault) = shadow.versions.append(&rows)
            {
                // The facts are part of the answers that count.
                tell(&format!("the shadow does not take facts: {fault}"));
            }
            Ok(appended)
        });
        let appended = appended.await?;
        self.metrics.facts.inc_by(appended as u64);
        let model = self.versions.current();
        if model.answers_series() {
            // Requests have keys alone: facts show whether values are those of the fit.
            model.drift.observe(&facts);
        }
        Ok(appended)
    }

    /// Looks for newer versions.
    pub fn follow(&self) {
        self.follow_set(&self.versions, true);
        if let Some(shadow) = &self.shadow {
            self.follow_set(&shadow.versions, false);
        }
    }

    fn follow_set(&self, versions: &VersionSet, is_served: bool) {
        if !versions.is_followed() {
            return;
        }
        match versions.follow() {
            Ok(FollowOutcome::Unchanged) => {}
            Ok(FollowOutcome::Switched(id)) => {
                self.metrics.switches.with_label_values(&["switched"]).inc();
                tell(&format!(
                    "version {} of `{}` is served from now on",
                    short_id(&id),
                    versions.shown()
                ));
                if is_served {
                    self.show_version();
                }
            }
            Err(fault) => {
                self.metrics.switches.with_label_values(&["refused"]).inc();
                tell(&format!(
                    "the newer version of `{}` is not served: {}",
                    versions.shown(),
                    ServeError::from(fault).message
                ));
            }
        }
    }

    /// Sets the metric of the current version.
    pub fn show_version(&self) {
        self.metrics.version.reset();
        // Those of the version before.
        self.metrics.drift.reset();
        self.metrics.drift_missing.reset();
        let model = self.versions.current();
        self.metrics
            .version
            .with_label_values(&[short_id(&model.version)])
            .set(1);
    }

    /// Sets the metrics of the state to those of the current version.
    pub fn refresh_state_metrics(&self) {
        if let Some(state) = self.versions.current().state() {
            self.metrics.state_age_seconds.set(state.age_seconds);
            self.metrics.state_bytes.set(state.bytes as i64);
        }
    }

    /// Sets the metrics of drift to those of the current version.
    pub fn refresh_drift_metrics(&self) {
        for drift in self.versions.current().drift.columns() {
            let labels = [drift.column.as_str()];
            let missing = self.metrics.drift_missing.with_label_values(&labels);
            missing.set(drift.missing);
            if let Some(mean) = drift.mean {
                self.metrics.drift.with_label_values(&labels).set(mean);
            }
        }
    }

    /// Switches back to the version before. Returns its id.
    pub fn roll_back(&self) -> Result<String, ServeError> {
        let version = self.versions.roll_back()?;
        self.metrics
            .switches
            .with_label_values(&["rolled_back"])
            .inc();
        self.show_version();
        tell(&format!("rolled back to version {}", short_id(&version)));
        Ok(version)
    }
}
