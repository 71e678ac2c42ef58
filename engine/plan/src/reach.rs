//! How far back lie the rows that decide what a column holds: a change further back leaves it as it is.

use std::collections::BTreeMap;

use arrow::datatypes::Field;
use forebay_window::{Compute, Reach};

use crate::split::PART_PREFIX;
use crate::{Bound, Op, Stream, Want, Window};

/// How far back the rows reach that decide each of the wanted columns, and which rows there are, in ticks of the
/// windows' time; `None` where nothing but the row itself does. `needed` are the operations that are done.
pub fn reaches(bound: &Bound, stream: &Stream, needed: &[usize], want: &Want) -> Vec<Option<Reach>> {
    let base = bound.base_schemas[stream.base].fields().iter();
    let mut known = Known { columns: base.map(|field| (field.name().clone(), None)).collect(), rows: None };
    for position in needed.iter().filter(|position| **position < want.after) {
        known.after(&bound.ops[stream.ops[*position]].op);
    }
    if let Some(part) = &want.part {
        known.rows = known.of([part]);
    }
    want.columns.iter().map(|column| known.of([column])).collect()
}

/// What is known between two operations.
struct Known {
    columns: BTreeMap<String, Option<Reach>>,
    /// What decides which rows there are.
    rows: Option<Reach>,
}

impl Known {
    /// What decides some columns.
    fn of<'n>(&self, names: impl IntoIterator<Item = &'n String>) -> Option<Reach> {
        // What nobody declared is made of who knows what.
        let of = |name: &String| self.columns.get(name).copied().unwrap_or(Some(Reach::Unbounded));
        let further = |one: Option<Reach>, other: Option<Reach>| match (one, other) {
            (Some(one), Some(other)) => Some(one.or_further(other)),
            _ => one.or(other),
        };
        names.into_iter().map(of).fold(self.rows, further)
    }

    fn write<'f>(&mut self, fields: impl IntoIterator<Item = &'f Field>, reach: Option<Reach>) {
        self.columns.extend(fields.into_iter().map(|field| (field.name().clone(), reach)));
    }

    fn after(&mut self, op: &Op) {
        match op {
            Op::Map(map) => self.write(&map.writes, self.of(&map.reads)),
            Op::Keep(keep) => self.rows = self.of(&keep.reads),
            Op::Expand(expand) => {
                self.rows = self.of(&expand.reads);
                self.write(&expand.writes, self.rows);
            }
            Op::Project(columns) => {
                let moved = columns.iter().filter_map(|(from, to)| Some((to.clone(), *self.columns.get(from)?)));
                let moved: Vec<_> = moved.collect();
                self.columns.retain(|name, _| name.starts_with(PART_PREFIX));
                self.columns.extend(moved);
            }
            Op::Window(window) => {
                let of = |compute: &Compute, input: usize| self.window(window, compute, input);
                let reaches = window.plan.functions.iter().map(|function| of(&function.compute, function.input));
                let reaches: Vec<Reach> = reaches.collect();
                for (field, reach) in window.writes.iter().zip(reaches) {
                    self.write([field], Some(reach));
                }
            }
            Op::AsOf(join) => self.write(join.columns.iter().map(|(_, field)| field), Some(Reach::Unbounded)),
            Op::Gather(_) => self.rows = Some(Reach::Unbounded),
        }
    }

    /// What decides an output of a window.
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
        window.plan.reach_of(compute).and(read.unwrap_or(Reach::Ticks(0)))
    }
}
