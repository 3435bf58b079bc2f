//! The casts give what slow readings with the standard library give, and decline the rest.

use proptest::prelude::*;

use super::*;

/// Casts one cell.
fn cast(cast: Cast, kind: Kind, text: &[u8]) -> Option<Buffers> {
    let mut builder = Builder::new(cast);
    let mut message = vec![b'"'];
    message.extend_from_slice(text);
    message.push(b'"');
    builder.push(&message, &Cell { kind, start: 1, end: 1 + text.len() })?;
    Some(builder.finish())
}

fn data(given: Cast, kind: Kind, text: &str) -> Option<Vec<u8>> {
    cast(given, kind, text.as_bytes()).filter(|column| column.nulls == 0).map(|column| column.data)
}

fn kind_of(text: bool) -> Kind {
    if text { Kind::String } else { Kind::Integer }
}

/// Digits with what may stand among them, most of it well formed.
fn numeric() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => "-?(0|[1-9][0-9]{0,4})",
        4 => "-?[1-9][0-9]{15,20}",
        2 => "-?(922337203685477580[0-9]|1844674407370955161[0-9])",
        2 => "-?[0-9]{1,40}",
        4 => "-?[0-9]{1,30}\\.[0-9]{1,20}",
        2 => "-?[0-9]{1,4}\\.[0-9]{1,3}[eE][+-]?[0-9]{1,3}",
        2 => "[-+.eE0-9_ x]{0,12}",
    ]
}

/// An integer as JSON writes it; -0 is none.
fn whole(text: &str) -> Option<i128> {
    text.parse::<i128>().ok().filter(|number| number.to_string() == text)
}

fn is_json_number(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    digits(whole)
        && digits(fraction)
        && (whole == "0" || !whole.starts_with('0'))
        && digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))
        && exponent.trim_start_matches(['+', '-']).len() <= 2
        && text.len() <= 40
}

/// A decimal at a scale, as a multiple of its last place.
fn scaled(text: &str, precision: u32, scale: u32) -> Option<i128> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let all_digits = [whole, fraction].iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    if !all_digits || whole.is_empty() || unsigned.ends_with('.') || fraction.len() > scale as usize {
        return None;
    }
    let digits = format!("{whole}{fraction}{}", "0".repeat(scale as usize - fraction.len()));
    let significant = digits.trim_start_matches('0');
    if significant.len() > precision as usize {
        return None;
    }
    let number: i128 = if significant.is_empty() { 0 } else { significant.parse().ok()? };
    Some(if text.starts_with('-') { -number } else { number })
}

