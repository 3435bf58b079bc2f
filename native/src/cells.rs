//! Cells into columns, in Arrow's memory layout.
//!
//! A cast accepts a strict subset of what the kernel of the same name accepts (`ticdc_source/kernels`), and gives the
//! same values. What it declines, the general path reads or reports.

use crate::avro;
use crate::contract::{Cast, Precision};
use crate::csv;
use crate::json::{self, Cell, Kind};

impl Cast {
    /// Returns how many bytes a value takes; None if that varies.
    fn width(&self) -> Option<usize> {
        match self {
            Cast::Integer { bytes, .. } => Some(*bytes),
            Cast::Decimal { .. } | Cast::Unscaled { .. } => Some(16),
            Cast::Float { single, .. } => Some(if *single { 4 } else { 8 }),
            Cast::Date { .. } => Some(4),
            Cast::Datetime { .. } | Cast::Zoned { .. } | Cast::Time | Cast::Bits { .. } => Some(8),
            Cast::Bit { .. } => Some(1),
            _ => None,
        }
    }
}

/// Bytes of a buffer that is used again: one that was larger held an exceptional row.
const MOST_KEPT: usize = 1 << 20;

/// A column that is being built.
#[derive(Debug)]
pub struct Builder {
    cast: Cast,
    width: Option<usize>,
    length: usize,
    /// Of each value, whether it is not NULL; empty while none is.
    valid: Vec<bool>,
    /// 0, and where each value ends. Unused if values have a fixed width.
    ends: Vec<i32>,
    data: Vec<u8>,
}

/// A column: the buffers of an Arrow array.
pub struct Buffers {
    pub length: usize,
    pub nulls: usize,
    pub validity: Option<Vec<u8>>,
    pub offsets: Option<Vec<i32>>,
    pub data: Vec<u8>,
}

impl Builder {
    pub fn new(cast: Cast) -> Builder {
        Builder { width: cast.width(), cast, length: 0, valid: Vec::new(), ends: vec![0], data: Vec::new() }
    }

    /// Makes room for `rows` values that are as long as those before.
    pub fn reserve(&mut self, rows: usize) {
        match self.width {
            Some(width) => self.data.reserve(rows * width),
            None => self.ends.reserve(rows),
        }
    }

    /// Appends a cell; returns None if the cast declines it. Then `truncate` it.
    #[inline]
    pub fn push(&mut self, message: &[u8], cell: &Cell) -> Option<()> {
        let valid = match cell.kind {
            Kind::Missing => return None,
            Kind::Null => false,
            _ => self.value(message, cell)?,
        };
        if !valid {
            self.append_null();
        } else if !self.valid.is_empty() {
            self.valid.push(true);
        }
        if self.width.is_none() {
            self.ends.push(i32::try_from(self.data.len()).ok()?);
        }
        self.length += 1;
        Some(())
    }

    fn append_null(&mut self) {
        if self.valid.is_empty() {
            self.valid.resize(self.length, true);
        }
        self.valid.push(false);
        match self.width {
            Some(width) => self.data.resize(self.data.len() + width, 0),
            None if matches!(self.cast, Cast::Json) => self.data.extend_from_slice(b"null,"),
            None => {}
        }
    }

    /// Keeps the first `length` values only.
    pub fn truncate(&mut self, length: usize) {
        let end = match self.width {
            Some(width) => length * width,
            None => self.ends.get(length).map_or(0, |&end| end as usize),
        };
        self.length = self.length.min(length);
        self.data.truncate(end);
        self.ends.truncate(length + 1);
        self.valid.truncate(length);
    }

