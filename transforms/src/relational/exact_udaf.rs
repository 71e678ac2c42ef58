//! Sums, means, variances and lines of least squares whose bits do not depend on how rows are divided among threads.
//!
//! In window frames that move, values leave the sums as exactly as they came: a large number in the rows before changes
//! nothing.

use std::fmt::Debug;
use std::hash::Hash;
use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryBuilder, BooleanArray, Float64Array};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};
use forebay_analyze::{MomentAccumulator, PairMoments, SumAccumulator};
use forebay_model::{Fault, StateDecoder, StateEncoder};
use forebay_plan::INTEGER_SUM;

use super::integer_sum::exact_integer_sum;

/// The numbers of a row.
trait RowNumbers: Sized {
    const COLUMNS: usize;

    /// Calls back with each row of some columns that the filter selects and in which no number is null.
    fn for_each_row(
        columns: &[ArrayRef],
        filter: Option<&BooleanArray>,
        on_row: impl FnMut(usize, Self),
    ) -> Result<()>;
}

/// Arrays, so that the compiler knows how many numbers a row has.
impl<const N: usize> RowNumbers for [f64; N] {
    const COLUMNS: usize = N;

    fn for_each_row(
        columns: &[ArrayRef],
        filter: Option<&BooleanArray>,
        mut on_row: impl FnMut(usize, [f64; N]),
    ) -> Result<()> {
        let rows = first_column(columns)?.len();
        let mut counted = filter.map(selected_rows);
        let mut numbers = Vec::with_capacity(N);
        for column in columns {
            let column = column.as_primitive::<Float64Type>();
            counted = NullBuffer::union(counted.as_ref(), column.nulls());
            numbers.push(column.values());
        }
        let Ok(numbers) = <[&ScalarBuffer<f64>; N]>::try_from(numbers) else {
            let message = "an aggregate was given other columns".to_owned();
            return Err(DataFusionError::Internal(message));
        };
        let Some(counted) = counted else {
            for row in 0..rows {
                on_row(row, numbers.map(|numbers| numbers[row]));
            }
            return Ok(());
        };
        for row in counted.valid_indices() {
            on_row(row, numbers.map(|numbers| numbers[row]));
        }
        Ok(())
    }
}

/// The rows that a filter selects: those where it is neither false nor null.
fn selected_rows(filter: &BooleanArray) -> NullBuffer {
    let selected = match filter.nulls() {
        Some(nulls) => filter.values() & nulls.inner(),
        None => filter.values().clone(),
    };
    NullBuffer::new(selected)
}

/// Exact sums over the rows of a group.
trait GroupSums: Debug + Clone + Default + Send + Sync + 'static {
    type Row: RowNumbers;

    /// Adds a row without nulls.
    fn add(&mut self, row: Self::Row);

    /// Removes a row that was added.
    fn remove(&mut self, row: Self::Row);

    fn merge(&mut self, other: &Self);

    fn encode(&self, out: &mut StateEncoder<'_>) -> forebay_model::Result<()>;

    fn decode(input: &mut StateDecoder<'_>) -> forebay_model::Result<Self>;

    fn heap_bytes(&self) -> usize;
}

/// A function of the sums of a group.
trait ExactStatistic: Debug + Copy + Eq + Hash + Send + Sync + 'static {
    type Sums: GroupSums;

    /// Its value; null without enough rows.
    fn of(self, sums: &Self::Sums) -> Option<f64>;

    /// True for a number of rows: a whole number, and never null.
    fn is_count(self) -> bool {
        false
    }

    /// Type of its values.
    fn data_type(self) -> DataType {
        if self.is_count() {
            DataType::UInt64
        } else {
            DataType::Float64
        }
    }
}

type RowOf<T> = <<T as ExactStatistic>::Sums as GroupSums>::Row;

/// A function of the sum of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum SumStatistic {
    Sum,
    Mean,
}

impl GroupSums for SumAccumulator {
    type Row = [f64; 1];

    fn add(&mut self, [value]: [f64; 1]) {
        self.push(value);
    }

    fn remove(&mut self, [value]: [f64; 1]) {
        SumAccumulator::remove(self, value);
    }

