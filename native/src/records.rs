//! Kafka's records (message format v2): where their offsets, times, keys, values and headers are.
//!
//! `ticdc_source/sources/kafka/record_batches.py` is the specification. A strict subset of what it reads is read
//! here, with equal results; everything else is declined, so that it is read or reported there.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};

use crate::contract::{CutRecords, RecordRun, Walked};

/// Of a varint at most: no number has more than 56 bits.
const VARINT_BYTES: usize = 8;
/// An offset or a time to which such a number can be added.
const HIGHEST: u64 = 1 << 62;

/// The first byte of something, and the byte behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub begin: i32,
    pub end: i32,
}

impl Span {
    fn of<'a>(&self, data: &'a [u8]) -> Option<&'a [u8]> {
        data.get(usize::try_from(self.begin).ok()?..usize::try_from(self.end).ok()?)
    }
}

pub type Header = (Span, Option<Span>);

/// The parts of some records, as parallel lists; headers only if they are wanted.
#[derive(Debug, Default)]
pub struct Columns {
    pub offsets: Vec<i64>,
    pub timestamps: Vec<i64>,
    pub keys: Vec<Option<Span>>,
    pub values: Vec<Option<Span>>,
    pub headers: Vec<Vec<Header>>,
}

/// A place in some bytes; everything is read from there.
struct Cursor<'a> {
    data: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    #[inline]
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.data.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    /// Read a varint as it is written, with the sign in the lowest bit.
    #[inline]
    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in 0..VARINT_BYTES {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << (7 * shift);
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// Read a number with its sign.
    #[inline]
    fn signed(&mut self) -> Option<i64> {
        let number = self.varint()?;
        Some((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// Read so many bytes.
    #[inline]
    fn span(&mut self, length: u64) -> Option<Span> {
        let begin = self.at;
        let end = begin.checked_add(usize::try_from(length).ok()?)?;
        if end > self.data.len() {
            return None;
        }
        self.at = end;
        Some(Span { begin: i32::try_from(begin).ok()?, end: i32::try_from(end).ok()? })
    }

    /// Read bytes with their length before them; a negative length is a null.
    #[inline]
    fn bytes(&mut self) -> Option<Option<Span>> {
        let length = self.varint()?;
        if length & 1 == 1 { Some(None) } else { self.span(length >> 1).map(Some) }
    }

    /// Read a length that is not negative.
    #[inline]
    fn length(&mut self) -> Option<u64> {
        let number = self.varint()?;
        (number & 1 == 0).then_some(number >> 1)
    }
}

/// Find records in `data[at..end]` by their lengths.
pub fn walk(data: &[u8], at: usize, end: usize, max_records: usize, max_bytes: usize) -> Walked {
    let mut walked = Walked { count: 0, after: at, missing: 0 };
    let is_last = end == data.len();
    let Some(data) = data.get(..end) else {
        return walked;
    };
    let limit = end.min(at.saturating_add(max_bytes));
    let mut cursor = Cursor { data, at };
    while walked.count < max_records {
        cursor.at = walked.after;
        let Some(length) = cursor.length() else {
            let begun = data.get(walked.after..).unwrap_or_default();
            let is_cut_off = is_last && begun.len() < VARINT_BYTES && begun.iter().all(|byte| *byte >= 0x80);
            walked.missing = usize::from(is_cut_off);
            break;
        };
        let Some(after) = usize::try_from(length).ok().and_then(|length| cursor.at.checked_add(length)) else {
            break;
        };
        if after > end {
            walked.missing = after - end;
        }
        if after > limit {
            break;
        }
        walked.count += 1;
        walked.after = after;
    }
    walked
}

/// Find the parts of records; None if some record is damaged or unusual. `previous` is the offset of the record before.
pub fn cut(data: &[u8], runs: &[RecordRun], mut previous: i64, wants_headers: bool) -> Option<Columns> {
    let mut columns = Columns::default();
    let count = runs.iter().try_fold(0usize, |sum, run| sum.checked_add(run.count))?;
    if count > data.len() {
        return None; // no record is without a byte
    }
    columns.offsets.reserve(count);
    columns.timestamps.reserve(count);
    columns.keys.reserve(count);
    columns.values.reserve(count);
    for run in runs {
        if run.offset.unsigned_abs().max(run.timestamp.unsigned_abs()) > HIGHEST {
            return None;
        }
        let mut at = run.begin;
        for _ in 0..run.count {
            let mut cursor = Cursor { data, at };
            let length = usize::try_from(cursor.length()?).ok()?;
            at = cursor.at.checked_add(length)?;
            cursor.data = data.get(..at)?; // no part reaches behind its record
            cursor.byte()?; // the attributes, which have no meaning yet
            let time = cursor.signed()?;
            let offset = cursor.signed()?;
            columns.keys.push(cursor.bytes()?);
            columns.values.push(cursor.bytes()?);
            if wants_headers {
                columns.headers.push(headers(&mut cursor)?);
            } else {
                pass_headers(&mut cursor)?;
            }
            let offset = run.offset.checked_add(offset)?;
            if cursor.at != at || offset <= previous || offset < run.offset || offset > run.highest_offset {
                return None;
            }
            previous = offset;
            columns.offsets.push(offset);
            columns.timestamps.push(match run.append_time {
                Some(time) => time,
                None => run.timestamp.checked_add(time)?,
            });
        }
    }
    Some(columns)
}

fn headers(cursor: &mut Cursor) -> Option<Vec<Header>> {
    let mut headers = Vec::new();
    for _ in 0..cursor.length()? {
        let length = cursor.length()?;
        let name = cursor.span(length)?;
        headers.push((name, cursor.bytes()?));
    }
    Some(headers)
}

/// Pass over headers that nobody wants: a record that lies about them is damaged all the same.
#[inline]
fn pass_headers(cursor: &mut Cursor) -> Option<()> {
    for _ in 0..cursor.length()? {
        let length = cursor.length()?;
        cursor.span(length)?;
        cursor.bytes()?;
    }
    Some(())
}

/// Find records by their lengths.
#[pyfunction]
pub fn walk_records(data: &Bound<'_, PyBytes>, at: usize, end: usize, max_records: usize, max_bytes: usize) -> Walked {
    walk(data.as_bytes(), at, end, max_records, max_bytes)
}

/// Cut records into their parts; None if some record is damaged or unusual.
#[pyfunction]
pub fn cut_runs(
    data: &Bound<'_, PyBytes>,
    runs: Vec<RecordRun>,
    previous: i64,
    wants_headers: bool,
) -> PyResult<Option<CutRecords>> {
    let py = data.py();
    let bytes = data.as_bytes();
    let Some(columns) = cut(bytes, &runs, previous, wants_headers) else {
        return Ok(None);
    };
    let mut values = columns.values.as_slice();
    let (mut bounds, mut nbytes) = (None, 0);
    if values.iter().all(Option::is_some) {
        let spans = values.iter().flatten();
        nbytes = spans.clone().map(|span| i64::from(span.end - span.begin)).sum();
        let written = PyBytes::new_with(py, values.len() * 8, |buffer| {
            for (target, span) in buffer.chunks_exact_mut(8).zip(spans) {
                target[..4].copy_from_slice(&span.begin.to_ne_bytes());
                target[4..].copy_from_slice(&span.end.to_ne_bytes());
            }
            Ok(())
        })?;
        (bounds, values) = (Some(written.unbind()), &[]);
    }
    let rises_by_one = columns.offsets.windows(2).all(|pair| pair[1] == pair[0] + 1);
    let first_offset = columns.offsets.first().copied().filter(|_| rises_by_one);
    let offsets = if first_offset.is_some() { &[] } else { columns.offsets.as_slice() };
    let mut lists = Vec::with_capacity(columns.headers.len());
    for own in &columns.headers {
        let list = PyList::empty(py);
        for (name, value) in own {
            let Some(name) = name.of(bytes).and_then(|name| std::str::from_utf8(name).ok()) else {
                return Ok(None);
            };
            list.append((PyString::new(py, name), as_bytes(py, bytes, value)))?;
        }
        lists.push(list);
    }
    let headers = wants_headers.then(|| PyList::new(py, lists)).transpose()?;
    Ok(Some(CutRecords {
        first_offset,
        offsets: PyList::new(py, offsets)?.unbind(),
        timestamps: PyList::new(py, &columns.timestamps)?.unbind(),
        keys: list_of_bytes(py, bytes, &columns.keys)?.unbind(),
        bounds,
        nbytes,
        values: list_of_bytes(py, bytes, values)?.unbind(),
        headers: headers.map(Bound::unbind),
    }))
}

fn as_bytes<'py>(py: Python<'py>, data: &[u8], span: &Option<Span>) -> Option<Bound<'py, PyBytes>> {
    span.and_then(|span| span.of(data)).map(|bytes| PyBytes::new(py, bytes))
}

fn list_of_bytes<'py>(py: Python<'py>, data: &[u8], spans: &[Option<Span>]) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, spans.iter().map(|span| as_bytes(py, data, span)))
}
