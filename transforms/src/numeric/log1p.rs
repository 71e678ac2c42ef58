//! `log1p`: the logarithm of 1 + x.

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use forebay_contract::NumberExpr;
use forebay_model::Result;
use forebay_plan::{BindScope, ColumnSelector, ConfiguredTransform, MapOp, PlanOp, Transform};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::{float_type, map_doubles, output_field};

/// The natural logarithm of `1 + x`, accurate near 0.
///
/// In: columns of numbers. Out: doubles stay doubles, all other numbers give `float32`. As in
/// numpy, -1 gives -inf and what is below gives NaN; such values are counted. Null stays null. Learns nothing.
///
/// ```yaml
/// - log1p: { columns: [qty], suffix: _log }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn log1p(columns), example = r#"log1p(["clicks"]).suffix("_log")"#)]
pub struct Log1p {
    /// Columns of numbers.
    pub columns: ColumnSelector,
    /// Writes `<column><suffix>` instead of replacing the column.
    #[serde(default)]
    pub suffix: Option<String>,
}

impl ConfiguredTransform for Log1p {
    const NAME: &'static str = "log1p";
}

impl Transform for Log1p {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let each = scope
            .numeric_columns(&self.columns)?
            .into_iter()
            .map(|field| {
                let out = float_type(field.data_type());
                let map = MapOp::new(
                    [field.name()],
                    [output_field(field, &self.suffix, out.clone())],
                    move |inputs, _| {
                        let short = |column: &ArrayRef| *column.data_type() == DataType::Float32;
                        let each = |column| {
                            map_doubles(
                                column,
                                &out,
                                if short(column) {
                                    ln_1p_short
                                } else {
                                    f64::ln_1p
                                },
                            )
                        };
                        inputs.iter().map(each).collect()
                    },
                );
                PlanOp::Map(map.portable_number(NumberExpr::Input.ln_1p()))
            });
        Ok(each.collect())
    }
}

/// `ln(1 + x)` of a number of at most 24 significant bits, to be rounded to as many: the error is
/// below 2^-40 of the result. The same bits on every machine, and several at a time.
///
/// Below 2^-10 the series of the logarithm, above it the reduction and the polynomial of fdlibm's
/// `e_log.c` (Sun Microsystems, 1993): `1 + x = 2^k * m`, `m` about 1, `s = (m - 1) / (m + 1)`,
/// `ln m = 2s + s * P(s^2)`.
fn ln_1p_short(x: f64) -> f64 {
    const POLYNOMIAL: [f64; 7] = [
        0.6666666666666735,
        0.3999999999940942,
        0.2857142874366239,
        0.22222198432149784,
        0.1818357216161805,
        0.15313837699209373,
        0.14798198605116586,
    ];
    const HALF_ROOT: u64 = std::f64::consts::FRAC_1_SQRT_2.to_bits();
    const ONE: u64 = 1.0_f64.to_bits();
    let u = 1.0 + x;
    let shifted = u.to_bits().wrapping_add(ONE.wrapping_sub(HALF_ROOT));
    let k = (shifted >> 52) as i64 - 1023;
    let m = f64::from_bits((shifted & 0x000f_ffff_ffff_ffff).wrapping_add(HALF_ROOT));
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let tail = POLYNOMIAL
        .iter()
        .rev()
        .fold(0.0, |sum, term| sum * z + term)
        * z;
    let whole = k as f64 * std::f64::consts::LN_2 + (2.0 * s + s * tail);
    let near = x - x * x * (0.5 - x * (1.0 / 3.0 - x * (0.25 - x * 0.2)));
    let finite = if x.abs() < 1.0 / 1024.0 { near } else { whole };
    if x > -1.0 && x < f64::INFINITY {
        finite
    } else {
        x.ln_1p()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_logarithms_are_those_of_the_library() {
        let mut x = 1e-38_f32;
        let mut seen = 0;
        while x < f32::MAX / 2.0 {
            for x in [x, -x.min(0.99999)] {
                let ours = ln_1p_short(f64::from(x)) as f32;
                let theirs = f64::from(x).ln_1p() as f32;
                assert_eq!(
                    ours.to_bits(),
                    theirs.to_bits(),
                    "{x:e}: {ours:e} is not {theirs:e}"
                );
            }
            x *= 1.000_37;
            seen += 1;
        }
        assert!(seen > 100_000);
        for x in [
            0.0,
            -0.0,
            f64::NAN,
            f64::INFINITY,
            -1.0,
            -2.0,
            f64::NEG_INFINITY,
        ] {
            assert_eq!(
                ln_1p_short(x).to_bits() << 1,
                x.ln_1p().to_bits() << 1,
                "{x}"
            );
        }
    }
}
