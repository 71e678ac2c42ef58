//! Names between sources, steps, parts and sinks: what can be checked without any data.

use std::collections::BTreeMap;

use forebay_model::{Pipeline, codes};

use super::convert::Converter;
use super::node::{Data, Key, Mark, Node};

/// A name that a step or sink uses, and where.
struct Use<'a> {
    name: String,
    mark: Mark,
    path: String,
    by: &'a Key,
}

/// Looks at the tree rather than at `pipeline`, from which wrong parts are missing.
pub(super) fn check(converter: &mut Converter<'_>, root: &Node, pipeline: &Pipeline) {
    let entries = |key: &str| root.get(key).map(Node::entries).unwrap_or_default();
    let (sources, steps, sinks) = (entries("sources"), entries("steps"), entries("sinks"));
    for (key, _) in steps {
        if let Some((source, _)) = sources.iter().find(|(source, _)| source.text == key.text) {
            let message = format!("`{}` is the name of a source and of a step", key.text);
            let fault = converter.fault(codes::DUPLICATE, key.mark, &format!("steps.{}", key.text), message);
            converter.faults.push(fault.note(format!("the source is in line {}", source.mark.line)));
        }
    }
    let names: Vec<&str> = steps.iter().chain(sources).map(|(key, _)| key.text.as_str()).collect();
    let mut uses: Vec<Use<'_>> = Vec::new();
    for (key, node) in steps {
        uses.extend(inputs(converter, key, node));
    }
    let mut known: Vec<(&str, &str, Mark)> = Vec::new();
    for used in &uses {
        if sources.iter().any(|(source, _)| source.text == used.name) {
            continue;
        }
        if names.contains(&used.name.as_str()) {
            known.push((&used.by.text, &used.name, used.mark));
        } else {
            let message = format!("there is no step or source `{}`", used.name);
            converter.unknown(used.mark, &used.path, message, &used.name, &names);
        }
    }
    cycles(converter, steps, &known);
    optional(converter, root, steps, sinks, &uses);
    for (key, node) in sinks {
        let Some((name, from)) = node.get("from").and_then(|from| Some((from.text()?, from))) else { continue };
        if !names.contains(&name) {
            let path = format!("sinks.{}.from", key.text);
            converter.unknown(from.mark, &path, format!("there is no step or source `{name}`"), name, &names);
        }
    }
    for (path, from) in of_feed(root, "from") {
        if let Some(name) = from.text().filter(|name| !names.contains(name)) {
            converter.unknown(from.mark, &path, format!("there is no step or source `{name}`"), name, &names);
        }
    }
    parts(converter, root, pipeline, steps, sinks);
}

fn inputs<'a>(converter: &mut Converter<'_>, key: &'a Key, node: &Node) -> Vec<Use<'a>> {
    let path = format!("steps.{}", key.text);
    let mut uses = Vec::new();
    if let Some((name, from)) = node.get("from").and_then(|from| Some((from.text()?, from))) {
        uses.push(Use { name: name.to_owned(), mark: from.mark, path: format!("{path}.from"), by: key });
    }
    for (index, item) in node.get("union").map(Node::items).unwrap_or_default().iter().enumerate() {
        if let Some(name) = item.text() {
            uses.push(Use { name: name.into(), mark: item.mark, path: format!("{path}.union[{index}]"), by: key });
        }
    }
    if let Some((query, sql)) = node.get("sql").and_then(|sql| Some((sql.text()?, sql))) {
        let path = format!("{path}.sql");
        match converter.words.sql().tables(query) {
            Ok(tables) => {
                uses.extend(tables.into_iter().map(|name| Use { name, mark: sql.mark, path: path.clone(), by: key }));
            }
            Err(fault) => converter.faults.push(fault.at(Some(&sql.mark.location(converter.file, &path)))),
        }
    }
    uses
}

