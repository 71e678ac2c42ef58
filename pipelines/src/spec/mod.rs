//! Specs in YAML: parse, substitute, check, convert. No other module reads YAML.
//!
//! The text is parsed to a tree in which every value has its position (`node`); parameters are
//! substituted in its leaves (`params`); options of other tools are added (`compat`); it is checked
//! against the JSON Schema that editors use (`check`, `schema`); and its valid parts are converted
//! to the pipeline (`convert`), whose references by name are then checked (`graph`). All problems
//! of a file are reported at once.

mod check;
mod compat;
mod convert;
mod file;
mod format;
mod graph;
mod locate;
pub(crate) mod name;
mod node;
mod other_tools;
mod params;
mod schema;
mod synonyms;
mod tests_section;
mod transform_text;
mod wire;
mod words;
mod yaml_hints;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use forebay_model::{Fault, Pipeline, Result};
use serde_json::Value;

pub use file::read_text;
pub use format::format;
pub use locate::locate;
pub use words::{ConnectorFormat, SpecCatalog};

use crate::step_test::StepTest;
use check::SchemaChecker;
use convert::SpecConverter;
use node::YamlNode;
use params::ParamValues;

/// Content of a spec, with its problems.
///
/// ```
/// use std::collections::BTreeMap;
///
/// use forebay::Forebay;
/// use forebay::spec::parse_all;
///
/// let text = "version: 1\nname: demand\nsources: { demand: { parquet: { path: data } } }\nsink: {}\n";
/// let parsed = parse_all(text, "demand.yaml", &BTreeMap::new(), &Forebay::new().spec_catalog())?;
/// assert_eq!(parsed.pipeline.sources.len(), 1);
/// assert_eq!(parsed.faults[0].hint_text(), Some("did you mean `sinks`?"));
/// # Ok::<(), forebay::model::Fault>(())
/// ```
#[derive(Debug)]
pub struct ParsedSpec {
    /// The pipeline, without wrong sources, sinks and lists of steps.
    pub pipeline: Pipeline,
    /// Paths of single steps that are wrong. The pipeline contains them as they are written, for
    /// the checks of the others.
    pub unread: BTreeSet<String>,
    /// Tests of its steps, without wrong ones.
    pub tests: Vec<StepTest>,
    /// All problems, in the order of the text.
    pub faults: Vec<Fault>,
}

/// Reads a spec. `file` is its name in faults; `params` are the values from the command line.
///
/// ```
/// use std::collections::BTreeMap;
///
/// use forebay::{Forebay, spec};
///
/// let text = "version: 1\nname: demand\nparams: { data: { type: path } }\n\
///             sources: { demand: { parquet: { path: \"${data}/*.parquet\" } } }\n";
/// let params = BTreeMap::from([("data".to_owned(), "history".to_owned())]);
/// let pipeline = spec::parse(text, "demand.yaml", &params, &Forebay::new().spec_catalog())?;
/// assert_eq!(pipeline.sources[0].config["path"], "history/*.parquet");
/// # Ok::<(), forebay::model::Fault>(())
/// ```
pub fn parse(
    text: &str,
    file: &str,
    params: &BTreeMap<String, String>,
    words: &SpecCatalog<'_>,
) -> Result<Pipeline> {
    let parsed = parse_all(text, file, params, words)?;
    Fault::combine(parsed.faults).map_or(Ok(parsed.pipeline), Err)
}

/// Like [`parse`], but returns the readable part together with the problems.
pub fn parse_all(
    text: &str,
    file: &str,
    params: &BTreeMap<String, String>,
    words: &SpecCatalog<'_>,
) -> Result<ParsedSpec> {
    let mut faults = Vec::new();
    let mut root = node::load(text, file, &mut faults)?;
    let schema = words.schema_for_text(text);
    check::mend_sections(&mut root, schema.get("properties"), file, &mut faults);
    let params = ParamValues::new(file, &root, params, &mut faults);
    let sql = sql_paths(&root, &schema, text);
    params.substitute(&mut root, &sql, &mut faults);
    compat::add_options(&mut root);
    let mut checker = SchemaChecker::new(&schema, file);
    checker.check_document(&root);
    for expression in checker.sql.iter().filter(|sql| !sql.is_query) {
        if let Err(fault) = words.sql().parses(&expression.text) {
            checker
                .faults
                .push(fault.at(Some(&expression.mark.location(file, &expression.path))));
        }
    }
    let reported = checker
        .faults
        .iter()
        .filter_map(|fault| fault.site().spec.clone())
        .collect();
    faults.extend(checker.faults);
    let mut converter = SpecConverter {
        file,
        words,
        faults,
        reported,
        unread: BTreeSet::new(),
    };
    let pipeline = converter.document(&root);
    graph::check_name_references(&mut converter, &root, &pipeline);
    let tests = converter.tests(&root);
    let mut faults = converter.faults;
    let unread = converter.unread;
    faults.sort_by_key(|fault| fault.site().spec.as_ref().map(|at| (at.line, at.column)));
    Ok(ParsedSpec {
        pipeline,
        unread,
        tests,
        faults,
    })
}

/// The parameters of a spec that are days or moments, with their values.
///
/// ```
/// use std::collections::BTreeMap;
///
/// let text = "version: 1\nname: demand\nparams: { as_of: { type: date, default: 2016-05-22 } }\n\
///             sources: { demand: { parquet: { path: data } } }\n";
/// let dates = forebay::spec::date_params(text, "demand.yaml", &BTreeMap::new())?;
/// assert_eq!(dates["as_of"], "2016-05-22");
/// # Ok::<(), forebay::model::Fault>(())
/// ```
pub fn date_params(
    text: &str,
    file: &str,
    params: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>> {
    let mut faults = Vec::new();
    let root = node::load(text, file, &mut faults)?;
    let dates = ParamValues::new(file, &root, params, &mut faults).dates();
    Fault::combine(faults).map_or(Ok(dates), Err)
}

/// The places of SQL, as far as parameters can matter: values reach it in another way than other text.
fn sql_paths(root: &YamlNode, schema: &Value, text: &str) -> BTreeSet<String> {
    if !text.contains("${") {
        return BTreeSet::new();
    }
    // What is wrong is reported once parameters have their values.
    let mut checker = SchemaChecker::new(schema, "");
    checker.check_document(root);
    checker.sql.into_iter().map(|sql| sql.path).collect()
}

/// The JSON Schema (2020-12) of a spec, for editors.
///
/// ```
/// use forebay::{Forebay, spec};
///
/// let schema = spec::json_schema(&Forebay::new().spec_catalog());
/// assert_eq!(schema["properties"]["version"]["const"], 1);
/// ```
pub fn json_schema(words: &SpecCatalog<'_>) -> Value {
    words.schema().clone()
}
