//! `join`: columns of another, smaller table.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, UInt32Array};
use arrow::compute::{filter, is_not_null};
use arrow::datatypes::{DataType, Field, Schema, UInt32Type};
use arrow::util::display::array_value_to_string;
use forebay_analyze::{TokenVocabulary, VocabularyOrder};
use forebay_model::{Fault, Finding, Result, codes, take_rows};
use forebay_plan::{
    AnalyzerRequest, BindScope, ColumnSelector, ConfiguredTransform, FilterOp, LoweredMap, MapOp, PlanOp, Transform,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::CollectRows;
use crate::shared::{KeyIndex, bad_value, finding_at};

/// Columns of another step or source, looked up by key.
///
/// In: key columns of equal types here and there (integers of any width). Out: the other table's
/// columns behind this table's, nullable. Rows keep their order. A null key matches nothing; NaN
/// matches NaN, and -0.0 matches 0.0. `left` keeps rows without a match, with nulls; `inner` removes them, counted as
/// `filtered`. Two rows of the other table with one key are a fault that names the key.
/// State: the other table's keys and wanted columns, which have to fit the state's budget; larger
/// tables are joined by a SQL query. It is read anew when the artifact is applied.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LookupJoin {
    /// The other step or source.
    pub with: String,
    /// The key columns here.
    pub on: Vec<String>,
    /// The key columns there, in the same order, where their names differ.
    #[serde(default)]
    pub right_on: Option<Vec<String>>,
    /// What becomes of rows without a match.
    #[serde(default)]
    pub how: JoinKind,
    /// How many rows here may meet one row there; checked.
    #[serde(default)]
    pub cardinality: JoinCardinality,
    /// The other table's columns to bring; where left out, all but its keys.
    #[serde(default)]
    pub columns: Option<ColumnSelector>,
    /// Put before the names of the columns that are brought.
    #[serde(default)]
    pub prefix: String,
    /// Put behind the names of the columns that are brought.
    #[serde(default)]
    pub suffix: String,
}

/// What becomes of rows without a match.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JoinKind {
    /// They stay, with nulls.
    #[default]
    Left,
    /// They go.
    Inner,
}

/// How many rows here may meet one row there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JoinCardinality {
    /// Any number.
    #[default]
    ManyToOne,
    /// At most one; takes a pass of its own.
    OneToOne,
}

impl ConfiguredTransform for LookupJoin {
    const NAME: &'static str = "join";
}

impl Transform for LookupJoin {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let other = (scope.other)(&self.with)?;
        let there = self.right_on.as_ref().unwrap_or(&self.on);
        if self.on.is_empty() || there.len() != self.on.len() {
            return Err(bad_value("`on` and `right_on` need one name for each key, and one key at least"));
        }
        let keys = self.right_keys(scope, &other, there)?;
        let brought: Vec<&Field> = match &self.columns {
            Some(columns) => columns.resolve(&other)?,
            None => other.fields().iter().map(|field| &**field).filter(|f| !there.contains(f.name())).collect(),
        };
        // The position of the matching row comes first; every column is then taken by itself.
        let row = format!("__row_{}", self.with);
        let mut ops = vec![self.match_rows(keys, there, &row)];
        if self.how == JoinKind::Inner {
            ops.push(PlanOp::Keep(FilterOp {
                reads: vec![row.clone()],
                kernel: Arc::new(|inputs, _| {
                    inputs.iter().map(|rows| Ok(Arc::new(is_not_null(rows)?) as ArrayRef)).collect()
                }),
                condition: None,
            }));
        }
        let mut visible: Vec<String> = scope.schema.fields().iter().map(|field| field.name().clone()).collect();
        for field in brought {
            let name = format!("{}{}{}", self.prefix, field.name(), self.suffix);
            if visible.contains(&name) {
                let message = format!("`{name}` is here already and in `{}` too", self.with);
                return Err(Fault::new(codes::COLUMN_CLASH, message)
                    .column(&name)
                    .hint("set `prefix` or `suffix`, or list the `columns` to bring"));
            }
            ops.push(self.gather_column(field, &row, &name));
            visible.push(name);
        }
        ops.push(PlanOp::Project(visible.into_iter().map(|name| (name.clone(), name)).collect()));
        Ok(ops)
    }
}

