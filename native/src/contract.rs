//! What Python and native code hand to one another: `ticdc_source/kernels/contract.py` has the same classes, with the
//! same names and attributes, and `_native.pyi` those that native code returns.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::matching::Members;

macro_rules! checked {
    ($path:literal) => {
        ($path, crc32(include_bytes!(concat!("../../", $path))))
    };
}
/// Of each file of the contract: its path in the project, and its checksum as it was when this was compiled.
pub const FILES: [(&str, u32); 3] = [
    checked!("native/src/contract.rs"),
    checked!("ticdc_source/kernels/contract.py"),
    checked!("ticdc_source/kernels/_native.pyi"),
];

/// Returns the checksum that Python's `zlib.crc32` returns.
const fn crc32(bytes: &[u8]) -> u32 {
    let (mut checksum, mut at) = (u32::MAX, 0);
    while at < bytes.len() {
        checksum = REMAINDERS[((checksum ^ bytes[at] as u32) & 0xFF) as usize] ^ (checksum >> 8);
        at += 1;
    }
    !checksum
}

const REMAINDERS: [u32; 256] = {
    let (mut remainders, mut byte) = ([0; 256], 0);
    while byte < 256 {
        let (mut remainder, mut bit) = (byte as u32, 0);
        while bit < 8 {
            remainder = (remainder >> 1) ^ (0xEDB8_8320 * (remainder & 1));
            bit += 1;
        }
        remainders[byte] = remainder;
        byte += 1;
    }
    remainders
};