/// Days since 1970, counted; the inner None is a day that does not exist.
fn counted(text: &str) -> Option<Option<i32>> {
    let parts: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    if lengths != [4, 2, 2] || !parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit())) {
        return None;
    }
    let [year, month, day]: [i32; 3] = [parts[0].parse().ok()?, parts[1].parse().ok()?, parts[2].parse().ok()?];
    let leap = |year: i32| (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let months = |year| [31, 28 + leap(year) as i32, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let exists = year > 0 && (1..=12).contains(&month) && (1..=months(year)[month as usize - 1]).contains(&day);
    if !exists {
        return Some(None);
    }
    let before = |year: i32| (1970.min(year)..1970.max(year)).map(|each| 365 + leap(each) as i32).sum::<i32>();
    let of_years = if year < 1970 { -before(year) } else { before(year) };
    let of_months: i32 = months(year)[..month as usize - 1].iter().sum();
    Some(Some(of_years + of_months + day - 1))
}

/// Microseconds of `H:MM:SS.ffffff`, with so many digits of hours.
fn micros(text: &str, digits_of_hours: std::ops::RangeInclusive<usize>) -> Option<i64> {
    let (clock, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let parts: Vec<&str> = clock.split(':').collect();
    let all_digits = parts.iter().chain([&fraction]).all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    let lengths = parts.len() == 3 && digits_of_hours.contains(&parts[0].len()) && parts[1].len() + parts[2].len() == 4;
    if !all_digits || !lengths || parts[1].len() != 2 || !(1..=6).contains(&fraction.len()) {
        return None;
    }
    let [hours, minutes, seconds]: [i64; 3] = [parts[0].parse().ok()?, parts[1].parse().ok()?, parts[2].parse().ok()?];
    let fraction: i64 = format!("{fraction:0<6}").parse().ok()?;
    (minutes < 60 && seconds < 60).then_some(((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + fraction)
}

fn dates() -> impl Strategy<Value = String> {
    prop_oneof![
        5 => (0..=9999u32, 0..=13u32, 0..=32u32).prop_map(|(year, month, day)| format!("{year:04}-{month:02}-{day:02}")),
        1 => "[0-9]{3,5}-[0-9]{1,3}-[0-9]{1,3}",
        1 => "[-0-9 /T]{8,12}",
    ]
}

fn clocks() -> impl Strategy<Value = String> {
    prop_oneof![
        5 => "[0-2][0-9]:[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,7})?",
        2 => "-?[0-9]{1,4}:[0-6][0-9]:[0-6][0-9](\\.[0-9]{0,7})?",
        1 => "[-:.0-9 TZ]{5,12}",
    ]
}

const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Base64, written by hand.
fn armoured(bytes: &[u8]) -> String {
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0u32, |bits, &byte| bits << 8 | byte as u32) << (8 * (3 - group.len()));
        for index in 0..4 {
            let sextet = ALPHABET[(bits >> (18 - 6 * index) & 63) as usize] as char;
            text.push(if index <= group.len() { sextet } else { '=' });
        }
    }
    text
}

/// What is behind base64 that was written so; None if nothing is.
fn unarmoured(text: &str) -> Option<Vec<u8>> {
    let mut bits: Vec<u8> = Vec::new();
    for byte in text.trim_end_matches('=').bytes() {
        let sextet = ALPHABET.iter().position(|&each| each == byte)?;
        bits.extend((0..6).rev().map(|bit| (sextet >> bit & 1) as u8));
    }
    let octets =
        bits.chunks_exact(8).map(|octet| octet.iter().fold(0, |byte, &bit| byte << 1 | bit)).collect::<Vec<u8>>();
    (armoured(&octets) == text).then_some(octets)
}

fn all_casts() -> Vec<Cast> {
    let labels = || vec![b"a".to_vec(), b"b".to_vec()];
    let mut casts = vec![Cast::Json, Cast::Text, Cast::Latin1, Cast::Base64, Cast::Base64Text, Cast::Time];
    for flag in [false, true] {
        casts.extend([
            Cast::Date { zero_is_null: flag },
            Cast::Datetime { zero_is_null: flag },
            Cast::Zoned { begin: b"{\"a\":\"".to_vec(), zero_is_null: flag },
            Cast::Label { labels: labels(), text: flag },
            Cast::Labels { labels: labels(), text: flag },
            Cast::Bits { text: flag },
            Cast::Bit { text: flag },
            Cast::Decimal { text: flag, precision: Precision::of(38).unwrap(), scale: 30 },
            Cast::Decimal { text: flag, precision: Precision::of(2).unwrap(), scale: 0 },
            Cast::Float { single: true, text: flag },
            Cast::Float { single: false, text: flag },
        ]);
        casts.extend([1, 2, 4, 8].map(|bytes| Cast::Integer { bytes, text: flag }));
    }
    casts
}

proptest! {
    #[test]
    fn no_bytes_make_a_cast_panic(
        bytes in prop_oneof![prop::collection::vec(any::<u8>(), 0..48), "[-+0-9.:eE T=A-Za-z/\\\\u]{0,48}".prop_map(String::into_bytes)],
        start in 0usize..60,
        end in 0usize..60,
    ) {
        for kind in [Kind::Missing, Kind::Null, Kind::True, Kind::False, Kind::Integer, Kind::Float, Kind::String, Kind::Escaped] {
            for cast in all_casts() {
                let mut builder = Builder::new(cast);
                // Cells lie within their message, with a byte before and behind strings.
                let start = 1 + start.min(bytes.len());
                let end = start.max(1 + end.min(bytes.len()));
                let mut message = vec![b'"'];
                message.extend_from_slice(&bytes);
                message.push(b'"');
                if builder.push(&message, &Cell { kind, start, end }).is_none() {
                    builder.truncate(0);
                }
                builder.finish();
            }
        }
    }

    #[test]
    fn integers_are_those_of_the_library(text in numeric(), as_text: bool) {
        let kind = kind_of(as_text);
        let expected = whole(&text);
        let of = |bytes| data(Cast::Integer { bytes, text: as_text }, kind, &text);
        let i8_of = expected.and_then(|number| i8::try_from(number).ok());
        let i16_of = expected.and_then(|number| i16::try_from(number).ok());
        let i32_of = expected.and_then(|number| i32::try_from(number).ok());
        let i64_of = expected.and_then(|number| i64::try_from(number).ok());
        prop_assert_eq!(of(1), i8_of.map(|number| number.to_le_bytes().to_vec()));
        prop_assert_eq!(of(2), i16_of.map(|number| number.to_le_bytes().to_vec()));
        prop_assert_eq!(of(4), i32_of.map(|number| number.to_le_bytes().to_vec()));
        prop_assert_eq!(of(8), i64_of.map(|number| number.to_le_bytes().to_vec()));
        let u64_of = expected.and_then(|number| u64::try_from(number).ok());
        prop_assert_eq!(
            data(Cast::Bits { text: as_text }, kind, &text),
            u64_of.map(|number| number.to_le_bytes().to_vec())
        );
        // The other kinds of cell are none of these.
        prop_assert_eq!(data(Cast::Bits { text: as_text }, kind_of(!as_text), &text), None);
        prop_assert_eq!(data(Cast::Integer { bytes: 8, text: as_text }, Kind::Float, &text), None);
    }

    #[test]
    fn decimals_are_those_of_the_library(text in numeric(), precision in 1u32..=38, scale in 0u32..=38) {
        let scale = scale.min(precision);
        let of = |as_text| Cast::Decimal { text: as_text, precision: Precision::of(precision).unwrap(), scale };
        let expected = scaled(&text, precision, scale);
        let written = expected.map(|number| number.to_le_bytes().to_vec());
        prop_assert_eq!(data(of(true), Kind::String, &text), written.clone());
        // A JSON number keeps its digits, however many they are, with a fraction or without.
        if is_json_number(&text) {
            let kind = if whole(&text).is_some() { Kind::Integer } else { Kind::Float };
            prop_assert_eq!(data(of(false), kind, &text), written);
        }
        prop_assert_eq!(data(of(false), Kind::String, &text), None);
    }

    #[test]
    fn floats_are_those_of_the_library(text in numeric(), as_text: bool) {
        let is_number = is_json_number(&text);
        let as_text = as_text || !is_number; // a cell that is a JSON number is one
        let kind = if as_text { Kind::String } else if whole(&text).is_some() { Kind::Integer } else { Kind::Float };
        let loses_digits = || text.parse::<f64>().is_ok_and(|double| double.to_string() != text);
        let is_number = is_number && !(kind == Kind::Integer && text.len() > DOUBLE_DIGITS && loses_digits());
        let double = text.parse::<f64>().ok().filter(|number| is_number && number.is_finite());
        let single = if as_text { text.parse::<f32>().ok() } else { double.map(|number| number as f32) };
        let single = single.filter(|number| is_number && number.is_finite());
        prop_assert_eq!(
            data(Cast::Float { single: false, text: as_text }, kind, &text),
            double.map(|number| number.to_le_bytes().to_vec())
        );
        prop_assert_eq!(
            data(Cast::Float { single: true, text: as_text }, kind, &text),
            single.map(|number| number.to_le_bytes().to_vec())
        );
    }

    #[test]
    fn days_are_counted(text in dates(), zero_is_null: bool) {
        let column = cast(Cast::Date { zero_is_null }, Kind::String, text.as_bytes());
        match counted(&text) {
            Some(Some(days)) => prop_assert_eq!(column.map(|column| column.data), Some(days.to_le_bytes().to_vec())),
            Some(None) => prop_assert_eq!(column.map(|column| column.nulls), zero_is_null.then_some(1)),
            None => prop_assert!(column.is_none()),
        }
    }

    #[test]
    fn datetimes_are_days_and_microseconds(date in dates(), between in "[ T]", clock in clocks(), zero_is_null: bool) {
        let text = format!("{date}{between}{clock}");
        let column = cast(Cast::Datetime { zero_is_null }, Kind::String, text.as_bytes());
        let within = micros(&clock, 2..=2).filter(|micros| *micros < 86_400_000_000 && between == " ");
        match (counted(&date), within) {
            (Some(Some(days)), Some(within)) => {
                let expected = days as i64 * 86_400_000_000 + within;
                prop_assert_eq!(column.map(|column| column.data), Some(expected.to_le_bytes().to_vec()));
            }
            (Some(None), Some(_)) => prop_assert_eq!(column.map(|column| column.nulls), zero_is_null.then_some(1)),
            _ => prop_assert!(column.is_none()),
        }
        let begin = b"{\"location\":\"UTC\",\"value\":\"".to_vec();
        let zoned = |zone: &str, end: &str| {
            let object = format!("{{\"location\":\"{zone}\",\"value\":\"{text}\"{end}");
            cast(Cast::Zoned { begin: begin.clone(), zero_is_null }, Kind::Object, object.as_bytes())
        };
        let column = cast(Cast::Datetime { zero_is_null }, Kind::String, text.as_bytes());
        let same = zoned("UTC", "}").map(|column| (column.data, column.nulls));
        prop_assert_eq!(same, column.map(|column| (column.data, column.nulls)));
        let (other_zone, longer) = (zoned("UTC+1", "}"), zoned("UTC", ",\"a\":\"\"}"));
        prop_assert!(other_zone.is_none() && longer.is_none());
    }

    #[test]
    fn times_are_microseconds(text in clocks()) {
        let unsigned = micros(text.strip_prefix('-').unwrap_or(&text), 1..=3);
        let expected = unsigned.map(|micros| if text.starts_with('-') { -micros } else { micros });
        prop_assert_eq!(data(Cast::Time, Kind::String, &text), expected.map(|micros| micros.to_le_bytes().to_vec()));
    }

    #[test]
    fn base64_is_read_as_it_is_written(
        text in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..20).prop_map(|bytes| armoured(&bytes)),
            "[A-D+/=]{0,12}",
            "([A-Za-z0-9+/]{4}){0,3}[-_A-D=\\n ]{0,4}",
        ],
    ) {
        let expected = unarmoured(&text);
        prop_assert_eq!(data(Cast::Base64, Kind::String, &text), expected.clone());
        let text_of = expected.filter(|bytes| std::str::from_utf8(bytes).is_ok());
        prop_assert_eq!(data(Cast::Base64Text, Kind::String, &text), text_of);
        prop_assert_eq!(data(Cast::Base64, Kind::Escaped, &text), None);
    }

    #[test]
    fn latin1_is_a_byte_a_character(text in "[ -!#-\\[\\]-~\u{80}-\u{120}]{0,12}", bytes in prop::collection::vec(any::<u8>(), 0..12)) {
        let expected: Option<Vec<u8>> = text.chars().map(|character| u8::try_from(character as u32).ok()).collect();
        prop_assert_eq!(data(Cast::Latin1, Kind::String, &text), expected);
        let escaped: String = bytes.iter().map(|byte| format!("\\u{byte:04x}")).collect();
        prop_assert_eq!(data(Cast::Latin1, Kind::Escaped, &escaped), Some(bytes));
    }

    #[test]
    fn labels_are_those_of_an_index_and_of_a_mask(text in "(0|-?[1-9][0-9]{0,2}|0[0-9]|)", count in 0usize..9) {
        let labels: Vec<Vec<u8>> = (0..count).map(|index| vec![b'a' + index as u8; index]).collect();
        let number = whole(&text);
        let index = number.and_then(|number| usize::try_from(number).ok()).filter(|index| *index <= count);
        let label = index.map(|index| if index == 0 { Vec::new() } else { labels[index - 1].clone() });
        prop_assert_eq!(data(Cast::Label { labels: labels.clone(), text: true }, Kind::String, &text), label);
        let mask = number.and_then(|number| usize::try_from(number).ok()).filter(|mask| *mask < 1 << count);
        let chosen = mask.map(|mask| {
            let of_mask = (0..count).filter(|bit| mask >> bit & 1 == 1).map(|bit| labels[bit].clone());
            of_mask.collect::<Vec<_>>().join(&b","[..])
        });
        prop_assert_eq!(data(Cast::Labels { labels, text: false }, Kind::Integer, &text), chosen);
    }

    #[test]
    fn a_column_has_the_cells_that_were_not_declined(
        texts in prop::collection::vec(prop::option::of("(0|-?[1-9][0-9]{0,4}|x|)"), 0..40),
    ) {
        let (mut numbers, mut strings, mut json) = (
            Builder::new(Cast::Integer { bytes: 2, text: true }),
            Builder::new(Cast::Text),
            Builder::new(Cast::Json),
        );
        let mut kept: Vec<Option<i16>> = Vec::new();
        for text in &texts {
            let message = format!("\"{}\"", text.clone().unwrap_or_default());
            let kind = if text.is_some() { Kind::String } else { Kind::Null };
            let cell = Cell { kind, start: 1, end: message.len() - 1 };
            let pushed: Vec<_> =
                [&mut strings, &mut json, &mut numbers].map(|builder| builder.push(message.as_bytes(), &cell)).to_vec();
            if pushed.contains(&None) {
                for builder in [&mut strings, &mut json, &mut numbers] {
                    builder.truncate(kept.len());
                }
            } else {
                kept.push(text.as_ref().map(|text| text.parse().unwrap()));
            }
        }
        let (numbers, strings, json) = (numbers.finish(), strings.finish(), json.finish());
        let nulls = kept.iter().filter(|number| number.is_none()).count();
        for column in [&numbers, &strings] {
            prop_assert_eq!((column.length, column.nulls), (kept.len(), nulls));
            let valid = |row: usize| column.validity.as_ref().is_none_or(|bits| bits[row / 8] >> (row % 8) & 1 == 1);
            prop_assert!(kept.iter().enumerate().all(|(row, number)| valid(row) == number.is_some()));
        }
        let written: Vec<u8> = kept.iter().flat_map(|number| number.unwrap_or(0).to_le_bytes()).collect();
        prop_assert_eq!(numbers.data, written);
        let listed: Vec<String> = kept.iter().map(|each| each.map(|number| number.to_string()).unwrap_or_default()).collect();
        prop_assert_eq!(&strings.data, &listed.concat().into_bytes());
        let mut end = 0;
        let ends = listed.iter().map(|text| { end += text.len() as i32; end });
        prop_assert_eq!(strings.offsets, Some([0].into_iter().chain(ends).collect::<Vec<i32>>()));
        let quoted: Vec<String> = kept.iter().map(|each| each.map_or("null".into(), |number| format!("\"{number}\""))).collect();
        prop_assert_eq!(json.data, format!("[{}]", quoted.join(",")).into_bytes());
    }
}
