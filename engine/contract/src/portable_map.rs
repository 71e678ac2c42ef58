//! Computations of columns in terms that other runtimes have.

use std::fmt;
use std::mem::discriminant;
use std::ops::{Add, Div, Mul, Sub};
use std::sync::Arc;

/// The computation of one column, from one column or from keys.
#[derive(Debug, Clone, PartialEq)]
pub enum PortableMap {
    /// A number from a number, computed in double precision and rounded to the type of the column
    Number(NumberExpr),
    /// A number from a number, by the keys in the columns behind it
    NumberByKeys(NumberByKeys),
    /// An id for each category
    Ids(TextIds),
    /// A text for each category
    Texts(KeptTexts),
    /// A number for each category
    CategoryNumbers(CategoryNumbers),
    /// A number for each combination of categories of several columns
    KeyNumbers(KeyNumbers),
    /// A list of numbers for each category: 1 at its position among these, and 0 elsewhere
    Indicators(Vec<String>),
    /// The parts of a text between delimiters: a list of texts
    Parts(String),
    /// A list of numbers for the categories in a list of texts
    PartIndicators(PartIndicators),
    /// 1 for a missing value, and 0 for others
    Missing,
    /// A bucket for each text
    Buckets(TextBuckets),
    /// The number of these boundaries, in ascending order, that are not above a number
    Bins(Vec<f64>),
    /// The rank of a number, from 0 to 1, between these boundaries in ascending order
    Ranks(Vec<f64>),
    /// A computation for each written column, in their order
    Columns(Vec<PortableMap>),
    /// A number that other runtimes do not compute
    WayBack(WayBack),
}

impl PortableMap {
    /// Number of columns that the computation reads.
    pub fn read_count(&self) -> usize {
        match self {
            PortableMap::KeyNumbers(numbers) => numbers.keys.len(),
            PortableMap::NumberByKeys(number) => 1 + number.keys.len(),
            PortableMap::PartIndicators(indicators) => indicators.read_count,
            _ => 1,
        }
    }
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
    /// The parameter of this index of [`NumberByKeys`]
    Parameter(usize),
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
            | NumberExpr::Parameter(_)
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

impl NumberExpr {
    fn operands(&self) -> Vec<&NumberExpr> {
        match self {
            NumberExpr::Input | NumberExpr::Constant(_) | NumberExpr::Parameter(_) => Vec::new(),
            NumberExpr::Sigmoid(a)
            | NumberExpr::LogOnePlus(a)
            | NumberExpr::BoxCox(a, _)
            | NumberExpr::YeoJohnson(a, _) => vec![&**a],
            NumberExpr::Sum(a, b)
            | NumberExpr::Difference(a, b)
            | NumberExpr::Product(a, b)
            | NumberExpr::Quotient(a, b)
            | NumberExpr::Least(a, b)
            | NumberExpr::Greatest(a, b)
            | NumberExpr::Coalesce(a, b) => vec![&**a, &**b],
        }
    }

    fn operands_mut(&mut self) -> Vec<&mut NumberExpr> {
        match self {
            NumberExpr::Input | NumberExpr::Constant(_) | NumberExpr::Parameter(_) => Vec::new(),
            NumberExpr::Sigmoid(a)
            | NumberExpr::LogOnePlus(a)
            | NumberExpr::BoxCox(a, _)
            | NumberExpr::YeoJohnson(a, _) => vec![&mut **a],
            NumberExpr::Sum(a, b)
            | NumberExpr::Difference(a, b)
            | NumberExpr::Product(a, b)
            | NumberExpr::Quotient(a, b)
            | NumberExpr::Least(a, b)
            | NumberExpr::Greatest(a, b)
            | NumberExpr::Coalesce(a, b) => vec![&mut **a, &mut **b],
        }
    }

    fn exponent(&self) -> Option<f64> {
        match self {
            NumberExpr::BoxCox(_, exponent) | NumberExpr::YeoJohnson(_, exponent) => {
                Some(*exponent)
            }
            _ => None,
        }
    }

