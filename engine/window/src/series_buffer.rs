//! Entries of all series, as far back as functions need them.

use forebay_model::ColumnClock;

use crate::PeriodFill;
use crate::batch::{BatchRow, EntryColumn, WindowBatch};
use crate::bounds::{StepPattern, WindowBound};
use crate::compiled_plan::CompiledPlan;
use crate::retention::{
    BatchDistances, EntryRetention, FillSupport, InputRetention, estimate_retained,
    retained_entries_of_row, retained_for_next_row,
};
use crate::series_column::SeriesColumn;

/// Most words prefetched per window.
const PREFETCHED_WORDS: usize = 64;

/// Position and steps of one series.
#[derive(Debug, Clone, Default)]
pub(crate) struct SeriesCursor {
    /// Number of entries so far, including dropped ones.
    pub count: u64,
    /// Time of the last entry.
    pub last: i64,
    /// Ticks between the last two entries.
    step: i64,
    /// Number of consecutive equal steps at the end.
    run: u32,
}

impl SeriesCursor {
    /// The last entry as a batch row.
    #[inline]
    fn row(&self, series: u32, fillers: u32, source: Option<u32>) -> BatchRow {
        BatchRow {
            time: self.last,
            number: self.count - 1,
            step: self.step,
            run: self.run,
            series,
            fillers,
            source,
        }
    }

    /// True if all steps are equal, so that the last time and the step determine all times.
    fn is_even(&self) -> bool {
        self.count < 2
            || (0 < self.step && self.step < i64::MAX && u64::from(self.run) + 1 == self.count)
    }

    /// The times of at most `most` last entries, computed from the last time and the step.
    fn even_times(&self, most: usize) -> impl Iterator<Item = u64> {
        let entries = (u64::from(self.run) + 1).min(self.count).min(most as u64) as i64;
        let last = self.last;
        let step = self.step;
        (0..entries)
            .rev()
            .map(move |back| last.wrapping_sub(step.wrapping_mul(back)) as u64)
    }
}

/// Entries of all series: a column of times if any function needs it, and a column per input.
#[derive(Debug, Clone)]
pub(crate) struct SeriesBuffer {
    edges: Vec<WindowBound>,
    /// The clock of the time column, for bounds of the calendar.
    clock: Option<ColumnClock>,
    kept: Vec<InputRetention>,
    time_needs: Vec<EntryRetention>,
    /// True if the times of all series are stored; otherwise only those of series with unequal
    /// steps are.
    all_times: bool,
    heads: Vec<SeriesCursor>,
    times: Option<SeriesColumn>,
    columns: Vec<SeriesColumn>,
    /// Per row of the batch: start and end of the times of its series.
    time_starts: Vec<usize>,
    time_ends: Vec<usize>,
    /// Per input and row: end of the row's entry.
    ends: Vec<Vec<usize>>,
}

impl SeriesBuffer {
    pub fn new(program: &CompiledPlan) -> Self {
        let CompiledPlan {
            edges,
            clock,
            kept: retentions,
            time_needs,
            reads_times,
            ..
        } = program;
        SeriesBuffer {
            times: (!time_needs.is_empty()).then(|| SeriesColumn::new(*reads_times)),
            columns: retentions
                .iter()
                .map(|retention| SeriesColumn::new(!retention.needs.is_empty()))
                .collect(),
            ends: vec![Vec::new(); retentions.len()],
            edges: edges.clone(),
            clock: *clock,
            kept: retentions.clone(),
            time_needs: time_needs.clone(),
            all_times: *reads_times,
            heads: Vec::new(),
            time_starts: Vec::new(),
            time_ends: Vec::new(),
        }
    }

    pub fn head(&self, series: u32) -> &SeriesCursor {
        &self.heads[series as usize]
    }

    /// Ensures a cursor for each of `series` series.
    #[inline]
    pub fn grow(&mut self, series: usize) {
        if self.heads.len() < series {
            self.heads.resize(series, SeriesCursor::default());
            self.times
                .iter_mut()
                .chain(&mut self.columns)
                .for_each(|column| column.grow(series));
        }
    }

