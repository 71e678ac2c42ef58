//! Columns of one file in the types that all files have in common.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, GenericListArray, MapArray, OffsetSizeTrait,
    StructArray, new_null_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::kernels::cmp::distinct;
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, TimeUnit};
use arrow::util::display::array_value_to_string;
use forebay_model::{Fault, NameIndex, Result, codes, tick_nanoseconds, type_words};

/// A column in the dataset's type. A value that would be changed is a fault; `first_row` is the column's place in the
/// file.
pub(crate) fn conform(
    column: &ArrayRef,
    field: &Field,
    path: &str,
    first_row: u64,
) -> Result<ArrayRef> {
    let located = |fault: Fault| fault.file(path).column(field.name());
    match conform_type(column, field.data_type()) {
        Ok(conformed) => Ok(conformed),
        Err(Misfit::Value { row, value }) => {
            let message = format!(
                "`{value}` would be changed as {}, the type that the files have in common",
                type_words(field.data_type())
            );
            let fault = Fault::new(codes::SCHEMA_DRIFT, message);
            Err(located(fault)
                .rows([first_row + row as u64])
                .hint(misfit_hint(field.data_type())))
        }
        Err(Misfit::Type(error)) => Err(located(Fault::from(error))),
    }
}

/// A way out for a value that does not have the common type.
fn misfit_hint(to: &DataType) -> &'static str {
    match to {
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            "set `schema: { times: microseconds }`: microseconds hold the times of all years"
        }
        _ => "write the files with one type, or read those of each type as a source of their own",
    }
}

enum Misfit {
    Value { row: usize, value: String },
    Type(arrow::error::ArrowError),
}

impl Misfit {
    /// The misfit of a value inside of a row, of which `row_of` gives the row.
    fn in_row(self, row_of: impl Fn(usize) -> usize) -> Misfit {
        match self {
            Misfit::Value { row: at, value } => Misfit::Value {
                row: row_of(at),
                value,
            },
            other => other,
        }
    }
}

impl From<arrow::error::ArrowError> for Misfit {
    fn from(error: arrow::error::ArrowError) -> Self {
        Misfit::Type(error)
    }
}

fn conform_type(column: &ArrayRef, to: &DataType) -> Result<ArrayRef, Misfit> {
    if column.data_type() == to {
        return Ok(column.clone());
    }
    match (column.data_type(), to) {
        (DataType::Null, _) => Ok(new_null_array(to, column.len())),
        (DataType::Dictionary(_, values), _) => conform_type(&cast(column, values)?, to),
        (DataType::RunEndEncoded(_, values), _) => {
            conform_type(&cast(column, values.data_type())?, to)
        }
        (DataType::Struct(_), DataType::Struct(fields)) => conform_struct(column, fields),
        (DataType::Map(..), DataType::Map(entries, sorted)) => {
            let map = column.as_map();
            let DataType::Struct(fields) = entries.data_type() else {
                return Ok(cast(column, to)?);
            };
            let stored: ArrayRef = Arc::new(map.entries().clone());
            let (offsets, stored) = items_of_rows(map.offsets(), &stored);
            let stored = conform_by_position(&stored, fields).map_err(|misfit| {
                let ends = &offsets[1..];
                misfit.in_row(|at| ends.partition_point(|end| (*end as usize) <= at))
            })?;
            Ok(Arc::new(MapArray::try_new(
                entries.clone(),
                offsets,
                stored,
                map.nulls().cloned(),
                *sorted,
            )?))
        }
        (stored, DataType::List(item)) if list_item(stored).is_some() => {
            conform_list::<i32>(column, item)
        }
        (stored, DataType::LargeList(item)) if list_item(stored).is_some() => {
            conform_list::<i64>(column, item)
        }
        (DataType::FixedSizeList(_, stored), DataType::FixedSizeList(item, width))
            if stored == width =>
        {
            conform_vectors(column.as_fixed_size_list(), item)
        }
        _ => conform_values(column, to),
    }
}

fn list_item(of: &DataType) -> Option<&FieldRef> {
    match of {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => Some(item),
        _ => None,
    }
}

/// The item of a list as it is stored, under the name that it gets.
fn stored_item(of: &DataType, item: &FieldRef) -> FieldRef {
    let Some(stored) = list_item(of) else {
        return item.clone();
    };
    Arc::new(Field::new(
        item.name(),
        stored.data_type().clone(),
        stored.is_nullable(),
    ))
}

