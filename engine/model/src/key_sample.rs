//! Samples of the keys of states, from which the number of keys that several states share is
//! estimated.

use std::collections::{BTreeSet, BinaryHeap};

use serde::{Deserialize, Serialize};

/// Most hashes of a sample: the share of repeated keys is estimated with an error of a few percent,
/// and a sample is sent as 5 KB of text.
const HASHES_MAX: usize = 256;

/// One key in this many may be in several states that count as distinct.
const REPEATED_SHARE: usize = 4;

/// The smallest hashes of the keys of a state. Equal keys have equal hashes, so that samples of
/// states show how many keys the states share.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct KeySample(BinaryHeap<u64>);

impl KeySample {
    /// Adds the hash of a key, which is added once.
    pub fn add(&mut self, hash: u64) {
        if self.0.len() < HASHES_MAX {
            self.0.push(hash);
            return;
        }
        let Some(mut largest) = self.0.peek_mut() else {
            return;
        };
        if hash < *largest {
            *largest = hash;
        }
    }

    /// The hash up to which the sample has the hashes of all keys.
    fn bound(&self) -> u64 {
        match self.0.peek() {
            Some(largest) if self.0.len() >= HASHES_MAX => *largest,
            _ => u64::MAX,
        }
    }

    /// True if few keys are in several of the states, by their samples: merging such states hardly
    /// makes the keys fewer.
    pub fn are_mostly_distinct(samples: &[&KeySample]) -> bool {
        let bounds = samples.iter().map(|sample| sample.bound());
        let bound = bounds.min().unwrap_or(u64::MAX);
        let mut distinct = BTreeSet::new();
        let mut repeated = 0;
        for hash in samples.iter().flat_map(|sample| &sample.0) {
            if *hash <= bound && !distinct.insert(*hash) {
                repeated += 1;
            }
        }
        repeated * REPEATED_SHARE <= distinct.len()
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    /// The sample of the keys of a range of numbers.
    fn sample_of(numbers: Range<u64>) -> KeySample {
        let mut sample = KeySample::default();
        for number in numbers {
            sample.add(mixed(number));
        }
        sample
    }

    /// SplitMix64, in which different numbers have different hashes.
    fn mixed(number: u64) -> u64 {
        let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^ (hash >> 31)
    }

    fn are_mostly_distinct(ranges: &[Range<u64>]) -> bool {
        let samples: Vec<KeySample> = ranges.iter().cloned().map(sample_of).collect();
        let samples: Vec<&KeySample> = samples.iter().collect();
        KeySample::are_mostly_distinct(&samples)
    }

    #[test]
    fn shared_keys_are_found() {
        let cases: [(&str, Vec<Range<u64>>, bool); 11] = [
            ("no states", vec![], true),
            ("no keys", vec![0..0, 0..0], true),
            ("keys of one state", vec![0..100_000, 0..0], true),
            ("other keys", vec![0..100_000, 100_000..200_000], true),
            ("few keys, none shared", vec![0..10, 10..20], true),
            ("few keys, all shared", vec![0..10, 0..10], false),
            ("all shared", vec![0..100_000, 0..100_000], false),
            ("half shared", vec![0..100_000, 50_000..150_000], false),
            ("a tenth shared", vec![0..100_000, 90_000..190_000], true),
            // The keys of the small state are few among all of them.
            ("a small state, shared", vec![0..100_000, 0..1_000], true),
            ("many states, shared", vec![0..20_000; 10], false),
        ];
        for (case, ranges, expected) in cases {
            assert_eq!(are_mostly_distinct(&ranges), expected, "{case}");
        }
    }

    #[test]
    fn samples_hold_the_smallest_hashes() {
        let mut hashes: Vec<u64> = (0..10_000).map(mixed).collect();
        hashes.sort_unstable();
        let sample = sample_of(0..10_000).0.into_sorted_vec();
        assert_eq!(sample, hashes[..HASHES_MAX]);
    }

    #[test]
    fn samples_are_the_same_after_they_are_sent() {
        let sample = sample_of(0..1_000);
        let text = serde_json::to_value(&sample).unwrap();
        let sent: KeySample = serde_json::from_value(text).unwrap();
        assert_eq!(sent.0.into_sorted_vec(), sample.0.into_sorted_vec());
    }
}
