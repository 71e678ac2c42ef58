//! `target_encoding`: categories to the mean of a label.

mod encoder;
mod folds;
mod label_table;
mod smoothing;
mod statistic;

use std::sync::Arc;

use arrow::array::Array;
use arrow::datatypes::{DataType, Field};
use forebay_model::{Fault, Result, RowChange, TimeDistance, codes, type_words};
use forebay_plan::{
    BindScope, ColumnSelector, ConfiguredTransform, LoweredMap, MapOp, PlanOp, RowMark, Transform,
    ValueCount, WrittenNulls,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::encoder::LabelEncoder;
use self::folds::{FOLD, fold_columns, fold_op};
pub use self::smoothing::TargetSmoothing;
pub use self::statistic::TargetStatistic;
use crate::shared::{bad_value, finding_at, output_name, to_float_type};
use crate::time::{
    FloatType, LengthSpec, StepBack, TimeColumn, ask_moments, hide_helper_columns, time_column,
};

/// Categories to the mean of a label, drawn toward the mean of all labels. A row never sees its own label.
///
/// In: columns of categories that are not nested, and a label, a column of numbers or booleans. Out: `dtype`. The
/// encoding is `(sum of the category's labels + s * mean) / (labels + s)`, where `mean` is that of all labels that the
/// row may see, and s is `smoothing`. With `smoothing: auto`, as in scikit-learn (empirical Bayes), s is the variance
/// of the category's labels divided by that of all labels (both with ddof 0). A category without labels gives `mean`;
/// null is a category. A null or NaN label does not count.
///
/// - `cross_fit: folds`: rows are divided into `folds` by a hash (xxh3) of the columns `fold_by`, and a row sees the
///   labels of the other folds. A row has the same encoding in training, validation and serving. Labels of other folds
///   may be later than the row: refused where the label has a `horizon`.
/// - `cross_fit: time`: a row sees the labels of strictly earlier rows, with `gap` those at or before `t - gap`. An
///   artifact that is applied knows the labels that it was learned from.
///
/// With `compute: woe`, the encoding of a boolean label is the weight of evidence, `ln(((t + s) / (T + 2s)) / ((f + s) /
/// (F + 2s)))`: t and f are the true and false labels of the category, T and F those of all, and s is `smoothing`, 1 for
/// `auto`. A category without labels gives 0.
///
/// Null where no label may be seen: before the first labels, with a null time, or where all labels are in one fold. Such
/// values are counted.
/// State: some 300 bytes for each category and fold or time that occurs, spilled beyond the budget; the table of some
/// 60 bytes each has to fit memory. Follows scikit-learn's `TargetEncoder`; a number as `smoothing` is the `m` of
/// category_encoders' `MEstimateEncoder`; `woe` is its `WOEEncoder`, which gives categories with one label 0.
///
/// ```yaml
/// - target_encoding: { columns: [category], label: qty, fold_by: [store], suffix: _mean }
/// - target_encoding: { columns: [item], label: qty, cross_fit: time, gap: 1d, smoothing: 20, suffix: _level }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn target_encoding(columns, label),
    example = r#"target_encoding(["city"], "clicked").fold_by(["user"]).folds(10)"#
)]
pub struct TargetEncoding {
    /// Columns of categories; each is encoded by itself.
    pub columns: ColumnSelector,
    /// The column of labels.
    pub label: String,
    /// The number of a category.
    #[serde(default, skip_serializing_if = "TargetStatistic::is_mean")]
    pub compute: TargetStatistic,
    /// The labels that a row may see.
    #[serde(default)]
    pub cross_fit: CrossFit,
    /// Number of labels that the mean of all counts as, or `auto`. For `woe`, number of labels that each class has more.
    #[serde(default)]
    pub smoothing: TargetSmoothing,
    /// Number of folds, 2 to 1,000; 5 where left out.
    #[serde(default)]
    pub folds: Option<u32>,
    /// Columns whose values divide rows into folds; where left out, the keys and the time that the source declares.
    #[serde(default)]
    pub fold_by: Option<Vec<String>>,
    /// Distance before the row at which the labels end, a length of time; where left out, labels of strictly earlier
    /// rows count.
    #[serde(default)]
    pub gap: Option<LengthSpec>,
    /// The event-time column, where the source does not declare it.
    #[serde(default)]
    pub time: Option<String>,
    /// The type of the encoding.
    #[serde(default)]
    pub dtype: FloatType,
    /// Writes `<column><suffix>` instead of replacing the column.
    #[serde(default)]
    pub suffix: Option<String>,
}

/// The labels that a row may see.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CrossFit {
    /// Those of rows in other folds.
    #[default]
    Folds,
    /// Those of earlier rows.
    Time,
}

impl ConfiguredTransform for TargetEncoding {
    const NAME: &'static str = "target_encoding";
}

const FOLDS_DEFAULT: u32 = 5;

impl Transform for TargetEncoding {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        if let TargetSmoothing::Number(weight) = self.smoothing
            && !(weight >= 0.0 && weight.is_finite())
        {
            return Err(bad_value(format!(
                "`smoothing: {weight}` is not a number of labels"
            )));
        }
        let label = self.label_field(scope)?;
        if self.compute == TargetStatistic::Woe {
            self.check_woe(label)?;
        }
        match self.cross_fit {
            CrossFit::Folds => self.bind_folds(scope, label),
            CrossFit::Time => self.bind_time(scope, label),
        }
    }
}

