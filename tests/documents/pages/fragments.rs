//! Specs from fragments. A fragment is laid over a whole spec, as text:
//!
//! - a list is the `do` of the step `features`, and so is a field `do`;
//! - sources, steps and sinks are added by name, or replace those of that name;
//! - a format or a field of sources (`parquet`, `ready`) belongs to the first source;
//! - every other section replaces that of the spec.

/// Sections whose entries are laid over each other by name.
const SECTIONS_BY_NAME: [&str; 3] = ["sources", "steps", "sinks"];

/// Fields of a source.
const SOURCE_FIELDS: [&str; 3] = ["parquet", "csv", "ready"];

/// A key and the lines that belong to it, its own among them.
struct Entry {
    key: String,
    text: String,
}

/// A spec as the text of its sections.
struct Sections(Vec<Entry>);

/// A spec that holds a fragment.
pub fn laid_over(spec: &str, fragment: &str) -> String {
    let mut whole = Sections(entries(spec, 0));
    let (source, source_fields) = whole.first_source();
    if fragment.starts_with("- ") {
        whole.replace_in("steps", features(&source, fragment));
        return whole.text();
    }
    for section in entries(fragment, 0) {
        let key = section.key.as_str();
        if key == "do" {
            let list = section.text.split_once('\n').map_or("", |(_, list)| list);
            whole.replace_in("steps", features(&source, list));
        } else if SOURCE_FIELDS.contains(&key) {
            let is_format = key != "ready";
            let format = if is_format {
                ""
            } else {
                "    parquet: { path: data/sales }\n"
            };
            let text = format!("  {source}:\n{format}{source_fields}    {}", section.text);
            whole.replace_in(
                "sources",
                Entry {
                    key: source.clone(),
                    text,
                },
            );
        } else if SECTIONS_BY_NAME.contains(&key) && section.text.contains(":\n") {
            for entry in entries(&section.text, 2) {
                whole.replace_in(key, entry);
            }
        } else {
            whole.replace(section);
        }
    }
    whole.text()
}

/// The step `features` with a list of transforms.
fn features(source: &str, list: &str) -> Entry {
    let list: String = list
        .lines()
        .map(|line| format!("      {}\n", line))
        .collect();
    Entry {
        key: "features".to_owned(),
        text: format!("  features:\n    from: {source}\n    do:\n{list}"),
    }
}

/// The entries of a block mapping whose keys have so many spaces before them.
fn entries(text: &str, indent: usize) -> Vec<Entry> {
    let mut found: Vec<Entry> = Vec::new();
    for line in text.lines() {
        let spaces = line.len() - line.trim_start().len();
        let key = line.trim_start().split_once(':').map(|(key, _)| key);
        match key {
            Some(key) if spaces == indent && !key.starts_with(['#', '-']) => found.push(Entry {
                key: key.to_owned(),
                text: format!("{line}\n"),
            }),
            _ => {
                if let Some(last) = found.last_mut() {
                    last.text.push_str(line);
                    last.text.push('\n');
                }
            }
        }
    }
    found
}

impl Sections {
    /// The name of the first source, and the lines of its time and keys.
    fn first_source(&self) -> (String, String) {
        let sources = self.0.iter().find(|section| section.key == "sources");
        let sources = entries(&sources.unwrap().text, 2);
        let fields: String = entries(&sources[0].text, 4)
            .into_iter()
            .filter(|field| field.key != "parquet")
            .map(|field| field.text)
            .collect();
        (sources[0].key.clone(), fields)
    }

    fn replace(&mut self, section: Entry) {
        let same = self.0.iter_mut().find(|here| here.key == section.key);
        match same {
            Some(same) => *same = section,
            None => self.0.push(section),
        }
    }

    /// Replaces an entry of a section, or adds it.
    fn replace_in(&mut self, section: &str, entry: Entry) {
        let parent = self.0.iter_mut().find(|parent| parent.key == section);
        let parent = parent.unwrap_or_else(|| panic!("the spec has no `{section}`"));
        let mut children = entries(&parent.text, 2);
        match children.iter_mut().find(|child| child.key == entry.key) {
            Some(same) => *same = entry,
            None => children.push(entry),
        }
        let texts = children.into_iter().map(|entry| entry.text);
        parent.text = format!("{section}:\n{}", texts.collect::<String>());
    }

    fn text(&self) -> String {
        self.0.iter().map(|section| section.text.as_str()).collect()
    }
}

#[test]
fn fragments_become_whole_specs() {
    let spec = "version: 1\nname: a\nsources:\n  s:\n    parquet: { path: p }\n    time: t\nsteps:\n  features: { from: s }\n\
                sinks:\n  out: { from: features, csv: { path: o } }\n";
    let check = |fragment: &str, expected: &[&str]| {
        let whole = laid_over(spec, fragment);
        for part in expected {
            assert!(whole.contains(part), "`{part}` is missing in\n{whole}");
        }
    };
    check(
        "- drop: [x]\n",
        &["  features:\n    from: s\n    do:\n      - drop: [x]\nsinks:\n"],
    );
    check(
        "label: { column: x }\ndo:\n  - drop: [x]\n",
        &["label: { column: x }\n", "    do:\n        - drop: [x]\n"],
    );
    check(
        "sinks:\n  more: { from: s }\nname: b\n",
        &[
            "name: b\nsources:",
            "  out: { from",
            "  more: { from: s }\n",
        ],
    );
    check(
        "parquet: { path: q }\n",
        &["  s:\n    time: t\n    parquet: { path: q }\nsteps:"],
    );
}
