//! Values as they stand in a record, read without ever refusing a type.
//!
//! A field of the wrong type is an unknown field (events.md §2), so nothing here fails but on
//! syntax and on duplicate keys; those send the record to the tolerant path. What the values mean
//! is decided elsewhere.

use crate::core::event::Str;
use serde::de::value::MapAccessDeserializer;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// Visitor methods that answer `$value` to booleans, numbers and null.
macro_rules! loose_numbers {
    ($value:expr) => {
        fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<Self::Value, E> {
            Ok($value)
        }
        fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<Self::Value, E> {
            Ok($value)
        }
        fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<Self::Value, E> {
            Ok($value)
        }
        fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<Self::Value, E> {
            Ok($value)
        }
        fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
            Ok(Default::default())
        }
    };
}

/// Visitor methods that answer `$value` to every scalar.
macro_rules! loose_scalars {
    ($value:expr) => {
        loose_numbers!($value);
        fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<Self::Value, E> {
            Ok($value)
        }
    };
}

/// A visitor method that forgets an array and answers `$value`.
macro_rules! loose_seq {
    ($value:expr) => {
        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
            $crate::core::dialect::wire::drain_seq(seq).map(|()| $value)
        }
    };
}

/// A flat wire structure that is filled in place. A derived `Deserialize` holds every field twice
/// and moves the whole four times, which for dozens of fields costs as much as the parsing.
///
/// Keys are the fields' names. A key that comes twice is an error, as it is for derived ones.
macro_rules! flat {
    (
        $(#[$meta:meta])*
        $visible:vis struct $wire:ident<$p:lifetime> {
            $($(#[$field_meta:meta])* $field_visible:vis $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Default)]
        $visible struct $wire<$p> {
            $($(#[$field_meta])* $field_visible $field: $type,)*
        }

        const _: () = {
            use serde::de::{Deserializer, DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor};
            use $crate::core::dialect::wire::InPlace;

            #[allow(non_camel_case_types, reason = "the variants are the fields' names")]
            #[derive(Clone, Copy, serde::Deserialize)]
            #[serde(field_identifier)]
            enum Key {
                $($field,)*
                #[serde(other)]
                Unknown,
            }

            impl<'de: $p, $p> DeserializeSeed<'de> for InPlace<'_, $wire<$p>> {
                type Value = ();
                fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
                    from.deserialize_map(self)
                }
            }

            impl<'de: $p, $p> Visitor<'de> for InPlace<'_, $wire<$p>> {
                type Value = ();
                fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                    f.write_str("an object")
                }
                fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
                    let mut seen = 0_u128;
                    while let Some(key) = map.next_key::<Key>()? {
                        if !matches!(key, Key::Unknown) {
                            let bit = 1 << key as u32;
                            if seen & bit != 0 {
                                return Err(A::Error::custom("a key came twice"));
                            }
                            seen |= bit;
                        }
                        match key {
                            $(Key::$field => self.0.$field = map.next_value()?,)*
                            Key::Unknown => drop(map.next_value::<IgnoredAny>()?),
                        }
                    }
                    Ok(())
                }
            }
        };
    };
}

/// Where a [`flat!`] structure is read to.
pub(super) struct InPlace<'w, T>(pub(super) &'w mut T);

/// Reads one JSON object, and nothing after it, into `wire`.
pub(super) fn read<'p, T>(text: &'p str, wire: &mut T) -> Result<(), serde_json::Error>
where
    for<'w> InPlace<'w, T>: DeserializeSeed<'p, Value = ()>,
{
    let mut json = serde_json::Deserializer::from_str(text);
    InPlace(wire).deserialize(&mut json)?;
    json.end()
}

/// One scalar, borrowed where the JSON holds no escape. `Option<Cow>` would always be owned.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Scalar<'p> {
    /// The key is not there.
    #[default]
    Absent,
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(Cow<'p, str>),
    /// An object or an array.
    Other,
}