/// An enum that is read from objects of Python: variants without fields are the members of a Python enum, the others
/// are classes with attributes of the same names.
macro_rules! from_python {
    (
        $(#[$about:meta])*
        pub enum $name:ident {
            $($enum:literal { $($(#[$about_member:meta])* $member:ident = $called_member:literal,)+ })?
            $($(#[$about_class:meta])* $class:ident = $called:literal { $($field:ident: $of:ty,)+ })*
        }
    ) => {
        $(#[$about])*
        #[derive(Debug)]
        pub enum $name {
            $($($(#[$about_member])* $member,)+)?
            $($(#[$about_class])* $class { $($field: $of,)+ },)*
        }

        impl<'py> FromPyObject<'_, 'py> for $name {
            type Error = PyErr;

            fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
                let class = given.get_type().name()?;
                match class.to_str()? {
                    $($enum => match given.getattr("name")?.extract::<String>()?.as_str() {
                        $($called_member => Ok($name::$member),)+
                        member => Err(PyValueError::new_err(format!("{class} has no member {member}"))),
                    },)?
                    $($called => Ok($name::$class { $($field: given.getattr(stringify!($field))?.extract()?,)+ }),)*
                    class => Err(PyTypeError::new_err(format!("{class} is no {}", stringify!($name)))),
                }
            }
        }
    };
}

/// Messages that lie in larger bytes.
#[derive(FromPyObject)]
pub struct PackedMessages<'py> {
    pub data: Bound<'py, PyBytes>,
    /// Of each message, the index of its first byte and of the byte behind it: two int32.
    pub bounds: Bound<'py, PyBytes>,
}

/// Records of one batch, one behind the other.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct RecordRun {
    /// The index of the first one's first byte.
    pub begin: usize,
    pub count: usize,
    /// The offset that theirs are relative to.
    pub offset: i64,
    /// The highest that one of them may have.
    pub highest_offset: i64,
    /// The time that theirs are relative to.
    pub timestamp: i64,
    /// The broker's own time, if that is what the topic keeps.
    pub append_time: Option<i64>,
}

from_python! {
    /// What a number in a message is.
    #[derive(Clone, Copy)]
    pub enum Slot {
        "Slot" {
            CommitTs = "COMMIT_TS",
            /// Of the transaction.
            StartTs = "START_TS",
            /// When the event was encoded, in ms.
            BuildTs = "BUILD_TS",
            /// When it happened, in ms.
            EventTime = "EVENT_TIME",
            Ignored = "IGNORED",
        }
    }
}

from_python! {
    /// What a row in a message is.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub enum Image {
        "Image" {
            /// The row before an update.
            Preimage = "PREIMAGE",
            /// The row after an insert or an update, or the deleted one.
            Main = "MAIN",
        }
    }
}

from_python! {
    /// What happened to a row.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub enum Operation {
        "Operation" {
            Insert = "INSERT",
            Update = "UPDATE",
            Delete = "DELETE",
        }
    }
}

from_python! {
    /// A primitive type of Avro.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub enum AvroType {
        "AvroType" {
            Boolean = "BOOLEAN",
            /// Also for `int`: they are written alike.
            Long = "LONG",
            Float = "FLOAT",
            Double = "DOUBLE",
            Bytes = "BYTES",
            String = "STRING",
        }
    }
}

/// A field of a row in Avro.
#[derive(Debug, FromPyObject)]
pub struct AvroField {
    pub avro_type: AvroType,
    /// Of a union of two, which of them is null; None if it is no union.
    pub null: Option<usize>,
}

/// How rows of CSV are written.
#[derive(Debug, FromPyObject)]
pub struct CSVDialect {
    pub delimiter: Vec<u8>,
    /// One byte, or none.
    pub quote: Vec<u8>,
    pub null: Vec<u8>,
    pub terminator: Vec<u8>,
}

from_python! {
    /// One step of a program.
    pub enum Step {
        /// These bytes.
        Const = "Const" { content: Vec<u8>, }
        /// One of these byte strings: the first that fits. There is no way back, so longer ones come first.
        Choice = "Choice" { choices: Vec<Vec<u8>>, }
        /// A positive integer of at most 18 digits and at most `most`, kept in a slot.
        Number = "Number" { slot: Slot, most: i64, }
        /// These members of an object (`"name":"text"`), each once, in any order. A path has this step once at most.
        Members = "Members" { members: Members, }
        /// A row.
        Row = "Row" { image: Image, }
        /// Forgets the row that was kept as this image; reads no bytes.
        Forget = "Forget" { image: Image, }
        /// A row in Avro.
        AvroRow = "AvroRow" { image: Image, fields: Vec<AvroField>, }
        /// An integer of Avro from 1 to `most`, kept in a slot.
        AvroNumber = "AvroNumber" { slot: Slot, most: i64, }
        /// Any value of this type.
        AvroSkip = "AvroSkip" { avro_type: AvroType, }
        /// A row of MySQL's text protocol; of each column, whether its bytes need not be UTF-8.
        TextRow = "TextRow" { image: Image, binary: Vec<bool>, }
        /// A row of CSV; of each column, whether its values stand in quotes.
        CSVRow = "CSVRow" { image: Image, quoted: Vec<bool>, dialect: CSVDialect, }
        /// Sets the operation; reads no bytes. Every path has this step.
        SetOperation = "SetOperation" { operation: Operation, }
        /// The first way whose bytes fit; there is no way back. The steps behind this one run whichever was taken.
        Branch = "Branch" { ways: Vec<Way>, }
    }
}

/// One way of a branch: the bytes that it begins with, and its steps.
#[derive(Debug, FromPyObject)]
pub struct Way {
    pub begin: Vec<u8>,
    pub steps: Steps,
}

/// Steps, with constants that follow one another merged.
#[derive(Debug)]
pub struct Steps(pub Vec<Step>);

impl<'py> FromPyObject<'_, 'py> for Steps {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(Steps(merge_constants(given.extract()?)))
    }
}

/// Merges constants that follow one another. A choice of one string is a constant.
pub fn merge_constants(steps: Vec<Step>) -> Vec<Step> {
    let mut merged: Vec<Step> = Vec::with_capacity(steps.len());
    for step in steps {
        let step = match step {
            Step::Choice { mut choices } if choices.len() == 1 => Step::Const { content: choices.swap_remove(0) },
            step => step,
        };
        match (merged.last_mut(), step) {
            (Some(Step::Const { content: before }), Step::Const { content }) => before.extend_from_slice(&content),
            (_, step) => merged.push(step),
        }
    }
    merged
}

impl<'py> FromPyObject<'_, 'py> for Members {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Members::new(given.extract()?)
            .ok_or_else(|| PyValueError::new_err("a member twice, or one that is not \"name\":\"text\""))
    }
}

/// What the messages of one version of a table have in common, as a short program over bytes.
#[derive(Debug, FromPyObject)]
pub struct Program {
    pub steps: Steps,
    /// Of each column of a row in JSON, the bytes before its cell.
    pub heads: Vec<Vec<u8>>,
    /// The bytes behind each cell.
    pub tail: Vec<u8>,
    /// Whether a preimage may lack columns, which then have the values of the main image.
    pub partial: bool,
}

from_python! {
    /// How a cell becomes a value.
    pub enum Cast {
        "PlainCast" {
            /// The JSON of each cell, one array of all: `[1,null,"x"]`.
            Json = "JSON",
            /// A text.
            Text = "TEXT",
            /// Bytes, each written as the character with its number (ISO-8859-1).
            Latin1 = "LATIN1",
            /// Bytes in base64.
            Base64 = "BASE64",
            /// A text in base64.
            Base64Text = "BASE64_TEXT",
            /// Microseconds, of MySQL's text.
            Time = "TIME",
            /// Bytes, as they are.
            Bytes = "BYTES",
        }
        /// A signed integer of so many bytes; of a number, or of digits in text.
        Integer = "IntegerCast" { text: bool, bytes: usize, }
        /// A decimal of 128 bits, from the same.
        Decimal = "DecimalCast" { text: bool, precision: Precision, scale: u32, }
        /// A decimal of 128 bits, from a big-endian integer to which so many zeros are added.
        Unscaled = "UnscaledCast" { precision: Precision, zeros: u32, }
        /// A number of 32 or 64 bits with a fraction, from the same.
        Float = "FloatCast" { text: bool, single: bool, }
        /// Days since 1970, of MySQL's text.
        Date = "DateCast" { zero_is_null: bool, }
        /// Microseconds since 1970, of MySQL's text.
        Datetime = "DatetimeCast" { zero_is_null: bool, }
        /// Microseconds since 1970, of MySQL's text in an object, which begins with these bytes and ends with `"}`.
        Zoned = "ZonedCast" { begin: Vec<u8>, zero_is_null: bool, }
        /// The label of an index, from 1, which is a JSON number or digits in text; index 0 is the empty text.
        Label = "LabelCast" { text: bool, labels: Vec<Vec<u8>>, }
        /// The labels of the bits of a mask, which is written in the same ways.
        Labels = "LabelsCast" { text: bool, labels: Vec<Vec<u8>>, }
        /// Up to 64 bits as a signed integer, written in the same ways, or as bytes of Avro.
        Bits = "BitsCast" { text: bool, }
        /// One bit, written in the same ways, or as bytes of Avro.
        Bit = "BitCast" { text: bool, }
    }
}

/// A number of digits, as the first number that has more.
#[derive(Clone, Copy, Debug)]
pub struct Precision(pub i128);

impl Precision {
    /// Returns None if 128 bits do not hold so many digits.
    pub fn of(digits: u32) -> Option<Precision> {
        10i128.checked_pow(digits).map(Precision)
    }
}

impl<'py> FromPyObject<'_, 'py> for Precision {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Precision::of(given.extract()?).ok_or_else(|| PyValueError::new_err("the precision exceeds 38"))
    }
}

