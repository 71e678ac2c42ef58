//! References between sources, steps, parts and sinks by name, which can be checked without data.

use forebay_model::{Pipeline, codes};
use forebay_plan::FUTURE_PART;

use super::convert::SpecConverter;
use super::node::{TextPosition, YamlData, YamlKey, YamlNode};
use crate::cycles::step_cycles;

/// A name that a step or sink uses, and where.
struct NameUse<'a> {
    name: String,
    mark: TextPosition,
    path: String,
    by: &'a YamlKey,
}

/// Checks the references in the tree rather than in `pipeline`, from which wrong parts are missing.
pub(super) fn check_name_references(
    converter: &mut SpecConverter<'_>,
    root: &YamlNode,
    pipeline: &Pipeline,
) {
    let sources = root.section("sources");
    let steps = root.section("steps");
    let sinks = root.section("sinks");
    check_names_of_steps(converter, sources, steps);
    let mut names: Vec<&str> = Vec::new();
    for (key, _) in steps.iter().chain(sources) {
        names.push(&key.text);
    }
    let mut uses: Vec<NameUse<'_>> = Vec::new();
    for (key, node) in steps {
        uses.extend(step_input_names(converter, key, node));
    }
    let mut step_uses: Vec<(&str, &str, TextPosition)> = Vec::new();
    for used in &uses {
        if sources.iter().any(|(source, _)| source.text == used.name) {
            continue;
        }
        if names.contains(&used.name.as_str()) {
            step_uses.push((&used.by.text, &used.name, used.mark));
            continue;
        }
        let mut others = names.clone();
        others.retain(|name| *name != used.by.text);
        report_unknown_input(converter, used.mark, &used.path, &used.name, &others);
    }
    report_step_cycles(converter, steps, &step_uses);
    check_optional_steps(converter, root, steps, sinks, &uses);
    for (key, node) in sinks {
        if let Some((name, from)) = text_field(node, "from")
            && !names.contains(&name)
        {
            let path = format!("sinks.{}.from", key.text);
            report_unknown_input(converter, from.mark, &path, name, &names);
        }
    }
    let serving = root.get("serving");
    if let Some((name, from)) = serving.and_then(|serving| text_field(serving, "from"))
        && !names.contains(&name)
    {
        report_unknown_input(converter, from.mark, "serving.from", name, &names);
    }
    for (path, from) in feed_field_nodes(root, "from") {
        if let Some(name) = from.text()
            && !names.contains(&name)
        {
            report_unknown_input(converter, from.mark, &path, name, &names);
        }
    }
    check_split_parts(converter, root, pipeline, steps, sinks);
}

/// Reports steps that have the name of a source.
fn check_names_of_steps(
    converter: &mut SpecConverter<'_>,
    sources: &[(YamlKey, YamlNode)],
    steps: &[(YamlKey, YamlNode)],
) {
    for (key, _) in steps {
        let name = &key.text;
        let Some((source, _)) = sources.iter().find(|(source, _)| source.text == *name) else {
            continue;
        };
        let message = format!("`{name}` is the name of a source and of a step");
        let path = format!("steps.{name}");
        let fault = converter.fault(codes::DUPLICATE, key.mark, &path, message);
        let source_path = format!("sources.{name}");
        let at = source.mark.location(converter.file, &source_path);
        converter
            .faults
            .push(fault.related("the source is here", Some(&at)));
    }
}

fn report_unknown_input(
    converter: &mut SpecConverter<'_>,
    mark: TextPosition,
    path: &str,
    name: &str,
    names: &[&str],
) {
    let message = format!("there is no step or source `{name}`");
    converter.report_unknown_name(mark, path, message, name, names);
}

