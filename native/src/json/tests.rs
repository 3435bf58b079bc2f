//! Tokens are those of RFC 8259, with one meaning; other bytes are refused and never panic.

use proptest::prelude::*;

use super::*;

fn is_string(text: &str) -> bool {
    let mut written = text.as_bytes().to_vec();
    written.push(b'"');
    string_end(&written, 0).is_some_and(|(end, _)| end == text.len())
}

#[test]
fn strings_that_parsers_refuse_or_read_differently_are_refused() {
    for bad in ["\n", "\\x", "\\u12", "\\ud800", "\\udc00", "\\ud800\\u0041", "\\", "a\u{1}"] {
        assert!(!is_string(bad), "{bad:?}");
    }
    assert!(string_end(b"\xff\"", 0).is_none());
    assert!(string_end(b"12345678\xc3\"", 0).is_none());
    for good in ["", "plain", "\\ud83d\\ude00", "\\u0041", "\u{e9}\u{1f600}", "\\\\\\\"", "\u{7f}"] {
        assert!(is_string(good), "{good:?}");
    }
}

#[test]
fn numbers_have_the_grammar_of_json() {
    for (text, kind) in [("0", Kind::Integer), ("-12", Kind::Integer), ("1.50", Kind::Float), ("1e5", Kind::Float)] {
        assert_eq!(number_end(text.as_bytes(), 0), Some((text.len(), kind)));
    }
    for bad in ["", "-", ".5", "1.", "1e", "1e+", "1e100", "+1", "abc"] {
        assert_eq!(number_end(bad.as_bytes(), 0), None, "{bad}");
    }
    assert_eq!(number_end(b"01", 0), Some((1, Kind::Integer))); // what follows must be what the template says
}

/// Reads the string up to the first quote that no backslash precedes, byte by byte: where it ends, and its text.
fn slow_string(bytes: &[u8]) -> Option<(usize, String)> {
    let mut at = 0;
    let mut units: Vec<u16> = Vec::new();
    loop {
        match *bytes.get(at)? {
            b'"' => return Some((at, String::from_utf16(&units).ok()?)),
            b'\\' => {
                let letter = *bytes.get(at + 1)?;
                at += 2;
                let plain = b"\"\\/bfnrt".iter().position(|&each| each == letter);
                if let Some(index) = plain {
                    units.push(b"\"\\/\x08\x0c\n\r\t"[index] as u16);
                } else if letter == b'u' {
                    let digits = std::str::from_utf8(bytes.get(at..at + 4)?).ok()?;
                    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                        return None;
                    }
                    units.push(u16::from_str_radix(digits, 16).ok()?);
                    at += 4;
                } else {
                    return None;
                }
            }
            byte if byte < 0x20 => return None,
            _ => {
                let length = (1..=4)
                    .find(|&length| bytes.get(at..at + length).is_some_and(|part| std::str::from_utf8(part).is_ok()))?;
                units.extend(std::str::from_utf8(&bytes[at..at + length]).ok()?.encode_utf16());
                at += length;
            }
        }
    }
}

/// Whether a whole text is a number, of no more characters and digits of its exponent than we read.
fn slow_number(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let alike = digits(whole) && digits(fraction) && digits(exponent) && (whole == "0" || !whole.starts_with('0'));
    alike && exponent.len() <= 2 && text.len() <= 40
}

