//! Values of rows by their position, in fewer bytes than pairs of a row key and a value.

use forebay_model::{Fault, Result, StateDecoder, StateEncoder, codes};

use crate::narrow_values::{read_narrow, write_narrow};

/// Consecutive positions (see `RowKeys::position`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PositionRun {
    first: u64,
    last: u64,
}

impl PositionRun {
    fn len(self) -> usize {
        (self.last - self.first) as usize + 1
    }
}

/// Adds a run, to the last one where it continues that.
fn push_run(runs: &mut Vec<PositionRun>, next: PositionRun) {
    if let Some(run) = runs.last_mut()
        && run.last.checked_add(1) == Some(next.first)
    {
        run.last = next.last;
    } else {
        runs.push(next);
    }
}

/// Values in four bytes each while that holds all of them exactly, in eight bytes from then on.
#[derive(Debug, PartialEq)]
enum RowValues {
    Float32(Vec<f32>),
    Float64(Vec<f64>),
}

impl RowValues {
    fn len(&self) -> usize {
        match self {
            RowValues::Float32(values) => values.len(),
            RowValues::Float64(values) => values.len(),
        }
    }

    fn push(&mut self, value: f64) {
        match self {
            RowValues::Float64(values) => values.push(value),
            RowValues::Float32(values) => {
                let narrow = value as f32;
                if f64::from(narrow).to_bits() == value.to_bits() {
                    values.push(narrow);
                } else {
                    let mut wide: Vec<f64> = Vec::with_capacity(values.len() + 1);
                    wide.extend(values.iter().map(|&value| f64::from(value)));
                    wide.push(value);
                    *self = RowValues::Float64(wide);
                }
            }
        }
    }

    fn extend(&mut self, mut values: impl Iterator<Item = f64>) {
        if let RowValues::Float32(narrow_values) = self {
            let (values_min, _) = values.size_hint();
            narrow_values.reserve(values_min);
            let mut too_wide = None;
            for value in &mut values {
                let narrow = value as f32;
                if f64::from(narrow).to_bits() != value.to_bits() {
                    too_wide = Some(value);
                    break;
                }
                narrow_values.push(narrow);
            }
            let Some(value) = too_wide else {
                return;
            };
            self.push(value);
        }
        if let RowValues::Float64(wide_values) = self {
            wide_values.extend(values);
        }
    }

    fn append(&mut self, others: &RowValues) {
        match (self, others) {
            (RowValues::Float32(values), RowValues::Float32(others)) => {
                values.extend_from_slice(others);
            }
            (RowValues::Float64(values), RowValues::Float64(others)) => {
                values.extend_from_slice(others);
            }
            (values, others) => others.for_each(|value| values.push(value)),
        }
    }

    fn for_each(&self, take: impl FnMut(f64)) {
        match self {
            RowValues::Float32(values) => values.iter().copied().map(f64::from).for_each(take),
            RowValues::Float64(values) => values.iter().copied().for_each(take),
        }
    }

    fn doubles(&self) -> Vec<f64> {
        match self {
            RowValues::Float32(values) => values.iter().copied().map(f64::from).collect(),
            RowValues::Float64(values) => values.clone(),
        }
    }

    fn size_bytes(&self) -> usize {
        match self {
            RowValues::Float32(values) => values.capacity() * size_of::<f32>(),
            RowValues::Float64(values) => values.capacity() * size_of::<f64>(),
        }
    }
}

/// Rows of a sample that is not full: their positions as runs, and their values.
#[derive(Debug, PartialEq)]
pub(crate) struct WholeRows {
    runs: Vec<PositionRun>,
    /// The values of the positions of all runs.
    values: RowValues,
}

impl Default for WholeRows {
    fn default() -> Self {
        WholeRows {
            runs: Vec::new(),
            values: RowValues::Float32(Vec::new()),
        }
    }
}

impl WholeRows {
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// Adds a row. -0.0 becomes 0.0.
    pub(crate) fn push(&mut self, position: u64, value: f64) {
        let run = PositionRun {
            first: position,
            last: position,
        };
        push_run(&mut self.runs, run);
        self.values.push(value + 0.0);
    }

