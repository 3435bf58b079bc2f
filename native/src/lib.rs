//! The native path of `ticdc_source`: what is measured to be worth it, and nothing else.
//!
//! * `json`, `template`, `cells`, `scan`: row messages into columns.

use pyo3::prelude::*;

mod cells;
mod json;
mod scan;
mod template;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<scan::Scanner>()?;
    module.add_class::<scan::Scanned>()?;
    Ok(())
}
