//! Stages of a target's transformation as operations.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array};
use arrow::datatypes::{DataType, Field};
use forebay_analyze::SeriesStatistic;
use forebay_contract::{
    KeyNumbers, PortableMap, TARGET_PREFIX, TargetFunction, TargetStage, parameter_columns,
    row_parameters,
};
use forebay_model::{Fault, Result, codes};
use forebay_plan::{BindScope, MapOp, PlanOp, WrittenNulls};
use forebay_window::{SeriesLength, WindowFunction};

use super::operation::{BoxCoxExponent, BoxCoxFit, DifferenceLengths, SeasonalLength};
use super::scale::scale_parameters;
use super::series_numbers::{fitted_numbers, request_fit, series_columns, series_keys};
use super::{TargetOperation, TargetTransform};
use crate::shared::{bad_value, doubles};
use crate::time::LengthSpec;
use crate::time::windows::{WindowOpBuilder, require_not_empty};

/// Most differences that can be asked for: more leave nothing of any series.
const DIFFERENCES_MAX: u8 = 5;

/// Builds the operations of one `target` step.
pub(super) struct StageBuilder<'a> {
    scope: &'a BindScope<'a>,
    step: &'a TargetTransform,
    /// The column, with the type that it has before the next stage.
    field: Field,
    /// Number of the next stage of the flow.
    number: usize,
    ops: Vec<PlanOp>,
}

