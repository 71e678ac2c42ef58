//! Rows divided by group: in memory while they fit, else in files of which each holds whole groups.

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;

use forebay_feed::{BatchFeatures, FeatureField};
use forebay_model::{Fault, Result, ScratchSpace, SpillFile, SpillWriter};

use super::encode::FeatureCounts;
use super::learn_rows::FitRows;
use super::rows::ReadRows;
use super::table::FeatureTable;
use crate::group_names::{GroupName, group_name};

/// Files that rows are divided into at most: each has a buffer of 64 KiB while it is written.
const FILES_MAX: usize = 256;

/// Rows of one group.
#[derive(Debug, Clone, Default)]
pub struct GroupRows {
    pub learn: FeatureTable,
    pub validate: FeatureTable,
}

impl GroupRows {
    /// The rows as those of one model.
    pub fn fit_rows(&self) -> FitRows<'_> {
        FitRows {
            learn: &self.learn,
            validate: &self.validate,
        }
    }
}

/// Layout of rows in a file.
#[derive(Debug, Clone, Copy)]
pub struct RowShape {
    pub numbers: usize,
    pub ids: usize,
    pub weighted: bool,
}

impl RowShape {
    /// Layout of the rows of a feed.
    pub fn new(features: &BatchFeatures) -> RowShape {
        RowShape {
            numbers: total_width(&features.dense),
            ids: total_width(&features.categorical),
            weighted: features.weight.is_some(),
        }
    }

    pub fn features(self) -> FeatureCounts {
        FeatureCounts {
            numbers: self.numbers,
            ids: self.ids,
        }
    }

    /// Bytes of a row in memory.
    pub fn bytes(self) -> u64 {
        4 * (self.numbers + self.ids + 1 + usize::from(self.weighted)) as u64
    }

    fn empty(self) -> GroupRows {
        let table = FeatureTable::new(self.numbers, self.ids);
        GroupRows {
            learn: table.clone(),
            validate: table,
        }
    }
}

/// Values per row of some features.
fn total_width(fields: &[FeatureField]) -> usize {
    fields.iter().map(|field| field.width as usize).sum()
}

/// Divides rows by group.
pub struct GroupDivider {
    shape: RowShape,
    numbers: HashMap<GroupName, u32>,
    names: Vec<GroupName>,
    /// Rows to learn from, by group.
    rows: Vec<u64>,
    held: Vec<GroupRows>,
    files: Vec<Box<dyn SpillWriter>>,
}

/// Rows of groups, in parts that are held one after another.
pub struct DividedGroups {
    shape: RowShape,
    /// Names of groups, by number.
    pub names: Vec<GroupName>,
    /// Rows to learn from, by number.
    pub rows: Vec<u64>,
    held: Vec<GroupRows>,
    files: Vec<Arc<dyn SpillFile>>,
}

impl GroupDivider {
    /// Creates a divider for rows of `bytes` bytes in all, of which `held_bytes_max` may be held in
    /// memory.
    pub fn new(
        shape: RowShape,
        bytes: u64,
        held_bytes_max: u64,
        scratch: &dyn ScratchSpace,
    ) -> Result<GroupDivider> {
        let files = match bytes.div_ceil(held_bytes_max.max(1)) {
            0 | 1 => 0,
            // Groups differ in size: twice as many files keep the larger ones below the limit, too.
            parts => (2 * parts as usize).min(FILES_MAX),
        };
        let files = (0..files)
            .map(|_| scratch.create())
            .collect::<Result<_>>()?;
        Ok(GroupDivider {
            shape,
            numbers: HashMap::new(),
            names: Vec::new(),
            rows: Vec::new(),
            held: Vec::new(),
            files,
        })
    }

    /// Adds rows to learn from, or to validate on. The first `columns` columns name their groups.
    pub fn add(&mut self, rows: &ReadRows, validate: bool, columns: usize) -> Result<()> {
        let mut last: Option<(GroupName, u32)> = None;
        for row in 0..rows.table.rows() {
            let name = group_name(&rows.groups[..columns], row);
            let number = match last.take_if(|(last_name, _)| *last_name == name) {
                Some(group) => last.insert(group).1,
                None => {
                    let number = self.number(&name);
                    last.insert((name, number)).1
                }
            };
            self.rows[number as usize] += u64::from(!validate);
            let files = self.files.len();
            if files == 0 {
                let group_rows = &mut self.held[number as usize];
                let table = if validate {
                    &mut group_rows.validate
                } else {
                    &mut group_rows.learn
                };
                table.push_row(&rows.table, row);
                continue;
            }
            let file = &mut self.files[number as usize % files];
            write_row(file.as_mut(), number, validate, &rows.table, row)
                .map_err(|error| Fault::disk("rows of groups cannot be written", error))?;
        }
        Ok(())
    }

    fn number(&mut self, name: &GroupName) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.numbers.insert(name.clone(), number);
        self.names.push(name.clone());
        self.rows.push(0);
        if self.files.is_empty() {
            self.held.push(self.shape.empty());
        }
        number
    }

    pub fn finish(self) -> Result<DividedGroups> {
        let GroupDivider {
            shape,
            names,
            rows,
            held: group_rows,
            files,
            ..
        } = self;
        let files = files
            .into_iter()
            .map(|file| file.finish())
            .collect::<Result<_>>()?;
        Ok(DividedGroups {
            shape,
            names,
            rows,
            held: group_rows,
            files,
        })
    }
}

impl DividedGroups {
    /// Number of parts.
    pub fn parts(&self) -> usize {
        self.files.len().max(1)
    }

    /// Bytes of a part, about.
    pub fn part_bytes(&self, part: usize) -> u64 {
        self.files
            .get(part)
            .map_or_else(|| self.held_bytes(), |file| file.bytes())
    }

