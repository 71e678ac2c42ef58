//! Rows of plain values: what the interpreter computes on, and how they come from and go to Arrow.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Date32Array, Decimal128Array, Float32Array,
    Float64Array, Int64Array, ListBuilder, PrimitiveArray, RecordBatch, StringArray, StringBuilder,
};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Decimal128Type, Field, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, Schema, TimeUnit, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};

/// The digits of decimals, all and behind the point.
pub const DECIMAL: (u8, i8) = (9, 2);

/// The type of a column.
#[derive(Debug, Clone, PartialEq)]
pub enum CellKind {
    Bool,
    Int {
        bits: u8,
        signed: bool,
    },
    F32,
    F64,
    Decimal,
    Text,
    Date,
    Time(TimeUnit),
    List(Box<CellKind>),
    /// A fixed number of `float32`.
    Vector(usize),
}

pub const INT64: CellKind = CellKind::Int {
    bits: 64,
    signed: true,
};
pub const INT32: CellKind = CellKind::Int {
    bits: 32,
    signed: true,
};

impl CellKind {
    pub fn is_int(&self) -> bool {
        matches!(self, CellKind::Int { .. })
    }

    pub fn is_float(&self) -> bool {
        matches!(self, CellKind::F32 | CellKind::F64)
    }

    pub fn is_number(&self) -> bool {
        self.is_int() || self.is_float() || *self == CellKind::Decimal
    }

    pub fn is_nested(&self) -> bool {
        matches!(self, CellKind::List(_) | CellKind::Vector(_))
    }

    /// Whether a window can take it as its time.
    pub fn is_time(&self) -> bool {
        matches!(
            self,
            CellKind::Date | CellKind::Time(_) | CellKind::Int { signed: true, .. }
        )
    }

    /// The least and the greatest integer.
    pub fn range(&self) -> (i128, i128) {
        match self {
            CellKind::Int { bits, signed: true } => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
            CellKind::Int {
                bits,
                signed: false,
            } => (0, (1 << bits) - 1),
            _ => (i128::MIN, i128::MAX),
        }
    }

    /// Arrow's type.
    pub fn arrow(&self) -> DataType {
        match self {
            CellKind::Bool => DataType::Boolean,
            CellKind::Int {
                bits: 8,
                signed: true,
            } => DataType::Int8,
            CellKind::Int {
                bits: 16,
                signed: true,
            } => DataType::Int16,
            CellKind::Int {
                bits: 32,
                signed: true,
            } => DataType::Int32,
            CellKind::Int { signed: true, .. } => DataType::Int64,
            CellKind::Int { bits: 8, .. } => DataType::UInt8,
            CellKind::Int { bits: 16, .. } => DataType::UInt16,
            CellKind::Int { bits: 32, .. } => DataType::UInt32,
            CellKind::Int { .. } => DataType::UInt64,
            CellKind::F32 => DataType::Float32,
            CellKind::F64 => DataType::Float64,
            CellKind::Decimal => DataType::Decimal128(DECIMAL.0, DECIMAL.1),
            CellKind::Text => DataType::Utf8,
            CellKind::Date => DataType::Date32,
            CellKind::Time(unit) => DataType::Timestamp(*unit, None),
            CellKind::List(element) => {
                DataType::List(Arc::new(Field::new_list_field(element.arrow(), true)))
            }
            CellKind::Vector(width) => DataType::FixedSizeList(
                Arc::new(Field::new_list_field(DataType::Float32, true)),
                *width as i32,
            ),
        }
    }