impl<'a> StageBuilder<'a> {
    pub fn new(
        scope: &'a BindScope<'a>,
        step: &'a TargetTransform,
        field: &Field,
        number: usize,
    ) -> StageBuilder<'a> {
        StageBuilder {
            scope,
            step,
            field: field.clone(),
            number,
            ops: Vec::new(),
        }
    }

    pub fn push(&mut self, op: PlanOp) {
        self.ops.push(op);
    }

    pub fn finish(self) -> Vec<PlanOp> {
        self.ops
    }

    /// Adds the stages of an operation.
    pub fn add(&mut self, operation: &TargetOperation) -> Result<()> {
        match operation {
            TargetOperation::Log1p => self.push_stage(TargetFunction::Log1p, Vec::new(), None),
            TargetOperation::Power(exponent) => {
                if !exponent.is_finite() || *exponent <= 0.0 {
                    return Err(bad_value(format!("`power: {exponent}` is not above 0")));
                }
                self.push_stage(TargetFunction::Power(*exponent), Vec::new(), None);
            }
            TargetOperation::BoxCox(exponent) => self.add_box_cox(*exponent)?,
            TargetOperation::Difference(DifferenceLengths::Auto(_)) => {
                self.add_fitted_differences(1)?;
            }
            TargetOperation::Difference(DifferenceLengths::UpTo { auto }) => {
                self.add_fitted_differences(*auto)?;
            }
            TargetOperation::Difference(DifferenceLengths::One(length)) => {
                self.add_difference(*length)?;
            }
            TargetOperation::Difference(DifferenceLengths::Each(lengths)) => {
                require_not_empty(lengths, "difference")?;
                for length in lengths {
                    self.add_difference(*length)?;
                }
            }
            TargetOperation::SeasonalDifference(SeasonalLength::Auto { auto }) => {
                self.add_fitted_season(*auto)?;
            }
            TargetOperation::SeasonalDifference(SeasonalLength::Length(length)) => {
                self.add_difference(*length)?;
            }
            TargetOperation::Scale(scale) => {
                let parameters = vec![self.hidden("centre"), self.hidden("scale")];
                let op = scale_parameters(self.scope, self.step, &self.field, *scale, &parameters)?;
                self.push(op);
                self.push_stage(TargetFunction::Scale, parameters, None);
            }
        }
        Ok(())
    }

    fn add_box_cox(&mut self, exponent: BoxCoxExponent) -> Result<()> {
        let name = self.hidden("exponent");
        let statistic = match exponent {
            BoxCoxExponent::Number(number) if !number.is_finite() => {
                return Err(bad_value(format!("`box_cox: {number}` is not a number")));
            }
            BoxCoxExponent::Number(number) => {
                self.push(constant(&name, number));
                self.push_stage(TargetFunction::BoxCox, vec![name], None);
                return Ok(());
            }
            BoxCoxExponent::Fitted(BoxCoxFit::Likelihood) => SeriesStatistic::BoxCoxLikelihood,
            BoxCoxExponent::Fitted(BoxCoxFit::Guerrero(season)) => {
                require_season(season)?;
                SeriesStatistic::BoxCoxGuerrero { season }
            }
        };
        self.push_fit(statistic, std::slice::from_ref(&name))?;
        self.push_stage(TargetFunction::BoxCox, vec![name], None);
        Ok(())
    }

    /// Differences from row to row, as many as each series needs.
    fn add_fitted_differences(&mut self, most: u8) -> Result<()> {
        if most == 0 || most > DIFFERENCES_MAX {
            return Err(bad_value(format!(
                "`auto: {most}` is not a number of differences from 1 to {DIFFERENCES_MAX}"
            )));
        }
        let count = self.hidden("differences");
        let statistic = SeriesStatistic::Differences { most };
        self.push_fit(statistic, std::slice::from_ref(&count))?;
        for number in 1..=most {
            self.add_difference_where(LengthSpec::Rows(1), &count, f64::from(number))?;
        }
        Ok(())
    }

    /// A difference by a season of rows, for series whose season is strong.
    fn add_fitted_season(&mut self, season: u32) -> Result<()> {
        require_season(season)?;
        let needed = self.hidden("seasonal");
        let statistic = SeriesStatistic::SeasonalDifference { season };
        self.push_fit(statistic, std::slice::from_ref(&needed))?;
        self.add_difference_where(LengthSpec::Rows(season.into()), &needed, 1.0)
    }

    fn push_fit(&mut self, statistic: SeriesStatistic, names: &[String]) -> Result<()> {
        let request = request_fit(self.scope, self.step, &self.field, statistic)?;
        let keys = series_keys(self.scope, self.step)?;
        let op = series_columns(keys, names, request, fitted_numbers);
        self.push(op);
        Ok(())
    }

    fn add_difference(&mut self, length: LengthSpec) -> Result<()> {
        let earlier = self.hidden("earlier");
        let by = self.push_lag(length, &earlier)?;
        self.push_stage(TargetFunction::Difference, vec![earlier], Some(by));
        Ok(())
    }

    /// A difference for series whose number in a hidden column is at least `least`. All others subtract 0.
    fn add_difference_where(&mut self, length: LengthSpec, number: &str, least: f64) -> Result<()> {
        let lag = self.hidden("lag");
        let by = self.push_lag(length, &lag)?;
        let earlier = self.hidden("earlier");
        let field = Field::new(&earlier, DataType::Float64, true);
        let reads = [lag, number.to_owned()];
        self.push(PlanOp::Map(MapOp::new(
            reads,
            [field],
            move |columns, _| {
                let [lag, numbers] = columns else {
                    return Err(Fault::internal("a difference without its series"));
                };
                let lag = doubles(lag)?;
                let numbers = doubles(numbers)?;
                let earlier: Float64Array = lag
                    .iter()
                    .zip(numbers.values())
                    .map(|(lag, number)| if *number >= least { lag } else { Some(0.0) })
                    .collect();
                Ok(vec![Arc::new(earlier) as ArrayRef])
            },
        )));
        self.push_stage(TargetFunction::Difference, vec![earlier], Some(by));
        Ok(())
    }

    /// Writes the value so long before into a hidden column. Returns the distance in rows or nanoseconds.
    fn push_lag(&mut self, length: LengthSpec, name: &str) -> Result<SeriesLength> {
        let mut windows = WindowOpBuilder::new(
            self.scope,
            "target",
            &self.step.time,
            &self.step.keys,
            self.step.gaps.as_ref(),
        )?;
        let by = windows.lookback_length(length)?;
        let distance = match by {
            SeriesLength::Rows(_) => by,
            SeriesLength::Ticks(_) | SeriesLength::Calendar(_) => {
                windows.time.behind(length.distance(&windows.time)?)
            }
        };
        let compute = WindowFunction::Lag { by, as_of: None };
        windows.add_copy(&self.field, name.to_owned(), compute);
        let window = windows.build_window()?;
        self.push(PlanOp::Window(window));
        Ok(distance)
    }

    /// Name of a hidden column of the next stage.
    fn hidden(&self, role: &str) -> String {
        format!("{TARGET_PREFIX}{}_{}_{role}", self.step.column, self.number)
    }

    /// Adds the operation that applies a function to the column.
    fn push_stage(
        &mut self,
        function: TargetFunction,
        parameters: Vec<String>,
        lag: Option<SeriesLength>,
    ) {
        let column = &self.step.column;
        let reads = std::iter::once(column).chain(&parameters);
        let reads: Vec<String> = reads.cloned().collect();
        let written = Field::new(column, DataType::Float64, true);
        let map = MapOp::new(reads, [written.clone()], move |columns, _| {
            let Some((values, parameters)) = columns.split_first() else {
                return Err(Fault::internal("a target without a column"));
            };
            Ok(vec![
                Arc::new(transformed(function, values, parameters)?) as ArrayRef
            ])
        });
        let stage = TargetStage {
            column: column.clone(),
            function,
            parameters,
            lag,
        };
        // Rows whose earlier value is missing are removed from those to learn from.
        let map = map
            .written_nulls(WrittenNulls::Of(column.clone()))
            .transforming_target(stage);
        self.ops.push(PlanOp::Map(map));
        self.field = written;
        self.number += 1;
    }
}

