//! Sums of integers in queries: a sum that does not fit is a fault, and never wraps around.

use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Decimal128Array, Int64Array,
    UInt64Array,
};
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Field, FieldRef, Int64Type, UInt64Type,
};
use arrow::error::ArrowError;
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};

/// Partial sums: they hold those of more rows than there can be.
const STATE_TYPE: DataType = DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);

/// The sum of a column of 64-bit integers, in its type. Null where all values are null.
pub(super) fn exact_integer_sum() -> AggregateUDF {
    let types = vec![DataType::Int64, DataType::UInt64];
    AggregateUDF::new_from_impl(IntegerSum {
        signature: Signature::uniform(1, types, Volatility::Immutable),
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct IntegerSum {
    signature: Signature,
}

fn no_column() -> DataFusionError {
    DataFusionError::Internal("a sum of integers was given no column of them".to_owned())
}

impl AggregateUDFImpl for IntegerSum {
    fn name(&self) -> &str {
        "exact_integer_sum"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        types.first().cloned().ok_or_else(no_column)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let name = format!("{}[sum]", args.name);
        Ok(vec![Arc::new(Field::new(name, STATE_TYPE, true))])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(IntegerSums {
            data_type: args.return_field.data_type().clone(),
            groups: vec![GroupSum::default()],
        }))
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs<'_>) -> bool {
        true
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(IntegerSums {
            data_type: args.return_field.data_type().clone(),
            groups: Vec::new(),
        }))
    }
}

/// The sum of a group.
#[derive(Debug, Clone, Copy, Default)]
struct GroupSum {
    sum: i128,
    /// Values that were added and not removed.
    count: i64,
}

impl GroupSum {
    fn add(&mut self, value: i128) {
        self.sum += value;
        self.count += 1;
    }

    fn remove(&mut self, value: i128) {
        self.sum -= value;
        self.count -= 1;
    }

    fn state(&self) -> Option<i128> {
        (self.count != 0).then_some(self.sum)
    }

    /// The sum in the type of the column, as far as that holds it.
    fn value<T: TryFrom<i128>>(&self) -> Result<Option<T>> {
        let Some(sum) = self.state() else {
            return Ok(None);
        };
        match T::try_from(sum) {
            Ok(value) => Ok(Some(value)),
            Err(_) => {
                let message = format!("Overflow happened on: a sum of {sum}");
                let overflow = ArrowError::ArithmeticOverflow(message);
                Err(DataFusionError::ArrowError(Box::new(overflow), None))
            }
        }
    }
}

/// The sums of all groups.
#[derive(Debug)]
struct IntegerSums {
    /// The type of the values and of their sums.
    data_type: DataType,
    groups: Vec<GroupSum>,
}

/// Calls back with each row that has a value, and the value.
fn for_each_value(values: &[ArrayRef], mut on_row: impl FnMut(usize, i128)) -> Result<()> {
    let column = values.first().ok_or_else(no_column)?;
    match column.data_type() {
        DataType::Int64 => for_each_of::<Int64Type>(column, |row, value| on_row(row, value.into())),
        DataType::UInt64 => {
            for_each_of::<UInt64Type>(column, |row, value| on_row(row, value.into()));
        }
        DataType::Decimal128(..) => for_each_of::<Decimal128Type>(column, on_row),
        _ => return Err(no_column()),
    }
    Ok(())
}

fn for_each_of<T: ArrowPrimitiveType>(column: &ArrayRef, mut on_row: impl FnMut(usize, T::Native)) {
    for (row, value) in column.as_primitive::<T>().iter().enumerate() {
        if let Some(value) = value {
            on_row(row, value);
        }
    }
}

fn state_array(states: impl IntoIterator<Item = Option<i128>>) -> ArrayRef {
    let states: Decimal128Array = states.into_iter().collect();
    Arc::new(states.with_data_type(STATE_TYPE))
}

impl IntegerSums {
    fn bytes(&self) -> usize {
        self.groups.capacity() * size_of::<GroupSum>()
    }
}

impl GroupsAccumulator for IntegerSums {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.groups.resize(total, GroupSum::default());
        for_each_value(values, |row, value| {
            if filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row)) {
                self.groups[groups[row]].add(value);
            }
        })
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.groups.resize(total, GroupSum::default());
        for_each_value(states, |row, sum| self.groups[groups[row]].add(sum))
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let groups = emit_to.take_needed(&mut self.groups);
        let groups = groups.iter();
        Ok(if self.data_type == DataType::UInt64 {
            let sums = groups.map(GroupSum::value::<u64>);
            Arc::new(sums.collect::<Result<UInt64Array>>()?)
        } else {
            let sums = groups.map(GroupSum::value::<i64>);
            Arc::new(sums.collect::<Result<Int64Array>>()?)
        })
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let groups = emit_to.take_needed(&mut self.groups);
        Ok(vec![state_array(groups.iter().map(GroupSum::state))])
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let rows = values.first().ok_or_else(no_column)?.len();
        let mut states = vec![None; rows];
        for_each_value(values, |row, value| {
            if filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row)) {
                states[row] = Some(value);
            }
        })?;
        Ok(vec![state_array(states)])
    }

    fn size(&self) -> usize {
        self.bytes()
    }
}

/// Without groups: one group that is always there.
impl Accumulator for IntegerSums {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for_each_value(values, |_, value| self.groups[0].add(value))
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for_each_value(states, |_, sum| self.groups[0].add(sum))
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for_each_value(values, |_, value| self.groups[0].remove(value))
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let group = &self.groups[0];
        Ok(if self.data_type == DataType::UInt64 {
            ScalarValue::UInt64(group.value()?)
        } else {
            ScalarValue::Int64(group.value()?)
        })
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let state = self.groups[0].state();
        Ok(vec![ScalarValue::Decimal128(
            state,
            DECIMAL128_MAX_PRECISION,
            0,
        )])
    }

    fn size(&self) -> usize {
        self.bytes()
    }
}