    /// Appends the bytes of a value; returns whether it is not NULL, or None if it is declined.
    #[inline]
    fn value(&mut self, message: &[u8], cell: &Cell) -> Option<bool> {
        let written = cell.of(message);
        let data = &mut self.data;
        match &self.cast {
            Cast::Json if cell.kind == Kind::Text => {
                json::quote(written, data);
                data.push(b',');
            }
            Cast::Json => {
                if matches!(cell.kind, Kind::Long | Kind::Single | Kind::Double | Kind::Bytes | Kind::Doubled) {
                    return None;
                }
                let quote = matches!(cell.kind, Kind::String | Kind::Escaped) as usize;
                data.extend_from_slice(message.get(cell.start - quote..cell.end + quote)?);
                data.push(b',');
            }
            Cast::Text => match cell.kind {
                Kind::String | Kind::Text => data.extend_from_slice(written),
                Kind::Escaped => json::unescape(written, data)?,
                Kind::Doubled => csv::undouble(written, *message.get(cell.start.checked_sub(1)?)?, data),
                _ => return None,
            },
            Cast::Bytes => (cell.kind == Kind::Bytes).then(|| data.extend_from_slice(written))?,
            Cast::Integer { bytes, text } => {
                let number = match cell.kind {
                    Kind::Long if !*text => avro::whole_long(written)?,
                    _ => integer(digits(cell, written, *text)?)?,
                };
                match bytes {
                    1 => data.extend_from_slice(&i8::try_from(number).ok()?.to_le_bytes()),
                    2 => data.extend_from_slice(&i16::try_from(number).ok()?.to_le_bytes()),
                    4 => data.extend_from_slice(&i32::try_from(number).ok()?.to_le_bytes()),
                    8 => data.extend_from_slice(&number.to_le_bytes()),
                    _ => return None,
                }
            }
            Cast::Decimal { text, precision: Precision(limit), scale } => {
                let digits = match cell.kind {
                    Kind::Float if !*text => written,
                    _ => digits(cell, written, *text)?,
                };
                data.extend_from_slice(&decimal(digits, *limit, *scale)?.to_le_bytes());
            }
            Cast::Unscaled { precision: Precision(limit), zeros } => {
                let number = (cell.kind == Kind::Bytes).then(|| avro::unscaled(written))??;
                let number = number.checked_mul(10i128.checked_pow(*zeros)?)?;
                (number < *limit && number > -*limit).then(|| data.extend_from_slice(&number.to_le_bytes()))?;
            }
            Cast::Float { single, text: false } if matches!(cell.kind, Kind::Single | Kind::Double) => {
                let number = match cell.kind {
                    Kind::Single => f32::from_le_bytes(written.try_into().ok()?) as f64,
                    _ => f64::from_le_bytes(written.try_into().ok()?),
                };
                if *single {
                    let number = number as f32;
                    number.is_finite().then(|| data.extend_from_slice(&number.to_le_bytes()))?;
                } else {
                    number.is_finite().then(|| data.extend_from_slice(&number.to_le_bytes()))?;
                }
            }
            Cast::Float { single, text } => {
                let number = number(cell, written, *text)?;
                if *single {
                    // A JSON number is a double first; a text is not.
                    let number: f32 = if *text { number.parse().ok()? } else { number.parse::<f64>().ok()? as f32 };
                    number.is_finite().then(|| data.extend_from_slice(&number.to_le_bytes()))?;
                } else {
                    let number: f64 = number.parse().ok()?;
                    number.is_finite().then(|| data.extend_from_slice(&number.to_le_bytes()))?;
                }
            }
            Cast::Latin1 => latin1(cell, written, data)?,
            Cast::Base64 => base64(text_of(cell, written)?, data)?,
            Cast::Base64Text => {
                let start = data.len();
                base64(text_of(cell, written)?, data)?;
                std::str::from_utf8(data.get(start..)?).ok()?;
            }
            Cast::Date { zero_is_null } => {
                let text = text_of(cell, written)?;
                let days = if text.len() == 10 { date(text)? } else { return None };
                match days {
                    Some(days) => data.extend_from_slice(&i32::try_from(days).ok()?.to_le_bytes()),
                    None => return zero_is_null.then_some(false),
                }
            }
            Cast::Datetime { zero_is_null } => match datetime(text_of(cell, written)?)? {
                Some(microseconds) => data.extend_from_slice(&microseconds.to_le_bytes()),
                None => return zero_is_null.then_some(false),
            },
            Cast::Zoned { begin, zero_is_null } => {
                let rest = (cell.kind == Kind::Object).then(|| written.strip_prefix(begin.as_slice()))??;
                match datetime(rest.strip_suffix(b"\"}")?)? {
                    Some(microseconds) => data.extend_from_slice(&microseconds.to_le_bytes()),
                    None => return zero_is_null.then_some(false),
                }
            }
            Cast::Time => data.extend_from_slice(&time(text_of(cell, written)?)?.to_le_bytes()),
            Cast::Label { labels, text } => {
                let index = usize::try_from(integer(digits(cell, written, *text)?)?).ok()?;
                if index > 0 {
                    data.extend_from_slice(labels.get(index - 1)?);
                }
            }
            Cast::Labels { labels, text } => {
                let mask = unsigned(digits(cell, written, *text)?)?;
                if labels.len() < 64 && mask >> labels.len() != 0 {
                    return None;
                }
                let chosen =
                    labels.iter().enumerate().filter(|(bit, _)| mask.checked_shr(*bit as u32).unwrap_or(0) & 1 == 1);
                for (count, (_, label)) in chosen.enumerate() {
                    if count > 0 {
                        data.push(b',');
                    }
                    data.extend_from_slice(label);
                }
            }
            Cast::Bits { text: false } if cell.kind == Kind::Bytes => {
                data.extend_from_slice(&avro::bits(written)?.to_le_bytes());
            }
            Cast::Bit { text: false } if cell.kind == Kind::Bytes => {
                let bit = avro::bits(written)?;
                (bit <= 1).then(|| data.push(bit as u8))?;
            }
            Cast::Bits { text } => data.extend_from_slice(&unsigned(digits(cell, written, *text)?)?.to_le_bytes()),
            Cast::Bit { text } => match digits(cell, written, *text)? {
                b"0" => data.push(0),
                b"1" => data.push(1),
                _ => return None,
            },
        }
        Some(true)
    }

