//! Lists of operations that share what they begin with.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Index into [`BoundPipeline::ops`](crate::BoundPipeline::ops).
pub type OpId = usize;

/// The operations of a stream. A clone, and a list of the first ones, share the memory: a step over thousands of columns
/// has an operation and an analyzer for each, and every analyzer keeps the operations before it.
#[derive(Clone, Default)]
pub struct OpList {
    /// The operations, and those that are expected to follow.
    shared: Arc<Vec<OpId>>,
    length: usize,
}

impl OpList {
    /// The first `count` operations.
    pub fn first(&self, count: usize) -> OpList {
        OpList {
            shared: self.shared.clone(),
            length: count.min(self.length),
        }
    }

    /// Appends an operation. One that is expected takes no memory.
    pub fn push(&mut self, op: OpId) {
        if self.shared.get(self.length) != Some(&op) {
            let shared = Arc::make_mut(&mut self.shared);
            shared.truncate(self.length);
            shared.push(op);
        }
        self.length += 1;
    }

    /// The operations, and those that are expected to follow.
    pub(crate) fn with_expected(&self) -> &[OpId] {
        &self.shared
    }

    /// The address of the memory, which lists share that begin alike. Another list may get it once this one is dropped.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }

    /// True if one of two lists begins with the other.
    pub(crate) fn continues(&self, other: &OpList) -> bool {
        let shorter = self.length.min(other.length);
        Arc::ptr_eq(&self.shared, &other.shared) || self[..shorter] == other[..shorter]
    }

    /// Prepares for operations that will likely be appended.
    pub(crate) fn expect(&mut self, ops: impl IntoIterator<Item = OpId>) {
        let mut shared = self.to_vec();
        shared.extend(ops);
        self.shared = Arc::new(shared);
    }
}

impl Deref for OpList {
    type Target = [OpId];

    fn deref(&self) -> &[OpId] {
        &self.shared[..self.length]
    }
}

impl PartialEq for OpList {
    fn eq(&self, other: &OpList) -> bool {
        **self == **other
    }
}

impl Eq for OpList {}

impl From<Vec<OpId>> for OpList {
    fn from(ops: Vec<OpId>) -> OpList {
        OpList {
            length: ops.len(),
            shared: Arc::new(ops),
        }
    }
}

impl<'l> IntoIterator for &'l OpList {
    type Item = &'l OpId;
    type IntoIter = std::slice::Iter<'l, OpId>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Debug for OpList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_operations_are_shared_and_others_are_not() {
        let mut list = OpList::from(vec![1, 2]);
        list.expect([5, 6, 7]);
        assert_eq!(*list, [1, 2]);
        let before = list.clone();
        list.push(5);
        list.push(6);
        assert_eq!((&*list, &*before), (&[1, 2, 5, 6][..], &[1, 2][..]));
        assert!(Arc::ptr_eq(&list.shared, &before.shared));
        assert!(list.continues(&before) && before.continues(&OpList::from(vec![1])));
        assert!(!list.continues(&OpList::from(vec![2])));
        let mut other = list.first(3);
        assert_eq!(*other, [1, 2, 5]);
        other.push(9);
        assert_eq!(*other, [1, 2, 5, 9]);
        assert_eq!(*list, [1, 2, 5, 6]);
        list.push(8);
        list.push(10);
        assert_eq!(*list, [1, 2, 5, 6, 8, 10]);
        assert_eq!(*list.first(99), *list);
    }
}
