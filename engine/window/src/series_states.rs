//! States of single series: an engine that answers a few rows restores the series of those rows alone.

use std::collections::HashSet;

use arrow::util::display::array_value_to_string;
use forebay_model::{Fault, Result, StateDecoder, StateEncoder, codes};
use hashbrown::HashMap;

use crate::encoding;
use crate::engine::partition_of;
use crate::output::format_time;
use crate::state_codec::{BYTES_MAX, SeriesLocation, corrupt};
use crate::value_store::VALUE_BYTES_MAX;
use crate::{InputRows, WindowEngine};

/// Stored states of series, by the hash of their keys.
pub trait SeriesStates: Send + Sync {
    /// Appends the state of a series to `bytes`; false if no row of it was stored.
    fn read(&self, series: u128, bytes: &mut Vec<u8>) -> Result<bool>;
}

/// Most values beside the state of one series.
const VALUES_MAX: usize = u32::MAX as usize;

impl WindowEngine {
    /// Restores the series of these rows from their stored states, unless the engine has them already. With
    /// `is_strict`, each row must be later than the newest row of its series; a fault comes with the index of its batch.
    pub fn restore(
        &mut self,
        batches: &[InputRows<'_>],
        states: &dyn SeriesStates,
        is_strict: bool,
    ) -> Result<(), (usize, Fault)> {
        // The newest time of each series among the rows so far.
        let mut newest: HashMap<u128, Option<i64>> = HashMap::new();
        let mut hashes = Vec::new();
        let mut times = Vec::new();
        for (number, rows) in batches.iter().enumerate() {
            hashes.clear();
            times.clear();
            self.keys
                .hash(rows.keys, rows.rows, &mut hashes)
                .and_then(|()| encoding::append_times(rows.time, &mut times))
                .map_err(|fault| (number, fault))?;
            for (row, (hash, time)) in hashes.iter().zip(&times).enumerate() {
                if !newest.contains_key(hash) {
                    let last = self
                        .restore_series(*hash, states)
                        .map_err(|fault| (number, fault))?;
                    newest.insert(*hash, last);
                }
                let last = newest.insert(*hash, Some(*time)).flatten();
                if let Some(last) = last.filter(|last| is_strict && time <= last) {
                    let fault = self.late_fault(rows, row, (*time, last));
                    return Err((number, fault.rows([row as u64])));
                }
            }
        }
        Ok(())
    }

    /// Restores one series; returns the time of its newest row.
    fn restore_series(&mut self, hash: u128, states: &dyn SeriesStates) -> Result<Option<i64>> {
        let number = partition_of(hash, self.parts.len());
        if let Some(last) = self.parts[number].newest_time(hash)? {
            return Ok(Some(last));
        }
        let mut record = Vec::new();
        if !states.read(hash, &mut record)? {
            return Ok(None);
        }
        let bytes = if self.plan.stores_values() {
            self.restore_values(&record)?
        } else {
            record
        };
        let last = newest_time_of(&bytes)?;
        if !self.parts[number].resting.insert(hash, &bytes) {
            return Err(corrupt("too many series"));
        }
        Ok(Some(last))
    }

    /// Keeps the values that a record holds beside the state of its series; returns the state.
    fn restore_values(&mut self, record: &[u8]) -> Result<Vec<u8>> {
        let mut series: &[u8] = record;
        let mut input = StateDecoder(&mut series);
        let mut state = Vec::new();
        input.bytes_into(&mut state, BYTES_MAX)?;
        let count = input.length(VALUES_MAX)?;
        let mut value = Vec::new();
        for _ in 0..count {
            input.bytes_into(&mut value, VALUE_BYTES_MAX)?;
            self.values.insert(&value)?;
        }
        Ok(state)
    }

    /// Calls `visit` with the hash of the keys and the state of each series, in the order of the hashes.
    pub fn for_each_series(&self, visit: &mut dyn FnMut(u128, &[u8]) -> Result<()>) -> Result<()> {
        let mut bytes = Vec::new();
        let mut even = Vec::new();
        let mut record = Vec::new();
        for part in &self.parts {
            for (hash, location) in part.in_order() {
                let series: &[u8] = match location {
                    SeriesLocation::Resting(place) => part.resting.bytes_at(place),
                    SeriesLocation::Awake(series) => {
                        part.encode_series(series as usize, &mut even, &mut bytes)?;
                        &bytes
                    }
                };
                if !self.plan.stores_values() {
                    visit(hash, series)?;
                    continue;
                }
                record.clear();
                let mut marks = HashSet::new();
                self.values.mark(series, &mut marks);
                let mut out = StateEncoder(&mut record);
                out.bytes(series)?;
                self.values.encode(marks, &mut out)?;
                visit(hash, &record)?;
            }
        }
        Ok(())
    }

    /// The fault of a row whose time is not later than that of its series' newest row.
    fn late_fault(&self, rows: &InputRows<'_>, row: usize, (time, last): (i64, i64)) -> Fault {
        let time = format_time(time, &self.plan.time);
        let last = format_time(last, &self.plan.time);
        let keys = rows.keys.iter().zip(&self.plan.duplicates.keys);
        let keys: Vec<String> = keys
            .map(|(column, name)| {
                let value = array_value_to_string(column, row).unwrap_or_default();
                format!("`{name}` {value}")
            })
            .collect();
        let series = if keys.is_empty() {
            String::new()
        } else {
            format!(" ({})", keys.join(", "))
        };
        let message = format!(
            "a row of {time} is not later than the newest row of its series{series}, of {last}"
        );
        Fault::new(codes::OUT_OF_ORDER, message).hint(
            "give rows that are later than those of the state; correct earlier rows in the data, \
             and run the pipeline again",
        )
    }
}

/// The time of the newest row, from the state of a series.
fn newest_time_of(mut series: &[u8]) -> Result<i64> {
    let mut input = StateDecoder(&mut series);
    input.varint()?;
    input.signed()
}

impl crate::partition::SeriesPartition {
    /// The time of the newest row of a series that the partition has.
    fn newest_time(&self, hash: u128) -> Result<Option<i64>> {
        if let Some(series) = self.table.find(hash) {
            return Ok(Some(self.history.head(series).last));
        }
        self.resting.find(hash).map(newest_time_of).transpose()
    }
}
