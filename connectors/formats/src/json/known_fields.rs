//! Fields of objects that a source does not know, that one object has twice, or that are texts where numbers are expected.

use std::cell::Cell;
use std::collections::HashMap;

use arrow::datatypes::{DataType, Fields};
use memchr::memchr2;

/// The fields that a source knows, at all depths.
#[derive(Debug, Default)]
pub(super) struct KnownFields {
    fields: Vec<KnownField>,
    places: HashMap<String, usize>,
    /// Number of objects of these fields so far: objects of the same fields do not lie in each other.
    objects: Cell<u64>,
}

#[derive(Debug)]
struct KnownField {
    name: String,
    inside: Option<KnownFields>,
    /// True if it has numbers, also in lists.
    has_numbers: bool,
    /// Number of the last object that has the field.
    last_object: Cell<u64>,
}

/// A field of a line that a source does not read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UnreadableField {
    /// The source does not know it.
    Unknown(String),
    /// One object has it twice.
    Repeated(String),
    /// It is a text, and a number is expected.
    Text { path: String, value: String },
}

impl UnreadableField {
    /// The field inside of another one.
    fn inside(self, name: &[u8]) -> UnreadableField {
        let outer = shown_name(name);
        match self {
            UnreadableField::Unknown(path) => UnreadableField::Unknown(format!("{outer}.{path}")),
            UnreadableField::Repeated(path) => UnreadableField::Repeated(format!("{outer}.{path}")),
            UnreadableField::Text { path, value } => UnreadableField::Text {
                path: format!("{outer}.{path}"),
                value,
            },
        }
    }
}

impl KnownFields {
    pub(super) fn new(fields: &Fields) -> KnownFields {
        let known_fields = fields.iter().map(|field| KnownField {
            name: field.name().clone(),
            inside: inside_of(field.data_type()).map(KnownFields::new),
            has_numbers: has_numbers(field.data_type()),
            last_object: Cell::new(0),
        });
        let numbered = fields.iter().enumerate();
        KnownFields {
            fields: known_fields.collect(),
            places: numbered
                .map(|(index, field)| (field.name().clone(), index))
                .collect(),
            objects: Cell::new(0),
        }
    }

    /// True if no field is known.
    pub(super) fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// The first field of an object that is repeated, a text in the place of a number or, if the source
    /// `refuses_unknown` ones, not known. The text must be valid JSON.
    pub(super) fn first_unreadable(
        &self,
        line: &[u8],
        refuses_unknown: bool,
    ) -> Option<UnreadableField> {
        let scan = Scan { text: line, at: 0 };
        let mut fields = FieldScan {
            scan,
            refuses_unknown,
        };
        fields.scan_value(self)
    }

    /// Place of a field, which is mostly the one behind that of the field before.
    fn place(&self, name: &[u8], expected: usize) -> Option<usize> {
        let plain = &name[1..name.len() - 1];
        let next = self.fields.get(expected);
        if next.is_some_and(|field| field.name.as_bytes() == plain) {
            return Some(expected);
        }
        match std::str::from_utf8(plain) {
            Ok(plain) if !plain.contains('\\') => self.places.get(plain).copied(),
            _ => {
                let name: String = serde_json::from_slice(name).ok()?;
                self.places.get(&name).copied()
            }
        }
    }
}

/// A walk through the fields of a line.
struct FieldScan<'a> {
    scan: Scan<'a>,
    refuses_unknown: bool,
}