    fn of(data_type: &DataType) -> CellKind {
        match data_type {
            DataType::Boolean => CellKind::Bool,
            DataType::Float32 => CellKind::F32,
            DataType::Float64 => CellKind::F64,
            DataType::Decimal128(..) => CellKind::Decimal,
            DataType::Date32 => CellKind::Date,
            DataType::Timestamp(unit, None) => CellKind::Time(*unit),
            DataType::Dictionary(_, value) => CellKind::of(value),
            DataType::List(element) | DataType::LargeList(element) => {
                CellKind::List(Box::new(CellKind::of(element.data_type())))
            }
            DataType::FixedSizeList(_, width) => CellKind::Vector(*width as usize),
            text if text.is_string() => CellKind::Text,
            int if int.is_integer() => {
                let bits = 8 * int.primitive_width().unwrap() as u8;
                CellKind::Int {
                    bits,
                    signed: int.is_signed_integer(),
                }
            }
            other => panic!("{other} is no type of this test"),
        }
    }
}

/// A value. Dates and times are integers in the unit of their column, decimals without their point.
#[derive(Debug, Clone)]
pub enum CellValue {
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<CellValue>),
    Null,
}

impl CellValue {
    pub fn is_null(&self) -> bool {
        matches!(self, CellValue::Null)
    }

    /// Null or NaN.
    pub fn is_missing(&self) -> bool {
        matches!(self, CellValue::Null) || matches!(self, CellValue::Float(x) if x.is_nan())
    }

    /// The value as a double, of a column of this type.
    pub fn double(&self, kind: &CellKind) -> Option<f64> {
        match self {
            CellValue::Bool(x) => Some(f64::from(u8::from(*x))),
            CellValue::Int(x) if *kind == CellKind::Decimal => {
                Some(*x as f64 / 10f64.powi(i32::from(DECIMAL.1)))
            }
            CellValue::Int(x) => Some(*x as f64),
            CellValue::Float(x) => Some(*x),
            _ => None,
        }
    }

    /// A double as a value of a type of floats.
    pub fn float(x: f64, kind: &CellKind) -> CellValue {
        CellValue::Float(if *kind == CellKind::F32 {
            f64::from(x as f32)
        } else {
            x
        })
    }

    pub fn int(&self) -> Option<i128> {
        match self {
            CellValue::Int(x) => Some(*x),
            _ => None,
        }
    }
}

/// Values in their order: NaN above all numbers, null last, -0.0 equal to 0.0.
impl Ord for CellValue {
    fn cmp(&self, other: &CellValue) -> Ordering {
        use CellValue as V;
        let rank = |value: &CellValue| match value {
            V::Bool(_) => 0,
            V::Int(_) => 1,
            V::Float(_) => 2,
            V::Text(_) => 3,
            V::List(_) => 4,
            V::Null => 5,
        };
        match (self, other) {
            (V::Bool(a), V::Bool(b)) => a.cmp(b),
            (V::Int(a), V::Int(b)) => a.cmp(b),
            (V::Float(a), V::Float(b)) => a
                .partial_cmp(b)
                .unwrap_or_else(|| a.is_nan().cmp(&b.is_nan())),
            (V::Text(a), V::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
            (V::List(a), V::List(b)) => a.cmp(b),
            _ => rank(self).cmp(&rank(other)),
        }
    }
}

impl PartialOrd for CellValue {
    fn partial_cmp(&self, other: &CellValue) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for CellValue {
    fn eq(&self, other: &CellValue) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for CellValue {}

/// What may be computed of a column without the order of additions being seen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ValueExactness {
    /// Values whose sums and squares are exact in doubles.
    Tame,
    /// Exact values that may be huge, tiny or infinite.
    Wild,
    /// Values that may be off by 1e-9 of this size.
    Near(f64),
}

#[derive(Debug, Clone)]
pub struct TypedColumn {
    pub name: String,
    pub kind: CellKind,
    pub care: ValueExactness,
}

impl TypedColumn {
    pub fn new(name: impl Into<String>, kind: CellKind) -> TypedColumn {
        TypedColumn {
            name: name.into(),
            kind,
            care: ValueExactness::Tame,
        }
    }
}

#[derive(Debug, Clone)]
pub struct CellRow {
    pub cells: Vec<CellValue>,
    /// Whether it belongs to the part that steps are fitted on.
    pub fitted: bool,
}

/// Columns and rows in order.
#[derive(Debug, Clone, Default)]
pub struct CellTable {
    pub columns: Vec<TypedColumn>,
    pub rows: Vec<CellRow>,
}

impl CellTable {
    pub fn find(&self, name: &str) -> Result<usize, String> {
        self.columns
            .iter()
            .position(|column| column.name == name)
            .ok_or_else(|| format!("no column {name}"))
    }

