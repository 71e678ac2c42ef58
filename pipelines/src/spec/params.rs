//! Parameters: their values, and `${name}` in the leaves of a spec. Parsing comes first, so a
//! value can never become a key, a list or another field. In SQL a value is a value: it cannot
//! change what is asked ([`sql_text`]).

use std::collections::{BTreeMap, BTreeSet};

use forebay_model::{Code, Fault, SPEC_TEXT_BYTES_MAX, codes};
use forebay_plan::{SqlPiece, SqlValue, sql_text};
use jiff::civil::{Date, DateTime};
use jiff::{Span, Timestamp};
use serde::Deserialize;
use serde_json::Number;

use super::check::near_or_all;
use super::node::{Data, Key, Mark, Node};
use super::wire::{Param, ParamType};

/// The values by name.
pub(super) struct Params<'a> {
    file: &'a str,
    values: BTreeMap<String, Value>,
}

struct Value {
    /// Absent where the declaration is wrong.
    kind: Option<ParamType>,
    data: Data,
}

/// A part of a leaf.
enum Piece<'t> {
    Text(&'t str),
    Value(&'t str),
}

impl<'a> Params<'a> {
    /// Works out every declared parameter's value.
    pub fn new(file: &'a str, root: &Node, given: &BTreeMap<String, String>, faults: &mut Vec<Fault>) -> Self {
        let mut params = Params { file, values: BTreeMap::new() };
        let declared = root.get("params").map(Node::entries).unwrap_or_default();
        for (key, node) in declared {
            let value = params.value(key, node, given.get(&key.text), faults);
            let kind = Param::deserialize(node.value()).ok().map(|param| param.kind);
            params.values.insert(key.text.clone(), Value { kind, data: value });
        }
        for name in given.keys().filter(|name| !params.values.contains_key(*name)) {
            let names: Vec<&str> = params.values.keys().map(String::as_str).collect();
            let fault = Fault::new(codes::UNKNOWN_NAME, format!("there is no parameter `{name}` to set"));
            faults.push(match names.is_empty() {
                true => fault.hint("declare it in the spec, under `params:`"),
                false => fault.hint(near_or_all(name, &names)),
            });
        }
        params
    }

    fn fault(&self, code: Code, mark: Mark, path: &str, message: String) -> Fault {
        Fault::new(code, message).at(Some(&mark.location(self.file, path)))
    }

    fn value(&self, key: &Key, node: &Node, given: Option<&String>, faults: &mut Vec<Fault>) -> Data {
        // A declaration that is wrong in itself is reported by the schema's check.
        let Ok(Param { kind, .. }) = Param::deserialize(node.value()) else {
            return Data::Wrong;
        };
        let name = &key.text;
        let mut wrong = false;
        let default = node.get("default").filter(|default| !matches!(default.data, Data::Null)).map(|default| {
            let path = format!("params.{name}.default");
            if default.text().is_some_and(|text| text.contains("${")) {
                let message = format!("the default of `{name}` cannot use other parameters");
                faults.push(self.fault(codes::UNSUPPORTED, default.mark, &path, message));
                wrong = true;
            } else if !matches!(default.data, Data::Wrong) && !fits(kind, &default.data) {
                let message = format!("the default of `{name}` must be {}", kind.words());
                faults.push(self.fault(codes::BAD_VALUE, default.mark, &path, message).hint(kind.example()));
                wrong = true;
            }
            default.data.clone()
        });
        let path = format!("params.{name}");
        match (given, default) {
            (Some(text), _) => kind.read(text).unwrap_or_else(|| {
                let message = format!("parameter `{name}` must be {}, not `{text}`", kind.words());
                faults.push(self.fault(codes::BAD_VALUE, key.mark, &path, message).hint(kind.example()));
                Data::Wrong
            }),
            (None, Some(value)) if !wrong => value,
            (None, Some(_)) => Data::Wrong,
            (None, None) => {
                let message = format!("parameter `{name}` has no value");
                let fault = self.fault(codes::MISSING_FIELD, key.mark, &path, message);
                faults.push(fault.hint(format!("give one with `--param {name}=...`, or a `default:`")));
                Data::Wrong
            }
        }
    }

    /// Replaces `${name}` in all leaves but those of `params:`; `sql` are the paths of those that hold SQL.
    pub fn substitute(&self, root: &mut Node, sql: &BTreeSet<String>, faults: &mut Vec<Fault>) {
        let mut left = SPEC_TEXT_BYTES_MAX;
        if let Data::Map(entries) = &mut root.data {
            for (key, node) in entries.iter_mut().filter(|(key, _)| key.text != "params") {
                self.walk(node, &key.text, sql, &mut left, faults);
            }
        }
    }

    /// `left` are the bytes that values may still add.
    fn walk(&self, node: &mut Node, path: &str, sql: &BTreeSet<String>, left: &mut usize, faults: &mut Vec<Fault>) {
        match &mut node.data {
            Data::List(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.walk(item, &format!("{path}[{index}]"), sql, left, faults);
                }
            }
            Data::Map(entries) => {
                for (key, value) in entries.iter_mut() {
                    self.walk(value, &format!("{path}.{}", key.text), sql, left, faults);
                }
            }
            Data::Text(text) if text.contains("${") => {
                let filled = self.leaf(text, sql.contains(path), left);
                node.data = filled.unwrap_or_else(|fault| {
                    faults.push(fault.at(Some(&node.mark.location(self.file, path))));
                    Data::Wrong
                });
            }
            _ => {}
        }
    }

    fn leaf(&self, text: &str, is_sql: bool, left: &mut usize) -> Result<Data, Fault> {
        let pieces = pieces(text)?;
        let mut values = Vec::new();
        for piece in &pieces {
            let Piece::Value(name) = piece else { continue };
            match self.values.get(*name) {
                None => return Err(self.unknown(name)),
                Some(Value { data: Data::Wrong, .. }) => return Ok(Data::Wrong),
                Some(value) => {
                    let bytes = if let Data::Text(text) = &value.data { text.len() } else { 0 };
                    *left = left.checked_sub(bytes).ok_or_else(|| {
                        let message = format!("values of parameters add more than {SPEC_TEXT_BYTES_MAX} bytes");
                        Fault::new(codes::LIMIT, message)
                    })?;
                    values.push(value);
                }
            }
        }
        if let ([Piece::Value(_)], [value]) = (pieces.as_slice(), values.as_slice())
            && !matches!(value.data, Data::Text(_))
        {
            return Ok(value.data.clone());
        }
        let mut values = values.into_iter();
        let pieces = pieces.into_iter().map(|piece| match piece {
            Piece::Text(text) => SqlPiece::Text(text.to_owned()),
            Piece::Value(name) => {
                SqlPiece::Value(name.to_owned(), values.next().map_or_else(Value::none, Value::in_sql))
            }
        });
        let pieces: Vec<SqlPiece> = pieces.collect();
        if is_sql {
            return sql_text(&pieces).map(Data::Text);
        }
        let each = pieces.iter().map(|piece| match piece {
            SqlPiece::Text(text) => text.as_str(),
            SqlPiece::Value(_, value) => value.text(),
        });
        Ok(Data::Text(each.collect()))
    }

    fn unknown(&self, name: &str) -> Fault {
        let names: Vec<&str> = self.values.keys().map(String::as_str).collect();
        let fault = Fault::new(codes::UNKNOWN_NAME, format!("there is no parameter `{name}`"));
        if names.is_empty() {
            return fault.hint("declare it under `params:`, or write `$${` where the text itself is meant");
        }
        fault.hint(near_or_all(name, &names))
    }
}