impl<'p> Scalar<'p> {
    /// Takes the text out; null, `""` and other types are unknown, an integer is its digits.
    pub(super) fn take_text(&mut self) -> Option<Str<'p>> {
        match std::mem::take(self) {
            Scalar::Text(text) if !text.is_empty() => Some(text),
            Scalar::Unsigned(number) => Some(Cow::Owned(number.to_string())),
            Scalar::Signed(number) => Some(Cow::Owned(number.to_string())),
            _ => None,
        }
    }

    /// The text without taking it; `""` for anything else.
    pub(super) fn as_str(&self) -> &str {
        match self {
            Scalar::Text(text) => text,
            _ => "",
        }
    }

    /// A count: a whole, non-negative number, also as digits in a string.
    pub(super) fn count(&self) -> Option<u64> {
        match self {
            Scalar::Unsigned(number) => Some(*number),
            Scalar::Float(number) if *number >= 0.0 => whole(*number).map(i64::unsigned_abs),
            Scalar::Text(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// A count that fits 32 bits.
    pub(super) fn small_count(&self) -> Option<u32> {
        self.count().and_then(|count| u32::try_from(count).ok())
    }

    /// A whole number.
    pub(super) fn integer(&self) -> Option<i64> {
        match self {
            Scalar::Unsigned(number) => i64::try_from(*number).ok(),
            Scalar::Signed(number) => Some(*number),
            Scalar::Float(number) => whole(*number),
            Scalar::Text(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// A boolean, three-valued.
    pub(super) fn flag(&self) -> Option<bool> {
        match self {
            Scalar::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    /// True where the key stands there, whatever its value.
    pub(super) fn is_there(&self) -> bool {
        !matches!(self, Scalar::Absent)
    }
}

/// A float that is a whole number within the exact range of a double.
fn whole(number: f64) -> Option<i64> {
    const EXACT_BELOW: f64 = 9_007_199_254_740_992.0;
    (number.fract() == 0.0 && number.abs() < EXACT_BELOW).then_some(number as i64)
}

/// Reads the rest of an array and forgets it.
pub(super) fn drain_seq<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<(), A::Error> {
    while seq.next_element::<IgnoredAny>()?.is_some() {}
    Ok(())
}

/// Reads the rest of an object and forgets it.
pub(super) fn drain_map<'de, A: MapAccess<'de>>(mut map: A) -> Result<(), A::Error> {
    while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
    Ok(())
}

impl<'de: 'p, 'p> Deserialize<'de> for Scalar<'p> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar<'de>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("any value")
    }
    fn visit_bool<E: Error>(self, flag: bool) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Bool(flag))
    }
    fn visit_u64<E: Error>(self, number: u64) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Unsigned(number))
    }
    fn visit_i64<E: Error>(self, number: i64) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Signed(number))
    }
    fn visit_f64<E: Error>(self, number: f64) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Float(number))
    }
    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Text(Cow::Borrowed(text)))
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Text(Cow::Owned(text.to_owned())))
    }
    fn visit_unit<E: Error>(self) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Null)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Scalar<'de>, A::Error> {
        drain_seq(seq).map(|()| Scalar::Other)
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Scalar<'de>, A::Error> {
        drain_map(map).map(|()| Scalar::Other)
    }
}

/// An object of known shape, or whatever else stood there.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Object<T> {
    #[default]
    Absent,
    Is(T),
    /// Something that is no object and not null.
    Other,
}

impl<T: Default> Object<T> {
    /// Takes the object out.
    pub(super) fn take(&mut self) -> Option<T> {
        match std::mem::take(self) {
            Object::Is(value) => Some(value),
            _ => None,
        }
    }

    /// The object, or one without any field.
    pub(super) fn take_or_default(&mut self) -> T {
        self.take().unwrap_or_default()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("any value")
    }
    fn visit_bool<E: Error>(self, flag: bool) -> Result<Object<T>, E> {
        Ok(if flag { Object::Other } else { Object::Absent })
    }
    fn visit_u64<E: Error>(self, _: u64) -> Result<Object<T>, E> {
        Ok(Object::Other)
    }
    fn visit_i64<E: Error>(self, _: i64) -> Result<Object<T>, E> {
        Ok(Object::Other)
    }
    fn visit_f64<E: Error>(self, _: f64) -> Result<Object<T>, E> {
        Ok(Object::Other)
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<Object<T>, E> {
        Ok(if text.is_empty() {
            Object::Absent
        } else {
            Object::Other
        })
    }
    fn visit_unit<E: Error>(self) -> Result<Object<T>, E> {
        Ok(Object::Absent)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Object<T>, A::Error> {
        drain_seq(seq).map(|()| Object::Other)
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object::Is)
    }
}

/// Whether a key stands there with a value that is not null; the value is skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen(pub(super) bool);

impl<'de> Deserialize<'de> for Seen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Option::<IgnoredAny>::deserialize(deserializer)?;
        Ok(Seen(value.is_some()))
    }
}

/// A key of an object, borrowed where it holds no escape.
pub(super) struct Name<'p>(pub(super) Cow<'p, str>);

impl<'de: 'p, 'p> Deserialize<'de> for Name<'p> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameVisitor;
        impl<'de> Visitor<'de> for NameVisitor {
            type Value = Name<'de>;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a key")
            }
            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(text)))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(NameVisitor)
    }
}

/// The bytes of a value that is read later, or not at all.
pub(super) type Raw<'p> = Option<&'p RawValue>;

/// The JSON text of an object that stands in `raw`, also where it is written as a string.
pub(super) fn object_text(raw: &str) -> Option<Cow<'_, str>> {
    match raw.as_bytes().first()? {
        b'{' => Some(Cow::Borrowed(raw)),
        b'"' => {
            let inner: String = serde_json::from_str(raw).ok()?;
            inner
                .trim_start()
                .starts_with('{')
                .then_some(Cow::Owned(inner))
        }
        _ => None,
    }
}