    fn merge(&mut self, other: &Self) {
        SumAccumulator::merge(self, other);
    }

    fn encode(&self, out: &mut StateEncoder<'_>) -> forebay_model::Result<()> {
        SumAccumulator::encode(self, out)
    }

    fn decode(input: &mut StateDecoder<'_>) -> forebay_model::Result<Self> {
        SumAccumulator::decode(input)
    }

    fn heap_bytes(&self) -> usize {
        SumAccumulator::heap_bytes(self)
    }
}

impl ExactStatistic for SumStatistic {
    type Sums = SumAccumulator;

    fn of(self, sum: &SumAccumulator) -> Option<f64> {
        match self {
            SumStatistic::Sum => sum.total(),
            SumStatistic::Mean => sum.mean(),
        }
    }
}

/// A function of the moments of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum MomentStatistic {
    /// Divides by `n - ddof`.
    Var(u32),
    /// Its square root.
    Std(u32),
}

impl GroupSums for MomentAccumulator {
    type Row = [f64; 1];

    fn add(&mut self, [value]: [f64; 1]) {
        self.push(value);
    }

    fn remove(&mut self, [value]: [f64; 1]) {
        MomentAccumulator::remove(self, value);
    }

    fn merge(&mut self, other: &Self) {
        MomentAccumulator::merge(self, other);
    }

    fn encode(&self, out: &mut StateEncoder<'_>) -> forebay_model::Result<()> {
        MomentAccumulator::encode(self, out)
    }

    fn decode(input: &mut StateDecoder<'_>) -> forebay_model::Result<Self> {
        MomentAccumulator::decode(input)
    }

    fn heap_bytes(&self) -> usize {
        MomentAccumulator::heap_bytes(self)
    }
}

impl ExactStatistic for MomentStatistic {
    type Sums = MomentAccumulator;

    fn of(self, moment: &MomentAccumulator) -> Option<f64> {
        match self {
            MomentStatistic::Var(ddof) => moment.variance(ddof),
            MomentStatistic::Std(ddof) => moment.deviation(ddof),
        }
    }
}

/// A function of the moments of pairs. SQL names the dependent variable first: `regr_slope(y, x)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum PairStatistic {
    /// The number of pairs that the others are computed from.
    Count,
    /// Divides by `n - ddof`.
    Covariance(u32),
    Correlation,
    Slope,
    Intercept,
    Determination,
    XMean,
    YMean,
    XSpread,
    YSpread,
    JointSpread,
}

impl GroupSums for PairMoments {
    type Row = [f64; 2];

    fn add(&mut self, [y, x]: [f64; 2]) {
        self.push(x, y);
    }

    fn remove(&mut self, [y, x]: [f64; 2]) {
        PairMoments::remove(self, x, y);
    }

    fn merge(&mut self, other: &Self) {
        PairMoments::merge(self, other);
    }

    fn encode(&self, out: &mut StateEncoder<'_>) -> forebay_model::Result<()> {
        PairMoments::encode(self, out)
    }

    fn decode(input: &mut StateDecoder<'_>) -> forebay_model::Result<Self> {
        PairMoments::decode(input)
    }

    fn heap_bytes(&self) -> usize {
        PairMoments::heap_bytes(self)
    }
}

impl ExactStatistic for PairStatistic {
    type Sums = PairMoments;

    fn of(self, pairs: &PairMoments) -> Option<f64> {
        match self {
            PairStatistic::Count => Some(pairs.count() as f64),
            PairStatistic::Covariance(ddof) => pairs.covariance(ddof),
            PairStatistic::Correlation => pairs.correlation(),
            PairStatistic::Slope => pairs.slope(),
            PairStatistic::Intercept => pairs.intercept(),
            PairStatistic::Determination => pairs.correlation().map(|ratio| ratio * ratio),
            PairStatistic::XMean => pairs.x_mean(),
            PairStatistic::YMean => pairs.y_mean(),
            PairStatistic::XSpread => pairs.x_spread(),
            PairStatistic::YSpread => pairs.y_spread(),
            PairStatistic::JointSpread => pairs.joint_spread(),
        }
    }

    fn is_count(self) -> bool {
        self == PairStatistic::Count
    }
}

