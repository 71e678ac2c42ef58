//! Present paths of the sources of an artifact's pipeline.

use std::collections::BTreeMap;

use forebay_model::{Pipeline, Result};

use super::usage;

/// Reads `NAME=PATH`, or only `PATH` where there is one source; all must be given.
pub(crate) fn source_locations(
    pipeline: &Pipeline,
    arguments: &[String],
) -> Result<BTreeMap<String, String>> {
    let names: Vec<&str> = pipeline
        .sources
        .iter()
        .map(|source| source.name.as_str())
        .collect();
    let mut locations = BTreeMap::new();
    for argument in arguments {
        let only = names.len() == 1;
        let (name, path) = match argument.split_once('=') {
            Some((name, path)) if !only || pipeline.source(name).is_some() => (name, path),
            _ if only => (names[0], argument.as_str()),
            _ => return Err(usage(format!("`--source {argument}` is not NAME=PATH"))),
        };
        if pipeline.source(name).is_none() {
            let fault = usage(format!("the pipeline has no source `{name}`"));
            return Err(fault.hint(format!("it has: {}", names.join(", "))));
        }
        insert_once(&mut locations, "--source", name, path)
            .map_err(|fault| fault.hint("give one folder, file or pattern for a source"))?;
    }
    match names.iter().find(|name| !locations.contains_key(**name)) {
        Some(name) => Err(usage(format!("`--source {name}=PATH` is missing"))),
        None => Ok(locations),
    }
}

/// Inserts a value that an option names. Another value for the same name is refused, since only one would count.
pub(crate) fn insert_once(
    values: &mut BTreeMap<String, String>,
    option: &str,
    name: &str,
    value: &str,
) -> Result<()> {
    let earlier = values.insert(name.to_owned(), value.to_owned());
    match earlier {
        Some(earlier) if earlier != value => Err(usage(format!(
            "`{option}` names `{name}` twice: `{earlier}` and `{value}`"
        ))),
        _ => Ok(()),
    }
}
