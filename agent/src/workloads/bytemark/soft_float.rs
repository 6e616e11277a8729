//! Binary64 arithmetic by integers alone, as IEEE 754 defines it, rounded to nearest even.
//!
//! As on a machine without a floating-point unit: products from 32-bit halves, quotients bit by
//! bit. Every NaN that comes out is the same one.

const FRACTION_BITS: u32 = 52;
const FRACTION: u64 = (1 << FRACTION_BITS) - 1;
const HIDDEN: u64 = 1 << FRACTION_BITS;
const SIGN: u64 = 1 << 63;
const INFINITY: u64 = 0x7ff << FRACTION_BITS;
pub const NAN: u64 = INFINITY | 1 << (FRACTION_BITS - 1);
/// Bits kept below the last place; the lowest one represents all that are lost.
const GUARD: u32 = 10;
/// The position of the leading bit of a significand with guard bits.
const TOP: u32 = FRACTION_BITS + GUARD;

/// What the bits of a number say. A finite one that is not zero is `significand` × 2^`exponent`
/// with `HIDDEN` as the leading bit of the significand.
enum Parts {
    Zero,
    Finite { exponent: i32, significand: u64 },
    Infinite,
    Nan,
}

fn parts(bits: u64) -> Parts {
    let fraction = bits & FRACTION;
    match (bits >> FRACTION_BITS & 0x7ff) as i32 {
        0 if fraction == 0 => Parts::Zero,
        0 => {
            let shift = fraction.leading_zeros() - HIDDEN.leading_zeros();
            Parts::Finite {
                exponent: -1074 - shift as i32,
                significand: fraction << shift,
            }
        }
        0x7ff if fraction == 0 => Parts::Infinite,
        0x7ff => Parts::Nan,
        biased => Parts::Finite {
            exponent: biased - 1075,
            significand: fraction | HIDDEN,
        },
    }
}

/// Shift to the right; bits that are lost stay visible in the lowest one.
fn shift_right_sticky(value: u64, by: u32) -> u64 {
    match by {
        0 => value,
        1..=63 => value >> by | u64::from(value << (64 - by) != 0),
        _ => u64::from(value != 0),
    }
}

/// Round `significand` × 2^`exponent` to a number; the significand holds `GUARD` bits below the
/// last place, and need not be normalized.
fn rounded(sign: u64, mut exponent: i32, mut significand: u64) -> u64 {
    if significand == 0 {
        return sign;
    }
    let lead = 63 - significand.leading_zeros();
    if lead > TOP {
        significand = shift_right_sticky(significand, lead - TOP);
    } else {
        significand <<= TOP - lead;
    }
    exponent += lead as i32 - TOP as i32;
    // The exponent of the last place that is kept; below the least one, numbers lose places.
    let mut last_place = exponent + GUARD as i32;
    if last_place < -1074 {
        significand = shift_right_sticky(significand, (-1074 - last_place) as u32);
        last_place = -1074;
    }
    let (half, rest) = (1 << (GUARD - 1), significand & ((1 << GUARD) - 1));
    let mut kept = significand >> GUARD;
    kept += u64::from(rest > half || rest == half && kept & 1 == 1);
    if kept > FRACTION | HIDDEN {
        kept >>= 1;
        last_place += 1;
    }
    if last_place > 971 {
        return sign | INFINITY;
    }
    if kept & HIDDEN == 0 {
        return sign | kept;
    }
    sign | ((last_place + 1075) as u64) << FRACTION_BITS | kept & FRACTION
}

pub fn add(a: u64, b: u64) -> u64 {
    let (a_sign, b_sign) = (a & SIGN, b & SIGN);
    match (parts(a), parts(b)) {
        (Parts::Nan, _) | (_, Parts::Nan) => NAN,
        (Parts::Infinite, Parts::Infinite) if a_sign != b_sign => NAN,
        (Parts::Infinite, _) => a,
        (_, Parts::Infinite) => b,
        (Parts::Zero, Parts::Zero) => a & b,
        (Parts::Zero, _) => b,
        (_, Parts::Zero) => a,
        (
            Parts::Finite {
                exponent,
                significand,
            },
            Parts::Finite {
                exponent: other_exponent,
                significand: other,
            },
        ) => {
            let (larger, smaller) = (significand << GUARD, other << GUARD);
            let first = (a_sign, exponent, larger);
            let second = (b_sign, other_exponent, smaller);
            let swap = (exponent, larger) < (other_exponent, smaller);
            let (first, second) = if swap {
                (second, first)
            } else {
                (first, second)
            };
            let (sign, exponent, larger) = first;
            let smaller = shift_right_sticky(second.2, (exponent - second.1) as u32);
            let exponent = exponent - GUARD as i32;
            if sign == second.0 {
                rounded(sign, exponent, larger + smaller)
            } else if larger == smaller {
                0
            } else {
                rounded(sign, exponent, larger - smaller)
            }
        }
    }
}

pub fn subtract(a: u64, b: u64) -> u64 {
    add(a, b ^ SIGN)
}

