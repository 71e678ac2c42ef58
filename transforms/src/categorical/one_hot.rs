//! `one_hot`: a category as an indicator vector.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, FixedSizeListArray, Float32Array, StringArray};
use arrow::datatypes::{DataType, Field, UInt32Type};
use forebay_analyze::{TokenVocabulary as Tally, VocabularyOrder};
use forebay_contract::{CategoryNumbers, PortableMap};
use forebay_model::{Fault, Result, StringColumn, codes};
use forebay_plan::{
    AnalyzerRequest, BindScope, ColumnSelector, ConfiguredTransform, LoweredMap, MapOp, PlanOp,
    RowMark, Transform, admit_output,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::{
    TokenIndex, bad_value, finding_at, gather_ids, mark_numberless, output_name,
    refuse_repeated_categories,
};

/// The widest vector: beyond it, ids and an embedding serve better.
pub(crate) const WIDTH_MAX: usize = 65_536;

/// The most columns of learned categories: a plan lists each of them.
const LEARNED_COLUMNS_MAX: usize = 1_000;

/// A category as a vector with a single 1.
///
/// In: strings, integers, booleans, dates (as their text). Out: a fixed-size list of `float32` whose
/// width is the number of categories, or one `float32` column `<column>_<category>` each. Null and
/// unknown values give zeros; the empty string is a category. More than 65,536 are a fault.
/// Columns are known before anything is learned. So columns of learned categories are numbered:
/// with `columns_max: 3`, `<column>_0` to `<column>_2` are of the three most frequent categories, in
/// byte order, and columns beyond the categories are 0. `forebay show` lists them in that order.
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
    /// One vector, or one column for each category: a listed one, or one of `columns_max`.
    #[serde(default, rename = "as")]
    pub shape: OneHotLayout,
    /// Number of columns that `as: columns` gives categories which are not listed: at most 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns_max: Option<usize>,
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
    /// One `float32` column for each category, beside the input; needs `categories` or `columns_max`.
    Columns,
}

impl ConfiguredTransform for OneHot {
    const NAME: &'static str = "one_hot";
}

impl Transform for OneHot {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        refuse_repeated_categories(self.categories.as_deref())?;
        check_columns_max(self.columns_max, self.shape, self.categories.is_some())?;
        let fields = scope.typed_columns(&self.columns, "a category", |field| {
            !field.data_type().is_nested()
        })?;
        let mut ops = Vec::new();
        for field in fields {
            match (self.shape, &self.categories) {
                (OneHotLayout::Columns, None) => {
                    let columns_max = self.columns_max.ok_or_else(unknown_columns_fault)?;
                    ops.push(self.learned_columns_op(field, columns_max));
                }
                (OneHotLayout::Columns, Some(categories)) => {
                    ops.extend(self.listed_columns_ops(field, categories)?);
                }
                (OneHotLayout::Vector, categories) => {
                    ops.push(self.vector_op(field, categories.as_deref())?)
                }
            }
        }
        Ok(ops)
    }
}

/// Refuses a number of columns that is out of range or has no use.
pub(super) fn check_columns_max(
    columns_max: Option<usize>,
    shape: OneHotLayout,
    has_categories: bool,
) -> Result<()> {
    let Some(columns_max) = columns_max else {
        return Ok(());
    };
    if shape != OneHotLayout::Columns || has_categories {
        return Err(bad_value(
            "`columns_max` goes with `as: columns` and without `categories`",
        ));
    }
    if !(1..=LEARNED_COLUMNS_MAX).contains(&columns_max) {
        return Err(bad_value(format!(
            "`columns_max` must be between 1 and {LEARNED_COLUMNS_MAX}"
        )));
    }
    Ok(())
}

/// The fault for columns of categories that are learned, without their number.
pub(super) fn unknown_columns_fault() -> Fault {
    bad_value(
        "`as: columns` needs the list of `categories`, or `columns_max` for learned ones, so that \
         columns are known",
    )
}