    /// Returns the column, and keeps nothing; `reuse` takes its memory back.
    pub fn finish(&mut self) -> Buffers {
        let (length, mut data) = (self.length, std::mem::take(&mut self.data));
        let nulls = self.valid.iter().filter(|&&valid| !valid).count();
        let validity = (nulls > 0).then(|| bits(&self.valid, |valid| valid));
        let offsets = self.width.is_none().then(|| std::mem::replace(&mut self.ends, vec![0]));
        match self.cast {
            Cast::Bit { .. } => data = bits(&data, |byte| byte == 1),
            Cast::Json => {
                data.pop();
                data.insert(0, b'[');
                data.push(b']');
            }
            _ => {}
        }
        self.length = 0;
        self.valid.clear();
        Buffers { length, nulls, validity, offsets, data }
    }

    /// Takes the memory of a column that is no longer needed, so that the next one need not grow.
    pub fn reuse(&mut self, buffers: Buffers) {
        if buffers.data.capacity() <= MOST_KEPT {
            self.data = buffers.data;
            self.data.clear();
        }
        if let Some(ends) = buffers.offsets.filter(|ends| ends.capacity() <= MOST_KEPT / size_of::<i32>()) {
            self.ends = ends;
            self.ends.truncate(1);
        }
    }
}

/// Packs bits, the first one lowest.
fn bits<T: Copy>(values: &[T], is_set: impl Fn(T) -> bool) -> Vec<u8> {
    let packed = |eight: &[T]| eight.iter().rev().fold(0, |byte, &value| byte << 1 | is_set(value) as u8);
    values.chunks(8).map(packed).collect()
}

/// Returns the bytes of a string without escapes.
fn text_of<'m>(cell: &Cell, written: &'m [u8]) -> Option<&'m [u8]> {
    matches!(cell.kind, Kind::String | Kind::Text).then_some(written)
}

/// Returns the bytes of an integer: of a JSON number without a fraction, or of a string, as the column has it.
#[inline]
fn digits<'m>(cell: &Cell, written: &'m [u8], text: bool) -> Option<&'m [u8]> {
    if text { text_of(cell, written) } else { (cell.kind == Kind::Integer).then_some(written) }
}

/// Reads `-?(0|[1-9][0-9]*)` of up to 64 bits; not -0, which may be a double.
#[inline]
fn integer(digits: &[u8]) -> Option<i64> {
    let (negative, digits) = match digits.split_first()? {
        (b'-', rest) => (true, rest),
        _ => (false, digits),
    };
    if negative && digits == b"0" {
        return None;
    }
    let number = unsigned(digits)?;
    if negative { 0i64.checked_sub_unsigned(number) } else { i64::try_from(number).ok() }
}

