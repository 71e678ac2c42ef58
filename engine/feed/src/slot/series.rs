//! Sequences: each row with the rows before it in its series.
//!
//! The rows of a block are packed once, series by series in order of time, so that the steps of any row
//! lie side by side: a sequence is one copy for each part, made when its batch is filled.

use std::collections::HashMap;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::{cast, filter_record_batch};
use arrow::row::{RowConverter, SortField};
use bytemuck::{cast_slice, cast_slice_mut};
use forebay_model::{DuplicateRows, Fault, Result, canonical_keys, codes, logical_type, ticks};

use super::cast::{PackedColumns, ValueCounts};
use super::features::{BatchFeatures, FeatureField, SequenceOptions};
use super::layout::BatchLayout;
use super::numeric_values::filled_values;
use super::series_duplicates::SeriesDuplicates;
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
    /// Most rows of a sequence, the row itself included.
    count: usize,
    /// For each row, the first one that its steps may reach.
    first: Vec<u32>,
    /// Positions of the delivered rows, in the order of the block.
    delivered: Vec<u32>,
    /// Counts of values that are not finite in all rows, and of the others in delivered rows.
    pub found: ValueCounts,
    /// Missing values of delivered rows that were filled, by feature.
    pub filled: Vec<u64>,
}

/// Order of the rows of a block by series.
struct SeriesArrangement {
    /// The position of each row, in the order of series.
    positions: Vec<u32>,
    /// For each position, the first one that its steps may reach.
    first: Vec<u32>,
    /// The row at each position.
    order: Vec<u32>,
    /// For each position, true if its row has the keys and the time of the row before. Empty without times.
    repeats: Vec<bool>,
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
        for (part, packed_part) in layout.parts.iter().zip(&self.layout.parts) {
            let to = &mut slot[part.offset + slot_row * part.row_bytes..][..part.row_bytes];
            let first = if part.has_steps() { first } else { last };
            let steps = &packed[packed_part.offset..]
                [first * packed_part.row_bytes..(last + 1) * packed_part.row_bytes];
            let (missing, present) = to.split_at_mut(to.len() - steps.len());
            missing.fill(0);
            present.copy_from_slice(steps);
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
            let message = format!("a block of {rows} rows is too long for series");
            return Err(Fault::new(codes::LIMIT, message));
        }
        let layout = BatchLayout::with_mask(&self.features, rows.max(1), true)?;
        let mut columns = Vec::with_capacity(batches.len());
        let mut first_row = 0;
        for batch in batches {
            let packed = PackedColumns::new(&self.features, &layout, batch, first_row)?;
            columns.push(packed);
            first_row += batch.num_rows() as u64;
        }
        let arrangement = self.arrange(&columns, rows)?;
        let positions = &arrangement.positions;
        let mut packed = vec![0_u64; layout.bytes / size_of::<u64>()];
        let packer = TilePacker::new(self.features.clone(), layout);
        let mut non_finite = ValueCounts::default();
        let mut tile = vec![0_u64; packer.tile_bytes() / size_of::<u64>()];
        let mut targets = positions.as_slice();
        for columns in &columns {
            non_finite += columns.found;
            let part_columns = packer.part_columns(columns);
            // The rows of a tile go to their positions by way of the packer, as those of batches do.
            for row in (0..columns.rows).step_by(TILE_ROWS) {
                let count = TILE_ROWS.min(columns.rows - row);
                let tile_bytes: &mut [u8] = cast_slice_mut(&mut tile);
                packer.store(&part_columns, row..row + count, tile_bytes, 0, false);
                let mut rows = [NO_ROW; TILE_ROWS];
                rows[..count].copy_from_slice(&targets[..count]);
                targets = &targets[count..];
                packer.scatter(tile_bytes, &rows, cast_slice_mut(&mut packed));
            }
        }
        let delivered = self.delivered_rows(&columns, positions, halo)?;
        let duplicates = SeriesDuplicates {
            series: &self.series,
            columns: &columns,
            order: &arrangement.order,
            repeats: &arrangement.repeats,
        };
        let mut counts = non_finite;
        counts.duplicates = duplicates.count(&delivered)?;
        let filled = self.filled_values(batches, &columns, halo)?;
        counts.filled = filled.iter().sum();
        let count = self.series.steps as usize;
        Ok(SeriesSteps {
            layout: packer.layout,
            packed,
            count,
            first: arrangement.first,
            delivered,
            found: counts,
            filled,
        })
    }

    /// Missing values of delivered rows that are filled, by feature.
    fn filled_values(
        &self,
        batches: &[RecordBatch],
        columns: &[PackedColumns],
        halo: u64,
    ) -> Result<Vec<u64>> {
        let features = &self.features;
        let fields = features.dense.iter().chain(&features.categorical);
        let fields: Vec<&FeatureField> = fields
            .chain(&features.label)
            .chain(&features.weight)
            .collect();
        let mut filled = vec![0; fields.len()];
        let mut first_row = 0;
        for (batch, packed) in batches.iter().zip(columns) {
            let halo_rows = (halo as usize).saturating_sub(first_row);
            first_row += batch.num_rows();
            if packed.filled.iter().all(|count| *count == 0) {
                continue;
            }
            let delivered = if self.series.delivered.is_some() {
                filter_record_batch(batch, delivered_flags(packed)?)?
            } else {
                let skipped = halo_rows.min(batch.num_rows());
                batch.slice(skipped, batch.num_rows() - skipped)
            };
            for ((sum, field), array) in filled.iter_mut().zip(&fields).zip(delivered.columns()) {
                *sum += filled_values(field, array)?;
            }
        }
        Ok(filled)
    }

    /// Positions of the rows that are delivered.
    fn delivered_rows(
        &self,
        columns: &[PackedColumns],
        positions: &[u32],
        halo: u64,
    ) -> Result<Vec<u32>> {
        if self.series.delivered.is_none() {
            return Ok(positions.get(halo as usize..).unwrap_or(&[]).to_vec());
        }
        let mut delivered = Vec::new();
        let mut first_row = 0;
        for columns in columns {
            for (row, flag) in delivered_flags(columns)?.iter().enumerate() {
                if flag == Some(true) {
                    delivered.push(positions[first_row + row]);
                }
            }
            first_row += columns.rows;
        }
        Ok(delivered)
    }

    fn arrange(&self, columns: &[PackedColumns], rows: usize) -> Result<SeriesArrangement> {
        let groups = self.groups(columns, rows)?;
        let times = self.times(columns)?;
        let count = groups.iter().max().map_or(0, |last| *last as usize + 1);
        let mut starts = vec![0_u32; count + 1];
        // A counting sort by series: it is stable, so that rows of a series keep their order.
        for group in &groups {
            starts[*group as usize + 1] += 1;
        }
        for group in 0..count {
            starts[group + 1] += starts[group];
        }
        let mut order = vec![0_u32; rows];
        let mut next = starts.clone();
        for (row, group) in (0..).zip(&groups) {
            let position = &mut next[*group as usize];
            order[*position as usize] = row;
            *position += 1;
        }
        let mut first = vec![0_u32; rows];
        let mut repeats = Vec::new();
        if times.is_some() && self.series.duplicates != DuplicateRows::Allow {
            repeats.resize(rows, false);
        }
        for series in starts.windows(2) {
            let start = series[0] as usize;
            let end = series[1] as usize;
            let order = &mut order[start..end];
            let Some(times) = &times else {
                first[start..end].fill(series[0]);
                continue;
            };
            let time = |row: &u32| times[*row as usize];
            if !order.is_sorted_by_key(time) {
                order.sort_by_key(time);
            }
            if let Some(repeats) = repeats.get_mut(start..end) {
                for (pair, repeats) in order.windows(2).zip(repeats.iter_mut().skip(1)) {
                    *repeats = time(&pair[0]) == time(&pair[1]);
                }
            }
            // Times ascend: the first row within reach only moves forward.
            let mut reach = 0;
            for (row, first) in order.iter().zip(&mut first[start..end]) {
                if let Some(within) = self.series.within {
                    let earliest = time(row).saturating_sub(within);
                    while time(&order[reach]) < earliest {
                        reach += 1;
                    }
                }
                *first = (start + reach) as u32;
            }
        }
        let mut positions = vec![0; rows];
        for (position, row) in (0..).zip(&order) {
            positions[*row as usize] = position;
        }
        Ok(SeriesArrangement {
            positions,
            first,
            order,
            repeats,
        })
    }

    /// The number of each row's series, in order of appearance.
    fn groups(&self, columns: &[PackedColumns], rows: usize) -> Result<Vec<u32>> {
        let mut groups = Vec::with_capacity(rows);
        let keys = self.series.keys.len();
        let first_keys = match columns.first() {
            Some(columns) => &columns.others[..keys],
            None => &[],
        };
        // Without keys all rows are one series.
        if first_keys.is_empty() {
            return Ok(vec![0; rows]);
        }
        let mut fields = Vec::with_capacity(keys);
        for key in first_keys {
            fields.push(SortField::new(logical_type(key.data_type())));
        }
        let converter = RowConverter::new(fields)?;
        let mut group_of: HashMap<Box<[u8]>, u32> = HashMap::new();
        for columns in columns {
            let mut plain: Vec<ArrayRef> = Vec::with_capacity(keys);
            for key in &columns.others[..keys] {
                let logical = cast(key, &logical_type(key.data_type()))?;
                plain.push(canonical_keys(&logical)?);
            }
            let encoded = converter.convert_columns(&plain)?;
            let mut last: Option<(&[u8], u32)> = None;
            for row in &encoded {
                let key = row.data();
                // Rows of one series often follow each other and need no look into the table.
                let group = match last {
                    Some((last_key, group)) if last_key == key => group,
                    _ => match group_of.get(key) {
                        Some(group) => *group,
                        None => {
                            let group = group_of.len() as u32;
                            group_of.insert(key.into(), group);
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
                let mut rows = Vec::new();
                for (row, is_valid) in (times.len() as u64..).zip(nulls.iter()) {
                    if !is_valid {
                        rows.push(row);
                    }
                }
                let message = format!("{} rows have no time in `{name}`", nulls.null_count());
                let fault = Fault::new(codes::BAD_ROW, message);
                return Err(fault
                    .column(name)
                    .rows(rows)
                    .hint("filter such rows: a sequence is in order of time"));
            }
            times.extend_from_slice(ticks(column)?.values());
        }
        Ok(Some(times))
    }
}

/// Flags of the delivered rows: the last of the columns behind the features.
fn delivered_flags(columns: &PackedColumns) -> Result<&BooleanArray> {
    let flags = columns.others.last();
    let flags = flags.and_then(|flags| flags.as_boolean_opt());
    flags.ok_or_else(|| Fault::internal("rows without flags of delivered ones"))
}
