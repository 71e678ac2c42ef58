//! The type that columns of two types have in common.
//!
//! | types | common type | taken |
//! |---|---|---|
//! | layouts of texts, of bytes, of lists; dictionaries and runs | texts, bytes, lists, their values | silently |
//! | a column without any value, and another | the other | silently |
//! | times in two units, durations in two units | the finer unit | silently |
//! | times whose zones are names of UTC | UTC | silently |
//! | times whose zones are names of one zone, such as `US/Eastern` and `America/New_York` | the zone's name of today | silently |
//! | list elements or fields that may be null, and others that may not | they may | silently |
//! | fields of structs in another order | the first order | silently |
//! | integers | the narrowest that holds both; of `uint64` and signed ones `int64` | with `widening` |
//! | floats; integers and floats | the narrower float that holds both, else `float64` | with `widening` |
//! | decimals; integers and decimals | whole digits and fraction of both, 38 digits at most (76 with a decimal of 256 bits) | with `widening` |
//! | dates in days and in milliseconds | dates in days | silently |
//! | a date, and a time without a zone | the time: midnight | with `widening` |
//! | fields that one struct lacks | they are null there | with `widening` |
//! | vectors and lists; vectors of two widths | lists | with `widening` |
//! | bytes of a fixed width, and others | bytes | with `widening` |
//! | bytes that no annotation makes texts, and texts | texts | with `widening` |
//! | keys and values of maps, under any names | those of both, under the first names | as for others |
//! | times with and without a zone, or with two zones | none: their days differ | never; `local_times: utc` gives those without one a zone |
//! | decimals and floats | none: floats round | never |
//! | all others | none: they are different things | never |
//!
//! A common type never changes a value: where a value does not have it, reading is a fault.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, TimeUnit};
use forebay_model::{NameIndex, common_zone_name, logical_type};

/// The reason why times with and without a zone have no common type.
pub(crate) const ONE_HAS_A_ZONE: &str = "one of them has a time zone";

/// The most digits of decimals.
const DECIMAL_DIGITS_MAX: u8 = 38;

/// The most digits of decimals of 256 bits.
const LARGE_DECIMAL_DIGITS_MAX: u8 = 76;

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
        (Date32, Date64) | (Date64, Date32) => CommonType::silent(Date32),
        (Date64, Timestamp(unit, None)) | (Timestamp(unit, None), Date64) => {
            CommonType::wider(Timestamp(finer_unit(*unit, TimeUnit::Millisecond), None))
        }
        (Date32, Timestamp(_, None)) => CommonType::wider(logical.1.clone()),
        (Timestamp(_, None), Date32) => CommonType::wider(logical.0.clone()),
        (Date32 | Date64, Timestamp(_, Some(_))) | (Timestamp(_, Some(_)), Date32 | Date64) => {
            Err("a day is not the same time in all zones")
        }
        (FixedSizeBinary(_) | Binary, FixedSizeBinary(_) | Binary) => CommonType::wider(Binary),
        (Struct(fields), Struct(others)) => common_struct(fields, others),
        (Map(entries, is_sorted), Map(others, is_other_sorted)) => {
            common_map(entries, others, *is_sorted && *is_other_sorted)
        }
        (Utf8, Binary) | (Binary, Utf8) => CommonType::wider(Utf8),
        (a, b) if list_item(a).is_some() && list_item(b).is_some() => common_list(a, b),
        (a, b) if is_number(a) && is_number(b) => common_number(a, b),
        _ => Err("they are different things"),
    }
}

fn finer_unit(a: TimeUnit, b: TimeUnit) -> TimeUnit {
    a.max(b)
}

