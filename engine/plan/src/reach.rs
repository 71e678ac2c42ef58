//! Reach of columns: the distances of past rows that determine a column's values. A change at any other distance
//! leaves them unchanged.

use std::collections::BTreeMap;

use arrow::datatypes::Field;
use forebay_window::{Compute, Reach};

use crate::split::PART_PREFIX;
use crate::{Bound, Op, Stream, Want, Window};

/// Reach of each column of a tap, including the selection of rows, in ticks of the windows' time. `needed` are the
/// operations that run.
pub fn reaches(bound: &Bound, stream: &Stream, needed: &[usize], want: &Want) -> Vec<Reach> {
    let base = bound.base_schemas[stream.base].fields().iter();
    let columns = base.map(|field| (field.name().clone(), Reach::none())).collect();
    let mut known = Known { columns, rows: Reach::none() };
    for position in needed.iter().filter(|position| **position < want.after) {
        known.after(&bound.ops[stream.ops[*position]].op);
    }
    if let Some(part) = &want.part {
        known.rows = known.of([part]);
    }
    want.columns.iter().map(|column| known.of([column])).collect()
}

/// Reaches of the columns between two operations.
struct Known {
    columns: BTreeMap<String, Reach>,
    /// Reach of the selection of rows.
    rows: Reach,
}

impl Known {
    /// Union of the reaches of some columns and of the row selection.
    fn of<'n>(&self, names: impl IntoIterator<Item = &'n String>) -> Reach {
        // An undeclared column may depend on anything.
        let of = |name: &String| self.columns.get(name).cloned().unwrap_or(Reach::Unbounded);
        names.into_iter().map(of).fold(self.rows.clone(), Reach::or)
    }

    fn write<'f>(&mut self, fields: impl IntoIterator<Item = &'f Field>, reach: Reach) {
        self.columns.extend(fields.into_iter().map(|field| (field.name().clone(), reach.clone())));
    }

    fn after(&mut self, op: &Op) {
        match op {
            Op::Map(map) => self.write(&map.writes, self.of(&map.reads)),
            Op::Keep(keep) => self.rows = self.of(&keep.reads),
            Op::Expand(expand) => {
                self.rows = self.of(&expand.reads);
                self.write(&expand.writes, self.rows.clone());
            }
            Op::Project(columns) => {
                let moved = columns.iter().filter_map(|(from, to)| Some((to.clone(), self.columns.get(from)?.clone())));
                let moved: Vec<_> = moved.collect();
                self.columns.retain(|name, _| name.starts_with(PART_PREFIX));
                self.columns.extend(moved);
            }
            Op::Window(window) => {
                let of = |compute: &Compute, input: usize| self.window(window, compute, input);
                let reaches = window.plan.functions.iter().map(|function| of(&function.compute, function.input));
                let reaches: Vec<Reach> = reaches.collect();
                for (field, reach) in window.writes.iter().zip(reaches) {
                    self.write([field], reach);
                }
            }
            Op::AsOf(join) => self.write(join.columns.iter().map(|(_, field)| field), Reach::Unbounded),
            Op::Gather(_) => self.rows = Reach::Unbounded,
        }
    }

    /// Reach of a window's output.
    fn window(&self, window: &Window, compute: &Compute, input: usize) -> Reach {
        if window.backward {
            return Reach::Unbounded;
        }
        let others = match compute {
            Compute::SeasonalIndex { slot, parent, .. } => [Some(*slot), *parent],
            _ => [None, None],
        };
        let inputs = others.into_iter().flatten().chain([input]).filter_map(|input| window.reads.get(input));
        let read = self.of(window.keys.iter().chain([&window.time]).chain(inputs));
        window.plan.reach_of(compute).and(read)
    }
}
