//! Avro's bytes: numbers and cells of rows, read as the Avro 1.11 specification has them ("Binary encoding").

use crate::contract::{AvroField, AvroType};
use crate::json::{Cell, Kind};

/// The most bytes of an integer with 64 bits.
const LONGEST: usize = 10;

/// Reads a zig-zag varint; returns it and the index behind it.
#[inline]
pub fn long(message: &[u8], at: usize) -> Option<(i64, usize)> {
    let mut number = 0u64;
    for (index, &byte) in message.get(at..)?.iter().take(LONGEST).enumerate() {
        if index == LONGEST - 1 && byte > 1 {
            return None;
        }
        number |= ((byte & 0x7F) as u64) << (7 * index);
        if byte < 0x80 {
            return Some(((number >> 1) as i64 ^ -((number & 1) as i64), at + index + 1));
        }
    }
    None
}

/// Returns the number that all these bytes are.
#[inline]
pub fn whole_long(written: &[u8]) -> Option<i64> {
    long(written, 0).and_then(|(number, end)| (end == written.len()).then_some(number))
}

/// Returns the number that big-endian bytes are, in two's complement, if 128 bits hold it.
pub fn unscaled(written: &[u8]) -> Option<i128> {
    let (&first, _) = written.split_first()?;
    let mut bytes = [if first >= 0x80 { 0xFF } else { 0 }; 16];
    bytes.get_mut(16usize.checked_sub(written.len())?..)?.copy_from_slice(written);
    Some(i128::from_be_bytes(bytes))
}

/// Returns the number that big-endian bytes are, without a sign, if 64 bits hold it.
pub fn bits(written: &[u8]) -> Option<u64> {
    let mut bytes = [0; 8];
    bytes.get_mut(8usize.checked_sub(written.len())?..)?.copy_from_slice(written);
    Some(u64::from_be_bytes(bytes))
}

/// Reads a value; returns its cell and the index behind it. A text is not checked.
#[inline]
pub fn value(kind: AvroType, message: &[u8], at: usize) -> Option<(Cell, usize)> {
    let (kind, start, end) = match kind {
        AvroType::Boolean => match message.get(at)? {
            0 => (Kind::False, at, at + 1),
            1 => (Kind::True, at, at + 1),
            _ => return None,
        },
        AvroType::Long => (Kind::Long, at, long(message, at)?.1),
        AvroType::Float => (Kind::Single, at, at + 4),
        AvroType::Double => (Kind::Double, at, at + 8),
        AvroType::Bytes | AvroType::String => {
            let (length, start) = long(message, at)?;
            let end = start.checked_add(usize::try_from(length).ok()?)?;
            (if kind == AvroType::Bytes { Kind::Bytes } else { Kind::Text }, start, end)
        }
    };
    (end <= message.len()).then_some((Cell { kind, start, end }, end))
}

/// Reads a field of a row; returns its cell and the index behind it. Texts are UTF-8.
#[inline]
pub fn field(field: &AvroField, message: &[u8], mut at: usize) -> Option<(Cell, usize)> {
    if let Some(null) = field.null {
        let branch = match message.get(at)? {
            0 => 0,
            2 => 1,
            _ => return None,
        };
        at += 1;
        if branch == null {
            return Some((Cell { kind: Kind::Null, start: at, end: at }, at));
        }
    }
    let (cell, end) = value(field.avro_type, message, at)?;
    if cell.kind == Kind::Text {
        std::str::from_utf8(cell.of(message)).ok()?;
    }
    Some((cell, end))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(number: i64, padding: usize) -> Vec<u8> {
        let mut rest = (number << 1 ^ number >> 63) as u64;
        let mut bytes = vec![];
        while rest >= 0x80 {
            bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push(rest as u8);
        for _ in 0..padding.min(LONGEST - bytes.len()) {
            *bytes.last_mut().unwrap() |= 0x80;
            bytes.push(0);
        }
        bytes
    }

    proptest! {
        /// An integer is what was written, whatever follows it, and however long it was written.
        #[test]
        fn integers_are_what_was_written(number: i64, padding in 0usize..4, rest: Vec<u8>) {
            let mut bytes = written(number, padding);
            let length = bytes.len();
            prop_assert_eq!(whole_long(&bytes), Some(number));
            bytes.extend(rest);
            prop_assert_eq!(long(&bytes, 0), Some((number, length)));
        }

        /// Whatever the bytes are, nothing panics, and what is read lies within them.
        #[test]
        fn cells_lie_within_their_messages(bytes: Vec<u8>, at in 0usize..20, null in prop::option::of(0usize..2)) {
            for kind in [AvroType::Boolean, AvroType::Long, AvroType::Float, AvroType::Double, AvroType::String, AvroType::Bytes] {
                if let Some((cell, end)) = field(&AvroField { avro_type: kind, null }, &bytes, at) {
                    prop_assert!(at <= cell.start && cell.start <= cell.end && cell.end == end && end <= bytes.len());
                }
            }
        }

        /// The bytes of a decimal are those of its unscaled number, with or without bytes that only repeat its sign.
        #[test]
        fn decimals_are_what_was_written(number: i128) {
            let bytes = number.to_be_bytes();
            prop_assert_eq!(unscaled(&bytes), Some(number));
            let sign = if number < 0 { 0xFF } else { 0 };
            let skipped = bytes.iter().take(15).zip(&bytes[1..])
                .take_while(|(byte, next)| **byte == sign && (**next ^ sign) < 0x80).count();
            prop_assert_eq!(unscaled(&bytes[skipped..]), Some(number));
        }
    }

    #[test]
    fn what_is_no_number_is_declined() {
        assert_eq!(long(&[], 0), None);
        assert_eq!(long(&[0x80], 0), None);
        assert_eq!(long(&[0xFF; 10], 0), None);
        assert_eq!(unscaled(&[]), None);
        assert_eq!(unscaled(&[0; 17]), None);
        assert_eq!(bits(&[]), Some(0));
        assert_eq!(bits(&[0; 9]), None);
    }
}
