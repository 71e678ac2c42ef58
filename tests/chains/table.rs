//! Rows of plain values: what the interpreter computes on, and how they come from and go to Arrow.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int64Array,
    ListBuilder, PrimitiveArray, RecordBatch, StringArray, StringBuilder,
};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Decimal128Type, Field, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Schema, TimeUnit, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};

/// The digits of decimals, all and behind the point.
pub const DECIMAL: (u8, i8) = (9, 2);

/// The type of a column.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
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
    List(Box<Kind>),
    /// A fixed number of `float32`.
    Vector(usize),
}

pub const INT64: Kind = Kind::Int { bits: 64, signed: true };
pub const INT32: Kind = Kind::Int { bits: 32, signed: true };

impl Kind {
    pub fn is_int(&self) -> bool {
        matches!(self, Kind::Int { .. })
    }

    pub fn is_float(&self) -> bool {
        matches!(self, Kind::F32 | Kind::F64)
    }

    pub fn is_number(&self) -> bool {
        self.is_int() || self.is_float() || *self == Kind::Decimal
    }

    pub fn is_nested(&self) -> bool {
        matches!(self, Kind::List(_) | Kind::Vector(_))
    }

    /// Whether a window can take it as its time.
    pub fn is_time(&self) -> bool {
        matches!(self, Kind::Date | Kind::Time(_) | Kind::Int { signed: true, .. })
    }

    /// The least and the greatest integer.
    pub fn range(&self) -> (i128, i128) {
        match self {
            Kind::Int { bits, signed: true } => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
            Kind::Int { bits, signed: false } => (0, (1 << bits) - 1),
            _ => (i128::MIN, i128::MAX),
        }
    }

    /// Arrow's type.
    pub fn arrow(&self) -> DataType {
        match self {
            Kind::Bool => DataType::Boolean,
            Kind::Int { bits: 8, signed: true } => DataType::Int8,
            Kind::Int { bits: 16, signed: true } => DataType::Int16,
            Kind::Int { bits: 32, signed: true } => DataType::Int32,
            Kind::Int { signed: true, .. } => DataType::Int64,
            Kind::Int { bits: 8, .. } => DataType::UInt8,
            Kind::Int { bits: 16, .. } => DataType::UInt16,
            Kind::Int { bits: 32, .. } => DataType::UInt32,
            Kind::Int { .. } => DataType::UInt64,
            Kind::F32 => DataType::Float32,
            Kind::F64 => DataType::Float64,
            Kind::Decimal => DataType::Decimal128(DECIMAL.0, DECIMAL.1),
            Kind::Text => DataType::Utf8,
            Kind::Date => DataType::Date32,
            Kind::Time(unit) => DataType::Timestamp(*unit, None),
            Kind::List(element) => DataType::List(Arc::new(Field::new_list_field(element.arrow(), true))),
            Kind::Vector(width) => {
                DataType::FixedSizeList(Arc::new(Field::new_list_field(DataType::Float32, true)), *width as i32)
            }
        }
    }

    fn of(data_type: &DataType) -> Kind {
        match data_type {
            DataType::Boolean => Kind::Bool,
            DataType::Float32 => Kind::F32,
            DataType::Float64 => Kind::F64,
            DataType::Decimal128(..) => Kind::Decimal,
            DataType::Date32 => Kind::Date,
            DataType::Timestamp(unit, None) => Kind::Time(*unit),
            DataType::Dictionary(_, value) => Kind::of(value),
            DataType::List(element) | DataType::LargeList(element) => {
                Kind::List(Box::new(Kind::of(element.data_type())))
            }
            DataType::FixedSizeList(_, width) => Kind::Vector(*width as usize),
            text if text.is_string() => Kind::Text,
            int if int.is_integer() => {
                let bits = 8 * int.primitive_width().unwrap() as u8;
                Kind::Int { bits, signed: int.is_signed_integer() }
            }
            other => panic!("{other} is no type of this test"),
        }
    }
}

/// A value. Dates and times are integers in the unit of their column, decimals without their point.
#[derive(Debug, Clone)]
pub enum Value {
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Value>),
    Null,
}

impl Value {
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// Null or NaN.
    pub fn is_missing(&self) -> bool {
        matches!(self, Value::Null) || matches!(self, Value::Float(x) if x.is_nan())
    }

