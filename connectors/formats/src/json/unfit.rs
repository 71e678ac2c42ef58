//! Values of JSON that are not of their column's type.

use std::ops::Range;

use arrow::datatypes::{DataType, FieldRef};
use forebay_model::NameIndex;

use super::known_fields::Scan;

/// A value of another kind than its column has: an object where numbers are expected, say.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnfitKind {
    pub(super) column: String,
    /// Its bytes in the line.
    pub(super) bytes: Range<usize>,
}

/// The values of a line that are of another kind than their columns. Texts are no numbers; columns of texts take numbers,
/// too. The line must be valid JSON.
pub(super) fn unfit_kinds(line: &[u8], columns: &[FieldRef]) -> Vec<UnfitKind> {
    let mut unfit = Vec::new();
    let mut scan = Scan { text: line, at: 0 };
    if scan.peek() != Some(b'{') {
        return unfit;
    }
    scan_object(&mut scan, columns, &mut |column, bytes, _| {
        unfit.push(UnfitKind { column, bytes });
    });
    unfit
}

/// The empty objects of a line where its columns have texts, which are read as the text `{}`. The line must be valid JSON.
pub(super) fn empty_objects(line: &[u8], columns: &[FieldRef]) -> Vec<Range<usize>> {
    let mut empty = Vec::new();
    let mut scan = Scan { text: line, at: 0 };
    if scan.peek() != Some(b'{') {
        return empty;
    }
    scan_object(&mut scan, columns, &mut |_, bytes, of| {
        let content = line[bytes.clone()].strip_prefix(b"{");
        let is_empty = content.is_some_and(|content| content.trim_ascii() == b"}");
        if is_empty && *of == DataType::Utf8 {
            empty.push(bytes);
        }
    });
    empty
}

/// Receives the name of a top-level column, the bytes of a value, and the type that there is at its place.
type TakeUnfit<'t> = &'t mut dyn FnMut(String, Range<usize>, &DataType);

fn scan_object(scan: &mut Scan<'_>, fields: &[FieldRef], take: TakeUnfit<'_>) {
    let index = NameIndex::new(fields.iter().map(|field| field.name().as_str()));
    scan.at += 1;
    while scan.peek() == Some(b'"') {
        let name = scan.string();
        let name: String = serde_json::from_slice(name).unwrap_or_default();
        scan.skip_colon();
        match index.get(&name) {
            Some(position) => {
                let of = fields[position].data_type();
                scan_value(scan, of, &mut |bytes, of| take(name.clone(), bytes, of));
            }
            None => scan.skip_value(),
        }
        scan.skip_comma();
    }
    scan.at += 1;
}

fn scan_value(scan: &mut Scan<'_>, of: &DataType, take: &mut dyn FnMut(Range<usize>, &DataType)) {
    let Some(first) = scan.peek() else { return };
    match (first, of) {
        (b'{', DataType::Struct(fields)) => {
            scan_object(scan, fields, &mut |_, bytes, of| take(bytes, of));
        }
        (b'[', DataType::List(item)) => {
            scan.at += 1;
            while scan.peek().is_some_and(|byte| byte != b']') {
                scan_value(scan, item.data_type(), take);
                scan.skip_comma();
            }
            scan.at += 1;
        }
        _ => {
            let start = scan.at;
            scan.skip_value();
            let is_fit = match first {
                b'n' => true,
                b'{' | b'[' => false,
                b't' | b'f' => !of.is_nested(),
                b'"' => !of.is_nested() && *of != DataType::Boolean && !of.is_numeric(),
                _ => !of.is_nested() && *of != DataType::Boolean,
            };
            if !is_fit {
                let value = scan.text[start..scan.at].trim_ascii_end();
                take(start..start + value.len(), of);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{Field, Fields};

    use super::*;

    #[test]
    fn values_of_another_kind_are_found_at_any_depth() {
        let field = |name: &str, of: DataType| Arc::new(Field::new(name, of, true));
        let object = DataType::Struct(Fields::from(vec![field("x", DataType::Utf8)]));
        let columns = [
            field("n", DataType::Utf8),
            field("b", DataType::Boolean),
            field("o", object.clone()),
            field("l", DataType::List(field("item", object))),
            field("i", DataType::List(field("item", DataType::Int64))),
        ];
        for (line, expected) in [
            (
                r#"{"n":1,"b":true,"o":{"x":"a"},"l":[{"x":null}],"z":[1]}"#,
                vec![],
            ),
            (r#"{"n":null,"b":null,"o":null,"l":null}"#, vec![]),
            (
                r#"{"n": {"a":1} ,"b":"yes"}"#,
                vec![("n", r#"{"a":1}"#), ("b", r#""yes""#)],
            ),
            (r#"{"n":[1,2],"b":1}"#, vec![("n", "[1,2]"), ("b", "1")]),
            (
                r#"{"o":{"x":[1]},"l":[{"x":{}},3]}"#,
                vec![("o", "[1]"), ("l", "{}"), ("l", "3")],
            ),
            (
                r#"{"i":[1,"2",null,[3]]}"#,
                vec![("i", r#""2""#), ("i", "[3]")],
            ),
            (
                r#"{"o":"a","l":{"x":1}}"#,
                vec![("o", r#""a""#), ("l", r#"{"x":1}"#)],
            ),
        ] {
            let unfit = unfit_kinds(line.as_bytes(), &columns);
            let unfit: Vec<(&str, &str)> = unfit
                .iter()
                .map(|unfit| (unfit.column.as_str(), &line[unfit.bytes.clone()]))
                .collect();
            assert_eq!(unfit, expected, "{line}");
        }
    }

    #[test]
    fn empty_objects_are_found_where_texts_are() {
        let field = |name: &str, of: DataType| Arc::new(Field::new(name, of, true));
        let object = DataType::Struct(Fields::from(vec![field("x", DataType::Utf8)]));
        let columns = [
            field("t", DataType::Utf8),
            field("n", DataType::Int64),
            field("l", DataType::List(field("item", object))),
        ];
        for (line, expected) in [
            (r#"{"t":"{}","n":1,"z":{}}"#, vec![]),
            (r#"{"t": { } ,"n":{}}"#, vec!["{ }"]),
            (r#"{"l":[{},{"x":{}},{"x":{"a":1}}],"t":[]}"#, vec!["{}"]),
        ] {
            let empty = empty_objects(line.as_bytes(), &columns);
            let texts: Vec<&str> = empty.into_iter().map(|bytes| &line[bytes]).collect();
            assert_eq!(texts, expected, "{line}");
        }
    }
}
