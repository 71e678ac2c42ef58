//! Values of types of other libraries in their messages.

/// The text up to the first value of a type as Rust's `Debug` writes it: `Call(Call { name: ...` says nothing to users.
/// Empty if no words stand before it.
pub fn without_debug_text(text: &str) -> &str {
    for (brace, _) in text.match_indices(" { ") {
        let head = &text[..brace];
        if !ends_with_type(head) || !begins_with_field(&text[brace + 3..]) {
            continue;
        }
        let start = head.rfind(char::is_whitespace).unwrap_or(0);
        return head[..start].trim_end().trim_end_matches([':', ',']);
    }
    text
}

/// True for a text that ends with the name of a type.
fn ends_with_type(text: &str) -> bool {
    let stem = text.trim_end_matches(is_name_letter);
    text[stem.len()..].starts_with(|letter: char| letter.is_ascii_uppercase())
}

/// True for a text that begins with the name of a field.
fn begins_with_field(text: &str) -> bool {
    let remainder = text.trim_start_matches(is_name_letter);
    remainder.len() < text.len() && remainder.starts_with(": ")
}

fn is_name_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_types_are_cut() {
        let cases = [
            (
                "Physical plan does not support logical expression WindowFunction(WindowFunction { \
                 fun: AggregateUDF(AggregateUDF { inner: Sum } ) })",
                "Physical plan does not support logical expression",
            ),
            ("cannot plan: Column { relation: None }", "cannot plan"),
            ("Column { relation: None }", ""),
            ("expected { at line 1", "expected { at line 1"),
            ("a map { b: 1 }", "a map { b: 1 }"),
            ("Divide by zero", "Divide by zero"),
        ];
        for (text, expected) in cases {
            assert_eq!(without_debug_text(text), expected);
        }
    }
}
