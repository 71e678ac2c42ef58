//! Where the sources of an artifact's pipeline are now.

use std::collections::BTreeMap;

use forebay_model::{Pipeline, Result};

use super::usage;

/// Reads `NAME=PATH`, or only `PATH` where there is one source; all must be given.
pub(crate) fn source_locations(
    pipeline: &Pipeline,
    given: &[String],
) -> Result<BTreeMap<String, String>> {
    let names: Vec<&str> = pipeline
        .sources
        .iter()
        .map(|source| source.name.as_str())
        .collect();
    let mut places = BTreeMap::new();
    for given in given {
        let only = names.len() == 1;
        let (name, path) = match given.split_once('=') {
            Some((name, path)) if !only || pipeline.source(name).is_some() => (name, path),
            _ if only => (names[0], given.as_str()),
            _ => return Err(usage(format!("`--source {given}` is not NAME=PATH"))),
        };
        if pipeline.source(name).is_none() {
            let fault = usage(format!("the pipeline has no source `{name}`"));
            return Err(fault.hint(format!("it has: {}", names.join(", "))));
        }
        places.insert(name.to_owned(), path.to_owned());
    }
    match names.iter().find(|name| !places.contains_key(**name)) {
        Some(name) => Err(usage(format!("`--source {name}=PATH` is missing"))),
        None => Ok(places),
    }
}
