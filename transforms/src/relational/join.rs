//! `join`: columns of the matching rows of another table.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, UInt32Array};
use arrow::compute::{filter, is_not_null, is_null, not};
use arrow::datatypes::{DataType, Field, Schema, UInt32Type};
use arrow::util::display::array_value_to_string;
use forebay_analyze::{TokenVocabulary, VocabularyOrder};
use forebay_model::{
    Fault, Finding, Result, RowChange, codes, common_zoned_type, look_up_rows, taken_bytes,
    type_words,
};
use forebay_plan::{
    AnalyzerRequest, BindScope, ColumnSelector, ConfiguredTransform, FilterOp, GatherBy, GatherOp,
    HeldRows, JoinBy, JoinChecks, JoinOp, LoweredMap, MapOp, MetRows, PlanOp, RowMark, StepFacts,
    Transform, WrittenNulls, admit_output, duplicate_key_fault, key_text, met_twice_fault,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::CollectRows;
use super::brought::{BroughtColumn, ColumnNaming};
use crate::shared::{KeyIndex, bad_value, finding_at};

/// Columns of the matching rows of another step or source.
///
/// In: key columns of equal types here and there (integers of any width, zones by any name). Out: the other table's
/// columns behind this table's, nullable. Rows keep their order. A null key matches nothing; NaN
/// matches NaN, and -0.0 matches 0.0. `left` keeps rows without a match, with nulls; `inner` removes them, counted as
/// `filtered`; `semi` keeps the rows with a match and `anti` those without one, and neither brings columns. Two rows of
/// the other table with one key are a fault that names the key, unless the cardinality is `many_to_many` or only
/// the match counts.
/// State: with the strategy `lookup`, the other table's keys and wanted columns, which have to fit the state's budget;
/// with `shuffle`, none: both sides are partitioned by key, with spilling. Both give the same rows.
///
/// A range join is `many_to_many` with a `filter` of both times behind it, as the last example shows: it computes all
/// pairs of equal keys. `as_of_join` brings the nearest row in time alone, and `rolling` is a window over the rows of
/// one step.
///
/// ```yaml
/// - join: { with: items, on: [item], columns: [brand] }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn join(with), example = r#"join("stores").on(["store_id"]).columns(["city", "area"])"#)]
pub struct Join {
    /// The other step or source.
    pub with: String,
    /// The key columns here.
    pub on: Vec<String>,
    /// The key columns there, in the same order, where their names differ.
    #[serde(default)]
    pub right_on: Option<Vec<String>>,
    /// What becomes of rows with and without a match.
    #[serde(default)]
    pub how: JoinKind,
    /// How many rows may meet each other; checked. Of `left` and `inner` only.
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
    /// How rows meet; `auto` where left out. Of no effect with `many_to_many`.
    #[serde(default, skip_serializing_if = "JoinStrategy::is_auto")]
    pub strategy: JoinStrategy,
}

/// What becomes of rows with and without a match.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JoinKind {
    /// All stay, those without a match with nulls.
    #[default]
    Left,
    /// Those without a match go.
    Inner,
    /// Those without a match go, and no columns are brought.
    Semi,
    /// Those with a match go, and no columns are brought.
    Anti,
}

/// How many rows may meet each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JoinCardinality {
    /// Any number of rows here meet one row there.
    #[default]
    ManyToOne,
    /// One row here meets one row there; takes a pass of its own with a lookup table.
    OneToOne,
    /// Any number of rows there, too: one row comes out for each pair, in the order of the rows here, then of those
    /// there. The joined rows are an intermediate dataset.
    ManyToMany,
}

/// How rows meet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JoinStrategy {
    /// By a lookup table if it fits into its share of the memory, else by a shuffle.
    #[default]
    Auto,
    /// The other table is held in memory, and is part of the artifact.
    Lookup,
    /// Both sides are partitioned by a hash of their keys, on disk where they exceed the memory.
    Shuffle,
}

impl JoinStrategy {
    fn is_auto(&self) -> bool {
        *self == JoinStrategy::Auto
    }
}

impl ConfiguredTransform for Join {
    const NAME: &'static str = "join";
}

