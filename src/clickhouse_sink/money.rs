//! Money as scaled integers: decimal text to units of 10⁻¹² US dollars, without a binary float.
//!
//! It knows no prices and no currencies other than the one its column names.

/// Digits after the point of a `Decimal(38, 12)` column.
const SCALE: i32 = 12;
/// Largest magnitude of a `Decimal(38, 12)`, in units of 10⁻¹².
const UNITS_MAX: i128 = 10_i128.pow(38) - 1;
/// More significant digits than any price has; longer texts are no money.
const DIGITS_MAX: usize = 60;

/// Reads decimal text, such as `0.000000075` or `7.5e-08`, as units of 10⁻¹² US dollars.
///
/// Digits beyond the twelfth are rounded half to even, the only rounding there is. `None` where the
/// text is no plain decimal number, is negative (no provider pays), or does not fit the column.
pub fn parse_usd(text: &str) -> Option<i128> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() + fraction.len() == 0 || !is_plain(whole) || !is_plain(fraction) {
        return None;
    }
    let digits = [whole, fraction].concat();
    let significant = digits.trim_start_matches('0').trim_end_matches('0');
    if significant.len() > DIGITS_MAX {
        return None;
    }
    if significant.is_empty() {
        return Some(0);
    }
    let zeros_after = digits.len() - digits.trim_end_matches('0').len();
    // The value is `significant` × 10^shift units.
    let shift = i64::from(exponent) - i64::try_from(fraction.len()).ok()?
        + i64::try_from(zeros_after).ok()?
        + i64::from(SCALE);
    if shift >= 0 {
        let factor = 10_i128.checked_pow(u32::try_from(shift).ok()?)?;
        let units = significant.parse::<i128>().ok()?.checked_mul(factor)?;
        return (units <= UNITS_MAX).then_some(units);
    }
    let kept = i64::try_from(significant.len()).ok()? + shift;
    round_half_even(significant, kept).filter(|units| *units <= UNITS_MAX)
}

/// The first `kept` digits as a number, rounded by the rest; all of it is below the point where
/// `kept` is not positive.
fn round_half_even(significant: &str, kept: i64) -> Option<i128> {
    let Ok(kept) = usize::try_from(kept) else {
        return Some(0);
    };
    let (head, tail) = significant.split_at(kept.min(significant.len()));
    let units: i128 = if head.is_empty() {
        0
    } else {
        head.parse().ok()?
    };
    // No trailing zeros: the rest is exactly one half only where it is a single 5.
    let is_half = tail == "5";
    let is_more = !is_half && tail.as_bytes().first().is_some_and(|digit| *digit >= b'5');
    Some(units + i128::from(is_more || (is_half && units % 2 == 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_decimals_exactly() {
        for (text, units) in [
            ("0", 0),
            ("0.000", 0),
            ("7", 7_000_000_000_000),
            ("7.00", 7_000_000_000_000),
            ("0.000000075", 75_000),
            ("7.5e-08", 75_000),
            ("1.5E3", 1_500_000_000_000_000),
            (".5", 500_000_000_000),
            ("0.000000000001", 1),
            ("99999999999999999999999999.999999999999", UNITS_MAX),
        ] {
            assert_eq!(parse_usd(text), Some(units), "{text}");
        }
    }

    #[test]
    fn rounds_half_to_even_beyond_the_twelfth_digit() {
        for (text, units) in [
            ("0.0000000000005", 0),
            ("0.0000000000015", 2),
            ("0.0000000000025", 2),
            ("0.00000000000250001", 3),
            ("0.00000000000249999", 2),
            ("1e-13", 0),
            ("6e-13", 1),
            ("9e-40", 0),
        ] {
            assert_eq!(parse_usd(text), Some(units), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_money() {
        for text in [
            "", ".", "-1", "+1", "1,5", "NaN", "inf", "0x1", "1e", "1e999", "1e27", "1 ", "١",
        ] {
            assert_eq!(parse_usd(text), None, "{text}");
        }
    }
}
