//! Leaving out row groups by their statistics.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, Date32Array, Int64Array, UInt32Array, UInt64Array,
};
use arrow::compute::{cast, nullif, take};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::create_physical_expr;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_optimizer::pruning::{PruningPredicate, PruningPredicateBuilder};
use forebay_model::{BoundValue, ColumnExtent, FileRange, TimeFormat};
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::file::metadata::RowGroupMetaData;

use crate::files::hive;
use crate::files::origin::FileColumnOrigin;

use super::extent::bounds_are_ordered;
use super::footer::Footer;
use super::plan::FileProjection;

/// Conditions in the form that statistics can decide.
#[derive(Debug)]
pub struct RowGroupPruner {
    predicates: Vec<PruningPredicate>,
    schema: SchemaRef,
    /// The columns that are texts or whole numbers in the files, and dates or times in the conditions.
    formats: BTreeMap<String, TimeFormat>,
}

impl RowGroupPruner {
    /// Conditions that cannot be answered by statistics are left out: pruning is a help, never
    /// a filter.
    ///
    /// The schema is that of the files. Columns with a format are dates or times in the conditions.
    pub fn new(
        conditions: &[Expr],
        schema: &SchemaRef,
        formats: BTreeMap<String, TimeFormat>,
    ) -> Self {
        let given_schema = given_schema(schema, &formats);
        let predicates = conditions
            .iter()
            .filter_map(|condition| pruning_predicate(condition, &given_schema))
            .collect();
        RowGroupPruner {
            predicates,
            schema: schema.clone(),
            formats,
        }
    }

    /// Columns of the conditions.
    pub(super) fn columns(&self) -> Vec<String> {
        let columns = self
            .predicates
            .iter()
            .flat_map(|predicate| collect_columns(predicate.orig_expr()));
        let mut names: Vec<String> = columns.map(|column| column.name().to_owned()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// True if a piece may hold rows that matter, by the values of its folders.
    pub(super) fn keep_piece(&self, piece: &FileRange) -> bool {
        if piece.partition.is_empty() {
            return true;
        }
        let folders = FolderStatistics {
            piece,
            schema: &self.schema,
            formats: &self.formats,
        };
        let rejects = |predicate: &PruningPredicate| {
            predicate.prune(&folders).is_ok_and(|may| may == [false])
        };
        !self.predicates.iter().any(rejects)
    }

    /// For each row group, true if it may hold relevant rows.
    pub(super) fn keep_row_groups(
        &self,
        footer: &Footer,
        columns: &FileProjection,
        groups: &[usize],
    ) -> Vec<bool> {
        let mut keep = vec![true; groups.len()];
        let stored = RowGroupStatistics {
            footer,
            columns,
            schema: &self.schema,
            formats: &self.formats,
            groups: groups
                .iter()
                .map(|group| footer.metadata.row_group(*group))
                .collect(),
        };
        for predicate in &self.predicates {
            if let Ok(may) = predicate.prune(&stored) {
                for (keep, may) in keep.iter_mut().zip(may) {
                    *keep &= may;
                }
            }
        }
        keep
    }
}

/// The columns as conditions have them: those with a format are dates or times.
fn given_schema(schema: &SchemaRef, formats: &BTreeMap<String, TimeFormat>) -> SchemaRef {
    if formats.is_empty() {
        return schema.clone();
    }
    let mut fields: Vec<Field> = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        let field = field.as_ref().clone();
        fields.push(match formats.get(field.name()) {
            Some(format) => field.with_data_type(format.data_type()).with_nullable(true),
            None => field,
        });
    }
    Arc::new(Schema::new(fields))
}

fn pruning_predicate(condition: &Expr, schema: &SchemaRef) -> Option<PruningPredicate> {
    let unqualified = |expr: Expr| {
        Ok(match expr {
            Expr::Column(column) => {
                Transformed::yes(Expr::Column(Column::new_unqualified(column.name)))
            }
            other => Transformed::no(other),
        })
    };
    let condition = condition.clone().transform(unqualified).ok()?.data;
    let typed = Arc::new(DFSchema::try_from(schema.as_ref().clone()).ok()?);
    let simplifier = ExprSimplifier::new(
        SimplifyContext::builder()
            .with_schema(typed.clone())
            .build(),
    );
    let condition = simplifier
        .coerce(condition, &typed)
        .and_then(|condition| simplifier.simplify(condition))
        .ok()?;
    let physical = create_physical_expr(
        &condition,
        &typed,
        &ExecutionProps::new(),
        &Default::default(),
    )
    .ok()?;
    let predicate = PruningPredicateBuilder::new()
        .with_file_schema(schema.clone())
        .try_build(physical)
        .ok()?;
    (!predicate.always_true()).then_some(predicate)
}

/// Bounds of a piece's rows from the names of its folders.
struct FolderStatistics<'a> {
    piece: &'a FileRange,
    schema: &'a SchemaRef,
    formats: &'a BTreeMap<String, TimeFormat>,
}

