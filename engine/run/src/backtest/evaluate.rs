//! Joins forecasts with the values that were observed later and sums their errors, in a pipeline of
//! its own.

use std::collections::BTreeMap;
use std::path::Path;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use forebay_contract::{ForecastFormat, ScanRequest, literal_path, quantile_column};
use forebay_model::{
    Fault, NodeInput, Pipeline, PipelineNode, PipelineSink, PipelineSource, Result, Step,
};
use forebay_plan::{FutureFlow, sql_literal, sql_name};
use serde_json::json;

use super::report::{ForecasterScores, GroupScore, StepScore, StepTotal};
use super::scores::{ErrorSums, ForecastQuantiles};
use crate::intermediate_files::IntermediateFiles;
use crate::predict::step_of_future;
use crate::session::Session;

/// Inputs of the scoring of one forecast.
pub(super) struct Evaluation<'a> {
    pub session: &'a Session,
    pub pipeline: &'a Pipeline,
    pub label: &'a str,
    pub future: &'a FutureFlow,
    /// The column of predictions.
    pub prediction: &'a str,
    pub quantiles: &'a ForecastQuantiles,
    pub sink: &'a PipelineSink,
    pub by: &'a [String],
    /// Rows of a season, by whose naive forecast errors are scaled.
    pub season_rows: u64,
    /// The directory of the forecasts of all folds.
    pub forecasts: &'a Path,
    /// The origin of the first fold.
    pub from: &'a str,
}

/// Sums of errors of one fold, forecaster, step and group.
struct ScoredCell {
    fold: usize,
    forecaster: usize,
    step: u64,
    group: Vec<Option<String>>,
    sums: ErrorSums,
    /// Forecasts without a value.
    missing: u64,
}

/// Error sums of a backtest, by cell.
pub(super) struct Scores {
    cells: Vec<ScoredCell>,
    quantiles: ForecastQuantiles,
}

/// Names of the tables that a query over forecasts reads.
pub(super) struct ScoredTables {
    /// The values that came.
    pub values: String,
    /// The forecasts of all folds and forecasters.
    pub forecasts: String,
    /// The scale of the errors of each series.
    pub scales: String,
}

