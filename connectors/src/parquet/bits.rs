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
            varint((run - fill) << 1, out);
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
    varint(numbers.len().div_ceil(8) << 1 | 1, out);
    let width = u32::from(width);
    let (mut bits, mut held) = (0u64, 0);
    let zeros = numbers.len().next_multiple_of(8) - numbers.len();
    for number in numbers.iter().copied().chain(std::iter::repeat_n(0, zeros)) {
        let number = u64::from(number);
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

fn varint(mut number: usize, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
