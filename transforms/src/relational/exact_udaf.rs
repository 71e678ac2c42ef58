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
use forebay_analyze::MomentAccumulator;
use forebay_model::{Fault, StateDecoder, StateEncoder};

/// What is computed of the moments of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum MomentStatistic {
    Sum,
    Mean,
    /// Divides by `n - ddof`.
    Var(u32),
    /// Its square root.
    Std(u32),
}

impl MomentStatistic {
    fn of(self, moment: &mut MomentAccumulator) -> Option<f64> {
        let [sum, mean, _] = moment.results();
        match self {
            MomentStatistic::Sum => sum,
            MomentStatistic::Mean => mean,
            MomentStatistic::Var(ddof) => moment.variance(ddof),
            MomentStatistic::Std(ddof) => moment.variance(ddof).map(f64::sqrt),
        }
    }
}

/// The aggregate function of one `Float64` column. Nulls and NaN are ignored; null where nothing
/// else was seen.
pub(super) fn exact_aggregate_udf(statistic: MomentStatistic) -> AggregateUDF {
    let name = match statistic {
        MomentStatistic::Sum => "exact_sum".to_owned(),
        MomentStatistic::Mean => "exact_mean".to_owned(),
        MomentStatistic::Var(ddof) => format!("exact_var_{ddof}"),
        MomentStatistic::Std(ddof) => format!("exact_std_{ddof}"),
    };
    let signature = Signature::exact(vec![DataType::Float64], Volatility::Immutable);
    AggregateUDF::new_from_impl(ExactAggregate {
        statistic,
        name,
        signature,
    })
}

/// The exact aggregates by the names that SQL has for them.
pub fn exact_aggregates() -> Vec<(&'static str, AggregateUDF)> {
    [
        ("sum", MomentStatistic::Sum),
        ("avg", MomentStatistic::Mean),
        ("var", MomentStatistic::Var(1)),
        ("var_pop", MomentStatistic::Var(0)),
        ("stddev", MomentStatistic::Std(1)),
        ("stddev_pop", MomentStatistic::Std(0)),
    ]
    .map(|(name, statistic)| (name, exact_aggregate_udf(statistic)))
    .into()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ExactAggregate {
    statistic: MomentStatistic,
    name: String,
    signature: Signature,
}

impl AggregateUDFImpl for ExactAggregate {
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
        Ok(vec![Arc::new(Field::new(
            format!("{}[moment]", args.name),
            DataType::Binary,
            false,
        ))])
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(ExactAccumulator {
            statistic: self.statistic,
            moments: vec![MomentAccumulator::default()],
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
            moments: Vec::new(),
        }))
    }
}

#[derive(Debug)]
struct ExactAccumulator {
    statistic: MomentStatistic,
    moments: Vec<MomentAccumulator>,
}

fn external_error(fault: Fault) -> DataFusionError {
    DataFusionError::External(Box::new(fault))
}

fn sole_column(values: &[ArrayRef]) -> Result<&ArrayRef> {
    values
        .first()
        .ok_or_else(|| DataFusionError::Internal("an aggregate was given no column".to_owned()))
}

fn encode_moment(moment: &MomentAccumulator) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    moment
        .encode(&mut StateEncoder(&mut bytes))
        .map_err(external_error)?;
    Ok(bytes)
}

fn decode_moment(mut bytes: &[u8]) -> Result<MomentAccumulator> {
    MomentAccumulator::decode(&mut StateDecoder(&mut bytes)).map_err(external_error)
}

impl ExactAccumulator {
    fn bytes(&self) -> usize {
        self.moments.capacity() * size_of::<MomentAccumulator>()
            + self
                .moments
                .iter()
                .map(MomentAccumulator::heap_bytes)
                .sum::<usize>()
    }
}

impl GroupsAccumulator for ExactAccumulator {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.moments.resize(total, MomentAccumulator::default());
        let values = sole_column(values)?.as_primitive::<Float64Type>();
        for (row, group) in groups.iter().enumerate() {
            let counts = filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
            if counts && values.is_valid(row) {
                self.moments[*group].push(values.value(row));
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, values: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.moments.resize(total, MomentAccumulator::default());
        let states = sole_column(values)?.as_binary::<i32>();
        for (row, group) in groups.iter().enumerate() {
            self.moments[*group].merge(&decode_moment(states.value(row))?);
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let mut moments = emit_to.take_needed(&mut self.moments);
        let values: Float64Array = moments
            .iter_mut()
            .map(|moment| self.statistic.of(moment))
            .collect();
        Ok(Arc::new(values))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let moments = emit_to.take_needed(&mut self.moments);
        let states = moments
            .iter()
            .map(encode_moment)
            .collect::<Result<Vec<_>>>()?;
        Ok(vec![Arc::new(BinaryArray::from_iter_values(states))])
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let rows = sole_column(values)?.len();
        let groups: Vec<usize> = (0..rows).collect();
        let mut each = ExactAccumulator {
            statistic: self.statistic,
            moments: Vec::with_capacity(rows),
        };
        GroupsAccumulator::update_batch(&mut each, values, &groups, filter, rows)?;
        GroupsAccumulator::state(&mut each, EmitTo::All)
    }

    fn size(&self) -> usize {
        self.bytes()
    }
}

/// Without groups: one group that is always there.
impl Accumulator for ExactAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in sole_column(values)?
            .as_primitive::<Float64Type>()
            .iter()
            .flatten()
        {
            self.moments[0].push(value);
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for state in sole_column(states)?.as_binary::<i32>().iter().flatten() {
            self.moments[0].merge(&decode_moment(state)?);
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(
            self.statistic.of(&mut self.moments[0]),
        ))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::Binary(Some(encode_moment(
            &self.moments[0],
        )?))])
    }

    fn size(&self) -> usize {
        self.bytes()
    }
}