/// Names of the numbered columns of learned categories.
pub(super) fn numbered_fields(
    column: &str,
    columns_max: usize,
    suffix: &Option<String>,
) -> Vec<Field> {
    let mut fields = Vec::with_capacity(columns_max);
    for number in 0..columns_max {
        let name = output_name(&format!("{column}_{number}"), suffix);
        fields.push(Field::new(name, DataType::Float32, false));
    }
    fields
}

impl OneHotLayout {
    /// True for the layout that specs without one have.
    pub(super) fn is_vector(&self) -> bool {
        *self == OneHotLayout::Vector
    }
}

impl OneHot {
    /// The analyzer of categories, in byte order.
    fn tally(&self, top_k: Option<usize>) -> Tally {
        Tally {
            min_count: self.min_count.max(1),
            top_k,
            order: VocabularyOrder::Value,
        }
    }

    /// One column for each of the categories. The first one counts the values that are not listed.
    fn listed_columns_ops(&self, field: &Field, categories: &[String]) -> Result<Vec<PlanOp>> {
        let mut ops = Vec::with_capacity(categories.len());
        for (number, category) in categories.iter().enumerate() {
            let listed = if number == 0 {
                let tokens = StringArray::from(categories.to_vec());
                Some(TokenIndex::new(Arc::new(tokens))?)
            } else {
                None
            };
            ops.push(indicator_op(field, category, listed, &self.suffix));
        }
        Ok(ops)
    }

    /// Numbered columns of the most frequent categories.
    fn learned_columns_op(&self, field: &Field, columns_max: usize) -> PlanOp {
        let reads = [field.name()];
        let top_k = self
            .top_k
            .map_or(columns_max, |top_k| top_k.min(columns_max));
        let map = MapOp::fitted(
            reads,
            numbered_fields(field.name(), columns_max, &self.suffix),
            [AnalyzerRequest::new(self.tally(Some(top_k)), reads).row_columns(["token"])],
            move |findings| {
                let tokens = Arc::new(TokenIndex::from_finding(finding_at(findings, 0)?)?);
                let all_tokens = tokens.clone();
                let columns = LoweredMap::new(move |inputs, _| {
                    indicator_columns(&inputs[0], &tokens, columns_max)
                });
                Ok(columns.portable(move || {
                    let mut categories = all_tokens.to_texts().into_iter();
                    let mut maps = Vec::with_capacity(columns_max);
                    for _ in 0..columns_max {
                        maps.push(portable_indicator(categories.next()));
                    }
                    PortableMap::Columns(maps)
                }))
            },
        );
        PlanOp::Map(map.marking([RowMark::Unknown]))
    }