    /// The value as a double, of a column of this type.
    pub fn double(&self, kind: &Kind) -> Option<f64> {
        match self {
            Value::Bool(x) => Some(f64::from(u8::from(*x))),
            Value::Int(x) if *kind == Kind::Decimal => Some(*x as f64 / 10f64.powi(i32::from(DECIMAL.1))),
            Value::Int(x) => Some(*x as f64),
            Value::Float(x) => Some(*x),
            _ => None,
        }
    }

    /// A double as a value of a type of floats.
    pub fn float(x: f64, kind: &Kind) -> Value {
        Value::Float(if *kind == Kind::F32 { f64::from(x as f32) } else { x })
    }

    pub fn int(&self) -> Option<i128> {
        match self {
            Value::Int(x) => Some(*x),
            _ => None,
        }
    }
}

/// Values in their order: NaN above all numbers, null last, -0.0 equal to 0.0.
impl Ord for Value {
    fn cmp(&self, other: &Value) -> Ordering {
        use Value as V;
        let rank = |value: &Value| match value {
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
            (V::Float(a), V::Float(b)) => a.partial_cmp(b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan())),
            (V::Text(a), V::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
            (V::List(a), V::List(b)) => a.cmp(b),
            _ => rank(self).cmp(&rank(other)),
        }
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Value) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Value {}

/// What may be computed of a column without the order of additions being seen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Care {
    /// Values whose sums and squares are exact in doubles.
    Tame,
    /// Exact values that may be huge, tiny or infinite.
    Wild,
    /// Values that may be off by 1e-9 of this size.
    Near(f64),
}

#[derive(Debug, Clone)]
pub struct Column {
    pub name: String,
    pub kind: Kind,
    pub care: Care,
}

impl Column {
    pub fn new(name: impl Into<String>, kind: Kind) -> Column {
        Column { name: name.into(), kind, care: Care::Tame }
    }
}

#[derive(Debug, Clone)]
pub struct Row {
    pub cells: Vec<Value>,
    /// Whether it belongs to the part that steps are fitted on.
    pub fitted: bool,
}

/// Columns and rows in order.
#[derive(Debug, Clone, Default)]
pub struct Table {
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
}

impl Table {
    pub fn find(&self, name: &str) -> Result<usize, String> {
        self.columns.iter().position(|column| column.name == name).ok_or_else(|| format!("no column {name}"))
    }

    pub fn has(&self, name: &str) -> bool {
        self.columns.iter().any(|column| column.name == name)
    }

    /// Writes a column behind the others, or in place of the one that has its name.
    pub fn put(&mut self, column: Column, values: Vec<Value>) {
        let known = self.columns.iter().position(|known| known.name == column.name);
        match known {
            Some(at) => {
                self.columns[at] = column;
                self.rows.iter_mut().zip(values).for_each(|(row, value)| row.cells[at] = value);
            }
            None => {
                self.columns.push(column);
                self.rows.iter_mut().zip(values).for_each(|(row, value)| row.cells.push(value));
            }
        }
    }

    pub fn values(&self, at: usize) -> impl Iterator<Item = &Value> {
        self.rows.iter().map(move |row| &row.cells[at])
    }

    pub fn batch(&self) -> RecordBatch {
        let fields = self.columns.iter().map(|column| Field::new(&column.name, column.kind.arrow(), true));
        let arrays = self.columns.iter().enumerate().map(|(at, column)| {
            let values: Vec<&Value> = self.values(at).collect();
            array(&column.kind, &values)
        });
        let schema = Schema::new(fields.collect::<Vec<_>>());
        RecordBatch::try_new(Arc::new(schema), arrays.collect()).unwrap()
    }

    pub fn of(batch: &RecordBatch) -> Table {
        let columns: Vec<Column> =
            batch.schema().fields().iter().map(|f| Column::new(f.name(), Kind::of(f.data_type()))).collect();
        let each: Vec<Vec<Value>> = batch.columns().iter().map(values).collect();
        let rows = (0..batch.num_rows())
            .map(|row| Row { cells: each.iter().map(|column| column[row].clone()).collect(), fitted: true });
        Table { columns, rows: rows.collect() }
    }
}

