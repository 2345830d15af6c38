//! What a call cost, as whoever knows prices says it; exact sums of it.
//!
//! No price is known here, and no money passes through a float.

use crate::core::fact::ModelCallFact;
use std::fmt;
use std::sync::Arc;

/// Digits after the point, as in ClickHouse's `Decimal(38,12)`.
const DECIMALS: usize = 12;
const UNIT: i128 = 1_000_000_000_000;

/// An amount in US dollars, exact to 10⁻¹².
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Usd(i128);

impl Usd {
    /// Reads decimal text without an exponent; digits beyond the twelfth decimal must be zeros.
    pub fn parse(text: &str) -> Option<Usd> {
        let (sign, digits) = match text.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, text),
        };
        let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
        let is_decimal = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !is_decimal(whole) || !is_decimal(part) {
            return None;
        }
        let (kept, beyond) = part.split_at(part.len().min(DECIMALS));
        if beyond.bytes().any(|b| b != b'0') {
            return None;
        }
        let part: i128 = format!("{kept:0<DECIMALS$}").parse().ok()?;
        let whole: i128 = whole.parse().ok()?;
        Some(Usd(sign * whole.checked_mul(UNIT)?.checked_add(part)?))
    }

    /// The sum; at the end of the type it stays there.
    pub fn plus(self, other: Usd) -> Usd {
        Usd(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let unit = UNIT.unsigned_abs();
        let (whole, part) = (self.0.unsigned_abs() / unit, self.0.unsigned_abs() % unit);
        if part == 0 {
            return write!(f, "{sign}{whole}");
        }
        let part = format!("{part:0DECIMALS$}");
        write!(f, "{sign}{whole}.{}", part.trim_end_matches('0'))
    }
}

/// The money columns of a model call (facts.md §1, §7).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallCost {
    /// What counts: the provider's own figure, else the list price.
    pub cost_usd: Option<Usd>,
    pub list_cost_usd: Option<Usd>,
    pub provider_cost_usd: Option<Usd>,
    pub is_lower_bound: bool,
    pub price_id: Option<String>,
    pub price_tier: Option<String>,
}

/// Prices one call.
pub type PriceCall = Arc<dyn Fn(&ModelCallFact) -> CallCost + Send + Sync>;

/// The cost of a call without a price book: what the provider reported, else unknown.
pub fn unpriced(call: &ModelCallFact) -> CallCost {
    let reported = call.usage.provider_cost.as_deref().and_then(Usd::parse);
    CallCost {
        cost_usd: reported,
        provider_cost_usd: reported,
        ..CallCost::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_exact() {
        for (text, printed) in [
            ("0.003325", "0.003325"),
            ("7.00", "7"),
            ("-1.5", "-1.5"),
            ("0.000000000001000", "0.000000000001"),
        ] {
            assert_eq!(Usd::parse(text).unwrap().to_string(), printed);
        }
        let tenth = Usd::parse("0.1").unwrap();
        let sum = (0..10).fold(Usd::default(), |sum, _| sum.plus(tenth));
        assert_eq!(sum.to_string(), "1");
    }

    #[test]
    fn what_is_no_exact_amount_is_unknown() {
        for text in ["", ".5", "1e3", "NaN", "1.0000000000001", "1.2.3", "+1"] {
            assert_eq!(Usd::parse(text), None, "{text}");
        }
    }
}
