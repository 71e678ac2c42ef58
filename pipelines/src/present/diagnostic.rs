//! Faults as JSON, for editors, schedulers and CI.

use std::error::Error;

use forebay_model::{Fault, FaultSite, SpecLocation, without_debug_text};
use serde_json::{Value, json};

use crate::exit_codes::exit_code;

/// Severity of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    Error,
    Warning,
}

/// A fault and those reported with it, one by one.
pub(crate) fn all(fault: &Fault, severity: Severity) -> Vec<Value> {
    let others = fault.others().iter().flat_map(|other| all(other, severity));
    std::iter::once(one(fault, severity))
        .chain(others)
        .collect()
}

/// One fault, without those reported with it.
pub(crate) fn one(fault: &Fault, severity: Severity) -> Value {
    let site = fault.site();
    let step = step_of(site);
    let related = fault.related_places().iter();
    json!({
        "code": fault.code().name,
        "severity": match severity { Severity::Error => "error", Severity::Warning => "warning" },
        "domain": fault.code().domain.name(),
        "message": fault.message(),
        "hint": fault.hint_text(),
        "notes": fault.notes(),
        "because": fault.source().map(|cause| without_debug_text(&cause.to_string()).to_owned()),
        "location": site.spec.as_ref().map(location),
        "related": related
            .map(|place| json!({
                "message": place.message,
                "location": location(&place.at),
            }))
            .collect::<Vec<_>>(),
        "step": step,
        "file": site.file,
        "row_group": site.row_group,
        "rows": site.rows,
        "column": site.column,
        "pass": site.pass,
        "worker": site.worker,
        "exit_code": exit_code(fault),
    })
}

/// The step that a fault is about.
pub(crate) fn step_of(site: &FaultSite) -> Option<String> {
    site.step
        .clone()
        .or_else(|| site.spec.as_ref().and_then(|at| step_of_path(&at.path)))
}

/// A range of the spec: from 1, the end column is the first one after it.
fn location(at: &SpecLocation) -> Value {
    json!({
        "file": at.file,
        "line": at.line,
        "column": at.column,
        "end_line": at.line,
        "end_column": at.column + at.width,
        "path": at.path,
    })
}

/// `features.lag` for `steps.features.do[1].lag.columns[0]`.
fn step_of_path(path: &str) -> Option<String> {
    let mut parts = path.strip_prefix("steps.")?.split('.');
    let name = parts.next()?;
    match (parts.next(), parts.next()) {
        (Some(list), Some(kind)) if list.starts_with("do[") => Some(format!("{name}.{kind}")),
        _ => Some(name.to_owned()),
    }
}