fn conform_list<O: OffsetSizeTrait>(
    column: &ArrayRef,
    item: &FieldRef,
) -> Result<ArrayRef, Misfit> {
    let stored = stored_item(column.data_type(), item);
    let stored_type = GenericListArray::<O>::DATA_TYPE_CONSTRUCTOR(stored);
    let lists = cast(column, &stored_type)?;
    let lists = lists.as_list::<O>();
    let (offsets, values) = items_of_rows(lists.offsets(), lists.values());
    let values = conform_type(&values, item.data_type()).map_err(|misfit| {
        let ends = &offsets[1..];
        misfit.in_row(|at| ends.partition_point(|end| end.as_usize() <= at))
    })?;
    Ok(Arc::new(GenericListArray::<O>::try_new(
        item.clone(),
        offsets,
        values,
        lists.nulls().cloned(),
    )?))
}

/// The items of rows, and their offsets among these. A slice of lists has the items of all of them, which are not
/// converted for each slice.
fn items_of_rows<O: OffsetSizeTrait>(
    offsets: &OffsetBuffer<O>,
    items: &ArrayRef,
) -> (OffsetBuffer<O>, ArrayRef) {
    let first = offsets.first().map_or(0, |end| end.as_usize());
    let last = offsets.last().map_or(0, |end| end.as_usize());
    if first == 0 && last == items.len() {
        return (offsets.clone(), items.clone());
    }
    let mut shifted: Vec<O> = Vec::with_capacity(offsets.len());
    for offset in offsets.iter() {
        shifted.push(O::usize_as(offset.as_usize() - first));
    }
    let items = items.slice(first, last - first);
    (OffsetBuffer::new(shifted.into()), items)
}

fn conform_vectors(vectors: &FixedSizeListArray, item: &FieldRef) -> Result<ArrayRef, Misfit> {
    let width = vectors.value_length();
    let values = conform_type(vectors.values(), item.data_type())
        .map_err(|misfit| misfit.in_row(|at| at / (width.max(1) as usize)))?;
    Ok(Arc::new(FixedSizeListArray::try_new_with_length(
        item.clone(),
        width,
        values,
        vectors.nulls().cloned(),
        vectors.len(),
    )?))
}

fn conform_struct(column: &ArrayRef, fields: &Fields) -> Result<ArrayRef, Misfit> {
    let stored = column.as_struct();
    let index = NameIndex::of_fields(stored.fields());
    let columns = fields
        .iter()
        .map(|field| match index.get(field.name()) {
            Some(position) => conform_type(stored.column(position), field.data_type()),
            None => Ok(new_null_array(field.data_type(), stored.len())),
        })
        .collect::<Result<Vec<_>, Misfit>>()?;
    Ok(Arc::new(StructArray::try_new_with_length(
        fields.clone(),
        columns,
        stored.nulls().cloned(),
        stored.len(),
    )?))
}

/// Keys and values of a map, whose names differ from writer to writer.
fn conform_by_position(column: &ArrayRef, fields: &Fields) -> Result<StructArray, Misfit> {
    let stored = column.as_struct();
    let columns = fields
        .iter()
        .zip(stored.columns())
        .map(|(field, column)| conform_type(column, field.data_type()))
        .collect::<Result<Vec<_>, Misfit>>()?;
    Ok(StructArray::try_new_with_length(
        fields.clone(),
        columns,
        stored.nulls().cloned(),
        stored.len(),
    )?)
}

fn conform_values(column: &ArrayRef, to: &DataType) -> Result<ArrayRef, Misfit> {
    if let (DataType::Timestamp(unit, None), DataType::Timestamp(_, Some(_))) =
        (column.data_type(), to)
    {
        // Such a time is an instant in UTC. A cast would go by a calendar, which ends before ticks do.
        let ticks = cast(column, &DataType::Int64)?;
        let instants = cast(&ticks, &DataType::Timestamp(*unit, Some("UTC".into())))?;
        return conform_type(&instants, to);
    }
    let lenient = CastOptions {
        safe: true,
        ..CastOptions::default()
    };
    let conformed = match (column.data_type(), to) {
        (DataType::Date32, DataType::Timestamp(TimeUnit::Nanosecond, None)) => {
            // Straight from days to nanoseconds, what is too far wraps.
            let microseconds = DataType::Timestamp(TimeUnit::Microsecond, None);
            cast_with_options(&cast(column, &microseconds)?, to, &lenient)?
        }
        (DataType::Date64, DataType::Timestamp(_, None)) => {
            // So it does from dates in milliseconds.
            let milliseconds = DataType::Timestamp(TimeUnit::Millisecond, None);
            cast_with_options(&cast(column, &milliseconds)?, to, &lenient)?
        }
        _ => cast_with_options(column, to, &lenient)?,
    };
    if conformed.null_count() > column.null_count() {
        let lost = (0..column.len()).find(|row| column.is_valid(*row) && conformed.is_null(*row));
        return Err(misfit(column, lost.unwrap_or(0))?);
    }
    let is_rounded = column.data_type().is_integer() && to.is_floating();
    let ticks = tick_nanoseconds(column.data_type()).zip(tick_nanoseconds(to));
    let is_cut = ticks.is_some_and(|(stored, common)| common > stored);
    if is_rounded || is_cut {
        // Floats round large integers, dates have no time of day, coarser times fewer digits: such values are others when
        // they come back.
        let back = cast_with_options(&conformed, column.data_type(), &lenient)?;
        let changed = distinct(&back, column)?;
        if let Some(row) = (0..changed.len()).find(|row| changed.value(*row)) {
            return Err(misfit(column, row)?);
        }
    }
    Ok(conformed)
}

