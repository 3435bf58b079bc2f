//! What fits a template is what the template writes, byte for byte.

use proptest::prelude::*;

use super::*;
use crate::contract::{Way, merge_constants};
use crate::json::Kind;
use crate::matching::{Members, equal};

/// What varies in the messages of one table.
#[derive(Clone, Debug)]
struct Message {
    operation: Operation,
    code: usize,
    time: i64,
    order: Vec<usize>,
    old: Option<Vec<Option<String>>>,
    new: Vec<String>,
}

const CODES: [&str; 3] = ["12", "2004", "1"];
const MOST: i64 = 1 << 45;

fn member(index: usize) -> String {
    format!("\"column{index}\":\"type {}\"", index % 3)
}

fn program(columns: usize, members: usize) -> Program {
    let is = [(Operation::Insert, "I"), (Operation::Update, "U"), (Operation::Delete, "D")];
    let bytes = |text: &str| text.as_bytes().to_vec();
    let constant = |text| Step::Const { content: bytes(text) };
    let way = |begin, steps| Way { begin: bytes(begin), steps: Steps(steps) };
    let steps = vec![
        constant("{\"op\":\""),
        Step::Branch { ways: is.map(|(operation, name)| way(name, vec![Step::SetOperation { operation }])).into() },
        constant("\","),
        constant("\"code\":"),
        Step::Choice { choices: CODES.map(bytes).into() },
        constant(",\"ts\":"),
        Step::Number { slot: Slot::CommitTs, most: MOST },
        constant(",\"types\":{"),
        Step::Members { members: Members::new((0..members).map(|index| bytes(&member(index))).collect()).unwrap() },
        constant("},\"old\":"),
        Step::Branch {
            ways: vec![way("null", vec![]), way("{", vec![Step::Row { image: Image::Preimage }, constant("}")])],
        },
        constant(",\"new\":{"),
        Step::Row { image: Image::Main },
        constant("}}"),
    ];
    let heads = (0..columns).map(|index| bytes(&format!("\"{index}\":{{\"v\":"))).collect();
    Program { steps: Steps(merge_constants(steps)), heads, tail: bytes("}"), partial: true }
}

fn row<'a>(cells: impl Iterator<Item = Option<&'a str>>) -> String {
    let written = |(index, cell): (usize, Option<&str>)| cell.map(|cell| format!("\"{index}\":{{\"v\":{cell}}}"));
    cells.enumerate().filter_map(written).collect::<Vec<_>>().join(",")
}

fn write(message: &Message) -> String {
    let name = ["I", "U", "D"][message.operation as usize];
    let types = message.order.iter().map(|index| member(*index)).collect::<Vec<_>>().join(",");
    let old =
        message.old.as_ref().map_or("null".into(), |old| format!("{{{}}}", row(old.iter().map(Option::as_deref))));
    format!(
        "{{\"op\":\"{name}\",\"code\":{},\"ts\":{},\"types\":{{{types}}},\"old\":{old},\"new\":{{{}}}}}",
        CODES[message.code],
        message.time,
        row(message.new.iter().map(|cell| Some(cell.as_str()))),
    )
}

fn cells() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("null".to_string()),
        Just("true".to_string()),
        Just("false".to_string()),
        "-?(0|[1-9][0-9]{0,9})(\\.[0-9]{1,9})?([eE][+-]?[0-9]{1,2})?",
        "[ !#-\\[\\]-~\u{e9}\u{1f600}]{0,20}".prop_map(|text| format!("\"{text}\"")),
        "([a-c]|\\\\n|\\\\u00e9|\\\\\"|\\\\ud83d\\\\ude00){0,5}".prop_map(|text| format!("\"{text}\"")),
    ]
}

fn messages(columns: usize, members: usize) -> impl Strategy<Value = Message> {
    let order = Just((0..members).collect::<Vec<_>>()).prop_shuffle();
    let old = prop::option::of(prop::collection::vec(prop::option::of(cells()), columns));
    let of_row = prop::collection::vec(cells(), columns);
    (0..3usize, 0..CODES.len(), 1..=MOST, order, old, of_row).prop_map(|(operation, code, time, order, old, new)| {
        let operation = [Operation::Insert, Operation::Update, Operation::Delete][operation];
        let old = old.filter(|_| operation == Operation::Update);
        Message { operation, code, time, order, old, new }
    })
}

fn cases() -> impl Strategy<Value = (usize, usize, Message)> {
    (1usize..6, 0usize..12)
        .prop_flat_map(|(columns, members)| (Just(columns), Just(members), messages(columns, members)))
}

/// Returns the JSON of a cell; None if the row lacks it.
fn json_of(cell: &Cell, bytes: &[u8]) -> Option<String> {
    let quote = matches!(cell.kind, Kind::String | Kind::Escaped) as usize;
    let written = bytes.get(cell.start.wrapping_sub(quote)..cell.end + quote)?;
    (cell.kind != Kind::Missing).then(|| String::from_utf8(written.to_vec()).unwrap())
}

