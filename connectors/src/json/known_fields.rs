//! Fields of objects that a source does not know.

use std::collections::HashMap;

use arrow::datatypes::{DataType, Fields};
use memchr::memchr2;

/// The fields that a source knows, at all depths.
#[derive(Debug, Default)]
pub(super) struct KnownFields {
    fields: HashMap<String, Option<KnownFields>>,
}

impl KnownFields {
    pub(super) fn new(fields: &Fields) -> KnownFields {
        let entries = fields.iter().map(|field| {
            let inside = inside_of(field.data_type());
            (field.name().clone(), inside.map(KnownFields::new))
        });
        KnownFields {
            fields: entries.collect(),
        }
    }

    /// The path of the first field of an object that is not known. The text must be valid JSON.
    pub(super) fn first_unknown(&self, line: &[u8]) -> Option<String> {
        let mut scan = Scan { text: line, at: 0 };
        self.scan_value(&mut scan)
    }

    /// Goes past a value: an object of these fields, a list of such objects, or another value.
    fn scan_value(&self, scan: &mut Scan<'_>) -> Option<String> {
        match scan.peek()? {
            b'{' => self.scan_object(scan),
            b'[' => {
                scan.at += 1;
                while scan.peek()? != b']' {
                    if let Some(unknown) = self.scan_value(scan) {
                        return Some(unknown);
                    }
                    scan.skip_comma();
                }
                scan.at += 1;
                None
            }
            _ => {
                scan.skip_value();
                None
            }
        }
    }

    fn scan_object(&self, scan: &mut Scan<'_>) -> Option<String> {
        scan.at += 1;
        while scan.peek()? == b'"' {
            let name = scan.string();
            let entry = match std::str::from_utf8(&name[1..name.len() - 1]) {
                Ok(plain) if !plain.contains('\\') => self.fields.get(plain),
                _ => {
                    let name: String = serde_json::from_slice(name).ok()?;
                    self.fields.get(&name)
                }
            };
            let Some(inside) = entry else {
                return Some(shown_name(name));
            };
            scan.skip_colon();
            match inside {
                Some(inside) => {
                    if let Some(unknown) = inside.scan_value(scan) {
                        return Some(format!("{}.{unknown}", shown_name(name)));
                    }
                }
                None => scan.skip_value(),
            }
            scan.skip_comma();
        }
        scan.at += 1;
        None
    }
}

/// A name in quotes as people write it.
fn shown_name(name: &[u8]) -> String {
    serde_json::from_slice(name).unwrap_or_else(|_| String::from_utf8_lossy(name).into_owned())
}

/// The fields of the objects in a column.
fn inside_of(of: &DataType) -> Option<&Fields> {
    match of {
        DataType::Struct(fields) => Some(fields),
        DataType::List(item) => inside_of(item.data_type()),
        _ => None,
    }
}

/// A place in valid JSON.
struct Scan<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    /// The next byte that is no blank.
    fn peek(&mut self) -> Option<u8> {
        let text = self.text.get(self.at..)?;
        let blanks = text.iter().take_while(|byte| byte.is_ascii_whitespace());
        self.at += blanks.count();
        self.text.get(self.at).copied()
    }

    fn skip_comma(&mut self) {
        if self.peek() == Some(b',') {
            self.at += 1;
        }
    }

    fn skip_colon(&mut self) {
        if self.peek() == Some(b':') {
            self.at += 1;
        }
    }

    /// Goes past a string and returns it with its quotes.
    fn string(&mut self) -> &'a [u8] {
        let start = self.at;
        let mut at = self.at + 1;
        while let Some(next) = self
            .text
            .get(at..)
            .and_then(|rest| memchr2(b'"', b'\\', rest))
        {
            at += next + 1;
            if self.text[at - 1] == b'"' {
                self.at = at;
                return &self.text[start..at];
            }
            // A character behind a backslash is no end.
            at += 1;
        }
        self.at = self.text.len();
        b"\"\""
    }

    /// Goes past a value of any kind.
    fn skip_value(&mut self) {
        let mut depth = 0usize;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' => {
                    self.string();
                }
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' if depth == 0 => return,
                b'}' | b']' => {
                    depth -= 1;
                    self.at += 1;
                }
                b',' if depth == 0 => return,
                _ => self.at += 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;

    use super::*;

    #[test]
    fn the_first_unknown_field_is_found_at_any_depth() {
        let inner = Fields::from(vec![Field::new("x", DataType::Int64, true)]);
        let objects = DataType::Struct(inner);
        let list = DataType::List(Field::new("item", objects.clone(), true).into());
        let fields = KnownFields::new(&Fields::from(vec![
            Field::new("a", objects, true),
            Field::new("l", list, true),
            Field::new("t", DataType::Utf8, true),
            Field::new("q\"", DataType::Utf8, true),
            Field::new("e", DataType::Struct(Fields::empty()), true),
        ]));
        for (line, expected) in [
            (r#"{}"#, None),
            (r#" { "a" : { "x" : 1 } , "t" : "}\",{\"b\":1" } "#, None),
            (r#"{"a":null,"l":[],"e":{},"q\"":"v"}"#, None),
            (
                r#"{"l":[{"x":1},{},null,{"x":-2.5e3}],"t":[1,{"any":[{}]}]}"#,
                None,
            ),
            (r#"{"\u0061":{"x":1}}"#, None),
            (r#"{"a":{"x":1},"b":2}"#, Some("b")),
            (r#"{"a":{"x":[1,2],"y":2}}"#, Some("a.y")),
            (r#"{"l":[{"x":1},{"z":2}]}"#, Some("l.z")),
            (r#"{"e":{"y":2}}"#, Some("e.y")),
            (r#"{"t":"a\\","n\u0065w":true}"#, Some("new")),
        ] {
            assert_eq!(
                fields.first_unknown(line.as_bytes()).as_deref(),
                expected,
                "{line}"
            );
        }
    }
}
