//! A walk through bytes that may end anywhere.

/// Bytes, and how far they have been passed.
pub(super) struct ByteWalk<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> ByteWalk<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> ByteWalk<'b> {
        ByteWalk { bytes, at: 0 }
    }

    /// The number of bytes that have been passed.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let end = self.at.checked_add(count)?;
        let bytes = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(bytes)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    /// A number in groups of seven bits, lowest bits first.
    pub(super) fn varint(&mut self) -> Option<u64> {
        let mut bits = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            bits |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(bits);
            }
        }
        None
    }
}
