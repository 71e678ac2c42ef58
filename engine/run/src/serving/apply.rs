//! `apply` and `predict` of new rows alone: windows see the rows before through the serving state.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::{Field, Schema, SchemaRef};
use forebay_commit::{Artifact, ServingManifest, ServingReference};
use forebay_contract::{OutputSum, ScanRequest, literal_path};
use forebay_execute::SourceInput;
use forebay_model::{
    Fault, NodeInput, Pipeline, PipelineSource, Result, RowSum, codes, logical_type, plain_batch,
};
use forebay_plan::RowCounts;
use forebay_storage::{Event, ScratchDir};
use parquet::arrow::ArrowWriter;
use serde_json::json;

use super::{FileRows, ServingModel};
use crate::leak_check::{TimeRange, time_text};
use crate::report::RunReport;
use crate::session::{Session, SessionOptions};

/// New rows of a source, and what makes them later than a state.
struct NewRows {
    input: SourceInput,
    range: TimeRange,
}

impl NewRows {
    /// The columns that a model reads, as far as they are there.
    fn schema(&self, model: &ServingModel) -> Result<SchemaRef> {
        let schema = &self.input.dataset.schema;
        let mut fields = Vec::new();
        for input in model.input().fields() {
            let Ok(field) = schema.field_with_name(input.name()) else {
                continue;
            };
            let data_type = logical_type(field.data_type());
            fields.push(Field::new(input.name(), data_type, true));
        }
        Ok(Arc::new(Schema::new(fields)))
    }
}

impl Session {
    /// Applies an artifact to rows that are later than its serving state, without their history; `None` where the state
    /// does not serve the sink, or where the rows begin before its end.
    pub(crate) fn apply_from_state(
        &self,
        pipeline: &Pipeline,
        artifact: &Artifact,
    ) -> Result<Option<RunReport>> {
        if self.served.from.is_some() || self.served.whole_history {
            return Ok(None);
        }
        let Some(reference) = self.serving_reference(artifact)? else {
            return Ok(None);
        };
        let manifest = reference.manifest.clone();
        if !serves_sink(pipeline, artifact, &manifest) {
            return Ok(None);
        }
        let artifact = &Artifact {
            serving: Some(reference),
            ..artifact.clone()
        };
        let manifest = manifest.as_ref();
        let Some(rows) = self.new_rows(pipeline, artifact, manifest)? else {
            return Ok(None);
        };
        let message = format!(
            "rows from {} on are computed from the serving state, as of {}",
            time_text(rows.range.min, &rows.range.field)?,
            manifest.as_of.as_deref().unwrap_or("no rows"),
        );
        self.watch.on_event(Event::Warning {
            message: message.clone(),
        });
        let model = ServingModel::new(artifact, &self.registry, &self.sql, Some(&manifest.node))?;
        let scratch = ScratchDir::new(Some(&self.state()?), self.watch.clone())?;
        let file = scratch.path().join("served.parquet");
        let counts = self.write_served(&model, &rows, &file)?;
        let mut report = self.publish_served(pipeline, artifact, manifest, &scratch)?;
        report.warnings.insert(0, message);
        Ok(Some(with_served_counts(report, &counts)))
    }

    /// The serving state of an artifact. That of a model lies in the state directory, beside the artifact of its run: it
    /// follows the data, and the model does not.
    fn serving_reference(&self, artifact: &Artifact) -> Result<Option<ServingReference>> {
        if artifact.serving.is_some() {
            return Ok(artifact.serving.clone());
        }
        let directory = Artifact::directory(&self.state()?, artifact.id);
        ServingReference::read(&self.io, &directory)
    }

    /// The rows of the source, where all are later than the state.
    fn new_rows(
        &self,
        pipeline: &Pipeline,
        artifact: &Artifact,
        manifest: &ServingManifest,
    ) -> Result<Option<NewRows>> {
        let source = pipeline.source(&manifest.source);
        let Some((as_of, source)) = manifest.as_of_ticks.zip(source) else {
            return Ok(None);
        };
        let Some(time) = &source.time else {
            return Ok(None);
        };
        let session = self.with_served_inputs(self.served_inputs(pipeline, artifact)?);
        let only_source = Pipeline {
            sources: vec![source.clone()],
            ..pipeline.clone()
        };
        let mut inputs = session.discover_inputs(&self.io, &only_source, None, None)?;
        let Some(input) = inputs.remove(&source.name) else {
            return Ok(None);
        };
        let Some(range) = TimeRange::of(&self.io, &input, time)? else {
            return Ok(None);
        };
        Ok((range.min > as_of).then_some(NewRows { input, range }))
    }

    /// Computes the rows, and writes them into a temporary file. Returns the counts of the rows of the source.
    fn write_served(&self, model: &ServingModel, rows: &NewRows, file: &Path) -> Result<RowCounts> {
        match self.write_in_order(model, rows, file) {
            Err(fault) if fault.code() == codes::OUT_OF_ORDER => {
                self.write_sorted(model, rows, file)
            }
            written => written,
        }
    }

    fn read_new(
        &self,
        model: &ServingModel,
        rows: &NewRows,
        each: &mut dyn FnMut(RecordBatch, FileRows) -> Result<()>,
    ) -> Result<()> {
        let plain = rows.schema(model)?;
        let names = plain.fields().iter().map(|field| field.name().clone());
        let request = ScanRequest {
            batch_rows: self.options.batch_rows,
            ..ScanRequest::of_columns(names.collect(), &rows.input.dataset.schema)
        };
        for span in &rows.input.dataset.spans {
            for chunk in rows.input.source.open(&self.io, span, &request)? {
                self.interrupt.check()?;
                let chunk = chunk?;
                let file_rows = FileRows {
                    file: chunk.file.clone(),
                    first_row: chunk.first_row,
                    rows: chunk.batch.num_rows() as u64,
                };
                each(plain_batch(&plain, &chunk.batch)?, file_rows)?;
            }
        }
        Ok(())
    }

