//! The type that columns of two types have in common.
//!
//! | types | common type | taken |
//! |---|---|---|
//! | layouts of texts, of bytes; dictionaries of them | texts, bytes | silently |
//! | a column without any value, and another | the other | silently |
//! | times in two units, durations in two units | the finer unit | silently |
//! | times whose zones are names of UTC | UTC | silently |
//! | list elements or fields that may be null, and others that may not | they may | silently |
//! | fields of structs in another order | the first order | silently |
//! | integers | the narrowest that holds both; of `uint64` and signed ones `int64` | with `widening` |
//! | floats; integers and floats | the narrower float that holds both, else `float64` | with `widening` |
//! | decimals; integers and decimals | whole digits and fraction of both, 38 digits at most | with `widening` |
//! | a date, and a time without a zone | the time: midnight | with `widening` |
//! | fields that one struct lacks | they are null there | with `widening` |
//! | vectors and lists; vectors of two widths | lists | with `widening` |
//! | bytes of a fixed width, and others | bytes | with `widening` |
//! | times with and without a zone, or with two zones | none: their days differ | never |
//! | decimals and floats | none: floats round | never |
//! | all others | none: they are different things | never |
//!
//! A common type never changes a value: where a value does not have it, reading is a fault.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, TimeUnit};
use forebay_model::{is_utc_name, logical_type};

/// The most digits of decimals.
const DECIMAL_DIGITS_MAX: u8 = 38;

/// A type that holds the values of two, and what must be said for it to be taken.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CommonType {
    pub(crate) data_type: DataType,
    /// True if the source must allow it with `widening: true`.
    pub(crate) is_wider: bool,
}

impl CommonType {
    fn silent(data_type: DataType) -> Result<CommonType, &'static str> {
        Ok(CommonType {
            data_type,
            is_wider: false,
        })
    }

    fn wider(data_type: DataType) -> Result<CommonType, &'static str> {
        Ok(CommonType {
            data_type,
            is_wider: true,
        })
    }
}

/// The common type of two, or the reason why there is none.
pub(crate) fn common_type(a: &DataType, b: &DataType) -> Result<CommonType, &'static str> {
    use DataType::*;
    if a == b {
        return CommonType::silent(a.clone());
    }
    let logical = (logical_type(a), logical_type(b));
    if logical.0 == logical.1 {
        return CommonType::silent(logical.0);
    }
    match (&logical.0, &logical.1) {
        (Null, other) | (other, Null) => CommonType::silent(other.clone()),
        (Timestamp(unit, zone), Timestamp(other_unit, other_zone)) => {
            let zone = common_zone(zone, other_zone)?;
            CommonType::silent(Timestamp(finer_unit(*unit, *other_unit), zone))
        }
        (Duration(unit), Duration(other)) => {
            CommonType::silent(Duration(finer_unit(*unit, *other)))
        }
        (Time32(unit) | Time64(unit), Time32(other) | Time64(other)) => {
            let unit = finer_unit(*unit, *other);
            let of = match unit {
                TimeUnit::Second | TimeUnit::Millisecond => Time32(unit),
                TimeUnit::Microsecond | TimeUnit::Nanosecond => Time64(unit),
            };
            CommonType::silent(of)
        }
        (Date32, Timestamp(_, None)) => CommonType::wider(logical.1.clone()),
        (Timestamp(_, None), Date32) => CommonType::wider(logical.0.clone()),
        (Date32, Timestamp(_, Some(_))) | (Timestamp(_, Some(_)), Date32) => {
            Err("a day is not the same time in all zones")
        }
        (FixedSizeBinary(_) | Binary, FixedSizeBinary(_) | Binary) => CommonType::wider(Binary),
        (Struct(fields), Struct(others)) => common_struct(fields, others),
        (Map(entries, sorted), Map(others, _)) => {
            let entries = common_field(entries, others)?;
            Ok(CommonType {
                data_type: Map(entries.0, *sorted),
                is_wider: entries.1,
            })
        }
        (a, b) if list_item(a).is_some() && list_item(b).is_some() => common_list(a, b),
        (a, b) if is_number(a) && is_number(b) => common_number(a, b),
        _ => Err("they are different things"),
    }
}

