//! The horizon of a label: how far ahead it is predicted.

use forebay_model::{Fault, PredictionLabel, Result, codes};
use forebay_window::SeriesLength;

use crate::FutureFlow;
use crate::column_age::DataAge;

/// Refuses to predict rows of the future beyond the label's horizon: their features would need values that are not
/// known.
pub fn check_horizon(future: &FutureFlow, horizon: Option<&str>) -> Result<()> {
    let Some(text) = horizon else {
        let message = "a model predicts rows of the future, and the pipeline does not say how far ahead its features look";
        let hint = "declare it: `label: { column: <target>, horizon: 28d }`; features that know more are then refused";
        return Err(Fault::new(codes::MISSING_FIELD, message).hint(hint));
    };
    let is_within = match (LabelHorizon::parse(text)?, future.horizon) {
        (LabelHorizon::Rows(rows), _) => future.steps <= rows,
        (LabelHorizon::Time(time), SeriesLength::Ticks(horizon)) => i128::from(horizon) <= time,
        (LabelHorizon::Time(_), SeriesLength::Rows(_)) => false,
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
    Time(i128),
    Rows(u64),
}

impl LabelHorizon {
    /// The horizon of a label; `None` where it declares none.
    pub fn of(label: &PredictionLabel) -> Result<Option<LabelHorizon>> {
        let Some(horizon) = &label.horizon else {
            return Ok(None);
        };
        LabelHorizon::parse(horizon)
            .map(Some)
            .map_err(|fault| fault.at(label.at.as_ref()))
    }

    /// From a whole number with a unit of time, or a number of rows.
    pub fn parse(text: &str) -> Result<LabelHorizon> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let second: i128 = 1_000_000_000;
        let unit = match &text[digits.len()..] {
            "" => None,
            "w" => Some(7 * 86_400 * second),
            "d" => Some(86_400 * second),
            "h" => Some(3_600 * second),
            "m" | "min" => Some(60 * second),
            "s" => Some(second),
            "ms" => Some(1_000_000),
            "us" => Some(1_000),
            "ns" | "t" => Some(1),
            _ => Some(-1),
        };
        match (digits.parse::<u32>(), unit) {
            (Ok(rows), None) => Ok(LabelHorizon::Rows(rows.into())),
            (Ok(count), Some(unit)) if unit > 0 => Ok(LabelHorizon::Time(i128::from(count) * unit)),
            _ => Err(
                Fault::new(codes::BAD_VALUE, format!("`{text}` is not a length"))
                    .fragment(text, 0)
                    .hint(
                        "write a whole number and a unit: 30m, 12h, 7d or 2w; or a number of rows",
                    ),
            ),
        }
    }

    /// The length, in nanoseconds or rows.
    pub fn length(&self) -> Result<SeriesLength> {
        match self {
            LabelHorizon::Rows(rows) => Ok(SeriesLength::Rows(*rows)),
            LabelHorizon::Time(time) => {
                let too_long = |_| Fault::new(codes::LIMIT, "the length is too long");
                Ok(SeriesLength::Ticks(i64::try_from(*time).map_err(too_long)?))
            }
        }
    }

    /// The last step of a horizon for which data of this age is known; 0 where it is not even for the first.
    pub fn steps_ahead(&self, ends: DataAge, future: &FutureFlow) -> u64 {
        let length = match future.horizon {
            SeriesLength::Ticks(ticks) => ticks / future.steps.max(1) as i64,
            SeriesLength::Rows(_) => 1,
        };
        let known = match (self, ends) {
            (_, DataAge::Ahead) => future.steps,
            (_, DataAge::After) => 0,
            (LabelHorizon::Time(_), DataAge::Behind { time, .. }) => {
                u64::try_from(time / i128::from(length.max(1))).unwrap_or(0)
            }
            (LabelHorizon::Rows(_), DataAge::Behind { rows, .. }) => {
                u64::try_from(rows).unwrap_or(0)
            }
        };
        known.min(future.steps)
    }

    /// Whether data of this age is known when the label is predicted.
    pub fn allows(&self, ends: DataAge) -> bool {
        match (self, ends) {
            (_, DataAge::Ahead) => true,
            (_, DataAge::After) => false,
            (LabelHorizon::Time(horizon), DataAge::Behind { time, .. }) => time >= *horizon,
            (LabelHorizon::Rows(horizon), DataAge::Behind { rows, .. }) => {
                u64::try_from(rows).is_ok_and(|rows| rows >= *horizon)
            }
        }
    }
}