fn step_input_names<'a>(
    converter: &mut SpecConverter<'_>,
    key: &'a YamlKey,
    node: &YamlNode,
) -> Vec<NameUse<'a>> {
    let path = format!("steps.{}", key.text);
    let mut uses = Vec::new();
    if let Some((name, from)) = node.get("from").and_then(|from| Some((from.text()?, from))) {
        uses.push(NameUse {
            name: name.to_owned(),
            mark: from.mark,
            path: format!("{path}.from"),
            by: key,
        });
    }
    for (index, item) in node
        .get("union")
        .map(YamlNode::items)
        .unwrap_or_default()
        .iter()
        .enumerate()
    {
        if let Some(name) = item.text() {
            uses.push(NameUse {
                name: name.into(),
                mark: item.mark,
                path: format!("{path}.union[{index}]"),
                by: key,
            });
        }
    }
    if let Some((query, sql)) = node.get("sql").and_then(|sql| Some((sql.text()?, sql))) {
        let path = format!("{path}.sql");
        match converter.words.sql().tables(query) {
            Ok(tables) => {
                uses.extend(tables.into_iter().map(|name| NameUse {
                    name,
                    mark: sql.mark,
                    path: path.clone(),
                    by: key,
                }));
            }
            Err(fault) => converter
                .faults
                .push(fault.at(Some(&sql.mark.location(converter.file, &path)))),
        }
    }
    uses
}

/// Checks that optional steps can be left out: each reader of an optional step is optional, and at
/// least one output is written without them.
fn check_optional_steps(
    converter: &mut SpecConverter<'_>,
    root: &YamlNode,
    steps: &[(YamlKey, YamlNode)],
    sinks: &[(YamlKey, YamlNode)],
    uses: &[NameUse<'_>],
) {
    let mut reads = reads_of_optional_inputs(steps, uses);
    reads.extend(reads_of_optional_joins(steps));
    reads.extend(reads_of_optional_sources(steps, sinks));
    for OptionalRead {
        mark,
        path,
        by,
        name,
    } in reads
    {
        let message = format!("`{by}` reads `{name}`, which may be left out");
        let fault = converter.fault(codes::UNSUPPORTED, mark, &path, message);
        converter
            .faults
            .push(fault.hint(format!("make `{by}` optional too, or `{name}` not")));
    }
    if !sinks.is_empty() && sinks.iter().all(|(_, node)| is_optional(node)) {
        let sinks_entry = root.entry("sinks");
        let mark = sinks_entry.map_or(TextPosition::START, |(key, _)| key.mark);
        let message = "every sink may be left out, so that nothing would be written".to_owned();
        let fault = converter.fault(codes::UNSUPPORTED, mark, "sinks", message);
        converter
            .faults
            .push(fault.hint("let one of them not be optional"));
    }
    let has_optional = steps.iter().chain(sinks).any(|(_, node)| is_optional(node));
    if let Some(rung) = skip_optional_rung(root)
        && !has_optional
    {
        let message = "nothing is optional, so that nothing can be skipped".to_owned();
        let fault = converter.fault(codes::UNSUPPORTED, rung.mark, "deadline.ladder", message);
        converter
            .faults
            .push(fault.hint("mark steps or sinks with `optional: true`"));
    }
}

/// A step or sink that is always there, and reads a step that may be left out.
struct OptionalRead<'a> {
    mark: TextPosition,
    path: String,
    by: &'a str,
    name: String,
}

fn is_optional(node: &YamlNode) -> bool {
    let optional = node.get("optional").map(|node| &node.data);
    matches!(optional, Some(YamlData::Bool(true)))
}

fn is_optional_step(steps: &[(YamlKey, YamlNode)], name: &str) -> bool {
    steps
        .iter()
        .any(|(key, node)| key.text == name && is_optional(node))
}

fn reads_of_optional_inputs<'a>(
    steps: &[(YamlKey, YamlNode)],
    uses: &[NameUse<'a>],
) -> Vec<OptionalRead<'a>> {
    let mut reads = Vec::new();
    for used in uses {
        if is_optional_step(steps, &used.name) && !is_optional_step(steps, &used.by.text) {
            reads.push(OptionalRead {
                mark: used.mark,
                path: used.path.clone(),
                by: &used.by.text,
                name: used.name.clone(),
            });
        }
    }
    reads
}

/// Transforms that read another step in addition to the rows of their own.
fn reads_of_optional_joins(steps: &[(YamlKey, YamlNode)]) -> Vec<OptionalRead<'_>> {
    let mut reads = Vec::new();
    for (key, node) in steps {
        if is_optional(node) {
            continue;
        }
        let transforms = node.get("do").map(YamlNode::items).unwrap_or_default();
        for (index, item) in transforms.iter().enumerate() {
            let [(kind, config)] = item.entries() else {
                continue;
            };
            if !["join", "as_of_join"].contains(&kind.text.as_str()) {
                continue;
            }
            let Some((name, with)) = text_field(config, "with") else {
                continue;
            };
            if is_optional_step(steps, name) {
                reads.push(OptionalRead {
                    mark: with.mark,
                    path: format!("steps.{}.do[{index}].{}.with", key.text, kind.text),
                    by: &key.text,
                    name: name.to_owned(),
                });
            }
        }
    }
    reads
}

