//! Names of partition folders.

use std::fmt::Write as _;

/// Percent-encodes the characters that a part of a path cannot hold. Letters and digits of all scripts stay readable.
pub fn encode_path_part(value: &str) -> String {
    let mut encoded = String::with_capacity(value.len());
    let mut buffer = [0; 4];
    for letter in value.chars() {
        let is_plain =
            letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.' | ' ' | ',' | '+' | '@');
        if is_plain {
            encoded.push(letter);
            continue;
        }
        for byte in letter.encode_utf8(&mut buffer).bytes() {
            push_escaped(&mut encoded, byte);
        }
    }
    encoded
}

/// A text that other programs take for null where a folder has it as its value, in letters of any size.
const NULL_TEXT: &str = "null";

/// Encodes a value for the name of a folder, `column=value`. The text `null` has its first letter percent-encoded: some
/// programs read folders of that name as null.
pub fn encode_folder_value(value: &str) -> String {
    let encoded = encode_path_part(value);
    if !encoded.eq_ignore_ascii_case(NULL_TEXT) {
        return encoded;
    }
    let mut escaped = String::with_capacity(encoded.len() + 2);
    push_escaped(&mut escaped, encoded.as_bytes()[0]);
    escaped.push_str(&encoded[1..]);
    escaped
}

fn push_escaped(encoded: &mut String, byte: u8) {
    // Writing to a text cannot fail.
    let _ = write!(encoded, "%{byte:02X}");
}

/// Percent-encodes what URLs do not hold of folders that are named so: blanks, and letters that are not ASCII. Programs
/// that find files by URLs do not all decode these.
pub fn encode_folders_for_urls(folders: &str) -> String {
    let mut encoded = String::with_capacity(folders.len());
    for byte in folders.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.%=/".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            push_escaped(&mut encoded, byte);
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_others_read_as_null_are_escaped() {
        let folders = [
            ("null", "%6Eull"),
            ("NULL", "%4EULL"),
            ("Null", "%4Eull"),
            ("nulls", "nulls"),
            ("", ""),
            ("__HIVE_DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__"),
        ];
        for (value, folder) in folders {
            assert_eq!(encode_folder_value(value), folder);
        }
    }

    #[test]
    fn folders_of_urls_hold_ascii_alone() {
        let folder = format!("a={}", encode_path_part("x y/größe%"));
        assert_eq!(folder, "a=x y%2Fgröße%25");
        assert_eq!(
            encode_folders_for_urls(&folder),
            "a=x%20y%2Fgr%C3%B6%C3%9Fe%25"
        );
    }
}
