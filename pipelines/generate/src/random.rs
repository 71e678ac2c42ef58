//! Random numbers that can be asked for in any order.
//!
//! Everything here uses only the operations that IEEE 754 rounds exactly (no `powf`, `exp` or `sin`
//! of the platform's library), so the numbers are the same on every machine.

/// The step of SplitMix64: 2^64 divided by the golden ratio, made odd.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The output function of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014; constants: variant 13 of Stafford's mixers for MurmurHash3). A bijection.
#[inline]
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// One sequence of random words: SplitMix64, of which the n-th word is a function of its seed and n.
#[derive(Debug, Clone, Copy)]
pub struct RandomStream(u64);

impl RandomStream {
    /// The stream of this name under this seed.
    pub fn new(seed: u64, name: u64) -> Self {
        RandomStream(mix(seed)).under(name)
    }

    /// The word at an index.
    #[inline]
    pub fn at(self, index: u64) -> u64 {
        mix(self
            .0
            .wrapping_add(index.wrapping_add(1).wrapping_mul(STEP)))
    }

    /// A stream of its own for each index.
    #[inline]
    pub fn under(self, index: u64) -> RandomStream {
        RandomStream(self.at(index))
    }
}

/// A number in [0, 1) from the upper 53 bits of a word.
#[inline]
pub fn unit(word: u64) -> f64 {
    (word >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// Four 16-bit numbers of a word, each for an event of its own probability.
#[inline]
pub fn word_quarter(word: u64, which: u32) -> u32 {
    (word >> (16 * which)) as u32 & 0xffff
}

/// The threshold below which a [`quarter`] lies with this probability.
pub fn probability_threshold(probability: f64) -> u32 {
    (probability * 65536.0 + 0.5) as u32
}

/// Nearly a standard normal number: the sum of the word's four 16-bit numbers (Irwin and Hall's
/// distribution), shifted and scaled; never beyond 3.47 either way.
#[inline]
pub fn normal(word: u64) -> f64 {
    let sum = (0..4).map(|which| word_quarter(word, which)).sum::<u32>();
    // Mean 4 * 65535 / 2; standard deviation 65536 * sqrt(4 / 12).
    (f64::from(sum) - 131_070.0) * (1.0 / 37_837.227)
}

/// The exponential function, to about eight digits, for numbers between -700 and 700.
#[inline]
pub fn exp(x: f64) -> f64 {
    // Adding and taking away this number rounds to a whole one.
    const ROUND: f64 = 1.5 * (1u64 << 52) as f64;
    let x = x.clamp(-700.0, 700.0);
    let whole = (x * std::f64::consts::LOG2_E + ROUND) - ROUND;
    let y = (x * std::f64::consts::LOG2_E - whole) * std::f64::consts::LN_2;
    // Taylor's series; |y| <= ln(2) / 2.
    let series = 1.0
        + y * (1.0
            + y * (1.0 / 2.0
                + y * (1.0 / 6.0
                    + y * (1.0 / 24.0
                        + y * (1.0 / 120.0 + y * (1.0 / 720.0 + y * (1.0 / 5040.0)))))));
    series * f64::from_bits(((whole as i64 + 1023) as u64) << 52)
}

/// `x` to a whole power.
#[inline]
pub fn power(x: f64, exponent: u32) -> f64 {
    let mut result = 1.0;
    let mut square = x;
    let mut remaining = exponent;
    while remaining > 0 {
        if remaining & 1 == 1 {
            result *= square;
        }
        square *= square;
        remaining >>= 1;
    }
    result
}

/// A bounded Zipf-like law: rank r of n is drawn with a weight near r^-s, in constant time and space.
///
/// The density x^-s on [1, n + 1) is inverted and the result rounded down: the inverse that
/// rejection-inversion starts from (Hörmann and Derflinger, "Rejection-inversion to generate variates
/// from monotone discrete distributions", ACM TOMACS 6(3), 1996), without the rejection, hence not
/// exactly Zipf's law in the first ranks. Exponents are limited to s = 1 + 1/k or 1 - 1/k with a
/// whole k, because then the inverse is a whole power.
#[derive(Debug, Clone, Copy)]
pub struct ZipfDistribution {
    ranks: u32,
    k: u32,
    /// (n + 1)^(1/k) for s < 1, (n + 1)^(-1/k) for s > 1, less one.
    reach: f64,
    steep: bool,
}

impl ZipfDistribution {
    /// `ranks` values with the exponent 1 + 1/k, or 1 - 1/|k| when `k` is negative. `k` is not 0.
    pub fn new(ranks: u32, k: i32) -> Self {
        let steep = k > 0;
        let k = k.unsigned_abs();
        let bound = f64::from(ranks) + 1.0;
        // The k-th root of the bound, by halving.
        let mut low = 1.0;
        let mut high = bound;
        for _ in 0..100 {
            let middle = 0.5 * (low + high);
            if power(middle, k) < bound {
                low = middle;
            } else {
                high = middle;
            }
        }
        let root = 0.5 * (low + high);
        ZipfDistribution {
            ranks,
            k,
            reach: if steep { 1.0 / root - 1.0 } else { root - 1.0 },
            steep,
        }
    }

    /// The rank, from 0, of a number in [0, 1).
    #[inline]
    pub fn rank(&self, unit: f64) -> u32 {
        let x = power(1.0 + unit * self.reach, self.k);
        let x = if self.steep { 1.0 / x } else { x };
        (x as u32).saturating_sub(1).min(self.ranks - 1)
    }
}

/// A bijection of 32-bit numbers that leaves no order: the finaliser of MurmurHash3 (Appleby).
#[inline]
pub fn scramble(mut x: u32) -> u32 {
    x = (x ^ (x >> 16)).wrapping_mul(0x85eb_ca6b);
    x = (x ^ (x >> 13)).wrapping_mul(0xc2b2_ae35);
    x ^ (x >> 16)
}

/// Eight lower-case hexadecimal digits, all at once.
#[inline]
pub fn hex(x: u32) -> [u8; 8] {
    let mut x = u64::from(x);
    x = (x | (x << 16)) & 0x0000_ffff_0000_ffff;
    x = (x | (x << 8)) & 0x00ff_00ff_00ff_00ff;
    x = (x | (x << 4)) & 0x0f0f_0f0f_0f0f_0f0f;
    let letters = ((x + 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101;
    (x + 0x3030_3030_3030_3030 + letters * 0x27).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_is_splitmix64() {
        // The first words of the reference implementation (Vigna, splitmix64.c) for the seed 1234567.
        let words: Vec<u64> = (0..3)
            .map(|index| RandomStream(1_234_567).at(index))
            .collect();
        assert_eq!(
            words,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn exp_agrees_with_the_library() {
        for step in -2000..2000 {
            let x = f64::from(step) * 0.01;
            assert!((exp(x) / x.exp() - 1.0).abs() < 2e-8, "{x}");
        }
    }

    #[test]
    fn normal_has_its_moments() {
        let stream = RandomStream::new(7, 7);
        let n = 200_000;
        let mut sum = 0.0;
        let mut squares = 0.0;
        for index in 0..n {
            let z = normal(stream.at(index));
            sum += z;
            squares += z * z;
        }
        assert!((sum / n as f64).abs() < 0.01);
        assert!((squares / n as f64 - 1.0).abs() < 0.01);
    }

    #[test]
    fn zipf_follows_its_law() {
        for (ranks, k, s) in [(1000, 10, 1.1), (1000, -5, 0.8), (3, 2, 1.5)] {
            let zipf = ZipfDistribution::new(ranks, k);
            let stream = RandomStream::new(3, 3);
            let draws = 400_000u64;
            let mut counts = vec![0u32; ranks as usize];
            for index in 0..draws {
                counts[zipf.rank(unit(stream.at(index))) as usize] += 1;
            }
            // The integral of the density over [r, r + 1).
            let part = |r: f64| ((r + 1.0).powf(1.0 - s) - r.powf(1.0 - s)) / (1.0 - s);
            let whole = ((f64::from(ranks) + 1.0).powf(1.0 - s) - 1.0) / (1.0 - s);
            for r in [1, 2, 3, ranks / 2, ranks].into_iter().filter(|r| *r > 0) {
                let expected = draws as f64 * part(f64::from(r)) / whole;
                let got = f64::from(counts[r as usize - 1]);
                assert!(
                    (got - expected).abs() < 5.0 * expected.sqrt() + 1.0,
                    "rank {r}: {got}, not {expected}"
                );
            }
        }
        assert_eq!(
            ZipfDistribution::new(5_000_000, -10).rank(1.0 - f64::EPSILON / 2.0),
            4_999_999
        );
        assert_eq!(ZipfDistribution::new(5_000_000, 10).rank(0.0), 0);
    }

    #[test]
    fn hex_is_hex() {
        for x in [0, 1, 0x0123_4567, 0x89ab_cdef, u32::MAX] {
            assert_eq!(hex(x).as_slice(), format!("{x:08x}").as_bytes());
        }
    }
}
