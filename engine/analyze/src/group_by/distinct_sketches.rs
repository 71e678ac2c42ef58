//! Approximate numbers of distinct values.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BinaryBuilder, Float64Array};
use arrow::datatypes::{DataType, Float64Type};
use forebay_model::{GroupFunction, Result};
use xxhash_rust::xxh3::xxh3_64;

use super::accumulator::{
    Accumulator, GroupedRows, ValueColumn, counted, doubles, encoded_state_column, for_each_value,
    foreign_states,
};
use super::extremes::ValueBytes;
use super::ordered_bits::{has_ordered_bits, to_ordered_bits};
use crate::hyperloglog::{RegisterRank, estimate};

/// A full sketch has `2^PRECISION` registers. The standard error is `1.04 / sqrt(2^PRECISION)`, 1.63 %.
const PRECISION: u32 = 12;
const REGISTERS: usize = 1 << PRECISION;

/// The greatest rank of a register.
const RANK_MAX: u8 = 65 - PRECISION as u8;

/// The precision of the entries of a small sketch. With its rank, at most 39, an entry has 32 bits.
const FINE_PRECISION: u32 = 26;
const RANK_BITS: u32 = 32 - FINE_PRECISION;

/// Entries of a small sketch at most: it takes less memory than a full one.
const ENTRIES_MAX: usize = REGISTERS / size_of::<u32>() - 1;

/// A HyperLogLog sketch of the values of each group, as that of
/// [`DistinctCount`](crate::DistinctCount) of another precision.
///
/// A group with few values holds their registers of a precision of 26 bits as a sorted list, as in Heule, Nunkesser and
/// Hall, "HyperLogLog in Practice" (EDBT 2013). Up to 1,023 values are therefore counted exactly, unless two of them
/// share a register of `2^26`. A sketch is full if it has more such registers, however they were added: its form depends
/// on the values alone.
pub(super) struct DistinctSketches {
    hashes: ValueHashes,
    sketches: Vec<Sketch>,
    heap_bytes: usize,
}

enum Sketch {
    /// Registers and their ranks, ascending.
    Small(Vec<u32>),
    /// The rank of each register.
    Full(Box<[u8]>),
}

/// Hashes of values; equal values have equal hashes in all layouts of a type.
enum ValueHashes {
    Doubles,
    Bits,
    Bytes(ValueBytes),
}

fn fine_entry(hash: u64) -> u32 {
    let RegisterRank { register, rank } = RegisterRank::of(hash, FINE_PRECISION);
    (register as u32) << RANK_BITS | u32::from(rank)
}

/// The register of a full sketch that an entry belongs to.
fn coarse(entry: u32) -> RegisterRank {
    let rank = (entry & ((1 << RANK_BITS) - 1)) as u8;
    let fine = entry >> RANK_BITS;
    let extra_bits = FINE_PRECISION - PRECISION;
    let register = (fine >> extra_bits) as usize;
    // The bits that the coarse register does not use count for its rank: the zeros before their first one.
    let low_bits = fine & ((1 << extra_bits) - 1);
    let rank = if low_bits == 0 {
        rank + extra_bits as u8
    } else {
        (low_bits << (u32::BITS - extra_bits)).leading_zeros() as u8 + 1
    };
    RegisterRank { register, rank }
}

impl Sketch {
    fn add(&mut self, hash: u64) {
        match self {
            Sketch::Small(_) => self.add_entry(fine_entry(hash)),
            Sketch::Full(ranks) => raise(ranks, &RegisterRank::of(hash, PRECISION)),
        }
    }

