//! `one_hot`: a category as an indicator vector.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, FixedSizeListArray, Float32Array, StringArray};
use arrow::datatypes::{DataType, Field, UInt32Type};
use forebay_analyze::{TokenVocabulary as Tally, VocabularyOrder};
use forebay_model::{Fault, Result, StringColumn, codes};
use forebay_plan::{
    AnalyzerRequest, BindScope, ColumnSelector, ConfiguredTransform, LoweredMap, MapOp, PlanOp,
    Transform,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::{
    TokenIndex, bad_value, finding_at, gather_ids, output_name, refuse_repeated_categories,
};

/// The widest vector: beyond it, ids and an embedding serve better.
pub(crate) const WIDTH_MAX: usize = 65_536;

/// A category as a vector with a single 1.
///
/// In: text, integers, booleans, dates (as their text). Out: a fixed-size list of `float32` whose
/// width is the number of categories, or one `float32` column `<column>_<category>` each. Null and
/// unknown values give zeros; the empty string is a category. More than 65,536 are a fault.
/// Categories are those seen, in byte order as in scikit-learn, or those listed, in their order.
/// State: the distinct values with exact counts, spilled beyond the budget; none where they are
/// listed. Nothing seen: the width is 0.
///
/// ```yaml
/// - one_hot: { columns: [category] }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn one_hot(columns), example = r#"one_hot(["state"]).categories(["CA", "TX", "WI"])"#)]
pub struct OneHot {
    /// Columns of categories.
    pub columns: ColumnSelector,
    /// The categories, where they are known; else they are learned.
    #[serde(default)]
    pub categories: Option<Vec<String>>,
    /// Categories seen less often give zeros.
    #[serde(default = "one")]
    pub min_count: u64,
    /// At most so many categories: the most frequent ones, of equally frequent ones the first in byte order.
    #[serde(default)]
    pub top_k: Option<usize>,
    /// One vector, or one column for each listed category.
    #[serde(default, rename = "as")]
    pub shape: OneHotLayout,
    /// Writes `<column><suffix>` instead of replacing the column.
    #[serde(default)]
    pub suffix: Option<String>,
}

fn one() -> u64 {
    1
}

/// How the result is laid out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OneHotLayout {
    /// One fixed-size list of `float32`.
    #[default]
    Vector,
    /// One `float32` column for each category, beside the input; needs `categories`.
    Columns,
}

impl ConfiguredTransform for OneHot {
    const NAME: &'static str = "one_hot";
}

impl Transform for OneHot {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        refuse_repeated_categories(self.categories.as_deref())?;
        let fields = scope.typed_columns(&self.columns, "a category", |field| {
            !field.data_type().is_nested()
        })?;
        let mut ops = Vec::new();
        for field in fields {
            match (self.shape, &self.categories) {
                (OneHotLayout::Columns, None) => {
                    return Err(bad_value(
                        "`as: columns` needs the list of `categories`, so that columns are known",
                    ));
                }
                (OneHotLayout::Columns, Some(categories)) => {
                    ops.extend(
                        categories
                            .iter()
                            .map(|category| indicator_op(field, category, &self.suffix)),
                    );
                }
                (OneHotLayout::Vector, categories) => {
                    ops.push(self.vector_op(field, categories.as_deref())?)
                }
            }
        }
        Ok(ops)
    }
}

impl OneHot {
    fn vector_op(&self, field: &Field, categories: Option<&[String]>) -> Result<PlanOp> {
        let name = output_name(field.name(), &self.suffix);
        let reads = [field.name()];
        if let Some(categories) = categories {
            let tokens = Arc::new(TokenIndex::new(Arc::new(StringArray::from(
                categories.to_vec(),
            )))?);
            let output = vector_field(&name, tokens.len())?;
            return Ok(PlanOp::Map(MapOp::new(
                reads,
                [output],
                move |inputs, _| {
                    inputs
                        .iter()
                        .map(|column| one_hot_vectors(column, &tokens))
                        .collect()
                },
            )));
        }
        let order = VocabularyOrder::Value;
        let tally = Tally {
            min_count: self.min_count.max(1),
            top_k: self.top_k,
            order,
        };
        let output = vector_field(&name, 0)?;
        Ok(PlanOp::Map(MapOp::fitted(
            reads,
            [output],
            [AnalyzerRequest::new(tally, reads)],
            move |findings| {
                let tokens = TokenIndex::from_finding(finding_at(findings, 0)?)?;
                let field = vector_field(&name, tokens.len())?;
                Ok(
                    LoweredMap::unary(move |column| one_hot_vectors(column, &tokens))
                        .fields(vec![field]),
                )
            },
        )))
    }
}

/// The field of a vector of `float32`.
pub(crate) fn vector_field(name: &str, width: usize) -> Result<Field> {
    if width > WIDTH_MAX {
        return Err(Fault::new(
            codes::LIMIT,
            format!("`{name}` would have {width} categories, more than {WIDTH_MAX}"),
        )
        .hint("set `top_k` or `min_count`, or use `vocabulary`"));
    }
    let item = Arc::new(Field::new_list_field(DataType::Float32, false));
    Ok(Field::new(
        name,
        DataType::FixedSizeList(item, width as i32),
        false,
    ))
}

fn one_hot_vectors(column: &ArrayRef, tokens: &TokenIndex) -> Result<ArrayRef> {
    let width = tokens.len();
    let ids = gather_ids::<UInt32Type>(&StringColumn::of(column)?, |text| Ok(tokens.find(text)))?;
    let mut values = vec![0f32; column.len() * width];
    for (row, id) in ids.iter().enumerate() {
        if let Some(id) = id {
            values[row * width + id as usize] = 1.0;
        }
    }
    vector_array(values, width, column.len())
}

/// Rows of `width` numbers as one array.
pub(crate) fn vector_array(values: Vec<f32>, width: usize, rows: usize) -> Result<ArrayRef> {
    let item = Arc::new(Field::new_list_field(DataType::Float32, false));
    let values = Arc::new(Float32Array::from(values));
    Ok(Arc::new(FixedSizeListArray::try_new_with_length(
        item,
        width as i32,
        values,
        None,
        rows,
    )?))
}

fn indicator_op(field: &Field, category: &str, suffix: &Option<String>) -> PlanOp {
    let name = output_name(&format!("{}_{category}", field.name()), suffix);
    let category = category.to_owned();
    PlanOp::Map(MapOp::new(
        [field.name()],
        [Field::new(name, DataType::Float32, false)],
        move |inputs, _| {
            let each = inputs.iter().map(|column| {
                let of_text =
                    |text: Option<&str>| f32::from(u8::from(text == Some(category.as_str())));
                Ok(
                    Arc::new(Float32Array::from(StringColumn::of(column)?.map(of_text)?))
                        as ArrayRef,
                )
            });
            each.collect()
        },
    ))
}
