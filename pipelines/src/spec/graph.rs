//! Names between sources, steps, parts and sinks: what can be checked without any data.

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

/// Looks at the tree rather than at `pipeline`, from which wrong parts are missing.
pub(super) fn check_name_references(
    converter: &mut SpecConverter<'_>,
    root: &YamlNode,
    pipeline: &Pipeline,
) {
    let entries = |key: &str| root.get(key).map(YamlNode::entries).unwrap_or_default();
    let (sources, steps, sinks) = (entries("sources"), entries("steps"), entries("sinks"));
    for (key, _) in steps {
        if let Some((source, _)) = sources.iter().find(|(source, _)| source.text == key.text) {
            let message = format!("`{}` is the name of a source and of a step", key.text);
            let fault = converter.fault(
                codes::DUPLICATE,
                key.mark,
                &format!("steps.{}", key.text),
                message,
            );
            let at = source
                .mark
                .location(converter.file, &format!("sources.{}", source.text));
            converter
                .faults
                .push(fault.related("the source is here", Some(&at)));
        }
    }
    let names: Vec<&str> = steps
        .iter()
        .chain(sources)
        .map(|(key, _)| key.text.as_str())
        .collect();
    let mut uses: Vec<NameUse<'_>> = Vec::new();
    for (key, node) in steps {
        uses.extend(step_input_names(converter, key, node));
    }
    let mut known: Vec<(&str, &str, TextPosition)> = Vec::new();
    for used in &uses {
        if sources.iter().any(|(source, _)| source.text == used.name) {
            continue;
        }
        if names.contains(&used.name.as_str()) {
            known.push((&used.by.text, &used.name, used.mark));
        } else {
            let others: Vec<&str> = names
                .iter()
                .copied()
                .filter(|name| *name != used.by.text)
                .collect();
            report_unknown_input(converter, used.mark, &used.path, &used.name, &others);
        }
    }
    report_step_cycles(converter, steps, &known);
    check_optional_steps(converter, root, steps, sinks, &uses);
    for (key, node) in sinks {
        let Some((name, from)) = node.get("from").and_then(|from| Some((from.text()?, from)))
        else {
            continue;
        };
        if !names.contains(&name) {
            let path = format!("sinks.{}.from", key.text);
            report_unknown_input(converter, from.mark, &path, name, &names);
        }
    }
    for (path, from) in feed_field_nodes(root, "from") {
        if let Some(name) = from.text().filter(|name| !names.contains(name)) {
            report_unknown_input(converter, from.mark, &path, name, &names);
        }
    }
    check_split_parts(converter, root, pipeline, steps, sinks);
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

/// What is left out must not be missed: whatever reads an optional step is optional, and something is
/// written all the same.
fn check_optional_steps(
    converter: &mut SpecConverter<'_>,
    root: &YamlNode,
    steps: &[(YamlKey, YamlNode)],
    sinks: &[(YamlKey, YamlNode)],
    uses: &[NameUse<'_>],
) {
    let is_optional = |node: &YamlNode| {
        matches!(
            node.get("optional").map(|node| &node.data),
            Some(YamlData::Bool(true))
        )
    };
    let named = |entries: &[(YamlKey, YamlNode)], name: &str| {
        entries
            .iter()
            .any(|(key, node)| key.text == name && is_optional(node))
    };
    let mut missed: Vec<(TextPosition, String, &str, String)> = Vec::new();
    for used in uses
        .iter()
        .filter(|used| named(steps, &used.name) && !named(steps, &used.by.text))
    {
        missed.push((
            used.mark,
            used.path.clone(),
            &used.by.text,
            used.name.clone(),
        ));
    }
    for (key, node) in steps.iter().filter(|(_, node)| !is_optional(node)) {
        for (index, item) in node
            .get("do")
            .map(YamlNode::items)
            .unwrap_or_default()
            .iter()
            .enumerate()
        {
            // Steps that look at another step beside their own rows.
            let [(kind, config)] = item.entries() else {
                continue;
            };
            let with = config
                .get("with")
                .filter(|_| ["join", "as_of_join"].contains(&kind.text.as_str()));
            if let Some((name, with)) = with.and_then(|with| Some((with.text()?, with)))
                && named(steps, name)
            {
                let path = format!("steps.{}.do[{index}].{}.with", key.text, kind.text);
                missed.push((with.mark, path, &key.text, name.to_owned()));
            }
        }
    }
    for (key, node) in sinks.iter().filter(|(_, node)| !is_optional(node)) {
        if let Some((name, from)) = node.get("from").and_then(|from| Some((from.text()?, from)))
            && named(steps, name)
        {
            missed.push((
                from.mark,
                format!("sinks.{}.from", key.text),
                &key.text,
                name.to_owned(),
            ));
        }
    }
    for (mark, path, by, name) in missed {
        let message = format!("`{by}` reads `{name}`, which may be left out");
        let fault = converter.fault(codes::UNSUPPORTED, mark, &path, message);
        converter
            .faults
            .push(fault.hint(format!("make `{by}` optional too, or `{name}` not")));
    }
    if !sinks.is_empty() && sinks.iter().all(|(_, node)| is_optional(node)) {
        let mark = root
            .entry("sinks")
            .map_or(TextPosition::START, |(key, _)| key.mark);
        let message = "every sink may be left out, so that nothing would be written".to_owned();
        let fault = converter.fault(codes::UNSUPPORTED, mark, "sinks", message);
        converter
            .faults
            .push(fault.hint("let one of them not be optional"));
    }
    let ladder = root
        .get("deadline")
        .and_then(|deadline| deadline.get("ladder"));
    let skips = ladder.and_then(|ladder| {
        ladder
            .items()
            .iter()
            .find(|item| item.text() == Some("skip_optional"))
    });
    if let Some(item) = skips
        && !steps.iter().chain(sinks).any(|(_, node)| is_optional(node))
    {
        let message = "nothing is optional, so that nothing can be skipped".to_owned();
        let fault = converter.fault(codes::UNSUPPORTED, item.mark, "deadline.ladder", message);
        converter
            .faults
            .push(fault.hint("mark steps or sinks with `optional: true`"));
    }
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

/// Uses of the split's parts.
fn check_split_parts(
    converter: &mut SpecConverter<'_>,
    root: &YamlNode,
    pipeline: &Pipeline,
    steps: &[(YamlKey, YamlNode)],
    sinks: &[(YamlKey, YamlNode)],
) {
    let parts = pipeline.split.as_ref().map(|split| split.parts());
    if parts.is_none() && root.get("split").is_some() {
        return;
    }
    for (list, field, entries) in [("steps", "fit_on", steps), ("sinks", "split", sinks)] {
        for (key, node) in entries {
            let Some((part, used)) = node.get(field).and_then(|used| Some((used.text()?, used)))
            else {
                continue;
            };
            // Whether the rows have rows of the future shows when they are bound.
            let is_future = list == "sinks" && part == FUTURE_PART;
            if !is_future && !parts.as_ref().is_some_and(|parts| parts.contains(&part)) {
                let path = format!("{list}.{}.{field}", key.text);
                converter.report_unknown_part(used.mark, &path, part, parts.as_deref());
            }
        }
    }
    for (path, used) in feed_field_nodes(root, "split") {
        if let Some(part) = used
            .text()
            .filter(|part| !parts.as_ref().is_some_and(|parts| parts.contains(part)))
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
    let own = feed.get(field).map(|node| (format!("feed.{field}"), node));
    let mixed = feed
        .get("mix")
        .map(YamlNode::items)
        .unwrap_or_default()
        .iter()
        .enumerate();
    let mixed =
        mixed.filter_map(|(at, item)| Some((format!("feed.mix[{at}].{field}"), item.get(field)?)));
    own.into_iter().chain(mixed).collect()
}
