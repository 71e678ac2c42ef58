//! Names of partition folders.

/// Percent-encodes the characters that a part of a path cannot hold. Letters and digits of all scripts stay readable.
pub fn encode_path_part(value: &str) -> String {
    let plain =
        |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ' | ',' | '+' | '@');
    let mut buffer = [0; 4];
    let encode = |c: char| match plain(c) {
        true => c.to_string(),
        false => c
            .encode_utf8(&mut buffer)
            .bytes()
            .map(|byte| format!("%{byte:02X}"))
            .collect(),
    };
    value.chars().map(encode).collect()
}

/// Percent-encodes what URLs do not hold of folders that are named so: blanks, and letters that are not ASCII. Programs
/// that find files by URLs do not all decode these.
pub fn encode_folders_for_urls(folders: &str) -> String {
    let encode = |byte: u8| match byte.is_ascii_alphanumeric() || b"-_.%=/".contains(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    folders.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
