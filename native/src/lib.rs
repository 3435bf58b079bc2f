//! The native path of `ticdc_source`: what is measured to be worth it, and nothing else.
//!
//! * `records`: where Kafka's records and their parts lie in the bytes of a fetch.
//! * `prefixes`, `frames`: the tables of messages; the events of open-protocol's records.
//! * `json`, `template`, `cells`, `scan`: row messages into columns.

#![forbid(unsafe_code)]

use pyo3::prelude::*;

mod cells;
mod frames;
mod json;
mod messages;
mod prefixes;
pub mod records;
mod scan;
mod template;

/// What Python may call. `ticdc_source/native.py` has the number that it was written for: raise both if a call changes.
const INTERFACE: u32 = 3;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(records::walk_records, module)?)?;
    module.add_function(wrap_pyfunction!(records::cut_runs, module)?)?;
    module.add_function(wrap_pyfunction!(frames::split_frames, module)?)?;
    module.add_class::<frames::Framed>()?;
    module.add("INTERFACE", INTERFACE)?;
    module.add_class::<prefixes::Prefixes>()?;
    module.add_class::<scan::Scanner>()?;
    module.add_class::<scan::Scanned>()?;
    Ok(())
}
