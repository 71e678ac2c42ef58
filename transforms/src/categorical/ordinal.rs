//! `ordinal`: categories to ids in the order of their values.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, StringArray};
use arrow::compute::{cast, sort_to_indices, take};
use arrow::datatypes::{DataType, Field, Int32Type, Int64Type};
use forebay_analyze::{TokenVocabulary as Tally, VocabularyOrder};
use forebay_contract::{PortableMap, TextIds};
use forebay_model::{Fault, Result, StringColumn, codes};
use forebay_plan::{
    AnalyzerRequest, BindScope, ColumnSelector, ConfiguredTransform, LoweredMap, MapOp, PlanOp,
    RowMark, Transform, ValueCount, WrittenNulls,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::IdType;
use crate::shared::{
    TokenIndex, finding_at, gather_ids, mark_numberless, output_name, refuse_repeated_categories,
};

/// Categories to ids 0, 1, ... in the order of their values.
///
/// In: strings (in byte order), numbers (-0.0 is 0.0), booleans, dates (in their own order). Out: `int64`
/// or `int32`. Null stays null and is not a category; the empty string is one. An unknown value is a
/// fault that names it, unless `unknown` says otherwise. Nothing seen: every value is unknown.
/// State: the distinct values with exact counts, spilled beyond the budget; none where they are
/// listed. Follows scikit-learn's `OrdinalEncoder`.
///
/// ```yaml
/// - ordinal: { columns: [category], suffix: _id }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn ordinal(columns),
    example = r#"ordinal(["size"]).categories(["S", "M", "L"]).unknown(UnknownPolicy::Missing)"#
)]
pub struct OrdinalEncoder {
    /// Columns of categories; each has ids of its own.
    pub columns: ColumnSelector,
    /// The categories in order, where they are known; else they are learned.
    #[serde(default)]
    pub categories: Option<Vec<String>>,
    /// What becomes of values that were never seen.
    #[serde(default)]
    pub unknown: UnknownPolicy,
    /// The type of ids.
    #[serde(default)]
    pub dtype: IdType,
    /// Writes `<column><suffix>` instead of replacing the column.
    #[serde(default)]
    pub suffix: Option<String>,
}

/// What becomes of values that were never seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnknownPolicy {
    /// The run stops and names the value.
    #[default]
    Error,
    /// They become null.
    Missing,
    /// They become this id.
    Value(i32),
}

impl ConfiguredTransform for OrdinalEncoder {
    const NAME: &'static str = "ordinal";
}

impl Transform for OrdinalEncoder {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        refuse_repeated_categories(self.categories.as_deref())?;
        let fields = scope.typed_columns(&self.columns, "a category", |field| {
            !field.data_type().is_nested()
        })?;
        fields
            .into_iter()
            .map(|field| self.column_op(field))
            .collect()
    }
}

impl OrdinalEncoder {
    fn column_op(&self, field: &Field) -> Result<PlanOp> {
        let nullable = field.is_nullable() || self.unknown == UnknownPolicy::Missing;
        let output = Field::new(
            output_name(field.name(), &self.suffix),
            self.dtype.data_type(),
            nullable,
        );
        let name = field.name().clone();
        let unknown = self.unknown;
        let dtype = self.dtype;
        let nulls = match self.unknown {
            UnknownPolicy::Missing => WrittenNulls::Made("gives unknown values no id"),
            UnknownPolicy::Error | UnknownPolicy::Value(_) => WrittenNulls::Read,
        };
        if let Some(categories) = &self.categories {
            let categories = StringArray::from(categories.clone());
            let tokens = Arc::new(TokenIndex::new(Arc::new(categories))?);
            let map = MapOp::fitted([name.clone()], [output], [], move |_| {
                Ok(ordinal_lookup(tokens.clone(), unknown, dtype, name.clone()))
            });
            return Ok(PlanOp::Map(self.counted(map.written_nulls(nulls))));
        }
        let tally = Tally {
            min_count: 1,
            top_k: None,
            order: VocabularyOrder::Value,
        };
        let values = field.data_type().clone();
        let map = MapOp::fitted(
            [field.name()],
            [output],
            [AnalyzerRequest::new(tally, [field.name()]).row_columns(["token"])],
            move |findings| {
                let tokens = TokenIndex::new(sorted_tokens(
                    finding_at(findings, 0)?.column("token")?,
                    &values,
                )?)?;
                let tokens = Arc::new(tokens);
                Ok(ordinal_lookup(tokens, unknown, dtype, name.clone()))
            },
        );
        Ok(PlanOp::Map(self.counted(map.written_nulls(nulls))))
    }

