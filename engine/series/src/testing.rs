//! Series and assertions that tests of several models share.

use crate::forecast::SeriesForecast;

/// Monthly passengers of airlines, 1949 to 1960 (Box and Jenkins 1976, series G).
pub(crate) const PASSENGERS: [u16; 144] = [
    112, 118, 132, 129, 121, 135, 148, 148, 136, 119, 104, 118, 115, 126, 141, 135, 125, 149, 170,
    170, 158, 133, 114, 140, 145, 150, 178, 163, 172, 178, 199, 199, 184, 162, 146, 166, 171, 180,
    193, 181, 183, 218, 230, 242, 209, 191, 172, 194, 196, 196, 236, 235, 229, 243, 264, 272, 237,
    211, 180, 201, 204, 188, 235, 227, 234, 264, 302, 293, 259, 229, 203, 229, 242, 233, 267, 269,
    270, 315, 364, 347, 312, 274, 237, 278, 284, 277, 317, 313, 318, 374, 413, 405, 355, 306, 271,
    306, 315, 301, 356, 348, 355, 422, 465, 467, 404, 347, 305, 336, 340, 318, 362, 348, 363, 435,
    491, 505, 404, 359, 310, 337, 360, 342, 406, 396, 420, 472, 548, 559, 463, 407, 362, 405, 417,
    391, 419, 461, 472, 535, 622, 606, 508, 461, 390, 432,
];

/// The flow of the Nile at Aswan, 1871 to 1890.
pub(crate) const NILE: [u16; 20] = [
    1120, 1160, 963, 1210, 1160, 1160, 813, 1230, 1370, 1140, 995, 935, 1110, 994, 1020, 960, 1180,
    799, 958, 1140,
];

pub(crate) fn reals(values: &[u16]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

/// Fails unless the first forecasts lie within a share of the expected ones.
#[track_caller]
pub(crate) fn assert_forecasts(forecast: &SeriesForecast, share: f64, expected: &[f64]) {
    for (step, expected) in (1..).zip(expected) {
        let value = forecast.value(step);
        let distance = (value - expected).abs() / expected.abs();
        assert!(distance < share, "{value}, not {expected}, at step {step}");
    }
}
