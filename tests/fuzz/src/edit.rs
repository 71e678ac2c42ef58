//! Mutations: a seed and what is done to it.

use bolero::TypeGenerator;
use bolero::generator::*;

/// The longest input that edits make.
const BYTES_MAX: usize = 1 << 20;

/// Numbers at which sizes, signs and widths change.
const NUMBERS: [u64; 16] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x0010_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x0001_0000_0000,
    0x00ff_ffff_ffff_ffff,
    i64::MAX as u64,
    i64::MIN as u64,
    u64::MAX,
];

/// A mutation of a seed.
#[derive(Debug, Clone, TypeGenerator)]
pub struct SeedMutation {
    /// Which seed.
    seed: u16,
    /// In order.
    #[generator(produce::<Vec<ByteEdit>>().with().len(1..=6usize))]
    edits: Vec<ByteEdit>,
}

/// One change. Positions are shares of the input's length.
#[derive(Debug, Clone, TypeGenerator)]
pub(crate) enum ByteEdit {
    /// Flips a bit.
    Bit { at: u32, bit: u8 },
    /// Replaces a byte.
    Byte { at: u32, to: u8 },
    /// Replaces 1, 2, 4 or 8 bytes by a number, least byte first.
    Number { at: u32, number: u8, width: u8 },
    /// Removes up to 256 bytes.
    Remove { at: u32, bytes: u8 },
    /// Inserts a few bytes.
    Insert { at: u32, bytes: [u8; 4] },
    /// Inserts a word of the target's language.
    Word { at: u32, word: u16 },
    /// Replaces up to 256 bytes by a word of the target's language.
    Replace { at: u32, bytes: u8, word: u16 },
    /// Inserts a piece of the input again, several times.
    Repeat { at: u32, bytes: u16, times: u8 },
    /// Leaves out the rest.
    Cut { at: u32 },
    /// Continues with a piece of another seed.
    Splice { at: u32, seed: u16, from: u32 },
}

/// A share of a length, from 0 to the length.
fn scaled_position(at: u32, length: usize) -> usize {
    (((length as u64 + 1) * u64::from(at)) >> 32) as usize
}

impl SeedMutation {
    /// The mutated seed.
    pub fn apply(&self, seeds: &[Vec<u8>], words: &[&str]) -> Vec<u8> {
        let mut bytes = pick(seeds, self.seed).clone();
        self.edits
            .iter()
            .for_each(|edit| edit.apply(&mut bytes, seeds, words));
        bytes
    }
}

fn pick<T>(all: &[T], which: u16) -> &T {
    &all[usize::from(which) % all.len()]
}

impl ByteEdit {
    fn apply(&self, bytes: &mut Vec<u8>, seeds: &[Vec<u8>], words: &[&str]) {
        let place = |at: &u32| scaled_position(*at, bytes.len());
        let upto = |at: usize, count: usize| bytes.len().min(at + count);
        match self {
            ByteEdit::Bit { at, bit } => {
                let at = place(at);
                bytes
                    .get_mut(at)
                    .into_iter()
                    .for_each(|byte| *byte ^= 1 << (bit % 8));
            }
            ByteEdit::Byte { at, to } => {
                let at = place(at);
                bytes.get_mut(at).into_iter().for_each(|byte| *byte = *to);
            }
            ByteEdit::Number { at, number, width } => {
                let at = place(at);
                let number = pick(&NUMBERS, u16::from(*number)).to_le_bytes();
                let end = upto(at, 1 << (width % 4));
                bytes[at..end].copy_from_slice(&number[..end - at]);
            }
            ByteEdit::Remove { at, bytes: count } => {
                let at = place(at);
                bytes.drain(at..upto(at, 1 + usize::from(*count)));
            }
            ByteEdit::Insert { at, bytes: new } => {
                let at = place(at);
                bytes.splice(at..at, *new);
            }
            ByteEdit::Word { at, word } => {
                let at = place(at);
                bytes.splice(at..at, pick(words, *word).bytes());
            }
            ByteEdit::Replace {
                at,
                bytes: count,
                word,
            } => {
                let at = place(at);
                bytes.splice(
                    at..upto(at, usize::from(*count)),
                    pick(words, *word).bytes(),
                );
            }
            ByteEdit::Repeat {
                at,
                bytes: count,
                times,
            } => {
                let at = place(at);
                let piece = bytes[at..upto(at, usize::from(*count))].repeat(usize::from(*times));
                if bytes.len() + piece.len() <= BYTES_MAX {
                    bytes.splice(at..at, piece);
                }
            }
            ByteEdit::Cut { at } => bytes.truncate(place(at)),
            ByteEdit::Splice { at, seed, from } => {
                let other = pick(seeds, *seed);
                bytes.truncate(place(at));
                bytes.extend_from_slice(&other[scaled_position(*from, other.len())..]);
            }
        }
    }
}
