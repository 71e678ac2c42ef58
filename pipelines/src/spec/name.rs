//! Names that users give: snake_case, so that they fit into SQL, paths and column names.

/// The pattern in the JSON Schema.
pub(crate) const NAME_PATTERN: &str = "^[a-z][a-z0-9_]{0,199}$";

/// Letters of a name at most: names become those of files.
const NAME_LETTERS_MAX: usize = 200;

/// True if a text matches [`NAME_PATTERN`].
pub(crate) fn is_name(text: &str) -> bool {
    text.len() <= NAME_LETTERS_MAX
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

/// The message for a text that is not a name.
pub(crate) fn name_complaint(text: &str) -> String {
    let letters = text.chars().count();
    if letters > NAME_LETTERS_MAX {
        let start: String = text.chars().take(40).collect();
        return format!(
            "the name `{start}...` has {letters} letters, and {NAME_LETTERS_MAX} are the most"
        );
    }
    format!("`{text}` is not a name: use lower-case letters, digits and `_`, a letter first")
}

/// Name made of the words, if they can be one.
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