/// Writes a number into a hidden column.
fn constant(name: &str, number: f64) -> PlanOp {
    let field = Field::new(name, DataType::Float64, false);
    let none: [&str; 0] = [];
    let map = MapOp::new(none, [field], move |_, rows| {
        let numbers: ArrayRef = Arc::new(Float64Array::from(vec![number; rows]));
        Ok(vec![numbers])
    });
    PlanOp::Map(map.portable(PortableMap::KeyNumbers(KeyNumbers {
        keys: Vec::new(),
        numbers: Vec::new(),
        default: number,
    })))
}

fn require_season(season: u32) -> Result<()> {
    if season < 2 {
        return Err(bad_value(format!("a season of {season} rows is none"))
            .hint("write the rows of a season: 12 of months, 7 of days"));
    }
    Ok(())
}

/// Applies a function to a column; null where the value or a parameter is missing.
fn transformed(
    function: TargetFunction,
    values: &ArrayRef,
    parameters: &[ArrayRef],
) -> Result<Float64Array> {
    let values = doubles(values)?;
    let parameters = parameter_columns(parameters)?;
    let mut outputs = Vec::with_capacity(values.len());
    for row in 0..values.len() {
        let numbers = row_parameters(&parameters, row);
        let Some(numbers) = numbers.filter(|_| values.is_valid(row)) else {
            outputs.push(None);
            continue;
        };
        let value = values.value(row);
        let output = function.apply(value, numbers);
        if value.is_finite() && !output.is_finite() {
            return Err(outside_of_domain(function, value));
        }
        outputs.push(Some(output));
    }
    Ok(outputs.into())
}

fn outside_of_domain(function: TargetFunction, value: f64) -> Fault {
    let (name, domain) = match function {
        TargetFunction::Log1p => ("log1p", "above -1"),
        TargetFunction::Power(_) => ("power", "of at least 0"),
        TargetFunction::BoxCox => ("box_cox", "above 0"),
        TargetFunction::Difference => ("difference", "whose difference a double holds"),
        TargetFunction::Scale => ("scale", "that a double holds after scaling"),
    };
    let message = format!("`target` cannot transform {value}: `{name}` takes values {domain}");
    Fault::new(codes::BAD_ROW, message)
        .hint("`clip` or `filter` the column before `target`, or leave the operation out")
}
