//! Keys of permutations: a hash of everything that chooses one.

/// The finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
/// generators", OOPSLA 2014).
#[inline]
pub(crate) fn splitmix64(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Purpose of a permutation. One key never chooses two permutations.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SeedPurpose {
    /// The blocks of an epoch.
    Blocks,
    /// Which rows of a unit go to which tick.
    Deal,
    /// The rows of a chunk.
    Chunk,
    /// Turns of datasets in a mixture.
    Turns,
}

/// The key of one purpose; parts such as dataset and epoch are hashed in order.
pub(crate) fn derive_seed(seed: u64, purpose: SeedPurpose, parts: &[u64]) -> u64 {
    let mut key = splitmix64(seed ^ splitmix64(purpose as u64));
    for part in parts {
        key = splitmix64(key.wrapping_add(*part));
    }
    key
}

/// Shuffles values: every order is equally likely (Fisher and Yates).
pub(crate) fn shuffle<T>(values: &mut [T], key: u64) {
    for last in (1..values.len()).rev() {
        // Bias is below 2^-32 of the length.
        let other = ((splitmix64(key ^ last as u64) >> 32) * (last as u64 + 1)) >> 32;
        values.swap(last, other as usize);
    }
}
