//! Computations of single columns in terms that other runtimes have.

use std::fmt;
use std::ops::{Add, Div, Mul, Sub};
use std::sync::Arc;

/// The computation of one column from one column.
#[derive(Debug, Clone, PartialEq)]
pub enum PortableMap {
    /// A number from a number, computed in double precision and rounded to the type of the column
    Number(NumberExpr),
    /// An id for each text
    Ids(TextIds),
    /// A bucket for each text
    Buckets(TextBuckets),
    /// The number of these boundaries, in ascending order, that are not above a number
    Bins(Vec<f64>),
    /// A number that other runtimes do not compute
    WayBack(WayBack),
}

/// The number that another number was computed from.
#[derive(Clone)]
pub struct WayBack(Arc<dyn Fn(f64) -> f64 + Send + Sync>);

impl WayBack {
    /// `solve` gives the input from a result.
    pub fn new(solve: impl Fn(f64) -> f64 + Send + Sync + 'static) -> WayBack {
        WayBack(Arc::new(solve))
    }

    /// The input from which the result is `value`.
    pub fn solve(&self, value: f64) -> f64 {
        (self.0)(value)
    }
}

impl fmt::Debug for WayBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WayBack")
    }
}

/// Functions are equal if they are one.
impl PartialEq for WayBack {
    fn eq(&self, other: &WayBack) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A number for each row. NaN stands for a missing value, and stays NaN unless it is replaced.
#[derive(Debug, Clone, PartialEq)]
pub enum NumberExpr {
    /// The value of the input column
    Input,
    /// One number for all rows
    Constant(f64),
    /// `a + b`
    Sum(Box<NumberExpr>, Box<NumberExpr>),
    /// `a - b`
    Difference(Box<NumberExpr>, Box<NumberExpr>),
    /// `a * b`
    Product(Box<NumberExpr>, Box<NumberExpr>),
    /// `a / b`
    Quotient(Box<NumberExpr>, Box<NumberExpr>),
    /// The smaller of both; missing where one is missing
    Least(Box<NumberExpr>, Box<NumberExpr>),
    /// The greater of both; missing where one is missing
    Greatest(Box<NumberExpr>, Box<NumberExpr>),
    /// `1 / (1 + exp(-x))`
    Sigmoid(Box<NumberExpr>),
    /// `ln(1 + x)`, accurate near 0
    LogOnePlus(Box<NumberExpr>),
    /// `(x^l - 1) / l` of the number and the exponent, or `ln(x)` where that is 0; for numbers above 0
    BoxCox(Box<NumberExpr>, f64),
    /// The power of Yeo and Johnson with the exponent: `BoxCox` of `1 + x` from 0 on; below, minus that of `1 - x` with the
    /// exponent `2 - l`
    YeoJohnson(Box<NumberExpr>, f64),
    /// The number, or the second one where it is missing
    Coalesce(Box<NumberExpr>, Box<NumberExpr>),
}

impl NumberExpr {
    /// At most `other`.
    pub fn least(self, other: f64) -> NumberExpr {
        NumberExpr::Least(Box::new(self), Box::new(NumberExpr::Constant(other)))
    }

    /// At least `other`.
    pub fn greatest(self, other: f64) -> NumberExpr {
        NumberExpr::Greatest(Box::new(self), Box::new(NumberExpr::Constant(other)))
    }

    /// `1 / (1 + exp(-x))`.
    pub fn sigmoid(self) -> NumberExpr {
        NumberExpr::Sigmoid(Box::new(self))
    }

    /// `ln(1 + x)`.
    pub fn ln_1p(self) -> NumberExpr {
        NumberExpr::LogOnePlus(Box::new(self))
    }

    /// `(x^exponent - 1) / exponent`.
    pub fn box_cox(self, exponent: f64) -> NumberExpr {
        NumberExpr::BoxCox(Box::new(self), exponent)
    }

    /// The power of Yeo and Johnson.
    pub fn yeo_johnson(self, exponent: f64) -> NumberExpr {
        NumberExpr::YeoJohnson(Box::new(self), exponent)
    }

