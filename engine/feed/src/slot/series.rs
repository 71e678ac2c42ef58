//! Sequences: each row with the rows before it in its series.
//!
//! The rows of a block are packed once, series by series in order of time, so that the steps of any row
//! lie side by side: a sequence is one copy for each part, made when its batch is filled.

use std::collections::HashMap;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use arrow::row::{RowConverter, SortField};
use bytemuck::{cast_slice, cast_slice_mut};
use forebay_model::{Fault, Result, canonical_keys, codes, logical_type};

use super::cast::{NonFiniteCounts, PackedColumns};
use super::features::{BatchFeatures, SequenceOptions};
use super::layout::BatchLayout;
use super::slot_packer::{NO_ROW, TILE_ROWS, TilePacker};

/// Packs whole blocks for sequences.
#[derive(Debug, Clone)]
pub(crate) struct SeriesPacker {
    series: SequenceOptions,
    /// Single steps.
    features: BatchFeatures,
}

/// The rows of a block, series by series.
#[derive(Debug)]
pub(crate) struct SeriesSteps {
    layout: BatchLayout,
    packed: Vec<u64>,
    /// The most that a row comes with, itself included.
    count: usize,
    /// For each row, the first one that its steps may reach.
    first: Vec<u32>,
    /// Where the delivered rows are, in the order of the block.
    delivered: Vec<u32>,
    /// What was found in all of them.
    pub found: NonFiniteCounts,
}

/// Which rows belong together.
struct SeriesArrangement {
    /// Where each row goes.
    places: Vec<u32>,
    /// See [`SeriesSteps::first`].
    first: Vec<u32>,
}

impl SeriesSteps {
    /// Rows that are delivered.
    pub fn rows(&self) -> u64 {
        self.delivered.len() as u64
    }

    /// Writes the steps up to a delivered row, after as many empty ones as are missing.
    pub fn write_steps(&self, row: usize, layout: &BatchLayout, slot: &mut [u8], slot_row: usize) {
        let last = self.delivered[row] as usize;
        let first = (last + 1)
            .saturating_sub(self.count)
            .max(self.first[last] as usize);
        let packed: &[u8] = cast_slice(&self.packed);
        for (part, own) in layout.parts.iter().zip(&self.layout.parts) {
            let to = &mut slot[part.offset + slot_row * part.row_bytes..][..part.row_bytes];
            let first = if part.has_steps() { first } else { last };
            let steps = &packed[own.offset..][first * own.row_bytes..(last + 1) * own.row_bytes];
            let (missing, there) = to.split_at_mut(to.len() - steps.len());
            missing.fill(0);
            there.copy_from_slice(steps);
        }
    }
}

impl SeriesPacker {
    /// The packer, where the features ask for sequences.
    pub fn new(features: &BatchFeatures) -> Option<SeriesPacker> {
        let series = features.series.clone()?;
        Some(SeriesPacker {
            series,
            features: BatchFeatures {
                series: None,
                ..features.clone()
            },
        })
    }

    /// Packs all rows of a block, of which `halo` are not delivered.
    pub fn pack_block(&self, batches: &[RecordBatch], halo: u64) -> Result<SeriesSteps> {
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        if rows > NO_ROW as usize {
            return Err(Fault::new(
                codes::LIMIT,
                format!("a block of {rows} rows is too long for series"),
            ));
        }
        let layout = BatchLayout::with_mask(&self.features, rows.max(1), true)?;
        let mut columns = Vec::with_capacity(batches.len());
        let mut first_row = 0;
        for batch in batches {
            columns.push(PackedColumns::new(
                &self.features,
                &layout,
                batch,
                first_row,
            )?);
            first_row += batch.num_rows() as u64;
        }
        let SeriesArrangement { places, first } = self.arrange(&columns, rows)?;
        let mut packed = vec![0_u64; layout.bytes / size_of::<u64>()];
        let packer = TilePacker::new(self.features.clone(), layout);
        let mut found = NonFiniteCounts::default();
        let mut tile = vec![0_u64; packer.tile_bytes() / size_of::<u64>()];
        let mut to = places.as_slice();
        for columns in &columns {
            found += columns.found;
            let moving = packer.part_columns(columns);
            for row in (0..columns.rows).step_by(TILE_ROWS) {
                let count = TILE_ROWS.min(columns.rows - row);
                packer.store(
                    &moving,
                    row..row + count,
                    cast_slice_mut(&mut tile),
                    0,
                    false,
                );
                let mut rows = [NO_ROW; TILE_ROWS];
                rows[..count].copy_from_slice(&to[..count]);
                to = &to[count..];
                packer.scatter(cast_slice(&tile), &rows, cast_slice_mut(&mut packed));
            }
        }
        let delivered = self.delivered_rows(&columns, &places, halo)?;
        let count = self.series.steps as usize;
        Ok(SeriesSteps {
            layout: packer.layout,
            packed,
            count,
            first,
            delivered,
            found,
        })
    }