fn finer_unit(a: TimeUnit, b: TimeUnit) -> TimeUnit {
    a.max(b)
}

/// One name of UTC for all, or the zone that both have.
fn common_zone(
    a: &Option<Arc<str>>,
    b: &Option<Arc<str>>,
) -> Result<Option<Arc<str>>, &'static str> {
    match (a, b) {
        (None, None) => Ok(None),
        (Some(a), Some(b)) if a == b => Ok(Some(a.clone())),
        (Some(a), Some(b)) if is_utc_name(a) && is_utc_name(b) => Ok(Some("UTC".into())),
        (Some(_), Some(_)) => Err("their time zones differ, and with them their days"),
        _ => Err("one of them has a time zone"),
    }
}

fn list_item(of: &DataType) -> Option<&FieldRef> {
    match of {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            Some(item)
        }
        _ => None,
    }
}

fn common_list(a: &DataType, b: &DataType) -> Result<CommonType, &'static str> {
    use DataType::*;
    let (Some(item), Some(other)) = (list_item(a), list_item(b)) else {
        return Err("they are different things");
    };
    let (item, is_wider) = common_field(item, other)?;
    let (data_type, is_other_form) = match (a, b) {
        (FixedSizeList(_, width), FixedSizeList(_, other)) if width == other => {
            (FixedSizeList(item, *width), false)
        }
        (FixedSizeList(..), _) | (_, FixedSizeList(..)) => (List(item), true),
        (LargeList(_), _) | (_, LargeList(_)) => (LargeList(item), false),
        _ => (List(item), false),
    };
    Ok(CommonType {
        data_type,
        is_wider: is_wider || is_other_form,
    })
}

/// A field of the first name, and whether its type is wider.
fn common_field(a: &FieldRef, b: &FieldRef) -> Result<(FieldRef, bool), &'static str> {
    let common = common_type(a.data_type(), b.data_type())?;
    let is_nullable = a.is_nullable() || b.is_nullable();
    let field = Field::new(a.name(), common.data_type, is_nullable);
    Ok((Arc::new(field), common.is_wider))
}

fn common_struct(fields: &Fields, others: &Fields) -> Result<CommonType, &'static str> {
    let mut is_wider = false;
    let mut common: Vec<FieldRef> = Vec::with_capacity(fields.len());
    for field in fields {
        match others.find(field.name()) {
            Some((_, other)) => {
                let (field, wider) = common_field(field, other)?;
                is_wider |= wider;
                common.push(field);
            }
            None => {
                is_wider = true;
                common.push(Arc::new(field.as_ref().clone().with_nullable(true)));
            }
        }
    }
    for other in others {
        if fields.find(other.name()).is_none() {
            is_wider = true;
            common.push(Arc::new(other.as_ref().clone().with_nullable(true)));
        }
    }
    Ok(CommonType {
        data_type: DataType::Struct(common.into()),
        is_wider,
    })
}

fn is_number(of: &DataType) -> bool {
    of.is_integer() || of.is_floating() || matches!(of, DataType::Decimal128(..))
}

/// Bits of an integer, and whether it has a sign.
fn integer_bits(of: &DataType) -> Option<(u32, bool)> {
    Some(match of {
        DataType::Int8 => (8, true),
        DataType::Int16 => (16, true),
        DataType::Int32 => (32, true),
        DataType::Int64 => (64, true),
        DataType::UInt8 => (8, false),
        DataType::UInt16 => (16, false),
        DataType::UInt32 => (32, false),
        DataType::UInt64 => (64, false),
        _ => return None,
    })
}

