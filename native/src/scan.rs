//! The scanner: messages of one table into columns, by a template.

use std::sync::Mutex;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::cells::{Buffers, Builder};
use crate::contract::{ChangeTypes, ColumnBuffers, Image, Operation, Program, Scanned, Slot, Wanted};
use crate::messages::Messages;
use crate::template::Contents;

const LOGICAL_BITS: u32 = 18;

/// The times in a message; -1 for one that it lacks.
struct Times {
    commit_ts: i64,
    start_ts: i64,
    build_ts: i64,
}

/// Reads the messages of one version of one table into columns.
#[pyclass(module = "ticdc_source.kernels._native", frozen)]
pub struct Scanner {
    inner: Mutex<Inner>,
}

struct Inner {
    program: Program,
    contents: Contents,
    /// The column of each builder, and the builder.
    builders: Vec<(usize, Builder)>,
    /// By operation, whether its rows are wanted.
    operations: [bool; 3],
    preimages: bool,
    /// The commit-ts that this scanner reads: the first one is excluded, the last one included.
    after: i64,
    last: i64,
    numbers: ChangeTypes,
    change_types: Vec<i8>,
    events: Vec<i32>,
}

impl Inner {
    /// Reads one message. Returns None if it does not fit; the columns may then hold a part of it: `truncate` them.
    #[inline]
    fn read(&mut self, event: i32, message: &[u8]) -> Option<Times> {
        if !self.program.read(message, &mut self.contents) {
            return None;
        }
        let contents = &mut self.contents;
        let mut commit_ts = contents.number(Slot::CommitTs);
        if commit_ts < 0 && contents.number(Slot::EventTime) >= 0 {
            commit_ts = contents.number(Slot::EventTime).checked_mul(1 << LOGICAL_BITS)?;
        }
        // Without either it stays -1, and the caller sets it.
        if commit_ts >= 0 && (commit_ts <= self.after || commit_ts > self.last) {
            return None;
        }
        let (start_ts, build_ts) = (contents.number(Slot::StartTs), contents.number(Slot::BuildTs));
        let times = Times { commit_ts, start_ts, build_ts };
        let operation = contents.operation;
        if !self.operations[operation as usize] {
            return Some(times);
        }
        if contents.has(Image::Preimage) && self.preimages {
            if self.program.partial {
                contents.complete_preimage();
            }
            self.image(event, message, Image::Preimage, self.numbers.preimage)?;
        }
        let change_type = match operation {
            Operation::Insert => self.numbers.insert,
            Operation::Update => self.numbers.postimage,
            Operation::Delete => self.numbers.delete,
        };
        self.image(event, message, Image::Main, change_type)?;
        Some(times)
    }

    #[inline]
    fn image(&mut self, event: i32, message: &[u8], image: Image, change_type: i8) -> Option<()> {
        let cells = self.contents.cells(image);
        for (column, builder) in &mut self.builders {
            builder.push(message, cells.get(*column)?)?;
        }
        self.change_types.push(change_type);
        self.events.push(event);
        Some(())
    }

    fn truncate(&mut self, images: usize) {
        self.change_types.truncate(images);
        self.events.truncate(images);
        for (_, builder) in &mut self.builders {
            builder.truncate(images);
        }
    }
}

#[pymethods]
impl Scanner {
    #[new]
    fn new(program: Program, wanted: Wanted, change_types: ChangeTypes) -> Scanner {
        let mut operations = [false; 3];
        for operation in wanted.operations {
            operations[operation as usize] = true;
        }
        let inner = Inner {
            contents: Contents::new(program.columns(), program.max_members()),
            program,
            builders: wanted.columns.into_iter().map(|column| (column.column, Builder::new(column.cast))).collect(),
            operations,
            preimages: wanted.preimages,
            after: wanted.after,
            last: wanted.last,
            numbers: change_types,
            change_types: Vec::new(),
            events: Vec::new(),
        };
        Scanner { inner: Mutex::new(inner) }
    }

    /// Read the messages with some indexes, or all.
    #[pyo3(signature = (messages, selected=None))]
    fn scan(&self, py: Python<'_>, messages: Messages<'_>, selected: Option<Vec<u32>>) -> PyResult<Scanned> {
        let mut guard = self
            .inner
            .lock()
            .map_err(|_| PyValueError::new_err("the scanner cannot be used: an earlier scan has panicked"))?;
        let inner = &mut *guard;
        inner.truncate(0);
        let count = messages.len();
        let tried: &mut dyn Iterator<Item = usize> = match &selected {
            Some(selected) => &mut selected.iter().map(|&event| event as usize),
            None => &mut (0..count),
        };
        let rows = selected.as_ref().map_or(count, Vec::len);
        for (_, builder) in &mut inner.builders {
            builder.reserve(rows);
        }
        let (mut accepted, mut declined) = (Vec::<i32>::with_capacity(rows), Vec::<i32>::new());
        let (mut commit_ts, mut build_ts) = (Vec::<i64>::with_capacity(rows), Vec::<i64>::with_capacity(rows));
        let mut start_ts = Vec::<i64>::with_capacity(rows);
        for event in tried {
            let number = i32::try_from(event)?;
            let images = inner.events.len();
            let read = inner.read(number, messages.get(event)?);
            match read {
                Some(times) => {
                    accepted.push(number);
                    commit_ts.push(times.commit_ts);
                    start_ts.push(times.start_ts);
                    build_ts.push(times.build_ts);
                }
                None => {
                    inner.truncate(images);
                    declined.push(number);
                }
            }
        }
        let columns = inner.builders.iter_mut().map(|(_, builder)| {
            let buffers = builder.finish();
            let finished = column(py, &buffers);
            builder.reuse(buffers);
            finished
        });
        let scanned = Scanned {
            columns: columns.collect::<PyResult<_>>()?,
            accepted: bytes(py, &accepted, i32::to_ne_bytes)?.unbind(),
            declined: bytes(py, &declined, i32::to_ne_bytes)?.unbind(),
            commit_ts: bytes(py, &commit_ts, i64::to_ne_bytes)?.unbind(),
            build_ts: bytes(py, &build_ts, i64::to_ne_bytes)?.unbind(),
            start_ts: if start_ts.iter().any(|&start| start >= 0) {
                Some(bytes(py, &start_ts, i64::to_ne_bytes)?.unbind())
            } else {
                None
            },
            change_types: bytes(py, &inner.change_types, i8::to_ne_bytes)?.unbind(),
            events: bytes(py, &inner.events, i32::to_ne_bytes)?.unbind(),
        };
        inner.truncate(0);
        Ok(scanned)
    }
}

/// Returns numbers as the bytes that `write` makes of each.
pub fn bytes<'py, T: Copy, const N: usize>(
    py: Python<'py>,
    numbers: &[T],
    write: fn(T) -> [u8; N],
) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, numbers.len() * N, |written| {
        for (place, &number) in written.chunks_exact_mut(N).zip(numbers) {
            place.copy_from_slice(&write(number));
        }
        Ok(())
    })
}

fn column(py: Python<'_>, buffers: &Buffers) -> PyResult<Py<ColumnBuffers>> {
    let column = ColumnBuffers {
        length: buffers.length,
        nulls: buffers.nulls,
        validity: buffers.validity.as_ref().map(|validity| PyBytes::new(py, validity).unbind()),
        offsets: buffers
            .offsets
            .as_ref()
            .map(|offsets| bytes(py, offsets, i32::to_ne_bytes).map(Bound::unbind))
            .transpose()?,
        data: PyBytes::new(py, &buffers.data).unbind(),
    };
    Py::new(py, column)
}