impl FieldScan<'_> {
    /// Goes past a value: an object of some fields, a list of such objects, or another value.
    fn scan_value(&mut self, fields: &KnownFields) -> Option<UnreadableField> {
        match self.scan.peek()? {
            b'{' => self.scan_object(fields),
            b'[' => {
                self.scan.at += 1;
                while self.scan.peek()? != b']' {
                    let begin = self.scan.at;
                    if let Some(unreadable) = self.scan_value(fields) {
                        return Some(unreadable);
                    }
                    self.scan.skip_comma();
                    // A list that an object closes is no valid JSON, which the decoder refuses.
                    if self.scan.at == begin {
                        return None;
                    }
                }
                self.scan.at += 1;
                None
            }
            _ => {
                self.scan.skip_value();
                None
            }
        }
    }

    fn scan_object(&mut self, fields: &KnownFields) -> Option<UnreadableField> {
        let object = fields.objects.get() + 1;
        fields.objects.set(object);
        let mut expected = 0;
        self.scan.at += 1;
        while self.scan.peek()? == b'"' {
            let name = self.scan.string();
            let Some(index) = fields.place(name, expected) else {
                if self.refuses_unknown {
                    return Some(UnreadableField::Unknown(shown_name(name)));
                }
                self.scan.skip_colon();
                self.scan.skip_value();
                self.scan.skip_comma();
                continue;
            };
            expected = index + 1;
            let field = &fields.fields[index];
            if field.last_object.replace(object) == object {
                return Some(UnreadableField::Repeated(shown_name(name)));
            }
            self.scan.skip_colon();
            match &field.inside {
                Some(inside) => {
                    if let Some(unreadable) = self.scan_value(inside) {
                        return Some(unreadable.inside(name));
                    }
                }
                None if field.has_numbers => {
                    if let Some(value) = self.scan_numbers() {
                        let path = shown_name(name);
                        return Some(UnreadableField::Text { path, value });
                    }
                }
                None => self.scan.skip_value(),
            }
            self.scan.skip_comma();
        }
        self.scan.at += 1;
        None
    }

    /// Goes past a number or a list of numbers. Returns the first text among them, with its quotes.
    fn scan_numbers(&mut self) -> Option<String> {
        match self.scan.peek()? {
            b'"' => {
                let text = self.scan.string();
                return Some(String::from_utf8_lossy(text).into_owned());
            }
            b'[' => {
                self.scan.at += 1;
                while self.scan.peek()? != b']' {
                    let begin = self.scan.at;
                    let text = self.scan_numbers();
                    if text.is_some() {
                        return text;
                    }
                    self.scan.skip_comma();
                    if self.scan.at == begin {
                        return None;
                    }
                }
                self.scan.at += 1;
            }
            _ => self.scan.skip_value(),
        }
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

/// True if a column has numbers, also in lists.
fn has_numbers(of: &DataType) -> bool {
    match of {
        DataType::List(item) => has_numbers(item.data_type()),
        other => other.is_numeric(),
    }
}

/// A place in valid JSON.
pub(super) struct Scan<'a> {
    pub(super) text: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Scan<'a> {
    /// The next byte that is no blank.
    pub(super) fn peek(&mut self) -> Option<u8> {
        let text = self.text.get(self.at..)?;
        let blanks = text.iter().take_while(|byte| byte.is_ascii_whitespace());
        self.at += blanks.count();
        self.text.get(self.at).copied()
    }

    pub(super) fn skip_comma(&mut self) {
        if self.peek() == Some(b',') {
            self.at += 1;
        }
    }

    pub(super) fn skip_colon(&mut self) {
        if self.peek() == Some(b':') {
            self.at += 1;
        }
    }

    /// Goes past a string and returns it with its quotes.
    pub(super) fn string(&mut self) -> &'a [u8] {
        let start = self.at;
        let mut at = self.at + 1;
        while let Some(next) = self
            .text
            .get(at..)
            .and_then(|unread| memchr2(b'"', b'\\', unread))
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
    pub(super) fn skip_value(&mut self) {
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
    fn unknown_and_repeated_fields_are_found_at_any_depth() {
        let inner = Fields::from(vec![Field::new("x", DataType::Int64, true)]);
        let objects = DataType::Struct(inner);
        let list = DataType::List(Field::new("item", objects.clone(), true).into());
        let numbers = DataType::List(Field::new("item", DataType::Float64, true).into());
        let fields = KnownFields::new(&Fields::from(vec![
            Field::new("a", objects, true),
            Field::new("l", list, true),
            Field::new("t", DataType::Utf8, true),
            Field::new("q\"", DataType::Utf8, true),
            Field::new("e", DataType::Struct(Fields::empty()), true),
            Field::new("n", numbers, true),
        ]));
        let unknown = |path: &str| Some(UnreadableField::Unknown(path.to_owned()));
        let repeated = |path: &str| Some(UnreadableField::Repeated(path.to_owned()));
        let text = |path: &str, value: &str| {
            Some(UnreadableField::Text {
                path: path.to_owned(),
                value: value.to_owned(),
            })
        };
        for (line, expected) in [
            (r#"{}"#, None),
            // Lists that an object closes end the scan.
            (r#"{"n":[1}"#, None),
            (r#"{"l":[{"x":1}}"#, None),
            (r#" { "a" : { "x" : 1 } , "t" : "}\",{\"b\":1" } "#, None),
            (r#"{"a":null,"l":[],"e":{},"q\"":"v"}"#, None),
            (
                r#"{"l":[{"x":1},{},null,{"x":-2.5e3}],"t":[1,{"any":[{}]}]}"#,
                None,
            ),
            (r#"{"\u0061":{"x":1}}"#, None),
            (r#"{"t":{"x":1,"x":2}}"#, None),
            (r#"{"a":{"x":1},"b":2}"#, unknown("b")),
            (r#"{"a":{"x":[1,2],"y":2}}"#, unknown("a.y")),
            (r#"{"l":[{"x":1},{"z":2}]}"#, unknown("l.z")),
            (r#"{"e":{"y":2}}"#, unknown("e.y")),
            (r#"{"t":"a\\","n\u0065w":true}"#, unknown("new")),
            (r#"{"t":1,"t":1}"#, repeated("t")),
            (r#"{"t":null,"a":{},"t":null}"#, repeated("t")),
            (r#"{"t":1,"\u0074":2}"#, repeated("t")),
            (r#"{"a":{"x":1,"x":1}}"#, repeated("a.x")),
            (r#"{"l":[{"x":1},{"x":1,"x":2}]}"#, repeated("l.x")),
            (r#"{"a":{"x":"1"}}"#, text("a.x", "\"1\"")),
            (
                r#"{"l":[null,{"x":"a\"b"}],"t":"1"}"#,
                text("l.x", "\"a\\\"b\""),
            ),
            (r#"{"n":[1,[2],null,"3"]}"#, text("n", "\"3\"")),
            (r#"{"n":[1,null,-2e3],"t":["1",2]}"#, None),
        ] {
            let unreadable = fields.first_unreadable(line.as_bytes(), true);
            assert_eq!(unreadable, expected, "{line}");
            // The scan of one line leaves nothing to the next one.
            assert_eq!(
                fields.first_unreadable(br#"{"t":1,"a":{"x":1}}"#, true),
                None
            );
            let repeated = expected.filter(|field| !matches!(field, UnreadableField::Unknown(_)));
            assert_eq!(
                fields.first_unreadable(line.as_bytes(), false),
                repeated,
                "{line}"
            );
        }
        let line = br#"{"new":{"t":1},"new":2,"t":3,"t":4}"#;
        assert_eq!(fields.first_unreadable(line, false), repeated("t"));
    }
}
