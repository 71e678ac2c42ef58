//! `multi_hot`: several categories per row as an indicator vector.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, BooleanBufferBuilder, ListBuilder, StringArray,
    StringBuilder,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, UInt32Type};
use forebay_analyze::{TokenVocabulary as Tally, VocabularyOrder};
use forebay_contract::{PartIndicators, PortableMap};
use forebay_model::{Fault, Result, StringColumn, codes, type_words};
use forebay_plan::{
    AnalyzerRequest, BindScope, ColumnSelector, ConfiguredTransform, LoweredMap, MapOp, PlanOp,
    RowMark, Transform, admit_output,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::one_hot::{
    OneHotLayout, WIDTH_MAX, check_columns_max, float_columns, numbered_fields,
    unknown_columns_fault, vector_array, vector_field,
};
use crate::shared::{
    TokenIndex, bad_value, element_field, finding_at, gather_ids, output_name,
    refuse_repeated_categories,
};

/// Several categories per row as a vector with a 1 for each.
///
/// In: lists of strings (or integers, ...: as their text), or strings with a `delimiter`, of which
/// empty parts are skipped. Out: a fixed-size list of `float32`, one place per category, in byte order
/// or as listed, or one `float32` column `<column>_<category>` each. A category that comes twice
/// counts once. Null, empty and unknown give zeros. More than 65,536 categories are a fault. Columns of
/// learned categories are numbered as those of `one_hot`: with `columns_max: 3`, `<column>_0` to
/// `<column>_2` are of the three most frequent categories, in byte order, and columns beyond the
/// categories are 0. State: the distinct values with exact counts, spilled beyond the budget; none
/// where they are listed. Follows scikit-learn's `MultiLabelBinarizer`.
///
/// ```yaml
/// - multi_hot: { columns: [tags] }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn multi_hot(columns), example = r#"multi_hot(["tags"]).delimiter("|").top_k(100)"#)]
pub struct MultiHot {
    /// Columns of lists, or of strings with delimiters.
    pub columns: ColumnSelector,
    /// The text between the parts of a string; where left out, columns have to be lists.
    #[serde(default)]
    pub delimiter: Option<String>,
    /// The categories, where they are known; else they are learned.
    #[serde(default)]
    pub categories: Option<Vec<String>>,
    /// Categories seen less often give zeros.
    #[serde(default = "one")]
    pub min_count: u64,
    /// At most so many categories: the most frequent ones, of equally frequent ones the first in byte order.
    #[serde(default)]
    pub top_k: Option<usize>,
    /// One vector, which is the default, or one column for each category: a listed one, or one of `columns_max`.
    #[serde(
        default,
        rename = "as",
        skip_serializing_if = "OneHotLayout::is_vector"
    )]
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

impl ConfiguredTransform for MultiHot {
    const NAME: &'static str = "multi_hot";
}

impl Transform for MultiHot {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        refuse_repeated_categories(self.categories.as_deref())?;
        check_columns_max(self.columns_max, self.shape, self.categories.is_some())?;
        if self.delimiter.as_ref().is_some_and(String::is_empty) {
            return Err(bad_value("`delimiter` is empty"));
        }
        let mut ops = Vec::new();
        for field in scope.columns(&self.columns)? {
            let name = field.name();
            let is_list = element_field(field.data_type())
                .is_some_and(|element| !element.data_type().is_nested());
            match &self.delimiter {
                None if is_list => ops.push(self.indicator_op(name, name)?),
                Some(delimiter) if field.data_type().is_string() => {
                    // The parts are a column of their own, so that they can be asked for.
                    let parts = format!("__parts_{name}");
                    let list =
                        DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)));
                    let delimiter = delimiter.clone();
                    let form = PortableMap::Parts(delimiter.clone());
                    let split = MapOp::new(
                        [name],
                        [Field::new(&parts, list, true)],
                        move |inputs, _| {
                            inputs
                                .iter()
                                .map(|column| split_text(column, &delimiter))
                                .collect()
                        },
                    );
                    ops.push(PlanOp::Map(split.portable(form)));
                    ops.push(self.indicator_op(name, &parts)?);
                }
                _ => {
                    let expected = if self.delimiter.is_some() {
                        "a string"
                    } else {
                        "a list of strings"
                    };
                    let message = format!(
                        "`{name}` is {}, not {expected}",
                        type_words(field.data_type())
                    );
                    let fault = Fault::new(codes::COLUMN_TYPE, message).column(name);
                    return Err(fault.hint("set `delimiter` for strings, leave it out for lists"));
                }
            }
        }
        if self.delimiter.is_some() {
            ops.push(PlanOp::keep_columns(self.visible_columns(scope, &ops)));
        }
        Ok(ops)
    }
}