fn array(kind: &Kind, values: &[&Value]) -> ArrayRef {
    let ints = || values.iter().map(|value| value.int());
    match kind {
        Kind::Bool => Arc::new(
            values.iter().map(|v| if let Value::Bool(x) = v { Some(*x) } else { None }).collect::<BooleanArray>(),
        ),
        Kind::Int { signed: false, bits: 64 } => {
            Arc::new(ints().map(|x| x.map(|x| x as u64)).collect::<PrimitiveArray<UInt64Type>>())
        }
        Kind::Int { .. } => {
            let wide: Int64Array = ints().map(|x| x.map(|x| x as i64)).collect();
            cast(&wide, &kind.arrow()).unwrap()
        }
        Kind::Date => Arc::new(ints().map(|x| x.map(|x| x as i32)).collect::<Date32Array>()),
        Kind::Time(_) => cast(&ints().map(|x| x.map(|x| x as i64)).collect::<Int64Array>(), &kind.arrow()).unwrap(),
        Kind::Decimal => {
            let plain: Decimal128Array = ints().collect();
            Arc::new(plain.with_precision_and_scale(DECIMAL.0, DECIMAL.1).unwrap())
        }
        Kind::F32 => Arc::new(values.iter().map(|v| v.double(kind).map(|x| x as f32)).collect::<Float32Array>()),
        Kind::F64 => Arc::new(values.iter().map(|v| v.double(kind)).collect::<Float64Array>()),
        Kind::Text => Arc::new(
            values
                .iter()
                .map(|v| if let Value::Text(x) = v { Some(x.as_str()) } else { None })
                .collect::<StringArray>(),
        ),
        Kind::List(element) if **element == Kind::Text => {
            let mut lists = ListBuilder::new(StringBuilder::new());
            for value in values {
                match value {
                    Value::List(elements) => {
                        for element in elements {
                            match element {
                                Value::Text(text) => lists.values().append_value(text),
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
        Kind::List(_) => {
            let lists = values.iter().map(|value| match value {
                Value::List(elements) => Some(elements.iter().map(|e| e.int().map(|x| x as i64)).collect::<Vec<_>>()),
                _ => None,
            });
            let wide = arrow::array::ListArray::from_iter_primitive::<Int64Type, _, _>(lists);
            cast(&wide, &kind.arrow()).unwrap()
        }
        Kind::Vector(_) => panic!("sources have no vectors"),
    }
}

fn primitive<T: ArrowPrimitiveType>(array: &ArrayRef, value: impl Fn(T::Native) -> Value) -> Vec<Value> {
    array.as_primitive::<T>().iter().map(|x| x.map_or(Value::Null, &value)).collect()
}

fn values(array: &ArrayRef) -> Vec<Value> {
    let lists = |elements: &dyn Fn(usize) -> ArrayRef| {
        (0..array.len())
            .map(|row| if array.is_null(row) { Value::Null } else { Value::List(values(&elements(row))) })
            .collect()
    };
    match array.data_type() {
        DataType::Boolean => array.as_boolean().iter().map(|x| x.map_or(Value::Null, Value::Bool)).collect(),
        DataType::Int8 => primitive::<Int8Type>(array, |x| Value::Int(x.into())),
        DataType::Int16 => primitive::<Int16Type>(array, |x| Value::Int(x.into())),
        DataType::Int32 => primitive::<Int32Type>(array, |x| Value::Int(x.into())),
        DataType::Int64 => primitive::<Int64Type>(array, |x| Value::Int(x.into())),
        DataType::UInt8 => primitive::<UInt8Type>(array, |x| Value::Int(x.into())),
        DataType::UInt16 => primitive::<UInt16Type>(array, |x| Value::Int(x.into())),
        DataType::UInt32 => primitive::<UInt32Type>(array, |x| Value::Int(x.into())),
        DataType::UInt64 => primitive::<UInt64Type>(array, |x| Value::Int(x.into())),
        DataType::Float32 => primitive::<Float32Type>(array, |x| Value::Float(x.into())),
        DataType::Float64 => primitive::<Float64Type>(array, Value::Float),
        DataType::Decimal128(..) => primitive::<Decimal128Type>(array, Value::Int),
        DataType::Date32 => values(&cast(array, &DataType::Int32).unwrap()),
        DataType::Timestamp(..) => values(&cast(array, &DataType::Int64).unwrap()),
        DataType::List(_) => lists(&|row| array.as_list::<i32>().value(row)),
        DataType::LargeList(_) => lists(&|row| array.as_list::<i64>().value(row)),
        DataType::FixedSizeList(..) => lists(&|row| array.as_fixed_size_list().value(row)),
        _ => {
            let texts = cast(array, &DataType::Utf8).unwrap();
            texts.as_string::<i32>().iter().map(|x| x.map_or(Value::Null, |x| Value::Text(x.to_owned()))).collect()
        }
    }
}