impl Value {
    fn none() -> SqlValue {
        SqlValue::Text(String::new())
    }

    fn in_sql(&self) -> SqlValue {
        match (&self.data, self.kind) {
            (Data::Text(text), Some(ParamType::Date)) => SqlValue::Date(text.clone()),
            (Data::Text(text), Some(ParamType::Timestamp)) => SqlValue::Timestamp(text.clone()),
            (Data::Text(text), _) => SqlValue::Text(text.clone()),
            (Data::Number(number), _) => SqlValue::Plain(number.to_string()),
            (Data::Bool(value), _) => SqlValue::Plain(value.to_string()),
            _ => Value::none(),
        }
    }
}

/// A leaf divided at its parameters; `$${` stands for `${` itself.
fn pieces(text: &str) -> Result<Vec<Piece<'_>>, Fault> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        if let Some(before) = rest[..start].strip_suffix('$') {
            pieces.extend([Piece::Text(before), Piece::Text("${")]);
            rest = &rest[start + 2..];
            continue;
        }
        let Some(end) = rest[start..].find('}') else {
            let fault = Fault::new(codes::SYNTAX, "`${` is not closed");
            return Err(fault.hint("write `${name}`, or `$${` where the text itself is meant"));
        };
        pieces.extend([Piece::Text(&rest[..start]), Piece::Value(&rest[start + 2..start + end])]);
        rest = &rest[start + end + 1..];
    }
    pieces.push(Piece::Text(rest));
    pieces.retain(|piece| !matches!(piece, Piece::Text("")));
    Ok(pieces)
}