fn misfit(column: &ArrayRef, row: usize) -> Result<Misfit, Misfit> {
    let value = array_value_to_string(column, row)?;
    Ok(Misfit::Value { row, value })
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BinaryArray, BooleanArray, Date32Array, Date64Array, Float32Array, Float64Array, Int8Array,
        Int16Array, Int32Array, Int64Array, LargeListArray, ListArray, StringArray,
        TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray, UInt8Array,
        UInt16Array, UInt32Array, UInt64Array,
    };
    use arrow::datatypes::{Int32Type, Int64Type};

    use super::*;
    use crate::files::common_type::common_type;
    use crate::files::nested_types::plain_layout;

    fn conformed(column: ArrayRef, to: DataType) -> Result<ArrayRef> {
        conform(&column, &Field::new("c", to, true), "f", 10)
    }

    #[test]
    fn the_items_of_slices_are_converted_alone() {
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![Some(1), Some(2)]),
            None,
            Some(vec![Some(3)]),
            Some(vec![Some(4), Some(5)]),
        ]);
        let item = Arc::new(Field::new_list_field(DataType::Int64, true));
        let slice: ArrayRef = Arc::new(lists.slice(1, 2));
        let column = conformed(slice, DataType::List(item)).unwrap();
        let expected =
            ListArray::from_iter_primitive::<Int64Type, _, _>([None, Some(vec![Some(3)])]);
        assert_eq!(column.as_list::<i32>(), &expected);
        assert_eq!(column.as_list::<i32>().values().len(), 1);
    }

    #[test]
    fn a_value_that_would_change_is_a_fault_with_its_row() {
        let ns = DataType::Timestamp(TimeUnit::Nanosecond, None);
        let far: [(ArrayRef, DataType, &str); 4] = [
            (
                Arc::new(Int64Array::from(vec![1 << 53, (1 << 53) + 1])),
                DataType::Float64,
                "9007199254740993",
            ),
            (
                Arc::new(Int64Array::from(vec![0, i64::MAX])),
                DataType::Float64,
                "9223372036854775807",
            ),
            (
                Arc::new(TimestampMicrosecondArray::from(vec![
                    0,
                    253_402_214_400_000_000,
                ])),
                ns.clone(),
                "9999-12-31",
            ),
            (
                Arc::new(Date32Array::from(vec![0, 2_932_896])),
                ns.clone(),
                "9999-12-31",
            ),
        ];
        for (column, to, value) in far {
            let fault = conformed(column, to).unwrap_err();
            assert!(fault.message().contains(value), "{}", fault.message());
            assert_eq!(fault.site().rows, [11]);
            assert_eq!(fault.site().file.as_deref(), Some("f"));
        }
        let us = DataType::Timestamp(TimeUnit::Microsecond, None);
        let nanoseconds: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![-1_000, 1_001]));
        let fault = conformed(nanoseconds, us).unwrap_err();
        assert_eq!(fault.site().rows, [11]);
        let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![Some(1), None]));
        let times = conformed(times, ns).unwrap();
        assert_eq!(
            cast(&times, &DataType::Int64)
                .unwrap()
                .as_primitive::<Int64Type>()
                .value(0),
            1_000_000
        );
    }

    /// Columns of all flat types with values at the ends of their ranges, and a null.
    fn extreme_columns() -> Vec<ArrayRef> {
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(Int8Array::from(vec![Some(i8::MIN), None, Some(i8::MAX)])),
            Arc::new(Int16Array::from(vec![Some(i16::MIN), None, Some(i16::MAX)])),
            Arc::new(Int32Array::from(vec![Some(i32::MIN), None, Some(i32::MAX)])),
            Arc::new(Int64Array::from(vec![Some(i64::MIN), None, Some(i64::MAX)])),
            Arc::new(UInt8Array::from(vec![Some(1), None, Some(u8::MAX)])),
            Arc::new(UInt16Array::from(vec![Some(1), None, Some(u16::MAX)])),
            Arc::new(UInt32Array::from(vec![Some(1), None, Some(u32::MAX)])),
            Arc::new(UInt64Array::from(vec![Some(1), None, Some(u64::MAX)])),
            Arc::new(Float32Array::from(vec![Some(f32::MAX), None, Some(-0.0)])),
            Arc::new(Float64Array::from(vec![
                Some(f64::MAX),
                None,
                Some(f64::NAN),
            ])),
            Arc::new(StringArray::from(vec![Some(""), None, Some("\u{2028}\0")])),
            Arc::new(BinaryArray::from(vec![
                Some(&b"ab"[..]),
                None,
                Some(&b"\xff"[..]),
            ])),
            Arc::new(Date32Array::from(vec![
                Some(-719_162),
                None,
                Some(2_932_896),
            ])),
            Arc::new(Date64Array::from(vec![
                Some(-86_400_000),
                None,
                Some(253_402_214_400_000),
            ])),
            Arc::new(Date64Array::from(vec![Some(1), None, Some(86_400_001)])),
            Arc::new(Date64Array::from(vec![
                Some(i64::MIN),
                None,
                Some(i64::MAX),
            ])),
            Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])),
        ];
        let ends = Int64Array::from(vec![Some(i64::MIN), None, Some(i64::MAX)]);
        // Nanoseconds hold them, whatever the unit is.
        let near = Int64Array::from(vec![Some(-1), None, Some(9_000_000_001)]);
        for unit in [
            TimeUnit::Second,
            TimeUnit::Millisecond,
            TimeUnit::Microsecond,
            TimeUnit::Nanosecond,
        ] {
            for zone in [None, Some("UTC"), Some("Europe/Berlin")] {
                let times = DataType::Timestamp(unit, zone.map(Into::into));
                columns.push(cast(&ends, &times).unwrap());
                columns.push(cast(&near, &times).unwrap());
            }
            columns.push(cast(&ends, &DataType::Duration(unit)).unwrap());
        }
        let halves = Float32Array::from(vec![Some(-0.5), None, Some(65_504.0)]);
        columns.push(cast(&halves, &DataType::Float16).unwrap());
        let hundreds = Int64Array::from(vec![Some(-999), None, Some(999)]);
        for decimal in [
            DataType::Decimal32(5, 2),
            DataType::Decimal64(12, 4),
            DataType::Decimal128(38, 2),
            DataType::Decimal256(50, 3),
        ] {
            columns.push(cast(&hundreds, &decimal).unwrap());
        }
        let seconds = Int32Array::from(vec![Some(0), None, Some(86_399)]);
        let seconds = cast(&seconds, &DataType::Time32(TimeUnit::Second)).unwrap();
        for time in [
            DataType::Time32(TimeUnit::Millisecond),
            DataType::Time64(TimeUnit::Microsecond),
            DataType::Time64(TimeUnit::Nanosecond),
        ] {
            columns.push(cast(&seconds, &time).unwrap());
        }
        columns.push(seconds);
        columns.push(new_null_array(&DataType::Null, 3));
        columns
    }

    /// For every pair of types with a common one: values come back equal from it, or the first that does not is a fault
    /// with its row.
    #[test]
    fn values_of_all_types_have_the_common_type_or_are_faults() {
        let columns = extreme_columns();
        let mut conformed_columns = 0;
        let mut faults = 0;
        for column in &columns {
            for other in &columns {
                let Ok(common) = common_type(column.data_type(), other.data_type()) else {
                    continue;
                };
                let context = format!("{} as {}", column.data_type(), common.data_type);
                match conformed(column.clone(), common.data_type.clone()) {
                    Ok(values) => {
                        assert_eq!(values.data_type(), &common.data_type, "{context}");
                        assert_eq!(values.logical_null_count(), column.logical_null_count());
                        conformed_columns += 1;
                        if column.data_type() == &DataType::Null {
                            continue;
                        }
                        let back = cast(&values, column.data_type()).unwrap();
                        assert_eq!(back.to_data(), column.to_data(), "{context}");
                    }
                    Err(fault) => {
                        let rows = &fault.site().rows;
                        assert!(rows == &[10] || rows == &[12], "{context}: {fault:?}");
                        faults += 1;
                    }
                }
            }
        }
        assert!(conformed_columns > 400, "{conformed_columns} conformed");
        assert!(faults > 40, "{faults} faults");
    }

    #[test]
    fn nested_columns_are_conformed_at_every_depth() {
        let item = |of: DataType, nullable| Arc::new(Field::new("element", of, nullable));
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![Some(1), Some(2)]),
            None,
            Some(vec![]),
        ]);
        let to = DataType::List(item(DataType::Int64, true));
        let wide = conformed(Arc::new(lists.clone()), to.clone()).unwrap();
        assert_eq!(wide.data_type(), &to);
        assert_eq!(
            wide.as_list::<i32>()
                .value(0)
                .as_primitive::<Int64Type>()
                .values(),
            &[1, 2]
        );
        assert!(wide.is_null(1));
        let vectors = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(
            [Some(vec![Some(3), Some(4)])],
            2,
        );
        let wide = conformed(Arc::new(vectors), to).unwrap();
        assert_eq!(
            wide.as_list::<i32>()
                .value(0)
                .as_primitive::<Int64Type>()
                .values(),
            &[3, 4]
        );
        let stored = StructArray::from(vec![
            (
                Arc::new(Field::new("y", DataType::Utf8, true)),
                Arc::new(StringArray::from(vec!["a"])) as ArrayRef,
            ),
            (
                Arc::new(Field::new("x", DataType::Int32, false)),
                Arc::new(Int32Array::from(vec![7])) as ArrayRef,
            ),
        ]);
        let to = DataType::Struct(Fields::from(vec![
            Field::new("x", DataType::Int64, true),
            Field::new("z", DataType::Date32, true),
            Field::new("y", DataType::Utf8, true),
        ]));
        let wide = conformed(Arc::new(stored), to.clone()).unwrap();
        assert_eq!(wide.data_type(), &to);
        let wide = wide.as_struct();
        assert_eq!(wide.column(0).as_primitive::<Int64Type>().value(0), 7);
        assert!(wide.column(1).is_null(0));
        assert_eq!(wide.column(2).as_string::<i32>().value(0), "a");
        let far = ListArray::from_iter_primitive::<Int64Type, _, _>([
            Some(vec![Some(1)]),
            Some(vec![]),
            Some(vec![Some(2), Some(i64::MAX)]),
        ]);
        let fault = conformed(Arc::new(far), DataType::List(item(DataType::Float64, true)));
        assert_eq!(fault.unwrap_err().site().rows, [12]);
        let far = LargeListArray::from_iter_primitive::<Int64Type, _, _>([
            Some(vec![Some(1)]),
            None,
            Some(vec![Some(2), Some(i64::MAX)]),
        ]);
        let to = DataType::LargeList(item(DataType::Float64, true));
        let fault = conformed(Arc::new(far), to);
        assert_eq!(fault.unwrap_err().site().rows, [12]);
        let far = FixedSizeListArray::from_iter_primitive::<Int64Type, _, _>(
            [
                Some(vec![Some(1), Some(2)]),
                None,
                Some(vec![Some(3), Some(i64::MAX)]),
            ],
            2,
        );
        let to = DataType::FixedSizeList(item(DataType::Float64, true), 2);
        let fault = conformed(Arc::new(far), to);
        assert_eq!(fault.unwrap_err().site().rows, [12]);
    }

    #[test]
    fn layouts_are_conformed_at_every_depth() {
        let item = |of: &DataType| Arc::new(Field::new_list_field(of.clone(), true));
        let texts: ArrayRef = Arc::new(StringArray::from(vec![
            Some("a"),
            None,
            Some("a"),
            Some("b"),
        ]));
        let keyed = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
        let run_ends = Field::new("run_ends", DataType::Int32, false);
        let run_values = Field::new("values", DataType::Utf8, true);
        let runs = DataType::RunEndEncoded(run_ends.into(), run_values.into());
        let offsets = OffsetBuffer::from_lengths([1, 0, 3]);
        let lists = ListArray::new(item(&DataType::Utf8), offsets.clone(), texts.clone(), None);
        let lists: ArrayRef = Arc::new(lists);
        for layout in [keyed, runs] {
            let values = cast(&texts, &layout).unwrap();
            let plain = conformed(values.clone(), plain_layout(&layout)).unwrap();
            assert_eq!(plain.to_data(), texts.to_data(), "{layout}");
            let nested = ListArray::new(item(&layout), offsets.clone(), values, None);
            let to = plain_layout(nested.data_type());
            let plain = conformed(Arc::new(nested), to).unwrap();
            assert_eq!(plain.to_data(), lists.to_data(), "{layout}");
        }
        let views = cast(&lists, &DataType::ListView(item(&DataType::Utf8))).unwrap();
        let to = plain_layout(views.data_type());
        assert_eq!(conformed(views, to).unwrap().to_data(), lists.to_data());
    }
}