impl MultiHot {
    /// Everything but the parts.
    fn visible_columns(&self, scope: &BindScope<'_>, ops: &[PlanOp]) -> Vec<String> {
        let mut names: Vec<String> = scope
            .schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect();
        for op in ops {
            let PlanOp::Map(map) = op else { continue };
            for field in map
                .writes
                .iter()
                .filter(|field| !field.name().starts_with("__parts_"))
            {
                if !names.contains(field.name()) {
                    names.push(field.name().clone());
                }
            }
        }
        names
    }

    /// Writes what a list holds of a column of this name; the list is the column itself, or its parts.
    fn indicator_op(&self, name: &str, list: &str) -> Result<PlanOp> {
        match (self.shape, &self.categories) {
            (OneHotLayout::Vector, _) => self.vector_op(name, list),
            (OneHotLayout::Columns, Some(categories)) => {
                self.listed_columns_op(name, list, categories)
            }
            (OneHotLayout::Columns, None) => {
                let columns_max = self.columns_max.ok_or_else(unknown_columns_fault)?;
                Ok(self.learned_columns_op(name, list, columns_max))
            }
        }
    }

    /// One column for each of the categories, beside the input.
    fn listed_columns_op(&self, name: &str, list: &str, categories: &[String]) -> Result<PlanOp> {
        let count = categories.len();
        if count > WIDTH_MAX {
            let message = format!("`{name}` would have {count} columns, more than {WIDTH_MAX}");
            return Err(Fault::new(codes::LIMIT, message).column(name));
        }
        let tokens = TokenIndex::new(Arc::new(StringArray::from(categories.to_vec())))?;
        let mut fields = Vec::with_capacity(count);
        for category in categories {
            let output = output_name(&format!("{name}_{category}"), &self.suffix);
            fields.push(Field::new(output, DataType::Float32, false));
        }
        let map = MapOp::new([list], fields, move |inputs, _| {
            multi_hot_columns(&inputs[0], &tokens, count)
        });
        let map = map.portable(portable_columns(categories.to_vec(), count));
        Ok(PlanOp::Map(map.marking([RowMark::Unknown])))
    }

    /// Numbered columns of the most frequent categories, beside the input.
    fn learned_columns_op(&self, name: &str, list: &str, columns_max: usize) -> PlanOp {
        let top_k = self
            .top_k
            .map_or(columns_max, |top_k| top_k.min(columns_max));
        let map = MapOp::fitted(
            [list],
            numbered_fields(name, columns_max, &self.suffix),
            [AnalyzerRequest::new(self.tally(Some(top_k)), [list])],
            move |findings| {
                let tokens = Arc::new(TokenIndex::from_finding(finding_at(findings, 0)?)?);
                let all_tokens = tokens.clone();
                let columns = LoweredMap::new(move |inputs, _| {
                    multi_hot_columns(&inputs[0], &tokens, columns_max)
                });
                Ok(columns.portable(move || portable_columns(all_tokens.to_texts(), columns_max)))
            },
        );
        PlanOp::Map(map.marking([RowMark::Unknown]))
    }

    /// The analyzer of categories, in byte order.
    fn tally(&self, top_k: Option<usize>) -> Tally {
        Tally {
            min_count: self.min_count.max(1),
            top_k,
            order: VocabularyOrder::Value,
        }
    }

    fn vector_op(&self, name: &str, list: &str) -> Result<PlanOp> {
        let output = output_name(name, &self.suffix);
        let mut reads = vec![list.to_owned()];
        if list != name {
            // It is read only because it is replaced.
            reads.push(name.to_owned());
        }
        if let Some(categories) = &self.categories {
            let tokens = TokenIndex::new(Arc::new(StringArray::from(categories.clone())))?;
            let field = vector_field(&output, tokens.len())?;
            let form = portable_vector(categories.clone(), reads.len());
            let map = MapOp::new(reads, [field], move |inputs, _| {
                multi_hot_vectors(&inputs[0], &tokens)
            });
            let map = map.portable(form);
            return Ok(PlanOp::Map(map.marking([RowMark::Unknown])));
        }
        let tally = self.tally(self.top_k);
        let field = vector_field(&output, 0)?;
        let read_count = reads.len();
        let map = MapOp::fitted(
            reads,
            [field],
            [AnalyzerRequest::new(tally, [list]).row_columns(["token"])],
            move |findings| {
                let tokens = Arc::new(TokenIndex::from_finding(finding_at(findings, 0)?)?);
                let all_tokens = tokens.clone();
                let field = vector_field(&output, tokens.len())?;
                let vectors =
                    LoweredMap::new(move |inputs, _| multi_hot_vectors(&inputs[0], &tokens));
                let vectors = vectors.fields(vec![field]);
                Ok(vectors.portable(move || portable_vector(all_tokens.to_texts(), read_count)))
            },
        );
        Ok(PlanOp::Map(map.marking([RowMark::Unknown])))
    }
}

