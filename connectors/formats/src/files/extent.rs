//! Extents of watched columns, from values of metadata or folders.

use arrow::array::{ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Int64Type};
use forebay_model::{BoundValue, ColumnExtent, FileRange};

use super::hive;

/// Maximum length of strings that are kept as bounds: a hundred thousand pieces keep two of them
/// each.
const TEXT_BYTES_MAX: usize = 256;

/// True if values of one type are the same points in another: integers are, of any width, and times of one unit.
pub fn share_points(a: &DataType, b: &DataType) -> bool {
    match (a, b) {
        (DataType::Timestamp(unit, _), DataType::Timestamp(other_unit, _)) => unit == other_unit,
        _ => a == b || (a.is_integer() && b.is_integer()),
    }
}

/// Values of a logical type as points, `None` for nulls and for types without an order that all
/// share: metadata leaves NaN out of floats.
pub fn ordered_points(values: &ArrayRef, logical: &DataType) -> Option<Vec<Option<BoundValue>>> {
    use DataType::*;
    Some(match logical {
        Boolean | Date32 | Date64 | Timestamp(..) | Int8 | Int16 | Int32 | Int64 | UInt8
        | UInt16 | UInt32 | UInt64 => {
            let ticks = cast(values, &Int64).ok()?;
            ticks
                .as_primitive::<Int64Type>()
                .iter()
                .map(|tick| tick.map(BoundValue::Int))
                .collect()
        }
        Utf8 => {
            let texts = cast(values, &Utf8).ok()?;
            let short = |text: &&str| text.len() <= TEXT_BYTES_MAX;
            texts
                .as_string::<i32>()
                .iter()
                .map(|text| Some(BoundValue::Text(text.filter(short)?.to_owned())))
                .collect()
        }
        _ => return None,
    })
}

/// The extents that a piece's folders give; the other columns have none yet.
pub fn folder_extents(
    piece: &FileRange,
    watch: &[String],
    partitions: &[FieldRef],
) -> Vec<Option<ColumnExtent>> {
    let extent = |name: &String| {
        let field = partitions.iter().find(|field| field.name() == name)?;
        let (_, value) = piece.partition.iter().find(|(column, _)| column == name)?;
        let value = hive::partition_scalar(value, field.data_type()).ok()?;
        let point = ordered_points(&value, field.data_type())?.pop()??;
        Some(ColumnExtent {
            min: point.clone(),
            max: point,
            nulls: false,
        })
    };
    watch.iter().map(extent).collect()
}
