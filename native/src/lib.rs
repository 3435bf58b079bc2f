//! The native path of `ticdc_source`: what is measured to be worth it, and nothing else.
//!
//! * `records`: where Kafka's records and their parts lie in the bytes of a fetch.
//! * `prefixes`, `frames`: the tables of messages; the events of open-protocol's records.
//! * `mysql`: where the rows of a result lie, and their cells.
//! * `json`, `avro`, `csv`, `matching`, `template`, `cells`, `scan`: row messages into columns.
//! * `contract`: what Python gives and gets.

#![forbid(unsafe_code)]

use pyo3::prelude::*;
use pyo3::types::IntoPyDict;

mod avro;
mod cells;
pub mod contract;
mod csv;
mod frames;
mod json;
mod matching;
mod messages;
mod mysql;
mod prefixes;
pub mod records;
mod scan;
mod template;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(records::walk_records, module)?)?;
    module.add_function(wrap_pyfunction!(records::cut_runs, module)?)?;
    module.add_function(wrap_pyfunction!(frames::split_frames, module)?)?;
    module.add_function(wrap_pyfunction!(mysql::cut_packets, module)?)?;
    module.add_class::<prefixes::Prefixes>()?;
    module.add_class::<scan::Scanner>()?;
    module.add_class::<contract::ColumnBuffers>()?;
    module.add_class::<contract::CutPackets>()?;
    module.add_class::<contract::CutRecords>()?;
    module.add_class::<contract::Framed>()?;
    module.add_class::<contract::Scanned>()?;
    module.add_class::<contract::Walked>()?;
    module.add("CONTRACT", contract::FILES.into_py_dict(module.py())?)
}
