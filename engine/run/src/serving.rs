//! An artifact ready to serve: the same operations and findings, over batches or single rows.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use forebay_commit::Artifact;
use forebay_model::{
    Chunk, Fault, Result, TextRules, codes, logical_type, plain_integers, type_words,
};
use forebay_plan::{
    BaseDataset, BoundPipeline, Carry, ChainContext, ChainWindow, ColumnTap, OpChain, OpStream,
    PlanOp, SqlCompiler, TransformRegistry, WindowRowOrder, slice_for_columns, unknown_column,
};
use serde_json::{Map, Value};

use crate::served_rows::without_learning_filters;

/// Applies what an artifact learned to rows of one source.
pub struct ServingModel {
    chain: OpChain,
    input: SchemaRef,
    output: SchemaRef,
    /// All columns of the source.
    source: SchemaRef,
    /// For each column that comes out, whether it is one of the source that no step uses.
    passed: Vec<bool>,
    /// The steps that may remove rows, in order: each has a tap behind that of the columns.
    removing: Vec<RemovingStep>,
}

/// A step that may remove rows.
struct RemovingStep {
    /// Such as `features.filter`.
    label: String,
    /// The condition of a filter.
    condition: Option<String>,
}

/// The result of a batch.
struct AppliedBatch {
    rows: RecordBatch,
    /// Rows behind each step that may remove some.
    rows_after: Vec<usize>,
}

impl ServingModel {
    /// Makes the columns of `node` (by default: of what the first sink writes) from rows of its
    /// source. Steps that need all rows at once cannot be applied to batches.
    pub fn new(
        artifact: &Artifact,
        registry: &TransformRegistry,
        sql: &SqlCompiler,
        node: Option<&str>,
    ) -> Result<ServingModel> {
        // Rows that are scored pass filters for learning.
        let served = Artifact {
            pipeline: without_learning_filters(&artifact.pipeline),
            ..artifact.clone()
        };
        let pipeline = &served.pipeline;
        let bound = served.bind(registry, sql)?;
        let last = pipeline.sinks.first().map(|sink| sink.from.as_str());
        let last = last.or_else(|| pipeline.nodes.last().map(|node| node.name.as_str()));
        let name = node
            .or(last)
            .ok_or_else(|| Fault::new(codes::UNKNOWN_NAME, "the artifact has no step to apply"))?;
        let flow = bound.flows.get(name).ok_or_else(|| {
            Fault::new(
                codes::UNKNOWN_NAME,
                format!("the artifact has no step `{name}`"),
            )
        })?;
        let [stream] = flow.streams.as_slice() else {
            return Err(Fault::new(
                codes::UNSUPPORTED,
                format!("`{name}` is a union: apply its inputs one by one"),
            ));
        };
        if let BaseDataset::Gathered(op) = &bound.bases[stream.base] {
            let label = &bound.ops[*op].label;
            let message = format!(
                "`{label}` needs all rows at once, so `{name}` cannot be applied to a batch"
            );
            return Err(Fault::new(codes::UNSUPPORTED, message)
                .hint("use `forebay apply` on a whole dataset"));
        }
        let columns: Vec<String> = flow
            .schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect();
        let (ops, base_columns) = slice_for_columns(
            &bound,
            stream,
            &columns.iter().map(String::as_str).collect::<Vec<_>>(),
        );
        let passed = passed_columns(&bound, stream, &columns);
        let want = ColumnTap {
            after: stream.ops.len(),
            columns,
            part: None,
            marks_unfound: false,
        };
        let finding = |ask: usize| {
            let learned = artifact
                .findings
                .get(ask)
                .map(|learned| learned.finding.clone());
            learned.ok_or_else(|| Fault::new(codes::STATE_VERSION, "the artifact lacks a finding"))
        };
        let told = ChainContext {
            finding: &finding,
            row_order: &|_| WindowRowOrder::Time,
        };
        let mut wants = vec![want];
        let mut removing = Vec::new();
        for position in &ops {
            let op = &bound.ops[stream.ops[*position]];
            let condition = match &op.op {
                PlanOp::Keep(keep) => keep.condition.as_ref().map(ToString::to_string),
                PlanOp::Expand(_) => None,
                _ => continue,
            };
            wants.push(ColumnTap {
                after: position + 1,
                columns: Vec::new(),
                part: None,
                marks_unfound: false,
            });
            removing.push(RemovingStep {
                label: op.label.clone(),
                condition,
            });
        }
        let chain = OpChain::new(&bound, stream, &ops, &base_columns, &wants, told)?;
        if let Some(ChainWindow { op, .. }) = chain.windows().first() {
            let label = &bound.ops[*op].label;
            let needs = match &bound.ops[*op].op {
                PlanOp::Join(join) => format!("the rows of `{}`", join.other),
                _ => "the rows before".to_owned(),
            };
            let message =
                format!("`{label}` needs {needs}, so `{name}` cannot be applied to a batch");
            return Err(Fault::new(codes::UNSUPPORTED, message)
                .hint("use `forebay apply` on a dataset with its history"));
        }
        let base = &bound.base_schemas[stream.base];
        let input = base_columns
            .iter()
            .map(|name| base.field_with_name(name).cloned());
        let input = Arc::new(Schema::new(input.collect::<Result<Vec<Field>, _>>()?));
        let output = chain
            .fields(0)
            .iter()
            .map(|field| field.clone().with_nullable(true));
        let output = Arc::new(Schema::new(output.collect::<Vec<_>>()));
        Ok(ServingModel {
            chain,
            input,
            output,
            source: base.clone(),
            passed,
            removing,
        })
    }