    /// Bytes that are held in memory, about.
    pub fn held_bytes(&self) -> u64 {
        let rows = self
            .held
            .iter()
            .map(|rows| (rows.learn.rows() + rows.validate.rows()) as u64);
        rows.sum::<u64>() * self.shape.bytes()
    }

    /// The groups of a part by number, in ascending order. A part is taken once.
    pub fn take_part(&mut self, part: usize) -> Result<Vec<(u32, GroupRows)>> {
        let Some(file) = self.files.get(part) else {
            let groups = std::mem::take(&mut self.held);
            return Ok((0..).zip(groups).collect());
        };
        let failed = |error| Fault::disk("rows of groups cannot be read", error);
        let parts = self.files.len();
        let mut groups: Vec<(u32, GroupRows)> = Vec::new();
        for number in (part..self.names.len()).step_by(parts) {
            groups.push((number as u32, self.shape.empty()));
        }
        let mut input = std::io::BufReader::new(file.read()?);
        let mut row = vec![0; 4 + self.shape.bytes() as usize];
        for _ in 0..file.bytes() / row.len() as u64 {
            input.read_exact(&mut row).map_err(failed)?;
            let mut words = StoredWords(&row);
            let tag = words.next_word();
            // The lowest bit distinguishes rows to validate on (`write_row`).
            let number = tag >> 1;
            let validate = tag & 1 == 1;
            let rows = &mut groups[number as usize / parts].1;
            let table = if validate {
                &mut rows.validate
            } else {
                &mut rows.learn
            };
            for _ in 0..self.shape.numbers {
                table.dense.push(words.next_real());
            }
            for _ in 0..self.shape.ids {
                table.categories.push(words.next_word() as i32);
            }
            table.labels.push(words.next_real());
            if self.shape.weighted {
                table.weights.push(words.next_real());
            }
        }
        Ok(groups)
    }
}

fn write_row(
    file: &mut dyn SpillWriter,
    number: u32,
    validate: bool,
    table: &FeatureTable,
    row: usize,
) -> std::io::Result<()> {
    let features = table.row(row);
    file.write_all(&(number << 1 | u32::from(validate)).to_le_bytes())?;
    for value in features.dense.iter() {
        file.write_all(&value.to_bits().to_le_bytes())?;
    }
    for id in features.categories.iter() {
        file.write_all(&id.to_le_bytes())?;
    }
    file.write_all(&table.labels[row].to_bits().to_le_bytes())?;
    table.weights.get(row).map_or(Ok(()), |weight| {
        file.write_all(&weight.to_bits().to_le_bytes())
    })
}

/// The words of a stored row that are not read yet.
struct StoredWords<'b>(&'b [u8]);

impl StoredWords<'_> {
    fn next_word(&mut self) -> u32 {
        let (word, tail) = self.0.split_first_chunk().unwrap_or((&[0; 4], &[]));
        self.0 = tail;
        u32::from_le_bytes(*word)
    }

    fn next_real(&mut self) -> f32 {
        f32::from_bits(self.next_word())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, StringArray};
    use forebay_feed::LoadCounts;
    use forebay_model::MemoryScratch;

    use super::*;

    fn read(first: usize, rows: usize, weighted: bool) -> ReadRows {
        let mut table = FeatureTable::new(2, 1);
        let mut names = Vec::new();
        for row in first..first + rows {
            let value = row as f32;
            table
                .dense
                .extend([value / 3.0, if row % 5 == 0 { f32::NAN } else { -value }]);
            table.categories.push(row as i32 % 7 - 1);
            table.labels.push(value * 2.0);
            if weighted {
                table.weights.push(value + 0.5);
            }
            names.push(if row % 11 == 0 {
                None
            } else {
                Some(format!("group {}", row % 11 % 4))
            });
        }
        ReadRows {
            table,
            classes: None,
            groups: vec![Arc::new(StringArray::from(names)) as ArrayRef],
            counts: LoadCounts::default(),
        }
    }

    /// All groups by name, with the bits of their rows.
    fn divided(held_bytes_max: u64, weighted: bool) -> (usize, Vec<(GroupName, u64, String)>) {
        let shape = RowShape {
            numbers: 2,
            ids: 1,
            weighted,
        };
        let scratch = MemoryScratch::default();
        let mut divider =
            GroupDivider::new(shape, 1200 * shape.bytes(), held_bytes_max, &scratch).unwrap();
        for (first, validate) in [(0, false), (300, true), (600, false), (900, true)] {
            divider
                .add(&read(first, 300, weighted), validate, 1)
                .unwrap();
        }
        let mut groups = divider.finish().unwrap();
        let mut all = Vec::new();
        for part in 0..groups.parts() {
            for (number, rows) in groups.take_part(part).unwrap() {
                let number = number as usize;
                assert_eq!(rows.learn.rows() as u64, groups.rows[number]);
                all.push((
                    groups.names[number].clone(),
                    groups.rows[number],
                    format!("{rows:?}"),
                ));
            }
        }
        all.sort();
        (groups.parts(), all)
    }

    #[test]
    fn groups_are_the_same_in_memory_and_in_files() {
        for weighted in [false, true] {
            let (parts, held) = divided(u64::MAX, weighted);
            assert_eq!((parts, held.len()), (1, 5));
            assert!(held.iter().all(|(_, rows, _)| *rows > 50) && held[0].0 == [None]);
            for bytes in [10_000, 2000, 1] {
                let (parts, in_files) = divided(bytes, weighted);
                assert!(parts > 1 && parts <= FILES_MAX);
                assert!(in_files == held, "{parts} files hold other groups");
            }
        }
    }
}
