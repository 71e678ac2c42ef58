//! Number of steps ahead for which each column is known: a model for one step of the horizon takes
//! more columns than a model for all of it.

use forebay_contract::{StepColumns, StepStrategy};
use forebay_model::{Fault, Pipeline, PredictionLabel, Result, codes, type_words};

use crate::column_age::ColumnAges;
use crate::label_horizon::LabelHorizon;
use crate::{BoundPipeline, FutureFlow, NodeFlow, changed_by, unknown_column};

/// Format of a sink that stands for the rows of a feed. It is never written.
pub const FEED_FORMAT: &str = "feed";

/// The flow of a step with rows of the future, these rows, and the label of the pipeline.
struct PredictedFlow<'a> {
    flow: &'a NodeFlow,
    future: &'a FutureFlow,
    label: &'a PredictionLabel,
}

impl<'a> PredictedFlow<'a> {
    fn of(
        pipeline: &'a Pipeline,
        bound: &'a BoundPipeline,
        from: &str,
        strategy: StepStrategy,
    ) -> Result<PredictedFlow<'a>> {
        let strategy = strategy.word();
        let flow = bound.flows.get(from);
        let future = flow.and_then(|flow| Some((flow, flow.future.as_deref()?)));
        let Some((flow, future)) = future else {
            let message = format!(
                "`strategy: {strategy}` predicts rows of the future, and `{from}` has none"
            );
            let fault = Fault::new(codes::MISSING_FIELD, message);
            return Err(fault.hint("add `future_rows` to its steps, before the windows"));
        };
        let Some(label) = &pipeline.label else {
            let message = format!(
                "`strategy: {strategy}` needs to know which columns are known ahead, and the \
                 pipeline has no `label`"
            );
            let hint = "declare it: `label: { column: <target>, horizon: 28d, known: [...] }`";
            return Err(Fault::new(codes::MISSING_FIELD, message).hint(hint));
        };
        Ok(PredictedFlow {
            flow,
            future,
            label,
        })
    }
}

/// Refuses a step whose rows of the future cannot be predicted one from another. The check of leaks
/// decides which columns may be among its features.
pub fn check_recursive(pipeline: &Pipeline, bound: &BoundPipeline, from: &str) -> Result<()> {
    let PredictedFlow { future, label, .. } =
        PredictedFlow::of(pipeline, bound, from, StepStrategy::Recursive)?;
    let [stream] = future.rows.as_slice() else {
        let fault = Fault::new(
            codes::UNSUPPORTED,
            "the inputs of the union have rows of the future of their own",
        );
        return Err(fault.hint("move `future_rows` behind the union"));
    };
    check_recursive_label(future, &label.column)?;
    if let Some(by) = changed_by(bound, &stream.ops, &label.column) {
        let message = format!(
            "`{by}` changes the label `{}` behind `future_rows`, where predictions have to be \
             values of it",
            label.column
        );
        let hint = format!(
            "change the label before `future_rows`, or write what `{by}` makes to another column"
        );
        return Err(Fault::new(codes::BAD_VALUE, message)
            .column(&label.column)
            .hint(hint));
    }
    Ok(())
}

/// Refuses a label that cannot hold predictions.
pub fn check_recursive_label(future: &FutureFlow, label: &str) -> Result<()> {
    let field = future
        .source
        .field_with_name(label)
        .map_err(|_| unknown_column(label, &future.source))?;
    if field.data_type().is_floating() {
        return Ok(());
    }
    let message = format!(
        "predictions become values of `{label}` for later rows of the future, and it is {}",
        type_words(field.data_type())
    );
    let hint = format!(
        "make it a number with a fraction before `future_rows`: `derive: {{ {label}: \
         \"CAST({label} AS DOUBLE)\" }}`"
    );
    Err(Fault::new(codes::COLUMN_TYPE, message)
        .column(label)
        .hint(hint))
}

/// Number of steps ahead for which the columns of a step are known.
pub fn step_columns(pipeline: &Pipeline, bound: &BoundPipeline, from: &str) -> Result<StepColumns> {
    let PredictedFlow {
        flow,
        future,
        label,
    } = PredictedFlow::of(pipeline, bound, from, StepStrategy::PerStep)?;
    let horizon = LabelHorizon::of(label, pipeline, bound)?.ok_or_else(|| {
        let message =
            "models for each step of the horizon need to know how far ahead the label is predicted";
        let hint = "declare it: `label: { column: <target>, horizon: 28d, known: [...] }`";
        Fault::new(codes::MISSING_FIELD, message)
            .hint(hint)
            .at(label.at.as_ref())
    })?;
    let ages = ColumnAges::new(pipeline, bound, label);
    let steps_of_columns = flow.schema.fields().iter().map(|field| {
        let steps = horizon.steps_ahead(ages.of(flow, field.name()), future);
        (field.name().clone(), steps)
    });
    Ok(StepColumns {
        steps: future.steps,
        known: steps_of_columns.collect(),
    })
}
