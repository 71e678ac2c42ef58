//! Paths in which a shell would replace something.

/// Hint for a path with `~` or a variable of the environment, which a shell would replace.
pub fn shell_path_hint(path: &str) -> Option<String> {
    if path == "~" || path.starts_with("~/") {
        let home = std::env::var("HOME").unwrap_or_else(|_| "/home/name".to_owned());
        let whole = path.replacen('~', &home, 1);
        return Some(format!(
            "`~` is the home directory in a shell alone: write `{whole}`"
        ));
    }
    let (_, reference) = path.split_once('$')?;
    let is_part = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '_';
    let name: String = reference
        .trim_start_matches('{')
        .chars()
        .take_while(is_part)
        .collect();
    if name.is_empty() {
        return None;
    }
    let parameter = name.to_ascii_lowercase();
    Some(format!(
        "variables of the environment are not read: declare \
         `params: {{ {parameter}: {{ type: path }} }}`, write \
         `${{{parameter}}}` in the path, and call with `--param {parameter}=\"${name}\"`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_a_shell_are_answered() {
        for (path, words) in [
            (
                "~/sales",
                "`~` is the home directory in a shell alone: write `/",
            ),
            ("$HOME/sales", "declare `params: { home: { type: path } }`"),
            ("data/${DAY}.csv", "`--param day=\"$DAY\"`"),
        ] {
            let hint = shell_path_hint(path).unwrap_or_default();
            assert!(hint.contains(words), "{path}: {hint}");
        }
        for path in ["data/~sales", "a$/b", "data/sales"] {
            assert_eq!(shell_path_hint(path), None, "{path}");
        }
    }
}