    fn add_entry(&mut self, entry: u32) {
        match self {
            Sketch::Full(ranks) => raise(ranks, &coarse(entry)),
            Sketch::Small(entries) => {
                let register = entry >> RANK_BITS;
                let position = entries.partition_point(|other| other >> RANK_BITS < register);
                match entries.get_mut(position) {
                    Some(existing) if *existing >> RANK_BITS == register => {
                        *existing = entry.max(*existing)
                    }
                    _ => entries.insert(position, entry),
                }
                // One entry too many: all of them move to registers.
                if entries.len() > ENTRIES_MAX {
                    let entries = std::mem::take(entries);
                    *self = Sketch::Full(vec![0; REGISTERS].into());
                    for entry in entries {
                        self.add_entry(entry);
                    }
                }
            }
        }
    }

    /// Merges a sketch that [`Sketch::write`] wrote.
    fn merge(&mut self, bytes: &[u8]) -> Result<()> {
        // Fewer bytes than registers are the entries of a small sketch.
        if bytes.len() < REGISTERS {
            let (entries, []) = bytes.as_chunks::<4>() else {
                return Err(foreign_states());
            };
            for entry in entries {
                self.add_entry(u32::from_le_bytes(*entry));
            }
            return Ok(());
        }
        if bytes.len() > REGISTERS || bytes.iter().any(|rank| *rank > RANK_MAX) {
            return Err(foreign_states());
        }
        // A small sketch takes over the registers of the full one and adds its entries to them.
        if let Sketch::Small(entries) = self {
            let entries = std::mem::take(entries);
            *self = Sketch::Full(bytes.into());
            for entry in entries {
                self.add_entry(entry);
            }
        } else if let Sketch::Full(ranks) = self {
            for (rank, other_rank) in ranks.iter_mut().zip(bytes) {
                *rank = (*rank).max(*other_rank);
            }
        }
        Ok(())
    }

    /// Appends the entries or the ranks: the number of bytes differs.
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Sketch::Small(entries) => {
                for entry in entries {
                    out.extend_from_slice(&entry.to_le_bytes());
                }
            }
            Sketch::Full(ranks) => out.extend_from_slice(ranks),
        }
    }

    fn estimate(&self) -> u64 {
        match self {
            Sketch::Small(entries) => entries.len() as u64,
            Sketch::Full(ranks) => estimate(ranks).round() as u64,
        }
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Sketch::Small(entries) => entries.capacity() * size_of::<u32>(),
            Sketch::Full(ranks) => ranks.len(),
        }
    }
}

fn raise(ranks: &mut [u8], by: &RegisterRank) {
    ranks[by.register] = ranks[by.register].max(by.rank);
}

impl ValueHashes {
    /// Calls `take` with the group of each value and its hash.
    fn for_each(
        &self,
        groups: &[u32],
        column: &ValueColumn,
        mut take: impl FnMut(usize, u64),
    ) -> Result<()> {
        let array = column.array()?;
        let valid = column.valid.as_ref();
        match self {
            ValueHashes::Doubles => {
                // Both zeros are 0.0.
                let values: Float64Array =
                    doubles(array)?.unary::<_, Float64Type>(|value| value + 0.0);
                let values = values.values();
                for_each_value(groups, valid, |row, group| {
                    take(group, xxh3_64(&values[row].to_le_bytes()))
                });
            }
            ValueHashes::Bits => {
                let bits = to_ordered_bits(array)?;
                let bits = bits.values();
                for_each_value(groups, valid, |row, group| {
                    take(group, xxh3_64(&bits[row].to_le_bytes()))
                });
            }
            ValueHashes::Bytes(encoding) => match array.as_string_opt::<i32>() {
                Some(texts) => {
                    for_each_value(groups, valid, |row, group| {
                        take(group, xxh3_64(texts.value(row).as_bytes()))
                    });
                }
                None => {
                    let rows = encoding.encode(array)?;
                    for_each_value(groups, valid, |row, group| {
                        take(group, xxh3_64(rows.row(row).data()))
                    });
                }
            },
        }
        Ok(())
    }
}

