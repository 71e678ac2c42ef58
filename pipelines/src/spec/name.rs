//! Names that users give: snake_case, so that they fit into SQL, paths and column names.

/// The pattern in the JSON Schema.
pub(crate) const NAME_PATTERN: &str = "^[a-z][a-z0-9_]*$";

/// Whether a text matches [`NAME_PATTERN`].
pub(crate) fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_lowercase())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

/// The same words as a name, when there is one.
pub(crate) fn name_hint(text: &str) -> Option<String> {
    let mut name = String::new();
    let mut lower = false;
    for letter in text.chars() {
        if letter.is_ascii_alphanumeric() {
            if letter.is_ascii_uppercase() && lower && !name.ends_with('_') {
                name.push('_');
            }
            lower = letter.is_ascii_lowercase();
            name.push(letter.to_ascii_lowercase());
        } else if !name.ends_with('_') && !name.is_empty() {
            name.push('_');
            lower = false;
        }
    }
    let name = name.trim_matches('_');
    is_name(name).then(|| format!("write `{name}`"))
}