    /// The columns that batches must have, with logical types; others are ignored. Those of
    /// [`ServingModel::optional_inputs`] may be absent.
    pub fn input(&self) -> &SchemaRef {
        &self.input
    }

    /// The columns that come out.
    pub fn output(&self) -> &SchemaRef {
        &self.output
    }

    /// The inputs that no step uses, such as a label: a batch without one gives a result without it.
    pub fn optional_inputs(&self) -> Vec<&str> {
        let outputs = self.output.fields().iter().zip(&self.passed);
        outputs
            .filter(|(_, passed)| **passed)
            .map(|(field, _)| field.name().as_str())
            .collect()
    }

    /// The columns that come out of a batch with these.
    pub fn output_of(&self, columns: &Schema) -> Result<SchemaRef> {
        Ok(Arc::new(self.output.project(&self.outputs_of(columns))?))
    }

    fn outputs_of(&self, columns: &Schema) -> Vec<usize> {
        let is_made = |index: &usize| {
            !self.passed[*index] || columns.index_of(self.output.field(*index).name()).is_ok()
        };
        (0..self.output.fields().len()).filter(is_made).collect()
    }

    /// Applies to a batch. Rows that the pipeline filters are missing in the result.
    pub fn apply(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        Ok(self.apply_steps(batch)?.rows)
    }