impl Evaluation<'_> {
    /// Joins and sums; `dir` holds intermediate files.
    pub fn run(&self, dir: &Path) -> Result<Scores> {
        let mut cells = Vec::new();
        self.read_rows(dir, &|tables| self.query(tables), &mut |batch| {
            self.read_cells(batch, &mut cells)
        })?;
        Ok(Scores {
            cells,
            quantiles: self.quantiles.clone(),
        })
    }

    /// Writes the rows of a query over forecasts and values to `dir`, and passes them on in their order.
    pub fn read_rows(
        &self,
        dir: &Path,
        query: &dyn Fn(&ScoredTables) -> String,
        read: &mut dyn FnMut(&RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let pipeline = self.scoring_pipeline(dir, query)?;
        let session = Session {
            deadline: None,
            ..self.session.for_inner_run(self.session.options.clone())
        };
        let report = session.allowing_empty(true).run(&pipeline)?;
        let output = report
            .outputs
            .first()
            .ok_or_else(|| Fault::internal("scores that were not written"))?;
        let files = IntermediateFiles::new(self.session.connectors.as_ref());
        let source = files.source(&output.data)?;
        let dataset = source.discover(&self.session.io, &[])?;
        let request = ScanRequest::of_all_columns(&dataset.schema);
        for span in &dataset.spans {
            for chunk in source.open(&self.session.io, span, &request)? {
                read(&chunk?.batch)?;
            }
        }
        Ok(())
    }

    /// The pipeline up to the rows that `future_rows` gets, and a query over them and the forecasts.
    fn scoring_pipeline(
        &self,
        dir: &Path,
        query: &dyn Fn(&ScoredTables) -> String,
    ) -> Result<Pipeline> {
        let (node, future_position) = step_of_future(self.pipeline, &self.sink.from)?;
        let tables = ScoredTables {
            values: self.new_name("values"),
            forecasts: self.new_name("forecasts"),
            scales: self.new_name("scales"),
        };
        let scores = self.new_name("scores");
        let history = self.new_name("history");
        let time = self.future.source.field_with_name(&self.future.time)?;
        let origin = if time.data_type().is_temporal() {
            sql_literal(self.from, time.data_type())
        } else {
            self.from.to_owned()
        };
        let condition = format!("{} >= {}", sql_name(time.name()), origin);
        let earlier = format!("{} < {}", sql_name(time.name()), origin);
        let steps = &node.steps[..future_position];
        let filter = |condition: String| Step {
            kind: "filter".to_owned(),
            config: json!(condition),
            at: node.at.clone(),
        };
        let input = node.input.clone();
        let value_steps = [steps, &[filter(condition)]].concat();
        let history_steps = [steps, &[filter(earlier)]].concat();
        let mut pipeline = self.pipeline.clone();
        pipeline.name = format!("{}.backtest.scores", self.pipeline.name);
        pipeline.label = None;
        pipeline.deadline = None;
        pipeline.feed = None;
        pipeline.sinks.clear();
        pipeline.trainings.clear();
        pipeline.predictions.clear();
        let forecasts_path = self.forecasts.display().to_string();
        pipeline.sources.push(PipelineSource {
            name: tables.forecasts.clone(),
            format: ForecastFormat::Parquet.name().to_owned(),
            // Of a forecast that was published as text, numbers are wider than those of the naive ones, and only the
            // columns that are needed here are read.
            config: json!({
                "path": literal_path(&forecasts_path),
                "schema": { "widening": true, "added": "ignore" },
            }),
            time: None,
            keys: Vec::new(),
            ready: None,
            duplicates: None,
            lookback: None,
            days: Default::default(),
            at: None,
        });
        pipeline.nodes.push(PipelineNode::new(
            &tables.values,
            input.clone(),
            value_steps,
        ));
        pipeline
            .nodes
            .push(PipelineNode::new(&history, input, history_steps));
        pipeline.nodes.push(PipelineNode::new(
            &tables.scales,
            NodeInput::Sql(self.scales_query(&history)),
            Vec::new(),
        ));
        pipeline.nodes.push(PipelineNode::new(
            &scores,
            NodeInput::Sql(query(&tables)),
            Vec::new(),
        ));
        let files = IntermediateFiles::new(self.session.connectors.as_ref());
        pipeline.sinks.push(PipelineSink {
            name: scores.clone(),
            from: scores,
            format: files.format(),
            config: files.sink_config(&dir.display().to_string())?,
            split: None,
            optional: false,
            at: None,
        });
        Ok(pipeline)
    }

    fn new_name(&self, stem: &str) -> String {
        let mut name = format!("backtest_{stem}");
        while self.pipeline.node(&name).is_some() || self.pipeline.source(&name).is_some() {
            name.push('_');
        }
        name
    }

    /// SQL query with the mean absolute and squared error of the seasonal naive forecast of each series.
    /// Means are exact, with and without keys, so that a scale has the same bits for any number of threads.
    fn scales_query(&self, history: &str) -> String {
        let keys: Vec<String> = self.future.keys.iter().map(|key| sql_name(key)).collect();
        let listed: String = keys.iter().map(|key| format!("{key}, ")).collect();
        let partition = if keys.is_empty() {
            String::new()
        } else {
            format!("PARTITION BY {} ", keys.join(", "))
        };
        let grouped = if keys.is_empty() {
            String::new()
        } else {
            format!(" GROUP BY {}", keys.join(", "))
        };
        let label = sql_name(self.label);
        let time = sql_name(&self.future.time);
        let season = self.season_rows;
        format!(
            "SELECT {listed}avg(abs(change)) AS scale, avg(change * change) AS squared_scale \
             FROM (SELECT {listed}\
             value - lag(value, {season}) OVER ({partition}ORDER BY {time}) AS change \
             FROM (SELECT {listed}{time}, \
             nullif(CAST({label} AS DOUBLE), CAST('NaN' AS DOUBLE)) AS value \
             FROM {}) AS past) AS changes{grouped}",
            sql_name(history)
        )
    }

    /// SQL query with one row of error sums per fold, forecaster, step and group.
    fn query(&self, tables: &ScoredTables) -> String {
        let groups: String = (0..self.by.len())
            .map(|number| format!(", group_{number}"))
            .collect();
        let grouped: String = self
            .by
            .iter()
            .enumerate()
            .map(|(number, column)| {
                format!(
                    ", CAST(f.{} AS VARCHAR) AS group_{number}",
                    sql_name(column)
                )
            })
            .collect();
        let same = same_series_and_time(&self.future.keys, &self.future.time);
        let same_series = same_series(&self.future.keys);
        let came = number_sql("v", self.label);
        // A row without a prediction has no error, so that its value counts as none that came: else the sums of values
        // would hold more rows than those of errors.
        let predicted = number_sql("f", self.prediction);
        let QuantileSql { columns, sums } = self.quantile_sql();
        format!(
            "SELECT fold, forecaster, step{groups}, count(came) AS rows, count(*) - count(came) \
             AS missing, \
             sum(abs(predicted - came)) AS absolute, sum(predicted - came) AS signed, \
             sum((predicted - came) * (predicted - came)) AS squared, sum(abs(came)) AS came, \
             sum(came) AS actual, \
             sum(CASE WHEN came IS NOT NULL THEN predicted END) AS predicted_sum, \
             sum(CASE WHEN abs(predicted) + abs(came) > 0 \
             THEN abs(predicted - came) / (abs(predicted) + abs(came)) \
             ELSE 0 END) AS symmetric, \
             sum(CASE WHEN abs(came) > 0 THEN 1 ELSE 0 END) AS nonzero_rows, \
             sum(CASE WHEN abs(came) > 0 \
             THEN abs(predicted - came) / abs(came) END) AS percentage, \
             sum(CASE WHEN scale > 0 AND came IS NOT NULL THEN 1 ELSE 0 END) AS scaled_rows, \
             sum(CASE WHEN scale > 0 THEN abs(predicted - came) / scale END) AS scaled, \
             sum(CASE WHEN scale > 0 \
             THEN (predicted - came) * (predicted - came) / squared_scale END) AS scaled_squared\
             {sums} \
             FROM (SELECT CAST(f.fold AS BIGINT) AS fold, CAST(f.forecaster AS BIGINT) AS \
             forecaster, \
             CAST(f.step AS BIGINT) AS step{grouped}, {predicted} AS predicted{columns}, \
             CASE WHEN {predicted} IS NOT NULL THEN {came} END AS came, \
             s.scale, s.squared_scale \
             FROM {} f LEFT JOIN {} v ON {same} LEFT JOIN {} s ON {same_series}) AS forecast_rows \
             GROUP BY fold, forecaster, step{groups}",
            sql_name(&tables.forecasts),
            sql_name(&tables.values),
            sql_name(&tables.scales),
        )
    }

    /// Pinball losses of quantiles, and values inside central intervals.
    fn quantile_sql(&self) -> QuantileSql {
        let mut columns = String::new();
        let mut sums = String::new();
        for (number, quantile) in self.quantiles.0.iter().enumerate() {
            let column = sql_name(&quantile_column(self.prediction, *quantile));
            columns += &format!(", CAST(f.{column} AS DOUBLE) AS quantile_{number}");
            let error = format!("(came - quantile_{number})");
            let above = 1.0 - quantile;
            sums += &format!(
                ", sum(CASE WHEN {error} > 0 THEN {quantile} * {error} ELSE -{above} * {error} \
                 END) AS pinball_{number}, \
                 sum(CASE WHEN came <= quantile_{number} THEN 1 ELSE 0 END) AS below_{number}"
            );
        }
        for (number, interval) in self.quantiles.intervals().iter().enumerate() {
            let inside = format!(
                "came >= quantile_{} AND came <= quantile_{}",
                interval.low, interval.high
            );
            sums += &format!(", sum(CASE WHEN {inside} THEN 1 ELSE 0 END) AS inside_{number}");
            let low = format!("quantile_{}", interval.low);
            let high = format!("quantile_{}", interval.high);
            let penalty = 2.0 / (1.0 - interval.level);
            sums += &format!(
                ", sum(CASE WHEN came IS NULL THEN 0 ELSE {high} - {low} + {penalty} * \
                 (CASE WHEN came < {low} THEN {low} - came \
                 WHEN came > {high} THEN came - {high} ELSE 0 END) END) AS winkler_{number}"
            );
        }
        QuantileSql { columns, sums }
    }

    fn read_cells(&self, batch: &RecordBatch, cells: &mut Vec<ScoredCell>) -> Result<()> {
        let fold = counts(batch, "fold")?;
        let forecaster = counts(batch, "forecaster")?;
        let step = counts(batch, "step")?;
        let rows = counts(batch, "rows")?;
        let missing = counts(batch, "missing")?;
        let absolute = numbers(batch, "absolute")?;
        let signed = numbers(batch, "signed")?;
        let squared = numbers(batch, "squared")?;
        let came = numbers(batch, "came")?;
        let actual = numbers(batch, "actual")?;
        let predicted = numbers(batch, "predicted_sum")?;
        let mut pinball = Vec::new();
        let mut below = Vec::new();
        for number in 0..self.quantiles.0.len() {
            pinball.push(numbers(batch, &format!("pinball_{number}"))?);
            below.push(counts(batch, &format!("below_{number}"))?);
        }
        let mut inside = Vec::new();
        let mut winkler = Vec::new();
        for number in 0..self.quantiles.intervals().len() {
            inside.push(counts(batch, &format!("inside_{number}"))?);
            winkler.push(numbers(batch, &format!("winkler_{number}"))?);
        }
        let symmetric = numbers(batch, "symmetric")?;
        let nonzero_rows = counts(batch, "nonzero_rows")?;
        let percentage = numbers(batch, "percentage")?;
        let scaled_rows = counts(batch, "scaled_rows")?;
        let scaled = numbers(batch, "scaled")?;
        let scaled_squared = numbers(batch, "scaled_squared")?;
        let mut groups = Vec::new();
        for number in 0..self.by.len() {
            let group = score_column(batch, &format!("group_{number}"))?;
            groups.push(cast(group, &DataType::Utf8)?);
        }
        for row in 0..batch.num_rows() {
            let sum = |sums: &Float64Array| sum_at(sums, row);
            let value = |texts: &ArrayRef| text_at(texts, row);
            cells.push(ScoredCell {
                fold: fold.value(row) as usize,
                forecaster: forecaster.value(row) as usize,
                step: step.value(row) as u64,
                group: groups.iter().map(value).collect(),
                sums: ErrorSums {
                    rows: rows.value(row) as u64,
                    absolute: sum(&absolute),
                    signed: sum(&signed),
                    squared: sum(&squared),
                    values: sum(&came),
                    actual: sum(&actual),
                    predicted: sum(&predicted),
                    pinball: pinball.iter().map(sum).collect(),
                    below: counts_at(&below, row),
                    inside: counts_at(&inside, row),
                    winkler: winkler.iter().map(sum).collect(),
                    symmetric: sum(&symmetric),
                    nonzero_rows: nonzero_rows.value(row) as u64,
                    percentage: sum(&percentage),
                    scaled_rows: scaled_rows.value(row) as u64,
                    scaled: sum(&scaled),
                    scaled_squared: sum(&scaled_squared),
                },
                missing: missing.value(row) as u64,
            });
        }
        Ok(())
    }
}