    /// Counts the values that become null or the id of unknown ones.
    fn counted(&self, map: MapOp) -> MapOp {
        match self.unknown {
            UnknownPolicy::Missing => map.counting(ValueCount::nulled()),
            UnknownPolicy::Value(_) => map.marking([RowMark::Unknown]),
            UnknownPolicy::Error => map,
        }
    }
}

fn ordinal_lookup(
    tokens: Arc<TokenIndex>,
    unknown: UnknownPolicy,
    dtype: IdType,
    name: String,
) -> LoweredMap {
    let all_tokens = tokens.clone();
    let lookup = LoweredMap::new(move |inputs, _| {
        let [column] = inputs else {
            return Err(Fault::internal("an encoding received other columns"));
        };
        ordinal_ids(column, &tokens, unknown, dtype, &name)
    });
    lookup.portable(move || {
        let tokens = all_tokens.to_texts();
        let default = match unknown {
            UnknownPolicy::Value(value) => Some(i64::from(value)),
            // A graph raises no fault.
            UnknownPolicy::Missing | UnknownPolicy::Error => None,
        };
        PortableMap::Ids(TextIds {
            ids: (0..tokens.len() as i64).collect(),
            tokens,
            default,
        })
    })
}

/// Tokens in the order of the values that they stand for; they come in byte order.
fn sorted_tokens(tokens: &ArrayRef, values: &DataType) -> Result<ArrayRef> {
    // A column of no type holds nothing but nulls.
    if values.is_string() || values.is_null() {
        return Ok(tokens.clone());
    }
    let order = sort_to_indices(&cast(tokens, values)?, None, None)?;
    Ok(take(tokens, &order, None)?)
}

/// The ids of a column, and marks of unknown values where these have an id.
fn ordinal_ids(
    column: &ArrayRef,
    tokens: &TokenIndex,
    unknown: UnknownPolicy,
    dtype: IdType,
    name: &str,
) -> Result<Vec<ArrayRef>> {
    let texts = StringColumn::of(column)?;
    let ids = gather_ids::<Int64Type>(&texts, |text| match (tokens.find(text), unknown) {
        (Some(id), _) => Ok(Some(i64::from(id))),
        (None, UnknownPolicy::Missing | UnknownPolicy::Value(_)) => Ok(None),
        (None, UnknownPolicy::Error) => {
            let excerpt: String = text.chars().take(80).collect();
            let fault = Fault::new(
                codes::UNKNOWN_VALUE,
                format!("`{name}` holds `{excerpt}`, which was never seen"),
            );
            Err(fault
                .column(name)
                .hint("set `unknown: missing` or `unknown: { value: -1 }`"))
        }
    })?;
    let UnknownPolicy::Value(value) = unknown else {
        return Ok(vec![typed_ids(ids, dtype)]);
    };
    let marks = mark_numberless(column, &ids);
    let with_unknown: Vec<i64> = ids
        .iter()
        .map(|id| id.unwrap_or(i64::from(value)))
        .collect();
    let ids = Int64Array::new(with_unknown.into(), column.logical_nulls());
    Ok(vec![typed_ids(ids, dtype), marks])
}

fn typed_ids(ids: Int64Array, dtype: IdType) -> ArrayRef {
    match dtype {
        IdType::Int64 => Arc::new(ids),
        IdType::Int32 => Arc::new(ids.unary::<_, Int32Type>(|id| id as i32)),
    }
}
