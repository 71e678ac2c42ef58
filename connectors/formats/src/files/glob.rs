//! Paths with `*`, `**` and `?`. In brackets, as in `[*]`, such a character stands for itself.

use forebay_contract::plain_path;

/// A path whose parts may hold wildcards, relative to the last folder without any.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Glob {
    parts: Vec<String>,
}

/// Relation of a relative path to a [`Glob`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GlobMatch {
    /// The pattern does not match.
    No,
    /// A folder above something that may match.
    Above,
    /// Named by the pattern.
    Named,
    /// Inside a folder that the pattern names.
    Inside,
}

/// Cuts a path into its fixed beginning and the pattern below it; no wildcard gives `None`.
pub(crate) fn split_pattern(path: &str) -> (String, Option<Glob>) {
    let scheme = path.find("://").map_or(0, |at| at + 3);
    let Some(wild) = first_wildcard(&path[scheme..]) else {
        return (plain_path(path).unwrap_or_else(|| path.to_owned()), None);
    };
    let cut = path[..scheme + wild]
        .rfind('/')
        .filter(|cut| *cut >= scheme);
    let (fixed, pattern) = match cut {
        Some(0) => ("/", &path[1..]),
        Some(cut) => (&path[..cut], &path[cut + 1..]),
        None => (".", path),
    };
    let mut parts: Vec<String> = pattern
        .split('/')
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect();
    // Two in a row say no more than one.
    parts.dedup_by(|second, earlier| second == "**" && earlier == "**");
    (
        plain_path(fixed).unwrap_or_else(|| fixed.to_owned()),
        Some(Glob { parts }),
    )
}

/// The character that an escape such as `[*]` at the beginning of a pattern stands for.
fn escaped_char(pattern: &[char]) -> Option<char> {
    match pattern {
        ['[', c @ ('*' | '?' | '['), ']', ..] => Some(*c),
        _ => None,
    }
}

/// Offset in bytes of the first wildcard that is not escaped.
fn first_wildcard(path: &str) -> Option<usize> {
    let bytes = path.as_bytes();
    let is_escaped =
        |at: usize| at > 0 && bytes[at - 1] == b'[' && bytes.get(at + 1) == Some(&b']');
    path.match_indices(['*', '?'])
        .map(|(at, _)| at)
        .find(|at| !is_escaped(*at))
}

/// Names that listings pass over unless a pattern names them: those that Hive and Spark hide. The folder of a partition
/// by a column such as `_day` is none.
pub(crate) fn is_hidden(name: &str) -> bool {
    name.starts_with('.') || (name.starts_with('_') && !name.contains('='))
}

impl Glob {
    /// Everything below the root.
    pub(crate) fn everything() -> Self {
        Glob { parts: Vec::new() }
    }

    /// Relation of a path below the root to the pattern.
    pub(crate) fn matches(&self, relative: &str) -> GlobMatch {
        let names: Vec<&str> = relative.split('/').collect();
        matches(&self.parts, &names)
    }
}

/// Follows all positions in the pattern in parallel: patterns may be long, and `**` matches any
/// number of names.
fn matches(parts: &[String], names: &[&str]) -> GlobMatch {
    let mut best = GlobMatch::No;
    let mut positions = with_empty_wildcards(parts, vec![0]);
    for (at, name) in names.iter().enumerate() {
        let mut next = Vec::new();
        for position in positions {
            match parts.get(position) {
                None if names[at..].iter().any(|name| is_hidden(name)) => {}
                None => best = stronger_match(best, GlobMatch::Inside),
                Some(part) if part == "**" => next.extend((!is_hidden(name)).then_some(position)),
                Some(part) => next.extend(matches_name(part, name).then_some(position + 1)),
            }
        }
        positions = with_empty_wildcards(parts, next);
    }
    let ended = positions
        .into_iter()
        .map(|position| match &parts[position..] {
            [] => GlobMatch::Named,
            [part] if part == "**" => GlobMatch::Inside,
            _ => GlobMatch::Above,
        });
    ended.fold(best, stronger_match)
}

/// Adds the positions after each `**`, which may match no name unless it is the last part.
fn with_empty_wildcards(parts: &[String], mut positions: Vec<usize>) -> Vec<usize> {
    let mut at = 0;
    while let Some(position) = positions.get(at).copied() {
        if parts.get(position).is_some_and(|part| part == "**") && position + 1 < parts.len() {
            positions.push(position + 1);
        }
        at += 1;
    }
    positions.sort_unstable();
    positions.dedup();
    positions
}

fn matches_name(part: &str, name: &str) -> bool {
    if is_hidden(name) && !part.starts_with(['_', '.']) {
        part == name
    } else {
        matches_wildcards(part, name)
    }
}