/// A column that is wanted: its index among the columns of a row, and how its cells become values.
#[derive(FromPyObject)]
pub struct ColumnCast {
    pub column: usize,
    pub cast: Cast,
}

/// What is wanted of messages.
#[derive(FromPyObject)]
pub struct Wanted {
    pub columns: Vec<ColumnCast>,
    /// The rows of which operations.
    pub operations: Vec<Operation>,
    pub preimages: bool,
    /// Messages with this commit-ts or an earlier one do not fit, nor do those with a later one than `last`.
    pub after: i64,
    pub last: i64,
}

/// The numbers that images get for what they are.
#[derive(FromPyObject)]
pub struct ChangeTypes {
    pub insert: i8,
    pub preimage: i8,
    pub postimage: i8,
    pub delete: i8,
}

/// A column: the buffers of an Arrow array, None for one that it lacks.
#[pyclass(module = "ticdc_source.kernels._native", frozen, get_all)]
pub struct ColumnBuffers {
    pub length: usize,
    pub nulls: usize,
    pub validity: Option<Py<PyBytes>>,
    pub offsets: Option<Py<PyBytes>>,
    pub data: Py<PyBytes>,
}

/// What a scan has read. Bytes hold numbers in native byte order.
#[pyclass(module = "ticdc_source.kernels._native", frozen, get_all)]
pub struct Scanned {
    /// The indexes of the messages that fit, rising; int32.
    pub accepted: Py<PyBytes>,
    /// The indexes of the others; int32.
    pub declined: Py<PyBytes>,
    /// Of each accepted message, its commit-ts, and when it was encoded in ms; each -1 if it lacks it; int64.
    pub commit_ts: Py<PyBytes>,
    pub build_ts: Py<PyBytes>,
    /// Likewise; None if all lack it.
    pub start_ts: Option<Py<PyBytes>>,
    /// Of each image, its change type (int8) and the index of its message (int32).
    pub change_types: Py<PyBytes>,
    pub events: Py<PyBytes>,
    /// The columns that are wanted, in order.
    pub columns: Vec<Py<ColumnBuffers>>,
}