fn fits(kind: ParamType, data: &Data) -> bool {
    match (kind, data) {
        (ParamType::Integer, Data::Number(number)) => !number.is_f64(),
        (ParamType::Number, Data::Number(_)) | (ParamType::Boolean, Data::Bool(_)) => true,
        (ParamType::Integer | ParamType::Number | ParamType::Boolean, _) => false,
        (kind, Data::Text(text)) => kind.read(text).is_some(),
        _ => false,
    }
}

impl ParamType {
    /// A value as the command line gives it.
    fn read(self, text: &str) -> Option<Data> {
        let as_text = || Some(Data::Text(text.to_owned()));
        match self {
            ParamType::Path | ParamType::String => as_text(),
            ParamType::Date => {
                text.parse::<Date>().ok().filter(|date| date.to_string() == text).and_then(|_| as_text())
            }
            ParamType::Timestamp => {
                let known = text.parse::<DateTime>().is_ok() || text.parse::<Timestamp>().is_ok();
                known.then(as_text).flatten()
            }
            ParamType::Duration => text.parse::<Span>().ok().and_then(|_| as_text()),
            ParamType::Integer => text.parse::<i64>().ok().map(|number| Data::Number(number.into())),
            ParamType::Number => match text.parse::<i64>() {
                Ok(number) => Some(Data::Number(number.into())),
                Err(_) => text.parse::<f64>().ok().and_then(Number::from_f64).map(Data::Number),
            },
            ParamType::Boolean => text.parse::<bool>().ok().map(Data::Bool),
        }
    }

    fn words(self) -> &'static str {
        match self {
            ParamType::Path => "a path",
            ParamType::String => "text",
            ParamType::Date => "a date",
            ParamType::Timestamp => "a timestamp",
            ParamType::Duration => "a length of time",
            ParamType::Integer => "a whole number",
            ParamType::Number => "a number",
            ParamType::Boolean => "true or false",
        }
    }

    fn example(self) -> &'static str {
        match self {
            ParamType::Path => "such as data/demand or s3://lake/demand",
            ParamType::String => "quote it where YAML would read something else",
            ParamType::Date => "such as 2016-05-22",
            ParamType::Timestamp => "such as 2016-05-22T06:30:00",
            ParamType::Duration => "such as 30m, 12h, 7d or 2w",
            ParamType::Integer => "such as 7",
            ParamType::Number => "such as 0.5",
            ParamType::Boolean => "write true or false",
        }
    }
}