    /// Makes parameters of those constants that differ between this expression and others. False where the expressions
    /// differ in more.
    fn merge(&mut self, others: &[&NumberExpr], parameters: &mut Vec<Vec<f64>>) -> bool {
        if let NumberExpr::Constant(first) = *self {
            let mut numbers = vec![first];
            for other in others {
                let NumberExpr::Constant(number) = other else {
                    return false;
                };
                numbers.push(*number);
            }
            let bits = first.to_bits();
            if numbers.iter().any(|number| number.to_bits() != bits) {
                *self = NumberExpr::Parameter(parameters.len());
                parameters.push(numbers);
            }
            return true;
        }
        let form = discriminant(&*self);
        let exponent = self.exponent();
        for other in others {
            if discriminant(*other) != form || other.exponent() != exponent {
                return false;
            }
        }
        for (index, operand) in self.operands_mut().into_iter().enumerate() {
            let of_others: Vec<&NumberExpr> = others
                .iter()
                .filter_map(|other| other.operands().get(index).copied())
                .collect();
            if !operand.merge(&of_others, parameters) {
                return false;
            }
        }
        true
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

/// Ids of categories: texts, or the texts of other values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextIds {
    /// Distinct texts
    pub tokens: Vec<String>,
    /// The id of each text
    pub ids: Vec<i64>,
    /// The id of all other texts; `None` where these become missing
    pub default: Option<i64>,
}

/// Categories that stay, and the one that all others become. Missing ones stay missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptTexts {
    /// Distinct texts of categories that stay
    pub texts: Vec<String>,
    /// The text of all others
    pub other: String,
}

/// A list of numbers: 1 at the positions of those categories that a list of texts holds, and 0 elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartIndicators {
    /// The categories; an empty text holds a position that stays 0
    pub tokens: Vec<String>,
    /// Number of columns that the operation reads; the list is the first one
    pub read_count: usize,
}

/// Numbers of categories.
#[derive(Debug, Clone, PartialEq)]
pub struct CategoryNumbers {
    /// Distinct texts
    pub tokens: Vec<String>,
    /// The number of each text
    pub numbers: Vec<f64>,
    /// The number of all other texts
    pub default: f64,
    /// The number of missing categories; NaN where these stay missing
    pub missing: f64,
}

/// A number whose expression has the same form for all keys, with numbers of each key.
#[derive(Debug, Clone, PartialEq)]
pub struct NumberByKeys {
    /// For each key column, the text of each combination; `None` for a missing one
    pub keys: Vec<Vec<Option<String>>>,
    /// The expression, of the number and of parameters
    pub expression: NumberExpr,
    /// The numbers of each parameter: one for each combination, and behind them that of all others
    pub parameters: Vec<Vec<f64>>,
}

impl NumberByKeys {
    /// The number from an expression for each combination of keys, and one for all others. `None` where the expressions
    /// differ in more than constants.
    pub fn of(
        keys: Vec<Vec<Option<String>>>,
        expressions: Vec<NumberExpr>,
        of_others: NumberExpr,
    ) -> Option<NumberByKeys> {
        let mut expression = expressions.first().unwrap_or(&of_others).clone();
        let mut all_expressions: Vec<&NumberExpr> = expressions.iter().collect();
        all_expressions.push(&of_others);
        let mut parameters = Vec::new();
        let is_one_form = expression.merge(&all_expressions[1..], &mut parameters);
        is_one_form.then_some(NumberByKeys {
            keys,
            expression,
            parameters,
        })
    }
}

/// Numbers of series, or of other combinations of categories.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyNumbers {
    /// For each key column, the text of each combination; `None` for a missing one
    pub keys: Vec<Vec<Option<String>>>,
    /// The number of each combination
    pub numbers: Vec<f64>,
    /// The number of all other combinations, and of all rows where there are no key columns
    pub default: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaled(mean: f64, deviation: f64) -> NumberExpr {
        (NumberExpr::Input - mean) / deviation * 1.0
    }

    #[test]
    fn expressions_of_one_form_have_parameters() {
        let keys = vec![vec![Some("a".to_owned()), None]];
        let expressions = vec![scaled(1.0, 2.0), scaled(3.0, 2.0)];
        let number = NumberByKeys::of(keys.clone(), expressions, scaled(0.0, 2.0)).unwrap();
        assert_eq!(number.parameters, [[1.0, 3.0, 0.0]]);
        let distance = NumberExpr::Difference(
            Box::new(NumberExpr::Input),
            Box::new(NumberExpr::Parameter(0)),
        );
        assert_eq!(number.expression, distance / 2.0 * 1.0);
        let sigmoid = NumberExpr::Input.sigmoid();
        let mixed = vec![scaled(1.0, 2.0), sigmoid.clone()];
        assert_eq!(NumberByKeys::of(keys, mixed, sigmoid.clone()), None);
        // Without keys, only the expression of all others counts.
        let single = NumberByKeys::of(vec![Vec::new()], Vec::new(), sigmoid.clone()).unwrap();
        assert_eq!(single.expression, sigmoid);
        assert_eq!(single.parameters, [[0.0; 0]; 0]);
    }

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
