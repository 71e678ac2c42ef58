//! Little-endian bytes of states.

use std::io::{Read, Write};

use crate::{Fault, Result, codes};

/// Writes numbers and byte strings. Lengths are LEB128, everything else is little-endian.
pub struct Encoder<'a>(pub &'a mut dyn Write);

impl Encoder<'_> {
    /// Raw bytes without a length.
    pub fn raw(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.write_all(bytes).map_err(write_fault)
    }

    /// An unsigned number of any size (LEB128).
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

    /// Bytes after their length.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.varint(bytes.len() as u64)?;
        self.raw(bytes)
    }

    /// A fixed 64-bit number.
    pub fn u64(&mut self, value: u64) -> Result<()> {
        self.raw(&value.to_le_bytes())
    }

    /// A double, by its bits.
    pub fn f64(&mut self, value: f64) -> Result<()> {
        self.u64(value.to_bits())
    }
}

/// Reads what [`Encoder`] wrote; every length is checked before it is believed.
pub struct Decoder<'a>(pub &'a mut dyn Read);

impl Decoder<'_> {
    /// Fills the buffer.
    pub fn raw(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.0.read_exact(bytes).map_err(|error| Fault::new(codes::CORRUPT, "a state ends too early").cause(error))
    }

    /// A LEB128 number.
    pub fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let mut byte = [0];
            self.raw(&mut byte)?;
            if shift == 63 && byte[0] > 1 {
                break;
            }
            value |= u64::from(byte[0] & 0x7f) << shift;
            if byte[0] & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Fault::new(codes::CORRUPT, "a state holds a number that is too long"))
    }

    /// A length or count that must not exceed `max`.
    pub fn length(&mut self, max: usize) -> Result<usize> {
        let length = self.varint()?;
        if length > max as u64 {
            return Err(Fault::new(codes::CORRUPT, format!("a state holds a length of {length}, more than {max}")));
        }
        Ok(length as usize)
    }

    /// Bytes after their length, at most `max` of them.
    pub fn bytes(&mut self, max: usize) -> Result<Vec<u8>> {
        let length = self.length(max)?;
        let mut bytes = vec![0; length];
        self.raw(&mut bytes)?;
        Ok(bytes)
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
}

fn write_fault(error: std::io::Error) -> Fault {
    Fault::disk("a state cannot be written", error)
}
