//! Hints for an item of `do:` that is a text, as a call in Python is.

use serde_json::Value;

use super::other_tools;

/// The hint for a text such as `standardize(price)`. `transforms` are the names and the schemas of all transforms.
pub(super) fn transform_text_hint(text: &str, transforms: &[(&str, &Value)]) -> Option<String> {
    let (word, arguments) = match text.split_once('(') {
        Some((word, after_name)) => (word.trim(), after_name.trim_end_matches(')')),
        None => (text.trim(), ""),
    };
    let called = transforms.iter().find(|(name, _)| *name == word);
    let Some((name, schema)) = called else {
        let names: Vec<&str> = transforms.iter().map(|(name, _)| *name).collect();
        return other_tools::transform_hint(text, &names);
    };
    let takes_columns = schema.pointer("/properties/columns").is_some();
    let columns = bare_columns(arguments);
    if takes_columns && !columns.is_empty() {
        return Some(format!("write `- {name}: {{ columns: [{columns}] }}`"));
    }
    Some(format!("write `- {name}: ...`"))
}

/// Names of columns without quotes and brackets, separated by `, `; empty where a part is none.
fn bare_columns(arguments: &str) -> String {
    let mut names = Vec::new();
    for part in arguments.split(',') {
        let name = part.trim_matches([' ', '\'', '"', '[', ']']);
        let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
        if name.is_empty() || !name.chars().all(is_name) {
            return String::new();
        }
        names.push(name);
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn calls_become_items() {
        let with_columns = json!({ "properties": { "columns": {} } });
        let text = json!({ "type": "string" });
        let transforms = [("standardize", &with_columns), ("filter", &text)];
        for (call, hint) in [
            (
                "standardize(price)",
                "write `- standardize: { columns: [price] }`",
            ),
            (
                "standardize([\"price\", 'qty'])",
                "write `- standardize: { columns: [price, qty] }`",
            ),
            ("standardize(columns=price)", "write `- standardize: ...`"),
            ("filter(qty > 0)", "write `- filter: ...`"),
        ] {
            let given = transform_text_hint(call, &transforms);
            assert_eq!(given.as_deref(), Some(hint), "{call}");
        }
        assert_eq!(transform_text_hint("nothing(price)", &transforms), None);
    }
}