/// The aggregate function of `Float64` columns. Rows with a null or NaN are ignored; where nothing else was seen, a count
/// is 0 and the others are null.
fn exact_aggregate_udf<T: ExactStatistic>(name: String, statistic: T) -> AggregateUDF {
    let columns = vec![DataType::Float64; RowOf::<T>::COLUMNS];
    let signature = Signature::exact(columns, Volatility::Immutable);
    AggregateUDF::new_from_impl(ExactAggregate {
        statistic,
        name,
        signature,
    })
}

/// The exact aggregates by the names that SQL has for them.
pub fn exact_aggregates() -> Vec<(&'static str, AggregateUDF)> {
    let mut aggregates = Vec::new();
    for (name, exact_name, statistic) in [
        ("sum", "exact_sum", SumStatistic::Sum),
        ("avg", "exact_mean", SumStatistic::Mean),
    ] {
        let function = exact_aggregate_udf(exact_name.to_owned(), statistic);
        aggregates.push((name, function));
    }
    for (name, exact_name, statistic) in [
        ("var", "exact_var_1", MomentStatistic::Var(1)),
        ("var_pop", "exact_var_0", MomentStatistic::Var(0)),
        ("stddev", "exact_std_1", MomentStatistic::Std(1)),
        ("stddev_pop", "exact_std_0", MomentStatistic::Std(0)),
    ] {
        let function = exact_aggregate_udf(exact_name.to_owned(), statistic);
        aggregates.push((name, function));
    }
    for (name, statistic) in [
        ("covar_samp", PairStatistic::Covariance(1)),
        ("covar_pop", PairStatistic::Covariance(0)),
        ("corr", PairStatistic::Correlation),
        ("regr_count", PairStatistic::Count),
        ("regr_slope", PairStatistic::Slope),
        ("regr_intercept", PairStatistic::Intercept),
        ("regr_r2", PairStatistic::Determination),
        ("regr_avgx", PairStatistic::XMean),
        ("regr_avgy", PairStatistic::YMean),
        ("regr_sxx", PairStatistic::XSpread),
        ("regr_syy", PairStatistic::YSpread),
        ("regr_sxy", PairStatistic::JointSpread),
    ] {
        let function = exact_aggregate_udf(format!("exact_{name}"), statistic);
        aggregates.push((name, function));
    }
    aggregates.push((INTEGER_SUM, exact_integer_sum()));
    aggregates
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ExactAggregate<T> {
    statistic: T,
    name: String,
    signature: Signature,
}

impl<T: ExactStatistic> AggregateUDFImpl for ExactAggregate<T> {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.statistic.data_type())
    }

    fn is_nullable(&self) -> bool {
        !self.statistic.is_count()
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        if self.statistic.is_count() {
            Ok(ScalarValue::UInt64(Some(0)))
        } else {
            ScalarValue::try_from(data_type)
        }
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(
            format!("{}[moment]", args.name),
            DataType::Binary,
            false,
        ))])
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(ExactAccumulator {
            statistic: self.statistic,
            groups: vec![T::Sums::default()],
            heap_bytes: 0,
        }))
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs<'_>) -> bool {
        true
    }

    fn create_groups_accumulator(
        &self,
        _: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(ExactAccumulator {
            statistic: self.statistic,
            groups: Vec::new(),
            heap_bytes: 0,
        }))
    }
}

/// Sums of each group.
#[derive(Debug)]
struct ExactAccumulator<T: ExactStatistic> {
    statistic: T,
    groups: Vec<T::Sums>,
    /// Heap memory of the sums of all groups. It is counted as they change: a query asks for it after each batch, and may
    /// have millions of groups.
    heap_bytes: usize,
}

fn external_error(fault: Fault) -> DataFusionError {
    DataFusionError::External(Box::new(fault))
}

fn first_column(values: &[ArrayRef]) -> Result<&ArrayRef> {
    values
        .first()
        .ok_or_else(|| DataFusionError::Internal("an aggregate was given no column".to_owned()))
}

fn encode_sums(sums: &impl GroupSums) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    sums.encode(&mut StateEncoder(&mut bytes))
        .map_err(external_error)?;
    Ok(bytes)
}

