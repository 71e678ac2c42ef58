//! Exponential random numbers from row keys, with the same bits on every machine.

/// Numbers from the exponential distribution with mean 1: a function of a row's key.
///
/// Von Neumann's method ("Various techniques used in connection with random digits", 1951) compares uniform numbers and
/// adds whole ones. The bits do therefore not depend on the logarithm of a library.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExponentialDraws(u64);

impl ExponentialDraws {
    /// The numbers of a row.
    pub(crate) fn of_key(key: u64) -> Self {
        ExponentialDraws(key)
    }

    /// A number that the next one is not below. It costs a quarter of drawing.
    pub(crate) fn lower_bound(mut self) -> f64 {
        self.uniform()
    }

    /// The next number.
    pub(crate) fn draw(&mut self) -> f64 {
        let mut whole = 0.0;
        loop {
            // A run of descending numbers that begins with x has an odd length with probability exp(-x).
            let first = self.uniform();
            let mut least = first;
            let mut has_odd_length = true;
            loop {
                let next = self.uniform();
                if next >= least {
                    break;
                }
                least = next;
                has_odd_length = !has_odd_length;
            }
            if has_odd_length {
                return whole + first;
            }
            whole += 1.0;
        }
    }

    /// The next number of SplitMix64, in [0, 1).
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let bits = x ^ (x >> 31);
        (bits >> 11) as f64 * 2f64.powi(-53)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of numbers above x is exp(-x), within five standard errors.
    #[test]
    fn draws_are_exponential() {
        const DRAWS: usize = 200_000;
        let mut sum = 0.0;
        let mut above = [0usize; 3];
        for key in 0..DRAWS as u64 {
            let mut draws = ExponentialDraws::of_key(key.wrapping_mul(0xd134_2543_de82_ef95));
            let bound = draws.lower_bound();
            let draw = draws.draw();
            assert!(draw >= bound, "{draw} is below {bound}");
            sum += draw;
            for (count, x) in above.iter_mut().zip([0.1, 1.0, 3.0]) {
                *count += usize::from(draw > x);
            }
        }
        let draws = DRAWS as f64;
        assert!((sum / draws - 1.0).abs() < 5.0 / draws.sqrt());
        for (count, x) in above.into_iter().zip([0.1, 1.0, 3.0f64]) {
            let expected = (-x).exp();
            let error = (expected * (1.0 - expected) / draws).sqrt();
            let share = count as f64 / draws;
            assert!(
                (share - expected).abs() < 5.0 * error,
                "{share} of draws are above {x}, not {expected}"
            );
        }
    }

    #[test]
    fn draws_of_a_key_follow_each_other() {
        let mut draws = ExponentialDraws::of_key(7);
        let first = draws.draw();
        let second = draws.draw();
        assert_ne!(first, second);
        assert_eq!(ExponentialDraws::of_key(7).draw(), first);
    }
}
