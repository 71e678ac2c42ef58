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

/// Sequences that colour the program's own text.
const STYLES: [&str; 5] = ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[34m"];

/// Text of many lines for a terminal, as [`printable_lines`], with the styles of the program.
pub(crate) fn printable_screen(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut unread = text;
    while let Some(position) = unread.find('\x1b') {
        let (plain, sequence) = unread.split_at(position);
        out.push_str(&printable_lines(plain));
        let style = STYLES.iter().find(|style| sequence.starts_with(**style));
        let length = match style {
            Some(style) => {
                out.push_str(style);
                style.len()
            }
            None => {
                push_escaped(&mut out, '\x1b');
                1
            }
        };
        unread = &sequence[length..];
    }
    out.push_str(&printable_lines(unread));
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
    use anstyle::{AnsiColor, Style};

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

    #[test]
    fn styles_of_the_program_stay_and_others_are_escaped() {
        let title = AnsiColor::Blue.on_default().bold();
        let faint = Style::new().dimmed();
        let bad = AnsiColor::Red.on_default();
        let styled = format!("{title}a{title:#} {faint}b{faint:#}\n{bad}c{bad:#}");
        assert_eq!(printable_screen(&styled), styled);
        for (text, shown) in [
            ("a\x1b[2Jb", "a\\u{1b}[2Jb"),
            ("\x1b]0;title\x07", "\\u{1b}]0;title\\u{7}"),
            ("\x1b[8mhidden", "\\u{1b}[8mhidden"),
            ("a\u{202e}b\x1b", "a\\u{202e}b\\u{1b}"),
        ] {
            assert_eq!(printable_screen(text), shown);
        }
    }
}
