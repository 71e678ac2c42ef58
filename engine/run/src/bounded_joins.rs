//! Steps that hold the rows of another step or source in memory, where those fit, and do without where they do not.

use std::collections::BTreeMap;

use arrow::datatypes::DataType;
use forebay_model::{Dataset, Fault, Pipeline, PipelineNode, Result, codes};
use forebay_plan::{BoundPipeline, HeldRows, TransformRegistry};
use forebay_storage::Event;

use crate::session::Session;

impl Session {
    /// The pipeline in which no step holds the rows of a source that surely exceed the memory of states; `None` if
    /// nothing changes.
    fn bound_joins(
        &self,
        pipeline: &Pipeline,
        datasets: &BTreeMap<String, Dataset>,
    ) -> Result<Option<Pipeline>> {
        let budget = self.memory().states_bytes() as u64;
        replace_steps(&self.registry, pipeline, &|_, held_rows| {
            held_bytes_min(held_rows, datasets).is_some_and(|bytes| bytes > budget)
        })
    }

    /// Bounds the joins of a pipeline like `bound_joins`, and replaces `bound` by the new binding
    /// if a join changed.
    pub(crate) fn rebind_bounded(
        &self,
        pipeline: &Pipeline,
        datasets: &BTreeMap<String, Dataset>,
        bound: &mut BoundPipeline,
    ) -> Result<Option<Pipeline>> {
        let bounded = self.bound_joins(pipeline, datasets)?;
        if let Some(bounded) = &bounded {
            *bound = self.bind(bounded, datasets)?;
        }
        Ok(bounded)
    }

    /// The pipeline in which the step that ran out of memory holds no rows; `None` if the fault has another cause.
    pub(crate) fn bound_join_of(
        &self,
        pipeline: &Pipeline,
        fault: &Fault,
    ) -> Result<Option<Pipeline>> {
        let Some(label) = fault
            .site()
            .step
            .as_ref()
            .filter(|_| fault.code() == codes::MEMORY)
        else {
            return Ok(None);
        };
        let bounded = replace_steps(&self.registry, pipeline, &|step, _| step == label.as_str())?;
        if bounded.is_some() {
            let message = format!(
                "`{label}`: the rows to look up exceed their share of the memory, \
                 so both sides are partitioned by key"
            );
            self.watch.on_event(Event::Warning { message });
        }
        Ok(bounded)
    }
}

/// Replaces the steps that hold rows and for which `replaces` returns true, given a step's label.
fn replace_steps(
    registry: &TransformRegistry,
    pipeline: &Pipeline,
    replaces: &dyn Fn(&str, &HeldRows) -> bool,
) -> Result<Option<Pipeline>> {
    let mut bounded: Option<Pipeline> = None;
    for (at, PipelineNode { name, steps, .. }) in pipeline.nodes.iter().enumerate() {
        for (position, step) in steps.iter().enumerate() {
            let label = format!("{name}.{}", step.kind);
            let Some(held_rows) = registry.build(step)?.held_rows() else {
                continue;
            };
            if replaces(&label, &held_rows) {
                let bounded = bounded.get_or_insert_with(|| pipeline.clone());
                bounded.nodes[at].steps[position].config = held_rows.spilling;
            }
        }
    }
    Ok(bounded)
}

/// The least bytes that the rows of a lookup take in memory; `None` where their number is unknown.
fn held_bytes_min(held_rows: &HeldRows, datasets: &BTreeMap<String, Dataset>) -> Option<u64> {
    let dataset = datasets.get(&held_rows.other)?;
    let columns = match &held_rows.columns {
        None => dataset.schema.fields().iter().map(AsRef::as_ref).collect(),
        Some(columns) => columns.resolve(&dataset.schema).ok()?,
    };
    let mut row_bytes = 0;
    for field in columns {
        row_bytes += bytes_min(field.data_type());
    }
    Some(dataset.rows()? * row_bytes)
}

/// The bytes that a value takes at least.
fn bytes_min(data_type: &DataType) -> u64 {
    match data_type {
        DataType::Utf8 | DataType::Binary | DataType::List(_) => 4,
        DataType::LargeUtf8 | DataType::LargeBinary | DataType::LargeList(_) => 8,
        DataType::Dictionary(_, values) => bytes_min(values),
        DataType::Struct(fields) => fields
            .iter()
            .map(|field| bytes_min(field.data_type()))
            .sum(),
        DataType::FixedSizeList(item, length) => {
            bytes_min(item.data_type()) * (*length).max(0) as u64
        }
        other => other.primitive_width().unwrap_or(0) as u64,
    }
}