pub fn multiply(a: u64, b: u64) -> u64 {
    let sign = (a ^ b) & SIGN;
    match (parts(a), parts(b)) {
        (Parts::Nan, _) | (_, Parts::Nan) => NAN,
        (Parts::Infinite, Parts::Zero) | (Parts::Zero, Parts::Infinite) => NAN,
        (Parts::Infinite, _) | (_, Parts::Infinite) => sign | INFINITY,
        (Parts::Zero, _) | (_, Parts::Zero) => sign,
        (
            Parts::Finite {
                exponent,
                significand,
            },
            Parts::Finite {
                exponent: other_exponent,
                significand: other,
            },
        ) => {
            // At the top of their words, so that the high half of the product has all it needs.
            let (high, low) = wide_product(significand << GUARD, other << GUARD);
            let exponent = exponent + other_exponent + 64 - 2 * GUARD as i32;
            rounded(sign, exponent, high | u64::from(low != 0))
        }
    }
}

/// The 128 bits of a product, high and low, from four products of 32-bit halves.
fn wide_product(a: u64, b: u64) -> (u64, u64) {
    let halves = |word: u64| (word >> 32, word & 0xffff_ffff);
    let ((a_high, a_low), (b_high, b_low)) = (halves(a), halves(b));
    let low = a_low * b_low;
    let (one, other) = (a_high * b_low, a_low * b_high);
    let middle = (low >> 32) + (one & 0xffff_ffff) + (other & 0xffff_ffff);
    let high = a_high * b_high + (one >> 32) + (other >> 32) + (middle >> 32);
    (high, middle << 32 | low & 0xffff_ffff)
}

pub fn divide(a: u64, b: u64) -> u64 {
    let sign = (a ^ b) & SIGN;
    match (parts(a), parts(b)) {
        (Parts::Nan, _) | (_, Parts::Nan) => NAN,
        (Parts::Infinite, Parts::Infinite) | (Parts::Zero, Parts::Zero) => NAN,
        (Parts::Infinite, _) | (_, Parts::Zero) => sign | INFINITY,
        (Parts::Zero, _) | (_, Parts::Infinite) => sign,
        (
            Parts::Finite {
                exponent,
                significand,
            },
            Parts::Finite {
                exponent: other_exponent,
                significand: other,
            },
        ) => {
            // One bit of the quotient at a time: subtract where the divisor fits, and shift.
            let (mut rest, mut quotient) = (significand, 0);
            for _ in 0..=TOP {
                quotient <<= 1;
                if rest >= other {
                    rest -= other;
                    quotient |= 1;
                }
                rest <<= 1;
            }
            let exponent = exponent - other_exponent - TOP as i32;
            rounded(sign, exponent, quotient | u64::from(rest != 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Any bits, and more often values near the edges.
    fn number() -> impl Strategy<Value = f64> {
        let edges = prop::sample::select(vec![
            0.0,
            1.0,
            f64::INFINITY,
            f64::NAN,
            f64::MAX,
            f64::MIN_POSITIVE,
            5e-324,
            1.0 + f64::EPSILON,
            1.0 - f64::EPSILON / 2.0,
        ]);
        let signed =
            (edges, any::<bool>()).prop_map(|(edge, minus)| if minus { -edge } else { edge });
        let tame = (1e-3..1e3f64, -40..40i32).prop_map(|(base, power)| base * 2f64.powi(power));
        let subnormal = (0..1u64 << 53).prop_map(f64::from_bits);
        prop_oneof![
            any::<u64>().prop_map(f64::from_bits),
            signed,
            tame,
            subnormal
        ]
    }

    fn same(found: u64, hardware: f64) -> bool {
        found == hardware.to_bits() || found == NAN && hardware.is_nan()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn agrees_with_the_hardware_in_every_bit(a in number(), b in number()) {
            let (x, y) = (a.to_bits(), b.to_bits());
            prop_assert!(same(add(x, y), a + b), "{a:e} + {b:e}");
            prop_assert!(same(subtract(x, y), a - b), "{a:e} - {b:e}");
            prop_assert!(same(multiply(x, y), a * b), "{a:e} * {b:e}");
            prop_assert!(same(divide(x, y), a / b), "{a:e} / {b:e}");
        }

        #[test]
        fn agrees_where_results_cancel_or_lose_places(a: u64, distance in 0..200u64, shift in 0..64u32) {
            let a = f64::from_bits(a);
            let b = f64::from_bits(a.to_bits().wrapping_add(distance << shift));
            prop_assert!(same(subtract(a.to_bits(), b.to_bits()), a - b), "{a:e} - {b:e}");
            let small = f64::from_bits(u64::from(shift) << 52 | distance);
            prop_assert!(same(multiply(a.to_bits(), small.to_bits()), a * small), "{a:e} * {small:e}");
            prop_assert!(same(divide(small.to_bits(), a.to_bits()), small / a), "{small:e} / {a:e}");
        }

        #[test]
        fn products_have_all_128_bits(a: u64, b: u64) {
            let product = u128::from(a) * u128::from(b);
            prop_assert_eq!(wide_product(a, b), ((product >> 64) as u64, product as u64));
        }
    }
}
