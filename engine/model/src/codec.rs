//! Little-endian encoding of states.

use std::io::{Read, Write};

use crate::{Fault, Result, codes};

/// Writes numbers and byte strings. Lengths are LEB128, everything else is little-endian.
pub struct StateEncoder<'a>(pub &'a mut dyn Write);

impl StateEncoder<'_> {
    /// Raw bytes without a length.
    pub fn raw(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.write_all(bytes).map_err(write_fault)
    }

    /// An unsigned number of up to 64 bits (LEB128).
    pub fn varint(&mut self, mut value: u64) -> Result<()> {
        let mut buffer = [0; 10];
        let mut used = 0;
        loop {
            let low = (value & 0x7f) as u8;
            value >>= 7;
            buffer[used] = if value == 0 { low } else { low | 0x80 };
            used += 1;
            if value == 0 {
                return self.raw(&buffer[..used]);
            }
        }
    }

    /// Bytes, preceded by their length.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.varint(bytes.len() as u64)?;
        self.raw(bytes)
    }

    /// A fixed 64-bit number.
    pub fn u64(&mut self, value: u64) -> Result<()> {
        self.raw(&value.to_le_bytes())
    }

    /// A double as its 64 bits.
    pub fn f64(&mut self, value: f64) -> Result<()> {
        self.u64(value.to_bits())
    }

    /// A signed number in zigzag LEB128: small magnitudes take few bytes.
    pub fn signed(&mut self, value: i64) -> Result<()> {
        self.varint(((value << 1) ^ (value >> 63)) as u64)
    }

    /// A 64-bit word in a variable number of bytes. Bits of a small non-negative integral double take one byte. Any
    /// other word takes a code byte that gives the range of its nonzero bytes, followed by those bytes.
    pub fn word(&mut self, word: u64) -> Result<()> {
        let mut buffer = [0; WORD_BYTES_MAX];
        let used = put_word(word, &mut buffer);
        self.raw(&buffer[..used])
    }

    /// A sequence of words.
    pub fn words(&mut self, words: &[u64]) -> Result<()> {
        // Words are short: one write call per word would cost more than encoding it.
        let mut buffer = [0; WORDS_PER_WRITE * WORD_BYTES_MAX];
        for words in words.chunks(WORDS_PER_WRITE) {
            let mut used = 0;
            for word in words {
                let free = buffer[used..]
                    .first_chunk_mut()
                    .ok_or_else(|| Fault::internal("a word is too long"))?;
                used += put_word(*word, free);
            }
            self.raw(&buffer[..used])?;
        }
        Ok(())
    }

    /// A double, encoded as a word.
    pub fn number(&mut self, value: f64) -> Result<()> {
        self.word(value.to_bits())
    }
}

/// Most bytes of an encoded word.
const WORD_BYTES_MAX: usize = 9;

/// Words encoded per write call.
const WORDS_PER_WRITE: usize = 64;

/// Encodes a word at the front of a buffer; returns its length in bytes.
#[inline]
fn put_word(word: u64, buffer: &mut [u8; WORD_BYTES_MAX]) -> usize {
    // The cast saturates: a word that is no such integer differs from its way back.
    let value = f64::from_bits(word) as u8;
    if value < INTEGRAL_CODES && f64::from(value).to_bits() == word {
        buffer[0] = value;
        return 1;
    }
    // Zero bytes at both ends are left out; the code says how many.
    let below = word.trailing_zeros() / 8;
    let bytes = (8 - word.leading_zeros() / 8 - below) as usize;
    buffer[0] = INTEGRAL_CODES + range_code(bytes) + below as u8;
    buffer[1..].copy_from_slice(&(word >> (8 * below)).to_le_bytes());
    bytes + 1
}

/// Number of codes for integral doubles: 0.0 to 219.0 take one byte. The other 36 codes stand for the contiguous
/// ranges of nonzero bytes in an 8-byte word.
const INTEGRAL_CODES: u8 = 220;

/// Offset of the first code for ranges of `bytes` bytes; the codes after it differ by the number of zero bytes
/// below.
const fn range_code(bytes: usize) -> u8 {
    ((bytes - 1) * (18 - bytes) / 2) as u8
}

/// For each range code: the number of bytes, and the number of zero bytes below them.
const NONZERO_RANGES: [(u8, u8); u8::MAX as usize - INTEGRAL_CODES as usize + 1] = {
    let mut ways = [(0, 0); u8::MAX as usize - INTEGRAL_CODES as usize + 1];
    let mut bytes = 1;
    while bytes <= 8 {
        let mut below = 0;
        while below <= 8 - bytes {
            ways[range_code(bytes) as usize + below] = (bytes as u8, below as u8);
            below += 1;
        }
        bytes += 1;
    }
    ways
};

/// Most bytes allocated before they have been read.
const ALLOCATION_STEP_BYTES: usize = 1 << 20;

/// Most rows, values or bytes that a state can have counted.
pub const COUNT_MAX: u64 = 1 << 56;

/// Reads bytes written by `StateEncoder`; every length is checked before use.
pub struct StateDecoder<'a>(pub &'a mut dyn Read);