/// A vector of categories in terms that exports have.
fn portable_vector(tokens: Vec<String>, read_count: usize) -> PortableMap {
    PortableMap::PartIndicators(PartIndicators { tokens, read_count })
}

/// A column for each of the first categories, and columns of zeros behind them, in terms that exports have.
fn portable_columns(tokens: Vec<String>, columns: usize) -> PortableMap {
    let mut tokens = tokens.into_iter();
    let mut maps = Vec::with_capacity(columns);
    for _ in 0..columns {
        // No part is empty.
        let token = tokens.next().unwrap_or_default();
        maps.push(portable_vector(vec![token], 1));
    }
    PortableMap::Columns(maps)
}

fn split_text(column: &ArrayRef, delimiter: &str) -> Result<ArrayRef> {
    let strings = StringColumn::of(column)?;
    let values = strings.values()?;
    let mut parts = ListBuilder::with_capacity(StringBuilder::new(), strings.len());
    let mut push = |text: Option<&str>| match text {
        None => parts.append_null(),
        Some(text) => {
            text.split(delimiter)
                .filter(|part| !part.is_empty())
                .for_each(|part| parts.values().append_value(part));
            parts.append(true);
        }
    };
    match &strings {
        StringColumn::Plain(_) => values.iter().for_each(push),
        StringColumn::Dictionary(keys, _) => {
            keys.iter()
                .for_each(|key| push(key.and_then(|key| values.get(key as usize))));
        }
    }
    Ok(Arc::new(parts.finish()))
}

/// A vector for each row, and marks of the values that are no category.
fn multi_hot_vectors(column: &ArrayRef, tokens: &TokenIndex) -> Result<Vec<ArrayRef>> {
    let width = tokens.len();
    let rows = column.len();
    admit_output(size_of::<f32>() * width * rows)?;
    let mut values = vec![0f32; rows * width];
    let marks = mark_categories(column, tokens, |row, category| {
        values[row * width + category] = 1.0;
    })?;
    Ok(vec![vector_array(values, width, rows)?, marks])
}

/// A column for each of the first tokens, columns of zeros behind them, and marks of the values that are no category.
fn multi_hot_columns(
    column: &ArrayRef,
    tokens: &TokenIndex,
    columns: usize,
) -> Result<Vec<ArrayRef>> {
    let rows = column.len();
    admit_output(size_of::<f32>() * columns * rows)?;
    let mut indicators = vec![vec![0f32; rows]; columns];
    let marks = mark_categories(column, tokens, |row, category| {
        if let Some(indicator) = indicators.get_mut(category) {
            indicator[row] = 1.0;
        }
    })?;
    let mut outputs = float_columns(indicators);
    outputs.push(marks);
    Ok(outputs)
}

/// Calls a function with row and number of each category that the lists of a column hold. Returns a mark for each value
/// of these lists, true for those that are no category.
fn mark_categories(
    column: &ArrayRef,
    tokens: &TokenIndex,
    mut mark: impl FnMut(usize, usize),
) -> Result<ArrayRef> {
    let element = element_field(column.data_type()).map(|element| element.data_type().clone());
    let list = DataType::LargeList(Arc::new(Field::new_list_field(
        element.unwrap_or(DataType::Utf8),
        true,
    )));
    let column = cast(column, &list)?;
    let lists = column.as_list::<i64>();
    let texts = StringColumn::of(lists.values())?;
    let ids = gather_ids::<UInt32Type>(&texts, |text| Ok(tokens.find(text)))?;
    let element_nulls = lists.values().logical_nulls();
    let mut marks = BooleanBufferBuilder::new(ids.len());
    for (row, ends) in lists
        .offsets()
        .windows(2)
        .enumerate()
        .filter(|(row, _)| lists.is_valid(*row))
    {
        for element in ends[0] as usize..ends[1] as usize {
            if ids.is_valid(element) {
                mark(row, ids.value(element) as usize);
                marks.append(false);
            } else {
                let nulls = element_nulls.as_ref();
                marks.append(nulls.is_none_or(|nulls| nulls.is_valid(element)));
            }
        }
    }
    Ok(Arc::new(BooleanArray::new(marks.finish(), None)))
}
