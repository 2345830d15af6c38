//! Exact decimal texts: enough to read a count, and to repeat or add a reported cost.
//!
//! It is no arithmetic for prices; that has a type of its own.

/// `digits` × 10^`exponent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    negative: bool,
    digits: u128,
    exponent: i32,
}

/// Beyond this a decimal text is nonsense, and writing it out would only cost memory.
const EXPONENT_MAX: i32 = 60;

impl Decimal {
    /// Reads `12`, `-1`, `0.00042`, `1.35e2`. `None`: no number, or more than a `u128` of digits.
    pub(crate) fn parse(text: &str) -> Option<Decimal> {
        let (negative, unsigned) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
            Some(at) => (&unsigned[..at], unsigned[at + 1..].parse::<i32>().ok()?),
            None => (unsigned, 0),
        };
        let mut decimal = Decimal {
            negative,
            digits: 0,
            exponent,
        };
        let (mut any, mut point) = (false, false);
        for byte in mantissa.bytes() {
            match byte {
                b'0'..=b'9' => {
                    any = true;
                    let digit = u128::from(byte - b'0');
                    decimal.digits = decimal.digits.checked_mul(10)?.checked_add(digit)?;
                    decimal.exponent = decimal.exponent.checked_sub(i32::from(point))?;
                }
                b'.' if !point => point = true,
                _ => return None,
            }
        }
        any.then(|| decimal.reduced())
    }

    /// The value as a count; `None` for a fraction, a negative or too large one.
    pub(crate) fn to_u64(self) -> Option<u64> {
        if self.digits == 0 {
            return Some(0);
        }
        if self.negative || self.exponent < 0 {
            return None;
        }
        let scale = 10u128.checked_pow(u32::try_from(self.exponent).ok()?)?;
        u64::try_from(self.digits.checked_mul(scale)?).ok()
    }

    /// The sum of two amounts that are not negative.
    pub(crate) fn plus(self, other: Decimal) -> Option<Decimal> {
        let exponent = self.exponent.min(other.exponent);
        let digits = self
            .digits_at(exponent)?
            .checked_add(other.digits_at(exponent)?)?;
        Some(
            Decimal {
                negative: false,
                digits,
                exponent,
            }
            .reduced(),
        )
    }

    /// Plain notation without an exponent. `None` for negative amounts and absurd exponents.
    pub(crate) fn to_text(self) -> Option<Box<str>> {
        if self.digits == 0 {
            return Some("0".into());
        }
        if self.negative || self.exponent.abs() > EXPONENT_MAX {
            return None;
        }
        let mut text = self.digits.to_string();
        if self.exponent >= 0 {
            text.extend(std::iter::repeat_n(
                '0',
                self.exponent.unsigned_abs() as usize,
            ));
        } else {
            let places = self.exponent.unsigned_abs() as usize;
            if text.len() <= places {
                text.insert_str(0, &"0".repeat(places + 1 - text.len()));
            }
            text.insert(text.len() - places, '.');
        }
        Some(text.into())
    }

    fn digits_at(self, exponent: i32) -> Option<u128> {
        let places = u32::try_from(self.exponent.checked_sub(exponent)?).ok()?;
        self.digits.checked_mul(10u128.checked_pow(places)?)
    }

    fn reduced(mut self) -> Decimal {
        if self.digits == 0 {
            self.exponent = 0;
        }
        while self.exponent < 0 && self.digits.is_multiple_of(10) && self.digits != 0 {
            self.digits /= 10;
            self.exponent += 1;
        }
        self
    }
}

/// A reported amount of money in plain notation, as told where it already is plain.
pub(crate) fn amount(text: &str) -> Option<Box<str>> {
    let text = text.trim();
    let plain = Decimal::parse(text)?.to_text()?;
    let is_plain = text
        .bytes()
        .all(|byte| byte == b'.' || byte.is_ascii_digit());
    Some(if is_plain && text.len() <= 64 {
        text.into()
    } else {
        plain
    })
}

/// The sum of two amounts as told; `None` where one of them is no amount.
pub(crate) fn sum_of_amounts(one: &str, other: &str) -> Option<Box<str>> {
    Decimal::parse(one)?.plus(Decimal::parse(other)?)?.to_text()
}
