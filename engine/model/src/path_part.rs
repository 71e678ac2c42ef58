//! Names of partition folders.

/// Percent-encodes the characters that a part of a path cannot hold. Letters and digits of all scripts stay readable.
pub fn encode_path_part(value: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ' | ',' | '+' | '@');
    let mut buffer = [0; 4];
    let encode = |c: char| match plain(c) {
        true => c.to_string(),
        false => c.encode_utf8(&mut buffer).bytes().map(|byte| format!("%{byte:02X}")).collect(),
    };
    value.chars().map(encode).collect()
}