    /// Adds rows in bulk. -0.0 becomes 0.0.
    pub(crate) fn extend(
        &mut self,
        positions: impl Iterator<Item = u64>,
        values: impl Iterator<Item = f64>,
    ) {
        let mut current: Option<PositionRun> = None;
        for position in positions {
            if let Some(run) = &mut current
                && run.last.checked_add(1) == Some(position)
            {
                run.last = position;
                continue;
            }
            let next = PositionRun {
                first: position,
                last: position,
            };
            if let Some(run) = current.replace(next) {
                push_run(&mut self.runs, run);
            }
        }
        if let Some(run) = current {
            push_run(&mut self.runs, run);
        }
        self.values.extend(values.map(|value| value + 0.0));
    }

    pub(crate) fn append(&mut self, later_rows: &WholeRows) {
        for run in &later_rows.runs {
            push_run(&mut self.runs, *run);
        }
        self.values.append(&later_rows.values);
    }

    /// True if pairs of a key and a value may take less memory, as runs are short.
    pub(crate) fn is_scattered(&self) -> bool {
        self.runs.len() > 16 + self.len() / 2
    }

    /// Passes the position and the value of each row to `take`.
    pub(crate) fn for_each(&self, mut take: impl FnMut(u64, f64)) {
        let mut positions = self.runs.iter().flat_map(|run| run.first..=run.last);
        self.values.for_each(|value| {
            if let Some(position) = positions.next() {
                take(position, value);
            }
        });
    }

    pub(crate) fn values(&self) -> Vec<f64> {
        self.values.doubles()
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.runs.capacity() * size_of::<PositionRun>() + self.values.size_bytes()
    }

    /// The rows in the order of their positions; `None` if several have the same position.
    pub(crate) fn sorted(&self) -> Option<SortedRows> {
        let mut runs: Vec<(PositionRun, usize)> = Vec::with_capacity(self.runs.len());
        let mut first_value = 0;
        for run in &self.runs {
            runs.push((*run, first_value));
            first_value += run.len();
        }
        runs.sort_unstable_by_key(|(run, _)| run.first);
        let values = self.values.doubles();
        let mut sorted = SortedRows::default();
        for (run, first_value) in runs {
            if let Some(previous) = sorted.runs.last()
                && previous.last >= run.first
            {
                return None;
            }
            push_run(&mut sorted.runs, run);
            let run_values = &values[first_value..first_value + run.len()];
            sorted.values.extend_from_slice(run_values);
        }
        Some(sorted)
    }

    /// Reads the output of [`SortedRows::write`] of at most `rows_max` rows.
    pub(crate) fn read(input: &mut StateDecoder<'_>, rows_max: usize) -> Result<WholeRows> {
        let values = read_narrow(input, rows_max)?;
        let mut rows = WholeRows::default();
        let mut unread_rows = values.len();
        for value in values {
            rows.values.push(value);
        }
        let runs = input.length(unread_rows)?;
        let mut previous_last: u64 = 0;
        for _ in 0..runs {
            let first = previous_last.checked_add(input.varint()?);
            let first = first.ok_or_else(corrupt_runs)?;
            let further_rows = input.varint()?;
            let last = first.checked_add(further_rows).ok_or_else(corrupt_runs)?;
            if further_rows >= unread_rows as u64 {
                return Err(corrupt_runs());
            }
            unread_rows -= further_rows as usize + 1;
            rows.runs.push(PositionRun { first, last });
            previous_last = last;
        }
        if unread_rows > 0 {
            return Err(corrupt_runs());
        }
        Ok(rows)
    }
}

/// Rows in the order of their positions, then of their values.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct SortedRows {
    runs: Vec<PositionRun>,
    values: Vec<f64>,
}

impl SortedRows {
    /// Adds a row that is not before any other.
    pub(crate) fn push(&mut self, position: u64, value: f64) {
        let run = PositionRun {
            first: position,
            last: position,
        };
        push_run(&mut self.runs, run);
        self.values.push(value);
    }