    /// Where the rows go that are delivered.
    fn delivered_rows(
        &self,
        columns: &[PackedColumns],
        places: &[u32],
        halo: u64,
    ) -> Result<Vec<u32>> {
        if self.series.delivered.is_none() {
            return Ok(places.get(halo as usize..).unwrap_or(&[]).to_vec());
        }
        let (mut delivered, mut to) = (Vec::new(), places);
        for columns in columns {
            let flags = columns
                .others
                .last()
                .and_then(|flags| flags.as_boolean_opt());
            let flags: &BooleanArray =
                flags.ok_or_else(|| Fault::internal("rows without a word of who is delivered"))?;
            let (own, rest) = to.split_at(columns.rows);
            delivered.extend(
                own.iter()
                    .zip(flags)
                    .filter(|(_, flag)| *flag == Some(true))
                    .map(|(place, _)| *place),
            );
            to = rest;
        }
        Ok(delivered)
    }

    fn arrange(&self, columns: &[PackedColumns], rows: usize) -> Result<SeriesArrangement> {
        let groups = self.groups(columns, rows)?;
        let times = self.times(columns)?;
        let count = groups.iter().max().map_or(0, |last| *last as usize + 1);
        let mut starts = vec![0_u32; count + 1];
        groups
            .iter()
            .for_each(|group| starts[*group as usize + 1] += 1);
        (0..count).for_each(|group| starts[group + 1] += starts[group]);
        let mut order = vec![0_u32; rows];
        let mut next = starts.clone();
        for (row, group) in (0..).zip(&groups) {
            let place = &mut next[*group as usize];
            order[*place as usize] = row;
            *place += 1;
        }
        let mut first = vec![0_u32; rows];
        for series in starts.windows(2) {
            let (start, end) = (series[0] as usize, series[1] as usize);
            let order = &mut order[start..end];
            let Some(times) = &times else {
                first[start..end].fill(series[0]);
                continue;
            };
            let time = |row: &u32| times[*row as usize];
            if !order.is_sorted_by_key(time) {
                order.sort_by_key(time);
            }
            let mut reach = 0;
            for (row, first) in order.iter().zip(&mut first[start..end]) {
                while self
                    .series
                    .within
                    .is_some_and(|within| time(&order[reach]) < time(row).saturating_sub(within))
                {
                    reach += 1;
                }
                *first = (start + reach) as u32;
            }
        }
        let mut places = vec![0; rows];
        (0..)
            .zip(&order)
            .for_each(|(place, row)| places[*row as usize] = place);
        Ok(SeriesArrangement { places, first })
    }

    /// The number of each row's series, in order of appearance.
    fn groups(&self, columns: &[PackedColumns], rows: usize) -> Result<Vec<u32>> {
        let mut groups = Vec::with_capacity(rows);
        let keys = self.series.keys.len();
        let types = columns
            .first()
            .map_or(&[][..], |columns| &columns.others[..keys]);
        if types.is_empty() {
            return Ok(vec![0; rows]);
        }
        let fields = types
            .iter()
            .map(|key| SortField::new(logical_type(key.data_type())))
            .collect();
        let converter = RowConverter::new(fields)?;
        let mut known: HashMap<Box<[u8]>, u32> = HashMap::new();
        for columns in columns {
            let plain = columns.others[..keys]
                .iter()
                .map(|key| canonical_keys(&cast(key, &logical_type(key.data_type()))?));
            let found = converter.convert_columns(&plain.collect::<Result<Vec<ArrayRef>>>()?)?;
            let mut last: Option<(&[u8], u32)> = None;
            for row in &found {
                let key = row.data();
                let group = match last.filter(|(known, _)| *known == key) {
                    Some((_, group)) => group,
                    None => match known.get(key) {
                        Some(group) => *group,
                        None => {
                            let group = known.len() as u32;
                            known.insert(key.into(), group);
                            group
                        }
                    },
                };
                last = Some((key, group));
                groups.push(group);
            }
        }
        Ok(groups)
    }

    /// The times of all rows.
    fn times(&self, columns: &[PackedColumns]) -> Result<Option<Vec<i64>>> {
        let Some(name) = &self.series.time else {
            return Ok(None);
        };
        let mut times = Vec::new();
        for columns in columns {
            let column = &columns.others[self.series.keys.len()];
            let missing = column
                .logical_nulls()
                .filter(|nulls| nulls.null_count() > 0);
            if let Some(nulls) = missing {
                let rows = nulls
                    .iter()
                    .zip(times.len() as u64..)
                    .filter(|(there, _)| !there)
                    .map(|(_, row)| row);
                let message = format!("{} rows have no time in `{name}`", nulls.null_count());
                return Err(Fault::new(codes::BAD_ROW, message)
                    .column(name)
                    .rows(rows.collect::<Vec<_>>())
                    .hint("filter such rows: a sequence is in order of time"));
            }
            times.extend_from_slice(ticks(column)?.as_primitive::<Int64Type>().values());
        }
        Ok(Some(times))
    }
}

/// Times in their own ticks.
fn ticks(times: &ArrayRef) -> Result<ArrayRef> {
    match times.data_type() {
        DataType::Date32 => Ok(cast(&cast(times, &DataType::Int32)?, &DataType::Int64)?),
        _ => Ok(cast(times, &DataType::Int64)?),
    }
}