impl LookupJoin {
    /// The key columns there, after checking that both sides fit.
    fn right_keys(&self, scope: &BindScope<'_>, other: &Schema, there: &[String]) -> Result<Vec<(String, DataType)>> {
        let theirs = ColumnSelector(there.to_vec()).resolve(other)?;
        let mut faults = Vec::new();
        for (here, there) in self.on.iter().zip(&theirs) {
            let here = scope.field(here)?;
            let (a, b) = (here.data_type(), there.data_type());
            if a != b && !(a.is_integer() && b.is_integer()) {
                let message = format!("`{}` is {a} here and `{}` is {b} in `{}`", here.name(), there.name(), self.with);
                faults.push(Fault::new(codes::COLUMN_TYPE, message).column(here.name()).hint("`cast` one of them"));
            }
        }
        let keys = theirs.iter().map(|field| (field.name().clone(), field.data_type().clone())).collect();
        Fault::combine(faults).map_or(Ok(keys), Err)
    }

    fn collect_request(&self, columns: Vec<(String, DataType)>) -> AnalyzerRequest {
        let names: Vec<String> = columns.iter().map(|(name, _)| name.clone()).collect();
        AnalyzerRequest::new(CollectRows { columns }, names).read_from(&self.with)
    }

    /// Writes the position of the matching row of the other table.
    fn match_rows(&self, keys: Vec<(String, DataType)>, there: &[String], row: &str) -> PlanOp {
        let (with, there) = (self.with.clone(), there.to_vec());
        let output = Field::new(row, DataType::UInt32, true);
        PlanOp::Map(MapOp::fitted(self.on.clone(), [output], [self.collect_request(keys)], move |findings| {
            let index = JoinIndex::new(finding_at(findings, 0)?, &there, &with)?;
            Ok(LoweredMap::new(move |inputs, _| {
                let rows = index.keys.find(inputs)?;
                let rows = rows.into_iter().map(|row| index.rows.get(row? as usize).copied());
                Ok(vec![Arc::new(rows.collect::<UInt32Array>())])
            }))
        }))
    }

    /// Takes one column of the other table.
    fn gather_column(&self, field: &Field, row: &str, name: &str) -> PlanOp {
        let output = field.clone().with_name(name).with_nullable(true);
        let mut asks = vec![self.collect_request(vec![(field.name().clone(), field.data_type().clone())])];
        if self.cardinality == JoinCardinality::OneToOne {
            let twice = TokenVocabulary { min_count: 2, top_k: Some(1), order: VocabularyOrder::CountThenValue };
            asks.push(AnalyzerRequest::new(twice, [row]));
        }
        let with = self.with.clone();
        PlanOp::Map(MapOp::fitted([row], [output.clone()], asks, move |findings| {
            if findings.get(1).is_some_and(|twice| twice.rows() > 0) {
                let message = format!("several rows meet one row of `{with}`, which was declared one to one");
                return Err(Fault::new(codes::CARDINALITY, message).hint("set `cardinality: many_to_one`"));
            }
            let values = finding_at(findings, 0)?.table().column(0).clone();
            // The width of a vector is known by now.
            let field = output.clone().with_data_type(values.data_type().clone());
            let lowered = LoweredMap::unary(move |rows| take_rows(&values, rows.as_primitive::<UInt32Type>()));
            Ok(lowered.fields(vec![field]))
        }))
    }
}

/// The other table's rows by key.
struct JoinIndex {
    keys: KeyIndex,
    /// Positions in the table of the rows that were indexed: those without a null key.
    rows: Vec<u32>,
}

impl JoinIndex {
    fn new(table: &Finding, names: &[String], with: &str) -> Result<Self> {
        let columns = names.iter().map(|name| table.column(name).cloned()).collect::<Result<Vec<_>>>()?;
        let whole = |row: usize| columns.iter().all(|column| column.is_valid(row));
        let mask: BooleanArray = (0..table.rows()).map(|row| Some(whole(row))).collect();
        let rows: Vec<u32> = mask.values().set_indices().map(|row| row as u32).collect();
        let columns = columns.iter().map(|column| Ok(filter(column, &mask)?)).collect::<Result<Vec<ArrayRef>>>()?;
        let keys = KeyIndex::new(&columns, |_, row| {
            let values = columns.iter().map(|column| array_value_to_string(column, row).unwrap_or_default());
            let named = names.iter().zip(values).map(|(name, value)| format!("{name} = {value}"));
            let key = named.collect::<Vec<_>>().join(", ");
            Err(Fault::new(codes::CARDINALITY, format!("`{with}` holds the key {key} more than once"))
                .hint(format!("`dedupe` or `aggregate` `{with}` first")))
        })?;
        Ok(JoinIndex { keys, rows })
    }
}