    pub fn has(&self, name: &str) -> bool {
        self.columns.iter().any(|column| column.name == name)
    }

    /// Writes a column behind the others, or in place of the one that has its name.
    pub fn put(&mut self, column: TypedColumn, values: Vec<CellValue>) {
        let known = self
            .columns
            .iter()
            .position(|known| known.name == column.name);
        match known {
            Some(at) => {
                self.columns[at] = column;
                self.rows
                    .iter_mut()
                    .zip(values)
                    .for_each(|(row, value)| row.cells[at] = value);
            }
            None => {
                self.columns.push(column);
                self.rows
                    .iter_mut()
                    .zip(values)
                    .for_each(|(row, value)| row.cells.push(value));
            }
        }
    }

    pub fn values(&self, at: usize) -> impl Iterator<Item = &CellValue> {
        self.rows.iter().map(move |row| &row.cells[at])
    }

    pub fn batch(&self) -> RecordBatch {
        let fields = self
            .columns
            .iter()
            .map(|column| Field::new(&column.name, column.kind.arrow(), true));
        let arrays = self.columns.iter().enumerate().map(|(at, column)| {
            let values: Vec<&CellValue> = self.values(at).collect();
            array(&column.kind, &values)
        });
        let schema = Schema::new(fields.collect::<Vec<_>>());
        RecordBatch::try_new(Arc::new(schema), arrays.collect()).unwrap()
    }

