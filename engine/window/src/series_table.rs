//! Map from the hash of a series' keys to the number of the series.

use hashbrown::HashTable;

/// Successors tried before the hash table.
const SUCCESSORS_TRIED: usize = 3;

/// Series by the hash of their keys, numbered in order of appearance.
///
/// In panel data a series is nearly always followed by the same series as the last time, so that successor is tried
/// first.
#[derive(Debug, Clone, Default)]
pub(crate) struct SeriesTable {
    hashes: Vec<u128>,
    /// Per series: the series that followed it last time.
    next: Vec<u32>,
    table: HashTable<u32>,
    last: u32,
}

impl SeriesTable {
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    pub fn hash(&self, series: usize) -> u128 {
        self.hashes[series]
    }

    /// The number of a series, if it is there.
    pub fn find(&self, hash: u128) -> Option<u32> {
        let series = self
            .table
            .find(hash as u64, |&series| self.hashes[series as usize] == hash);
        series.copied()
    }

    /// The series of the last row.
    pub fn last(&self) -> u32 {
        self.last
    }

    /// The number of the series; a new series gets the next number.
    #[inline]
    pub fn resolve(&mut self, hash: u128) -> u32 {
        let mut guess = self.last as usize;
        for _ in 0..SUCCESSORS_TRIED {
            guess = match self.next.get(guess) {
                Some(&next) => next as usize,
                None => break,
            };
            if self.hashes.get(guess) == Some(&hash) {
                self.last = guess as u32;
                return self.last;
            }
        }
        self.look_up(hash)
    }

    #[cold]
    fn look_up(&mut self, hash: u128) -> u32 {
        let hashes = &mut self.hashes;
        let last = self.last as usize;
        let series = match self
            .table
            .find(hash as u64, |&series| hashes[series as usize] == hash)
        {
            Some(&series) => series,
            None => {
                let series = hashes.len() as u32;
                hashes.push(hash);
                self.table.insert_unique(hash as u64, series, |&series| {
                    hashes[series as usize] as u64
                });
                // Inserted between the last series and its successor.
                self.next.push(self.next.get(last).copied().unwrap_or(0));
                series
            }
        };
        self.next[last] = series;
        self.last = series;
        series
    }

    /// Removes a series; the last series takes its number.
    pub fn remove(&mut self, series: usize) {
        let moved = self.hashes.len() - 1;
        let hashes = &self.hashes;
        let table = &mut self.table;
        let find_arguments =
            |hash: u128, number: usize| (hash as u64, move |&entry: &u32| entry as usize == number);
        let (hash, is_it) = find_arguments(hashes[series], series);
        if let Ok(entry) = table.find_entry(hash, is_it) {
            entry.remove();
        }
        let (hash, is_it) = find_arguments(hashes[moved], moved);
        if let Some(number) = table.find_mut(hash, is_it) {
            *number = series as u32;
        }
        self.hashes.swap_remove(series);
        // Successors are only guesses: later rows correct them.
        self.next.swap_remove(series);
        self.last = 0;
    }

    /// Removes all series but one.
    pub fn keep_only(&mut self, series: usize) {
        let hash = self.hashes[series];
        self.hashes.clear();
        self.next.clear();
        self.table.clear();
        self.last = 0;
        self.look_up(hash);
    }

    pub fn bytes(&self) -> usize {
        self.hashes.capacity() * 16 + self.next.capacity() * 4 + self.table.allocation_size()
    }
}
