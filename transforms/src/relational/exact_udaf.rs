//! Sums, means and variances whose bits do not depend on how rows are divided among threads.

use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Float64Array};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};
use forebay_analyze::Moment;
use forebay_model::{Decoder, Encoder, Fault};

/// What is computed of the moments of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Statistic {
    Sum,
    Mean,
    Min,
    Max,
    /// Divides by `n - ddof`.
    Var(u32),
    /// Its square root.
    Std(u32),
}

impl Statistic {
    fn of(self, moment: &mut Moment) -> Option<f64> {
        let [sum, mean, var] = moment.results();
        let count = moment.count();
        let var = |ddof: u32| {
            let freedom = count.checked_sub(u64::from(ddof)).filter(|freedom| *freedom > 0)?;
            Some(if ddof == 0 { var? } else { var? * (count as f64 / freedom as f64) })
        };
        match self {
            Statistic::Sum => sum,
            Statistic::Mean => mean,
            Statistic::Min => moment.min(),
            Statistic::Max => moment.max(),
            Statistic::Var(ddof) => var(ddof),
            Statistic::Std(ddof) => var(ddof).map(f64::sqrt),
        }
    }
}

/// The aggregate function of one `Float64` column. Nulls and NaN are ignored; null where nothing
/// else was seen.
pub(super) fn exact(statistic: Statistic) -> AggregateUDF {
    let name = match statistic {
        Statistic::Sum => "exact_sum".to_owned(),
        Statistic::Mean => "exact_mean".to_owned(),
        Statistic::Min => "exact_min".to_owned(),
        Statistic::Max => "exact_max".to_owned(),
        Statistic::Var(ddof) => format!("exact_var_{ddof}"),
        Statistic::Std(ddof) => format!("exact_std_{ddof}"),
    };
    let signature = Signature::exact(vec![DataType::Float64], Volatility::Immutable);
    AggregateUDF::new_from_impl(Exact { statistic, name, signature })
}

/// The exact aggregates by the names that SQL has for them.
pub fn exact_aggregates() -> Vec<(&'static str, AggregateUDF)> {
    [
        ("sum", Statistic::Sum),
        ("avg", Statistic::Mean),
        ("var", Statistic::Var(1)),
        ("var_pop", Statistic::Var(0)),
        ("stddev", Statistic::Std(1)),
        ("stddev_pop", Statistic::Std(0)),
    ]
    .map(|(name, statistic)| (name, exact(statistic)))
    .into()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Exact {
    statistic: Statistic,
    name: String,
    signature: Signature,
}

impl AggregateUDFImpl for Exact {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(format!("{}[moment]", args.name), DataType::Binary, false))])
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Groups { statistic: self.statistic, moments: vec![Moment::default()] }))
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs<'_>) -> bool {
        true
    }

    fn create_groups_accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(Groups { statistic: self.statistic, moments: Vec::new() }))
    }
}

#[derive(Debug)]
struct Groups {
    statistic: Statistic,
    moments: Vec<Moment>,
}

fn external(fault: Fault) -> DataFusionError {
    DataFusionError::External(Box::new(fault))
}

fn only(values: &[ArrayRef]) -> Result<&ArrayRef> {
    values.first().ok_or_else(|| DataFusionError::Internal("an aggregate was given no column".to_owned()))
}

fn encoded(moment: &Moment) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    moment.encode(&mut Encoder(&mut bytes)).map_err(external)?;
    Ok(bytes)
}

fn decoded(mut bytes: &[u8]) -> Result<Moment> {
    Moment::decode(&mut Decoder(&mut bytes)).map_err(external)
}

impl Groups {
    fn bytes(&self) -> usize {
        self.moments.capacity() * size_of::<Moment>() + self.moments.iter().map(Moment::heap_bytes).sum::<usize>()
    }
}

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.moments.resize(total, Moment::default());
        let values = only(values)?.as_primitive::<Float64Type>();
        for (row, group) in groups.iter().enumerate() {
            let counts = filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
            if counts && values.is_valid(row) {
                self.moments[*group].push(values.value(row));
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, values: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.moments.resize(total, Moment::default());
        let states = only(values)?.as_binary::<i32>();
        for (row, group) in groups.iter().enumerate() {
            self.moments[*group].merge(&decoded(states.value(row))?);
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let mut moments = emit_to.take_needed(&mut self.moments);
        let values: Float64Array = moments.iter_mut().map(|moment| self.statistic.of(moment)).collect();
        Ok(Arc::new(values))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let moments = emit_to.take_needed(&mut self.moments);
        let states = moments.iter().map(encoded).collect::<Result<Vec<_>>>()?;
        Ok(vec![Arc::new(BinaryArray::from_iter_values(states))])
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let rows = only(values)?.len();
        let groups: Vec<usize> = (0..rows).collect();
        let mut each = Groups { statistic: self.statistic, moments: Vec::with_capacity(rows) };
        GroupsAccumulator::update_batch(&mut each, values, &groups, filter, rows)?;
        GroupsAccumulator::state(&mut each, EmitTo::All)
    }

    fn size(&self) -> usize {
        self.bytes()
    }
}

/// Without groups: one group that is always there.
impl Accumulator for Groups {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in only(values)?.as_primitive::<Float64Type>().iter().flatten() {
            self.moments[0].push(value);
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for state in only(states)?.as_binary::<i32>().iter().flatten() {
            self.moments[0].merge(&decoded(state)?);
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(self.statistic.of(&mut self.moments[0])))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::Binary(Some(encoded(&self.moments[0])?))])
    }

    fn size(&self) -> usize {
        self.bytes()
    }
}