    /// The input from which the expression is `value`. `None` where more than one input gives a value, as behind a bound or
    /// a product with 0: this depends on the expression alone.
    pub fn solve(&self, value: f64) -> Option<f64> {
        match self {
            NumberExpr::Input => Some(value),
            NumberExpr::Constant(_)
            | NumberExpr::Least(..)
            | NumberExpr::Greatest(..)
            | NumberExpr::Coalesce(..) => None,
            NumberExpr::Sum(a, b) => match (&**a, &**b) {
                (a, NumberExpr::Constant(b)) => a.solve(value - b),
                (NumberExpr::Constant(a), b) => b.solve(value - a),
                _ => None,
            },
            NumberExpr::Difference(a, b) => match (&**a, &**b) {
                (a, NumberExpr::Constant(b)) => a.solve(value + b),
                (NumberExpr::Constant(a), b) => b.solve(a - value),
                _ => None,
            },
            NumberExpr::Product(a, b) => match (&**a, &**b) {
                (a, NumberExpr::Constant(b)) if *b != 0.0 => a.solve(value / b),
                (NumberExpr::Constant(a), b) if *a != 0.0 => b.solve(value / a),
                _ => None,
            },
            NumberExpr::Quotient(a, b) => match (&**a, &**b) {
                (a, NumberExpr::Constant(b)) => a.solve(value * b),
                (NumberExpr::Constant(a), b) if *a != 0.0 => b.solve(a / value),
                _ => None,
            },
            NumberExpr::Sigmoid(a) => a.solve((value / (1.0 - value)).ln()),
            NumberExpr::LogOnePlus(a) => a.solve(value.exp_m1()),
            NumberExpr::BoxCox(a, exponent) => a.solve(logarithm_of_power(value, *exponent).exp()),
            NumberExpr::YeoJohnson(a, exponent) if value >= 0.0 => {
                a.solve(logarithm_of_power(value, *exponent).exp_m1())
            }
            NumberExpr::YeoJohnson(a, exponent) => {
                a.solve(-logarithm_of_power(-value, 2.0 - exponent).exp_m1())
            }
        }
    }

    /// `other` for missing numbers.
    pub fn coalesce(self, other: f64) -> NumberExpr {
        NumberExpr::Coalesce(Box::new(self), Box::new(NumberExpr::Constant(other)))
    }
}

/// The logarithm of `x` from `(x^exponent - 1) / exponent`.
fn logarithm_of_power(power: f64, exponent: f64) -> f64 {
    if exponent == 0.0 {
        power
    } else {
        (exponent * power).ln_1p() / exponent
    }
}

impl Add<f64> for NumberExpr {
    type Output = NumberExpr;

    fn add(self, other: f64) -> NumberExpr {
        NumberExpr::Sum(Box::new(self), Box::new(NumberExpr::Constant(other)))
    }
}

impl Sub<f64> for NumberExpr {
    type Output = NumberExpr;

    fn sub(self, other: f64) -> NumberExpr {
        NumberExpr::Difference(Box::new(self), Box::new(NumberExpr::Constant(other)))
    }
}

impl Mul<f64> for NumberExpr {
    type Output = NumberExpr;

    fn mul(self, other: f64) -> NumberExpr {
        NumberExpr::Product(Box::new(self), Box::new(NumberExpr::Constant(other)))
    }
}

impl Div<f64> for NumberExpr {
    type Output = NumberExpr;

    fn div(self, other: f64) -> NumberExpr {
        NumberExpr::Quotient(Box::new(self), Box::new(NumberExpr::Constant(other)))
    }
}

/// Buckets of texts: the remainder of the MurmurHash3 (x86, 32 bits) of their UTF-8 by the number of buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextBuckets {
    /// Seed of the hash
    pub seed: u32,
    /// Number of buckets, at least 1
    pub buckets: u32,
}

/// Ids of texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextIds {
    /// Distinct texts
    pub tokens: Vec<String>,
    /// The id of each text
    pub ids: Vec<i64>,
    /// The id of all other texts
    pub default: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn solutions_give_the_value_again() {
        let x = NumberExpr::Input;
        let cases = [
            ((x.clone() - 3.0) / 2.0 * 4.0 + 1.0, 5.0, 5.0),
            (x.clone().ln_1p(), 1.0_f64.ln_1p(), 1.0),
            (x.clone().sigmoid() * 2.0, 1.0, 0.0),
            ((x.clone() - 1.0).ln_1p() / 2.0, 0.0, 1.0),
            // scipy 1.16: boxcox(3, 0.5), boxcox(3, 0), yeojohnson(3, 1.5), yeojohnson(-3, 1.5), yeojohnson(-3, 2).
            (x.clone().box_cox(0.5), 1.4641016151377544, 3.0),
            (x.clone().box_cox(0.0) * 2.0, 2.0 * 1.0986122886681098, 3.0),
            (x.clone().yeo_johnson(1.5), 4.666666666666667, 3.0),
            (x.clone().yeo_johnson(1.5), -2.0, -3.0),
            (
                x.clone().yeo_johnson(2.0) - 1.0,
                -1.0 - 1.3862943611198906,
                -3.0,
            ),
        ];
        for (expression, value, input) in cases {
            let solved = expression.solve(value);
            let error = (solved.unwrap_or(f64::NAN) - input).abs();
            assert!(error < 1e-12, "{expression:?}: {solved:?}");
        }
        for lossy in [
            x.clone().least(1.0),
            x.clone().greatest(0.0) + 1.0,
            x.clone().coalesce(0.0),
            x * 0.0,
        ] {
            assert_eq!(lossy.solve(0.5), None, "{lossy:?}");
        }
    }
}