/// Reads `0|[1-9][0-9]*` of up to 64 bits.
#[inline]
fn unsigned(digits: &[u8]) -> Option<u64> {
    if digits.len() > 20 || digits.is_empty() || (digits.len() > 1 && digits[0] == b'0') {
        return None;
    }
    let mut number = 0u64;
    for &digit in digits {
        let value = digit.wrapping_sub(b'0');
        if value > 9 {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(value as u64)?;
    }
    Some(number)
}

/// The powers of ten that 64 bits hold.
const POWERS: [u64; 20] = {
    let (mut powers, mut exponent) = ([1; 20], 1);
    while exponent < 20 {
        powers[exponent] = powers[exponent - 1] * 10;
        exponent += 1;
    }
    powers
};

/// Reads `-?[0-9]+(\.[0-9]+)?` with no more digits behind the point than the scale, as a multiple of 10^-scale.
#[inline]
fn decimal(written: &[u8], limit: i128, scale: u32) -> Option<i128> {
    let (negative, digits) = match written.split_first()? {
        (b'-', rest) => (true, rest),
        _ => (false, written),
    };
    let point = digits.iter().position(|&byte| byte == b'.').unwrap_or(digits.len());
    let (whole, fraction) = (digits.get(..point)?, digits.get(point + 1..).unwrap_or_default());
    let pads = (scale as usize).checked_sub(fraction.len())?;
    if whole.is_empty() || (point < digits.len() && fraction.is_empty()) {
        return None;
    }
    let number = if whole.len() + fraction.len() + pads <= 18 {
        let number = digits_of(digits_of(0, whole)?, fraction)?;
        (number * POWERS[pads]) as i128
    } else {
        let mut number = 0i128;
        for chunk in whole.chunks(18).chain(fraction.chunks(18)) {
            let power = POWERS[chunk.len()] as i128;
            number = number.checked_mul(power)?.checked_add(digits_of(0, chunk)? as i128)?;
        }
        number.checked_mul(10i128.checked_pow(pads as u32)?)?
    };
    (number < limit).then_some(if negative { -number } else { number })
}

/// Returns a number with digits appended; there are so few that 64 bits hold it.
#[inline]
fn digits_of(number: u64, digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(number, |number, &digit| {
        let value = digit.wrapping_sub(b'0');
        (value <= 9).then_some(number * 10 + value as u64)
    })
}

/// Of integers with so many digits, doubles lose none; of longer ones only the shortest text of a double is read.
const DOUBLE_DIGITS: usize = 15;

/// Returns the text of a number: of a JSON number, or of a string that looks like one, as the column has it.
fn number<'m>(cell: &Cell, written: &'m [u8], text: bool) -> Option<&'m str> {
    match (text, cell.kind) {
        (true, Kind::String | Kind::Text) => {
            let (end, _) = json::number_end(written, 0)?;
            (end == written.len()).then_some(())?;
        }
        (false, Kind::Float) => {}
        (false, Kind::Integer) if written != b"-0" => {
            let text = std::str::from_utf8(written).ok()?;
            return (written.len() <= DOUBLE_DIGITS || text.parse::<f64>().ok()?.to_string() == text).then_some(text);
        }
        _ => return None,
    }
    std::str::from_utf8(written).ok()
}

/// Appends the bytes whose characters a string has.
fn latin1(cell: &Cell, written: &[u8], data: &mut Vec<u8>) -> Option<()> {
    let start = data.len();
    match cell.kind {
        Kind::String => data.extend_from_slice(written),
        Kind::Escaped => json::unescape(written, data)?,
        _ => return None,
    }
    let text = data.get_mut(start..)?;
    if text.is_ascii() {
        return Some(());
    }
    let (mut at, mut length) = (0, 0);
    while let Some(&byte) = text.get(at) {
        // A character with such a number begins with C2 or C3, and has one more byte.
        text[length] = match byte {
            0..0x80 => byte,
            0xC2 | 0xC3 => {
                at += 1;
                let &second = text.get(at)?;
                (second & 0xC0 == 0x80).then_some(byte << 6 | second & 0x3F)?
            }
            _ => return None,
        };
        (at, length) = (at + 1, length + 1);
    }
    data.truncate(start + length);
    Some(())
}

