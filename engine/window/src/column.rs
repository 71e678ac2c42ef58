//! One column of all series: their last entries, as far back as something needs them.

use crate::slabs::Slabs;

/// Entries for which a series has room at first.
const FIRST_ENTRIES: usize = 3;

/// From so many entries on, a slab grows to the size that will be needed.
const ESTIMATE_FROM: usize = 6;

/// With the first larger slab comes room for those of all series: so many times as much as there is at most, and so
/// many words. Beyond, room doubles.
const GROWTH_MAX: usize = 16;
const GROWTH_WORDS_MAX: usize = 32 << 20;

/// Words that come to the caches together.
const LINE_WORDS: usize = 8;

/// The list of one series.
#[derive(Debug, Clone, Copy, Default)]
struct List {
    at: usize,
    length: u32,
    class: u8,
}

/// One column of all series. Entries are appended; when the slab of a series is full, those that
/// are still needed move to another one, so that a window is always one slice. What a slab held
/// stays as it is until the batch is computed.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    slabs: Slabs<u64>,
    lists: Vec<List>,
    /// Slabs that were left in this batch.
    left: Vec<(usize, u8)>,
    /// The class of a series' first slab.
    class: u8,
}

impl Column {
    /// A column of which some past is needed, or none.
    pub fn new(is_needed: bool) -> Self {
        Column { slabs: Slabs::new(FIRST_ENTRIES), lists: Vec::new(), left: Vec::new(), class: u8::from(is_needed) }
    }

    /// All words of all series.
    #[inline]
    pub fn words(&self) -> &[u64] {
        self.slabs.items()
    }

    /// Makes sure that there is a list for each of so many series.
    pub fn grow(&mut self, series: usize) {
        self.slabs.expect(series.saturating_sub(self.lists.len()), self.class);
        while self.lists.len() < series {
            let at = self.slabs.take(self.class);
            self.lists.push(List { at, length: 0, class: self.class });
        }
    }

    /// The entries of a series.
    #[inline]
    pub fn entries(&self, series: usize) -> &[u64] {
        let list = &self.lists[series];
        &self.words()[list.at..list.at + list.length as usize]
    }

    /// Where the entries of a series start and end.
    #[inline]
    pub fn range(&self, series: u32) -> (usize, usize) {
        let list = &self.lists[series as usize];
        (list.at, list.at + list.length as usize)
    }

    /// Where the entries of a series end.
    pub fn end(&self, series: u32) -> usize {
        self.range(series).1
    }

    /// Reads where the next entries of series will lie, and so many words before, so that all of
    /// these places are on their way to the caches at once.
    #[inline]
    pub fn touch(&self, series: impl Iterator<Item = u32>, back: usize) {
        let words = self.words();
        let mut before = None;
        let touched = series.fold(0, |touched, series| {
            if before.replace(series) == Some(series) {
                return touched;
            }
            let list = &self.lists[series as usize];
            let length = list.length as usize;
            let places = (length.saturating_sub(back)..length).step_by(LINE_WORDS).chain([length]);
            places.fold(touched, |touched, at| touched ^ words.get(list.at + at).copied().unwrap_or(0))
        });
        std::hint::black_box(touched);
    }

    /// Appends an entry and says where it ends. `need` tells, when the slab is full, how many of
    /// the entries before must stay, and how many may have to one day.
    #[inline]
    pub fn append(&mut self, series: u32, word: u64, need: impl FnOnce(&Self) -> (usize, usize)) -> usize {
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
        let kept = need.min(length);
        let wanted = if kept < ESTIMATE_FROM {
            // Twice what is kept, or a little more.
            kept.max(1) * 2
        } else {
            estimate.clamp(kept, kept * 4) * 4 / 3 + 1
        };
        let to = self.slabs.class_for(wanted).max(self.class);
        let end = list.at + length;
        // Series are much alike: what one needs, the others will need soon.
        let words = (self.slabs.items().len() * GROWTH_MAX).min(GROWTH_WORDS_MAX);
        self.slabs.expect(self.lists.len().min(words / self.slabs.capacity(to)), to);
        let at = self.slabs.copy(end - kept..end, to);
        self.left.push((list.at, list.class));
        self.lists[series as usize] = List { at, length: kept as u32, class: to };
    }

    /// Says that the batch is computed.
    pub fn next_batch(&mut self) {
        for (at, class) in self.left.drain(..) {
            self.slabs.give(at, class);
        }
    }

    /// Adds a series with these entries; about so many like it will be added next.
    pub fn restore(&mut self, words: &[u64], next: usize) {
        let class = self.slabs.class_for(words.len() * 4 / 3 + 1).max(self.class);
        self.slabs.expect(next + 1, class);
        let at = self.slabs.take(class);
        self.slabs.items_mut()[at..at + words.len()].copy_from_slice(words);
        self.lists.push(List { at, length: words.len() as u32, class });
    }

    /// Forgets a series; the last one gets its number.
    pub fn remove(&mut self, series: usize) {
        let List { at, class, .. } = self.lists.swap_remove(series);
        self.slabs.give(at, class);
    }

    /// Forgets all series but one.
    pub fn keep_only(&mut self, series: usize) {
        let mut only = Column::new(self.class > 0);
        only.restore(self.entries(series), 0);
        *self = only;
    }

    pub fn bytes(&self) -> usize {
        self.slabs.bytes() + self.lists.capacity() * size_of::<List>() + self.left.capacity() * size_of::<(usize, u8)>()
    }
}