impl TargetEncoding {
    fn label_field<'a>(&self, scope: &BindScope<'a>) -> Result<&'a Field> {
        let label = scope.field(&self.label)?;
        let data_type = label.data_type();
        if data_type.is_numeric() || *data_type == DataType::Boolean {
            return Ok(label);
        }
        let message = format!(
            "the label `{}` is {}, not a number or boolean",
            self.label,
            type_words(data_type)
        );
        Err(Fault::new(codes::COLUMN_TYPE, message)
            .column(&self.label)
            .hint("`derive` a boolean for one of its classes before this step"))
    }

    fn check_woe(&self, label: &Field) -> Result<()> {
        if *label.data_type() != DataType::Boolean {
            let words = type_words(label.data_type());
            let message = format!("the label `{}` is {words}, not a boolean", self.label);
            return Err(Fault::new(codes::COLUMN_TYPE, message)
                .column(&self.label)
                .hint("`woe` compares two classes: `derive` a boolean for one of them before"));
        }
        if self.smoothing.labels() == 0.0 {
            let message = "`smoothing: 0` gives categories of one class an infinite weight";
            return Err(bad_value(message).field("smoothing"));
        }
        Ok(())
    }

    fn bind_folds(&self, scope: &BindScope<'_>, label: &Field) -> Result<Vec<PlanOp>> {
        if self.gap.is_some() || self.time.is_some() {
            return Err(bad_value("`gap` and `time` are for `cross_fit: time`"));
        }
        let folds = self.folds.unwrap_or(FOLDS_DEFAULT);
        if !(2..=1_000).contains(&folds) {
            return Err(bad_value(format!(
                "`folds: {folds}` is not between 2 and 1000"
            )));
        }
        let fold_by = fold_columns(scope, self.fold_by.as_deref(), &self.label)?;
        let fold = TimeColumn {
            name: FOLD.to_owned(),
            data_type: DataType::Int64,
        };
        let mut ops = vec![fold_op(&fold_by, folds)];
        let mut names = Vec::new();
        for field in self.category_fields(scope)? {
            if fold_by == [field.name().clone()] {
                let name = field.name();
                let message = format!(
                    "`fold_by` is `{name}` alone: rows of a `{name}` see none of its labels"
                );
                return Err(bad_value(message)
                    .column(field.name())
                    .hint("name columns that differ between its rows"));
            }
            let output = output_name(field.name(), &self.suffix);
            let map = self.column_map(scope, field, label, &fold, None)?;
            ops.push(PlanOp::Map(map));
            names.push(output);
        }
        ops.push(hide_helper_columns(scope, names));
        Ok(ops)
    }

    fn bind_time(&self, scope: &BindScope<'_>, label: &Field) -> Result<Vec<PlanOp>> {
        if self.folds.is_some() || self.fold_by.is_some() {
            return Err(bad_value(
                "`folds` and `fold_by` are for `cross_fit: folds`",
            ));
        }
        let time = time_column(scope, Self::NAME, &self.time)?;
        let distance = match self.gap.filter(|gap| !gap.is_zero()) {
            Some(gap) => gap.distance(&time)?,
            // One tick: strictly earlier.
            None => TimeDistance::Ticks(1),
        };
        let back = time.steps_back(distance)?;
        let mut ops = Vec::new();
        for field in self.category_fields(scope)? {
            let map = self.column_map(scope, field, label, &time, Some(back))?;
            ops.push(PlanOp::Map(map.data_age(time.behind(distance))));
        }
        Ok(ops)
    }

    fn category_fields<'a>(&self, scope: &BindScope<'a>) -> Result<Vec<&'a Field>> {
        scope.typed_columns(&self.columns, "a category", |field| {
            !field.data_type().is_nested()
        })
    }

    /// Encodes a column by labels of each `position`, a fold or a time.
    fn column_map(
        &self,
        scope: &BindScope<'_>,
        field: &Field,
        label: &Field,
        position: &TimeColumn,
        back: Option<StepBack>,
    ) -> Result<MapOp> {
        // By time, the distance from the row's time is known.
        let is_by_folds = back.is_none();
        let key = field.clone();
        let request = ask_moments(scope, label, &[key], position)?;
        let whole = label.data_type().is_integer() || *label.data_type() == DataType::Boolean;
        let dtype = self.dtype.data_type();
        let statistic = self.compute;
        let smoothing = self.smoothing;
        let name = output_name(field.name(), &self.suffix);
        let map = MapOp::fitted(
            [field.name(), &position.name],
            [Field::new(name, dtype.clone(), true)],
            [request],
            move |findings| {
                let finding = finding_at(findings, 0)?;
                let encoder = LabelEncoder::new(finding, whole, statistic, smoothing, back)?;
                let dtype = dtype.clone();
                Ok(LoweredMap::new(move |inputs, rows| {
                    let (encoded, marks) = encoder.encode(inputs, rows)?;
                    Ok(vec![to_float_type(encoded, &dtype), Arc::new(marks)])
                }))
            },
        );
        let nulls = WrittenNulls::MadeOfOthers("has no labels of other rows");
        // A null is a category, too: each null that is written is a value without an encoding.
        let not_encoded = ValueCount::new(RowChange::Nulled, |_, encoded| {
            Ok(encoded.null_count() as u64)
        });
        let map = map.written_nulls(nulls).counting(not_encoded);
        let map = map.marking([RowMark::Unknown]).portable_instead(
            "use `frequency_encoding` or `one_hot`, whose numbers depend on the category alone, \
             and train again",
        );
        Ok(if is_by_folds {
            map.of_other_rows()
        } else {
            map
        })
    }
}
