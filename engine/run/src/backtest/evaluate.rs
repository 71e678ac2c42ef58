//! Forecasts beside the values that came: a pipeline of its own that joins and adds up.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use forebay_model::{
    Fault, NodeInput, Pipeline, PipelineNode, PipelineSink, PipelineSource, Result, Step,
};
use forebay_plan::{FutureFlow, sql_literal, sql_name};
use forebay_storage::{ScanRequest, literal_path};
use serde_json::json;

use super::report::{ForecasterScores, GroupScore, StepScore};
use super::scores::{ErrorSums, ForecastQuantiles};
use crate::predict::{quantile_column, step_of_future};
use crate::session::Session;

/// What is scored.
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

/// All sums of a backtest.
pub(super) struct Scores {
    cells: Vec<ScoredCell>,
    quantiles: ForecastQuantiles,
}

impl Evaluation<'_> {
    /// Joins and adds up, with `dir` for what is written on the way.
    pub fn run(&self, dir: &Path) -> Result<Scores> {
        let pipeline = self.scoring_pipeline(dir)?;
        let session = Session {
            deadline: None,
            cluster: None,
            ..self.session.clone()
        };
        let report = session.allowing_empty(true).run(&pipeline)?;
        let output = report
            .outputs
            .first()
            .ok_or_else(|| Fault::internal("scores that were not written"))?;
        let source = self
            .session
            .connectors
            .source("parquet", &json!({ "path": literal_path(&output.data) }))?;
        let dataset = source.discover(&self.session.io, &[])?;
        let request = ScanRequest::of_all_columns(&dataset.schema);
        let mut cells = Vec::new();
        for span in &dataset.spans {
            for chunk in source.open(&self.session.io, span, &request)? {
                self.read_cells(&chunk?.batch, &mut cells)?;
            }
        }
        Ok(Scores {
            cells,
            quantiles: self.quantiles.clone(),
        })
    }

    /// The pipeline up to the rows that `future_rows` gets, and a query over them and the forecasts.
    fn scoring_pipeline(&self, dir: &Path) -> Result<Pipeline> {
        let (node, place) = step_of_future(self.pipeline, &self.sink.from)?;
        let (values, forecasts, scores) = (
            self.new_name("values"),
            self.new_name("forecasts"),
            self.new_name("scores"),
        );
        let time = self.future.source.field_with_name(&self.future.time)?;
        let origin = match time.data_type().is_temporal() {
            true => sql_literal(self.from, time.data_type()),
            false => self.from.to_owned(),
        };
        let condition = format!("{} >= {}", sql_name(time.name()), origin);
        let (mut steps, input) = (node.steps[..place].to_vec(), node.input.clone());
        steps.push(Step {
            kind: "filter".to_owned(),
            config: json!(condition),
            at: node.at.clone(),
        });
        let mut pipeline = self.pipeline.clone();
        pipeline.name = format!("{}.backtest.scores", self.pipeline.name);
        (pipeline.label, pipeline.deadline, pipeline.feed) = Default::default();
        (pipeline.sinks, pipeline.trainings, pipeline.predictions) = Default::default();
        let place = |path: PathBuf| path.display().to_string();
        pipeline.sources.push(PipelineSource {
            name: forecasts.clone(),
            format: "parquet".to_owned(),
            config: json!({ "path": literal_path(&place(self.forecasts.to_owned())) }),
            time: None,
            keys: Vec::new(),
            ready: None,
            duplicates: None,
            lookback: None,
            at: None,
        });
        pipeline
            .nodes
            .push(PipelineNode::new(&values, input, steps));
        pipeline.nodes.push(PipelineNode::new(
            &scores,
            NodeInput::Sql(self.query(&values, &forecasts)),
            Vec::new(),
        ));
        pipeline.sinks.push(PipelineSink {
            name: scores.clone(),
            from: scores,
            format: "parquet".to_owned(),
            config: self
                .session
                .canonical_sink("parquet", json!({ "path": place(dir.to_owned()) }))?,
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

    /// One row per fold, forecaster, step and group: sums over its rows.
    fn query(&self, values: &str, forecasts: &str) -> String {
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
        let keys = self
            .future
            .keys
            .iter()
            .map(|key| format!("(f.{0} IS NOT DISTINCT FROM v.{0})", sql_name(key)));
        let same: Vec<String> = keys
            .chain([format!("f.{0} = v.{0}", sql_name(&self.future.time))])
            .collect();
        let (label, prediction) = (sql_name(self.label), sql_name(self.prediction));
        let QuantileSql { columns, sums } = self.quantile_sql();
        format!(
            "SELECT fold, forecaster, step{groups}, count(came) AS rows, count(*) - count(came) AS missing, \
             sum(abs(predicted - came)) AS absolute, sum(predicted - came) AS signed, \
             sum((predicted - came) * (predicted - came)) AS squared, sum(abs(came)) AS came{sums} \
             FROM (SELECT CAST(f.fold AS BIGINT) AS fold, CAST(f.forecaster AS BIGINT) AS forecaster, \
             CAST(f.step AS BIGINT) AS step{grouped}, CAST(f.{prediction} AS DOUBLE) AS predicted{columns}, \
             nullif(CAST(v.{label} AS DOUBLE), CAST('NaN' AS DOUBLE)) AS came \
             FROM {} f LEFT JOIN {} v ON {}) AS forecast_rows GROUP BY fold, forecaster, step{groups}",
            sql_name(forecasts),
            sql_name(values),
            same.join(" AND "),
        )
    }

    /// Pinball losses of quantiles, and values inside central intervals.
    fn quantile_sql(&self) -> QuantileSql {
        let (mut columns, mut sums) = (String::new(), String::new());
        for (number, quantile) in self.quantiles.0.iter().enumerate() {
            let column = sql_name(&quantile_column(self.prediction, *quantile));
            columns += &format!(", CAST(f.{column} AS DOUBLE) AS quantile_{number}");
            let error = format!("(came - quantile_{number})");
            let above = 1.0 - quantile;
            sums += &format!(
                ", sum(CASE WHEN {error} > 0 THEN {quantile} * {error} ELSE -{above} * {error} END) AS pinball_{number}"
            );
        }
        for (number, interval) in self.quantiles.intervals().iter().enumerate() {
            let inside = format!(
                "came >= quantile_{} AND came <= quantile_{}",
                interval.low, interval.high
            );
            sums += &format!(", sum(CASE WHEN {inside} THEN 1 ELSE 0 END) AS inside_{number}");
        }
        QuantileSql { columns, sums }
    }

    fn read_cells(&self, batch: &RecordBatch, cells: &mut Vec<ScoredCell>) -> Result<()> {
        let column = |name: &str| {
            batch
                .column_by_name(name)
                .ok_or_else(|| Fault::internal(format!("scores without `{name}`")))
        };
        let numbers = |name: &str| {
            Ok::<_, Fault>(
                cast(column(name)?, &DataType::Float64)?
                    .as_primitive::<Float64Type>()
                    .clone(),
            )
        };
        let counts = |name: &str| {
            Ok::<_, Fault>(
                cast(column(name)?, &DataType::Int64)?
                    .as_primitive::<Int64Type>()
                    .clone(),
            )
        };
        let (fold, forecaster, step) = (counts("fold")?, counts("forecaster")?, counts("step")?);
        let (rows, missing) = (counts("rows")?, counts("missing")?);
        let (absolute, signed) = (numbers("absolute")?, numbers("signed")?);
        let (squared, came) = (numbers("squared")?, numbers("came")?);
        let pinball =
            (0..self.quantiles.0.len()).map(|number| numbers(&format!("pinball_{number}")));
        let pinball = pinball.collect::<Result<Vec<_>>>()?;
        let inside =
            (0..self.quantiles.intervals().len()).map(|number| counts(&format!("inside_{number}")));
        let inside = inside.collect::<Result<Vec<_>>>()?;
        let groups = (0..self.by.len())
            .map(|number| Ok(cast(column(&format!("group_{number}"))?, &DataType::Utf8)?));
        let groups = groups.collect::<Result<Vec<_>>>()?;
        for row in 0..batch.num_rows() {
            // Sums of no rows are null.
            let sum = |sums: &arrow::array::Float64Array| {
                if sums.is_null(row) {
                    0.0
                } else {
                    sums.value(row)
                }
            };
            let value = |texts: &arrow::array::ArrayRef| {
                let texts = texts.as_string::<i32>();
                texts.is_valid(row).then(|| texts.value(row).to_owned())
            };
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
                    pinball: pinball.iter().map(sum).collect(),
                    inside: inside
                        .iter()
                        .map(|counts| counts.value(row) as u64)
                        .collect(),
                },
                missing: missing.value(row) as u64,
            });
        }
        Ok(())
    }
}

