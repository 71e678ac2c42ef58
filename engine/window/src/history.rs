//! The entries of all series, as far back as something needs them.

use crate::batch::Row;
use crate::edge::{Edge, Span};
use crate::slabs::Slabs;
use crate::{Fill, Keep};

/// Entries for which a series has room at first.
const FIRST_ENTRIES: usize = 3;

/// Room that a series which fills batches by itself gets.
const HOT_ENTRIES: usize = crate::batch::BATCH_ROWS;

/// From so many entries on, a slab grows to the size that the windows will need.
const ESTIMATE_FROM: usize = 12;

/// What must stay for the rows to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Need {
    /// All from an edge on.
    From(Edge),
    /// The last entry of a span, and all after it.
    Latest(Edge, Edge),
}

/// What can be filled in for missing periods of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fillable {
    /// Zero, or the value before.
    Zero,
    /// The value before.
    Forward,
    /// Nothing.
    Never,
}

/// One series.
#[derive(Debug, Clone, Default)]
pub(crate) struct Head {
    /// Entries ever.
    pub count: u64,
    /// The time of the last one.
    pub last: i64,
    /// Ticks between the last two.
    pub step: i64,
    slab: usize,
    /// How many steps up to the last one were equal.
    run: u32,
    /// Entries in the slab.
    length: u32,
    /// The batch of its last row.
    batch: u32,
    class: u8,
}

impl Head {
    /// The number of the first entry in the slab.
    pub fn first(&self) -> u64 {
        self.count - u64::from(self.length)
    }
}

/// The entries of all series. Each series has one slab with a column of times and one for each
/// input; entries are appended, and old ones dropped when the slab is full, so that a window is
/// always one slice.
#[derive(Debug, Clone)]
pub(crate) struct History {
    slabs: Slabs,
    heads: Vec<Head>,
    keeps: Vec<Keep>,
    needs: Vec<Need>,
    /// The number of the current batch.
    batch: u32,
    /// Series with more room than they need.
    hot: Vec<u32>,
}

impl History {
    pub fn new(keeps: Vec<Keep>, needs: Vec<Need>) -> Self {
        let slabs = Slabs::new(keeps.len() + 1, FIRST_ENTRIES);
        History { slabs, heads: Vec::new(), keeps, needs, batch: 1, hot: Vec::new() }
    }

    pub fn words(&self) -> &[u64] {
        self.slabs.words()
    }

    pub fn head(&self, series: u32) -> &Head {
        &self.heads[series as usize]
    }

    /// Makes sure that there is a head for each of so many series.
    #[inline]
    pub fn grow(&mut self, series: usize) {
        while self.heads.len() < series {
            // Most series have more entries than the least slab holds, unless nothing is kept.
            let class = u8::from(!self.needs.is_empty());
            let slab = self.slabs.take(class);
            self.heads.push(Head { slab, class, ..Head::default() });
        }
    }

    /// Whether there is room for one more entry.
    #[inline]
    pub fn has_room(&self, series: u32) -> bool {
        let head = &self.heads[series as usize];
        (head.length as usize) < self.slabs.capacity(head.class)
    }

    /// Whether the series has rows that are not computed yet.
    pub fn is_pending(&self, series: u32) -> bool {
        self.heads[series as usize].batch == self.batch
    }

    /// Says that all rows are computed.
    pub fn next_batch(&mut self) {
        self.batch = self.batch.wrapping_add(1);
        if self.batch == 0 {
            self.heads.iter_mut().for_each(|head| head.batch = 0);
            self.batch = 1;
        }
    }

    /// Appends an entry; there is room.
    #[inline]
    pub fn append(&mut self, series: u32, time: i64, value: impl Fn(usize) -> u64) {
        let head = &mut self.heads[series as usize];
        let capacity = self.slabs.capacity(head.class);
        let columns = self.keeps.len() + 1;
        let words = &mut self.slabs.words_mut()[head.slab..head.slab + columns * capacity];
        let place = head.length as usize;
        words[place] = time as u64;
        for input in 0..columns - 1 {
            words[(input + 1) * capacity + place] = value(input);
        }
        if head.count > 0 {
            let step = time.saturating_sub(head.last);
            head.run = if step == head.step { head.run.saturating_add(1) } else { 1 };
            head.step = step;
        }
        head.last = time;
        head.length += 1;
        head.count += 1;
    }

    /// The last entry as a row of the current batch.
    #[inline]
    pub fn row(&mut self, series: u32) -> Row {
        let head = &mut self.heads[series as usize];
        head.batch = self.batch;
        Row {
            slab: head.slab,
            first: head.first(),
            step: head.step,
            run: head.run,
            capacity: self.slabs.capacity(head.class) as u32,
            place: head.length - 1,
            series,
        }
    }

    /// Appends an entry for a missing period; there is room.
    pub fn append_filler(&mut self, series: u32, time: i64, fill: Fill, fillable: &[Fillable]) {
        self.append(series, time, |_| 0);
        let head = &self.heads[series as usize];
        let capacity = self.slabs.capacity(head.class);
        let place = head.length as usize - 1;
        for (input, fillable) in fillable.iter().enumerate() {
            let start = head.slab + (input + 1) * capacity;
            let words = &mut self.slabs.words_mut()[start..start + capacity];
            words[place] = match (fill, fillable) {
                (Fill::Zero, Fillable::Zero) => 0,
                (Fill::Forward, Fillable::Zero | Fillable::Forward) if place > 0 => words[place - 1],
                _ => self.keeps[input].missing(),
            };
        }
    }