    fn vector_op(&self, field: &Field, categories: Option<&[String]>) -> Result<PlanOp> {
        let name = output_name(field.name(), &self.suffix);
        let reads = [field.name()];
        if let Some(categories) = categories {
            let tokens = Arc::new(TokenIndex::new(Arc::new(StringArray::from(
                categories.to_vec(),
            )))?);
            let output = vector_field(&name, tokens.len())?;
            let map = MapOp::new(reads, [output], move |inputs, _| {
                one_hot_vectors(&inputs[0], &tokens)
            });
            let map = map.portable(PortableMap::Indicators(categories.to_vec()));
            return Ok(PlanOp::Map(map.marking([RowMark::Unknown])));
        }
        let tally = self.tally(self.top_k);
        let output = vector_field(&name, 0)?;
        let map = MapOp::fitted(
            reads,
            [output],
            [AnalyzerRequest::new(tally, reads).row_columns(["token"])],
            move |findings| {
                let tokens = Arc::new(TokenIndex::from_finding(finding_at(findings, 0)?)?);
                let all_tokens = tokens.clone();
                let field = vector_field(&name, tokens.len())?;
                let vectors =
                    LoweredMap::new(move |inputs, _| one_hot_vectors(&inputs[0], &tokens));
                let vectors = vectors.fields(vec![field]);
                Ok(vectors.portable(move || PortableMap::Indicators(all_tokens.to_texts())))
            },
        );
        Ok(PlanOp::Map(map.marking([RowMark::Unknown])))
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

/// A vector for each row, and marks of the values that are no category.
fn one_hot_vectors(column: &ArrayRef, tokens: &TokenIndex) -> Result<Vec<ArrayRef>> {
    let width = tokens.len();
    let ids = gather_ids::<UInt32Type>(&StringColumn::of(column)?, |text| Ok(tokens.find(text)))?;
    admit_output(size_of::<f32>() * width * column.len())?;
    let mut values = vec![0f32; column.len() * width];
    for (row, id) in ids.iter().enumerate() {
        if let Some(id) = id {
            values[row * width + id as usize] = 1.0;
        }
    }
    let vectors = vector_array(values, width, column.len())?;
    Ok(vec![vectors, mark_numberless(column, &ids)])
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

/// A column for each of the first tokens, columns of zeros behind them, and marks of the values that are no category.
fn indicator_columns(
    column: &ArrayRef,
    tokens: &TokenIndex,
    columns: usize,
) -> Result<Vec<ArrayRef>> {
    let ids = gather_ids::<UInt32Type>(&StringColumn::of(column)?, |text| Ok(tokens.find(text)))?;
    admit_output(size_of::<f32>() * columns * column.len())?;
    let mut indicators = vec![vec![0f32; column.len()]; columns];
    for (row, id) in ids.iter().enumerate() {
        let indicator = id.and_then(|id| indicators.get_mut(id as usize));
        if let Some(indicator) = indicator {
            indicator[row] = 1.0;
        }
    }
    let mut outputs = float_columns(indicators);
    outputs.push(mark_numberless(column, &ids));
    Ok(outputs)
}

/// Columns of numbers as arrays.
pub(super) fn float_columns(columns: Vec<Vec<f32>>) -> Vec<ArrayRef> {
    let mut arrays: Vec<ArrayRef> = Vec::with_capacity(columns.len());
    for column in columns {
        arrays.push(Arc::new(Float32Array::from(column)));
    }
    arrays
}

/// 1 for one category and 0 for others, in terms that exports have; 0 for all without a category.
fn portable_indicator(category: Option<String>) -> PortableMap {
    let tokens: Vec<String> = category.into_iter().collect();
    PortableMap::CategoryNumbers(CategoryNumbers {
        numbers: vec![1.0; tokens.len()],
        tokens,
        default: 0.0,
        missing: 0.0,
    })
}

/// The column of a category. It counts the values that are not among the `listed` categories.
fn indicator_op(
    field: &Field,
    category: &str,
    listed: Option<TokenIndex>,
    suffix: &Option<String>,
) -> PlanOp {
    let name = output_name(&format!("{}_{category}", field.name()), suffix);
    let category = category.to_owned();
    let form = portable_indicator(Some(category.clone()));
    let counts_unlisted = listed.is_some();
    let map = MapOp::new(
        [field.name()],
        [Field::new(name, DataType::Float32, false)],
        move |inputs, _| {
            let texts = StringColumn::of(&inputs[0])?;
            let indicators =
                texts.map(|text| f32::from(u8::from(text == Some(category.as_str()))))?;
            let mut outputs: Vec<ArrayRef> = vec![Arc::new(Float32Array::from(indicators))];
            if let Some(listed) = &listed {
                let unlisted =
                    texts.map(|text| text.is_some_and(|text| listed.find(text).is_none()))?;
                outputs.push(Arc::new(BooleanArray::from(unlisted)));
            }
            Ok(outputs)
        },
    );
    let map = map.portable(form);
    if counts_unlisted {
        return PlanOp::Map(map.marking([RowMark::Unknown]));
    }
    PlanOp::Map(map)
}
