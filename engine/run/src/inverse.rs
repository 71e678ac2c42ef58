//! The way back: values of a source from the columns that an artifact made of them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema};
use forebay_commit::Artifact;
use forebay_contract::{NumberExpr, PortableMap, PortableStep, PortableSteps, WayBack};
use forebay_model::{Fault, Result, codes};
use forebay_plan::{SqlCompiler, TransformRegistry, unknown_column};

use crate::portable_artifact::portable_artifact_steps;
use crate::serving::served_node;

/// Computes columns of a source from columns that an artifact made of them: numbers from scaled ones, categories from
/// ids.
///
/// A column can be inverted if each step on its way computes one column from one column and can be undone: scaling by
/// moments or quantiles, `log1p`, `power`, `normal_quantiles`, `g_and_h`, ids of `vocabulary` and `ordinal`, and columns under
/// new names.
pub struct InverseColumns {
    columns: Vec<InverseColumn>,
}

/// A column with the steps that lead back, the last one first.
struct InverseColumn {
    made_column: String,
    source_field: Field,
    steps: Vec<InverseStep>,
}

enum InverseStep {
    /// The number that this expression was computed from.
    Number(NumberExpr),
    /// The number that this function gives.
    WayBack(WayBack),
    /// The text of each id; other ids have none.
    Texts(HashMap<i64, String>),
}

impl InverseColumns {
    /// The way back from columns of `node` (by default: those that are served, else of the first sink's rows). Fails for
    /// a column that the step has not, that cannot be inverted, or that is made of the same one as another.
    pub fn new(
        artifact: &Artifact,
        registry: &TransformRegistry,
        sql: &SqlCompiler,
        node: Option<&str>,
        columns: &[String],
    ) -> Result<InverseColumns> {
        let node = served_node(artifact, node)?;
        let bound = artifact.bind(registry, sql)?;
        let Some(flow) = bound.flows.get(&node) else {
            let message = format!("the artifact has no step `{node}`");
            return Err(Fault::new(codes::UNKNOWN_NAME, message));
        };
        if columns.is_empty() {
            return Err(Fault::new(codes::BAD_VALUE, "there is no column to invert"));
        }
        let mut inverses = Vec::with_capacity(columns.len());
        let mut sources = BTreeSet::new();
        for column in columns {
            if flow.schema.field_with_name(column).is_err() {
                return Err(unknown_column(column, &flow.schema));
            }
            let one_column = std::slice::from_ref(column);
            let steps = portable_artifact_steps(artifact, registry, sql, &node, one_column);
            let steps = steps.map_err(|fault| not_invertible(column, fault.message()))?;
            let inverse = InverseColumn::of(column, &steps)?;
            let source = inverse.source_field.name().clone();
            if !sources.insert(source.clone()) {
                let message = format!("two columns are made of `{source}`");
                let fault = Fault::new(codes::BAD_VALUE, message).column(column);
                return Err(fault.hint(format!("leave `{column}` or the other one out")));
            }
            inverses.push(inverse);
        }
        Ok(InverseColumns { columns: inverses })
    }

    /// The fields of the columns of the source, in the order of the columns that they are computed from.
    pub fn fields(&self) -> Vec<Field> {
        let mut fields = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            let field = &column.source_field;
            fields.push(Field::new(field.name(), field.data_type().clone(), true));
        }
        fields
    }

    /// The columns of the source, in the order of the columns that they are computed from. Null and NaN stay, unknown ids
    /// give null, and whole numbers are rounded.
    pub fn apply(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let mut arrays = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            let name = &column.made_column;
            let Some(made_values) = batch.column_by_name(name) else {
                return Err(unknown_column(name, batch.schema_ref()));
            };
            let mut values = made_values.clone();
            for step in &column.steps {
                values = step.apply(&values)?;
            }
            arrays.push(to_type(&values, column.source_field.data_type())?);
        }
        let schema = Schema::new(self.fields());
        Ok(RecordBatch::try_new(Arc::new(schema), arrays)?)
    }
}

