//! Frames of open-protocol: records of which each event is a row of one table.
//!
//! key   := u64be version (= 1)  { u64be length, JSON }*
//! value :=                      { u64be length, JSON }*
//!
//! The key frames of such a record are equal but for the commit-ts: `{"ts":470613397578727424,"scm":"shop","tbl":"t","t":1}`.
//! Other records are declined, and so is everything that does not add up.

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::contract::Framed;
use crate::json::positive;
use crate::matching::match_at;
use crate::messages::Messages;
use crate::scan::bytes;

const VERSION: u64 = 1;
const BEGIN: &[u8] = b"{\"ts\":";

/// The events of some records.
#[derive(Default, Debug, PartialEq)]
struct Events {
    /// Of each event, its record and its index in it.
    records: Vec<i32>,
    indexes: Vec<i32>,
    /// Of each event, which of the distinct ends of key frames its own has.
    ends: Vec<i32>,
    commit_ts: Vec<i64>,
    /// Of each event, where its value frame lies in the value: its first byte, and the byte behind it.
    bounds: Vec<(usize, usize)>,
}

/// Appends the events of a record, and the bytes behind the commit-ts of its key frames; None if it is declined.
fn split<'k>(record: i32, key: &'k [u8], value: &[u8], events: &mut Events) -> Option<&'k [u8]> {
    if word(key, 0)? != VERSION {
        return None;
    }
    let (mut at, mut within, mut end_of_all, mut index) = (8, 0, None, 0);
    while at < key.len() {
        let end = usize::try_from(word(key, at)?).ok()?.checked_add(at + 8)?;
        let (commit_ts, rest) = positive(key, match_at(key, at + 8, BEGIN)?)?;
        let rest = key.get(rest..end)?;
        if *end_of_all.get_or_insert(rest) != rest {
            return None;
        }
        let length = usize::try_from(word(value, within)?).ok()?;
        let (start, after) = (within + 8, length.checked_add(within + 8)?);
        if !value.get(start..after)?.starts_with(b"{\"") {
            return None; // it is compressed, or broken: a raw snappy block may begin with a brace, too
        }
        events.records.push(record);
        events.indexes.push(index);
        events.commit_ts.push(commit_ts);
        events.bounds.push((start, after));
        (at, within, index) = (end, after, index + 1);
    }
    if within != value.len() { None } else { end_of_all }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// Split records into events, given their keys (None for null), and where their values lie in larger bytes.
#[pyfunction]
pub fn split_frames(py: Python<'_>, keys: &Bound<'_, PyList>, values: Messages<'_>) -> PyResult<Framed> {
    let (mut events, mut declined) = (Events::default(), Vec::new());
    let mut numbers: HashMap<Vec<u8>, i32> = HashMap::new();
    let mut ends_of_keys = Vec::new();
    for (record, key) in keys.iter().enumerate() {
        let before = events.records.len();
        let value = values.get(record)?;
        let split = key.cast::<PyBytes>().ok().and_then(|key| {
            let end = split(i32::try_from(record).ok()?, key.as_bytes(), value, &mut events)?;
            let number = match numbers.get(end) {
                Some(number) => *number,
                None => {
                    let number = i32::try_from(numbers.len()).ok()?;
                    numbers.insert(end.to_vec(), number);
                    ends_of_keys.push(PyBytes::new(py, end).unbind());
                    number
                }
            };
            let start = values.start(record)?;
            for (begin, after) in events.bounds.get_mut(before..)? {
                (*begin, *after) = (start + *begin, start + *after);
                i32::try_from(*after).ok()?;
            }
            events.ends.resize(events.records.len(), number);
            Some(())
        });
        if split.is_none() {
            events.records.truncate(before);
            events.indexes.truncate(before);
            events.commit_ts.truncate(before);
            events.bounds.truncate(before);
            declined.push(record);
        }
    }
    let bounds: Vec<i32> = events.bounds.iter().flat_map(|&(begin, after)| [begin as i32, after as i32]).collect();
    Ok(Framed {
        records: bytes(py, &events.records, i32::to_ne_bytes)?.unbind(),
        indexes: bytes(py, &events.indexes, i32::to_ne_bytes)?.unbind(),
        ends: bytes(py, &events.ends, i32::to_ne_bytes)?.unbind(),
        commit_ts: bytes(py, &events.commit_ts, i64::to_ne_bytes)?.unbind(),
        bounds: bytes(py, &bounds, i32::to_ne_bytes)?.unbind(),
        ends_of_keys,
        declined,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const END: &str = r#","scm":"s","tbl":"t","t":1}"#;

    fn framed(frames: &[String]) -> Vec<u8> {
        let mut written = Vec::new();
        for frame in frames {
            written.extend_from_slice(&(frame.len() as u64).to_be_bytes());
            written.extend_from_slice(frame.as_bytes());
        }
        written
    }

    fn record(times: &[i64]) -> (Vec<u8>, Vec<u8>) {
        let keys: Vec<String> = times.iter().map(|ts| format!("{{\"ts\":{ts}{END}")).collect();
        let values: Vec<String> = times.iter().map(|ts| format!("{{\"u\":{ts}}}")).collect();
        ([VERSION.to_be_bytes().to_vec(), framed(&keys)].concat(), framed(&values))
    }

    proptest! {
        #[test]
        fn events_come_with_their_commit_ts_and_frame(times in proptest::collection::vec(1i64..1_000_000_000, 1..6)) {
            let (key, value) = record(&times);
            let mut events = Events::default();
            prop_assert_eq!(split(7, &key, &value, &mut events), Some(END.as_bytes()));
            prop_assert_eq!(&events.commit_ts, &times);
            prop_assert_eq!(&events.records, &vec![7; times.len()]);
            for (time, (begin, end)) in times.iter().zip(events.bounds) {
                let frame = format!("{{\"u\":{time}}}");
                prop_assert_eq!(&value[begin..end], frame.as_bytes());
            }
        }

        #[test]
        fn what_is_cut_off_or_has_another_frame_is_declined(
            times in proptest::collection::vec(1i64..1_000_000_000, 1..6), cut in 1usize..40
        ) {
            let (key, value) = record(&times);
            let more = [value.clone(), framed(&["{}".to_string()])].concat();
            for (key, value) in [
                (&key[..key.len() - cut.min(key.len() - 9)], &value[..]),
                (&key[..], &value[..value.len() - cut.min(value.len())]),
                (&key[..], &more[..]),
            ] {
                prop_assert_eq!(split(0, key, value, &mut Events::default()), None);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(
            key in proptest::collection::vec(any::<u8>(), 0..80), value in proptest::collection::vec(any::<u8>(), 0..80)
        ) {
            let key = [VERSION.to_be_bytes().to_vec(), key].concat();
            let _ = split(0, &key, &value, &mut Events::default());
        }
    }
}
