//! Parquet's encoding of small numbers.

/// Parquet's hybrid of runs and packed bits: numbers of so many bits that repeat often or not.
pub(super) fn hybrid(numbers: &[u32], width: u8, out: &mut Vec<u8>) {
    // Where numbers begin that are not written yet, because they do not repeat.
    let mut from = 0;
    let mut at = 0;
    while at < numbers.len() {
        let run = numbers[at..].iter().take_while(|number| **number == numbers[at]).count();
        // Packed numbers come in groups of eight, which the run fills up.
        let fill = (at - from).next_multiple_of(8) - (at - from);
        if run >= fill + 8 {
            packed(&numbers[from..at + fill], width, out);
            varint(((run - fill) as u64) << 1, out);
            out.extend_from_slice(&numbers[at].to_le_bytes()[..usize::from(width).div_ceil(8)]);
            from = at + run;
        }
        at += run;
    }
    packed(&numbers[from..], width, out);
}

/// Groups of eight numbers with their bits side by side, lowest first; zeros fill the last group.
fn packed(numbers: &[u32], width: u8, out: &mut Vec<u8>) {
    if numbers.is_empty() {
        return;
    }
    varint((numbers.len().div_ceil(8) << 1 | 1) as u64, out);
    let zeros = numbers.len().next_multiple_of(8) - numbers.len();
    side_by_side(numbers.iter().copied().chain(std::iter::repeat_n(0, zeros)).map(u64::from), width, out);
}

/// Numbers with their bits side by side, lowest first: so many that they end with a byte.
fn side_by_side(numbers: impl Iterator<Item = u64>, width: u8, out: &mut Vec<u8>) {
    let width = u32::from(width);
    let (mut bits, mut held) = (0u64, 0);
    for number in numbers {
        bits |= number << held;
        held += width;
        if held >= u64::BITS {
            out.extend_from_slice(&bits.to_le_bytes());
            held -= u64::BITS;
            bits = if held == 0 { 0 } else { number >> (width - held) };
        }
    }
    out.extend_from_slice(&bits.to_le_bytes()[..held as usize / 8]);
}

/// A multiple of 32 numbers with their bits side by side.
pub(super) fn pack(numbers: &[u64], width: u8, out: &mut Vec<u8>) {
    let Some(pack) = PACKS.get(usize::from(width)) else {
        return side_by_side(numbers.iter().copied(), width, out);
    };
    for numbers in numbers.chunks_exact(32) {
        pack(numbers, out);
    }
}

/// For each width: packs 32 numbers of it.
const PACKS: [fn(&[u64], &mut Vec<u8>); 25] = [
    pack32::<0>, pack32::<1>, pack32::<2>, pack32::<3>, pack32::<4>, pack32::<5>, pack32::<6>, pack32::<7>,
    pack32::<8>, pack32::<9>, pack32::<10>, pack32::<11>, pack32::<12>, pack32::<13>, pack32::<14>, pack32::<15>,
    pack32::<16>, pack32::<17>, pack32::<18>, pack32::<19>, pack32::<20>, pack32::<21>, pack32::<22>, pack32::<23>,
    pack32::<24>,
];

/// The width is known, so that all shifts are.
fn pack32<const WIDTH: usize>(numbers: &[u64], out: &mut Vec<u8>) {
    let mut words = [0u32; 25];
    for (at, number) in numbers.iter().take(32).enumerate() {
        let (word, shift) = (at * WIDTH / 32, at * WIDTH % 32);
        let shifted = number << shift;
        words[word] |= shifted as u32;
        words[word + 1] |= (shifted >> 32) as u32;
    }
    words[..WIDTH].iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
}

/// A number in groups of seven bits, lowest first.
pub(super) fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
