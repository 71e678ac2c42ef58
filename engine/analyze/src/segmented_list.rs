//! A list that grows without being copied.

use std::ops::Index;

/// The bits of an index that count within a segment.
const SEGMENT_BITS: u32 = 13;

/// Values of a full segment.
const SEGMENT_LEN: usize = 1 << SEGMENT_BITS;

/// Values in segments of one length. The first segment grows like any list, so that short lists stay small.
#[derive(Debug)]
pub(crate) struct SegmentedList<T> {
    /// All but the last are full; none is empty.
    segments: Vec<Vec<T>>,
}

impl<T> Default for SegmentedList<T> {
    fn default() -> Self {
        SegmentedList {
            segments: Vec::new(),
        }
    }
}

impl<T> SegmentedList<T> {
    pub(crate) fn len(&self) -> usize {
        match self.segments.split_last() {
            None => 0,
            Some((last_segment, full)) => full.len() * SEGMENT_LEN + last_segment.len(),
        }
    }

    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        let segment = self.segments.get(index >> SEGMENT_BITS)?;
        segment.get(index & (SEGMENT_LEN - 1))
    }

    pub(crate) fn push(&mut self, value: T) {
        match self.segments.last_mut() {
            None => self.segments.push(vec![value]),
            Some(segment) if segment.len() < SEGMENT_LEN => segment.push(value),
            Some(_) => {
                let mut segment = Vec::with_capacity(SEGMENT_LEN);
                segment.push(value);
                self.segments.push(segment);
            }
        }
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        let values = match self.segments.split_last() {
            None => 0,
            Some((last_segment, full)) => full.len() * SEGMENT_LEN + last_segment.capacity(),
        };
        values * size_of::<T>()
    }
}

impl<T> Index<usize> for SegmentedList<T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        &self.segments[index >> SEGMENT_BITS][index & (SEGMENT_LEN - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_places_of_a_flat_list() {
        for len in [
            0,
            1,
            5,
            SEGMENT_LEN - 1,
            SEGMENT_LEN,
            SEGMENT_LEN + 1,
            3 * SEGMENT_LEN,
        ] {
            let mut list = SegmentedList::default();
            for value in 0..len {
                assert_eq!(list.len(), value);
                list.push(value as u16);
            }
            assert_eq!(list.len(), len);
            for index in 0..len {
                assert_eq!(list.get(index), Some(&(index as u16)));
                assert_eq!(list[index], index as u16);
            }
            assert_eq!(list.get(len), None);
            assert_eq!(list.get(len + SEGMENT_LEN), None);
            // Memory is that of the values, but for the rest of the last segment.
            assert!(list.bytes() >= 2 * len);
            assert!(list.bytes() <= 2 * (len + SEGMENT_LEN));
        }
    }
}
