//! Prefixes: what row messages begin with, up to their operation, tells their table.
//!
//! Two messages have the same prefix if they are equal up to there but for numbers that are values of members. Python
//! has matched one of them with a pattern that takes any number in such a place (`protocols/prefix_match.py`).

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Mutex;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::json::{ONES, digits_end, zeros};
use crate::matching::match_at;
use crate::messages::Messages;

/// The longest prefix: names have no more than 64 characters.
const LONGEST: usize = 4096;

/// The prefixes that a read has learned.
#[pyclass(module = "ticdc_source.kernels._native", frozen)]
pub struct Prefixes {
    inner: Mutex<Inner>,
}

struct Inner {
    /// What stands before the operation, which ends with a quote and a comma.
    marker: Vec<u8>,
    /// By the bytes up to the operation, with 0 for each number, an index of `prefixes`.
    indexes: HashMap<Vec<u8>, usize, BuildHasherDefault<Words>>,
    prefixes: Vec<Prefix>,
    /// The prefix that the last message had: the next one is likely to have it too.
    last: usize,
    scratch: Vec<u8>,
}

/// What messages begin with, up to their operation.
#[derive(Debug)]
struct Prefix {
    /// The bytes between numbers.
    parts: Vec<Vec<u8>>,
    /// The operations, each with the quote and the comma behind it, and the number of the table.
    tables: Vec<(Vec<u8>, i32)>,
}

impl Prefix {
    /// Returns the index behind the prefix, if a message has it.
    #[inline]
    fn end(&self, message: &[u8]) -> Option<usize> {
        let (first, rest) = self.parts.split_first()?;
        let mut at = match_at(message, 0, first)?;
        for part in rest {
            let digits = digits_end(message, at);
            at = if digits > at { match_at(message, digits, part)? } else { return None };
        }
        Some(at)
    }

    #[inline]
    fn table(&self, message: &[u8], at: usize) -> Option<i32> {
        self.tables.iter().find_map(|(operation, table)| match_at(message, at, operation).map(|_| *table))
    }
}

impl Inner {
    #[inline]
    fn table(&mut self, message: &[u8]) -> Option<i32> {
        if let Some(prefix) = self.prefixes.get(self.last)
            && let Some(end) = prefix.end(message)
        {
            return prefix.table(message, end);
        }
        let end = canonical(message, &self.marker, &mut self.scratch)?;
        self.last = *self.indexes.get(&self.scratch)?;
        self.prefixes.get(self.last)?.table(message, end)
    }
}

#[pymethods]
impl Prefixes {
    #[new]
    fn new(marker: Vec<u8>) -> Prefixes {
        let inner = Inner { marker, indexes: HashMap::default(), prefixes: Vec::new(), last: 0, scratch: Vec::new() };
        Prefixes { inner: Mutex::new(inner) }
    }

    /// Learn that messages with the first `end` bytes of this one are rows of the table with this number.
    ///
    /// Returns whether these bytes are a prefix as messages are compared.
    fn learn(&self, message: &[u8], end: usize, table: i32) -> PyResult<bool> {
        let inner = &mut *self.inner.lock().map_err(|_| failed())?;
        let begin = canonical(message, &inner.marker, &mut inner.scratch);
        let Some(operation) = begin.and_then(|begin| message.get(begin..end)) else { return Ok(false) };
        if !operation.ends_with(b"\",") || operation.iter().filter(|&&byte| byte == b'"').count() > 1 {
            return Ok(false);
        }
        let Some(parts) = parts(message, &inner.marker) else { return Ok(false) };
        let index = *inner.indexes.entry(inner.scratch.clone()).or_insert_with(|| {
            inner.prefixes.push(Prefix { parts, tables: Vec::new() });
            inner.prefixes.len() - 1
        });
        if let Some(prefix) = inner.prefixes.get_mut(index) {
            prefix.tables.retain(|(other, _)| other != operation);
            prefix.tables.push((operation.to_vec(), table));
        }
        Ok(true)
    }

    /// Return the table of each message as int32 in native byte order; -1 if its prefix is not known.
    ///
    /// With `indexes`, only of the messages with these.
    #[pyo3(signature = (messages, indexes=None))]
    fn tables<'py>(
        &self,
        py: Python<'py>,
        messages: Messages<'py>,
        indexes: Option<Vec<usize>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let inner = &mut *self.inner.lock().map_err(|_| failed())?;
        let mut tables = Vec::with_capacity(4 * indexes.as_ref().map_or(messages.len(), Vec::len));
        let mut find = |index| -> PyResult<()> {
            tables.extend_from_slice(&inner.table(messages.get(index)?).unwrap_or(-1).to_ne_bytes());
            Ok(())
        };
        match indexes {
            Some(indexes) => indexes.into_iter().try_for_each(&mut find)?,
            None => (0..messages.len()).try_for_each(&mut find)?,
        }
        Ok(PyBytes::new(py, &tables))
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.inner.lock().map_err(|_| failed())?.prefixes.len())
    }
}

fn failed() -> PyErr {
    PyValueError::new_err("a call has failed before")
}