/// Writes a message again, of what was found in it; the members and the code are not kept.
fn written_again(contents: &Contents, bytes: &[u8], like: &Message) -> Message {
    let of_row = |image| contents.cells(image).iter().map(|cell| json_of(cell, bytes)).collect::<Vec<_>>();
    Message {
        operation: contents.operation,
        time: contents.number(Slot::CommitTs),
        old: contents.has(Image::Preimage).then(|| of_row(Image::Preimage)),
        new: of_row(Image::Main).into_iter().map(Option::unwrap).collect(),
        ..like.clone()
    }
}

proptest! {
    #[test]
    fn a_message_of_a_template_fits_it((columns, members, message) in cases()) {
        let program = program(columns, members);
        let mut contents = Contents::new(columns, program.max_members());
        let bytes = write(&message).into_bytes();
        for _ in 0..2 {
            prop_assert!(program.read(&bytes, &mut contents));
            prop_assert_eq!(write(&written_again(&contents, &bytes, &message)).into_bytes(), bytes.clone());
        }
    }

    #[test]
    fn a_changed_byte_is_in_what_was_found_or_does_not_fit(
        (columns, members, message) in cases(),
        place: prop::sample::Index,
        byte in prop_oneof![any::<u8>(), prop::sample::select(&b"0123456789\"\\{}:,.eE-+nulatrsf "[..])],
        change in 0..3,
    ) {
        let program = program(columns, members);
        let mut contents = Contents::new(columns, program.max_members());
        let mut bytes = write(&message).into_bytes();
        let at = place.index(bytes.len());
        match change {
            0 => bytes[at] = byte,
            1 => bytes.insert(at, byte),
            _ => { bytes.remove(at); }
        }
        if program.read(&bytes, &mut contents) {
            let again = (0..CODES.len()).map(|code| Message { code, ..written_again(&contents, &bytes, &message) });
            let all: Vec<Vec<u8>> = again.map(|message| write(&message).into_bytes()).collect();
            prop_assert!(all.contains(&bytes), "{}", String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn members_fit_in_any_order_each_once(members in 1usize..40, filled in prop_oneof![Just(0usize), 0usize..70], shuffle in any::<u64>(), place: prop::sample::Index, other: prop::sample::Index) {
        // Of other lengths; some names begin and end alike, so that no window tells them apart.
        let name = |index: usize| format!("\"a column{}{index}{}\":\"int\"", "_".repeat(filled * (index % 3)), "_".repeat(filled / 2));
        let all: Vec<Vec<u8>> = (0..members).map(|index| name(index).into_bytes()).collect();
        let of = Members::new(all.clone()).unwrap();
        let mut order: Vec<usize> = (0..members).collect();
        order.sort_by_key(|index| (*index as u64 + 1).wrapping_mul(shuffle | 1));
        let mut marks = vec![0; members];
        let mut number = 0;
        let mut fits = |order: &[usize]| {
            number += 1;
            let written = order.iter().map(|index| all[*index].clone()).collect::<Vec<_>>().join(&b","[..]);
            of.match_at(&written, 0, number, &mut marks) == Some(written.len())
        };
        prop_assert!(fits(&order));
        let (one, two) = (place.index(members), other.index(members));
        let mut repeated = order.clone();
        repeated[one] = order[two];
        prop_assert_eq!(fits(&repeated), one == two);
        let mut fewer = order.clone();
        fewer.remove(one);
        prop_assert!(!fits(&fewer));
        let mut more = order.clone();
        more.insert(one, order[two]);
        prop_assert!(!fits(&more));
        prop_assert!(fits(&order));
        let mut changed = order.iter().map(|index| all[*index].clone()).collect::<Vec<_>>().join(&b","[..]);
        let at = place.index(changed.len());
        changed[at] ^= 1;
        prop_assert_eq!(of.match_at(&changed, 0, number + 1, &mut marks), None);
    }

    #[test]
    fn equal_members_are_no_members(members in 2usize..20, place: prop::sample::Index) {
        let mut all: Vec<Vec<u8>> = (0..members).map(|index| member(index).into_bytes()).collect();
        all.push(all[place.index(members)].clone());
        prop_assert!(Members::new(all).is_none());
    }

    #[test]
    fn no_bytes_make_a_template_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), (columns, members, message) in cases(), cut: prop::sample::Index) {
        let program = program(columns, members);
        let mut contents = Contents::new(columns, program.max_members());
        let written = write(&message).into_bytes();
        let mut spliced = written[..cut.index(written.len())].to_vec();
        prop_assert!(!program.read(&spliced, &mut contents));
        spliced.extend_from_slice(&bytes);
        program.read(&spliced, &mut contents);
        program.read(&bytes, &mut contents);
    }

    #[test]
    fn short_comparisons_are_those_of_the_library(one in prop::collection::vec(0u8..2, 0..80), place: prop::sample::Index, change: bool) {
        let mut other = one.clone();
        if change && !other.is_empty() {
            let at = place.index(other.len());
            other[at] ^= 1;
        }
        prop_assert_eq!(equal(&one, &other), one == other);
        prop_assert_eq!(match_at(&one, 0, &other), (one == other).then_some(one.len()));
        prop_assert_eq!(match_at(&one, usize::MAX, b"x"), None);
    }
}
