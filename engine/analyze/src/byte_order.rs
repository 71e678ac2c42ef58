//! The order of many byte strings.

use crate::spill_runs::bytes_prefix;

/// The numbers of `count` strings in the order of their bytes; `bytes` returns those of a number. Equal strings come in any
/// order.
pub(crate) fn sorted_bytes<'b>(count: usize, bytes: impl Fn(usize) -> &'b [u8]) -> Vec<u32> {
    let shared = shared_prefix(count, &bytes);
    // Most keys differ in the eight bytes behind those that all have, which are compared as one number.
    let mut prefixes: Vec<(u64, u32)> = Vec::with_capacity(count);
    for number in 0..count {
        prefixes.push((bytes_prefix(&bytes(number)[shared..]), number as u32));
    }
    prefixes.sort_unstable_by(|(prefix, number), (other_prefix, other_number)| {
        let by_prefix = prefix.cmp(other_prefix);
        by_prefix.then_with(|| bytes(*number as usize).cmp(bytes(*other_number as usize)))
    });
    prefixes.into_iter().map(|(_, number)| number).collect()
}

/// The number of first bytes that all strings share.
fn shared_prefix<'b>(count: usize, bytes: &impl Fn(usize) -> &'b [u8]) -> usize {
    if count == 0 {
        return 0;
    }
    let first = bytes(0);
    let mut shared = first.len();
    for number in 1..count {
        if shared == 0 {
            break;
        }
        let pairs = first[..shared].iter().zip(bytes(number));
        shared = pairs.take_while(|(byte, other)| byte == other).count();
    }
    shared
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_shared_prefix_ends_with_the_shortest_string() {
        let cases: [(&[&str], usize); 5] = [
            (&[], 0),
            (&["item_1"], 6),
            (&["item_1", "item_2", "item"], 4),
            (&["item_1", "store"], 0),
            (&["item_1", "", "item_2"], 0),
        ];
        for (texts, shared) in cases {
            let bytes = |number: usize| texts[number].as_bytes();
            assert_eq!(shared_prefix(texts.len(), &bytes), shared, "{texts:?}");
        }
    }

    proptest! {
        /// The order is that of a comparison of all bytes, also where strings share their beginnings or are prefixes.
        #[test]
        fn strings_are_sorted_by_their_bytes(
            shared in prop::collection::vec(any::<u8>(), 0..12),
            tails in prop::collection::vec(prop::collection::vec(0..3u8, 0..14), 0..60),
        ) {
            let mut texts: Vec<Vec<u8>> = Vec::new();
            for tail in tails {
                texts.push([shared.as_slice(), tail.as_slice()].concat());
            }
            let order = sorted_bytes(texts.len(), |number| texts[number].as_slice());
            let sorted = order.iter().map(|number| &texts[*number as usize]);
            let sorted: Vec<&Vec<u8>> = sorted.collect();
            let mut expected: Vec<&Vec<u8>> = texts.iter().collect();
            expected.sort();
            prop_assert_eq!(sorted, expected);
            let mut numbers = order;
            numbers.sort_unstable();
            prop_assert_eq!(numbers, (0..texts.len() as u32).collect::<Vec<_>>());
        }
    }
}
