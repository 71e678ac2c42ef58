//! Numbers that look random and follow from a seed (SplitMix64).

/// Numbers between -1 and 1.
pub struct UniformGenerator(u64);

impl UniformGenerator {
    pub fn new(seed: u64) -> UniformGenerator {
        UniformGenerator(seed)
    }

    pub fn next_value(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        // The upper 24 bits are what a float of single precision holds.
        (mixed >> 40) as f32 / (1_u32 << 23) as f32 - 1.0
    }
}
