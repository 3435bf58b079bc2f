//! JSON tokens, read strictly: what is accepted here, every JSON parser accepts, with one meaning.
//!
//! Source: RFC 8259, sections 6 and 7. Numbers are also short, so that no parser has limits that they exceed.

/// The longest number: beyond that, parsers differ.
const LONGEST_NUMBER: usize = 40;
pub const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// What a cell of a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The member is not there.
    Missing,
    Null,
    True,
    False,
    /// A number without fraction and exponent.
    Integer,
    /// Another number.
    Float,
    /// A string; the cell is what stands between its quotes.
    String,
    /// A string with a backslash in it.
    Escaped,
    /// An object whose members are no objects; the cell has its braces.
    Object,
    /// Of Avro: an integer, numbers of 32 and 64 bits with a fraction, a text without escapes, and bytes.
    Long,
    Single,
    Double,
    Text,
    Bytes,
    /// Of CSV: a text in which each quote stands twice.
    Doubled,
}

/// A cell: what it is, and where it stands in its message.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    pub kind: Kind,
    pub start: usize,
    pub end: usize,
}

impl Cell {
    pub const MISSING: Cell = Cell { kind: Kind::Missing, start: 0, end: 0 };

    /// Returns the bytes of the cell.
    pub fn of<'m>(&self, message: &'m [u8]) -> &'m [u8] {
        message.get(self.start..self.end).unwrap_or_default()
    }
}

/// Reads a cell that begins at `at`; returns it and the index behind it. Arrays are no cells, and an object within an
/// object is none.
#[inline]
pub fn cell(message: &[u8], at: usize) -> Option<(Cell, usize)> {
    if message.get(at)? == &b'{' {
        let end = object_end(message, at)?;
        return Some((Cell { kind: Kind::Object, start: at, end }, end));
    }
    scalar(message, at)
}

/// Returns the index behind an object of at least one member, without blanks.
fn object_end(message: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        if message.get(at)? != &b'"' {
            return None;
        }
        let (name_end, _) = string_end(message, at + 1)?;
        if message.get(name_end + 1)? != &b':' {
            return None;
        }
        (_, at) = scalar(message, name_end + 2)?;
        match message.get(at)? {
            b',' => at += 1,
            b'}' => return Some(at + 1),
            _ => return None,
        }
    }
}

#[inline]
fn scalar(message: &[u8], at: usize) -> Option<(Cell, usize)> {
    let (kind, start, end, next) = match message.get(at)? {
        b'"' => {
            let (end, escaped) = string_end(message, at + 1)?;
            let kind = if escaped { Kind::Escaped } else { Kind::String };
            (kind, at + 1, end, end + 1)
        }
        b'n' => literal(message, at, b"null", Kind::Null)?,
        b't' => literal(message, at, b"true", Kind::True)?,
        b'f' => literal(message, at, b"false", Kind::False)?,
        _ => {
            let (end, kind) = number_end(message, at)?;
            (kind, at, end, end)
        }
    };
    Some((Cell { kind, start, end }, next))
}

fn literal(message: &[u8], at: usize, word: &[u8], kind: Kind) -> Option<(Kind, usize, usize, usize)> {
    let end = at + word.len();
    (message.get(at..end)? == word).then_some((kind, at, end, end))
}

/// Returns the index of the quote that ends a string, and whether the string has escapes.
///
/// `start` is the index behind the quote that begins it. The string is UTF-8, has no control characters, and each
/// surrogate in its escapes is one of a pair.
#[inline]
pub fn string_end(message: &[u8], start: usize) -> Option<(usize, bool)> {
    let (mut at, mut other, mut escaped) = (start, 0u64, false);
    loop {
        while let Some(word) = message.get(at..at + 8) {
            let word = u64::from_le_bytes(word.try_into().ok()?);
            // The lowest bit that is set is exact: a test only errs above a byte that it has found.
            let hits = zeros(word ^ (ONES * b'"' as u64))
                | zeros(word ^ (ONES * b'\\' as u64))
                | (word.wrapping_sub(ONES * 0x20) & !word & HIGHS);
            if hits != 0 {
                let bit = hits.trailing_zeros();
                other |= word & HIGHS & ((1u64 << bit) - 1);
                at += (bit / 8) as usize;
                break;
            }
            other |= word & HIGHS;
            at += 8;
        }
        match *message.get(at)? {
            b'"' => break,
            b'\\' => {
                escaped = true;
                at = escape_end(message, at)?;
            }
            byte if byte < 0x20 => return None,
            byte => {
                other |= (byte & 0x80) as u64;
                at += 1;
            }
        }
    }
    if other != 0 && !is_utf8(message.get(start..at)?) {
        return None;
    }
    Some((at, escaped))
}

/// Whether bytes are UTF-8. For short texts, this is faster than `std::str::from_utf8`.
fn is_utf8(bytes: &[u8]) -> bool {
    let mut at = 0;
    while let Some(&first) = bytes.get(at) {
        if first < 0x80 {
            let word = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>);
            let high = word.map_or(0x8000, |word| u64::from_le_bytes(*word) & HIGHS); // else only this byte is known
            at += (high.trailing_zeros() / 8) as usize;
            continue;
        }
        // RFC 3629, section 4: after some first bytes, the second one has a narrower range.
        let (second, more) = match first {
            0xC2..=0xDF => (0x80..=0xBF, 0),
            0xE0 => (0xA0..=0xBF, 1),
            0xED => (0x80..=0x9F, 1),
            0xE1..=0xEF => (0x80..=0xBF, 1),
            0xF0 => (0x90..=0xBF, 2),
            0xF1..=0xF3 => (0x80..=0xBF, 2),
            0xF4 => (0x80..=0x8F, 2),
            _ => return false,
        };
        let fits = bytes.get(at + 1).is_some_and(|byte| second.contains(byte))
            && bytes.get(at + 2..at + 2 + more).is_some_and(|rest| rest.iter().all(|byte| byte & 0xC0 == 0x80));
        if !fits {
            return false;
        }
        at += 2 + more;
    }
    true
}