/// What is left out must not be missed: whatever reads an optional step is optional, and something is
/// written all the same.
fn optional(
    converter: &mut Converter<'_>,
    root: &Node,
    steps: &[(Key, Node)],
    sinks: &[(Key, Node)],
    uses: &[Use<'_>],
) {
    let is_optional = |node: &Node| matches!(node.get("optional").map(|node| &node.data), Some(Data::Bool(true)));
    let named =
        |entries: &[(Key, Node)], name: &str| entries.iter().any(|(key, node)| key.text == name && is_optional(node));
    let mut missed: Vec<(Mark, String, &str, String)> = Vec::new();
    for used in uses.iter().filter(|used| named(steps, &used.name) && !named(steps, &used.by.text)) {
        missed.push((used.mark, used.path.clone(), &used.by.text, used.name.clone()));
    }
    for (key, node) in steps.iter().filter(|(_, node)| !is_optional(node)) {
        for (index, item) in node.get("do").map(Node::items).unwrap_or_default().iter().enumerate() {
            // Steps that look at another step beside their own rows.
            let [(kind, config)] = item.entries() else { continue };
            let with = config.get("with").filter(|_| ["join", "as_of_join"].contains(&kind.text.as_str()));
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
            missed.push((from.mark, format!("sinks.{}.from", key.text), &key.text, name.to_owned()));
        }
    }
    for (mark, path, by, name) in missed {
        let message = format!("`{by}` reads `{name}`, which may be left out");
        let fault = converter.fault(codes::UNSUPPORTED, mark, &path, message);
        converter.faults.push(fault.hint(format!("make `{by}` optional too, or `{name}` not")));
    }
    if !sinks.is_empty() && sinks.iter().all(|(_, node)| is_optional(node)) {
        let mark = root.entry("sinks").map_or(Mark::START, |(key, _)| key.mark);
        let message = "every sink may be left out, so that nothing would be written".to_owned();
        let fault = converter.fault(codes::UNSUPPORTED, mark, "sinks", message);
        converter.faults.push(fault.hint("let one of them not be optional"));
    }
    let ladder = root.get("deadline").and_then(|deadline| deadline.get("ladder"));
    let skips = ladder.and_then(|ladder| ladder.items().iter().find(|item| item.text() == Some("skip_optional")));
    if let Some(item) = skips
        && !steps.iter().chain(sinks).any(|(_, node)| is_optional(node))
    {
        let message = "nothing is optional, so that nothing can be skipped".to_owned();
        let fault = converter.fault(codes::UNSUPPORTED, item.mark, "deadline.ladder", message);
        converter.faults.push(fault.hint("mark steps or sinks with `optional: true`"));
    }
}

/// Reports every circle of steps once, at the use that closes it.
fn cycles(converter: &mut Converter<'_>, steps: &[(Key, Node)], uses: &[(&str, &str, Mark)]) {
    let mut state: BTreeMap<&str, bool> = BTreeMap::new();
    for (key, _) in steps {
        if state.contains_key(key.text.as_str()) {
            continue;
        }
        // Depth first without recursion: (step, its uses that are still to be followed).
        let follow = |name: &str| -> Vec<(&str, Mark)> {
            uses.iter().filter(|(by, ..)| *by == name).map(|(_, used, mark)| (*used, *mark)).collect()
        };
        let mut open = vec![(key.text.as_str(), follow(&key.text))];
        state.insert(&key.text, false);
        while let Some((name, ahead)) = open.last_mut() {
            let Some((next, mark)) = ahead.pop() else {
                state.insert(name, true);
                open.pop();
                continue;
            };
            let name = *name;
            match state.get(next) {
                Some(true) => {}
                Some(false) => {
                    let from = open.iter().position(|(known, _)| *known == next).unwrap_or_default();
                    let circle: Vec<&str> = open[from..].iter().map(|(name, _)| *name).chain([next]).collect();
                    let message = format!("steps depend on each other: {}", circle.join(" -> "));
                    let fault = converter.fault(codes::CYCLE, mark, &format!("steps.{name}"), message);
                    converter.faults.push(fault.hint("let one of them read a source"));
                }
                None => {
                    state.insert(next, false);
                    open.push((next, follow(next)));
                }
            }
        }
    }
}

/// Uses of the split's parts.
fn parts(
    converter: &mut Converter<'_>,
    root: &Node,
    pipeline: &Pipeline,
    steps: &[(Key, Node)],
    sinks: &[(Key, Node)],
) {
    let parts = pipeline.split.as_ref().map(|split| split.parts());
    if parts.is_none() && root.get("split").is_some() {
        return;
    }
    for (list, field, entries) in [("steps", "fit_on", steps), ("sinks", "split", sinks)] {
        for (key, node) in entries {
            let Some((part, used)) = node.get(field).and_then(|used| Some((used.text()?, used))) else { continue };
            if !parts.as_ref().is_some_and(|parts| parts.contains(&part)) {
                let path = format!("{list}.{}.{field}", key.text);
                converter.unknown_part(used.mark, &path, part, parts.as_deref());
            }
        }
    }
    for (path, used) in of_feed(root, "split") {
        if let Some(part) = used.text().filter(|part| !parts.as_ref().is_some_and(|parts| parts.contains(part))) {
            converter.unknown_part(used.mark, &path, part, parts.as_deref());
        }
    }
}

/// A field of the feed and of each of the rows that it mixes, with its path.
fn of_feed<'a>(root: &'a Node, field: &str) -> Vec<(String, &'a Node)> {
    let Some(feed) = root.get("feed") else { return Vec::new() };
    let own = feed.get(field).map(|node| (format!("feed.{field}"), node));
    let mixed = feed.get("mix").map(Node::items).unwrap_or_default().iter().enumerate();
    let mixed = mixed.filter_map(|(at, item)| Some((format!("feed.mix[{at}].{field}"), item.get(field)?)));
    own.into_iter().chain(mixed).collect()
}
