//! Parquet's encoding of small numbers.

use std::marker::PhantomData;

/// Parquet's hybrid of runs and packed bits: numbers of `width` bits that repeat often or not.
pub(super) fn encode_rle_hybrid(numbers: &[u32], width: u8, out: &mut Vec<u8>) {
    // Where numbers begin that are not written yet, because they do not repeat.
    let mut from = 0;
    let mut at = 0;
    while at < numbers.len() {
        let run = numbers[at..]
            .iter()
            .take_while(|number| **number == numbers[at])
            .count();
        // Packed numbers come in groups of eight, which the run fills up.
        let fill = (at - from).next_multiple_of(8) - (at - from);
        if run >= fill + 8 {
            encode_bit_packed(&numbers[from..at + fill], width, out);
            encode_varint(((run - fill) as u64) << 1, out);
            out.extend_from_slice(&numbers[at].to_le_bytes()[..usize::from(width).div_ceil(8)]);
            from = at + run;
        }
        at += run;
    }
    encode_bit_packed(&numbers[from..], width, out);
}

/// Encodes groups of eight numbers bit-packed, lowest bits first; zeros fill the last group.
fn encode_bit_packed(numbers: &[u32], width: u8, out: &mut Vec<u8>) {
    if numbers.is_empty() {
        return;
    }
    encode_varint((numbers.len().div_ceil(8) << 1 | 1) as u64, out);
    pack_bits(numbers, width, out);
}

/// Packs the bits of numbers, lowest bits first, padded with zeros to a multiple of eight numbers.
pub(super) fn pack_bits<T: Copy + Into<u64>>(numbers: &[T], width: u8, out: &mut Vec<u8>) {
    let remainder = match PackTable::<T>::OF_WIDTH.get(usize::from(width)) {
        None => numbers,
        Some(pack) => {
            let (blocks, remainder) = numbers.as_chunks();
            for block in blocks.iter() {
                pack(block, out);
            }
            remainder
        }
    };
    let width = u32::from(width);
    let mut bits = 0u64;
    let mut bit_count = 0;
    let zeros = remainder.len().next_multiple_of(8) - remainder.len();
    for number in remainder
        .iter()
        .map(|number| (*number).into())
        .chain(std::iter::repeat_n(0, zeros))
    {
        bits |= number << bit_count;
        bit_count += width;
        if bit_count >= u64::BITS {
            out.extend_from_slice(&bits.to_le_bytes());
            bit_count -= u64::BITS;
            bits = if bit_count == 0 {
                0
            } else {
                number >> (width - bit_count)
            };
        }
    }
    out.extend_from_slice(&bits.to_le_bytes()[..bit_count as usize / 8]);
}

/// Numbers that are packed at once.
const BLOCK: usize = 32;

/// Packs a block of numbers of a width that is known at compile time, so that all shifts are.
type PackFunction<T> = fn(&[T; BLOCK], &mut Vec<u8>);

/// Packing functions for numbers of a type, by their width.
struct PackTable<T>(PhantomData<T>);

impl<T: Copy + Into<u64>> PackTable<T> {
    #[rustfmt::skip]
    const OF_WIDTH: [PackFunction<T>; 25] = [
        pack_block::<T, 0>,
        pack_block::<T, 1>, pack_block::<T, 2>, pack_block::<T, 3>, pack_block::<T, 4>,
        pack_block::<T, 5>, pack_block::<T, 6>, pack_block::<T, 7>, pack_block::<T, 8>,
        pack_block::<T, 9>, pack_block::<T, 10>, pack_block::<T, 11>, pack_block::<T, 12>,
        pack_block::<T, 13>, pack_block::<T, 14>, pack_block::<T, 15>, pack_block::<T, 16>,
        pack_block::<T, 17>, pack_block::<T, 18>, pack_block::<T, 19>, pack_block::<T, 20>,
        pack_block::<T, 21>, pack_block::<T, 22>, pack_block::<T, 23>, pack_block::<T, 24>,
    ];
}

fn pack_block<T: Copy + Into<u64>, const WIDTH: usize>(numbers: &[T; BLOCK], out: &mut Vec<u8>) {
    let mut words = [0u32; 25];
    for (at, number) in numbers.iter().enumerate() {
        let word = at * WIDTH / 32;
        let shift = at * WIDTH % 32;
        let shifted = (*number).into() << shift;
        words[word] |= shifted as u32;
        words[word + 1] |= (shifted >> 32) as u32;
    }
    for word in words[..WIDTH].iter() {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

/// A number in groups of seven bits, lowest first.
pub(super) fn encode_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