/// How far a walk over records came.
#[pyclass(module = "ticdc_source.kernels._native", frozen, get_all)]
#[derive(Debug, PartialEq, Eq)]
pub struct Walked {
    pub count: usize,
    /// The index of the next record's first byte.
    pub after: usize,
    /// How many bytes of the next record are missing at least; 0 if it is not cut off, or cannot be walked over.
    pub missing: usize,
}

/// The parts of records.
#[pyclass(module = "ticdc_source.kernels._native", frozen, get_all)]
pub struct CutRecords {
    /// The first offset, if each of the others is one more than that before it; else `offsets` has them.
    pub first_offset: Option<i64>,
    pub offsets: Py<PyList>,
    pub timestamps: Py<PyList>,
    pub keys: Py<PyList>,
    /// Of each value, the index of its first byte and of the byte behind it, as two int32; if some value is null,
    /// `values` has them.
    pub bounds: Option<Py<PyBytes>>,
    /// The number of bytes between all bounds.
    pub nbytes: i64,
    pub values: Py<PyList>,
    /// If they are wanted: of each record, names and values.
    pub headers: Option<Py<PyList>>,
}

/// Rows of MySQL's text protocol.
#[pyclass(module = "ticdc_source.kernels._native", frozen, get_all)]
pub struct CutPackets {
    /// Of each row, the index of its first byte and of the byte behind it: two int32.
    pub bounds: Py<PyBytes>,
    /// The index behind the last row.
    pub after: usize,
}

/// Records of open-protocol, split into events. Bytes hold numbers in native byte order.
#[pyclass(module = "ticdc_source.kernels._native", frozen, get_all)]
pub struct Framed {
    /// Of each event, its record and its index in it, and which of `ends_of_keys` its key frame has; int32.
    pub records: Py<PyBytes>,
    pub indexes: Py<PyBytes>,
    pub ends: Py<PyBytes>,
    /// Of each event; int64.
    pub commit_ts: Py<PyBytes>,
    /// Of each event, where its value frame lies in the bytes that all values lie in: two int32.
    pub bounds: Py<PyBytes>,
    /// The distinct ends of key frames, behind the commit-ts.
    pub ends_of_keys: Vec<Py<PyBytes>>,
    /// The records that are left to the caller.
    pub declined: Vec<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_zlib() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(crc32(b""), 0);
    }
}
