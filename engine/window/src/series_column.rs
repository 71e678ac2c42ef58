//! One column of all series: the last entries of each, as far back as functions need them.

use crate::slabs::SlabAllocator;

/// Entries in the first slab of a series.
const FIRST_ENTRIES: usize = 3;

/// Number of kept entries from which a slab grows to the estimated final size.
const ESTIMATE_FROM: usize = 6;

/// The first larger slab also reserves memory for the slabs of all series: at most this multiple of the memory in
/// use, and at most this many words. Beyond that, memory doubles.
const GROWTH_MAX: usize = 16;
const GROWTH_WORDS_MAX: usize = 32 << 20;

/// Words per cache line.
const LINE_WORDS: usize = 8;

/// The slab of one series.
#[derive(Debug, Clone, Copy, Default)]
struct SlabSlice {
    at: usize,
    length: u32,
    class: u8,
}

/// One column of all series. Entries are appended. When the slab of a series is full, the entries that are still
/// needed move to another slab, so that a window is always one slice. A vacated slab stays unchanged until the
/// batch is evaluated.
#[derive(Debug, Clone)]
pub(crate) struct SeriesColumn {
    slabs: SlabAllocator<u64>,
    lists: Vec<SlabSlice>,
    /// Slabs vacated in this batch.
    left: Vec<(usize, u8)>,
    /// Size class of the first slab of a series.
    class: u8,
}

impl SeriesColumn {
    /// An empty column; `is_needed` says whether functions need entries of the past.
    pub fn new(is_needed: bool) -> Self {
        SeriesColumn {
            slabs: SlabAllocator::new(FIRST_ENTRIES),
            lists: Vec::new(),
            left: Vec::new(),
            class: u8::from(is_needed),
        }
    }

    /// The words of all series.
    #[inline]
    pub fn words(&self) -> &[u64] {
        self.slabs.items()
    }

    /// Ensures a slab for each of `series` series.
    pub fn grow(&mut self, series: usize) {
        self.slabs
            .reserve(series.saturating_sub(self.lists.len()), self.class);
        while self.lists.len() < series {
            let at = self.slabs.allocate(self.class);
            self.lists.push(SlabSlice {
                at,
                length: 0,
                class: self.class,
            });
        }
    }

    /// The entries of a series.
    #[inline]
    pub fn entries(&self, series: usize) -> &[u64] {
        let list = &self.lists[series];
        &self.words()[list.at..list.at + list.length as usize]
    }

    /// Start and end of the entries of a series in `words`.
    #[inline]
    pub fn range(&self, series: u32) -> (usize, usize) {
        let list = &self.lists[series as usize];
        (list.at, list.at + list.length as usize)
    }

    /// End of the entries of a series in `words`.
    pub fn end(&self, series: u32) -> usize {
        self.range(series).1
    }

    /// Prefetches the append positions of the series and up to `back` words before each, so that their cache misses
    /// overlap.
    #[inline]
    pub fn touch(&self, series: impl Iterator<Item = u32>, back: usize) {
        let words = self.words();
        let mut previous = None;
        let touched = series.fold(0, |touched, series| {
            if previous.replace(series) == Some(series) {
                return touched;
            }
            let list = &self.lists[series as usize];
            let length = list.length as usize;
            let line_starts = (length.saturating_sub(back)..length)
                .step_by(LINE_WORDS)
                .chain([length]);
            line_starts.fold(touched, |touched, at| {
                touched ^ words.get(list.at + at).copied().unwrap_or(0)
            })
        });
        std::hint::black_box(touched);
    }

    /// Appends an entry and returns its end. `need` is called if the slab is full. It returns how many of the
    /// previous entries must stay, and an estimate of how many ever will.
    #[inline]
    pub fn append(
        &mut self,
        series: u32,
        word: u64,
        need: impl FnOnce(&Self) -> (usize, usize),
    ) -> usize {
        let list = &self.lists[series as usize];
        if list.length as usize == self.slabs.capacity(list.class) {
            let (need, estimate) = need(self);
            self.make_room(series, need, estimate);
        }
        let list = &mut self.lists[series as usize];
        let at = list.at + list.length as usize;
        list.length += 1;
        self.slabs.items_mut()[at] = word;
        at + 1
    }

    #[cold]
    fn make_room(&mut self, series: u32, need: usize, estimate: usize) {
        let list = self.lists[series as usize];
        let length = list.length as usize;
        let entries_kept = need.min(length);
        let capacity = if entries_kept < ESTIMATE_FROM {
            // At least twice the kept entries.
            entries_kept.max(1) * 2
        } else {
            estimate.clamp(entries_kept, entries_kept * 4) * 4 / 3 + 1
        };
        let to = self.slabs.class_for(capacity).max(self.class);
        let end = list.at + length;
        // Series are alike: the others will need as much as this one.
        let words = (self.slabs.items().len() * GROWTH_MAX).min(GROWTH_WORDS_MAX);
        self.slabs
            .reserve(self.lists.len().min(words / self.slabs.capacity(to)), to);
        let at = self.slabs.copy(end - entries_kept..end, to);
        self.left.push((list.at, list.class));
        self.lists[series as usize] = SlabSlice {
            at,
            length: entries_kept as u32,
            class: to,
        };
    }

    /// Frees the vacated slabs after the batch is evaluated.
    pub fn next_batch(&mut self) {
        for (at, class) in self.left.drain(..) {
            self.slabs.release(at, class);
        }
    }

    /// Appends a series with these entries; `next` is the approximate number of series that follow.
    pub fn restore(&mut self, words: &[u64], next: usize) {
        let class = self
            .slabs
            .class_for(words.len() * 4 / 3 + 1)
            .max(self.class);
        self.slabs.reserve(next + 1, class);
        let at = self.slabs.allocate(class);
        self.slabs.items_mut()[at..at + words.len()].copy_from_slice(words);
        self.lists.push(SlabSlice {
            at,
            length: words.len() as u32,
            class,
        });
    }

    /// Removes a series; the last series takes its number.
    pub fn remove(&mut self, series: usize) {
        let SlabSlice { at, class, .. } = self.lists.swap_remove(series);
        self.slabs.release(at, class);
    }

    /// Removes all series but one.
    pub fn keep_only(&mut self, series: usize) {
        let mut only = SeriesColumn::new(self.class > 0);
        only.restore(self.entries(series), 0);
        *self = only;
    }

    pub fn bytes(&self) -> usize {
        self.slabs.bytes()
            + self.lists.capacity() * size_of::<SlabSlice>()
            + self.left.capacity() * size_of::<(usize, u8)>()
    }
}