impl Transform for Join {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let other = (scope.other)(&self.with)?;
        if self.on.is_empty() || self.right_keys().len() != self.on.len() {
            return Err(bad_value(
                "`on` and `right_on` need one name for each key, and one key at least",
            ));
        }
        let keys = self.typed_right_keys(scope, &other)?;
        let brought = self.brought_columns(scope, &other)?;
        if self.cardinality == JoinCardinality::ManyToMany {
            return Ok(vec![self.gather(scope, brought)?]);
        }
        let mut visible: Vec<String> = Vec::new();
        for field in scope.schema.fields() {
            visible.push(field.name().clone());
        }
        for (_, field) in &brought {
            visible.push(field.name().clone());
        }
        let visible = PlanOp::keep_columns(visible);
        let mut ops = match self.strategy {
            JoinStrategy::Auto | JoinStrategy::Lookup => self.look_up(keys, brought),
            JoinStrategy::Shuffle => self.shuffle(brought)?,
        };
        ops.push(visible);
        Ok(ops)
    }

    fn facts(&self) -> StepFacts {
        StepFacts {
            other_input: Some(self.with.clone()),
            ..StepFacts::default()
        }
    }

    fn held_rows(&self) -> Option<HeldRows> {
        if self.strategy != JoinStrategy::Auto || self.cardinality == JoinCardinality::ManyToMany {
            return None;
        }
        let columns = match (&self.columns, self.brings_columns()) {
            (_, false) => Some(self.right_keys().iter().cloned().collect()),
            (Some(columns), true) => Some(
                self.right_keys()
                    .iter()
                    .chain(&columns.0)
                    .cloned()
                    .collect(),
            ),
            (None, true) => None,
        };
        let spilling = serde_json::to_value(Join {
            strategy: JoinStrategy::Shuffle,
            ..self.clone()
        })
        .ok()?;
        Some(HeldRows {
            other: self.with.clone(),
            columns,
            spilling,
        })
    }
}

impl Join {
    fn right_keys(&self) -> &Vec<String> {
        self.right_on.as_ref().unwrap_or(&self.on)
    }

    fn brings_columns(&self) -> bool {
        matches!(self.how, JoinKind::Left | JoinKind::Inner)
    }

    /// The key columns there, after checking that both sides fit.
    fn typed_right_keys(
        &self,
        scope: &BindScope<'_>,
        other: &Schema,
    ) -> Result<Vec<(String, DataType)>> {
        let theirs = ColumnSelector(self.right_keys().clone()).resolve(other)?;
        let mut faults = Vec::new();
        for (here, there) in self.on.iter().zip(&theirs) {
            let here = scope.field(here)?;
            let a = here.data_type();
            let b = there.data_type();
            let is_zone_alike = common_zoned_type(a, b).is_some();
            if a != b && !(a.is_integer() && b.is_integer()) && !is_zone_alike {
                let message = format!(
                    "`{}` is {} here and `{}` is {} in `{}`",
                    here.name(),
                    type_words(a),
                    there.name(),
                    type_words(b),
                    self.with
                );
                faults.push(
                    Fault::new(codes::COLUMN_TYPE, message)
                        .column(here.name())
                        .hint("`cast` one of them"),
                );
            }
        }
        let keys = theirs
            .iter()
            .map(|field| (field.name().clone(), field.data_type().clone()))
            .collect();
        Fault::combine(faults).map_or(Ok(keys), Err)
    }

    /// The columns to bring, under names that are free.
    fn brought_columns(&self, scope: &BindScope<'_>, other: &Schema) -> Result<Vec<BroughtColumn>> {
        if !self.brings_columns() {
            let only =
                |option: &str| bad_value(format!("`{option}` needs `how: left` or `how: inner`"));
            return match (&self.columns, self.cardinality) {
                (Some(_), _) => Err(only("columns")),
                (None, JoinCardinality::ManyToOne) => Ok(Vec::new()),
                (None, _) => Err(only("cardinality")),
            };
        }
        let right_keys = self.right_keys();
        let fields: Vec<&Field> = match &self.columns {
            Some(columns) => columns.resolve(other)?,
            None => other
                .fields()
                .iter()
                .map(|field| &**field)
                .filter(|f| !right_keys.contains(f.name()))
                .collect(),
        };
        self.naming().bring(scope, fields)
    }