/// Writes what a message begins with, up to its operation, with 0 for each number that is a value; returns the index
/// of the operation.
#[inline]
fn canonical(message: &[u8], marker: &[u8], into: &mut Vec<u8>) -> Option<usize> {
    into.clear();
    let mut begin = 0;
    let end = walk(message, marker, |start, after| {
        into.extend_from_slice(message.get(begin..start).unwrap_or_default());
        into.push(b'0');
        begin = after;
    })?;
    into.extend_from_slice(message.get(begin..end)?);
    Some(end)
}

/// Returns the bytes between the numbers that are values, up to the operation.
fn parts(message: &[u8], marker: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut parts, mut begin) = (Vec::new(), 0);
    let end = walk(message, marker, |start, after| {
        parts.push(message.get(begin..start).unwrap_or_default().to_vec());
        begin = after;
    })?;
    parts.push(message.get(begin..end)?.to_vec());
    Some(parts)
}

/// Finds the numbers that are values, each behind a name and a colon, up to the operation; returns its index.
///
/// The marker ends with the quote that begins the operation. Texts with escapes are declined, so that each quote begins
/// a text or ends one.
#[inline]
fn walk(message: &[u8], marker: &[u8], mut number: impl FnMut(usize, usize)) -> Option<usize> {
    let (mut at, mut in_text) = (0, false);
    while at < LONGEST {
        let quote = quote_or_backslash(message, at)?;
        if message.get(quote) == Some(&b'\\') {
            return None;
        }
        in_text = !in_text;
        at = quote + 1;
        if in_text {
            let marked = at.checked_sub(marker.len());
            if marked.is_some_and(|start| match_at(message, start, marker).is_some()) {
                return Some(at);
            }
        } else if message.get(at) == Some(&b':') && message.get(at + 1).is_some_and(u8::is_ascii_digit) {
            let start = at + 1;
            at = digits_end(message, start);
            number(start, at);
        }
    }
    None
}

/// Returns the index of the next quote or backslash.
#[inline]
fn quote_or_backslash(message: &[u8], mut at: usize) -> Option<usize> {
    while let Some(word) = message.get(at..at + 8) {
        let word = u64::from_le_bytes(word.try_into().ok()?);
        let hits = zeros(word ^ (ONES * b'"' as u64)) | zeros(word ^ (ONES * b'\\' as u64));
        if hits != 0 {
            return Some(at + (hits.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    message.get(at..)?.iter().position(|&byte| byte == b'"' || byte == b'\\').map(|index| at + index)
}

/// Hashes eight bytes at a time. The keys are few, so that nobody gains by making them collide.
#[derive(Default)]
struct Words(u64);

impl Hasher for Words {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        for word in words.iter().chain([&last]) {
            self.0 = (self.0.rotate_left(5) ^ u64::from_le_bytes(*word)).wrapping_mul(0x517C_C1B7_2722_0A95);
        }
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MARKER: &[u8] = b"\"op\":\"";

    fn of(message: &[u8]) -> Option<(Vec<u8>, usize)> {
        let mut into = Vec::new();
        canonical(message, MARKER, &mut into).map(|end| (into, end))
    }

    #[test]
    fn numbers_that_are_values_do_not_count() {
        let one = br#"{"id":12,"t":"a1","op":"c","x"#;
        let prefix = Prefix { parts: parts(one, MARKER).unwrap(), tables: Vec::new() };
        assert_eq!(of(one), Some((br#"{"id":0,"t":"a1","op":""#.to_vec(), 24)));
        assert_eq!(of(br#"{"id":9999,"t":"a1","op":"c",1"#).unwrap().0, of(one).unwrap().0);
        assert_eq!(prefix.end(br#"{"id":9999,"t":"a1","op":"d",1"#), Some(26));
        for other in
            [r#"{"id":12,"t":"a2","op":"c","#, r#"{"id":1-2,"t":"a1","op":"c","#, r#"{"id":,"t":"a1","op":"c","#]
        {
            assert_ne!(of(other.as_bytes()).unwrap().0, of(one).unwrap().0, "{other}");
            assert_eq!(prefix.end(other.as_bytes()), None, "{other}");
        }
        for none in [r#"{"id":12,"t":"a1"}"#, r#"{"op":"#, r#"{"t":"a\"","op":"c","#, ""] {
            assert_eq!(of(none.as_bytes()), None, "{none}");
        }
    }

    #[test]
    fn a_text_that_looks_like_a_value_counts() {
        let (one, other) = (br#"{"t":":1","n":1,"op":"c","#, br#"{"t":":2","n":1,"op":"c","#);
        assert_ne!(of(one).unwrap().0, of(other).unwrap().0);
        let prefix = Prefix { parts: parts(one, MARKER).unwrap(), tables: Vec::new() };
        assert_eq!((prefix.end(one).is_some(), prefix.end(other)), (true, None));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let canonical = of(&bytes);
            let prefix = parts(&bytes, MARKER).map(|parts| Prefix { parts, tables: Vec::new() });
            prop_assert_eq!(prefix.and_then(|prefix| prefix.end(&bytes)), canonical.as_ref().map(|(_, end)| *end));
            prop_assert!(canonical.is_none_or(|(_, end)| end <= bytes.len()));
        }
    }
}