impl DistinctSketches {
    pub(super) fn new(data_type: &DataType) -> Result<Self> {
        let hashes = match data_type {
            floats if floats.is_floating() => ValueHashes::Doubles,
            bits if has_ordered_bits(bits) => ValueHashes::Bits,
            other => ValueHashes::Bytes(ValueBytes::new(other)?),
        };
        Ok(DistinctSketches {
            hashes,
            sketches: Vec::new(),
            heap_bytes: 0,
        })
    }
}

impl Accumulator for DistinctSketches {
    fn resize(&mut self, groups: usize) {
        self.sketches
            .resize_with(groups, || Sketch::Small(Vec::new()));
    }

    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()> {
        let DistinctSketches {
            hashes,
            sketches,
            heap_bytes,
        } = self;
        hashes.for_each(rows.groups, rows.value()?, |group, hash| {
            let sketch = &mut sketches[group];
            let bytes_before = sketch.heap_bytes();
            sketch.add(hash);
            *heap_bytes = *heap_bytes + sketch.heap_bytes() - bytes_before;
        })
    }

    fn states(&self, order: &[u32]) -> Result<Vec<ArrayRef>> {
        let mut states = BinaryBuilder::new();
        let mut bytes = Vec::new();
        for group in order {
            bytes.clear();
            self.sketches[*group as usize].write(&mut bytes);
            states.append_value(&bytes);
        }
        Ok(vec![Arc::new(states.finish())])
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef], _: u64) -> Result<usize> {
        let states = encoded_state_column(states, 0)?;
        for (row, group) in groups.iter().enumerate() {
            let sketch = &mut self.sketches[*group as usize];
            let bytes_before = sketch.heap_bytes();
            sketch.merge(states.value(row))?;
            self.heap_bytes = self.heap_bytes + sketch.heap_bytes() - bytes_before;
        }
        Ok(1)
    }

    fn results(&self, _: GroupFunction, order: &[u32]) -> Result<ArrayRef> {
        let sketches = order.iter().map(|group| &self.sketches[*group as usize]);
        Ok(counted(sketches.map(Sketch::estimate)))
    }

    fn bytes(&self) -> usize {
        self.sketches.capacity() * size_of::<Sketch>() + self.heap_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_a_sketch_depends_on_its_values_alone() {
        let hash = |value: u64| xxh3_64(&value.to_le_bytes());
        for values in [
            0,
            1,
            900,
            1_022,
            1_023,
            1_024,
            1_025,
            1_500,
            5_000,
            100_000_u64,
        ] {
            let whole = {
                let mut sketch = Sketch::Small(Vec::new());
                (0..values).for_each(|value| sketch.add(hash(value)));
                sketch
            };
            let bytes = |sketch: &Sketch| {
                let mut bytes = Vec::new();
                sketch.write(&mut bytes);
                bytes
            };
            let estimate = whole.estimate() as f64;
            let most = if values <= ENTRIES_MAX as u64 {
                0.0
            } else {
                0.05 * values as f64
            };
            assert!(
                (estimate - values as f64).abs() <= most,
                "{values}: {estimate}"
            );
            for parts in [2, 3, 40] {
                let mut merged = Sketch::Small(Vec::new());
                for part in 0..parts {
                    let mut sketch = Sketch::Small(Vec::new());
                    // Parts share values.
                    (0..values)
                        .filter(|value| value % parts == part || value % 7 == 0)
                        .for_each(|value| {
                            sketch.add(hash(value));
                        });
                    merged.merge(&bytes(&sketch)).unwrap();
                }
                assert_eq!(bytes(&merged), bytes(&whole), "{values} in {parts} parts");
            }
        }
    }

    #[test]
    fn damaged_sketches_are_refused() {
        let too_long = vec![1; REGISTERS + 4];
        let no_rank = vec![RANK_MAX + 1; REGISTERS];
        for bytes in [&[1, 2, 3][..], &too_long, &no_rank] {
            assert!(
                Sketch::Small(Vec::new()).merge(bytes).is_err(),
                "{} bytes",
                bytes.len()
            );
        }
    }
}
