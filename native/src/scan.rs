//! The scanner: messages of one table into columns, by a template.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::cells::{Buffers, Builder, Cast};
use crate::messages::Messages;
use crate::template::{
    BUILD_TS, COMMIT_TS, Columns, EVENT_TIME, Found, IMAGE, Members, NUMBERS, Operation, PREIMAGE, Step, Template,
    merge_constants,
};

/// Change types, as `events.CHANGE_TYPES` numbers them.
const CHANGE_INSERT: i8 = 0;
const CHANGE_PREIMAGE: i8 = 1;
const CHANGE_POSTIMAGE: i8 = 2;
const CHANGE_DELETE: i8 = 3;

const LOGICAL_BITS: u32 = 18;

/// Reads the messages of one version of one table into columns.
#[pyclass(module = "ticdc_source._native", frozen)]
pub struct Scanner {
    inner: std::sync::Mutex<Inner>,
}

struct Inner {
    template: Template,
    found: Found,
    /// The column of each builder, and the builder.
    builders: Vec<(usize, Builder)>,
    /// By operation, whether its rows are wanted.
    operations: [bool; 3],
    preimages: bool,
    /// The commit-ts that this scanner reads: the lower bound is excluded, the upper one included.
    commit_ts_range: (i64, i64),
    change_types: Vec<i8>,
    events: Vec<i32>,
}

impl Inner {
    /// Reads one message. Returns None if it does not fit; the columns may then hold a part of it: `truncate` them.
    #[inline]
    fn read(&mut self, event: i32, message: &[u8]) -> Option<(i64, i64)> {
        if !self.template.read(message, &mut self.found) {
            return None;
        }
        let found = &mut self.found;
        let mut commit_ts = found.numbers[COMMIT_TS];
        if commit_ts < 0 && found.numbers[EVENT_TIME] >= 0 {
            commit_ts = found.numbers[EVENT_TIME].checked_mul(1 << LOGICAL_BITS)?;
        }
        // Without either it stays -1, and the caller sets it.
        if commit_ts >= 0 && (commit_ts <= self.commit_ts_range.0 || commit_ts > self.commit_ts_range.1) {
            return None;
        }
        let times = (commit_ts, found.numbers[BUILD_TS]);
        if !self.operations[found.operation as usize] {
            return Some(times);
        }
        if found.has[PREIMAGE] && self.preimages {
            if self.template.columns.partial {
                let [old, new] = &mut found.cells;
                for (old, new) in old.iter_mut().zip(new) {
                    if old.kind == crate::json::Kind::Missing {
                        *old = *new;
                    }
                }
            }
            self.image(event, message, PREIMAGE, CHANGE_PREIMAGE)?;
        }
        let change_type = match self.found.operation {
            Operation::Insert => CHANGE_INSERT,
            Operation::Update => CHANGE_POSTIMAGE,
            Operation::Delete => CHANGE_DELETE,
        };
        self.image(event, message, IMAGE, change_type)?;
        Some(times)
    }