    pub fn of(batch: &RecordBatch) -> CellTable {
        let columns: Vec<TypedColumn> = batch
            .schema()
            .fields()
            .iter()
            .map(|f| TypedColumn::new(f.name(), CellKind::of(f.data_type())))
            .collect();
        let each: Vec<Vec<CellValue>> = batch.columns().iter().map(values).collect();
        let rows = (0..batch.num_rows()).map(|row| CellRow {
            cells: each.iter().map(|column| column[row].clone()).collect(),
            fitted: true,
        });
        CellTable {
            columns,
            rows: rows.collect(),
        }
    }
}

fn array(kind: &CellKind, values: &[&CellValue]) -> ArrayRef {
    let ints = || values.iter().map(|value| value.int());
    match kind {
        CellKind::Bool => Arc::new(
            values
                .iter()
                .map(|v| {
                    if let CellValue::Bool(x) = v {
                        Some(*x)
                    } else {
                        None
                    }
                })
                .collect::<BooleanArray>(),
        ),
        CellKind::Int {
            signed: false,
            bits: 64,
        } => Arc::new(
            ints()
                .map(|x| x.map(|x| x as u64))
                .collect::<PrimitiveArray<UInt64Type>>(),
        ),
        CellKind::Int { .. } => {
            let wide: Int64Array = ints().map(|x| x.map(|x| x as i64)).collect();
            cast(&wide, &kind.arrow()).unwrap()
        }
        CellKind::Date => Arc::new(ints().map(|x| x.map(|x| x as i32)).collect::<Date32Array>()),
        CellKind::Time(_) => cast(
            &ints().map(|x| x.map(|x| x as i64)).collect::<Int64Array>(),
            &kind.arrow(),
        )
        .unwrap(),
        CellKind::Decimal => {
            let plain: Decimal128Array = ints().collect();
            Arc::new(
                plain
                    .with_precision_and_scale(DECIMAL.0, DECIMAL.1)
                    .unwrap(),
            )
        }
        CellKind::F32 => Arc::new(
            values
                .iter()
                .map(|v| v.double(kind).map(|x| x as f32))
                .collect::<Float32Array>(),
        ),
        CellKind::F64 => Arc::new(
            values
                .iter()
                .map(|v| v.double(kind))
                .collect::<Float64Array>(),
        ),
        CellKind::Text => Arc::new(
            values
                .iter()
                .map(|v| {
                    if let CellValue::Text(x) = v {
                        Some(x.as_str())
                    } else {
                        None
                    }
                })
                .collect::<StringArray>(),
        ),
        CellKind::List(element) if **element == CellKind::Text => {
            let mut lists = ListBuilder::new(StringBuilder::new());
            for value in values {
                match value {
                    CellValue::List(elements) => {
                        for element in elements {
                            match element {
                                CellValue::Text(text) => lists.values().append_value(text),
                                _ => lists.values().append_null(),
                            }
                        }
                        lists.append(true);
                    }
                    _ => lists.append_null(),
                }
            }
            Arc::new(lists.finish())
        }
        CellKind::List(_) => {
            let lists = values.iter().map(|value| match value {
                CellValue::List(elements) => Some(
                    elements
                        .iter()
                        .map(|e| e.int().map(|x| x as i64))
                        .collect::<Vec<_>>(),
                ),
                _ => None,
            });
            let wide = arrow::array::ListArray::from_iter_primitive::<Int64Type, _, _>(lists);
            cast(&wide, &kind.arrow()).unwrap()
        }
        CellKind::Vector(_) => panic!("sources have no vectors"),
    }
}

fn primitive<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    value: impl Fn(T::Native) -> CellValue,
) -> Vec<CellValue> {
    array
        .as_primitive::<T>()
        .iter()
        .map(|x| x.map_or(CellValue::Null, &value))
        .collect()
}

fn values(array: &ArrayRef) -> Vec<CellValue> {
    let lists = |elements: &dyn Fn(usize) -> ArrayRef| {
        (0..array.len())
            .map(|row| {
                if array.is_null(row) {
                    CellValue::Null
                } else {
                    CellValue::List(values(&elements(row)))
                }
            })
            .collect()
    };
    match array.data_type() {
        DataType::Boolean => array
            .as_boolean()
            .iter()
            .map(|x| x.map_or(CellValue::Null, CellValue::Bool))
            .collect(),
        DataType::Int8 => primitive::<Int8Type>(array, |x| CellValue::Int(x.into())),
        DataType::Int16 => primitive::<Int16Type>(array, |x| CellValue::Int(x.into())),
        DataType::Int32 => primitive::<Int32Type>(array, |x| CellValue::Int(x.into())),
        DataType::Int64 => primitive::<Int64Type>(array, |x| CellValue::Int(x.into())),
        DataType::UInt8 => primitive::<UInt8Type>(array, |x| CellValue::Int(x.into())),
        DataType::UInt16 => primitive::<UInt16Type>(array, |x| CellValue::Int(x.into())),
        DataType::UInt32 => primitive::<UInt32Type>(array, |x| CellValue::Int(x.into())),
        DataType::UInt64 => primitive::<UInt64Type>(array, |x| CellValue::Int(x.into())),
        DataType::Float32 => primitive::<Float32Type>(array, |x| CellValue::Float(x.into())),
        DataType::Float64 => primitive::<Float64Type>(array, CellValue::Float),
        DataType::Decimal128(..) => primitive::<Decimal128Type>(array, CellValue::Int),
        DataType::Date32 => values(&cast(array, &DataType::Int32).unwrap()),
        DataType::Timestamp(..) => values(&cast(array, &DataType::Int64).unwrap()),
        DataType::List(_) => lists(&|row| array.as_list::<i32>().value(row)),
        DataType::LargeList(_) => lists(&|row| array.as_list::<i64>().value(row)),
        DataType::FixedSizeList(..) => lists(&|row| array.as_fixed_size_list().value(row)),
        _ => {
            let texts = cast(array, &DataType::Utf8).unwrap();
            texts
                .as_string::<i32>()
                .iter()
                .map(|x| x.map_or(CellValue::Null, |x| CellValue::Text(x.to_owned())))
                .collect()
        }
    }
}
