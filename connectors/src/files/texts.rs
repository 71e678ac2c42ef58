//! Values that files hold as text: which types they have, and what they are as such.

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::DataType;

/// Whole numbers of this many digits are floats exactly.
const EXACT_DIGITS: usize = 15;

/// The first whole number that floats cannot tell from its neighbours.
const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// Whether all values of texts are written as values of a type.
pub(crate) fn all_parse_as(texts: &ArrayRef, candidate: &DataType) -> bool {
    let Some(words) = texts.as_string_opt::<i32>() else {
        return false;
    };
    // What reads as the type but would not be written so is text: `007`, `t` or `1e5x`.
    let fits = |text: &str| match candidate {
        DataType::Int64 | DataType::UInt64 => !is_padded(text),
        DataType::Float64 => !is_padded(text) && float_is_exact(text),
        DataType::Boolean => {
            text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false")
        }
        DataType::Date32 => text.len() == 10,
        _ => true,
    };
    if !words.iter().flatten().all(fits) {
        return false;
    }
    cast_with_options(
        texts,
        candidate,
        &CastOptions {
            safe: true,
            ..CastOptions::default()
        },
    )
    .is_ok_and(|cast| cast.null_count() == texts.null_count())
}

fn is_padded(text: &str) -> bool {
    let digits = text.trim_start_matches(['-', '+']);
    digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a float holds the digits of a number before the point, so that two numbers cannot become one. Digits after
/// the point are rounded, and so is what is written with an exponent: such numbers are measured, and no identifiers.
pub(crate) fn float_is_exact(text: &str) -> bool {
    let whole = text
        .trim_start_matches(['-', '+'])
        .split('.')
        .next()
        .unwrap_or_default()
        .trim_start_matches('0');
    if whole.len() <= EXACT_DIGITS
        || !whole.bytes().all(|byte| byte.is_ascii_digit())
        || text.contains(['e', 'E'])
    {
        return true;
    }
    // Some programs write the shortest digits that lead back to a float, and fill up with zeros.
    whole
        .parse::<f64>()
        .is_ok_and(|float| format!("{float:.0}") == whole || format!("{float}") == whole)
}

/// The first text that a float does not hold.
pub(crate) fn first_inexact_float(texts: &StringArray) -> Option<usize> {
    // Short texts hold few digits.
    texts.iter().position(|text| {
        text.is_some_and(|text| text.len() > EXACT_DIGITS && !float_is_exact(text))
    })
}

/// Texts of whole numbers, without points and exponents: `5.0` is 5, as programs without nulls of integers write it.
pub(crate) fn normalize_integers(texts: &StringArray) -> StringArray {
    let whole = |text: &str| {
        let float = text
            .parse::<f64>()
            .ok()
            .filter(|float| float.fract() == 0.0 && float.abs() < EXACT_INTEGER_MAX)?;
        Some(format!("{}", float as i64))
    };
    let is_plain = |text: &str| !text.contains(['.', 'e', 'E']);
    if texts.iter().flatten().all(is_plain) {
        return texts.clone();
    }
    let one = |text: Option<&str>| {
        text.map(|text| {
            if is_plain(text) {
                text.to_owned()
            } else {
                whole(text).unwrap_or_else(|| text.to_owned())
            }
        })
    };
    texts.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_hold_some_digits_and_not_others() {
        for held in [
            "0",
            "-1.5",
            "9007199254740992",
            "9007199254740992.0",
            "1e300",
            "0.10000000000000000555",
            "NaN",
        ] {
            assert!(float_is_exact(held), "{held}");
        }
        for held in [
            "18446744073709551616",
            "123456789012345680000",
            "-000000000000000000001",
            "inf",
            "x",
        ] {
            assert!(float_is_exact(held), "{held}");
        }
        for lost in [
            "9007199254740993",
            "-9007199254740993",
            "9007199254740993.5",
            "12345678901234567890",
        ] {
            assert!(!float_is_exact(lost), "{lost}");
        }
    }

    #[test]
    fn whole_numbers_are_written_without_points() {
        let texts = StringArray::from(vec![
            Some("5.0"),
            None,
            Some("1e3"),
            Some("9007199254740993.0"),
            Some("1.5"),
        ]);
        let expected = StringArray::from(vec![
            Some("5"),
            None,
            Some("1000"),
            Some("9007199254740993.0"),
            Some("1.5"),
        ]);
        assert_eq!(normalize_integers(&texts), expected);
    }
}
