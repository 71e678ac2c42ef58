//! Doubles in few bytes.

use forebay_model::{Fault, Result, StateDecoder, StateEncoder, codes};

/// Bytes per write and read: a multiple of the width of every layout.
const BYTES_PER_WRITE: usize = 4096;

/// A layout of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NarrowLayout {
    Int8,
    Int16,
    Float32,
    Int32,
    Float64,
}

impl NarrowLayout {
    /// All layouts, the narrowest first. A layout is encoded as its index.
    const ALL: [NarrowLayout; 5] = [
        NarrowLayout::Int8,
        NarrowLayout::Int16,
        NarrowLayout::Float32,
        NarrowLayout::Int32,
        NarrowLayout::Float64,
    ];

    fn value_bytes(self) -> usize {
        match self {
            NarrowLayout::Int8 => 1,
            NarrowLayout::Int16 => 2,
            NarrowLayout::Float32 | NarrowLayout::Int32 => 4,
            NarrowLayout::Float64 => 8,
        }
    }

    /// The narrowest layout that holds all values.
    fn of(values: &[f64]) -> Self {
        let mut layouts = NarrowLayout::ALL.into_iter();
        let narrowest = layouts.find(|layout| values.iter().all(|&value| layout.holds(value)));
        narrowest.unwrap_or(NarrowLayout::Float64)
    }

    /// True if the value comes back with the same bits.
    fn holds(self, value: f64) -> bool {
        // The casts saturate: a value that does not fit differs from its way back.
        let decoded = match self {
            NarrowLayout::Int8 => f64::from(value as i8),
            NarrowLayout::Int16 => f64::from(value as i16),
            NarrowLayout::Float32 => f64::from(value as f32),
            NarrowLayout::Int32 => f64::from(value as i32),
            NarrowLayout::Float64 => value,
        };
        decoded.to_bits() == value.to_bits()
    }

    fn append(self, bytes: &mut Vec<u8>, values: &[f64]) {
        for &value in values {
            match self {
                NarrowLayout::Int8 => bytes.extend_from_slice(&(value as i8).to_le_bytes()),
                NarrowLayout::Int16 => bytes.extend_from_slice(&(value as i16).to_le_bytes()),
                NarrowLayout::Float32 => bytes.extend_from_slice(&(value as f32).to_le_bytes()),
                NarrowLayout::Int32 => bytes.extend_from_slice(&(value as i32).to_le_bytes()),
                NarrowLayout::Float64 => bytes.extend_from_slice(&value.to_le_bytes()),
            }
        }
    }

    fn extend(self, values: &mut Vec<f64>, bytes: &[u8]) {
        match self {
            NarrowLayout::Int8 => {
                let (numbers, _) = bytes.as_chunks::<1>();
                values.extend(numbers.iter().map(|n| f64::from(i8::from_le_bytes(*n))));
            }
            NarrowLayout::Int16 => {
                let (numbers, _) = bytes.as_chunks::<2>();
                values.extend(numbers.iter().map(|n| f64::from(i16::from_le_bytes(*n))));
            }
            NarrowLayout::Float32 => {
                let (numbers, _) = bytes.as_chunks::<4>();
                values.extend(numbers.iter().map(|n| f64::from(f32::from_le_bytes(*n))));
            }
            NarrowLayout::Int32 => {
                let (numbers, _) = bytes.as_chunks::<4>();
                values.extend(numbers.iter().map(|n| f64::from(i32::from_le_bytes(*n))));
            }
            NarrowLayout::Float64 => {
                let (numbers, _) = bytes.as_chunks::<8>();
                values.extend(numbers.iter().map(|n| f64::from_le_bytes(*n)));
            }
        }
    }
}

/// Writes values in the narrowest layout that holds all of them exactly.
pub(crate) fn write_narrow(out: &mut StateEncoder<'_>, values: &[f64]) -> Result<()> {
    let layout = NarrowLayout::of(values);
    out.raw(&[layout as u8])?;
    out.varint(values.len() as u64)?;
    let mut bytes = Vec::with_capacity(BYTES_PER_WRITE);
    for values in values.chunks(BYTES_PER_WRITE / layout.value_bytes()) {
        bytes.clear();
        layout.append(&mut bytes, values);
        out.raw(&bytes)?;
    }
    Ok(())
}

/// Reads values of [`write_narrow`], of which there are at most `values_max`. Allocates as bytes are read.
pub(crate) fn read_narrow(input: &mut StateDecoder<'_>, values_max: usize) -> Result<Vec<f64>> {
    let mut code = [0];
    input.raw(&mut code)?;
    let [code] = code;
    let layout = NarrowLayout::ALL.get(usize::from(code));
    let layout = layout
        .ok_or_else(|| Fault::new(codes::CORRUPT, "a state holds numbers of an unknown layout"))?;
    let length = input.length(values_max)?;
    let mut values = Vec::new();
    let mut buffer = [0; BYTES_PER_WRITE];
    while values.len() < length {
        let unread_bytes = (length - values.len()) * layout.value_bytes();
        let bytes = &mut buffer[..unread_bytes.min(BYTES_PER_WRITE)];
        input.raw(bytes)?;
        layout.extend(&mut values, bytes);
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // Only tests are here.

    use super::*;

    #[test]
    fn values_come_back_from_the_narrowest_layout() {
        let cases: [(&[f64], usize); 9] = [
            (&[], 1),
            (&[0.0, -128.0, 127.0], 1),
            (&[0.0, 128.0, -32768.0], 2),
            (&[0.5, 1e9, f64::INFINITY], 4),
            (&[16_777_217.0, -2_147_483_648.0], 4),
            (&[-0.0, 1.0], 4),
            (&[0.1], 8),
            (&[16_777_217.0, 0.5], 8),
            (&[1e300, f64::NEG_INFINITY], 8),
        ];
        for (values, value_bytes) in cases {
            let repeated = values.repeat(2000);
            for values in [values, &repeated] {
                let mut bytes = Vec::new();
                write_narrow(&mut StateEncoder(&mut bytes), values).unwrap();
                let bytes_max = values.len() * value_bytes + 4;
                assert!(
                    bytes.len() <= bytes_max,
                    "{values:?}: {} bytes",
                    bytes.len()
                );
                let mut input = &bytes[..];
                let decoded = read_narrow(&mut StateDecoder(&mut input), values.len()).unwrap();
                let to_bits = |values: &[f64]| -> Vec<u64> {
                    values.iter().map(|value| value.to_bits()).collect()
                };
                assert_eq!(to_bits(&decoded), to_bits(values));
                assert!(input.is_empty());
            }
        }
    }

    #[test]
    fn more_values_than_there_can_be_are_a_fault() {
        let mut bytes = Vec::new();
        write_narrow(&mut StateEncoder(&mut bytes), &[1.0, 2.0, 3.0]).unwrap();
        assert!(read_narrow(&mut StateDecoder(&mut &bytes[..]), 2).is_err());
        bytes[0] = NarrowLayout::ALL.len() as u8;
        assert!(read_narrow(&mut StateDecoder(&mut &bytes[..]), 3).is_err());
    }
}
