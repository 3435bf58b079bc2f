//! Messages as Python gives them: a list of bytes, or where they lie in larger bytes.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Some messages.
pub enum Messages<'py> {
    Listed(Vec<Bound<'py, PyBytes>>),
    /// The bytes, and of each message the index of its first byte and of the byte behind it, as two int32.
    Spans {
        data: Bound<'py, PyBytes>,
        bounds: Bound<'py, PyBytes>,
    },
}

impl Messages<'_> {
    pub fn len(&self) -> usize {
        match self {
            Messages::Listed(list) => list.len(),
            Messages::Spans { bounds, .. } => bounds.as_bytes().len() / 8,
        }
    }

    /// Returns where a message begins in the bytes that all lie in; None if there are none such.
    pub fn start(&self, index: usize) -> Option<usize> {
        match self {
            Messages::Listed(_) => None,
            Messages::Spans { bounds, .. } => usize::try_from(span(bounds.as_bytes(), index)?.0).ok(),
        }
    }

    /// Returns a message; an error if there is none with this index, or its bounds are not those of bytes.
    #[inline]
    pub fn get(&self, index: usize) -> PyResult<&[u8]> {
        let found = match self {
            Messages::Listed(list) => list.get(index).map(|message| message.as_bytes()),
            Messages::Spans { data, bounds } => span(bounds.as_bytes(), index)
                .and_then(|(start, end)| data.as_bytes().get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)),
        };
        found.ok_or_else(|| PyValueError::new_err(format!("there is no message {index}, or it lies beyond its bytes")))
    }
}

fn span(bounds: &[u8], index: usize) -> Option<(i32, i32)> {
    let bytes = bounds.get(index.checked_mul(8)?..index.checked_mul(8)?.checked_add(8)?)?;
    let (start, end) = bytes.split_at(4);
    Some((i32::from_ne_bytes(start.try_into().ok()?), i32::from_ne_bytes(end.try_into().ok()?)))
}

impl<'py> FromPyObject<'_, 'py> for Messages<'py> {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok((data, bounds)) = given.extract::<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>() {
            return Ok(Messages::Spans { data, bounds });
        }
        let messages =
            given.try_iter()?.map(|message| Ok(message?.cast_into::<PyBytes>()?)).collect::<PyResult<_>>()?;
        Ok(Messages::Listed(messages))
    }
}
