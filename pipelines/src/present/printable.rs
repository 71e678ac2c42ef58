//! Text from data and specs, made harmless for a terminal.

/// Text of one line in which nothing moves the cursor, changes colours or turns the direction of writing. Tabs and line
/// ends become spaces, other such characters their escapes, such as `\u{1b}`.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\t' | '\n' => out.push(' '),
            letter => push_escaped(&mut out, letter),
        }
    }
    out
}

/// Text of many lines, as [`printable`], with its tabs and line ends.
pub(crate) fn printable_lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\t' | '\n' => out.push(letter),
            letter => push_escaped(&mut out, letter),
        }
    }
    out
}

fn push_escaped(out: &mut String, letter: char) {
    if letter.is_control() || is_direction_mark(letter) {
        out.extend(letter.escape_default());
    } else {
        out.push(letter);
    }
}

/// Marks of Unicode's bidirectional algorithm (UAX 9): a terminal that follows them shows text in another order.
fn is_direction_mark(letter: char) -> bool {
    matches!(
        letter,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_escaped() {
        let cases = [
            ("plain \u{e9} \u{4e2d}", "plain \u{e9} \u{4e2d}"),
            ("a\x1b[31mb", "a\\u{1b}[31mb"),
            ("a\u{9b}31mb", "a\\u{9b}31mb"),
            ("a\u{202e}b", "a\\u{202e}b"),
            ("a\u{2066}b\u{200f}", "a\\u{2066}b\\u{200f}"),
            ("a\r\x07\x7f", "a\\r\\u{7}\\u{7f}"),
            ("a\tb\nc", "a b c"),
        ];
        for (text, shown) in cases {
            assert_eq!(printable(text), shown);
        }
        assert_eq!(printable_lines("a\tb\n\x1bc"), "a\tb\n\\u{1b}c");
    }
}
