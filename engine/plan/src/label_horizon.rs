//! The horizon of a label: how far ahead it is predicted.

use forebay_model::{
    CalendarSpan, Fault, LENGTH_HINT, Pipeline, PredictionLabel, Result, TimeDistance, TimeLength,
    business_days_hint, codes,
};
use forebay_window::SeriesLength;

use crate::column_age::has_zone_with_clock_changes;
use crate::data_age::{AgeTime, DataAge, has_clock_changes};
use crate::{BoundPipeline, FutureFlow};

/// Refuses to predict rows of the future beyond the label's horizon: their features would need values that are not
/// known.
pub fn check_horizon(future: &FutureFlow, horizon: Option<&str>) -> Result<()> {
    let Some(text) = horizon else {
        let message = "a model predicts rows of the future, and the pipeline does not say how \
                       far ahead its features look";
        let hint = "declare it: `label: { column: <target>, horizon: 28d }`; features that know \
                    more are then refused";
        return Err(Fault::new(codes::MISSING_FIELD, message).hint(hint));
    };
    let time = future.source.field_with_name(&future.time)?;
    let has_changes = has_clock_changes(time.data_type());
    let horizon = LabelHorizon::parse(text)?.with_clock_changes(has_changes);
    let is_within = match (horizon, future.horizon.span()) {
        (LabelHorizon::Rows(rows), _) => future.steps <= rows,
        (LabelHorizon::Time(time), Some(span)) => time.is_at_least(AgeTime::of_span(span, 1)),
        (LabelHorizon::Time(_), None) => false,
    };
    if is_within {
        return Ok(());
    }
    let message = format!(
        "`future_rows` adds rows beyond the horizon of {text} for which the model is trained"
    );
    Err(Fault::new(codes::BAD_VALUE, message).hint(
        "let `future_rows` end there, or raise the label's `horizon` with the gaps of its features",
    ))
}

/// Time between a label's prediction and its row's time.
pub(crate) enum LabelHorizon {
    Time(AgeTime),
    Rows(u64),
}

impl LabelHorizon {
    /// The horizon of a pipeline's label; `None` where it declares none.
    pub fn of(
        label: &PredictionLabel,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
    ) -> Result<Option<LabelHorizon>> {
        let Some(text) = &label.horizon else {
            return Ok(None);
        };
        let horizon = LabelHorizon::parse(text).map_err(|fault| fault.at(label.at.as_ref()))?;
        let has_changes = has_zone_with_clock_changes(pipeline, bound);
        Ok(Some(horizon.with_clock_changes(has_changes)))
    }

    /// The horizon in a zone whose clocks change, or do not.
    fn with_clock_changes(self, has_clock_changes: bool) -> LabelHorizon {
        match self {
            LabelHorizon::Time(time) => LabelHorizon::Time(AgeTime {
                has_clock_changes,
                ..time
            }),
            rows => rows,
        }
    }

    /// Parses a whole number with a unit of time, or a number of rows.
    pub fn parse(text: &str) -> Result<LabelHorizon> {
        if let Ok(rows) = text.parse::<u32>() {
            return Ok(LabelHorizon::Rows(rows.into()));
        }
        // Steps of a time column of integers count as its ticks.
        if let Some(Ok(steps)) = text.strip_suffix('t').map(str::parse::<u32>) {
            return Ok(LabelHorizon::Time(AgeTime::nanoseconds(steps.into())));
        }
        let length: TimeLength = text.parse().map_err(|wrong: String| {
            let hint = business_days_hint(text)
                .unwrap_or_else(|| format!("{LENGTH_HINT}; or a number of rows"));
            Fault::new(codes::BAD_VALUE, wrong.replace(" of time", ""))
                .fragment(text, 0)
                .hint(hint)
        })?;
        Ok(LabelHorizon::Time(match length.calendar_span() {
            Some(span) => AgeTime::of_span(span, 1),
            None => AgeTime::nanoseconds(length.nominal_nanoseconds().unwrap_or(0)),
        }))
    }

    /// The length, in nanoseconds beside the calendar, or rows.
    pub fn length(&self) -> Result<SeriesLength> {
        match self {
            LabelHorizon::Rows(rows) => Ok(SeriesLength::Rows(*rows)),
            LabelHorizon::Time(time) => {
                let too_long = |_| Fault::new(codes::LIMIT, "the length is too long");
                let span = CalendarSpan {
                    months: time.months,
                    days: time.days,
                    ticks: i64::try_from(time.nanoseconds).map_err(too_long)?,
                };
                Ok(match TimeDistance::from_span(span) {
                    TimeDistance::Ticks(ticks) => SeriesLength::Ticks(ticks),
                    TimeDistance::Calendar(span) => SeriesLength::Calendar(span),
                })
            }
        }
    }

    /// The last step of a horizon for which data of this age is known; 0 where it is not even for the first.
    pub fn steps_ahead(&self, ends: DataAge, future: &FutureFlow) -> u64 {
        let step = future
            .horizon
            .span()
            .map_or(AgeTime::nanoseconds(1), |span| {
                AgeTime::of_span(span, 1).divided(future.steps.max(1))
            });
        let steps = match (self, ends) {
            (_, DataAge::Ahead) => future.steps,
            (_, DataAge::After) => 0,
            (LabelHorizon::Time(_), DataAge::Behind { time, .. }) => {
                let is_known = |steps: u64| time.is_at_least(step.times(i128::from(steps)));
                last_that(future.steps, is_known)
            }
            (LabelHorizon::Rows(_), DataAge::Behind { rows, .. }) => {
                u64::try_from(rows).unwrap_or(0)
            }
        };
        steps.min(future.steps)
    }

    /// True if data of this age is known when the label is predicted.
    pub fn allows(&self, ends: DataAge) -> bool {
        match (self, ends) {
            (_, DataAge::Ahead) => true,
            (_, DataAge::After) => false,
            (LabelHorizon::Time(horizon), DataAge::Behind { time, .. }) => {
                time.is_at_least(*horizon)
            }
            (LabelHorizon::Rows(horizon), DataAge::Behind { rows, .. }) => {
                u64::try_from(rows).is_ok_and(|rows| rows >= *horizon)
            }
        }
    }
}

/// The greatest number up to `most` for which a condition holds that holds for all lesser ones; 0 where there is none.
fn last_that(most: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let mut least = 0;
    let mut above = most + 1;
    while above - least > 1 {
        let middle = least + (above - least) / 2;
        if holds(middle) {
            least = middle;
        } else {
            above = middle;
        }
    }
    least
}