    /// Passes over periods that no window will reach.
    pub fn skip(&mut self, series: u32, periods: u64, every: i64) {
        let head = &mut self.heads[series as usize];
        head.count += periods;
        head.last += periods as i64 * every;
        head.run = 0;
    }

    /// The times, then the inputs, of the entries that rows to come need. `taken` is the number of
    /// the first entry that running statistics still wait for.
    pub fn needed(&self, series: usize, taken: u64) -> (usize, impl Iterator<Item = &[u64]>) {
        let head = &self.heads[series];
        let keep = self.keep_from(head, taken);
        let capacity = self.slabs.capacity(head.class);
        let columns = (0..=self.keeps.len()).map(move |column| {
            let start = head.slab + column * capacity;
            &self.slabs.words()[start + keep..start + head.length as usize]
        });
        (head.length as usize - keep, columns)
    }

    /// The place of the first entry that rows to come need.
    fn keep_from(&self, head: &Head, taken: u64) -> usize {
        let times = &self.slabs.words()[head.slab..head.slab + head.length as usize];
        let waiting = (taken.saturating_sub(head.first()) as usize).min(times.len());
        self.needs.iter().fold(waiting, |least, need| {
            least.min(match need {
                Need::From(edge) => edge.place_of_next(times),
                Need::Latest(start, end) => {
                    let end = end.place_of_next(times);
                    end.saturating_sub(1).max(start.place_of_next(times)).min(end)
                }
            })
        })
    }

    /// Makes room in a full slab whose series has no pending rows: drops what nobody needs, or
    /// moves to a larger slab. A hot series fills batches by itself.
    #[cold]
    pub fn make_room(&mut self, series: u32, taken: u64, hot: bool) {
        let head = &self.heads[series as usize];
        let (length, class) = (head.length as usize, head.class);
        let keep = self.keep_from(head, taken);
        let kept = length - keep;
        let capacity = self.slabs.capacity(class);
        let wanted = match hot {
            true => kept + HOT_ENTRIES,
            false if kept * 4 <= capacity * 3 => capacity,
            false if capacity < ESTIMATE_FROM => capacity * 2,
            false => (self.estimate(head) * 4 / 3).clamp(capacity * 2, capacity * 8),
        };
        let to = self.slabs.class_for(wanted).max(class);
        if hot && to > class {
            self.hot.push(series);
        }
        self.refit(series, keep, to);
    }

    fn refit(&mut self, series: u32, drop: usize, to: u8) {
        let head = &mut self.heads[series as usize];
        let kept = head.length as usize - drop;
        if to == head.class {
            self.slabs.shift(head.slab, head.class, drop, kept);
        } else {
            head.slab = self.slabs.resize(head.slab, head.class, drop, kept, to);
            head.class = to;
        }
        head.length = kept as u32;
    }

    /// Entries that a series with the steps of this one will need to keep.
    fn estimate(&self, head: &Head) -> usize {
        let rows = |edge: &Edge| match *edge {
            Edge::Rows(rows) => rows,
            Edge::Ticks(ticks) => ticks.max(0) as u64 / head.step.max(1) as u64,
        };
        let needs = self.needs.iter().map(|need| match need {
            Need::From(edge) => rows(edge),
            Need::Latest(_, end) => rows(end) + 1,
        });
        needs.max().unwrap_or(0).min(1 << 30) as usize
    }

    /// Gives the room of hot series back, but for the one that is likely to go on. No rows are pending.
    pub fn cool(&mut self, but: u32, taken: impl Fn(u32) -> u64) {
        if self.hot.iter().all(|&series| series == but) {
            return;
        }
        for series in std::mem::take(&mut self.hot) {
            if series == but {
                self.hot.push(series);
                continue;
            }
            let head = &self.heads[series as usize];
            let keep = self.keep_from(head, taken(series));
            let kept = head.length as usize - keep;
            let to = self.slabs.class_for(kept * 4 / 3 + 1).min(head.class);
            self.refit(series, keep, to);
        }
    }

    /// Forgets all series but one.
    pub fn keep_only(&mut self, series: usize, taken: u64) {
        let mut only = History::new(self.keeps.clone(), self.needs.clone());
        let head = &self.heads[series];
        only.restore(head.count, head.last, self.needed(series, taken).1);
        *self = only;
    }

    /// Adds a series as it was: how many entries it had, the time of the last one, and the columns
    /// of those that are still needed.
    pub fn restore<'a>(&mut self, count: u64, last: i64, columns: impl Iterator<Item = &'a [u64]>) {
        let mut head = Head { count, last, ..Head::default() };
        let mut capacity = 0;
        for (column, words) in columns.enumerate() {
            if column == 0 {
                head.class = self.slabs.class_for(words.len() * 4 / 3 + 1);
                head.length = words.len() as u32;
                head.slab = self.slabs.take(head.class);
                capacity = self.slabs.capacity(head.class);
                for pair in words.windows(2) {
                    let step = (pair[1] as i64).saturating_sub(pair[0] as i64);
                    head.run = if step == head.step { head.run.saturating_add(1) } else { 1 };
                    head.step = step;
                }
            }
            let start = head.slab + column * capacity;
            self.slabs.words_mut()[start..start + words.len()].copy_from_slice(words);
        }
        self.heads.push(head);
    }

    pub fn bytes(&self) -> usize {
        self.slabs.bytes() + self.heads.capacity() * size_of::<Head>() + self.hot.capacity() * 4
    }
}

/// What a span of the plan needs of the past when only its last entry counts.
pub(crate) fn latest(edges: &[Edge], span: Span) -> Need {
    Need::Latest(edges[span.start], edges[span.end])
}