/// The condition that a forecast `f` and a value `v` are of the same series and time. A null key equals a null key.
///
/// All columns are compared by `IS NOT DISTINCT FROM`: the query engine joins by them only where no column is compared by
/// `=`, and else meets every series with every series of the same time. Neither side has a null time.
pub(super) fn same_series_and_time(keys: &[String], time: &str) -> String {
    same_columns("f", "v", keys.iter().map(String::as_str).chain([time]))
}

/// The condition that a forecast `f` and a scale `s` are of the same series.
pub(super) fn same_series(keys: &[String]) -> String {
    if keys.is_empty() {
        return "true".to_owned();
    }
    same_columns("f", "s", keys.iter().map(String::as_str))
}

/// A column of a table as numbers, in SQL. NaN is null.
pub(super) fn number_sql(table: &str, column: &str) -> String {
    format!(
        "nullif(CAST({table}.{} AS DOUBLE), CAST('NaN' AS DOUBLE))",
        sql_name(column)
    )
}

/// The condition that columns of two tables are equal, or both null.
fn same_columns<'a>(table: &str, other: &str, columns: impl Iterator<Item = &'a str>) -> String {
    let same = columns.map(|column| {
        let name = sql_name(column);
        format!("({table}.{name} IS NOT DISTINCT FROM {other}.{name})")
    });
    same.collect::<Vec<_>>().join(" AND ")
}