impl InverseColumn {
    fn of(column: &str, portable: &PortableSteps) -> Result<InverseColumn> {
        let [source_field] = portable.inputs.as_slice() else {
            return Err(not_invertible(column, "it is made of several columns"));
        };
        let mut steps = Vec::new();
        for step in portable.steps.iter().rev() {
            if let PortableStep::Compute(computed) = step {
                let step = InverseStep::of(&computed.map);
                let reason = format!(
                    "the step that makes `{}` loses values",
                    computed.output.name()
                );
                steps.push(step.ok_or_else(|| not_invertible(column, &reason))?);
            }
        }
        if !steps.is_empty() && source_field.data_type().is_nested() {
            return Err(not_invertible(column, "it is a list"));
        }
        Ok(InverseColumn {
            made_column: column.to_owned(),
            source_field: source_field.clone(),
            steps,
        })
    }
}

impl InverseStep {
    /// `None` for a computation that cannot be undone.
    fn of(map: &PortableMap) -> Option<InverseStep> {
        match map {
            PortableMap::Number(expression) => {
                // Any number shows it: the form of the expression decides.
                expression.solve(0.5)?;
                Some(InverseStep::Number(expression.clone()))
            }
            PortableMap::Ids(ids) => {
                let texts = ids.ids.iter().copied().zip(ids.tokens.iter().cloned());
                Some(InverseStep::Texts(texts.collect()))
            }
            PortableMap::WayBack(way_back) => Some(InverseStep::WayBack(way_back.clone())),
            // Several texts share a bucket, several numbers a bin, and several categories a number.
            PortableMap::Buckets(_)
            | PortableMap::Bins(_)
            | PortableMap::Ranks(_)
            | PortableMap::Texts(_)
            | PortableMap::CategoryNumbers(_)
            | PortableMap::KeyNumbers(_)
            | PortableMap::NumberByKeys(_)
            | PortableMap::Indicators(_)
            | PortableMap::Parts(_)
            | PortableMap::PartIndicators(_)
            | PortableMap::Missing
            | PortableMap::Columns(_) => None,
        }
    }

    fn apply(&self, values: &ArrayRef) -> Result<ArrayRef> {
        match self {
            InverseStep::Number(expression) => {
                map_numbers(values, |value| expression.solve(value).unwrap_or(f64::NAN))
            }
            InverseStep::WayBack(way_back) => map_numbers(values, |value| way_back.solve(value)),
            InverseStep::Texts(texts) => {
                let ids = to_type(values, &DataType::Int64)?;
                let ids = ids.as_primitive::<Int64Type>();
                let of_id = |id: Option<i64>| texts.get(&id?).map(String::as_str);
                let categories: StringArray = ids.iter().map(of_id).collect();
                Ok(Arc::new(categories))
            }
        }
    }
}

fn map_numbers(values: &ArrayRef, of_value: impl Fn(f64) -> f64) -> Result<ArrayRef> {
    let doubles = to_type(values, &DataType::Float64)?;
    let doubles = doubles.as_primitive::<Float64Type>();
    Ok(Arc::new(doubles.unary::<_, Float64Type>(of_value)))
}

/// Values in another type; floats become the nearest whole number of an integer type.
fn to_type(values: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    if values.data_type() == data_type {
        return Ok(values.clone());
    }
    if !(data_type.is_integer() && values.data_type().is_floating()) {
        return Ok(cast(values, data_type)?);
    }
    let doubles = cast(values, &DataType::Float64)?;
    let rounded: Float64Array = doubles.as_primitive::<Float64Type>().unary(f64::round);
    Ok(cast(&rounded, data_type)?)
}

fn not_invertible(column: &str, reason: &str) -> Fault {
    let message = format!("`{column}` cannot be inverted: {reason}");
    Fault::new(codes::UNSUPPORTED, message).column(column).hint(
        "give only columns that scalers without `by`, `log1p`, `power`, `normal_quantiles`, \
             `g_and_h`, `vocabulary` and `ordinal` make",
    )
}