fn integer(bits: u32, is_signed: bool) -> DataType {
    match (bits, is_signed) {
        (8, true) => DataType::Int8,
        (16, true) => DataType::Int16,
        (32, true) => DataType::Int32,
        (8, false) => DataType::UInt8,
        (16, false) => DataType::UInt16,
        (32, false) => DataType::UInt32,
        (64, false) => DataType::UInt64,
        _ => DataType::Int64,
    }
}

/// Bits of whole numbers that a float holds.
fn float_bits(of: &DataType) -> Option<u32> {
    Some(match of {
        DataType::Float16 => 11,
        DataType::Float32 => 24,
        DataType::Float64 => 53,
        _ => return None,
    })
}

fn float(bits: u32) -> DataType {
    match bits {
        ..=11 => DataType::Float16,
        12..=24 => DataType::Float32,
        _ => DataType::Float64,
    }
}

/// Digits before and behind the point.
fn decimal_digits(of: &DataType) -> Option<(u8, i8)> {
    if let DataType::Decimal128(precision, scale) = of {
        let whole = i16::from(*precision) - i16::from(*scale);
        return Some((u8::try_from(whole).ok()?, *scale));
    }
    let whole = match integer_bits(of)? {
        (8, _) => 3,
        (16, _) => 5,
        (32, _) => 10,
        (_, true) => 19,
        (_, false) => 20,
    };
    Some((whole, 0))
}