fn reads_of_optional_sources<'a>(
    steps: &[(YamlKey, YamlNode)],
    sinks: &'a [(YamlKey, YamlNode)],
) -> Vec<OptionalRead<'a>> {
    let mut reads = Vec::new();
    for (key, node) in sinks {
        if is_optional(node) {
            continue;
        }
        let Some((name, from)) = text_field(node, "from") else {
            continue;
        };
        if is_optional_step(steps, name) {
            reads.push(OptionalRead {
                mark: from.mark,
                path: format!("sinks.{}.from", key.text),
                by: &key.text,
                name: name.to_owned(),
            });
        }
    }
    reads
}

/// The entry of `deadline.ladder` that leaves optional steps out.
fn skip_optional_rung(root: &YamlNode) -> Option<&YamlNode> {
    let ladder = root.get("deadline")?.get("ladder")?;
    let mut rungs = ladder.items().iter();
    rungs.find(|rung| rung.text() == Some("skip_optional"))
}

/// The text of a field, and its node.
fn text_field<'n>(node: &'n YamlNode, field: &str) -> Option<(&'n str, &'n YamlNode)> {
    let value = node.get(field)?;
    Some((value.text()?, value))
}

/// Reports every circle of steps once, at the use that closes it.
fn report_step_cycles(
    converter: &mut SpecConverter<'_>,
    steps: &[(YamlKey, YamlNode)],
    uses: &[(&str, &str, TextPosition)],
) {
    let names: Vec<&str> = steps.iter().map(|(key, _)| key.text.as_str()).collect();
    let pairs: Vec<(&str, &str)> = uses.iter().map(|(by, used, _)| (*by, *used)).collect();
    for cycle in step_cycles(&names, &pairs) {
        let (by, _, mark) = uses[cycle.closed_by];
        let fault = converter.fault(codes::CYCLE, mark, &format!("steps.{by}"), cycle.message());
        converter
            .faults
            .push(fault.hint("let one of them read a source"));
    }
}

/// Checks that the parts which steps, sinks and feeds name are parts of the split.
fn check_split_parts(
    converter: &mut SpecConverter<'_>,
    root: &YamlNode,
    pipeline: &Pipeline,
    steps: &[(YamlKey, YamlNode)],
    sinks: &[(YamlKey, YamlNode)],
) {
    let parts = pipeline.split.as_ref().map(|split| split.parts());
    // A split that is wrong in itself has been reported.
    if parts.is_none() && root.get("split").is_some() {
        return;
    }
    let is_known = |part: &str| parts.as_ref().is_some_and(|parts| parts.contains(&part));
    for (list, field, entries) in [("steps", "fit_on", steps), ("sinks", "split", sinks)] {
        for (key, node) in entries {
            let Some((part, used)) = text_field(node, field) else {
                continue;
            };
            // Rows of the future are known when sources are bound.
            let is_future = list == "sinks" && part == FUTURE_PART;
            if !is_future && !is_known(part) {
                let path = format!("{list}.{}.{field}", key.text);
                converter.report_unknown_part(used.mark, &path, part, parts.as_deref());
            }
        }
    }
    for (path, used) in feed_field_nodes(root, "split") {
        if let Some(part) = used.text()
            && !is_known(part)
        {
            converter.report_unknown_part(used.mark, &path, part, parts.as_deref());
        }
    }
}

/// A field of the feed and of each of the rows that it mixes, with its path.
fn feed_field_nodes<'a>(root: &'a YamlNode, field: &str) -> Vec<(String, &'a YamlNode)> {
    let Some(feed) = root.get("feed") else {
        return Vec::new();
    };
    let field_source = feed.get(field).map(|node| (format!("feed.{field}"), node));
    let mixed = feed
        .get("mix")
        .map(YamlNode::items)
        .unwrap_or_default()
        .iter()
        .enumerate();
    let mixed =
        mixed.filter_map(|(at, item)| Some((format!("feed.mix[{at}].{field}"), item.get(field)?)));
    field_source.into_iter().chain(mixed).collect()
}