/// Of each byte, its six bits in base64; 64 for none.
const SEXTETS: [u8; 256] = {
    let (mut sextets, alphabet) = ([64; 256], b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/");
    let mut index = 0;
    while index < 64 {
        sextets[alphabet[index] as usize] = index as u8;
        index += 1;
    }
    sextets
};

/// Appends the bytes of padded base64 whose last bits are 0.
fn base64(written: &[u8], data: &mut Vec<u8>) -> Option<()> {
    let (groups, rest) = written.as_chunks::<4>();
    if !rest.is_empty() {
        return None;
    }
    for (index, group) in groups.iter().enumerate() {
        let pads = match group {
            [_, _, b'=', b'='] => 2,
            [_, _, _, b'='] => 1,
            _ => 0,
        };
        if pads > 0 && index + 1 < groups.len() {
            return None;
        }
        let mut bits = 0u32;
        for &byte in &group[..4 - pads] {
            let sextet = SEXTETS[byte as usize];
            if sextet > 63 {
                return None;
            }
            bits = bits << 6 | sextet as u32;
        }
        bits <<= 6 * pads;
        let [_, bytes @ ..] = bits.to_be_bytes();
        let (kept, left) = bytes.split_at(3 - pads);
        if left.iter().any(|&byte| byte != 0) {
            return None;
        }
        data.extend_from_slice(kept);
    }
    Some(())
}

/// Returns the number that digits are.
#[inline]
fn fixed(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |number, &digit| {
        let value = digit.wrapping_sub(b'0');
        (value <= 9).then_some(number * 10 + value as i64)
    })
}

/// Reads `YYYY-MM-DD` as days since 1970; the inner None is a day that does not exist, or one of the year 0.
#[inline]
fn date(text: &[u8]) -> Option<Option<i64>> {
    let &[a, b, c, d, b'-', e, f, b'-', g, h] = text else {
        return None;
    };
    let (year, month, day) = (fixed(&[a, b, c, d])?, fixed(&[e, f])?, fixed(&[g, h])?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 => 28 + leap as i64,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    };
    if year == 0 || day == 0 || day > last {
        return Some(None);
    }
    // Howard Hinnant, "chrono-compatible low-level date algorithms", days_from_civil.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Some(Some(era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468))
}

/// Reads `YYYY-MM-DD HH:MM:SS` with up to six digits of fraction, as microseconds since 1970; the inner None is as in
/// `date`.
#[inline]
fn datetime(text: &[u8]) -> Option<Option<i64>> {
    let days = date(text.get(..10)?)?;
    let within = (text.get(10)? == &b' ').then(|| clock(text.get(11..)?))??;
    Some(days.map(|days| days * 86_400_000_000 + within))
}

/// Reads `HH:MM:SS` with up to six digits of fraction, as microseconds of a day.
#[inline]
fn clock(text: &[u8]) -> Option<i64> {
    let &[a, b, b':', c, d, b':', e, f, ref fraction @ ..] = text else {
        return None;
    };
    let (hours, minutes, seconds) = (fixed(&[a, b])?, fixed(&[c, d])?, fixed(&[e, f])?);
    if hours > 23 || minutes > 59 || seconds > 59 {
        return None;
    }
    Some(((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + microseconds(fraction)?)
}

/// Reads nothing, or a point and up to six digits.
#[inline]
fn microseconds(text: &[u8]) -> Option<i64> {
    match text.split_first() {
        None => Some(0),
        Some((b'.', digits)) if (1..=6).contains(&digits.len()) => {
            Some(fixed(digits)? * 10i64.pow(6 - digits.len() as u32))
        }
        _ => None,
    }
}

/// Reads `-?H{1,3}:MM:SS` with up to six digits of fraction, as microseconds.
fn time(text: &[u8]) -> Option<i64> {
    let (negative, text) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        _ => (false, text),
    };
    let colon = text.iter().position(|&byte| byte == b':')?;
    let &[b':', a, b, b':', c, d, ref fraction @ ..] = text.get(colon..)? else {
        return None;
    };
    let (hours, minutes, seconds) = (fixed(text.get(..colon)?)?, fixed(&[a, b])?, fixed(&[c, d])?);
    if !(1..=3).contains(&colon) || minutes > 59 || seconds > 59 {
        return None;
    }
    let total = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + microseconds(fraction)?;
    Some(if negative { -total } else { total })
}

#[cfg(test)]
mod tests;