fn common_number(a: &DataType, b: &DataType) -> Result<CommonType, &'static str> {
    let is_decimal = |of: &DataType| matches!(of, DataType::Decimal128(..));
    if is_decimal(a) || is_decimal(b) {
        if a.is_floating() || b.is_floating() {
            return Err("floats round the digits of decimals");
        }
        let (Some((whole, scale)), Some((other_whole, other_scale))) =
            (decimal_digits(a), decimal_digits(b))
        else {
            return Err("no decimal holds both");
        };
        let scale = scale.max(other_scale);
        let digits = i16::from(whole.max(other_whole)) + i16::from(scale);
        return match u8::try_from(digits) {
            Ok(digits) if digits <= DECIMAL_DIGITS_MAX => {
                CommonType::wider(DataType::Decimal128(digits, scale))
            }
            _ => Err("no decimal of 38 digits holds both"),
        };
    }
    match (integer_bits(a), integer_bits(b)) {
        (Some((bits, signed)), Some((other, other_signed))) if signed == other_signed => {
            CommonType::wider(integer(bits.max(other), signed))
        }
        (Some((bits, signed)), Some((other, _))) => {
            let (signed_bits, unsigned_bits) = if signed { (bits, other) } else { (other, bits) };
            CommonType::wider(integer(signed_bits.max(unsigned_bits * 2).min(64), true))
        }
        (bits, other) => {
            let bits_of = |of: &DataType, integer: Option<(u32, bool)>| {
                float_bits(of).or_else(|| integer.map(|(bits, _)| bits))
            };
            let bits = bits_of(a, bits).max(bits_of(b, other)).unwrap_or(64);
            CommonType::wider(float(bits))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DataType::*;

    fn check(a: &DataType, b: &DataType, expected: Result<CommonType, &'static str>) {
        let shown = |of: &Result<CommonType, &'static str>| of.clone().map_err(|_| ());
        assert_eq!(shown(&common_type(a, b)), shown(&expected), "{a} and {b}");
        let turned = common_type(b, a);
        assert_eq!(shown(&turned), shown(&expected), "{b} and {a}");
    }

    fn silent(a: &DataType, b: &DataType, of: &DataType) {
        check(a, b, CommonType::silent(of.clone()));
    }

    fn wider(a: &DataType, b: &DataType, of: &DataType) {
        check(a, b, CommonType::wider(of.clone()));
    }

    fn none(a: &DataType, b: &DataType) {
        check(a, b, Err(""));
    }

    fn list(of: &DataType, nullable: bool) -> DataType {
        List(Field::new("item", of.clone(), nullable).into())
    }

    fn time(unit: TimeUnit, zone: Option<&str>) -> DataType {
        Timestamp(unit, zone.map(Into::into))
    }

    #[test]
    fn pairs_of_types_have_the_common_type_of_the_table() {
        use TimeUnit::*;
        silent(&Null, &Utf8, &Utf8);
        silent(&LargeUtf8, &Utf8View, &Utf8);
        silent(&Dictionary(Int32.into(), Utf8.into()), &Utf8, &Utf8);
        silent(
            &time(Millisecond, None),
            &time(Nanosecond, None),
            &time(Nanosecond, None),
        );
        silent(
            &time(Second, Some("+00:00")),
            &time(Microsecond, Some("Etc/UTC")),
            &time(Microsecond, Some("UTC")),
        );
        silent(&Time32(Second), &Time64(Nanosecond), &Time64(Nanosecond));
        silent(
            &Duration(Second),
            &Duration(Millisecond),
            &Duration(Millisecond),
        );
        silent(
            &list(&Int64, false),
            &list(&Int64, true),
            &list(&Int64, true),
        );
        silent(
            &list(&LargeUtf8, true),
            &list(&Utf8, false),
            &list(&Utf8, true),
        );
        wider(
            &list(&Int32, true),
            &list(&Int64, true),
            &list(&Int64, true),
        );
        wider(&Int32, &Int64, &Int64);
        wider(&UInt32, &Int32, &Int64);
        wider(&UInt64, &Int8, &Int64);
        wider(&Int32, &Float32, &Float64);
        wider(&Int16, &Float32, &Float32);
        wider(&Int64, &Float64, &Float64);
        wider(&Float32, &Float64, &Float64);
        wider(&Decimal128(10, 2), &Decimal128(12, 2), &Decimal128(12, 2));
        wider(&Decimal128(10, 2), &Decimal128(10, 4), &Decimal128(12, 4));
        wider(&Decimal128(10, 2), &Int64, &Decimal128(21, 2));
        wider(&Date32, &time(Microsecond, None), &time(Microsecond, None));
        wider(&FixedSizeBinary(4), &Binary, &Binary);
        wider(
            &FixedSizeList(Field::new("item", Float32, true).into(), 3),
            &list(&Float32, true),
            &list(&Float32, true),
        );
        none(&Decimal128(38, 2), &Decimal128(38, 4));
        none(&Decimal128(10, 2), &Float64);
        none(&Utf8, &Int64);
        none(&Boolean, &Int64);
        none(&list(&Utf8, true), &Utf8);
        none(&time(Microsecond, None), &time(Microsecond, Some("UTC")));
        none(
            &time(Second, Some("UTC")),
            &time(Second, Some("Europe/Berlin")),
        );
        none(&Date32, &time(Second, Some("UTC")));
    }

    #[test]
    fn structs_are_common_field_by_field() {
        let of = |fields: &[(&str, DataType, bool)]| {
            let fields = fields
                .iter()
                .map(|(name, of, nullable)| Field::new(*name, of.clone(), *nullable));
            Struct(fields.collect())
        };
        let a = of(&[("x", Int32, false), ("y", Utf8, true)]);
        let turned = of(&[("y", LargeUtf8, true), ("x", Int32, true)]);
        let common = common_type(&a, &turned).unwrap();
        assert_eq!(
            common.data_type,
            of(&[("x", Int32, true), ("y", Utf8, true)])
        );
        assert!(!common.is_wider);
        let more = of(&[("x", Int64, false), ("z", Date32, false)]);
        let common = common_type(&a, &more).unwrap();
        assert_eq!(
            common.data_type,
            of(&[("x", Int64, false), ("y", Utf8, true), ("z", Date32, true)])
        );
        assert!(common.is_wider);
        assert!(common_type(&a, &of(&[("x", Utf8, true)])).is_err());
    }
}