impl FolderStatistics<'_> {
    /// The only value of a column.
    fn value(&self, column: &Column) -> Option<ArrayRef> {
        let (_, field) = self.schema.fields().find(&column.name)?;
        let (_, value) = self
            .piece
            .partition
            .iter()
            .find(|(name, _)| *name == column.name)?;
        let value = hive::partition_scalar(value, field.data_type()).ok()?;
        match self.formats.get(&column.name) {
            Some(format) => formatted_value(format, &value),
            None => Some(value),
        }
    }
}

/// A date or time by its format; `None` where it is written in another way.
fn formatted_value(format: &TimeFormat, value: &ArrayRef) -> Option<ArrayRef> {
    let read = format.read(&format.texts_of(value).ok()?);
    read.lost.is_empty().then_some(read.values)
}

impl PruningStatistics for FolderStatistics<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.value(column)
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.value(column)
    }

    fn num_containers(&self) -> usize {
        1
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        if self.formats.contains_key(&column.name) {
            return None;
        }
        let rows = self.piece.rows?;
        let nulls = if self.value(column)?.is_null(0) {
            rows
        } else {
            0
        };
        Some(Arc::new(UInt64Array::from(vec![nulls])))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        Some(Arc::new(UInt64Array::from(vec![self.piece.rows?])))
    }

    fn contained(&self, _: &Column, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}

/// The statistics of some row groups of a file, in the dataset's types.
struct RowGroupStatistics<'a> {
    footer: &'a Footer,
    columns: &'a FileProjection,
    schema: &'a SchemaRef,
    formats: &'a BTreeMap<String, TimeFormat>,
    groups: Vec<&'a RowGroupMetaData>,
}

/// The lower or the upper one of two bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BoundSide {
    Min,
    Max,
}

