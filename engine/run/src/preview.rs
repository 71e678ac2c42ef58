//! Some rows of any step, computed from a sample of the sources.

use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use forebay_commit::Artifact;
use forebay_model::{Fault, Pipeline, Result, codes};
use forebay_storage::ScratchDir;
use serde_json::Value;

use crate::preview_options::PreviewOptions;
use crate::profile::DatasetProfile;
use crate::sample::{RowSample, SampledConnectors, input_sources};
use crate::session::Session;
use crate::step_rows::{RowsRequest, StepRows};

/// Some rows of a step.
#[derive(Debug, Clone)]
pub struct Preview {
    /// The step or source.
    pub step: String,
    /// The rows, in order.
    pub batches: Vec<RecordBatch>,
    /// Rows before the first one.
    pub skipped: u64,
}

/// Rows of a preview while they are computed.
#[derive(Default)]
struct ShownRows {
    batches: Vec<RecordBatch>,
    rows: usize,
    rows_max: usize,
    /// Rows before the first one.
    skipped: u64,
    /// Rows that were computed.
    computed: u64,
    /// The most values of a row so far, null being none.
    values_max: usize,
}

impl ShownRows {
    fn add(&mut self, batch: &RecordBatch) {
        let rows = batch.num_rows().min(self.rows_max - self.rows);
        // A slice holds the memory of its batch. The first one has the columns.
        if rows == 0 && !self.batches.is_empty() {
            return;
        }
        self.rows += rows;
        self.batches.push(batch.slice(0, rows));
    }

    /// Adds rows, and begins again where one has more values than all before it.
    fn add_fullest(&mut self, batch: &RecordBatch) {
        match self.fuller_row(batch) {
            None => self.add(batch),
            Some(row) => {
                self.batches.clear();
                self.rows = 0;
                self.skipped = self.computed + row as u64;
                self.add(&batch.slice(row, batch.num_rows() - row));
            }
        }
        self.computed += batch.num_rows() as u64;
    }

    /// The first row with the most values, if that are more than before.
    fn fuller_row(&mut self, batch: &RecordBatch) -> Option<usize> {
        let mut nulls = Vec::new();
        for column in batch.columns() {
            nulls.extend(column.logical_nulls());
        }
        let mut fuller_row = None;
        for row in 0..batch.num_rows() {
            let missing = nulls.iter().filter(|column| column.is_null(row)).count();
            let values = batch.num_columns() - missing;
            if values > self.values_max {
                self.values_max = values;
                fuller_row = Some(row);
            }
        }
        fuller_row
    }
}

/// Rows of a step that are computed from a sample of the sources.
struct SampledRows<'a> {
    step: &'a str,
    /// A SQL condition on the rows.
    condition: Option<&'a str>,
    /// The sample of each source, by its configuration; others are read whole.
    samples: Vec<(Value, RowSample)>,
    /// Findings to apply; the steps are fitted on the sample without it.
    artifact: Option<&'a Artifact>,
}

impl PreviewOptions {
    /// The rows to show of those that were computed.
    fn preview_of(&self, step: String, rows: StepRows) -> Result<Preview> {
        let mut shown_rows = ShownRows {
            rows_max: self.rows,
            ..ShownRows::default()
        };
        for batch in rows {
            let batch = batch?;
            let mut is_fullest = true;
            if self.fullest {
                shown_rows.add_fullest(&batch);
                is_fullest = shown_rows.values_max == batch.num_columns();
            } else {
                shown_rows.add(&batch);
            }
            if is_fullest && shown_rows.rows == self.rows {
                break;
            }
        }
        Ok(Preview {
            step,
            batches: shown_rows.batches,
            skipped: shown_rows.skipped,
        })
    }
}

impl Session {
    /// Computes some rows of a step. Writes temporary files only.
    pub fn preview(&self, pipeline: &Pipeline, options: &PreviewOptions) -> Result<Preview> {
        let step = match &options.step {
            Some(step) => step.clone(),
            None => default_step(pipeline)?,
        };
        let samples = samples_of(pipeline, &step, options.sample_rows);
        self.preview_step(pipeline, step, options, samples)
    }

    /// Computes some rows of a step from the first rows of all sources, also of those that joins look rows up in.
    pub(crate) fn preview_of_first_rows(
        &self,
        pipeline: &Pipeline,
        step: &str,
        options: &PreviewOptions,
    ) -> Result<Preview> {
        let mut samples = Vec::new();
        for source in &pipeline.sources {
            let sample = RowSample::First(options.sample_rows);
            samples.push((source.config.clone(), sample));
        }
        self.preview_step(pipeline, step.to_owned(), options, samples)
    }

    /// Computes some rows of a step with what an artifact has learned, from the sources of a pipeline. Writes temporary
    /// files only.
    pub fn preview_of_artifact(
        &self,
        pipeline: &Pipeline,
        artifact: &Artifact,
        options: &PreviewOptions,
    ) -> Result<Preview> {
        let step = match &options.step {
            Some(step) => step.clone(),
            None => default_step(pipeline)?,
        };
        let sampled = SampledRows {
            step: &step,
            condition: options.condition.as_deref(),
            samples: samples_of(pipeline, &step, options.sample_rows),
            artifact: Some(artifact),
        };
        let rows = self.sampled_rows(pipeline, sampled)?;
        options.preview_of(step, rows)
    }