    fn apply_steps(&self, batch: &RecordBatch) -> Result<AppliedBatch> {
        let optional = self.optional_inputs();
        let mut columns: Vec<ArrayRef> = Vec::new();
        for field in self.input.fields() {
            columns.push(match batch.column_by_name(field.name()) {
                Some(column) => fit_type(column, field)?,
                // Nothing is made of it, and it is left out below.
                None if optional.contains(&field.name().as_str()) => {
                    new_null_array(field.data_type(), batch.num_rows())
                }
                None => {
                    let message = format!("the batch has no column `{}`", field.name());
                    return Err(Fault::new(codes::UNKNOWN_COLUMN, message));
                }
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let narrow = Schema::new(
            self.input
                .fields()
                .iter()
                .zip(&columns)
                .map(|(field, column)| Field::new(field.name(), column.data_type().clone(), true))
                .collect::<Vec<_>>(),
        );
        let chunk = Chunk::of(RecordBatch::try_new_with_options(
            Arc::new(narrow),
            columns,
            &options,
        )?);
        let mut result = None;
        let mut rows_after = vec![0; self.removing.len()];
        self.chain
            .run(&[chunk], &mut Carry::default(), &mut |tap, input| {
                if let Some(step) = tap.checked_sub(1) {
                    rows_after[step] = input.rows;
                    return Ok(());
                }
                let columns = input.columns.iter().zip(self.output.fields());
                let columns =
                    columns.map(|(column, field)| arrow::compute::cast(column, field.data_type()));
                let options = RecordBatchOptions::new().with_row_count(Some(input.rows));
                let columns = columns.collect::<Result<Vec<_>, _>>()?;
                result = Some(RecordBatch::try_new_with_options(
                    self.output.clone(),
                    columns,
                    &options,
                )?);
                Ok(())
            })?;
        let result = result.ok_or_else(|| Fault::internal("a model gave no result"))?;
        Ok(AppliedBatch {
            rows: result.project(&self.outputs_of(batch.schema_ref()))?,
            rows_after,
        })
    }

    /// The fault for a row that a step removes.
    fn removed_fault(&self, rows_after: &[usize]) -> Fault {
        let mut steps = self.removing.iter().zip(rows_after);
        let Some((step, _)) = steps.find(|(_, rows)| **rows == 0) else {
            return Fault::internal("a row is gone that no step removed");
        };
        let message = match &step.condition {
            Some(condition) => {
                format!("the filter `{condition}` of `{}` takes the row", step.label)
            }
            None => format!("`{}` takes the row", step.label),
        };
        Fault::new(codes::FILTERED, message).step(&step.label).hint(
            "score no such rows, or say that the filter is for learning: `filter: { sql: ..., when: learning }`",
        )
    }

    /// Refuses numbers and truth values for columns of texts, which the decoder would take as texts.
    fn refuse_values_of_other_kinds(&self, row: &Map<String, Value>) -> Result<()> {
        for field in self.input.fields() {
            let Some(value) = row.get(field.name()) else {
                continue;
            };
            let is_text = logical_type(field.data_type()) == DataType::Utf8;
            if is_text && (value.is_number() || value.is_boolean()) {
                let message = format!("`{}` is text, and the row has {value}", field.name());
                return Err(Fault::new(codes::COLUMN_TYPE, message).column(field.name()));
            }
        }
        Ok(())
    }

    /// Applies to one row given as JSON; absent and null fields are null. A field that the source does not have is a
    /// fault, and so is a row that a step of the pipeline removes ([`codes::FILTERED`]): the fault names the filter.
    pub fn apply_row(&self, row: &Map<String, Value>) -> Result<Map<String, Value>> {
        if let Some(unknown) = row.keys().find(|name| self.source.index_of(name).is_err()) {
            return Err(unknown_column(unknown, &self.source));
        }
        self.refuse_values_of_other_kinds(row)?;
        let mut decoder = arrow::json::ReaderBuilder::new(Arc::new(row_schema(&self.input)))
            .with_coerce_primitive(true)
            .build_decoder()?;
        decoder.serialize(&[row])?;
        let batch = match decoder.flush()? {
            Some(batch) => batch,
            None => {
                let nulls = self
                    .input
                    .fields()
                    .iter()
                    .map(|field| new_null_array(field.data_type(), 1));
                RecordBatch::try_new(Arc::new(nullable(&self.input)), nulls.collect())?
            }
        };
        let AppliedBatch { rows, rows_after } = self.apply_steps(&batch)?;
        if rows.num_rows() == 0 {
            return Err(self.removed_fault(&rows_after));
        }
        let mut text = Vec::new();
        let mut writer = arrow::json::WriterBuilder::new()
            .with_explicit_nulls(true)
            .build::<_, arrow::json::writer::LineDelimited>(&mut text);
        writer.write(&rows.slice(0, 1))?;
        writer.finish()?;
        serde_json::from_slice(&text)
            .map_err(|error| Fault::internal("a row cannot be read back").cause(error))
    }
}

/// For each of these columns of a stream, whether it is a column of the source that no operation uses.
fn passed_columns(bound: &BoundPipeline, stream: &OpStream, columns: &[String]) -> Vec<bool> {
    // The operations of no column in particular: filters.
    let (common, filtered_by) = slice_for_columns(bound, stream, &[]);
    let slices: Vec<_> = columns
        .iter()
        .map(|column| slice_for_columns(bound, stream, &[column.as_str()]))
        .collect();
    let is_unchanged = |column: &String, (ops, needed): &(Vec<usize>, Vec<String>)| {
        *ops == common && needed.contains(column) && !filtered_by.contains(column)
    };
    let unchanged: Vec<bool> = columns
        .iter()
        .zip(&slices)
        .map(|(column, slice)| is_unchanged(column, slice))
        .collect();
    let is_used = |column: &String| {
        let others = slices
            .iter()
            .zip(columns)
            .filter(|(_, other)| *other != column);
        others
            .into_iter()
            .any(|((_, needed), _)| needed.contains(column))
    };
    columns
        .iter()
        .zip(unchanged)
        .map(|(column, unchanged)| unchanged && !is_used(column))
        .collect()
}

/// The columns of one row as they are decoded: numbers and times as texts, which are then read as those of files are.
fn row_schema(schema: &Schema) -> Schema {
    let decoded = |field: &Arc<Field>| {
        let of = field.data_type();
        let is_text = of.is_integer()
            || matches!(of, DataType::Float32 | DataType::Float64)
            || matches!(of, DataType::Date32 | DataType::Timestamp(..));
        let of = if is_text { &DataType::Utf8 } else { of };
        Field::new(field.name(), of.clone(), true)
    };
    Schema::new(schema.fields().iter().map(decoded).collect::<Vec<_>>())
}

/// Texts as values of a column's type.
fn read_texts(column: &ArrayRef, field: &Field) -> Result<ArrayRef> {
    let texts = arrow::compute::cast(column, &DataType::Utf8)?;
    let texts = texts.as_string::<i32>();
    let whole = field
        .data_type()
        .is_integer()
        .then(|| plain_integers(texts));
    let texts = whole.as_ref().unwrap_or(texts);
    let rules = TextRules::declared();
    rules.read_all(texts, field.data_type()).map_err(|row| {
        let message = format!(
            "`{}`: {}",
            field.name(),
            rules.problem(texts.value(row), field.data_type())
        );
        Fault::new(codes::COLUMN_TYPE, message).column(field.name())
    })
}

fn nullable(schema: &Schema) -> Schema {
    Schema::new(
        schema
            .fields()
            .iter()
            .map(|field| field.as_ref().clone().with_nullable(true))
            .collect::<Vec<_>>(),
    )
}

/// The column as its logical type; numbers may be widened or narrowed where nothing is lost.
fn fit_type(column: &ArrayRef, field: &Field) -> Result<ArrayRef> {
    if logical_type(column.data_type()) == *field.data_type() {
        return Ok(column.clone());
    }
    if logical_type(column.data_type()) == DataType::Utf8 {
        return read_texts(column, field);
    }
    let strict = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    cast_with_options(column, field.data_type(), &strict).map_err(|error| {
        let message = format!(
            "`{}` is {}, not {}",
            field.name(),
            type_words(column.data_type()),
            type_words(field.data_type())
        );
        Fault::new(codes::COLUMN_TYPE, message)
            .column(field.name())
            .cause(error)
    })
}