    /// Appends the time of an entry. `taken_of` returns the index of the first entry that a
    /// frontier has not consumed.
    #[inline]
    pub fn push(&mut self, series: u32, time: i64, taken_of: impl Fn(usize, u32) -> u64) {
        let head = &mut self.heads[series as usize];
        let head_before = head.clone();
        if head.count > 0 {
            let step = time.saturating_sub(head.last);
            head.run = if step == head.step {
                head.run.saturating_add(1)
            } else {
                1
            };
            head.step = step;
        }
        (head.last, head.count) = (time, head.count + 1);
        if let Some(times) = &mut self.times
            && (self.all_times || !head.is_even())
        {
            let needs = &self.time_needs;
            let edges = &self.edges;
            let head = &*head;
            let clock = self.clock.as_ref();
            if !self.all_times && times.entries(series as usize).is_empty() {
                let most = even_times_max(needs, edges, clock, &head_before);
                head_before.even_times(most).for_each(|time| {
                    times.append(series, time, |times| {
                        (times.entries(series as usize).len(), most)
                    });
                });
            }
            times.append(series, time as u64, |times| {
                let entries = times.entries(series as usize);
                let need = retained_for_next_row(
                    needs,
                    edges,
                    clock,
                    entries,
                    head.count - 1,
                    |frontier| taken_of(frontier, series),
                );
                (
                    need as usize,
                    estimate_retained(needs, edges, clock, head.step),
                )
            });
        }
    }

    /// The last entry as a batch row.
    #[inline]
    pub fn row(&mut self, series: u32, fillers: u32, source: Option<u32>) -> BatchRow {
        if let Some(times) = &self.times {
            let (start, end) = times.range(series);
            self.time_starts.push(start);
            self.time_ends.push(end);
        }
        self.heads[series as usize].row(series, fillers, source)
    }

    /// Skips periods that no window reaches.
    pub fn skip(&mut self, series: u32, periods: u64, last: i64) {
        let head = &mut self.heads[series as usize];
        head.count += periods;
        head.last = last;
        head.run = 0;
    }

    /// Computes the distance of each bound from each row.
    pub fn measure(&self, rows: &[BatchRow], distances: &mut Vec<Vec<u32>>) {
        distances.resize_with(self.edges.len(), Vec::new);
        let words = self.times.as_ref().map_or(&[][..], SeriesColumn::words);
        let pace = StepPattern::of(rows);
        for (edge, distances) in self.edges.iter().zip(distances) {
            edge.distances(
                rows,
                &pace,
                self.clock.as_ref(),
                |row| &words[self.time_starts[row]..self.time_ends[row]],
                distances,
            );
        }
    }

    /// Appends the inputs of the rows and of the missing periods before them. `is_read` says whether any function
    /// reads earlier entries.
    pub fn append(
        &mut self,
        rows: &[BatchRow],
        inputs: &[Vec<u64>],
        fill: PeriodFill,
        marks: &BatchDistances<'_>,
        is_read: bool,
    ) {
        let columns = self
            .columns
            .iter_mut()
            .zip(&self.kept)
            .zip(inputs)
            .zip(&mut self.ends);
        for (((column, retention), words), ends) in columns {
            let first = rows.first().filter(|_| is_read);
            let back = first.map_or(0, |row| {
                estimate_retained(&retention.needs, &self.edges, self.clock.as_ref(), row.step)
            });
            column.touch(
                rows.iter().map(|row| row.series),
                back.min(PREFETCHED_WORDS),
            );
            ends.clear();
            for (at, row) in rows.iter().enumerate() {
                let need = || {
                    (
                        marks.retained_entries(&retention.needs, &self.edges, at),
                        estimate_retained(
                            &retention.needs,
                            &self.edges,
                            self.clock.as_ref(),
                            row.step,
                        ),
                    )
                };
                if row.fillers > 0 {
                    append_fillers(column, retention, row, fill, need);
                }
                match row.source {
                    Some(source) => {
                        ends.push(column.append(row.series, words[source as usize], |_| need()))
                    }
                    None => ends.push(column.end(row.series)),
                }
            }
        }
    }