/// Sets the high bit of each byte that is zero; the lowest bit that is set is exact.
pub fn zeros(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGHS
}

/// Returns the index behind the escape that begins with the backslash at `at`.
fn escape_end(message: &[u8], at: usize) -> Option<usize> {
    match message.get(at + 1)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(at + 2),
        b'u' => match unit(message, at + 2)? {
            0xD800..=0xDBFF => {
                let low = (message.get(at + 6..at + 8)? == b"\\u").then(|| unit(message, at + 8))??;
                (0xDC00..=0xDFFF).contains(&low).then_some(at + 12)
            }
            0xDC00..=0xDFFF => None,
            _ => Some(at + 6),
        },
        _ => None,
    }
}

/// Returns the number that four hexadecimal digits are.
fn unit(message: &[u8], at: usize) -> Option<u32> {
    message.get(at..at + 4)?.iter().try_fold(0, |number, &digit| Some(number << 4 | (digit as char).to_digit(16)?))
}

/// Appends the text of a string with escapes; `string_end` has accepted it.
pub fn unescape(written: &[u8], into: &mut Vec<u8>) -> Option<()> {
    let mut at = 0;
    while let Some(&byte) = written.get(at) {
        if byte != b'\\' {
            at += copy_before(written.get(at..)?, b'\\', into);
            continue;
        }
        let plain = match *written.get(at + 1)? {
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let mut code = unit(written, at + 2)?;
                at += 6;
                if (0xD800..=0xDBFF).contains(&code) {
                    code = 0x10000 + ((code - 0xD800) << 10) + unit(written, at + 2)?.checked_sub(0xDC00)?;
                    at += 6;
                }
                let mut buffer = [0; 4];
                into.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut buffer).as_bytes());
                continue;
            }
            other => other,
        };
        into.push(plain);
        at += 2;
    }
    Some(())
}

/// Appends the bytes before the first one that is `end`; returns how many there are.
#[inline]
fn copy_before(bytes: &[u8], end: u8, into: &mut Vec<u8>) -> usize {
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let hits = zeros(u64::from_le_bytes(*word) ^ (ONES * end as u64));
        into.extend_from_slice(word); // always eight bytes: faster than as many as are wanted
        if hits != 0 {
            let length = (hits.trailing_zeros() / 8) as usize;
            into.truncate(into.len() - (8 - length));
            return 8 * index + length;
        }
    }
    let length = rest.iter().position(|&byte| byte == end).unwrap_or(rest.len());
    into.extend_from_slice(rest.get(..length).unwrap_or_default());
    8 * words.len() + length
}

/// Appends a text as a JSON string.
pub fn quote(text: &[u8], into: &mut Vec<u8>) {
    into.push(b'"');
    for &byte in text {
        match byte {
            b'"' | b'\\' => into.extend_from_slice(&[b'\\', byte]),
            0..0x20 => into.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            byte => into.push(byte),
        }
    }
    into.push(b'"');
}

/// Returns the index behind a number, and whether it is an integer. It has no more than 40 characters, and an exponent
/// of no more than two digits.
#[inline]
pub fn number_end(message: &[u8], start: usize) -> Option<(usize, Kind)> {
    let mut at = start;
    if message.get(at) == Some(&b'-') {
        at += 1;
    }
    match message.get(at)? {
        b'0' => at += 1,
        b'1'..=b'9' => at = digits_end(message, at),
        _ => return None,
    }
    let mut kind = Kind::Integer;
    if message.get(at) == Some(&b'.') {
        kind = Kind::Float;
        let end = digits_end(message, at + 1);
        if end == at + 1 {
            return None;
        }
        at = end;
    }
    if matches!(message.get(at), Some(b'e' | b'E')) {
        kind = Kind::Float;
        at += 1;
        if matches!(message.get(at), Some(b'+' | b'-')) {
            at += 1;
        }
        let end = digits_end(message, at);
        if !(1..=2).contains(&(end - at)) {
            return None;
        }
        at = end;
    }
    (at - start <= LONGEST_NUMBER).then_some((at, kind))
}

/// Returns the index of the first byte from `at` on that is no digit.
#[inline]
pub fn digits_end(message: &[u8], mut at: usize) -> usize {
    while message.get(at).is_some_and(u8::is_ascii_digit) {
        at += 1;
    }
    at
}

/// Returns a positive number of up to 18 digits that begins at `at` without a zero, and the index behind it.
#[inline]
pub fn positive(message: &[u8], at: usize) -> Option<(i64, usize)> {
    if message.get(at) == Some(&b'0') {
        return None;
    }
    let end = digits_end(message, at);
    let digits = message.get(at..end)?;
    if !(1..=18).contains(&digits.len()) {
        return None;
    }
    let number = digits.iter().fold(0i64, |number, digit| number * 10 + (digit - b'0') as i64);
    Some((number, end))
}

#[cfg(test)]
mod tests;
