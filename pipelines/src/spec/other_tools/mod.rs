//! Names of other tools, and the words of a spec for the same.
//!
//! The tables are those of the pages *Coming from*: a name, or several; an item of `do:`, other words of a spec or
//! *missing*; and a note. `check` answers with them where a spec has a name of another tool.

#[cfg(test)]
mod tests;

use forebay_model::nearest_word;

/// The pages of the tools, in the order in which a name is looked up.
const PAGES: [&str; 12] = [
    include_str!("../../../docs/coming-from/pandas.md"),
    include_str!("../../../docs/coming-from/scikit-learn.md"),
    include_str!("../../../docs/coming-from/category-encoders.md"),
    include_str!("../../../docs/coming-from/feature-engine.md"),
    include_str!("../../../docs/coming-from/spark.md"),
    include_str!("../../../docs/coming-from/tf-transform.md"),
    include_str!("../../../docs/coming-from/nvtabular.md"),
    include_str!("../../../docs/coming-from/mlforecast.md"),
    include_str!("../../../docs/coming-from/utilsforecast.md"),
    include_str!("../../../docs/coming-from/statsforecast.md"),
    include_str!("../../../docs/coming-from/dbt.md"),
    include_str!("../../../docs/coming-from/feast.md"),
];

/// The beginning of each page's title; the name of the tool follows.
const TITLE: &str = "# Coming from ";

/// A row of a table: the names of a tool for one thing.
#[derive(Debug, Clone)]
struct ForeignName {
    tool: &'static str,
    words: Vec<&'static str>,
    answer: ForeignAnswer,
    /// Differences in meaning; of what is missing, a reason or a way out.
    note: &'static str,
}

/// Words of a spec for a name.
#[derive(Debug, Clone, Copy)]
enum ForeignAnswer {
    /// An item of `do:`, in YAML.
    Step(&'static str),
    /// Another part of a spec, or a command.
    Elsewhere(&'static str),
    /// Forebay has nothing for it.
    Missing,
}

/// The rows of all pages.
fn all_names() -> impl Iterator<Item = ForeignName> {
    PAGES.into_iter().flat_map(|page| {
        let title = page.lines().next().unwrap_or_default();
        let tool = title.strip_prefix(TITLE).unwrap_or_default();
        let rows = page.lines().filter(|line| line.starts_with("| `"));
        rows.filter_map(move |line| row(tool, line))
    })
}

fn row(tool: &'static str, line: &'static str) -> Option<ForeignName> {
    let line = line.strip_prefix("| ")?.strip_suffix('|')?;
    let mut cells = line.splitn(3, " | ").map(str::trim);
    let names = cells.next()?;
    let text = cells.next()?;
    let note = cells.next().unwrap_or_default();
    let step = text
        .strip_prefix('`')
        .and_then(|text| text.strip_suffix('`'))
        .filter(|text| text.starts_with("- "));
    let answer = match step {
        Some(yaml) => ForeignAnswer::Step(yaml),
        None if text == "*missing*" => ForeignAnswer::Missing,
        None => ForeignAnswer::Elsewhere(text),
    };
    let words = names.split(", ").map(|word| word.trim_matches('`'));
    Some(ForeignName {
        tool,
        words: words.collect(),
        answer,
        note,
    })
}

impl ForeignName {
    /// True if one of the names is this one; see [`bare_name`].
    fn has_word(&self, bare: &str) -> bool {
        self.words.iter().any(|word| bare_name(word) == bare)
    }

    /// True if a word differs from the transform's name as typing errors do.
    fn is_nearly(&self, word: &str) -> bool {
        match self.answer {
            ForeignAnswer::Step(yaml) => {
                let transform = transform_of(yaml);
                word.eq_ignore_ascii_case(transform) || nearest_word(word, [transform]).is_some()
            }
            ForeignAnswer::Elsewhere(_) | ForeignAnswer::Missing => false,
        }
    }

    /// True if the answer is none of the transforms, or one of these.
    fn is_among(&self, transforms: &[&str]) -> bool {
        match self.answer {
            ForeignAnswer::Step(yaml) => transforms.contains(&transform_of(yaml)),
            ForeignAnswer::Elsewhere(_) | ForeignAnswer::Missing => true,
        }
    }
}

/// The transform of an item of `do:`.
fn transform_of(yaml: &str) -> &str {
    let item = yaml.trim_start_matches("- ");
    item.split(':').next().unwrap_or_default()
}

/// The letters and digits of a name in lower case, without the module before it and the call behind it:
/// `standardscaler` for `preprocessing.StandardScaler()`.
fn bare_name(word: &str) -> String {
    let name = word.split('(').next().unwrap_or_default();
    let name = name.rsplit('.').next().unwrap_or_default();
    name.chars()
        .filter(|letter| letter.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect()
}

/// The hint for a transform that is called as another tool calls it. `transforms` are those that the spec can name.
pub(super) fn transform_hint(word: &str, transforms: &[&str]) -> Option<String> {
    let name = find(word, transforms)?;
    // Of a name that is almost the transform's own, the difference says all.
    if name.is_nearly(word) {
        return None;
    }
    Some(hint(word, &name))
}

/// The name as a tool writes it, else in other letters or with another module before it.
fn find(word: &str, transforms: &[&str]) -> Option<ForeignName> {
    let bare = bare_name(word);
    if bare.is_empty() {
        return None;
    }
    let mut similar = None;
    for name in all_names().filter(|name| name.is_among(transforms)) {
        if name.words.contains(&word) {
            return Some(name);
        }
        if similar.is_none() && name.has_word(&bare) {
            similar = Some(name);
        }
    }
    similar
}

fn hint(word: &str, name: &ForeignName) -> String {
    let call = word.split('(').next().unwrap_or_default();
    let tool = name.tool;
    let mut text = match name.answer {
        ForeignAnswer::Step(yaml) => format!("`{call}` of {tool} is `{yaml}` here"),
        ForeignAnswer::Elsewhere(text) => format!("`{call}` of {tool}: {text}"),
        ForeignAnswer::Missing => {
            return format!(
                "no transform does what `{call}` of {tool} does: {}",
                name.note
            );
        }
    };
    if !name.note.is_empty() {
        text.push_str("; ");
        text.push_str(name.note);
    }
    text
}