impl RowGroupStatistics<'_> {
    fn origin(&self, name: &str) -> Option<&FileColumnOrigin> {
        self.columns
            .columns
            .iter()
            .find(|(field, _)| field.name() == name)
            .map(|(_, origin)| origin)
    }

    /// Bounds of a column in the type that conditions have it in.
    fn bounds(&self, column: &Column, side: BoundSide) -> Option<ArrayRef> {
        match self.formats.get(&column.name) {
            Some(format) => self.formatted_bounds(column, format, side),
            None => self.written_bounds(column, side),
        }
    }

    /// Bounds of dates or times by those of their texts or whole numbers, where these have the order of time.
    fn formatted_bounds(
        &self,
        column: &Column,
        format: &TimeFormat,
        side: BoundSide,
    ) -> Option<ArrayRef> {
        let written = self.written_bounds(column, side)?;
        if let FileColumnOrigin::Folder(_) = self.origin(&column.name)? {
            return formatted_value(format, &written);
        }
        let (mins, maxes) = match side {
            BoundSide::Min => (written, self.written_bounds(column, BoundSide::Max)?),
            BoundSide::Max => (self.written_bounds(column, BoundSide::Min)?, written),
        };
        let mins = format.texts_of(&mins).ok()?;
        let maxes = format.texts_of(&maxes).ok()?;
        let extents = mins.iter().zip(&maxes).map(|(min, max)| {
            let written = ColumnExtent {
                min: BoundValue::Text(min?.to_owned()),
                max: BoundValue::Text(max?.to_owned()),
                nulls: true,
            };
            format.extent(&written)
        });
        let ticks = extents.map(|extent| {
            let extent = extent?;
            let bound = match side {
                BoundSide::Min => extent.min,
                BoundSide::Max => extent.max,
            };
            match bound {
                BoundValue::Int(tick) => Some(tick),
                BoundValue::Text(_) => None,
            }
        });
        time_column(&ticks.collect::<Vec<_>>(), &format.data_type())
    }

    /// Bounds of a column in the type of the files.
    fn written_bounds(&self, column: &Column, side: BoundSide) -> Option<ArrayRef> {
        let (_, field) = self.schema.fields().find(&column.name)?;
        match self.origin(&column.name)? {
            FileColumnOrigin::Folder(value) => {
                take(value, &UInt32Array::from(vec![0; self.groups.len()]), None).ok()
            }
            FileColumnOrigin::Nowhere => None,
            // Writers leave NaN out of the bounds, yet NaN compares as the greatest of all.
            FileColumnOrigin::File if field.data_type().is_floating() => None,
            FileColumnOrigin::File => {
                let stored = self.footer.metadata.file_metadata().schema_descr();
                let converter = StatisticsConverter::try_new(
                    self.columns.stored_name(&column.name)?,
                    &self.footer.schema,
                    stored,
                )
                .ok()?;
                let leaf = converter.parquet_column_index()?;
                let doubtful = self
                    .groups
                    .iter()
                    .map(|group| !bounds_are_ordered(&self.footer.metadata, group, leaf));
                let groups = self.groups.iter().copied();
                let bounds = match side {
                    BoundSide::Min => converter.row_group_mins(groups),
                    BoundSide::Max => converter.row_group_maxes(groups),
                };
                let doubtful = doubtful.map(Some).collect::<BooleanArray>();
                let bounds = nullif(&bounds.ok()?, &doubtful).ok()?;
                cast(&bounds, field.data_type()).ok()
            }
        }
    }
}

/// Ticks as a column of dates or times.
fn time_column(ticks: &[Option<i64>], data_type: &DataType) -> Option<ArrayRef> {
    if *data_type == DataType::Date32 {
        let days = ticks.iter().map(|tick| i32::try_from((*tick)?).ok());
        return Some(Arc::new(days.collect::<Date32Array>()));
    }
    let ticks: ArrayRef = Arc::new(Int64Array::from(ticks.to_vec()));
    cast(&ticks, data_type).ok()
}

impl PruningStatistics for RowGroupStatistics<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.bounds(column, BoundSide::Min)
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.bounds(column, BoundSide::Max)
    }

    fn num_containers(&self) -> usize {
        self.groups.len()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        // Values that are not written as their format says may become null.
        if self.formats.contains_key(&column.name) {
            return None;
        }
        let rows = || self.groups.iter().map(|group| group.num_rows() as u64);
        match self.origin(&column.name)? {
            FileColumnOrigin::Folder(value) if value.is_null(0) => {
                Some(Arc::new(UInt64Array::from_iter_values(rows())))
            }
            FileColumnOrigin::Folder(_) => {
                Some(Arc::new(UInt64Array::from(vec![0; self.groups.len()])))
            }
            FileColumnOrigin::Nowhere => Some(Arc::new(UInt64Array::from_iter_values(rows()))),
            FileColumnOrigin::File => {
                let stored = self.footer.metadata.file_metadata().schema_descr();
                let converter = StatisticsConverter::try_new(
                    self.columns.stored_name(&column.name)?,
                    &self.footer.schema,
                    stored,
                )
                .ok()?;
                let counts = converter
                    .with_missing_null_counts_as_zero(false)
                    .row_group_null_counts(self.groups.iter().copied())
                    .ok()?;
                Some(Arc::new(counts))
            }
        }
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        Some(Arc::new(UInt64Array::from_iter_values(
            self.groups.iter().map(|group| group.num_rows() as u64),
        )))
    }

    fn contained(&self, _: &Column, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}