/// Parts of the query that scores quantiles.
struct QuantileSql {
    columns: String,
    sums: String,
}

impl Scores {
    /// Adds the sums up along each axis.
    pub fn by_forecaster(&self, names: &[&str], folds: usize) -> Vec<ForecasterScores> {
        let mut scores = Vec::with_capacity(names.len());
        for (number, name) in names.iter().enumerate() {
            scores.push(self.scores_of(number, name, folds));
        }
        scores
    }

    fn scores_of(&self, forecaster: usize, name: &str, folds: usize) -> ForecasterScores {
        let mut overall = ErrorSums::default();
        let mut missing = 0;
        let mut by_fold = vec![ErrorSums::default(); folds];
        let mut by_step: BTreeMap<u64, ErrorSums> = BTreeMap::new();
        let mut by_group: BTreeMap<&[Option<String>], ErrorSums> = BTreeMap::new();
        let mut fold_steps: Vec<BTreeMap<u64, ErrorSums>> = vec![BTreeMap::new(); folds];
        for cell in &self.cells {
            if cell.forecaster != forecaster {
                continue;
            }
            overall.add(&cell.sums);
            missing += cell.missing;
            by_step.entry(cell.step).or_default().add(&cell.sums);
            if let Some(fold) = by_fold.get_mut(cell.fold) {
                fold.add(&cell.sums);
            }
            if let Some(steps) = fold_steps.get_mut(cell.fold) {
                steps.entry(cell.step).or_default().add(&cell.sums);
            }
            if !cell.group.is_empty() {
                by_group.entry(&cell.group).or_default().add(&cell.sums);
            }
        }
        let score = |sums: &ErrorSums| sums.score(&self.quantiles);
        ForecasterScores {
            forecaster: name.to_owned(),
            overall: score(&overall),
            missing,
            folds: by_fold.iter().map(score).collect(),
            steps: by_step
                .iter()
                .map(|(step, sums)| StepScore {
                    step: *step,
                    score: score(sums),
                })
                .collect(),
            groups: by_group
                .iter()
                .map(|(group, sums)| GroupScore {
                    group: group.to_vec(),
                    score: score(sums),
                })
                .collect(),
            totals: fold_steps.iter().map(step_totals).collect(),
        }
    }
}

