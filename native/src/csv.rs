//! Rows of CSV as TiCDC's storage sink writes them.
//!
//! `ticdc_source/protocols/csv/lines.py` is the specification. Cells are read here if they stand in quotes, or are NULL or
//! numbers; without a quote, if they have no escape.

use crate::contract::CSVDialect;
use crate::json::{Cell, Kind};

impl CSVDialect {
    /// Reads the cells of a row; returns the index behind it, where the message or the terminator is.
    ///
    /// `quoted` says of each column whether its values stand in quotes.
    #[inline]
    pub fn row(&self, quoted: &[bool], message: &[u8], mut at: usize, cells: &mut [Cell]) -> Option<usize> {
        for (index, (&is_quoted, kept)) in quoted.iter().zip(cells).enumerate() {
            if index > 0 {
                at = self.delimiter_at(message, at)?;
            }
            (*kept, at) = self.cell(message, at, is_quoted)?;
        }
        Some(at)
    }

    #[inline]
    fn delimiter_at(&self, message: &[u8], at: usize) -> Option<usize> {
        message.get(at..)?.starts_with(&self.delimiter).then_some(at + self.delimiter.len())
    }

    #[inline]
    fn cell(&self, message: &[u8], at: usize, is_quoted: bool) -> Option<(Cell, usize)> {
        match self.quote.first() {
            Some(quote) if message.get(at) == Some(quote) => text(message, at + 1, *quote),
            quote => self.bare(message, at, quote, is_quoted),
        }
    }

    /// Reads a cell without quotes.
    #[inline]
    fn bare(&self, message: &[u8], start: usize, quote: Option<&u8>, is_quoted: bool) -> Option<(Cell, usize)> {
        let (mut at, mut other) = (start, 0u8);
        let (delimiter, terminator) = (*self.delimiter.first()?, *self.terminator.first()?);
        while let Some(&byte) = message.get(at) {
            if byte == delimiter && self.delimiter_at(message, at).is_some()
                || byte == terminator && message.get(at..)?.starts_with(&self.terminator)
            {
                break;
            }
            other |= byte;
            at += 1;
        }
        let written = message.get(start..at)?;
        let kind = if written == self.null {
            Kind::Null
        } else {
            let fits = match quote {
                // In bare text, `true` may be no cell but a field of TiCDC's own.
                Some(quote) => !is_quoted && matches!(written.first()?, b'-' | b'0'..=b'9') && !written.contains(quote),
                None => !written.contains(&b'\\'),
            };
            if !fits || (other >= 0x80 && std::str::from_utf8(written).is_err()) {
                return None;
            }
            Kind::Text
        };
        Some((Cell { kind, start, end: at }, at))
    }
}

/// Reads a text, given the index behind the quote that begins it; returns the index behind the one that ends it.
#[inline]
fn text(message: &[u8], start: usize, quote: u8) -> Option<(Cell, usize)> {
    let (mut at, mut kind) = (start, Kind::Text);
    let end = loop {
        at += message.get(at..)?.iter().position(|&byte| byte == quote)?;
        if message.get(at + 1) != Some(&quote) {
            break at;
        }
        kind = Kind::Doubled;
        at += 2;
    };
    let written = message.get(start..end)?;
    if !written.is_ascii() {
        std::str::from_utf8(written).ok()?;
    }
    Some((Cell { kind, start, end }, end + 1))
}

/// Appends a text in which each quote stands twice; `quote` is the one before it.
pub fn undouble(written: &[u8], quote: u8, into: &mut Vec<u8>) {
    let mut rest = written;
    while let Some(at) = rest.iter().position(|&byte| byte == quote) {
        into.extend_from_slice(&rest[..=at]);
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    into.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn dialect(quote: &str) -> CSVDialect {
        let [quote, delimiter, null, terminator] = [quote, ",", "\\N", "\r\n"].map(|text| text.as_bytes().to_vec());
        CSVDialect { quote, delimiter, null, terminator }
    }

    fn cells(dialect: &CSVDialect, quoted: &[bool], row: &str) -> Option<(Vec<(Kind, String)>, usize)> {
        let mut cells = vec![Cell::MISSING; quoted.len()];
        let end = dialect.row(quoted, row.as_bytes(), 0, &mut cells)?;
        let texts = cells.iter().map(|cell| (cell.kind, String::from_utf8_lossy(cell.of(row.as_bytes())).into()));
        Some((texts.collect(), end))
    }

    #[test]
    fn quoted_cells_are_read() {
        let (found, end) =
            cells(&dialect("\""), &[true, false, true, true, false], "\"a,\r\n\",-1,\\N,\"b\"\"\",7\r\n8").unwrap();
        let found: Vec<_> = found.iter().map(|(kind, text)| (*kind, text.as_str())).collect();
        let expected = [
            (Kind::Text, "a,\r\n"),
            (Kind::Text, "-1"),
            (Kind::Null, "\\N"),
            (Kind::Doubled, "b\"\""),
            (Kind::Text, "7"),
        ];
        assert_eq!((found.as_slice(), end), (&expected[..], 20));
    }

    #[test]
    fn cells_without_quotes_are_read() {
        let (found, end) = cells(&dialect(""), &[false; 3], "a\"b,\\N,").unwrap();
        let found: Vec<_> = found.iter().map(|(kind, text)| (*kind, text.as_str())).collect();
        assert_eq!((found.as_slice(), end), (&[(Kind::Text, "a\"b"), (Kind::Null, "\\N"), (Kind::Text, "")][..], 7));
    }

    #[test]
    fn what_may_be_wrong_is_declined() {
        for row in ["text,1", "\"a\"x,1", "\"a,1", "\"a\"", "1\"2,1", "true,1"] {
            assert_eq!(cells(&dialect("\""), &[true, false], row), None, "{row}");
        }
        assert_eq!(cells(&dialect("\""), &[false], "true"), None);
        assert_eq!(cells(&dialect(""), &[false], "a\\nb"), None);
    }

    proptest! {
        /// Whatever the bytes are, nothing panics, and what is found lies within them.
        #[test]
        fn cells_lie_within_their_bytes(row: Vec<u8>, quoted: Vec<bool>, has_quote: bool) {
            let mut cells = vec![Cell::MISSING; quoted.len()];
            if let Some(end) = dialect(if has_quote { "\"" } else { "" }).row(&quoted, &row, 0, &mut cells) {
                prop_assert!(end <= row.len());
                prop_assert!(cells.iter().all(|cell| cell.start <= cell.end && cell.end <= end));
            }
        }

        #[test]
        fn doubled_quotes_are_single_ones(text in "[a\"]{0,9}") {
            let mut single = Vec::new();
            undouble(text.replace('"', "\"\"").as_bytes(), b'"', &mut single);
            prop_assert_eq!(single, text.as_bytes());
        }
    }
}