    #[inline]
    fn image(&mut self, event: i32, message: &[u8], which: usize, change_type: i8) -> Option<()> {
        let cells = &self.found.cells[which];
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

/// What a scan found. Each attribute but `columns` holds numbers in native byte order.
#[pyclass(module = "ticdc_source._native", frozen, get_all)]
pub struct Scanned {
    /// The indexes of the messages that fit, rising; int32.
    accepted: Py<PyBytes>,
    /// The indexes of those that do not; int32.
    declined: Py<PyBytes>,
    /// Of each accepted event, its commit-ts, and when it was encoded in ms; each -1 if unknown; int64.
    commit_ts: Py<PyBytes>,
    build_ts: Py<PyBytes>,
    /// Of each row image, its change type (int8) and the index of its message (int32).
    change_types: Py<PyBytes>,
    events: Py<PyBytes>,
    /// Of each cast, in order: (length, number of NULLs, validity, offsets, data); None for a buffer that an array lacks.
    columns: Py<PyList>,
}

#[pymethods]
impl Scanner {
    #[new]
    #[pyo3(signature = (steps, heads, tail, casts, *, partial, operations, preimages, commit_ts_range))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        steps: &Bound<'_, PyAny>,
        heads: Vec<Vec<Vec<u8>>>,
        tail: Vec<u8>,
        casts: Vec<(usize, Bound<'_, PyTuple>)>,
        partial: bool,
        operations: [bool; 3],
        preimages: bool,
        commit_ts_range: (i64, i64),
    ) -> PyResult<Scanner> {
        let template = Template { steps: steps_of(steps)?, columns: Columns { heads, tail, partial } };
        let builders = casts
            .into_iter()
            .map(|(column, cast)| Ok((column, Builder::new(cast_of(&cast)?))))
            .collect::<PyResult<_>>()?;
        let found = Found::new(template.columns.heads.len(), template.max_members());
        Ok(Scanner {
            inner: std::sync::Mutex::new(Inner {
                template,
                found,
                builders,
                operations,
                preimages,
                commit_ts_range,
                change_types: Vec::new(),
                events: Vec::new(),
            }),
        })
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
        for event in tried {
            let number = i32::try_from(event)?;
            let images = inner.events.len();
            let read = inner.read(number, messages.get(event)?);
            match read {
                Some((commit, build)) => {
                    accepted.push(number);
                    commit_ts.push(commit);
                    build_ts.push(build);
                }
                None => {
                    inner.truncate(images);
                    declined.push(number);
                }
            }
        }
        let columns = PyList::empty(py);
        for (_, builder) in &mut inner.builders {
            columns.append(to_python(py, builder.finish())?)?;
        }
        let scanned = Scanned {
            accepted: bytes(py, &accepted, i32::to_ne_bytes)?.unbind(),
            declined: bytes(py, &declined, i32::to_ne_bytes)?.unbind(),
            commit_ts: bytes(py, &commit_ts, i64::to_ne_bytes)?.unbind(),
            build_ts: bytes(py, &build_ts, i64::to_ne_bytes)?.unbind(),
            change_types: bytes(py, &inner.change_types, i8::to_ne_bytes)?.unbind(),
            events: bytes(py, &inner.events, i32::to_ne_bytes)?.unbind(),
            columns: columns.unbind(),
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

fn to_python(py: Python<'_>, column: Buffers) -> PyResult<Bound<'_, PyTuple>> {
    (
        column.length,
        column.nulls,
        column.validity.map(|validity| PyBytes::new(py, &validity)),
        column.offsets.map(|offsets| bytes(py, &offsets, i32::to_ne_bytes)).transpose()?,
        PyBytes::new(py, &column.data),
    )
        .into_pyobject(py)
}

/// Reads the steps of a template, which Python gives as tuples: the name of the step, and what it needs.
fn steps_of(steps: &Bound<'_, PyAny>) -> PyResult<Vec<Step>> {
    let steps = steps.try_iter()?.map(|step| step_of(&step?)).collect::<PyResult<_>>()?;
    Ok(merge_constants(steps))
}

fn step_of(step: &Bound<'_, PyAny>) -> PyResult<Step> {
    let name: String = step.get_item(0)?.extract()?;
    let given = |index: usize| step.get_item(index);
    let wrong = |what: &str| PyValueError::new_err(format!("{name}: {what}"));
    Ok(match name.as_str() {
        "const" => Step::Const(given(1)?.extract()?),
        "choice" => Step::Choice(given(1)?.extract()?),
        "number" => {
            let slot = given(1)?.extract()?;
            if slot >= NUMBERS {
                return Err(wrong("no such slot"));
            }
            Step::Number { slot, most: given(2)?.extract()? }
        }
        "members" => Step::Members(
            Members::new(given(1)?.extract()?)
                .ok_or_else(|| wrong("a member twice, or one that is not \"name\":\"text\""))?,
        ),
        "row" => {
            let which = given(1)?.extract()?;
            if which > IMAGE {
                return Err(wrong("no such row"));
            }
            Step::Row(which)
        }
        "operation" => {
            Step::SetOperation(Operation::of(given(1)?.extract()?).ok_or_else(|| wrong("no such operation"))?)
        }
        "branch" => Step::Branch(
            given(1)?
                .try_iter()?
                .map(|branch| {
                    let branch = branch?;
                    Ok((branch.get_item(0)?.extract()?, steps_of(&branch.get_item(1)?)?))
                })
                .collect::<PyResult<_>>()?,
        ),
        _ => return Err(wrong("no such step")),
    })
}

fn cast_of(cast: &Bound<'_, PyTuple>) -> PyResult<Cast> {
    let name: String = cast.get_item(0)?.extract()?;
    let given = |index: usize| cast.get_item(index);
    Ok(match name.as_str() {
        "json" => Cast::Json,
        "text" => Cast::Text,
        "latin1" => Cast::Latin1,
        "base64" => Cast::Base64,
        "base64 text" => Cast::Base64Text,
        "time" => Cast::Time,
        "integer" => Cast::Integer { text: given(1)?.extract()?, bytes: given(2)?.extract()? },
        "decimal" => Cast::Decimal {
            text: given(1)?.extract()?,
            limit: 10i128
                .checked_pow(given(2)?.extract()?)
                .ok_or_else(|| PyValueError::new_err("decimal: the precision exceeds 38"))?,
            scale: given(3)?.extract()?,
        },
        "float" => Cast::Float { text: given(1)?.extract()?, single: given(2)?.extract()? },
        "date" => Cast::Date { zero_is_null: given(1)?.extract()? },
        "datetime" => Cast::Datetime { zero_is_null: given(1)?.extract()? },
        "label" => Cast::Label { text: given(1)?.extract()?, labels: given(2)?.extract()? },
        "labels" => Cast::Labels { text: given(1)?.extract()?, labels: given(2)?.extract()? },
        "bits" => Cast::Bits { text: given(1)?.extract()? },
        "bit" => Cast::Bit { text: given(1)?.extract()? },
        _ => return Err(PyValueError::new_err(format!("{name}: no such cast"))),
    })
}
