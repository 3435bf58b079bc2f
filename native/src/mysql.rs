//! Rows of MySQL's text protocol: where they lie in the bytes of a result, and their cells.
//!
//! packet := u24le length, u8 sequence number, payload
//! row    := { 0xFB for NULL, or a length-encoded string }*
//!
//! Source: MySQL's client/server protocol, "MySQL Packets", "Text Resultset Row" and "Length-Encoded String".

use pyo3::prelude::*;

use crate::contract::CutPackets;
use crate::json::{Cell, Kind};
use crate::scan::bytes;

const HEADER: usize = 4;
/// A payload of this length goes on in the next packet.
const LARGEST: usize = 0xFF_FFFF;
/// First bytes of packets that are no rows; the second one ends a result if fewer bytes than these follow it.
const ERROR: u8 = 0xFF;
const END: u8 = 0xFE;
const SHORTEST_LONG_CELL: usize = 9;
const NULL: u8 = 0xFB;

/// Reads a cell of a row; returns it and the index behind it. A text is UTF-8; the bytes of other cells may be anything.
#[inline]
pub fn cell(row: &[u8], at: usize, is_binary: bool) -> Option<(Cell, usize)> {
    let first = *row.get(at)?;
    let (length, start) = match first {
        NULL => return Some((Cell { kind: Kind::Null, start: at + 1, end: at + 1 }, at + 1)),
        0xFC => (number(row, at + 1, 2)?, at + 3),
        0xFD => (number(row, at + 1, 3)?, at + 4),
        END => (number(row, at + 1, 8)?, at + 9),
        ERROR => return None,
        length => (length as usize, at + 1),
    };
    let end = start.checked_add(length)?;
    let written = row.get(start..end)?;
    if !is_binary && !written.is_ascii() {
        std::str::from_utf8(written).ok()?;
    }
    Some((Cell { kind: if is_binary { Kind::Bytes } else { Kind::Text }, start, end }, end))
}

/// Returns the number that so many little-endian bytes are.
#[inline]
fn number(row: &[u8], at: usize, width: usize) -> Option<usize> {
    let mut bytes = [0; 8];
    bytes.get_mut(..width)?.copy_from_slice(row.get(at..at.checked_add(width)?)?);
    usize::try_from(u64::from_le_bytes(bytes)).ok()
}

/// Finds the rows that are whole, up to the first packet that is something else; returns the bounds of their payloads,
/// to which `base` is added, and the index behind them.
fn rows(data: &[u8], base: usize) -> (Vec<i32>, usize) {
    let (mut bounds, mut at) = (Vec::new(), 0);
    while let Some(size) = number(data, at, 3) {
        let start = at + HEADER;
        let (Some(&first), true) = (data.get(start), size > 0 && size < LARGEST) else { break };
        let end = start + size;
        if end > data.len() || first == ERROR || (first == END && size < SHORTEST_LONG_CELL) {
            break;
        }
        let (Ok(from), Ok(to)) = (i32::try_from(start + base), i32::try_from(end + base)) else { break };
        bounds.extend([from, to]);
        at = end;
    }
    (bounds, at)
}

/// Find the row packets in the bytes of a result, up to the first packet that is cut off or no row.
#[pyfunction]
pub fn cut_packets(py: Python<'_>, data: &[u8], base: usize) -> PyResult<CutPackets> {
    let (bounds, after) = rows(data, base);
    Ok(CutPackets { bounds: bytes(py, &bounds, i32::to_ne_bytes)?.unbind(), after })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packet(payload: &[u8]) -> Vec<u8> {
        let mut packet = (payload.len() as u32).to_le_bytes()[..3].to_vec();
        packet.push(7);
        packet.extend(payload);
        packet
    }

    #[test]
    fn a_result_ends_and_breaks_off() {
        let mut data = packet(b"\x01a\xFB");
        data.extend(packet(b"\x02bc\x00"));
        let after = data.len();
        for more in [packet(b"\xFE\0\0\x02\0"), packet(b"\xFF\x25\x1Fno"), packet(b""), b"\x09\0\0".to_vec()] {
            let data = [data.clone(), more].concat();
            assert_eq!(rows(&data, 100), (vec![104, 107, 111, 115], after));
        }
    }

    #[test]
    fn cells_are_read() {
        let row = b"\x02ab\xFB\xFC\x01\x00c\xFD\x01\0\0\xFF\xFE\x01\0\0\0\0\0\0\0d";
        let mut at = 0;
        let mut kinds = vec![];
        for is_binary in [false, false, false, true, false] {
            let (cell, end) = cell(row, at, is_binary).unwrap();
            kinds.push((cell.kind, cell.of(row)));
            at = end;
        }
        assert_eq!(at, row.len());
        assert_eq!(
            kinds,
            [
                (Kind::Text, &b"ab"[..]),
                (Kind::Null, b""),
                (Kind::Text, b"c"),
                (Kind::Bytes, b"\xFF"),
                (Kind::Text, b"d")
            ]
        );
        assert!(cell(b"\x01\xFF", 0, false).is_none());
        assert!(cell(b"\x02a", 0, true).is_none());
    }

    proptest! {
        /// Whatever the bytes are, nothing panics, and what is found lies within them.
        #[test]
        fn cells_and_rows_lie_within_their_bytes(data: Vec<u8>, at in 0usize..20, is_binary: bool) {
            if let Some((cell, end)) = cell(&data, at, is_binary) {
                prop_assert!(at < end && cell.start <= cell.end && cell.end == end && end <= data.len());
            }
            let (bounds, after) = rows(&data, 0);
            prop_assert!(after <= data.len());
            prop_assert!(bounds.iter().all(|&bound| bound as usize <= after));
        }
    }
}