    fn naming(&self) -> ColumnNaming<'_> {
        ColumnNaming {
            with: &self.with,
            prefix: &self.prefix,
            suffix: &self.suffix,
        }
    }

    /// The reason for which rows are removed.
    fn removal_reason(&self) -> RowChange {
        match self.how {
            JoinKind::Anti => RowChange::Matched,
            _ => RowChange::Unmatched,
        }
    }

    /// Finds the matching rows in a table that is held in memory.
    fn look_up(&self, keys: Vec<(String, DataType)>, brought: Vec<BroughtColumn>) -> Vec<PlanOp> {
        // The position of the matching row comes first; every column is then taken by itself.
        let row = format!("__row_{}", self.with);
        let mut ops = vec![self.match_rows(&keys, &row)];
        let anti = self.how == JoinKind::Anti;
        if self.how != JoinKind::Left {
            ops.push(PlanOp::Keep(FilterOp {
                valued: if anti { Vec::new() } else { vec![row.clone()] },
                reads: vec![row.clone()],
                kernel: Arc::new(move |inputs, _| {
                    let test = if anti { is_null } else { is_not_null };
                    inputs
                        .iter()
                        .map(|rows| Ok(Arc::new(test(rows)?) as ArrayRef))
                        .collect()
                }),
                condition: None,
                learning: false,
                reason: self.removal_reason(),
            }));
        }
        ops.extend(
            brought
                .into_iter()
                .map(|(from, field)| self.gather_column(&keys, &from, field, &row)),
        );
        ops
    }

    /// Meets the rows of both sides part by part.
    fn shuffle(&self, brought: Vec<BroughtColumn>) -> Result<Vec<PlanOp>> {
        self.naming().refuse_unsized(&brought)?;
        let flag = format!("__matched_{}", self.with);
        let matched = Some(Field::new(&flag, DataType::Boolean, true));
        let unique_here = self.cardinality == JoinCardinality::OneToOne;
        let checks = JoinChecks {
            unique_here,
            unique_there: self.brings_columns(),
        };
        let mut ops = vec![PlanOp::Join(self.join(matched, brought, checks))];
        let anti = self.how == JoinKind::Anti;
        if self.how != JoinKind::Left {
            ops.push(PlanOp::Keep(FilterOp {
                valued: Vec::new(),
                reads: vec![flag],
                kernel: Arc::new(move |inputs, _| {
                    if !anti {
                        return Ok(inputs.to_vec());
                    }
                    inputs
                        .iter()
                        .map(|flag| Ok(Arc::new(not(flag.as_boolean())?) as ArrayRef))
                        .collect()
                }),
                condition: None,
                learning: false,
                reason: self.removal_reason(),
            }));
        }
        Ok(ops)
    }

    /// Makes a row of each pair.
    fn gather(&self, scope: &BindScope<'_>, brought: Vec<BroughtColumn>) -> Result<PlanOp> {
        self.naming().refuse_unsized(&brought)?;
        let fields = scope
            .schema
            .fields()
            .iter()
            .map(|field| field.as_ref().clone());
        let fields: Vec<Field> = fields
            .chain(brought.iter().map(|(_, field)| field.clone()))
            .collect();
        let join = self.join(None, brought, JoinChecks::default());
        Ok(PlanOp::Gather(GatherOp {
            others: vec![self.with.clone()],
            alone: false,
            schema: Arc::new(Schema::new(fields)),
            lower: GatherBy::Join {
                join,
                unmatched: self.how == JoinKind::Left,
            },
            query: None,
        }))
    }

    fn join(
        &self,
        matched: Option<Field>,
        columns: Vec<BroughtColumn>,
        checks: JoinChecks,
    ) -> JoinOp {
        let keys = self
            .on
            .iter()
            .cloned()
            .zip(self.right_keys().iter().cloned())
            .collect();
        JoinOp {
            other: self.with.clone(),
            keys,
            matched,
            keeps_unmatched: self.how == JoinKind::Left,
            columns,
            by: JoinBy::Equality(checks),
        }
    }

    fn collect_request(&self, columns: Vec<(String, DataType)>) -> AnalyzerRequest {
        let names: Vec<String> = columns.iter().map(|(name, _)| name.clone()).collect();
        AnalyzerRequest::new(CollectRows { columns }, names).read_from(&self.with)
    }

    /// Writes the position of the matching row of the other table.
    fn match_rows(&self, keys: &[(String, DataType)], row: &str) -> PlanOp {
        let with = self.with.clone();
        let right_keys = self.right_keys().clone();
        let is_unique = self.brings_columns();
        let counts_unmatched = self.how == JoinKind::Left;
        let output = Field::new(row, DataType::UInt32, true);
        let matching = MapOp::fitted(
            self.on.clone(),
            [output],
            [self.collect_request(keys.to_vec())],
            move |findings| {
                let index =
                    JoinIndex::new(finding_at(findings, 0)?, &right_keys, &with, is_unique)?;
                Ok(LoweredMap::new(move |inputs, _| {
                    let rows = index.keys.find(inputs)?;
                    let rows = rows
                        .into_iter()
                        .map(|row| index.rows.get(row? as usize).copied());
                    let rows: ArrayRef = Arc::new(rows.collect::<UInt32Array>());
                    if counts_unmatched {
                        let unmatched = is_null(&rows)?;
                        return Ok(vec![rows, Arc::new(unmatched)]);
                    }
                    Ok(vec![rows])
                }))
            },
        );
        let nulls = WrittenNulls::Made("finds no row with the key of some rows");
        let matching = matching.meeting(self.met_rows(None)).written_nulls(nulls);
        let matching = matching.finding_rows();
        if counts_unmatched {
            return PlanOp::Map(matching.marking([RowMark::NoMatch]));
        }
        PlanOp::Map(matching)
    }

    /// The rows that are looked up, and the column whose values are taken.
    fn met_rows(&self, column: Option<&str>) -> MetRows {
        let keys = self.on.iter().cloned();
        MetRows {
            keys: keys.zip(self.right_keys().iter().cloned()).collect(),
            column: column.map(str::to_owned),
        }
    }

    /// Takes one column of the other table.
    fn gather_column(
        &self,
        keys: &[(String, DataType)],
        from: &str,
        output: Field,
        row: &str,
    ) -> PlanOp {
        let mut asks =
            vec![self.collect_request(vec![(from.to_owned(), output.data_type().clone())])];
        if self.cardinality == JoinCardinality::OneToOne {
            let twice = TokenVocabulary {
                min_count: 2,
                top_k: Some(1),
                order: VocabularyOrder::CountThenValue,
            };
            asks.push(AnalyzerRequest::new(twice, [row]));
            asks.push(self.collect_request(keys.to_vec()));
        }
        let with = self.with.clone();
        let met = self.met_rows(Some(from));
        let map = MapOp::fitted([row], [output.clone()], asks, move |findings| {
            if let (Some(twice), Some(table)) = (findings.get(1), findings.get(2))
                && twice.rows() > 0
            {
                let met = array_value_to_string(twice.table().column(0), 0)?;
                let names = table
                    .table()
                    .schema_ref()
                    .fields()
                    .iter()
                    .map(|field| field.name().as_str());
                let columns = names.zip(table.table().columns());
                let key = met.parse().map_or(met, |row| key_text(columns, row));
                return Err(met_twice_fault(&with, &key));
            }
            let values = finding_at(findings, 0)?.table().column(0).clone();
            // The width of a vector is known by now.
            let field = output.clone().with_data_type(values.data_type().clone());
            let lowered = LoweredMap::unary(move |rows| {
                let rows = rows.as_primitive::<UInt32Type>();
                if *values.data_type() != DataType::Utf8 {
                    admit_output(taken_bytes(&values, rows))?;
                }
                look_up_rows(&values, rows)
            });
            Ok(lowered.fields(vec![field]))
        });
        PlanOp::Map(map.meeting(met))
    }
}

/// The other table's rows by key.
struct JoinIndex {
    keys: KeyIndex,
    /// Positions in the table of the rows that were indexed: those without a null key.
    rows: Vec<u32>,
}

impl JoinIndex {
    /// `unique` tells whether a key may be there once only.
    fn new(table: &Finding, names: &[String], with: &str, unique: bool) -> Result<Self> {
        let columns = names
            .iter()
            .map(|name| table.column(name).cloned())
            .collect::<Result<Vec<_>>>()?;
        let whole = |row: usize| columns.iter().all(|column| column.is_valid(row));
        let mask: BooleanArray = (0..table.rows()).map(|row| Some(whole(row))).collect();
        let rows: Vec<u32> = mask.values().set_indices().map(|row| row as u32).collect();
        let columns = columns
            .iter()
            .map(|column| Ok(filter(column, &mask)?))
            .collect::<Result<Vec<ArrayRef>>>()?;
        let keys = KeyIndex::new(&columns, |_, row| {
            if !unique {
                return Ok(());
            }
            let key = key_text(names.iter().map(String::as_str).zip(&columns), row);
            Err(duplicate_key_fault(with, &key))
        })?;
        Ok(JoinIndex { keys, rows })
    }
}