fn decode_sums<S: GroupSums>(mut bytes: &[u8]) -> Result<S> {
    S::decode(&mut StateDecoder(&mut bytes)).map_err(external_error)
}

/// Changes the sums of a group and counts their heap memory.
fn change_sums<S: GroupSums, R>(
    sums: &mut S,
    heap_bytes: &mut usize,
    change: impl FnOnce(&mut S) -> R,
) -> R {
    let bytes_before = sums.heap_bytes();
    let result = change(sums);
    *heap_bytes = *heap_bytes + sums.heap_bytes() - bytes_before;
    result
}

impl<T: ExactStatistic> ExactAccumulator<T> {
    fn bytes(&self) -> usize {
        self.groups.capacity() * size_of::<T::Sums>() + self.heap_bytes
    }

    /// Takes the sums of the groups that are emitted.
    fn take_groups(&mut self, emit_to: EmitTo) -> Vec<T::Sums> {
        let groups = emit_to.take_needed(&mut self.groups);
        let heap_bytes: usize = groups.iter().map(T::Sums::heap_bytes).sum();
        self.heap_bytes -= heap_bytes;
        groups
    }
}

impl<T: ExactStatistic> GroupsAccumulator for ExactAccumulator<T> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.groups.resize_with(total, T::Sums::default);
        let sums = &mut self.groups;
        // A local count stays in a register.
        let mut heap_bytes = self.heap_bytes;
        RowOf::<T>::for_each_row(values, filter, |row, numbers| {
            change_sums(&mut sums[groups[row]], &mut heap_bytes, |sums| {
                sums.add(numbers);
            });
        })?;
        self.heap_bytes = heap_bytes;
        Ok(())
    }

    fn merge_batch(&mut self, values: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.groups.resize_with(total, T::Sums::default);
        let states = first_column(values)?.as_binary::<i32>();
        for (row, group) in groups.iter().enumerate() {
            let later_sums: T::Sums = decode_sums(states.value(row))?;
            let sums = &mut self.groups[*group];
            change_sums(sums, &mut self.heap_bytes, |sums| sums.merge(&later_sums));
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let groups = self.take_groups(emit_to);
        let values: Float64Array = groups.iter().map(|sums| self.statistic.of(sums)).collect();
        Ok(cast(&values, &self.statistic.data_type())?)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let groups = self.take_groups(emit_to);
        let mut states = BinaryBuilder::with_capacity(groups.len(), 0);
        let mut bytes = Vec::new();
        for sums in &groups {
            bytes.clear();
            sums.encode(&mut StateEncoder(&mut bytes))
                .map_err(external_error)?;
            states.append_value(&bytes);
        }
        Ok(vec![Arc::new(states.finish())])
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let rows = first_column(values)?.len();
        let groups: Vec<usize> = (0..rows).collect();
        let mut each = ExactAccumulator {
            statistic: self.statistic,
            groups: Vec::with_capacity(rows),
            heap_bytes: 0,
        };
        GroupsAccumulator::update_batch(&mut each, values, &groups, filter, rows)?;
        GroupsAccumulator::state(&mut each, EmitTo::All)
    }

    fn size(&self) -> usize {
        self.bytes()
    }
}