    /// Profiles the rows of a step with what an artifact has learned, computed from the first rows of the sources of a
    /// pipeline. Writes temporary files only.
    pub fn profile_of_artifact(
        &self,
        pipeline: &Pipeline,
        artifact: &Artifact,
        step: &str,
        sample_rows: u64,
    ) -> Result<DatasetProfile> {
        let sampled = SampledRows {
            step,
            condition: None,
            samples: samples_of(pipeline, step, sample_rows),
            artifact: Some(artifact),
        };
        self.sampled_rows(pipeline, sampled)?.profile(step)
    }

    fn preview_step(
        &self,
        pipeline: &Pipeline,
        step: String,
        options: &PreviewOptions,
        samples: Vec<(Value, RowSample)>,
    ) -> Result<Preview> {
        let artifact = if options.newest_artifact {
            Some(self.newest_artifact(&pipeline.name)?)
        } else {
            None
        };
        let sampled = SampledRows {
            step: &step,
            condition: options.condition.as_deref(),
            samples,
            artifact: artifact.as_ref(),
        };
        let rows = self.sampled_rows(pipeline, sampled)?;
        options.preview_of(step, rows)
    }

    /// The rows of a step, computed from a sample of the sources into temporary files.
    fn sampled_rows(&self, pipeline: &Pipeline, sampled: SampledRows<'_>) -> Result<StepRows> {
        let connectors = SampledConnectors {
            inner: self.connectors.clone(),
            samples: sampled.samples,
        };
        let request = RowsRequest {
            step: sampled.step,
            condition: sampled.condition,
            connectors: Arc::new(connectors),
            artifact: sampled.artifact,
            enforces_rules: false,
            uses_state: false,
        };
        let scratch = ScratchDir::new(None, self.watch.clone())?;
        self.compute_rows(pipeline, request, scratch)
    }

    /// The artifact that the last run of a pipeline has left.
    fn newest_artifact(&self, name: &str) -> Result<Artifact> {
        let root = self.state()?;
        let Some(location) = Artifact::latest(&self.io, &root, name)? else {
            let fault = Fault::new(
                codes::NOT_FOUND,
                format!("no run of `{name}` has left an artifact"),
            );
            return Err(fault
                .file(&root.shown)
                .hint("run it first, or name its state directory by `--state`"));
        };
        Artifact::load(&self.io, &location)
    }
}

/// The first rows of each source whose rows become those of a step. Rows that joins look up may be any of their source:
/// that is read whole.
fn samples_of(pipeline: &Pipeline, step: &str, rows: u64) -> Vec<(Value, RowSample)> {
    let inputs = input_sources(pipeline, vec![step], true);
    let mut samples = Vec::new();
    for source in &pipeline.sources {
        if inputs.contains(source.name.as_str()) {
            samples.push((source.config.clone(), RowSample::First(rows)));
        }
    }
    samples
}

fn default_step(pipeline: &Pipeline) -> Result<String> {
    let sinks = pipeline
        .sinks
        .iter()
        .chain(&pipeline.trainings)
        .map(|sink| &sink.from);
    let nodes = pipeline.nodes.iter().rev().map(|node| &node.name);
    let sources = pipeline.sources.iter().map(|source| &source.name);
    let first = sinks.chain(nodes).chain(sources).next();
    first
        .cloned()
        .ok_or_else(|| Fault::new(codes::EMPTY, "the pipeline has no rows to show"))
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int32Array};

    use super::*;

    fn batch(lag: Vec<Option<i32>>, event: Vec<Option<i32>>) -> RecordBatch {
        let columns = [
            ("lag", Arc::new(Int32Array::from(lag)) as ArrayRef),
            ("event", Arc::new(Int32Array::from(event)) as ArrayRef),
        ];
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
            .unwrap()
    }

    #[test]
    fn rows_begin_where_one_has_the_most_values() {
        let cases = [
            // The third row of all has both values.
            (
                vec![
                    batch(vec![None, None], vec![None, Some(1)]),
                    batch(vec![Some(7), Some(8)], vec![Some(2), None]),
                    batch(vec![Some(9)], vec![Some(3)]),
                ],
                (2, 2),
            ),
            // No row is full: the first one with a value.
            (
                vec![batch(vec![None, Some(1), Some(2)], vec![None; 3])],
                (1, 2),
            ),
            // No row has a value.
            (vec![batch(vec![None; 3], vec![None; 3])], (0, 2)),
        ];
        for (batches, expected) in cases {
            let mut shown_rows = ShownRows {
                rows_max: 2,
                ..ShownRows::default()
            };
            for batch in &batches {
                shown_rows.add_fullest(batch);
            }
            let lengths = shown_rows.batches.iter().map(RecordBatch::num_rows);
            assert_eq!((shown_rows.skipped, lengths.sum::<usize>()), expected);
            assert_eq!(shown_rows.rows, expected.1);
        }
    }

    #[test]
    fn rows_beyond_the_shown_ones_are_not_held() {
        let mut shown_rows = ShownRows {
            rows_max: 2,
            ..ShownRows::default()
        };
        for _ in 0..5 {
            shown_rows.add_fullest(&batch(vec![Some(1); 2], vec![None; 2]));
        }
        assert_eq!(shown_rows.rows, 2);
        assert_eq!(shown_rows.batches.len(), 1);
        let mut none = ShownRows::default();
        none.add(&batch(vec![Some(1)], vec![None]));
        // The columns of no rows are known, too.
        assert_eq!(none.batches.len(), 1);
    }
}
