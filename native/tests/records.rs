//! Records as a producer writes them are found as they are; other bytes are declined or read within their bounds.

use _native::contract::RecordRun;
use _native::records::{Span, cut, walk};
use proptest::prelude::*;

type Bytes = Option<Vec<u8>>;

/// What a producer writes into a record.
#[derive(Clone, Debug)]
struct Written {
    time: i64,
    offset: i64,
    key: Bytes,
    value: Bytes,
    headers: Vec<(String, Bytes)>,
}

fn written() -> impl Strategy<Value = Written> {
    let bytes = || prop::option::of(prop::collection::vec(any::<u8>(), 0..200));
    let headers = prop::collection::vec((".{0,9}", bytes()), 0..3);
    (-(1i64 << 54)..1 << 54, bytes(), bytes(), headers).prop_map(|(time, key, value, headers)| Written {
        time,
        offset: 0,
        key,
        value,
        headers,
    })
}

/// Records of one batch: their offsets rise, with gaps where others were compacted away.
fn batch(most: usize) -> impl Strategy<Value = Vec<Written>> {
    prop::collection::vec((written(), 1i64..1 << 40), 1..most).prop_map(|records| {
        let mut next = -1;
        let with_offset = |(record, step): (Written, i64)| {
            next += step;
            Written { offset: next, ..record }
        };
        records.into_iter().map(with_offset).collect()
    })
}

fn varint(number: i64, into: &mut Vec<u8>) {
    let mut rest = ((number << 1) ^ (number >> 63)) as u64;
    while rest > 0x7f {
        into.push((rest as u8 & 0x7f) | 0x80);
        rest >>= 7;
    }
    into.push(rest as u8);
}

fn bytes(part: Option<&[u8]>, into: &mut Vec<u8>) {
    varint(part.map_or(-1, |part| part.len() as i64), into);
    into.extend_from_slice(part.unwrap_or_default());
}

fn encoded(records: &[Written]) -> Vec<u8> {
    let mut all = Vec::new();
    for record in records {
        let mut body = vec![0];
        varint(record.time, &mut body);
        varint(record.offset, &mut body);
        bytes(record.key.as_deref(), &mut body);
        bytes(record.value.as_deref(), &mut body);
        varint(record.headers.len() as i64, &mut body);
        for (name, value) in &record.headers {
            bytes(Some(name.as_bytes()), &mut body);
            bytes(value.as_deref(), &mut body);
        }
        varint(body.len() as i64, &mut all);
        all.extend(body);
    }
    all
}

fn run(count: usize) -> RecordRun {
    RecordRun { begin: 0, count, offset: 5, highest_offset: i64::MAX, timestamp: 1 << 40, append_time: None }
}

fn at<'a>(data: &'a [u8], span: &Option<Span>) -> Option<&'a [u8]> {
    span.map(|span| &data[span.begin as usize..span.end as usize])
}

