//! A keyed permutation of 0..n for any n, computed element by element in both directions.
//!
//! A generalised Feistel network over a x b >= n with cycle walking: J. Black and P. Rogaway,
//! "Ciphers with Arbitrary Finite Domains", CT-RSA 2002, sections 4 and 5. The round function is a
//! hash, not a cipher: the permutation must look random to a training, not resist an attacker.

use super::seed::splitmix64;

/// Enough that places are even and neighbours scatter also in small domains (see the tests; four
/// leave some distances a tenth too rare).
const ROUNDS: u32 = 6;

/// A permutation of `0..n` that `key` chooses.
#[derive(Debug, Clone, Copy)]
pub struct KeyedPermutation {
    n: u64,
    /// The halves: `left < a`, `right < b`, `a * b >= n`.
    a: u64,
    b: u64,
    key: u64,
}

impl KeyedPermutation {
    /// The permutation of `0..n`; `n` is at most 2^62.
    pub fn new(n: u64, key: u64) -> Self {
        let root = n.isqrt();
        // The root, rounded up: both halves are about equally large.
        let b = (root + u64::from(root * root < n)).max(1);
        KeyedPermutation {
            n,
            a: n.div_ceil(b),
            b,
            key: splitmix64(key),
        }
    }

    /// Number of elements.
    pub fn len(&self) -> u64 {
        self.n
    }

    /// True for a permutation of nothing.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// The image of `x`.
    #[inline]
    pub fn forward(&self, x: u64) -> u64 {
        debug_assert!(x < self.n);
        let mut y = x;
        loop {
            let mut left_half = y / self.b;
            let mut right_half = y % self.b;
            for round in (0..ROUNDS).step_by(2) {
                left_half = add_modulo(left_half, self.round(round, right_half, self.a), self.a);
                right_half =
                    add_modulo(right_half, self.round(round + 1, left_half, self.b), self.b);
            }
            y = left_half * self.b + right_half;
            // a * b exceeds n by less than b, so that a walk is rare.
            if y < self.n {
                return y;
            }
        }
    }

    /// The element whose image is `y`.
    #[inline]
    pub fn inverse(&self, y: u64) -> u64 {
        debug_assert!(y < self.n);
        let mut x = y;
        loop {
            let mut left_half = x / self.b;
            let mut right_half = x % self.b;
            // The rounds of `forward`, undone in reverse.
            for round in (0..ROUNDS).step_by(2).rev() {
                right_half =
                    subtract_modulo(right_half, self.round(round + 1, left_half, self.b), self.b);
                left_half =
                    subtract_modulo(left_half, self.round(round, right_half, self.a), self.a);
            }
            x = left_half * self.b + right_half;
            if x < self.n {
                return x;
            }
        }
    }

    /// A number below `below` that the key, the round and a half determine.
    #[inline]
    fn round(&self, round: u32, half: u64, below: u64) -> u64 {
        let hash = (half ^ self.key.rotate_left(round * 11)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((hash >> 32) * below) >> 32
    }
}

#[inline]
fn add_modulo(x: u64, y: u64, modulus: u64) -> u64 {
    let sum = x + y;
    if sum >= modulus { sum - modulus } else { sum }
}

#[inline]
fn subtract_modulo(x: u64, y: u64, modulus: u64) -> u64 {
    if x >= y { x - y } else { x + modulus - y }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_permuted_and_inverted() {
        for n in (1..300).chain([1000, 4095, 4096, 4097, 65_537]) {
            let permutation = KeyedPermutation::new(n, n * 7);
            let mut seen = vec![false; n as usize];
            for x in 0..n {
                let y = permutation.forward(x);
                assert_eq!(permutation.inverse(y), x);
                assert!(
                    !std::mem::replace(&mut seen[y as usize], true),
                    "{n}: {y} twice"
                );
            }
        }
        for n in [1 << 40, (1 << 61) + 12_345] {
            let permutation = KeyedPermutation::new(n, 3);
            for x in (0..1000).map(|i| i * (n / 1000)) {
                assert_eq!(permutation.inverse(permutation.forward(x)), x);
            }
        }
    }

    /// Over many keys every element goes to every place about equally often (chi-squared), and
    /// neighbours come to lie at every distance: within 5 % where there are enough distances.
    #[test]
    fn places_and_distances_are_even() {
        for n in [3_u64, 4, 5, 7, 8, 13, 64, 100, 128] {
            let keys = 400 * n;
            let mut places = vec![0_u64; (n * n) as usize];
            let mut distances = vec![0_u64; n as usize];
            for key in 0..keys {
                let permutation = KeyedPermutation::new(n, key);
                for x in 0..n {
                    let y = permutation.forward(x);
                    places[(x * n + y) as usize] += 1;
                    distances[((permutation.forward((x + 1) % n) + n - y) % n) as usize] += 1;
                }
            }
            let freedom = (n * n) as f64;
            let chi = chi_squared(&places, keys as f64 / n as f64);
            assert!(
                chi < freedom + 6.0 * (2.0 * freedom).sqrt(),
                "places of {n}: chi-squared {chi} of {freedom}"
            );
            let pairs = (keys * n) as f64;
            let bias = (chi_squared(&distances[1..], pairs / (n - 1) as f64) / pairs).sqrt();
            assert!(n < 13 || bias < 0.05, "distances of {n}: {bias}");
        }
    }

    fn chi_squared(counts: &[u64], expected: f64) -> f64 {
        counts
            .iter()
            .map(|&count| (count as f64 - expected).powi(2) / expected)
            .sum()
    }
}
