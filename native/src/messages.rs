//! Messages as Python gives them: a list of bytes, or where they lie in larger bytes.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::contract::PackedMessages;

/// Some messages.
#[derive(FromPyObject)]
pub enum Messages<'py> {
    Packed(PackedMessages<'py>),
    Listed(Vec<Bound<'py, PyBytes>>),
}

impl Messages<'_> {
    pub fn len(&self) -> usize {
        match self {
            Messages::Listed(list) => list.len(),
            Messages::Packed(packed) => packed.bounds.as_bytes().len() / 8,
        }
    }

    /// Returns where a message begins in the bytes that all lie in; None if there are none such.
    pub fn start(&self, index: usize) -> Option<usize> {
        match self {
            Messages::Listed(_) => None,
            Messages::Packed(packed) => usize::try_from(packed.span(index)?.0).ok(),
        }
    }

    /// Returns a message; an error if there is none with this index, or its bounds are not those of bytes.
    #[inline]
    pub fn get(&self, index: usize) -> PyResult<&[u8]> {
        let message = match self {
            Messages::Listed(list) => list.get(index).map(|message| message.as_bytes()),
            Messages::Packed(packed) => packed.span(index).and_then(|(start, end)| {
                packed.data.as_bytes().get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
            }),
        };
        message
            .ok_or_else(|| PyValueError::new_err(format!("there is no message {index}, or it lies beyond its bytes")))
    }
}

impl PackedMessages<'_> {
    fn span(&self, index: usize) -> Option<(i32, i32)> {
        let bytes = self.bounds.as_bytes().get(index.checked_mul(8)?..index.checked_mul(8)?.checked_add(8)?)?;
        let (start, end) = bytes.split_at(4);
        Some((i32::from_ne_bytes(start.try_into().ok()?), i32::from_ne_bytes(end.try_into().ok()?)))
    }
}