proptest! {
    #[test]
    fn what_was_written_is_found(records in batch(20), wants_headers: bool) {
        let data = encoded(&records);
        let walked = walk(&data, 0, data.len(), records.len(), usize::MAX);
        prop_assert_eq!((walked.count, walked.after, walked.missing), (records.len(), data.len(), 0));
        let columns = cut(&data, &[run(records.len())], 4, wants_headers).unwrap();
        for (index, record) in records.iter().enumerate() {
            prop_assert_eq!(columns.offsets[index], 5 + record.offset);
            prop_assert_eq!(columns.timestamps[index], (1 << 40) + record.time);
            prop_assert_eq!(at(&data, &columns.keys[index]), record.key.as_deref());
            prop_assert_eq!(at(&data, &columns.values[index]), record.value.as_deref());
            if wants_headers {
                let headers = columns.headers[index].iter();
                let headers: Vec<_> = headers.map(|(name, value)| (at(&data, &Some(*name)), at(&data, value))).collect();
                let own = record.headers.iter();
                let own: Vec<_> = own.map(|(name, value)| (Some(name.as_bytes()), value.as_deref())).collect();
                prop_assert_eq!(headers, own);
            }
        }
    }

    #[test]
    fn what_is_cut_off_says_how_much_is_missing(records in batch(5), part in 0.0..1.0) {
        let data = encoded(&records);
        let end = (data.len() as f64 * part) as usize;
        let walked = walk(&data[..end], 0, end, records.len(), usize::MAX);
        prop_assert!(walked.count < records.len());
        prop_assert!(walked.missing > 0);
        let whole = walk(&data, walked.after, data.len(), 1, usize::MAX);
        prop_assert!(end + walked.missing <= whole.after);
    }

    #[test]
    fn no_more_is_taken_than_allowed(records in batch(20), most in 0usize..25, size in 0usize..3000) {
        let data = encoded(&records);
        let walked = walk(&data, 0, data.len(), most, size);
        prop_assert!(walked.count <= most && walked.after <= size);
        if walked.count < most.min(records.len()) {
            prop_assert!(walk(&data, walked.after, data.len(), 1, usize::MAX).after > size);
        }
    }

    #[test]
    fn other_bytes_are_declined_or_read_within_their_bounds(
        data in prop::collection::vec(any::<u8>(), 0..400),
        begin in 0usize..500,
        end in 0usize..500,
        count in prop_oneof![0usize..20, Just(usize::MAX)],
        offset: i64,
        highest_offset: i64,
        timestamp: i64,
        append_time: Option<i64>,
        wants_headers: bool,
    ) {
        let walked = walk(&data, begin, end, count, 300);
        prop_assert!(walked.count == 0 || walked.after <= data.len().min(end));
        let walked_over = RecordRun { begin, count: walked.count, offset, highest_offset, timestamp, append_time };
        let wild = RecordRun { count, ..walked_over };
        for runs in [&[walked_over][..], &[wild], &[walked_over, wild]] {
            if let Some(columns) = cut(&data, runs, -1, wants_headers) {
                let spans = columns.keys.iter().chain(&columns.values);
                prop_assert!(columns.offsets.windows(2).all(|pair| pair[0] < pair[1]));
                prop_assert!(spans.flatten().all(|span| span.begin <= span.end && span.end as usize <= data.len()));
            }
        }
    }

    #[test]
    fn a_record_that_lies_is_declined(
        records in batch(20),
        index: prop::sample::Index,
        lie in 0..4,
        step in 0i64..9,
        wants_headers: bool,
    ) {
        let mut records = records;
        let liar = index.index(records.len());
        let mut run = run(records.len());
        let mut previous = 4;
        match lie {
            0 if liar > 0 => records[liar].offset = records[liar - 1].offset - step,
            0 => previous = 5 + records[0].offset + step,
            1 => records[0].offset = -1 - step,
            2 => run.highest_offset = 4 + records[records.len() - 1].offset - step,
            _ => (),
        }
        let mut data = encoded(&records);
        if lie == 3 {
            let before = encoded(&records[..liar]).len();
            data[before] ^= 2; // a length by one too large, or too small
        }
        prop_assert!(cut(&data, &[run], previous, wants_headers).is_none());
    }

    #[test]
    fn a_changed_byte_keeps_the_parts_in_their_records(
        records in batch(8),
        index: prop::sample::Index,
        byte: u8,
        wants_headers: bool,
    ) {
        let mut data = encoded(&records);
        let changed = index.index(data.len());
        data[changed] = byte;
        let walked = walk(&data, 0, data.len(), records.len(), usize::MAX);
        if let Some(columns) = cut(&data, &[run(walked.count)], 4, wants_headers) {
            let mut least = 0;
            for span in columns.keys.iter().zip(&columns.values).flat_map(|(key, value)| [key, value]).flatten() {
                prop_assert!(least < span.begin && span.begin <= span.end);
                least = span.end;
            }
            prop_assert!((least as usize) < walked.after.max(1));
        }
    }
}