    /// Writes the values, and the runs as their distances and lengths.
    pub(crate) fn write(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        write_narrow(out, &self.values)?;
        out.varint(self.runs.len() as u64)?;
        let mut previous_last = 0;
        for run in &self.runs {
            out.varint(run.first - previous_last)?;
            out.varint(run.last - run.first)?;
            previous_last = run.last;
        }
        Ok(())
    }
}

fn corrupt_runs() -> Fault {
    Fault::new(codes::CORRUPT, "a state holds other rows than values")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // Only tests are here.

    use super::*;

    fn rows_of(rows: &[(u64, f64)]) -> WholeRows {
        let mut whole = WholeRows::default();
        for (position, value) in rows {
            whole.push(*position, *value);
        }
        whole
    }

    fn pairs_of(whole: &WholeRows) -> Vec<(u64, f64)> {
        let mut pairs = Vec::new();
        whole.for_each(|position, value| pairs.push((position, value)));
        pairs
    }

    #[test]
    fn rows_come_back_in_the_order_of_positions() {
        let cases: [&[(u64, f64)]; 6] = [
            &[],
            &[(0, 1.0), (1, 2.0), (2, 0.1)],
            &[(7, 1.0), (8, 2.0), (3, 3.0), (4, 4.0), (5, 5.0), (6, 0.3)],
            &[(u64::MAX - 1, 1.0), (u64::MAX, 2.0), (0, 3.0), (1, 4.0)],
            &[(9, 1.0), (5, f64::INFINITY), (1, -1e300)],
            &[(4, 1.0), (3, -2.0), (2, 3.0)],
        ];
        for rows in cases {
            let mut expected = rows.to_vec();
            expected.sort_by_key(|(position, _)| *position);
            let sorted = rows_of(rows).sorted().unwrap();
            let mut one_by_one = SortedRows::default();
            for (position, value) in &expected {
                one_by_one.push(*position, *value);
            }
            assert_eq!(sorted, one_by_one);
            let mut bytes = Vec::new();
            sorted.write(&mut StateEncoder(&mut bytes)).unwrap();
            let mut input = &bytes[..];
            let decoded = WholeRows::read(&mut StateDecoder(&mut input), rows.len()).unwrap();
            assert!(input.is_empty());
            assert_eq!(pairs_of(&decoded), expected);
            assert_eq!(decoded.sorted().unwrap(), sorted);
        }
    }

    #[test]
    fn rows_of_one_position_are_not_sorted() {
        assert_eq!(rows_of(&[(3, 1.0), (4, 2.0), (4, 3.0)]).sorted(), None);
        assert_eq!(rows_of(&[(4, 1.0), (3, 2.0), (4, 3.0)]).sorted(), None);
    }

    #[test]
    fn appended_rows_follow_the_others() {
        let parts: [&[(u64, f64)]; 4] = [
            &[(3, 1.0), (4, 2.0)],
            &[(5, 0.1), (1, 3.0)],
            &[(9, -0.5)],
            &[(10, 1e300), (7, 4.0)],
        ];
        let mut appended = WholeRows::default();
        for part in parts {
            appended.append(&rows_of(part));
        }
        let mut extended = WholeRows::default();
        for part in parts {
            let positions = part.iter().map(|(position, _)| *position);
            extended.extend(positions, part.iter().map(|(_, value)| *value));
        }
        assert_eq!(appended, rows_of(&parts.concat()));
        assert_eq!(extended, appended);
        assert_eq!(pairs_of(&appended), parts.concat());
    }

    #[test]
    fn damaged_runs_are_faults() {
        let mut bytes = Vec::new();
        let sorted = rows_of(&[(5, 1.0), (6, 2.0), (9, 3.0)]).sorted().unwrap();
        sorted.write(&mut StateEncoder(&mut bytes)).unwrap();
        // The length of the last run is the last byte, that of the first run the third from it.
        let last = bytes.len() - 1;
        for (damaged, byte) in [(last, 1), (last - 2, 0), (last - 2, 2), (last - 4, 1)] {
            let mut bytes = bytes.clone();
            bytes[damaged] = byte;
            assert!(WholeRows::read(&mut StateDecoder(&mut &bytes[..]), 3).is_err());
        }
    }
}
