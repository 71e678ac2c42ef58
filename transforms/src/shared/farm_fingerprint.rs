//! FarmHash's 64-bit fingerprint (Pike, github.com/google/farmhash), which TensorFlow and BigQuery hash texts by.
//!
//! All arithmetic is modulo 2^64. The function never changes.

const FACTOR_0: u64 = 0xc3a5_c85c_97cb_3127;
const FACTOR_1: u64 = 0xb492_b66f_be98_f273;
const FACTOR_2: u64 = 0x9ae1_6a3b_2f90_404f;

/// Bytes of a block of long texts.
const BLOCK_BYTES: usize = 64;

/// The fingerprint of bytes: `Fingerprint64` of FarmHash, `FARM_FINGERPRINT` of BigQuery.
pub(crate) fn farm_fingerprint(bytes: &[u8]) -> u64 {
    match bytes.len() {
        0..=16 => short(bytes),
        17..=32 => medium(bytes),
        33..=64 => of_one_block(bytes),
        _ => of_blocks(bytes),
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let chunk = bytes.get(at..).and_then(|bytes| bytes.first_chunk::<8>());
    chunk.map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

fn half_word(bytes: &[u8], at: usize) -> u64 {
    let chunk = bytes.get(at..).and_then(|bytes| bytes.first_chunk::<4>());
    chunk.map_or(0, |chunk| u64::from(u32::from_le_bytes(*chunk)))
}

/// The sum of three words.
fn sum(a: u64, b: u64, c: u64) -> u64 {
    a.wrapping_add(b).wrapping_add(c)
}

fn shift_mix(value: u64) -> u64 {
    value ^ (value >> 47)
}

/// One word of two.
fn mix(a: u64, b: u64, factor: u64) -> u64 {
    let first = shift_mix((a ^ b).wrapping_mul(factor));
    let second = shift_mix((b ^ first).wrapping_mul(factor));
    second.wrapping_mul(factor)
}

fn length_factor(bytes: &[u8]) -> u64 {
    FACTOR_2.wrapping_add(2 * bytes.len() as u64)
}

fn short(bytes: &[u8]) -> u64 {
    let length = bytes.len();
    let factor = length_factor(bytes);
    if length >= 8 {
        let a = word(bytes, 0).wrapping_add(FACTOR_2);
        let b = word(bytes, length - 8);
        let c = b.rotate_right(37).wrapping_mul(factor).wrapping_add(a);
        let d = a.rotate_right(25).wrapping_add(b).wrapping_mul(factor);
        return mix(c, d, factor);
    }
    if length >= 4 {
        let a = (half_word(bytes, 0) << 3).wrapping_add(length as u64);
        return mix(a, half_word(bytes, length - 4), factor);
    }
    let [first, .., last] = bytes else {
        return match bytes {
            [byte] => of_letters(*byte, *byte, *byte, 1),
            _ => FACTOR_2,
        };
    };
    of_letters(*first, bytes[length / 2], *last, length)
}

/// The fingerprint of one to three bytes by the first, the middle and the last one.
fn of_letters(first: u8, middle: u8, last: u8, length: usize) -> u64 {
    let a = u64::from(first) + (u64::from(middle) << 8);
    let b = length as u64 + (u64::from(last) << 2);
    shift_mix(a.wrapping_mul(FACTOR_2) ^ b.wrapping_mul(FACTOR_0)).wrapping_mul(FACTOR_2)
}

fn medium(bytes: &[u8]) -> u64 {
    let length = bytes.len();
    let factor = length_factor(bytes);
    let a = word(bytes, 0).wrapping_mul(FACTOR_1);
    let b = word(bytes, 8);
    let c = word(bytes, length - 8).wrapping_mul(factor);
    let d = word(bytes, length - 16).wrapping_mul(FACTOR_2);
    let first = mixed_sums(a, b, c, d);
    let second = sum(a, b.wrapping_add(FACTOR_2).rotate_right(18), c);
    mix(first, second, factor)
}

fn mixed_sums(a: u64, b: u64, c: u64, d: u64) -> u64 {
    sum(a.wrapping_add(b).rotate_right(43), c.rotate_right(30), d)
}

fn of_one_block(bytes: &[u8]) -> u64 {
    let length = bytes.len();
    let factor = length_factor(bytes);
    let a = word(bytes, 0).wrapping_mul(FACTOR_2);
    let b = word(bytes, 8);
    let c = word(bytes, length - 8).wrapping_mul(factor);
    let d = word(bytes, length - 16).wrapping_mul(FACTOR_2);
    let outer = mixed_sums(a, b, c, d);
    let second = sum(a, b.wrapping_add(FACTOR_2).rotate_right(18), c);
    let inner = mix(outer, second, factor);
    let e = word(bytes, 16).wrapping_mul(factor);
    let f = word(bytes, 24);
    let g = outer
        .wrapping_add(word(bytes, length - 32))
        .wrapping_mul(factor);
    let h = inner
        .wrapping_add(word(bytes, length - 24))
        .wrapping_mul(factor);
    let last = sum(e, f.wrapping_add(a).rotate_right(18), g);
    mix(mixed_sums(e, f, g, h), last, factor)
}

/// Three words and two pairs that remember the blocks before.
struct BlockState {
    x: u64,
    y: u64,
    z: u64,
    v: [u64; 2],
    w: [u64; 2],
}

impl BlockState {
    /// Accumulates a block of 64 bytes. Those before the last one multiply by the same factor, and `weight` is 1.
    fn push(&mut self, block: &[u8], factor: u64, weight: u64) {
        let x = sum(self.x, self.y, self.v[0]).wrapping_add(word(block, 8));
        let x = x.rotate_right(37).wrapping_mul(factor);
        let y = sum(self.y, self.v[1], word(block, 48));
        let y = y.rotate_right(42).wrapping_mul(factor);
        let x = x ^ self.w[1].wrapping_mul(weight);
        let y = sum(y, self.v[0].wrapping_mul(weight), word(block, 40));
        let z = self.z.wrapping_add(self.w[0]);
        let z = z.rotate_right(33).wrapping_mul(factor);
        self.v = weak_pair(
            block,
            self.v[1].wrapping_mul(factor),
            x.wrapping_add(self.w[0]),
        );
        self.w = weak_pair(
            block.get(32..).unwrap_or_default(),
            z.wrapping_add(self.w[1]),
            y.wrapping_add(word(block, 16)),
        );
        self.x = z;
        self.y = y;
        self.z = x;
    }
}

/// Two words of four and of two seeds.
fn weak_pair(bytes: &[u8], a: u64, b: u64) -> [u64; 2] {
    let begin = a.wrapping_add(word(bytes, 0));
    let last = word(bytes, 24);
    let b = sum(b, begin, last).rotate_right(21);
    let whole = sum(begin, word(bytes, 8), word(bytes, 16));
    let b = b.wrapping_add(whole.rotate_right(44));
    [whole.wrapping_add(last), b.wrapping_add(begin)]
}

fn of_blocks(bytes: &[u8]) -> u64 {
    const SEED: u64 = 81;
    let y = SEED.wrapping_mul(FACTOR_1).wrapping_add(113);
    let z = shift_mix(y.wrapping_mul(FACTOR_2).wrapping_add(113)).wrapping_mul(FACTOR_2);
    let mut state = BlockState {
        x: SEED.wrapping_mul(FACTOR_2).wrapping_add(word(bytes, 0)),
        y,
        z,
        v: [0; 2],
        w: [0; 2],
    };
    let last_length = (bytes.len() - 1) % BLOCK_BYTES;
    let whole_bytes = bytes.len() - 1 - last_length;
    for block in bytes[..whole_bytes].chunks_exact(BLOCK_BYTES) {
        state.push(block, FACTOR_1, 1);
    }
    let factor = FACTOR_1.wrapping_add((state.z & 0xff) << 1);
    state.w[0] = state.w[0].wrapping_add(last_length as u64);
    state.v[0] = state.v[0].wrapping_add(state.w[0]);
    state.w[0] = state.w[0].wrapping_add(state.v[0]);
    // The last block overlaps the one before.
    state.push(&bytes[bytes.len() - BLOCK_BYTES..], factor, 9);
    let BlockState { x, y, z, v, w } = state;
    let first = sum(
        mix(v[0], w[0], factor),
        shift_mix(y).wrapping_mul(FACTOR_0),
        // The words were exchanged after the block.
        z,
    );
    let second = mix(v[1], w[1], factor).wrapping_add(x);
    mix(first, second, factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_those_of_other_implementations() {
        // The reference of `FARM_FINGERPRINT` in BigQuery; Guava's FarmHashFingerprint64Test.
        let fingerprints: [(&str, i64); 7] = [
            ("1footrue", -1541654101129638711),
            ("2applefalse", 2794438866806483259),
            ("3true", -4880158226897771312),
            ("", -7286425919675154353),
            ("test", 8581389452482819506),
            (&"test".repeat(8), -4196240717365766262),
            (&"test".repeat(64), 3500507768004279527),
        ];
        for (text, expected) in fingerprints {
            assert_eq!(farm_fingerprint(text.as_bytes()), expected as u64, "{text}");
        }
    }

    /// Guava's test against the C++ implementation: texts of up to 3,200 bytes that grow by letters of fingerprints.
    #[test]
    fn fingerprints_of_all_lengths_are_those_of_the_reference() {
        let mut text: Vec<u8> = Vec::new();
        let mut state = 0_u64;
        for round in 0..800_usize {
            for power in 0..4 {
                let length = match power {
                    0 => round,
                    1 | 2 => round.pow(power + 1) % text.len(),
                    _ => text.len(),
                };
                // Bytes that are not written yet are 0.
                let mut prefix = text.clone();
                prefix.resize(length, 0);
                state ^= farm_fingerprint(&prefix);
                state = (state ^ (state >> 41)).wrapping_mul(949_921_979);
                text.push(b'a' + ((state & 0xf_ffff) % 26) as u8);
            }
            let end = text.len();
            let letters = [text[end - 1], text[end - 2], text[end - 3], text[end / 2]];
            let position = |letters: &[u8]| {
                let number = letters
                    .iter()
                    .fold(0, |sum, letter| (sum << 8) + usize::from(*letter));
                number % end
            };
            text[position(&letters[..3])] ^= letters[3];
            text[position(&letters[1..])] ^= (round % 256) as u8;
        }
        assert_eq!(state, 0x7a1d_67c5_0ec7_e167);
    }
}