impl StateDecoder<'_> {
    /// Fills the buffer.
    pub fn raw(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.0
            .read_exact(bytes)
            .map_err(|error| Fault::new(codes::CORRUPT, "a state is truncated").cause(error))
    }

    /// A LEB128 number.
    pub fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let mut byte = [0];
            self.raw(&mut byte)?;
            // The tenth byte has room for one bit.
            if shift == 63 && byte[0] > 1 {
                break;
            }
            value |= u64::from(byte[0] & 0x7f) << shift;
            if byte[0] & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Fault::new(
            codes::CORRUPT,
            "a state has a number that is too long",
        ))
    }

    /// A length or count that must not exceed `max`.
    pub fn length(&mut self, max: usize) -> Result<usize> {
        let length = self.varint()?;
        if length > max as u64 {
            let message = format!("a state holds a length of {length}, more than {max}");
            return Err(Fault::new(codes::CORRUPT, message));
        }
        Ok(length as usize)
    }

    /// A number of rows, values or bytes. More than [`COUNT_MAX`] is damage, so that sums of counts do not overflow.
    pub fn count(&mut self) -> Result<u64> {
        let count = self.varint()?;
        if count > COUNT_MAX {
            let message = format!("a state holds a count of {count}, more than {COUNT_MAX}");
            return Err(Fault::new(codes::CORRUPT, message));
        }
        Ok(count)
    }

    /// Bytes preceded by their length, of which there are at most `max`.
    pub fn bytes(&mut self, max: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.bytes_into(&mut bytes, max)?;
        Ok(bytes)
    }

    /// Reads bytes with their length into a buffer, whose content is replaced. The buffer grows as bytes are read: a corrupt
    /// length allocates at most 1 MiB.
    pub fn bytes_into(&mut self, bytes: &mut Vec<u8>, max: usize) -> Result<()> {
        let length = self.length(max)?;
        bytes.clear();
        while bytes.len() < length {
            let start = bytes.len();
            bytes.resize(length.min(start + ALLOCATION_STEP_BYTES), 0);
            self.raw(&mut bytes[start..])?;
        }
        Ok(())
    }

    /// A fixed 64-bit number.
    pub fn u64(&mut self) -> Result<u64> {
        let mut bytes = [0; 8];
        self.raw(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// A double, by its bits.
    pub fn f64(&mut self) -> Result<f64> {
        Ok(f64::from_bits(self.u64()?))
    }

    /// A signed number.
    pub fn signed(&mut self) -> Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// A word of variable length.
    pub fn word(&mut self) -> Result<u64> {
        let mut first = [0];
        self.raw(&mut first)?;
        let [first] = first;
        if first < INTEGRAL_CODES {
            return Ok(f64::from(first).to_bits());
        }
        let way = usize::from(first - INTEGRAL_CODES);
        let (bytes, below) = NONZERO_RANGES[way];
        let mut word = [0; 8];
        self.raw(&mut word[..usize::from(bytes)])?;
        Ok(u64::from_le_bytes(word) << (8 * below))
    }

    /// A double, encoded as a word.
    pub fn number(&mut self) -> Result<f64> {
        Ok(f64::from_bits(self.word()?))
    }
}

fn write_fault(error: std::io::Error) -> Fault {
    Fault::disk("a state cannot be written", error)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // Only tests are here.

    use super::*;

    #[test]
    fn words_round_trip_in_few_bytes() {
        let doubles = [
            0.0,
            1.0,
            219.0,
            220.0,
            -0.0,
            -1.0,
            0.5,
            0.1,
            1e300,
            f64::NAN,
            f64::INFINITY,
        ]
        .map(f64::to_bits);
        let shifted = (0..64).flat_map(|shift| {
            [
                1 << shift,
                u64::MAX << shift,
                u64::MAX >> shift,
                0x81 << shift,
            ]
        });
        for word in doubles.into_iter().chain(shifted).chain([i64::MIN as u64]) {
            let mut bytes = Vec::new();
            StateEncoder(&mut bytes).word(word).unwrap();
            let held = word
                .to_le_bytes()
                .iter()
                .skip_while(|byte| **byte == 0)
                .count();
            assert!(
                bytes.len() <= held + 1,
                "{word:x} took {} bytes",
                bytes.len()
            );
            let mut input = &bytes[..];
            assert_eq!(StateDecoder(&mut input).word().unwrap(), word);
            assert!(input.is_empty());
        }
        let words: Vec<u64> = (0..333)
            .map(|number| 0x9e37_79b9_u64 << (number % 60))
            .collect();
        let mut one_by_one = Vec::new();
        let mut together = Vec::new();
        words
            .iter()
            .for_each(|word| StateEncoder(&mut one_by_one).word(*word).unwrap());
        StateEncoder(&mut together).words(&words).unwrap();
        assert_eq!(one_by_one, together);
        for value in [0, -1, 63, -64, i64::MAX, i64::MIN] {
            let mut bytes = Vec::new();
            StateEncoder(&mut bytes).signed(value).unwrap();
            assert_eq!(StateDecoder(&mut &bytes[..]).signed().unwrap(), value);
            assert!(value.unsigned_abs() > 64 || bytes.len() == 1);
        }
    }
}