    /// Appends the inputs of rows whose times were pushed, without evaluating windows. `row` maps to the input
    /// rows. A series with several rows may retain more entries than necessary.
    pub fn remember(&mut self, series: &[u32], row: impl Fn(usize) -> usize, inputs: &[Vec<u64>]) {
        let SeriesBuffer {
            edges,
            clock,
            kept: retentions,
            heads,
            times,
            columns,
            ..
        } = self;
        for ((column, retention), words) in columns.iter_mut().zip(&*retentions).zip(inputs) {
            for (index, &series) in series.iter().enumerate() {
                column.append(series, words[row(index)], |_| {
                    let times = times
                        .as_ref()
                        .map_or(&[][..], |times| times.entries(series as usize));
                    let row = heads[series as usize].row(series, 0, None);
                    (
                        retained_entries_of_row(
                            &retention.needs,
                            edges,
                            clock.as_ref(),
                            &row,
                            times,
                        ),
                        estimate_retained(&retention.needs, edges, clock.as_ref(), row.step),
                    )
                });
            }
        }
    }

    /// Calls `run` with the batch.
    pub fn with_batch(
        &self,
        rows: &[BatchRow],
        distances: &[Vec<u32>],
        run: impl FnOnce(&WindowBatch<'_>),
    ) {
        let words = self.times.as_ref().map_or(&[][..], SeriesColumn::words);
        let times = EntryColumn {
            words,
            ends: if self.all_times { &self.time_ends } else { &[] },
        };
        let columns = self.columns.iter().zip(&self.ends);
        let inputs: Vec<EntryColumn<'_>> = columns
            .map(|(column, ends)| EntryColumn {
                words: column.words(),
                ends,
            })
            .collect();
        run(&WindowBatch {
            rows,
            times,
            inputs: &inputs,
            distances,
        });
    }

    /// Releases the batch after it is evaluated.
    pub fn next_batch(&mut self) {
        self.time_starts.clear();
        self.time_ends.clear();
        self.times
            .iter_mut()
            .chain(&mut self.columns)
            .for_each(SeriesColumn::next_batch);
    }

    /// The entries that future rows need: the times if they are stored, then the inputs. `even` is a buffer for
    /// computed times.
    pub fn needed<'a>(
        &'a self,
        series: usize,
        even_times: &'a mut Vec<u64>,
        taken_of: impl Fn(usize) -> u64 + 'a,
    ) -> impl Iterator<Item = &'a [u64]> {
        let head = &self.heads[series];
        even_times.clear();
        if !self.all_times && head.is_even() {
            even_times.extend(head.even_times(even_times_max(
                &self.time_needs,
                &self.edges,
                self.clock.as_ref(),
                head,
            )));
        }
        let entries = self.times.as_ref().map(|times| times.entries(series));
        let even_times = &even_times[..];
        let count = head.count;
        let times = entries.map(|entries| {
            if entries.is_empty() {
                even_times
            } else {
                entries
            }
        });
        let needs = self
            .times
            .iter()
            .map(|_| &self.time_needs)
            .chain(self.kept.iter().map(|retention| &retention.needs));
        let columns = times.into_iter().chain(
            self.columns
                .iter()
                .map(move |column| column.entries(series)),
        );
        let times = times.unwrap_or(&[]);
        columns.zip(needs).map(move |(entries, needs)| {
            let need = retained_for_next_row(
                needs,
                &self.edges,
                self.clock.as_ref(),
                times,
                count,
                &taken_of,
            );
            &entries[entries.len() - (need as usize).min(entries.len())..]
        })
    }

    /// True if the columns of a series with `count` entries contain everything that future rows
    /// need: the times if they are stored, then the inputs.
    pub fn has_needed(
        &self,
        count: u64,
        columns: &[Vec<u64>],
        taken_of: impl Fn(usize) -> u64,
    ) -> bool {
        let times = if self.has_times() {
            columns[0].as_slice()
        } else {
            &[]
        };
        let needs = self
            .times
            .iter()
            .map(|_| &self.time_needs)
            .chain(self.kept.iter().map(|retention| &retention.needs));
        columns.iter().zip(needs).all(|(words, needs)| {
            words.len() as u64
                >= retained_for_next_row(
                    needs,
                    &self.edges,
                    self.clock.as_ref(),
                    times,
                    count,
                    &taken_of,
                )
                .min(count)
        })
    }

    /// Number of columns, including the times.
    pub fn columns(&self) -> usize {
        self.columns.len() + usize::from(self.has_times())
    }

    /// True if a column of times precedes the inputs.
    pub fn has_times(&self) -> bool {
        self.times.is_some()
    }

    /// Appends a decoded series: its number of entries, its last time and its columns. `next` is the approximate
    /// number of series that follow.
    pub fn restore<'a>(
        &mut self,
        count: u64,
        last: i64,
        mut columns: impl Iterator<Item = &'a [u64]>,
        next: usize,
    ) {
        let mut head = SeriesCursor {
            count,
            last,
            ..SeriesCursor::default()
        };
        if let Some(times) = &mut self.times {
            let words = columns.next().unwrap_or(&[]);
            for pair in words.windows(2) {
                let step = (pair[1] as i64).saturating_sub(pair[0] as i64);
                head.run = if step == head.step {
                    head.run.saturating_add(1)
                } else {
                    1
                };
                head.step = step;
            }
            times.restore(
                if !self.all_times && head.is_even() {
                    &[]
                } else {
                    words
                },
                next,
            );
        }
        self.columns
            .iter_mut()
            .zip(columns)
            .for_each(|(column, words)| column.restore(words, next));
        self.heads.push(head);
    }

    /// Removes a series; the last series takes its number.
    pub fn remove(&mut self, series: usize) {
        self.heads.swap_remove(series);
        self.times
            .iter_mut()
            .chain(&mut self.columns)
            .for_each(|column| column.remove(series));
    }

    /// Removes all series but one.
    pub fn keep_only(&mut self, series: usize) {
        self.heads.swap(0, series);
        self.heads.truncate(1);
        self.times
            .iter_mut()
            .chain(&mut self.columns)
            .for_each(|column| column.keep_only(series));
    }

    pub fn bytes(&self) -> usize {
        let columns: usize = self
            .times
            .iter()
            .chain(&self.columns)
            .map(SeriesColumn::bytes)
            .sum();
        let ends: usize = self.ends.iter().map(Vec::capacity).sum();
        let batch = ends + self.time_starts.capacity() + self.time_ends.capacity();
        self.heads.capacity() * size_of::<SeriesCursor>() + columns + batch * size_of::<usize>()
    }
}

/// Most computed times that a future row may need.
fn even_times_max(
    needs: &[EntryRetention],
    edges: &[WindowBound],
    clock: Option<&ColumnClock>,
    head: &SeriesCursor,
) -> usize {
    estimate_retained(needs, edges, clock, head.step) + 2
}

#[cold]
fn append_fillers(
    column: &mut SeriesColumn,
    retention: &InputRetention,
    row: &BatchRow,
    fill: PeriodFill,
    need: impl Fn() -> (usize, usize),
) {
    for filler in 0..row.fillers {
        let word = match (fill, retention.fillable) {
            (PeriodFill::Zero, FillSupport::Zero) => 0,
            (PeriodFill::Forward, FillSupport::Zero | FillSupport::Forward) => column
                .entries(row.series as usize)
                .last()
                .copied()
                .unwrap_or(retention.keep.missing()),
            _ => retention.keep.missing(),
        };
        let following = (row.fillers - filler) as usize - usize::from(row.source.is_none());
        column.append(row.series, word, |_| {
            let (need, estimate) = need();
            (need.saturating_sub(following), estimate)
        });
    }
}