/// Parts of the query that scores quantiles.
struct QuantileSql {
    columns: String,
    sums: String,
}

impl Scores {
    /// Adds the sums up along each axis.
    pub fn by_forecaster(&self, names: &[&str], folds: usize) -> Vec<ForecasterScores> {
        let one = |(number, name): (usize, &&str)| {
            let score = |sums: &ErrorSums| sums.score(&self.quantiles);
            let own = || {
                self.cells
                    .iter()
                    .filter(move |cell| cell.forecaster == number)
            };
            let mut by_fold = vec![ErrorSums::default(); folds];
            let mut by_step: BTreeMap<u64, ErrorSums> = BTreeMap::new();
            let mut by_group: BTreeMap<&[Option<String>], ErrorSums> = BTreeMap::new();
            let mut overall = ErrorSums::default();
            for cell in own() {
                overall.add(&cell.sums);
                by_step.entry(cell.step).or_default().add(&cell.sums);
                if let Some(fold) = by_fold.get_mut(cell.fold) {
                    fold.add(&cell.sums);
                }
                if !cell.group.is_empty() {
                    by_group.entry(&cell.group).or_default().add(&cell.sums);
                }
            }
            ForecasterScores {
                forecaster: (*name).to_owned(),
                overall: score(&overall),
                missing: own().map(|cell| cell.missing).sum(),
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
            }
        };
        names.iter().enumerate().map(one).collect()
    }
}