/// Without groups: one group that is always there.
impl<T: ExactStatistic> Accumulator for ExactAccumulator<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let sums = &mut self.groups[0];
        change_sums(sums, &mut self.heap_bytes, |sums| {
            RowOf::<T>::for_each_row(values, None, |_, numbers| sums.add(numbers))
        })
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for state in first_column(states)?.as_binary::<i32>().iter().flatten() {
            let later_sums: T::Sums = decode_sums(state)?;
            let sums = &mut self.groups[0];
            change_sums(sums, &mut self.heap_bytes, |sums| sums.merge(&later_sums));
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let sums = &mut self.groups[0];
        change_sums(sums, &mut self.heap_bytes, |sums| {
            RowOf::<T>::for_each_row(values, None, |_, numbers| sums.remove(numbers))
        })
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let value = ScalarValue::Float64(self.statistic.of(&self.groups[0]));
        value.cast_to(&self.statistic.data_type())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::Binary(Some(encode_sums(
            &self.groups[0],
        )?))])
    }

    fn size(&self) -> usize {
        self.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_size<T: ExactStatistic>(accumulator: &ExactAccumulator<T>) {
        let heap_bytes: usize = accumulator.groups.iter().map(T::Sums::heap_bytes).sum();
        assert_eq!(accumulator.heap_bytes, heap_bytes);
    }

    /// The size is that of all groups, whether rows or states are added or groups leave.
    #[test]
    fn sizes_are_those_of_groups() {
        let mut accumulator = ExactAccumulator {
            statistic: MomentStatistic::Var(1),
            groups: Vec::new(),
            heap_bytes: 0,
        };
        // Numbers of all magnitudes need heap memory.
        let numbers = (0..300).map(|row| 10f64.powi(row * 7 % 300 - 150));
        let column: ArrayRef = Arc::new(Float64Array::from_iter_values(numbers));
        let groups: Vec<usize> = (0..300).map(|row| row % 30).collect();
        GroupsAccumulator::update_batch(&mut accumulator, &[column], &groups, None, 30).unwrap();
        assert!(accumulator.heap_bytes > 0);
        check_size(&accumulator);
        let states = GroupsAccumulator::state(&mut accumulator, EmitTo::First(10)).unwrap();
        assert_eq!(accumulator.groups.len(), 20);
        check_size(&accumulator);
        let groups: Vec<usize> = (0..10).collect();
        GroupsAccumulator::merge_batch(&mut accumulator, &states, &groups, 20).unwrap();
        check_size(&accumulator);
        GroupsAccumulator::evaluate(&mut accumulator, EmitTo::All).unwrap();
        assert_eq!(accumulator.heap_bytes, 0);
    }

    #[test]
    fn rows_that_are_filtered_null_or_nan_do_not_count() {
        let numbers = vec![Some(1.0), None, Some(4.0), Some(8.0), Some(f64::NAN)];
        let column: ArrayRef = Arc::new(Float64Array::from(numbers));
        let filter =
            BooleanArray::from(vec![Some(true), Some(true), Some(false), None, Some(true)]);
        for (filter, sum) in [(None, 13.0), (Some(&filter), 1.0)] {
            let mut accumulator = ExactAccumulator {
                statistic: SumStatistic::Sum,
                groups: Vec::new(),
                heap_bytes: 0,
            };
            let columns = [column.clone()];
            GroupsAccumulator::update_batch(&mut accumulator, &columns, &[0; 5], filter, 1)
                .unwrap();
            let sums = GroupsAccumulator::evaluate(&mut accumulator, EmitTo::All).unwrap();
            assert_eq!(sums.as_primitive::<Float64Type>().values()[..], [sum]);
        }
    }

    /// Threads divide the rows of a query without groups anew each time, and finish in any order.
    #[test]
    fn means_without_groups_have_the_same_bits_however_rows_are_divided() {
        let numbers: Vec<f64> = (1..=1_000_i32)
            .map(|row| 1e6 / f64::from(row) + f64::from(row % 7) * 1e-9)
            .collect();
        let mut bits = Vec::new();
        for part_rows in [1_000, 1, 37, 500] {
            let mut total = ExactAccumulator {
                statistic: SumStatistic::Mean,
                groups: vec![Default::default()],
                heap_bytes: 0,
            };
            for part in numbers.chunks(part_rows).rev() {
                let mut sums = ExactAccumulator {
                    statistic: SumStatistic::Mean,
                    groups: vec![Default::default()],
                    heap_bytes: 0,
                };
                let column: ArrayRef = Arc::new(Float64Array::from(part.to_vec()));
                Accumulator::update_batch(&mut sums, &[column]).unwrap();
                let states = Accumulator::state(&mut sums).unwrap();
                let state = states[0].to_array().unwrap();
                Accumulator::merge_batch(&mut total, &[state]).unwrap();
            }
            let mean = Accumulator::evaluate(&mut total).unwrap();
            let ScalarValue::Float64(Some(mean)) = mean else {
                panic!("no mean: {mean}");
            };
            bits.push(mean.to_bits());
        }
        bits.dedup();
        assert_eq!(bits.len(), 1);
    }
}
