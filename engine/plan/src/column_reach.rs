//! Reach of columns: the distances of past rows that determine a column's values. A change at any other distance
//! leaves them unchanged.

use std::collections::BTreeMap;

use arrow::datatypes::Field;
use forebay_window::{WindowFunction, WindowReach};

use crate::future::is_hidden;
use crate::{BoundPipeline, ColumnTap, OpStream, PlanOp, WindowOp};

/// Reach of each column of a tap, including the selection of rows, in ticks of the windows' time. `needed` are the
/// operations that run.
pub fn column_reaches(
    bound: &BoundPipeline,
    stream: &OpStream,
    needed: &[usize],
    want: &ColumnTap,
) -> Vec<WindowReach> {
    let base = bound.base_schemas[stream.base].fields().iter();
    let columns = base.map(|field| (field.name().clone(), WindowReach::none())).collect();
    let mut known = ColumnReaches { columns, rows: WindowReach::none() };
    for position in needed.iter().filter(|position| **position < want.after) {
        known.after(&bound.ops[stream.ops[*position]].op);
    }
    if let Some(part) = &want.part {
        known.rows = known.of([part]);
    }
    want.columns.iter().map(|column| known.of([column])).collect()
}

/// Reaches of the columns between two operations.
struct ColumnReaches {
    columns: BTreeMap<String, WindowReach>,
    /// Reach of the selection of rows.
    rows: WindowReach,
}

impl ColumnReaches {
    /// Union of the reaches of some columns and of the row selection.
    fn of<'n>(&self, names: impl IntoIterator<Item = &'n String>) -> WindowReach {
        // An undeclared column may depend on anything.
        let of = |name: &String| self.columns.get(name).cloned().unwrap_or(WindowReach::Unbounded);
        names.into_iter().map(of).fold(self.rows.clone(), WindowReach::union)
    }

    fn write<'f>(&mut self, fields: impl IntoIterator<Item = &'f Field>, reach: WindowReach) {
        self.columns.extend(fields.into_iter().map(|field| (field.name().clone(), reach.clone())));
    }

    fn after(&mut self, op: &PlanOp) {
        match op {
            PlanOp::Map(map) => self.write(&map.writes, self.of(&map.reads)),
            PlanOp::Keep(keep) => self.rows = self.of(&keep.reads),
            PlanOp::Expand(expand) => {
                self.rows = self.of(&expand.reads);
                self.write(&expand.writes, self.rows.clone());
            }
            PlanOp::Project(columns) => {
                let moved = columns.iter().filter_map(|(from, to)| Some((to.clone(), self.columns.get(from)?.clone())));
                let moved: Vec<_> = moved.collect();
                self.columns.retain(|name, _| is_hidden(name));
                self.columns.extend(moved);
            }
            PlanOp::Window(window) => {
                let of = |compute: &WindowFunction, input: usize| self.window(window, compute, input);
                let reaches = window.plan.functions.iter().map(|function| of(&function.compute, function.input));
                let reaches: Vec<WindowReach> = reaches.collect();
                for (field, reach) in window.writes.iter().zip(reaches) {
                    self.write([field], reach);
                }
            }
            PlanOp::Join(join) => self.write(join.writes(), WindowReach::Unbounded),
            PlanOp::Gather(_) => self.rows = WindowReach::Unbounded,
        }
    }

    /// Reach of a window's output.
    fn window(&self, window: &WindowOp, compute: &WindowFunction, input: usize) -> WindowReach {
        if window.backward {
            return WindowReach::Unbounded;
        }
        let others = match compute {
            WindowFunction::SeasonalIndex { slot, parent, .. } => [Some(*slot), *parent],
            _ => [None, None],
        };
        let inputs = others.into_iter().flatten().chain([input]).filter_map(|input| window.reads.get(input));
        let read = self.of(window.keys.iter().chain([&window.time]).chain(inputs));
        window.plan.reach_of(compute).compose(read)
    }
}
