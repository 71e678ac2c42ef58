//! Fourier terms of a period.

use std::f64::consts::TAU;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float32Array};
use arrow::datatypes::{DataType, Field};
use forebay_model::{CIVIL_BUSINESS_DAYS_HINT, Fault, Result, business_days_hint};
use forebay_plan::{MapOp, PlanOp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::days::civil_times;
use crate::shared::bad_value;

/// Most terms: far more than a model learns from.
const ORDER_MAX: u32 = 1000;

/// Sines and cosines of multiples of a period's frequency.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FourierTerms {
    /// The period: a number with a fraction and a unit of exact length (`365.25d`, `7d`, `24h`).
    pub period: String,
    /// Number of pairs.
    pub order: u32,
}

impl FourierTerms {
    /// The operations for a column, one for each pair.
    pub(super) fn ops(&self, field: &Field) -> Result<Vec<PlanOp>> {
        let period = period_seconds(&self.period)?;
        if self.order == 0 || self.order > ORDER_MAX {
            return Err(bad_value(format!(
                "`order: {}` is not a number of terms from 1 to {ORDER_MAX}",
                self.order
            )));
        }
        let mut ops = Vec::new();
        for number in 1..=self.order {
            let names = ["sin", "cos"]
                .map(|function| format!("{}_{function}_{}_{number}", field.name(), self.period));
            let writes = names.map(|name| Field::new(name, DataType::Float32, true));
            let frequency = f64::from(number) / period;
            ops.push(PlanOp::Map(MapOp::new(
                [field.name()],
                writes,
                move |columns, _| {
                    let Some(column) = columns.first() else {
                        return Err(Fault::internal("terms of no column"));
                    };
                    terms(column, frequency)
                },
            )));
        }
        Ok(ops)
    }
}

/// Sine and cosine of the local time since 1970-01-01, in cycles of a frequency in 1/s.
fn terms(column: &ArrayRef, frequency: f64) -> Result<Vec<ArrayRef>> {
    let times = civil_times(column)?;
    let mut sines = Vec::with_capacity(times.len());
    let mut cosines = Vec::with_capacity(times.len());
    for local in times {
        let angle = local.map(|local| {
            let local = local.and_utc();
            let fraction = f64::from(local.timestamp_subsec_nanos()) * 1e-9;
            let cycles = (local.timestamp() as f64 + fraction) * frequency;
            (cycles - cycles.floor()) * TAU
        });
        sines.push(angle.map(|angle| angle.sin() as f32));
        cosines.push(angle.map(|angle| angle.cos() as f32));
    }
    let sines: ArrayRef = Arc::new(Float32Array::from(sines));
    let cosines: ArrayRef = Arc::new(Float32Array::from(cosines));
    Ok(vec![sines, cosines])
}

/// `365.25d` in seconds.
fn period_seconds(text: &str) -> Result<f64> {
    let units = [
        ("w", 7.0 * 86_400.0),
        ("d", 86_400.0),
        ("h", 3_600.0),
        ("m", 60.0),
        ("s", 1.0),
    ];
    let seconds = units.iter().find_map(|(unit, seconds)| {
        let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
        Some(number * seconds)
    });
    seconds
        .filter(|seconds| *seconds > 0.0 && seconds.is_finite())
        .ok_or_else(|| {
            let fault = bad_value(format!("`period: {text}` is not a length above 0"));
            if business_days_hint(text).is_some() {
                return fault.hint(CIVIL_BUSINESS_DAYS_HINT);
            }
            fault
                .hint("write a number and a unit of exact length: w, d, h, m or s, such as 365.25d")
        })
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, AsArray, Date32Array};
    use arrow::datatypes::Float32Type;

    use super::*;

    #[test]
    fn terms_go_round_in_a_period() {
        let days: ArrayRef = Arc::new(Date32Array::from(vec![Some(0), Some(7), None, Some(1)]));
        let term_columns = terms(&days, 1.0 / (4.0 * 86_400.0)).unwrap();
        let sines = term_columns[0].as_primitive::<Float32Type>();
        let cosines = term_columns[1].as_primitive::<Float32Type>();
        assert!((sines.value(0)).abs() < 1e-6 && (cosines.value(0) - 1.0).abs() < 1e-6);
        assert!((sines.value(1) + 1.0).abs() < 1e-6 && cosines.value(1).abs() < 1e-6);
        assert!(sines.is_null(2) && cosines.is_null(2));
        assert!((sines.value(3) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn periods_have_exact_units() {
        assert_eq!(period_seconds("365.25d").unwrap(), 365.25 * 86_400.0);
        assert_eq!(period_seconds("1w").unwrap(), 604_800.0);
        for wrong in ["", "7", "0d", "-1d", "1mo", "d", "infd"] {
            assert!(period_seconds(wrong).is_err(), "{wrong}");
        }
    }
}
