//! The quantile function of the normal distribution, and its inverse.

/// The value below which a standard normal variable lies with a probability, from 1e-10 to 1 - 1e-10; the relative
/// error is below 1e-15.
///
/// Algorithm AS 241, PPND16 (Wichura, Applied Statistics 37, 1988), without the branch of the far tails.
pub(super) fn normal_quantile(probability: f64) -> f64 {
    let from_middle = probability - 0.5;
    if from_middle.abs() <= 0.425 {
        let r = 0.180625 - from_middle * from_middle;
        return from_middle * polynomial(&MIDDLE_ABOVE, r) / polynomial(&MIDDLE_BELOW, r);
    }
    let tail = probability.min(1.0 - probability);
    let r = (-tail.ln()).sqrt() - 1.6;
    let value = polynomial(&TAIL_ABOVE, r) / polynomial(&TAIL_BELOW, r);
    value.copysign(from_middle)
}

/// The probability with which a standard normal variable is below a value, as far as [`normal_quantile`] tells
/// probabilities apart: from 1e-10 to 1 - 1e-10.
pub(super) fn normal_probability(value: f64) -> f64 {
    if value.is_nan() {
        return value;
    }
    let mut low = PROBABILITY_MIN;
    let mut high = 1.0 - PROBABILITY_MIN;
    for _ in 0..HALVES_MAX {
        let middle = f64::midpoint(low, high);
        if normal_quantile(middle) < value {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// Least probability of a value.
const PROBABILITY_MIN: f64 = 1e-10;

/// Halves of the probabilities until they are told apart by less than 1e-16.
const HALVES_MAX: usize = 54;

/// A polynomial by its coefficients, the constant first.
fn polynomial(coefficients: &[f64; 8], x: f64) -> f64 {
    let mut sum = 0.0;
    for coefficient in coefficients.iter().rev() {
        sum = sum * x + coefficient;
    }
    sum
}

const MIDDLE_ABOVE: [f64; 8] = [
    3.387_132_872_796_366_5,
    133.141_667_891_784_38,
    1_971.590_950_306_551_3,
    13_731.693_765_509_46,
    45_921.953_931_549_87,
    67_265.770_927_008_7,
    33_430.575_583_588_13,
    2_509.080_928_730_122_7,
];
const MIDDLE_BELOW: [f64; 8] = [
    1.0,
    42.313_330_701_600_91,
    687.187_007_492_057_9,
    5_394.196_021_424_751,
    21_213.794_301_586_597,
    39_307.895_800_092_71,
    28_729.085_735_721_943,
    5_226.495_278_852_854,
];
const TAIL_ABOVE: [f64; 8] = [
    1.423_437_110_749_683_5,
    4.630_337_846_156_546,
    5.769_497_221_460_691,
    3.647_848_324_763_204_5,
    1.270_458_252_452_368_4,
    0.241_780_725_177_450_6,
    0.022_723_844_989_269_184,
    7.745_450_142_783_414e-4,
];
const TAIL_BELOW: [f64; 8] = [
    1.0,
    2.053_191_626_637_759,
    1.676_384_830_183_803_8,
    0.689_767_334_985_1,
    0.148_103_976_427_480_08,
    0.015_198_666_563_616_457,
    5.475_938_084_995_345e-4,
    1.050_750_071_644_416_9e-9,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Probabilities and their quantiles.
    const SCIPY: [(f64, f64); 14] = [
        (1e-10, -6.361340902404056),
        (1e-07, -5.1993375821928165),
        (0.001, -3.090232306167813),
        (0.02425, -1.972961051311885),
        (0.07499, -1.4396021182393162),
        (0.1, -1.2815515655446004),
        (0.3, -0.5244005127080409),
        (0.5, 0.0),
        (0.51, 0.02506890825871106),
        (0.925, 1.4395314709384563),
        (0.93, 1.475791028179171),
        (0.975, 1.959963984540054),
        (0.999, 3.090232306167813),
        (0.9999999, 5.199337582290661),
    ];

    /// Values of scipy 1.17.1, `scipy.stats.norm.ppf`.
    #[test]
    fn quantiles_are_those_of_scipy() {
        for (probability, value) in SCIPY {
            let error = (normal_quantile(probability) - value).abs();
            assert!(error <= 1e-14 * value.abs(), "{probability}: {error}");
            let error = (normal_probability(value) - probability).abs();
            assert!(error <= 1e-15, "{value}: {error}");
        }
    }
}