/// Values beside forecasts of the steps of a fold.
fn step_totals(steps: &BTreeMap<u64, ErrorSums>) -> Vec<StepTotal> {
    let mut totals = Vec::with_capacity(steps.len());
    for (step, sums) in steps {
        totals.push(StepTotal {
            step: *step,
            rows: sums.rows,
            actual: sums.actual,
            predicted: sums.predicted,
        });
    }
    totals
}

pub(super) fn score_column<'b>(batch: &'b RecordBatch, name: &str) -> Result<&'b ArrayRef> {
    let column = batch.column_by_name(name);
    column.ok_or_else(|| Fault::internal(format!("scores without `{name}`")))
}

pub(super) fn numbers(batch: &RecordBatch, name: &str) -> Result<Float64Array> {
    let column = cast(score_column(batch, name)?, &DataType::Float64)?;
    Ok(column.as_primitive::<Float64Type>().clone())
}

/// The counts of a row.
fn counts_at(columns: &[Int64Array], row: usize) -> Vec<u64> {
    columns
        .iter()
        .map(|counts| counts.value(row) as u64)
        .collect()
}

pub(super) fn counts(batch: &RecordBatch, name: &str) -> Result<Int64Array> {
    let column = cast(score_column(batch, name)?, &DataType::Int64)?;
    Ok(column.as_primitive::<Int64Type>().clone())
}

/// The number of a row; `None` where it is null.
pub(super) fn number_at(numbers: &Float64Array, row: usize) -> Option<f64> {
    numbers.is_valid(row).then(|| numbers.value(row))
}

/// A sum of a cell. Sums of no rows are null.
fn sum_at(sums: &Float64Array, row: usize) -> f64 {
    if sums.is_null(row) {
        0.0
    } else {
        sums.value(row)
    }
}

/// The text of a row; `None` where it is null.
pub(super) fn text_at(texts: &ArrayRef, row: usize) -> Option<String> {
    let texts = texts.as_string::<i32>();
    texts.is_valid(row).then(|| texts.value(row).to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{Field, Schema};
    use datafusion::common::NullEquality;
    use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
    use datafusion::datasource::empty::EmptyTable;
    use datafusion::logical_expr::LogicalPlan;
    use datafusion::prelude::SessionContext;

    use super::*;

    #[test]
    fn forecasts_meet_values_by_all_keys_at_once() {
        let fields =
            ["store", "the item", "time"].map(|name| Field::new(name, DataType::Utf8, true));
        let schema = Arc::new(Schema::new(fields.to_vec()));
        let session = SessionContext::new();
        for table in ["f", "v"] {
            let empty = Arc::new(EmptyTable::new(schema.clone()));
            session.register_table(table, empty).unwrap();
        }
        let keys = ["store".to_owned(), "the item".to_owned()];
        let same = same_series_and_time(&keys, "time");
        let query = format!("SELECT count(v.time) FROM f LEFT JOIN v ON {same}");
        let plan = futures::executor::block_on(async {
            session
                .sql(&query)
                .await
                .unwrap()
                .into_optimized_plan()
                .unwrap()
        });
        let mut joins = Vec::new();
        plan.apply(|node| {
            if let LogicalPlan::Join(join) = node {
                joins.push((join.on.len(), join.filter.is_some(), join.null_equality));
            }
            Ok(TreeNodeRecursion::Continue)
        })
        .unwrap();
        assert_eq!(joins, [(3, false, NullEquality::NullEqualsNull)]);
    }
}
