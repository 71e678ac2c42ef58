//! The number of differences that make a series stationary.

/// Critical value of the test at 5 % (Kwiatkowski, Phillips, Schmidt and Shin, 1992, table 1).
const CRITICAL_VALUE: f64 = 0.463;

/// Values below which no test is made.
const VALUES_MIN: usize = 3;

/// The statistic of Kwiatkowski, Phillips, Schmidt and Shin (1992) for stationarity around a level, with
/// `3 * sqrt(n) / 13` lags and Bartlett weights.
pub(super) fn kpss(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let lags = (3.0 * count.sqrt() / 13.0).floor() as usize;
    let mut partial_sum = 0.0;
    let mut squared_sums = 0.0;
    for value in values {
        partial_sum += value - mean;
        squared_sums += partial_sum * partial_sum;
    }
    let autocovariance = |lag: usize| {
        let earlier = values.iter();
        let lagged = values.iter().skip(lag);
        let products = earlier.zip(lagged).map(|(x, y)| (x - mean) * (y - mean));
        products.sum::<f64>() / count
    };
    let mut variance = autocovariance(0);
    for lag in 1..=lags {
        let weight = 1.0 - lag as f64 / (lags as f64 + 1.0);
        variance += 2.0 * weight * autocovariance(lag);
    }
    squared_sums / (count * count * variance)
}

/// The number of differences, `most` at most: a series is differenced while the test of stationarity rejects it, as
/// mlforecast's `AutoDifferences` does. A series of one value needs none.
pub(super) fn differences(values: &[f64], most: u8) -> u8 {
    let mut values = values.to_vec();
    let mut number = 0;
    while number < most && values.len() >= VALUES_MIN && !is_constant(&values) {
        if kpss(&values) <= CRITICAL_VALUE {
            break;
        }
        values = values.windows(2).map(|pair| pair[1] - pair[0]).collect();
        number += 1;
    }
    number
}

fn is_constant(values: &[f64]) -> bool {
    values.windows(2).all(|pair| pair[0] == pair[1])
}

#[cfg(test)]
mod tests {
    use super::super::tests::AIR_PASSENGERS;
    use super::*;

    /// Values of coreforecast 0.0.20.
    #[test]
    fn tests_are_those_of_coreforecast() {
        assert!((kpss(&AIR_PASSENGERS) - 4.342_287).abs() < 1e-6);
        let once: Vec<f64> = AIR_PASSENGERS
            .windows(2)
            .map(|pair| pair[1] - pair[0])
            .collect();
        assert!((kpss(&once) - 0.011_485).abs() < 1e-6);
        assert_eq!(differences(&AIR_PASSENGERS, 2), 1);
    }

    #[test]
    fn trends_need_as_many_differences_as_their_degree() {
        let line: Vec<f64> = (1..=10).map(f64::from).collect();
        assert_eq!(differences(&line, 2), 1);
        let squares: Vec<f64> = (0..30).map(|x| f64::from(x * x)).collect();
        assert_eq!(differences(&squares, 2), 2);
        assert_eq!(differences(&squares, 1), 1);
        assert_eq!(differences(&[5.0; 4], 2), 0);
        assert_eq!(differences(&[1.0, 2.0], 2), 0);
        assert_eq!(differences(&[], 2), 0);
    }
}
