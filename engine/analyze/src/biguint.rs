//! Big natural numbers, as far as correctly rounded sums, means and variances need them. Limbs are 64 bits wide,
//! lowest first.

/// Bit length: position of the highest set bit, plus one.
pub(crate) fn bit_length(n: &[u64]) -> usize {
    n.iter()
        .rposition(|&limb| limb != 0)
        .map_or(0, |top| 64 * (top + 1) - n[top].leading_zeros() as usize)
}

/// `n` multiplied by `2^(64 * limbs)`.
pub(crate) fn shift_limbs(n: &[u64], limbs: usize) -> Vec<u64> {
    let mut shifted = vec![0; limbs];
    shifted.extend_from_slice(n);
    shifted
}

/// `a * b` by schoolbook multiplication, O(len(a) * len(b)).
pub(crate) fn multiply(a: &[u64], b: &[u64]) -> Vec<u64> {
    let mut product = vec![0u64; a.len() + b.len()];
    for (i, &x) in a.iter().enumerate() {
        let mut carry = 0u128;
        for (j, &y) in b.iter().enumerate() {
            let sum = u128::from(x) * u128::from(y) + u128::from(product[i + j]) + carry;
            product[i + j] = sum as u64;
            carry = sum >> 64;
        }
        product[i + b.len()] = carry as u64;
    }
    product
}

/// `a += b`.
pub(crate) fn add(a: &mut Vec<u64>, b: &[u64]) {
    a.resize(a.len().max(b.len()) + 1, 0);
    let mut carry = false;
    for (i, limb) in a.iter_mut().enumerate() {
        let (sum, over) = limb.overflowing_add(b.get(i).copied().unwrap_or(0));
        let (sum, over_too) = sum.overflowing_add(u64::from(carry));
        *limb = sum;
        carry = over | over_too;
    }
}

/// `a < b`.
pub(crate) fn is_less(a: &[u64], b: &[u64]) -> bool {
    let length = a.len().max(b.len());
    for i in (0..length).rev() {
        let a_limb = a.get(i).copied().unwrap_or(0);
        let b_limb = b.get(i).copied().unwrap_or(0);
        if a_limb != b_limb {
            return a_limb < b_limb;
        }
    }
    false
}

/// `a -= b`, where `a >= b`.
pub(crate) fn subtract(a: &mut [u64], b: &[u64]) {
    let mut borrow = false;
    for (i, limb) in a.iter_mut().enumerate() {
        let (less, under) = limb.overflowing_sub(b.get(i).copied().unwrap_or(0));
        let (less, under_too) = less.overflowing_sub(u64::from(borrow));
        *limb = less;
        borrow = under | under_too;
    }
}

/// `a /= by`; returns the remainder.
pub(crate) fn divide(a: &mut [u64], by: u64) -> u64 {
    let mut remainder = 0u64;
    for limb in a.iter_mut().rev() {
        let part = (u128::from(remainder) << 64) | u128::from(*limb);
        *limb = (part / u128::from(by)) as u64;
        remainder = (part % u128::from(by)) as u64;
    }
    remainder
}

/// `a / by` and the remainder, bit by bit, O(64 * len(a) * len(by)); `by` is not zero.
pub(crate) fn divide_long(a: &[u64], by: &[u64]) -> (Vec<u64>, Vec<u64>) {
    let mut quotient = vec![0; a.len()];
    let mut remainder = vec![0u64; by.len() + 1];
    for bit in (0..64 * a.len()).rev() {
        // remainder = 2 * remainder + the next bit of `a`
        let mut carry = a[bit / 64] >> (bit % 64) & 1;
        for limb in &mut remainder {
            let next_carry = *limb >> 63;
            *limb = *limb << 1 | carry;
            carry = next_carry;
        }
        if !is_less(&remainder, by) {
            subtract(&mut remainder, by);
            quotient[bit / 64] |= 1 << (bit % 64);
        }
    }
    (quotient, remainder)
}

/// The double nearest to `(n + r) * 2^exponent`, ties to even. `r` is zero, or some unknown amount strictly between
/// zero and one if `inexact`. `n` must then have at least 55 bits.
pub(crate) fn round_to_f64(n: &[u64], exponent: i64, inexact: bool) -> f64 {
    let length = bit_length(n);
    if length == 0 {
        return 0.0;
    }
    // The highest 64 bits, and whether any bit below them is set.
    let low = length.saturating_sub(64);
    let limb = low / 64;
    let shift = low % 64;
    let mut top = n[limb] >> shift;
    if shift > 0 && limb + 1 < n.len() {
        top |= n[limb + 1] << (64 - shift);
    }
    let has_bits_below =
        n[..limb].iter().any(|&limb| limb != 0) || n[limb] & ((1 << shift) - 1) != 0;
    if length < 64 {
        top <<= 64 - length;
    }
    // The value is 1.xxx * 2^high; subnormal numbers keep fewer than 53 bits.
    let high = length as i64 - 1 + exponent;
    let keep = if high >= -1022 {
        53
    } else {
        53 - (-1022 - high)
    };
    if keep < 0 {
        return 0.0;
    }
    let (mantissa_bits, dropped_bits) = if keep == 0 {
        (0, top)
    } else {
        (top >> (64 - keep), top << keep)
    };
    // Ties to even; `inexact` stands for bits below all that are here.
    let half = 1 << 63;
    let up = dropped_bits > half
        || (dropped_bits == half && (has_bits_below || inexact || mantissa_bits & 1 == 1));
    let mantissa = mantissa_bits + u64::from(up);
    // A mantissa that rounds up to 2^53 carries into the exponent field.
    let field = if high >= -1022 {
        (high + 1022).max(0) as u64
    } else {
        0
    };
    if field >= 2046 {
        return f64::INFINITY;
    }
    f64::from_bits((field << 52) + mantissa)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_as_the_hardware_does() {
        for n in [
            1u64,
            3,
            (1 << 53) - 1,
            (1 << 53) + 1,
            (1 << 53) + 3,
            (1 << 54) + 2,
            (1 << 54) + 6,
            u64::MAX,
        ] {
            assert_eq!(round_to_f64(&[n], 0, false), n as f64);
            assert_eq!(round_to_f64(&[0, n], -64, false), n as f64);
        }
        assert_eq!(round_to_f64(&[1], -1074, false), f64::from_bits(1));
        assert_eq!(round_to_f64(&[1], -1075, false), 0.0);
        assert_eq!(round_to_f64(&[3], -1075, false), f64::from_bits(2));
        assert_eq!(round_to_f64(&[1], -1022, false), f64::MIN_POSITIVE);
        assert_eq!(round_to_f64(&[(1 << 53) - 1], 971, false), f64::MAX);
        assert_eq!(round_to_f64(&[1], 1024, false), f64::INFINITY);
        assert_eq!(round_to_f64(&[u64::MAX], 960, false), f64::INFINITY);
    }

    #[test]
    fn division_undoes_multiplication() {
        let a = [7, u64::MAX, 12345];
        let mut product = multiply(&a, &[99]);
        assert_eq!(divide(&mut product, 99), 0);
        assert_eq!(product[..3], a);
        let by = [3, 1 << 63];
        let (quotient, rest) = divide_long(&multiply(&a, &by), &by);
        assert_eq!(
            (
                &quotient[..3],
                bit_length(&quotient[3..]),
                bit_length(&rest)
            ),
            (&a[..], 0, 0)
        );
        let mut zero = a.to_vec();
        subtract(&mut zero, &a);
        assert_eq!(bit_length(&zero), 0);
    }
}