fn stronger_match(a: GlobMatch, b: GlobMatch) -> GlobMatch {
    let rank = |of: GlobMatch| match of {
        GlobMatch::No => 0,
        GlobMatch::Above => 1,
        GlobMatch::Inside => 2,
        GlobMatch::Named => 3,
    };
    if rank(a) >= rank(b) { a } else { b }
}

/// True if one name matches one part with `*` and `?`.
fn matches_wildcards(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let mut p = 0;
    let mut n = 0;
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        let literal = escaped_char(&pattern[p..]);
        match pattern.get(p) {
            Some(_) if literal == Some(name[n]) => {
                p += 3;
                n += 1;
            }
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if literal.is_none() && (*c == '?' || *c == name[n]) => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    n = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fixed_part_is_cut_at_the_first_wildcard() {
        let cut = |path: &str| {
            let (root, glob) = split_pattern(path);
            (root, glob.map(|glob| glob.parts.join("/")))
        };
        assert_eq!(
            cut("data/*.parquet"),
            ("data".into(), Some("*.parquet".into()))
        );
        assert_eq!(cut("*.csv"), (".".into(), Some("*.csv".into())));
        assert_eq!(cut("/*/x"), ("/".into(), Some("*/x".into())));
        assert_eq!(
            cut("s3://b/a/day=*/p?.parquet"),
            ("s3://b/a".into(), Some("day=*/p?.parquet".into()))
        );
        assert_eq!(cut("data/a.parquet"), ("data/a.parquet".into(), None));
        assert_eq!(cut("what[?]/a[*]b[[].csv"), ("what?/a*b[.csv".into(), None));
        assert_eq!(
            cut("what[?]/[*]*.csv"),
            ("what?".into(), Some("[*]*.csv".into()))
        );
        assert_eq!(cut("a[1]/b[x].csv"), ("a[1]/b[x].csv".into(), None));
        for path in ["a/b.csv", "what?/*[*]", "[[]", "[", "**"] {
            assert_eq!(
                cut(&forebay_contract::literal_path(path)),
                (path.into(), None)
            );
        }
    }

    #[test]
    fn long_patterns_take_little_time_and_no_stack() {
        let (_, glob) = split_pattern(&format!("data/{}a.csv", "**/".repeat(20_000)));
        assert_eq!(glob.unwrap().matches("x/y/a.csv"), GlobMatch::Named);
        let (_, glob) = split_pattern(&format!("data/{}a.csv", "**/*/".repeat(20_000)));
        assert_eq!(glob.unwrap().matches(&"x/".repeat(100)), GlobMatch::Above);
    }

    #[test]
    fn patterns_match_names_and_everything_inside_named_folders() {
        let check = |pattern: &str, relative: &str, expected: GlobMatch| {
            let glob = Glob {
                parts: pattern.split('/').map(str::to_owned).collect(),
            };
            assert_eq!(glob.matches(relative), expected, "{pattern} on {relative}");
        };
        check("*.parquet", "a.parquet", GlobMatch::Named);
        check("*.parquet", "sub/a.parquet", GlobMatch::No);
        check("*.parquet", "_a.parquet", GlobMatch::No);
        check("_*.parquet", "_a.parquet", GlobMatch::Named);
        check("**/*.parquet", "a.parquet", GlobMatch::Named);
        check("**/*.parquet", "x/y/a.parquet", GlobMatch::Named);
        check("**/*.parquet", "x/_y/a.parquet", GlobMatch::No);
        check("**/*.parquet", "x/y", GlobMatch::Above);
        check("day=*", "day=1/a.parquet", GlobMatch::Inside);
        check("day=*", "day=1/_tmp/a.parquet", GlobMatch::No);
        check("day=*/p-?.parquet", "day=1", GlobMatch::Above);
        check("day=*/p-?.parquet", "day=1/p-7.parquet", GlobMatch::Named);
        check("day=*/p-?.parquet", "day=1/p-77.parquet", GlobMatch::No);
        check("**", "x/a", GlobMatch::Inside);
        check("**/x/**/a", "x/y/x/a", GlobMatch::Named);
        check("**/x/**/a", "y/x", GlobMatch::Above);
        check("a*b*c", "aXbYbc", GlobMatch::Named);
        check("[*]*[?].csv", "*x?.csv", GlobMatch::Named);
        check("[*]*[?].csv", "yx?.csv", GlobMatch::No);
        check("[*]*[?].csv", "*x!.csv", GlobMatch::No);
        check("*[[]1]", "a[1]", GlobMatch::Named);
        check("[ab]", "a", GlobMatch::No);
        check("[ab]", "[ab]", GlobMatch::Named);
    }
}
