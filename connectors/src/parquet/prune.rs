//! Leaving out row groups by their statistics.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, UInt32Array, UInt64Array};
use arrow::compute::{cast, nullif, take};
use arrow::datatypes::SchemaRef;
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
use forebay_model::FileRange;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::file::metadata::RowGroupMetaData;

use crate::files::hive;
use crate::files::origin::FileColumnOrigin;

use super::extent::bounds_are_ordered;
use super::footer::Footer;
use super::plan::FileProjection;

/// Conditions in the form that statistics can answer.
#[derive(Debug)]
pub(crate) struct RowGroupPruner {
    predicates: Vec<PruningPredicate>,
    schema: SchemaRef,
}

impl RowGroupPruner {
    /// Conditions that cannot be answered by statistics are left out: pruning is a help, never
    /// a filter.
    pub(crate) fn new(conditions: &[Expr], schema: &SchemaRef) -> Self {
        let predicates = conditions
            .iter()
            .filter_map(|condition| pruning_predicate(condition, schema))
            .collect();
        RowGroupPruner {
            predicates,
            schema: schema.clone(),
        }
    }

    /// Columns of the conditions.
    pub(super) fn columns(&self) -> Vec<String> {
        let all = self
            .predicates
            .iter()
            .flat_map(|predicate| collect_columns(predicate.orig_expr()));
        let mut names: Vec<String> = all.map(|column| column.name().to_owned()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Whether a piece may hold rows that matter, by the values of its folders.
    pub(super) fn keep_piece(&self, piece: &FileRange) -> bool {
        if piece.partition.is_empty() {
            return true;
        }
        let folders = FolderStatistics {
            piece,
            schema: &self.schema,
        };
        let rejects = |predicate: &PruningPredicate| {
            predicate.prune(&folders).is_ok_and(|may| may == [false])
        };
        !self.predicates.iter().any(rejects)
    }

    /// Which of the row groups may hold rows that matter.
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
            groups: groups
                .iter()
                .map(|group| footer.metadata.row_group(*group))
                .collect(),
        };
        for predicate in &self.predicates {
            if let Ok(may) = predicate.prune(&stored) {
                keep.iter_mut()
                    .zip(may)
                    .for_each(|(keep, may)| *keep &= may);
            }
        }
        keep
    }
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

/// What the folders of a piece tell of its rows.
struct FolderStatistics<'a> {
    piece: &'a FileRange,
    schema: &'a SchemaRef,
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
        hive::partition_scalar(value, field.data_type()).ok()
    }
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
    groups: Vec<&'a RowGroupMetaData>,
}

impl RowGroupStatistics<'_> {
    fn origin(&self, name: &str) -> Option<&FileColumnOrigin> {
        self.columns
            .columns
            .iter()
            .find(|(field, _)| field.name() == name)
            .map(|(_, origin)| origin)
    }

    fn bounds(
        &self,
        column: &Column,
        of: impl Fn(&StatisticsConverter<'_>) -> parquet::errors::Result<ArrayRef>,
    ) -> Option<ArrayRef> {
        let (_, field) = self.schema.fields().find(&column.name)?;
        match self.origin(&column.name)? {
            FileColumnOrigin::Folder(one) => {
                take(one, &UInt32Array::from(vec![0; self.groups.len()]), None).ok()
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
                let bounds = nullif(
                    &of(&converter).ok()?,
                    &doubtful.map(Some).collect::<BooleanArray>(),
                )
                .ok()?;
                cast(&bounds, field.data_type()).ok()
            }
        }
    }
}

impl PruningStatistics for RowGroupStatistics<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.bounds(column, |of| of.row_group_mins(self.groups.iter().copied()))
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.bounds(column, |of| of.row_group_maxes(self.groups.iter().copied()))
    }

    fn num_containers(&self) -> usize {
        self.groups.len()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        let rows = || self.groups.iter().map(|group| group.num_rows() as u64);
        match self.origin(&column.name)? {
            FileColumnOrigin::Folder(one) if one.is_null(0) => {
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
