//! Escapes of characters beyond the first 65,536.

use memchr::memchr_iter;

/// A pair of escapes: `\ud83d\ude00`.
const PAIR_BYTES: usize = 12;

/// Replaces pairs of escapes in a line by their characters: the decoder takes some of them for other characters, such as
/// U+20BB7 for U+10BB7.
pub(super) fn unescape_surrogates(text: &mut Vec<u8>, start: usize) {
    let line = &text[start..];
    // Most lines have no backslash.
    let mut escapes = memchr_iter(b'\\', line);
    if !escapes.any(|at| matches!(line.get(at + 1..at + 3), Some(b"ud" | b"uD"))) {
        return;
    }
    let mut plain = Vec::with_capacity(line.len());
    let mut at = 0;
    while at < line.len() {
        if line[at] != b'\\' {
            plain.push(line[at]);
            at += 1;
            continue;
        }
        if let Some(character) = escaped_pair(&line[at..]) {
            plain.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            at += PAIR_BYTES;
            continue;
        }
        // The byte behind a backslash begins no other escape.
        let end = line.len().min(at + 2);
        plain.extend_from_slice(&line[at..end]);
        at = end;
    }
    text.truncate(start);
    text.extend_from_slice(&plain);
}

/// The character of a pair of escapes that a text begins with.
fn escaped_pair(text: &[u8]) -> Option<char> {
    let high = escaped_unit(text)?;
    let low = escaped_unit(text.get(PAIR_BYTES / 2..)?)?;
    char::decode_utf16([high, low])
        .next()?
        .ok()
        .filter(|character| *character > '\u{ffff}')
}

fn escaped_unit(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_characters_and_all_else_stays() {
        for (text, expected) in [
            (r#"{"a":"\ud842\udfb7"}"#, "{\"a\":\"\u{20bb7}\"}"),
            (r#"{"\uDBFF\uDFFF":1}"#, "{\"\u{10ffff}\":1}"),
            (r#""\ud83d\ude00\u00e4""#, "\"\u{1f600}\\u00e4\""),
            (r#""\\ud842\udfb7""#, r#""\\ud842\udfb7""#),
            (r#""\ud842 \udfb7""#, r#""\ud842 \udfb7""#),
            (r#""\udfb7\ud842""#, r#""\udfb7\ud842""#),
            (r#""\ud842""#, r#""\ud842""#),
            (r#""\ud842\u"#, r#""\ud842\u"#),
            (r#""\ud84"#, r#""\ud84"#),
        ] {
            let mut line = format!("before {text}").into_bytes();
            unescape_surrogates(&mut line, 7);
            assert_eq!(
                String::from_utf8(line).unwrap(),
                format!("before {expected}")
            );
        }
    }
}