/// Bytes of which many are parts of characters.
fn nearly_utf8() -> impl Strategy<Value = Vec<u8>> {
    let edges = b"a\"\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0\xc1\xc2\xdf\xe0\xe1\xec\xed\xee\xef\xf0\xf1\xf3\xf4\xf5\xff";
    let part = prop_oneof![
        4 => "\\PC{1,9}".prop_map(String::into_bytes),
        2 => proptest::char::any().prop_map(|one| one.to_string().into_bytes()),
        1 => proptest::collection::vec(proptest::sample::select(&edges[..]), 1..4),
    ];
    proptest::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

#[test]
fn all_pairs_of_bytes_and_what_may_follow_them_are_utf8_as_in_the_library() {
    for first in 0..=255 {
        for second in 0..=255 {
            for rest in [&b""[..], b"\x80", b"\x80\xbf", b"\xbfa", b"\xc0\x80", b"\x80\x80\x80", b"abcdefghi\x80"] {
                let bytes = [&[first, second], rest].concat();
                assert_eq!(is_utf8(&bytes), std::str::from_utf8(&bytes).is_ok(), "{bytes:?}");
            }
        }
    }
}

proptest! {
    #[test]
    fn bytes_are_utf8_as_in_the_library(bytes in nearly_utf8()) {
        prop_assert_eq!(is_utf8(&bytes), std::str::from_utf8(&bytes).is_ok());
    }

    #[test]
    fn bytes_are_copied_up_to_the_first_one(bytes in proptest::collection::vec(0u8..12, 0..40), end in 0u8..12) {
        let mut into = b"x".to_vec();
        let length = bytes.iter().position(|&byte| byte == end).unwrap_or(bytes.len());
        prop_assert_eq!(copy_before(&bytes, end, &mut into), length);
        prop_assert_eq!(&into[1..], &bytes[..length]);
    }

    #[test]
    fn no_bytes_make_a_token_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64), at in 0usize..70) {
        let _ = cell(&bytes, at);
        let _ = positive(&bytes, at);
        let mut into = Vec::new();
        let _ = unescape(&bytes, &mut into);
    }

    #[test]
    fn a_string_comes_back(text in "\\PC{0,40}") {
        let mut written: Vec<u8> = Vec::new();
        for unit in text.encode_utf16() {
            written.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
        }
        written.push(b'"');
        let (end, _) = string_end(&written, 0).unwrap();
        prop_assert_eq!(end, written.len() - 1);
        let mut into = Vec::new();
        unescape(&written[..end], &mut into).unwrap();
        prop_assert_eq!(into, text.as_bytes());
    }

    #[test]
    fn strings_are_read_as_byte_by_byte(
        parts in prop::collection::vec(
            prop_oneof![
                8 => "[ -~]{0,12}".prop_map(String::into_bytes),
                4 => "\\PC{0,6}".prop_map(String::into_bytes),
                3 => "\\\\(u[0-9a-fA-F]{4}|u[dD][89abAB][0-9a-f]{2}\\\\u[dD][c-fC-F][0-9a-f]{2}|[\"\\\\/bfnrt])".prop_map(String::into_bytes),
                1 => "\\\\(u[dD][89a-f][0-9a-f]{2}|u[0-9a-g+ ]{0,4}|.)".prop_map(String::into_bytes),
                1 => prop::collection::vec(any::<u8>(), 0..4),
            ],
            0..8,
        ),
    ) {
        let mut bytes = parts.concat();
        bytes.push(b'"');
        let fast = string_end(&bytes, 0);
        let slow = slow_string(&bytes);
        prop_assert_eq!(fast.map(|(end, _)| end), slow.as_ref().map(|(end, _)| *end));
        if let (Some((end, escaped)), Some((_, text))) = (fast, slow) {
            prop_assert_eq!(escaped, bytes[..end].contains(&b'\\'));
            let mut into = Vec::new();
            unescape(&bytes[..end], &mut into).unwrap();
            prop_assert_eq!(into, text.as_bytes());
        }
    }

    #[test]
    fn numbers_are_read_whole_if_they_are_numbers(
        text in prop_oneof![
            "-?(0|[1-9][0-9]{0,45})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?",
            "[-+.eE0-9]{0,10}",
        ],
    ) {
        let whole = number_end(text.as_bytes(), 0).filter(|(end, _)| *end == text.len());
        prop_assert_eq!(whole.is_some(), slow_number(&text), "{}", text);
        if let Some((_, kind)) = whole {
            prop_assert_eq!(kind == Kind::Integer, !text.contains(['.', 'e', 'E']));
        }
        let positive = positive(text.as_bytes(), 0).filter(|(_, end)| *end == text.len());
        let expected = text.parse::<i64>().ok().filter(|number| *number > 0 && number.to_string() == text && text.len() <= 18);
        prop_assert_eq!(positive.map(|(number, _)| number), expected);
    }
}

#[test]
fn an_object_of_scalars_is_a_cell() {
    for good in
        ["{\"a\":\"b\"}", "{\"location\":\"UTC\",\"value\":\"2026-01-02 00:00:00\"}", "{\"a\":null,\"\\u0041\":-1.5}"]
    {
        let text = format!("{good},");
        let (cell, next) = cell(text.as_bytes(), 0).unwrap();
        assert_eq!((cell.kind, cell.start, cell.end, next), (Kind::Object, 0, good.len(), good.len()), "{good}");
    }
    for bad in [
        "{}",
        "{",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1",
        "{\"a\":1,}",
        "{\"a\": 1}",
        "{a:1}",
        "{\"a\":{\"b\":1}}",
        "{\"a\":[1]}",
        "[1]",
    ] {
        assert!(cell(bad.as_bytes(), 0).is_none(), "{bad}");
    }
}