/// Common time zone: the zone that both names stand for.
fn common_zone(
    a: &Option<Arc<str>>,
    b: &Option<Arc<str>>,
) -> Result<Option<Arc<str>>, &'static str> {
    match (a, b) {
        (None, None) => Ok(None),
        (Some(a), Some(b)) => match common_zone_name(a, b) {
            Some(zone) => Ok(Some(zone)),
            None => Err("their time zones differ, and with them their days"),
        },
        _ => Err(ONE_HAS_A_ZONE),
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
    let Some((item, other_item)) = list_item(a).zip(list_item(b)) else {
        return Err("they are different things");
    };
    let (item, is_wider) = common_field(item, other_item)?;
    let (data_type, is_other_form) = match (a, b) {
        (FixedSizeList(_, width), FixedSizeList(_, other)) if width == other => {
            (FixedSizeList(item, *width), false)
        }
        (FixedSizeList(..), LargeList(_)) | (LargeList(_), FixedSizeList(..)) => {
            (LargeList(item), true)
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

/// The common type of two maps. Names of their keys and values differ from writer to writer, and are those of the first.
fn common_map(
    entries: &FieldRef,
    others: &FieldRef,
    is_sorted: bool,
) -> Result<CommonType, &'static str> {
    let DataType::Struct(fields) = entries.data_type() else {
        return Err("they are different things");
    };
    let DataType::Struct(other_fields) = others.data_type() else {
        return Err("they are different things");
    };
    let mut is_wider = false;
    let mut common: Vec<FieldRef> = Vec::with_capacity(fields.len());
    for (field, other) in fields.iter().zip(other_fields) {
        let (field, wider) = common_field(field, other)?;
        is_wider |= wider;
        common.push(field);
    }
    let data_type = DataType::Struct(common.into());
    let common_entries = Field::new(entries.name(), data_type, entries.is_nullable());
    Ok(CommonType {
        data_type: DataType::Map(common_entries.into(), is_sorted),
        is_wider,
    })
}

fn common_struct(fields: &Fields, others: &Fields) -> Result<CommonType, &'static str> {
    let mut is_wider = false;
    let mut common: Vec<FieldRef> = Vec::with_capacity(fields.len());
    let other_names = NameIndex::of_fields(others);
    for field in fields {
        match other_names.get(field.name()) {
            Some(position) => {
                let other = &others[position];
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
    let field_names = NameIndex::of_fields(fields);
    for other in others {
        if !field_names.contains(other.name()) {
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
    of.is_integer() || of.is_floating() || is_decimal(of)
}

fn is_decimal(of: &DataType) -> bool {
    decimal_shape(of).is_some()
}

/// The digits of a decimal, and those behind its point.
fn decimal_shape(of: &DataType) -> Option<(u8, i8)> {
    match of {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => Some((*precision, *scale)),
        _ => None,
    }
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
    if let Some((precision, scale)) = decimal_shape(of) {
        // Where all digits are behind the point, perhaps behind zeros, there are none before it.
        let whole = (i16::from(precision) - i16::from(scale)).max(0);
        return Some((u8::try_from(whole).ok()?, scale));
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
    if is_decimal(a) || is_decimal(b) {
        if a.is_floating() || b.is_floating() {
            return Err("floats round the digits of decimals");
        }
        let shape = decimal_shape(a).filter(|shape| decimal_shape(b) == Some(*shape));
        if let Some((precision, scale)) = shape.filter(|shape| shape.0 <= DECIMAL_DIGITS_MAX) {
            return CommonType::silent(DataType::Decimal128(precision, scale));
        }
        let digit_counts = decimal_digits(a).zip(decimal_digits(b));
        let Some(((whole, scale), (other_whole, other_scale))) = digit_counts else {
            return Err("no decimal holds both");
        };
        let scale = scale.max(other_scale);
        let digits = i16::from(whole.max(other_whole)) + i16::from(scale);
        let is_large = [a, b]
            .iter()
            .any(|of| matches!(of, DataType::Decimal256(..)));
        return match u8::try_from(digits) {
            Ok(digits) if digits <= DECIMAL_DIGITS_MAX => {
                CommonType::wider(DataType::Decimal128(digits, scale))
            }
            Ok(digits) if is_large && digits <= LARGE_DECIMAL_DIGITS_MAX => {
                CommonType::wider(DataType::Decimal256(digits, scale))
            }
            _ => Err("no decimal has the digits of both"),
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
        wider(&FixedSizeBinary(4), &FixedSizeBinary(5), &Binary);
        wider(&LargeBinary, &Utf8View, &Utf8);
        none(&FixedSizeBinary(4), &Utf8);
        silent(&BinaryView, &LargeBinary, &Binary);
        wider(&Float16, &Float32, &Float32);
        wider(&Float16, &Int8, &Float16);
        wider(&Float16, &Int16, &Float32);
        wider(&UInt64, &UInt8, &UInt64);
        wider(&UInt64, &Float32, &Float64);
        silent(&Decimal256(30, 2), &Decimal128(30, 2), &Decimal128(30, 2));
        none(&Boolean, &Utf8);
        none(&Date32, &Int32);
        none(&Duration(Second), &Int64);
        none(&Date32, &Utf8);
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
        none(&Date64, &time(Second, Some("UTC")));
        silent(&Date32, &Date64, &Date32);
        wider(&Date64, &time(Second, None), &time(Millisecond, None));
        wider(&Decimal128(5, 2), &Decimal256(50, 3), &Decimal256(50, 3));
        silent(&Decimal32(5, 2), &Decimal128(5, 2), &Decimal128(5, 2));
        silent(&Decimal64(5, 2), &Decimal32(5, 2), &Decimal128(5, 2));
        wider(&Decimal32(5, 2), &Decimal64(12, 4), &Decimal128(12, 4));
        wider(&Decimal32(5, 2), &Int8, &Decimal128(5, 2));
        none(&Decimal64(5, 2), &Float32);
        none(&Decimal128(38, 0), &Decimal128(5, 2));
        wider(&Decimal128(2, 5), &Decimal128(3, 5), &Decimal128(5, 5));
        wider(&Decimal128(2, 5), &Int8, &Decimal128(8, 5));
        wider(&Decimal128(5, -2), &Decimal128(5, 2), &Decimal128(9, 2));
    }

    /// Types of columns, by what they hold.
    fn types_by_kind() -> Vec<(&'static str, Vec<DataType>)> {
        use TimeUnit::*;
        let units = [Second, Millisecond, Microsecond, Nanosecond];
        let item = Arc::new(Field::new_list_field(Int32, true));
        let pair = Struct(fields(&[("x", Int32, true)]));
        vec![
            ("nothing", vec![Null]),
            ("booleans", vec![Boolean]),
            (
                "integers",
                vec![Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64],
            ),
            ("floats", vec![Float16, Float32, Float64]),
            (
                "decimals",
                vec![
                    Decimal32(5, 2),
                    Decimal64(12, 4),
                    Decimal128(20, 0),
                    Decimal256(50, 3),
                ],
            ),
            ("texts", vec![Utf8, LargeUtf8, Utf8View]),
            ("bytes", vec![Binary, LargeBinary, BinaryView]),
            ("fixed bytes", vec![FixedSizeBinary(4), FixedSizeBinary(16)]),
            ("dates", vec![Date32, Date64]),
            ("local times", units.map(|unit| time(unit, None)).to_vec()),
            (
                "instants",
                units.map(|unit| time(unit, Some("UTC"))).to_vec(),
            ),
            (
                "times of Berlin",
                units.map(|unit| time(unit, Some("Europe/Berlin"))).to_vec(),
            ),
            (
                "times of day",
                vec![
                    Time32(Second),
                    Time32(Millisecond),
                    Time64(Microsecond),
                    Time64(Nanosecond),
                ],
            ),
            ("durations", units.map(Duration).to_vec()),
            (
                "months",
                vec![Interval(arrow::datatypes::IntervalUnit::YearMonth)],
            ),
            (
                "lengths",
                vec![Interval(arrow::datatypes::IntervalUnit::MonthDayNano)],
            ),
            (
                "lists",
                vec![
                    List(item.clone()),
                    LargeList(item.clone()),
                    FixedSizeList(item.clone(), 2),
                    FixedSizeList(item, 3),
                ],
            ),
            ("structs", vec![pair]),
            ("maps", vec![map("key", "value", &Int32, true)]),
        ]
    }

    /// Kinds that have common types with others than their own.
    const MIXED: [[&str; 2]; 5] = [
        ["integers", "floats"],
        ["integers", "decimals"],
        ["texts", "bytes"],
        ["bytes", "fixed bytes"],
        ["dates", "local times"],
    ];

    /// Whatever the order of files, a type that a common type was made of changes it no more.
    #[test]
    fn all_pairs_of_types_are_decided() {
        let kinds = types_by_kind();
        for (kind, types) in &kinds {
            for (other_kind, other_types) in &kinds {
                let is_mixed = MIXED.iter().any(|[a, b]| {
                    [*a, *b] == [*kind, *other_kind] || [*b, *a] == [*kind, *other_kind]
                });
                let has_common =
                    kind == other_kind || is_mixed || [*kind, *other_kind].contains(&"nothing");
                for a in types {
                    for b in other_types {
                        let common = common_type(a, b);
                        assert_eq!(common.is_ok(), has_common, "{a} and {b}: {common:?}");
                        let Ok(common) = common else { continue };
                        assert_eq!(common_type(b, a), Ok(common.clone()), "{a} and {b}");
                        for part in [a, b] {
                            let again = common_type(&common.data_type, part);
                            let again = again.map(|again| again.data_type);
                            assert_eq!(again, Ok(common.data_type.clone()), "{part} of {a}, {b}");
                        }
                    }
                }
            }
        }
    }

    fn fields(of: &[(&str, DataType, bool)]) -> Fields {
        let field = |(name, of, nullable): &(&str, DataType, bool)| {
            Field::new(*name, of.clone(), *nullable)
        };
        of.iter().map(field).collect()
    }

    fn map(key: &str, value: &str, of: &DataType, nullable: bool) -> DataType {
        let entries = fields(&[(key, Utf8, false), (value, of.clone(), nullable)]);
        Map(Field::new("entries", Struct(entries), false).into(), false)
    }

    #[test]
    fn nested_types_are_common_at_every_depth() {
        let named_list =
            |name: &str, of: &DataType| List(Field::new(name, of.clone(), true).into());
        let vector = |of: &DataType, width| {
            FixedSizeList(Field::new("item", of.clone(), true).into(), width)
        };
        let texts = list(&Utf8, true);
        silent(&list(&Null, true), &texts, &texts);
        silent(&Null, &texts, &texts);
        silent(
            &map("key", "value", &Null, true),
            &map("key", "value", &Int64, true),
            &map("key", "value", &Int64, true),
        );
        // Names of items differ from writer to writer: the first one stays.
        for (first, second) in [("item", "element"), ("array", "item")] {
            let common = common_type(&named_list(first, &Utf8), &named_list(second, &LargeUtf8));
            assert_eq!(common, CommonType::silent(named_list(first, &Utf8)));
        }
        // So do those of keys and values.
        let common = common_type(
            &map("key", "value", &Int32, false),
            &map("keys", "values", &Int64, true),
        );
        assert_eq!(common, CommonType::wider(map("key", "value", &Int64, true)));
        let large = LargeList(Field::new("item", Utf8, true).into());
        silent(&large, &texts, &large);
        wider(
            &vector(&Float32, 3),
            &vector(&Float32, 4),
            &list(&Float32, true),
        );
        wider(
            &vector(&Float32, 3),
            &vector(&Float64, 3),
            &vector(&Float64, 3),
        );
        let inner = Struct(fields(&[("a", texts.clone(), true)]));
        let other = Struct(fields(&[
            ("a", list(&LargeUtf8, false), true),
            ("b", Int8, true),
        ]));
        let union = Struct(fields(&[("a", texts.clone(), true), ("b", Int8, true)]));
        wider(
            &list(&inner, true),
            &list(&other, true),
            &list(&union, true),
        );
        none(&list(&inner, true), &list(&texts, true));
        none(&map("key", "value", &Utf8, true), &list(&Utf8, true));
        silent(
            &list(&time(TimeUnit::Nanosecond, Some("UTC")), true),
            &list(&time(TimeUnit::Microsecond, Some("+00:00")), true),
            &list(&time(TimeUnit::Nanosecond, Some("UTC")), true),
        );
        none(
            &list(&time(TimeUnit::Nanosecond, Some("UTC")), true),
            &list(&time(TimeUnit::Nanosecond, None), true),
        );
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
