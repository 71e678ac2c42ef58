//! `join`: columns of another, smaller table.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, UInt32Array};
use arrow::compute::{filter, is_not_null, take};
use arrow::datatypes::{DataType, Field, Schema, UInt32Type};
use arrow::util::display::array_value_to_string;
use forebay_analyze::{Vocabulary, VocabularyOrder};
use forebay_model::{Fault, Finding, Result, codes};
use forebay_plan::{Ask, Columns, Configured, Keep, Lowered, Map, Op, Scope, Transform};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Collect;
use crate::shared::{KeyIndex, bad_value, finding};

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
pub struct Join {
    /// The other step or source.
    pub with: String,
    /// The key columns here.
    pub on: Vec<String>,
    /// The key columns there, in the same order, where their names differ.
    #[serde(default)]
    pub right_on: Option<Vec<String>>,
    /// What becomes of rows without a match.
    #[serde(default)]
    pub how: How,
    /// How many rows here may meet one row there; checked.
    #[serde(default)]
    pub cardinality: Cardinality,
    /// The other table's columns to bring; where left out, all but its keys.
    #[serde(default)]
    pub columns: Option<Columns>,
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
pub enum How {
    /// They stay, with nulls.
    #[default]
    Left,
    /// They go.
    Inner,
}

/// How many rows here may meet one row there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cardinality {
    /// Any number.
    #[default]
    ManyToOne,
    /// At most one; takes a pass of its own.
    OneToOne,
}

impl Configured for Join {
    const NAME: &'static str = "join";
}

impl Transform for Join {
    fn bind(&self, scope: &Scope<'_>) -> Result<Vec<Op>> {
        let other = (scope.other)(&self.with)?;
        let there = self.right_on.as_ref().unwrap_or(&self.on);
        if self.on.is_empty() || there.len() != self.on.len() {
            return Err(bad_value("`on` and `right_on` need one name for each key, and one key at least"));
        }
        let keys = self.keys(scope, &other, there)?;
        let brought: Vec<&Field> = match &self.columns {
            Some(columns) => columns.resolve(&other)?,
            None => other.fields().iter().map(|field| &**field).filter(|f| !there.contains(f.name())).collect(),
        };
        // The position of the matching row comes first; every column is then taken by itself.
        let row = format!("__row_{}", self.with);
        let mut ops = vec![self.find(keys, there, &row)];
        if self.how == How::Inner {
            ops.push(Op::Keep(Keep {
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
            ops.push(self.bring(field, &row, &name));
            visible.push(name);
        }
        ops.push(Op::Project(visible.into_iter().map(|name| (name.clone(), name)).collect()));
        Ok(ops)
    }
}

impl Join {
    /// The key columns there, after checking that both sides fit.
    fn keys(&self, scope: &Scope<'_>, other: &Schema, there: &[String]) -> Result<Vec<(String, DataType)>> {
        let theirs = Columns(there.to_vec()).resolve(other)?;
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
        Fault::all(faults).map_or(Ok(keys), Err)
    }

    fn collect(&self, columns: Vec<(String, DataType)>) -> Ask {
        let names: Vec<String> = columns.iter().map(|(name, _)| name.clone()).collect();
        Ask::new(Collect { columns }, names).of(&self.with)
    }

    /// Writes the position of the matching row of the other table.
    fn find(&self, keys: Vec<(String, DataType)>, there: &[String], row: &str) -> Op {
        let (with, there) = (self.with.clone(), there.to_vec());
        let output = Field::new(row, DataType::UInt32, true);
        Op::Map(Map::fitted(self.on.clone(), [output], [self.collect(keys)], move |findings| {
            let index = Index::new(finding(findings, 0)?, &there, &with)?;
            Ok(Lowered::new(move |inputs, _| {
                let rows = index.keys.find(inputs)?;
                let rows = rows.into_iter().map(|row| index.rows.get(row? as usize).copied());
                Ok(vec![Arc::new(rows.collect::<UInt32Array>())])
            }))
        }))
    }

    /// Takes one column of the other table.
    fn bring(&self, field: &Field, row: &str, name: &str) -> Op {
        let output = field.clone().with_name(name).with_nullable(true);
        let mut asks = vec![self.collect(vec![(field.name().clone(), field.data_type().clone())])];
        if self.cardinality == Cardinality::OneToOne {
            let twice = Vocabulary { min_count: 2, top_k: Some(1), order: VocabularyOrder::CountThenValue };
            asks.push(Ask::new(twice, [row]));
        }
        let with = self.with.clone();
        Op::Map(Map::fitted([row], [output.clone()], asks, move |findings| {
            if findings.get(1).is_some_and(|twice| twice.rows() > 0) {
                let message = format!("several rows meet one row of `{with}`, which was declared one to one");
                return Err(Fault::new(codes::CARDINALITY, message).hint("set `cardinality: many_to_one`"));
            }
            let values = finding(findings, 0)?.table().column(0).clone();
            // The width of a vector is known by now.
            let field = output.clone().with_data_type(values.data_type().clone());
            let lowered = Lowered::unary(move |rows| Ok(take(&values, rows.as_primitive::<UInt32Type>(), None)?));
            Ok(lowered.fields(vec![field]))
        }))
    }
}

/// The other table's rows by key.
struct Index {
    keys: KeyIndex,
    /// Positions in the table of the rows that were indexed: those without a null key.
    rows: Vec<u32>,
}

impl Index {
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
        Ok(Index { keys, rows })
    }
}
