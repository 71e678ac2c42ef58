//! Slab allocator: memory for many short lists, in power-of-two size classes.

/// Slabs of items; a slab of class `c` holds `first << c` of them.
#[derive(Debug, Clone)]
pub(crate) struct SlabAllocator<T> {
    items: Vec<T>,
    free: Vec<Vec<usize>>,
    first: usize,
}

impl<T: Copy + Default> SlabAllocator<T> {
    pub fn new(first: usize) -> Self {
        SlabAllocator {
            items: Vec::new(),
            free: Vec::new(),
            first,
        }
    }

    #[inline]
    pub fn items(&self) -> &[T] {
        &self.items
    }

    #[inline]
    pub fn items_mut(&mut self) -> &mut [T] {
        &mut self.items
    }

    /// Capacity of a slab in items.
    #[inline]
    pub fn capacity(&self, class: u8) -> usize {
        self.first << class
    }

    /// The smallest class that holds this many items.
    pub fn class_for(&self, items: usize) -> u8 {
        items
            .div_ceil(self.first)
            .next_power_of_two()
            .trailing_zeros() as u8
    }

    /// Allocates a slab with arbitrary content; returns its start.
    pub fn allocate(&mut self, class: u8) -> usize {
        if let Some(at) = self.free.get_mut(usize::from(class)).and_then(Vec::pop) {
            return at;
        }
        let at = self.items.len();
        let size = self.capacity(class);
        // The vector doubles: growing copies it, and unused capacity costs no memory until it is touched.
        self.items.resize(at + size, T::default());
        at
    }

    /// Reserves memory for about this many slabs of a class: growing once copies once.
    pub fn reserve(&mut self, slabs: usize, class: u8) {
        let is_free = self
            .free
            .get(usize::from(class))
            .is_some_and(|free| !free.is_empty());
        if !is_free && self.items.capacity() - self.items.len() < self.capacity(class) {
            self.items
                .reserve(slabs.saturating_mul(self.capacity(class)));
        }
    }

    /// Releases a slab.
    pub fn release(&mut self, at: usize, class: u8) {
        let class = usize::from(class);
        if self.free.len() <= class {
            self.free.resize(class + 1, Vec::new());
        }
        self.free[class].push(at);
    }

    /// Allocates a slab and copies items to its start.
    pub fn copy(&mut self, from: std::ops::Range<usize>, class: u8) -> usize {
        let at = self.allocate(class);
        self.items.copy_within(from, at);
        at
    }

    /// Bytes of all slabs ever allocated.
    pub fn bytes(&self) -> usize {
        let free: usize = self
            .free
            .iter()
            .map(|list| list.capacity() * size_of::<usize>())
            .sum();
        self.items.len() * size_of::<T>() + free
    }
}