    fn write_in_order(
        &self,
        model: &ServingModel,
        rows: &NewRows,
        file: &Path,
    ) -> Result<RowCounts> {
        let mut run = model.begin_run()?;
        let columns = rows.schema(model)?;
        let mut writer = ServedWriter::create(file, model.output_of(&columns)?)?;
        self.read_new(model, rows, &mut |batch, file_rows| {
            writer.write(&run.apply(&batch, &[file_rows])?)
        })?;
        writer.finish()?;
        Ok(run.counts().clone())
    }

    /// Computes rows whose files are not in order of time: in memory, as one batch.
    fn write_sorted(&self, model: &ServingModel, rows: &NewRows, file: &Path) -> Result<RowCounts> {
        let bytes_max = self.memory().states_bytes();
        let mut batches = Vec::new();
        let mut files = Vec::new();
        let mut bytes = 0;
        self.read_new(model, rows, &mut |batch, file_rows| {
            bytes += batch.get_array_memory_size();
            if bytes > bytes_max {
                let message = format!(
                    "the new rows are not in order of time, and take more than {} MiB",
                    bytes_max >> 20
                );
                return Err(Fault::new(codes::MEMORY, message)
                    .hint("give files that follow each other in time, or raise --memory"));
            }
            batches.push(batch);
            files.push(file_rows);
            Ok(())
        })?;
        let mut run = model.begin_run()?;
        let columns = rows.schema(model)?;
        let mut writer = ServedWriter::create(file, model.output_of(&columns)?)?;
        if let Some(first) = batches.first() {
            let batch = concat_batches(&first.schema(), &batches)?;
            batches.clear();
            writer.write(&run.apply(&batch, &files)?)?;
        }
        writer.finish()?;
        Ok(run.counts().clone())
    }

    /// Publishes the computed rows as the sink says.
    fn publish_served(
        &self,
        pipeline: &Pipeline,
        artifact: &Artifact,
        manifest: &ServingManifest,
        scratch: &ScratchDir,
    ) -> Result<RunReport> {
        let path = scratch.path().join("served.parquet").display().to_string();
        let source = PipelineSource {
            name: manifest.node.clone(),
            config: json!({ "path": literal_path(&path) }),
            format: ServedWriter::FORMAT.to_owned(),
            time: None,
            keys: Vec::new(),
            ready: None,
            duplicates: None,
            lookback: None,
            days: Default::default(),
            at: None,
        };
        let added = pipeline.nodes.iter();
        let added = added.filter(|node| artifact.pipeline.node(&node.name).is_none());
        let publishing = Pipeline {
            name: pipeline.name.clone(),
            sources: vec![source],
            nodes: added.cloned().collect(),
            sinks: pipeline.sinks.clone(),
            ..Pipeline::default()
        };
        let options = SessionOptions {
            state: scratch.path().join("state").display().to_string(),
            run_id: None,
            ..self.options.clone()
        };
        let report = self.for_inner_run(options).run(&publishing)?;
        Ok(RunReport {
            artifact: Some(artifact.id.to_string()),
            artifact_path: None,
            ..report
        })
    }
}

/// A report of rows that were computed before, with their counts from the source on.
fn with_served_counts(mut report: RunReport, counts: &RowCounts) -> RunReport {
    for output in &mut report.outputs {
        let mut changes = counts.changes.clone();
        changes.add(&output.sum.changes);
        let sum = RowSum {
            rows_in: counts.input,
            changes,
        };
        output.sum = OutputSum::new(sum, output.sum.rows_out);
        output.rows_without_history += counts.without_history;
        output.duplicates += counts.duplicates;
    }
    report
}

/// True if the only sink is of the served step, or of a step that was added behind it.
fn serves_sink(pipeline: &Pipeline, artifact: &Artifact, manifest: &ServingManifest) -> bool {
    let [sink] = pipeline.sinks.as_slice() else {
        return false;
    };
    if sink.split.is_some() {
        return false;
    }
    if sink.from == manifest.node {
        return true;
    }
    let is_added = artifact.pipeline.node(&sink.from).is_none();
    let node = pipeline.node(&sink.from).filter(|_| is_added);
    node.is_some_and(|node| node.input == NodeInput::From(manifest.node.clone()))
}

/// A temporary file of computed rows.
struct ServedWriter {
    writer: ArrowWriter<File>,
    path: String,
}

impl ServedWriter {
    /// Format of the file.
    const FORMAT: &'static str = "parquet";

    fn create(path: &Path, schema: SchemaRef) -> Result<ServedWriter> {
        let path_text = path.display().to_string();
        let file = File::create(path).map_err(|error| {
            Fault::disk("a temporary file cannot be written", error).file(&path_text)
        })?;
        let writer = ArrowWriter::try_new(file, schema, None)
            .map_err(|error| Fault::internal("computed rows cannot be stored").cause(error))?;
        Ok(ServedWriter {
            writer,
            path: path_text,
        })
    }

    fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        self.writer.write(rows).map_err(|error| {
            Fault::new(codes::STORAGE, "a temporary file cannot be written")
                .file(&self.path)
                .cause(error)
        })
    }

    fn finish(self) -> Result<()> {
        let path = self.path;
        let closed = self.writer.close();
        closed.map(drop).map_err(|error| {
            Fault::new(codes::STORAGE, "a temporary file cannot be written")
                .file(path)
                .cause(error)
        })
    }
}
