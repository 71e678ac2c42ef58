//! The facts since the run, by series. A fact that comes late is taken up by a replay: the series of the run take all
//! facts since then in order of time.

use std::collections::{BTreeSet, HashMap};

use arrow::array::RecordBatch;
use arrow::compute::interleave_record_batch;
use arrow::row::{RowConverter, SortField};
use forebay_model::{Fault, Result};

/// The batch of a fact, and its row there.
type FactPlace = (usize, usize);

/// Bytes that a fact takes besides its columns, about: its place, and a share of the table of groups.
const FACT_BYTES: usize = 64;

/// The facts since the run, in groups: no window has a series with rows of two groups.
pub(super) struct FactsBySeries {
    /// The columns that tell groups apart. Without one, all facts are of one group.
    keys: Vec<String>,
    batches: Vec<RecordBatch>,
    groups: HashMap<Vec<u8>, Vec<FactPlace>>,
    bytes: usize,
}

/// The facts of some groups in the order in which they came, new ones last.
pub(super) struct GroupFacts {
    pub rows: RecordBatch,
    /// Number of those that came before the new ones.
    pub earlier: usize,
}

impl FactsBySeries {
    /// No facts yet.
    pub fn new(keys: Vec<String>) -> FactsBySeries {
        FactsBySeries {
            keys,
            batches: Vec::new(),
            groups: HashMap::new(),
            bytes: 0,
        }
    }

    /// Bytes of the facts.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes that more facts add.
    pub fn bytes_of(facts: &RecordBatch) -> usize {
        facts.get_array_memory_size() + facts.num_rows() * FACT_BYTES
    }

    /// Adds facts that the windows have taken up.
    pub fn add(&mut self, facts: &RecordBatch) -> Result<()> {
        let batch = self.batches.len();
        for (row, group) in self.groups_of(facts)?.into_iter().enumerate() {
            self.groups.entry(group).or_default().push((batch, row));
        }
        self.bytes += FactsBySeries::bytes_of(facts);
        self.batches.push(facts.clone());
        Ok(())
    }

    /// New facts behind all earlier ones of their groups.
    pub fn with_earlier(&self, facts: &RecordBatch) -> Result<GroupFacts> {
        let groups: BTreeSet<Vec<u8>> = self.groups_of(facts)?.into_iter().collect();
        let mut facts_in_order: Vec<FactPlace> = Vec::new();
        for group in &groups {
            facts_in_order.extend(self.groups.get(group).into_iter().flatten());
        }
        // Facts of equal times stay in the order in which they came.
        facts_in_order.sort_unstable();
        let earlier = facts_in_order.len();
        let mut batches: Vec<&RecordBatch> = Vec::new();
        let mut last_batch = None;
        for (batch, _) in &mut facts_in_order {
            if last_batch != Some(*batch) {
                last_batch = Some(*batch);
                batches.push(&self.batches[*batch]);
            }
            *batch = batches.len() - 1;
        }
        for row in 0..facts.num_rows() {
            facts_in_order.push((batches.len(), row));
        }
        batches.push(facts);
        Ok(GroupFacts {
            rows: interleave_record_batch(&batches, &facts_in_order)?,
            earlier,
        })
    }

    /// The group of each fact: its keys, encoded.
    fn groups_of(&self, facts: &RecordBatch) -> Result<Vec<Vec<u8>>> {
        if self.keys.is_empty() {
            return Ok(vec![Vec::new(); facts.num_rows()]);
        }
        let mut fields = Vec::with_capacity(self.keys.len());
        let mut columns = Vec::with_capacity(self.keys.len());
        for key in &self.keys {
            let column = facts
                .column_by_name(key)
                .ok_or_else(|| Fault::internal("facts without a key of their series"))?;
            fields.push(SortField::new(column.data_type().clone()));
            columns.push(column.clone());
        }
        let rows = RowConverter::new(fields)?.convert_columns(&columns)?;
        Ok(rows.iter().map(|row| row.as_ref().to_vec()).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, AsArray, Int64Array, StringArray};
    use arrow::datatypes::Int64Type;

    use super::*;

    fn facts(rows: &[(&str, i64)]) -> RecordBatch {
        let stores: StringArray = rows.iter().map(|(store, _)| Some(*store)).collect();
        let days: Int64Array = rows.iter().map(|(_, day)| Some(*day)).collect();
        let stores: ArrayRef = Arc::new(stores);
        let days: ArrayRef = Arc::new(days);
        RecordBatch::try_from_iter([("store", stores), ("day", days)]).unwrap()
    }

    fn days_of(keys: &[&str], new_facts: &[(&str, i64)]) -> Vec<i64> {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        let mut by_series = FactsBySeries::new(keys);
        by_series
            .add(&facts(&[("north", 1), ("south", 2)]))
            .unwrap();
        by_series.add(&facts(&[("south", 3)])).unwrap();
        by_series.add(&facts(&[("north", 5)])).unwrap();
        let group = by_series.with_earlier(&facts(new_facts)).unwrap();
        let days = group.rows.column(1).as_primitive::<Int64Type>();
        assert_eq!(days.values().len() - group.earlier, new_facts.len());
        days.values().to_vec()
    }

    #[test]
    fn late_facts_come_with_those_of_their_series_alone() {
        assert_eq!(days_of(&["store"], &[("north", 4)]), [1, 5, 4]);
        assert_eq!(days_of(&["store"], &[("west", 4)]), [4]);
        let both = [("south", 4), ("north", 4)];
        assert_eq!(days_of(&["store"], &both), [1, 2, 3, 5, 4, 4]);
        assert_eq!(days_of(&[], &[("north", 4)]), [1, 2, 3, 5, 4]);
    }
}
