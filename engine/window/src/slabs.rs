//! Memory for many short columns: slabs of a few sizes, used again when they are given back.

/// Slabs of `width` columns; a slab of class `c` has room for `first << c` words in each column.
#[derive(Debug, Clone)]
pub(crate) struct Slabs {
    words: Vec<u64>,
    free: Vec<Vec<usize>>,
    width: usize,
    first: usize,
}

impl Slabs {
    pub fn new(width: usize, first: usize) -> Self {
        Slabs { words: Vec::new(), free: Vec::new(), width, first }
    }

    pub fn words(&self) -> &[u64] {
        &self.words
    }

    pub fn words_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }

    /// Words in one column of a slab.
    pub fn capacity(&self, class: u8) -> usize {
        self.first << class
    }

    /// The smallest class whose columns have room for so many words.
    pub fn class_for(&self, words: usize) -> u8 {
        words.div_ceil(self.first).next_power_of_two().trailing_zeros() as u8
    }

    /// A slab with any content.
    pub fn take(&mut self, class: u8) -> usize {
        if let Some(at) = self.free.get_mut(usize::from(class)).and_then(Vec::pop) {
            return at;
        }
        let (at, size) = (self.words.len(), self.width * self.capacity(class));
        if self.words.capacity() - at < size {
            // Gentle growth: what is not used is small beside what is.
            self.words.reserve_exact(size.max(at / 8).max(1 << 10));
        }
        self.words.resize(at + size, 0);
        at
    }

    /// Gives a slab back.
    pub fn give(&mut self, at: usize, class: u8) {
        let class = usize::from(class);
        if self.free.len() <= class {
            self.free.resize(class + 1, Vec::new());
        }
        self.free[class].push(at);
    }

    /// Drops the first words of each column; `length` words stay.
    pub fn shift(&mut self, at: usize, class: u8, drop: usize, length: usize) {
        let capacity = self.capacity(class);
        for column in 0..self.width {
            let start = at + column * capacity;
            self.words.copy_within(start + drop..start + drop + length, start);
        }
    }

    /// Moves `length` words of each column, without the first `drop`, to a slab of another class.
    pub fn resize(&mut self, at: usize, class: u8, drop: usize, length: usize, to: u8) -> usize {
        let new = self.take(to);
        let (from_capacity, to_capacity) = (self.capacity(class), self.capacity(to));
        for column in 0..self.width {
            let start = at + column * from_capacity + drop;
            self.words.copy_within(start..start + length, new + column * to_capacity);
        }
        self.give(at, class);
        new
    }

    pub fn bytes(&self) -> usize {
        let free: usize = self.free.iter().map(|list| list.capacity() * size_of::<usize>()).sum();
        self.words.capacity() * size_of::<u64>() + free
    }
}
