//! Steps in terms that other runtimes have: what an exported model computes before it predicts.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::Field;
use forebay_contract::{PortableColumn, PortableMap, PortableStep, PortableSteps};
use forebay_model::{Fault, Finding, Result, codes};

use crate::hidden_columns::is_hidden;
use crate::{AnalyzerId, BoundOp, BoundPipeline, MapOp, OpStream, PlanOp, slice_for_columns};

/// Makes inputs of those columns of an operation that are needed.
fn add_inputs<'f>(
    portable: &mut PortableSteps,
    needed: &mut BTreeSet<String>,
    writes: impl Iterator<Item = &'f Field>,
) {
    for field in writes {
        if needed.remove(field.name()) {
            portable.inputs.push(field.clone());
        }
    }
}

/// Steps of a stream that make these columns, with what they learned.
///
/// Results of windows and joins become inputs. Filters do not count: rows that are predicted pass them. A row-wise step
/// without a portable form is refused by its name.
pub fn portable_steps(
    bound: &BoundPipeline,
    stream: &OpStream,
    columns: &[String],
    finding: &dyn Fn(AnalyzerId) -> Result<Arc<Finding>>,
) -> Result<PortableSteps> {
    let names: Vec<&str> = columns.iter().map(String::as_str).collect();
    let (positions, _) = slice_for_columns(bound, stream, &names);
    let mut needed: BTreeSet<String> = columns.iter().cloned().collect();
    let mut portable = PortableSteps::default();
    // Backwards: each step replaces the columns that it makes by those that it reads.
    for position in positions.iter().rev() {
        let op = &bound.ops[stream.ops[*position]];
        add_step(&mut portable, &mut needed, op, finding)?;
    }
    portable.steps.reverse();
    let base = &bound.base_schemas[stream.base];
    for name in &needed {
        portable.inputs.push(base.field_with_name(name)?.clone());
    }
    Ok(portable)
}

fn add_step(
    portable: &mut PortableSteps,
    needed: &mut BTreeSet<String>,
    op: &BoundOp,
    finding: &dyn Fn(AnalyzerId) -> Result<Arc<Finding>>,
) -> Result<()> {
    match &op.op {
        PlanOp::Map(map) => {
            let mut writes = map.writes.iter();
            if writes.any(|field| needed.contains(field.name())) {
                for column in portable_columns(op, map, finding)? {
                    if needed.remove(column.output.name()) {
                        needed.extend(column.reads.iter().cloned());
                        portable.steps.push(PortableStep::Compute(column));
                    }
                }
            }
        }
        PlanOp::Project(columns) => {
            let mut renamed = Vec::new();
            for (old, new) in columns {
                if needed.remove(new) {
                    renamed.push((old.clone(), new.clone()));
                }
            }
            for name in needed.iter().filter(|name| is_hidden(name)) {
                renamed.push((name.clone(), name.clone()));
            }
            needed.extend(renamed.iter().map(|(old, _)| old.clone()));
            portable.steps.push(PortableStep::Rename(renamed));
        }
        PlanOp::Window(window) => add_inputs(portable, needed, window.writes.iter()),
        PlanOp::Series(series) => add_inputs(portable, needed, series.writes.iter()),
        PlanOp::Join(join) => add_inputs(portable, needed, join.writes()),
        PlanOp::Keep(_) => {}
        PlanOp::Expand(_) | PlanOp::Gather(_) => return Err(not_portable(op)),
    }
    Ok(())
}

/// The computation of each column that the operation writes. Where it writes several, it reads none of them.
fn portable_columns(
    op: &BoundOp,
    map: &MapOp,
    finding: &dyn Fn(AnalyzerId) -> Result<Arc<Finding>>,
) -> Result<Vec<PortableColumn>> {
    let findings: Vec<Arc<Finding>> = op
        .asks
        .iter()
        .map(|analyzer| finding(*analyzer))
        .collect::<Result<_>>()?;
    let lowered = (map.lower)(&findings)?;
    let maps = match lowered.portable {
        Some(describe) => match describe().map_err(|fault| fault.step(&op.label))? {
            PortableMap::Columns(maps) => maps,
            single => vec![single],
        },
        None => Vec::new(),
    };
    let mut writes = map.writes.iter();
    let replaces_input = writes.any(|output| map.reads.contains(output.name()));
    let reads_all = maps
        .iter()
        .all(|map_of_one| map_of_one.read_count() == map.reads.len());
    if maps.len() != map.writes.len() || !reads_all || (replaces_input && maps.len() > 1) {
        return Err(not_portable_or(op, lowered.portable_instead));
    }
    let mut columns = Vec::with_capacity(maps.len());
    for (output, map_of_one) in map.writes.iter().zip(maps) {
        columns.push(PortableColumn {
            reads: map.reads.clone(),
            output: output.clone(),
            map: map_of_one,
        });
    }
    Ok(columns)
}

/// The fault of an operation, with its remedy where it has one.
fn not_portable_or(op: &BoundOp, remedy: Option<&'static str>) -> Fault {
    match remedy {
        Some(remedy) => not_portable(op).hint(format!(
            "{remedy}, or export the model alone with `--without-steps`"
        )),
        None => not_portable(op),
    }
}

fn not_portable(op: &BoundOp) -> Fault {
    let message = format!("`{}` has no form that other runtimes compute", op.label);
    let fault = Fault::new(codes::UNSUPPORTED, message).step(&op.label);
    fault.hint("export the model alone with `--without-steps`: it takes the results of the steps")
}
