//! Parameters: their values, and `${name}` in the leaves of a spec. Parsing comes first, so a value
//! can never become a key, a list or another field. In SQL a value is a literal: it cannot change
//! the query ([`sql_text`]).

use std::collections::{BTreeMap, BTreeSet};

use forebay_model::{Fault, FaultCode, SPEC_TEXT_BYTES_MAX, codes};
use forebay_plan::{SqlPiece, SqlValue, sql_text};
use jiff::civil::{Date, DateTime};
use jiff::{Span, Timestamp};
use serde::Deserialize;
use serde_json::Number;

use super::check::suggest_words;
use super::node::{TextPosition, YamlData, YamlKey, YamlNode};
use super::wire::{ParamType, YamlParam};

/// The values by name.
pub(super) struct ParamValues<'a> {
    file: &'a str,
    values: BTreeMap<String, ParamValue>,
}

struct ParamValue {
    /// Type; `None` if the declaration is wrong.
    kind: Option<ParamType>,
    data: YamlData,
}

/// A part of a leaf.
enum TemplatePiece<'t> {
    Text(&'t str),
    Value(&'t str),
}

impl<'a> ParamValues<'a> {
    /// Works out every declared parameter's value.
    pub fn new(
        file: &'a str,
        root: &YamlNode,
        flags: &BTreeMap<String, String>,
        faults: &mut Vec<Fault>,
    ) -> Self {
        let mut params = ParamValues {
            file,
            values: BTreeMap::new(),
        };
        let declared = root
            .get("params")
            .map(YamlNode::entries)
            .unwrap_or_default();
        for (key, node) in declared {
            let value = params.value(key, node, flags.get(&key.text), faults);
            let kind = YamlParam::deserialize(node.value())
                .ok()
                .map(|param| param.kind);
            params
                .values
                .insert(key.text.clone(), ParamValue { kind, data: value });
        }
        for name in flags
            .keys()
            .filter(|name| !params.values.contains_key(*name))
        {
            let names: Vec<&str> = params.values.keys().map(String::as_str).collect();
            let fault = Fault::new(
                codes::UNKNOWN_NAME,
                format!("there is no parameter `{name}` to set"),
            );
            faults.push(if names.is_empty() {
                fault.hint("declare it in the spec, under `params:`")
            } else {
                fault.hint(suggest_words(name, &names))
            });
        }
        params
    }

    /// Parameters that are days or moments, with their values.
    pub fn dates(&self) -> BTreeMap<String, String> {
        let dates =
            self.values
                .iter()
                .filter_map(|(name, value)| match (&value.data, value.kind) {
                    (YamlData::Text(text), Some(ParamType::Date | ParamType::Timestamp)) => {
                        Some((name.clone(), text.clone()))
                    }
                    _ => None,
                });
        dates.collect()
    }

    fn fault(&self, code: FaultCode, mark: TextPosition, path: &str, message: String) -> Fault {
        Fault::new(code, message).at(Some(&mark.location(self.file, path)))
    }

    fn value(
        &self,
        key: &YamlKey,
        node: &YamlNode,
        flag: Option<&String>,
        faults: &mut Vec<Fault>,
    ) -> YamlData {
        // A declaration that is wrong in itself is reported by the schema's check.
        let Ok(YamlParam { kind, .. }) = YamlParam::deserialize(node.value()) else {
            return YamlData::Wrong;
        };
        let name = &key.text;
        let mut wrong = false;
        let default = node
            .get("default")
            .filter(|default| !matches!(default.data, YamlData::Null))
            .map(|default| {
                let path = format!("params.{name}.default");
                if default.text().is_some_and(|text| text.contains("${")) {
                    let message = format!("the default of `{name}` cannot use other parameters");
                    faults.push(self.fault(codes::UNSUPPORTED, default.mark, &path, message));
                    wrong = true;
                } else if !matches!(default.data, YamlData::Wrong)
                    && !type_accepts_data(kind, &default.data)
                {
                    let message = format!(
                        "the default of `{name}` must be {}",
                        kind.type_description()
                    );
                    faults.push(
                        self.fault(codes::BAD_VALUE, default.mark, &path, message)
                            .hint(kind.example()),
                    );
                    wrong = true;
                }
                default.data.clone()
            });
        let path = format!("params.{name}");
        match (flag, default) {
            (Some(text), _) => kind.parse_value(text).unwrap_or_else(|| {
                let message = format!(
                    "parameter `{name}` must be {}, not `{text}`",
                    kind.type_description()
                );
                faults.push(
                    self.fault(codes::BAD_VALUE, key.mark, &path, message)
                        .hint(kind.example()),
                );
                YamlData::Wrong
            }),
            (None, Some(value)) if !wrong => value,
            (None, Some(_)) => YamlData::Wrong,
            (None, None) => {
                let message = format!("parameter `{name}` has no value");
                let fault = self.fault(codes::MISSING_FIELD, key.mark, &path, message);
                faults.push(fault.hint(format!(
                    "give one with `--param {name}=...`, or a `default:`"
                )));
                YamlData::Wrong
            }
        }
    }

    /// Replaces `${name}` in all leaves but those of `params:`; `sql` are the paths of those that hold SQL.
    pub fn substitute(&self, root: &mut YamlNode, sql: &BTreeSet<String>, faults: &mut Vec<Fault>) {
        let mut bytes_left = SPEC_TEXT_BYTES_MAX;
        if let YamlData::Map(entries) = &mut root.data {
            for (key, node) in entries.iter_mut().filter(|(key, _)| key.text != "params") {
                self.substitute_in_node(node, &key.text, sql, &mut bytes_left, faults);
            }
        }
    }

    /// `bytes_left` are the bytes that values may still add.
    fn substitute_in_node(
        &self,
        node: &mut YamlNode,
        path: &str,
        sql: &BTreeSet<String>,
        bytes_left: &mut usize,
        faults: &mut Vec<Fault>,
    ) {
        match &mut node.data {
            YamlData::List(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.substitute_in_node(
                        item,
                        &format!("{path}[{index}]"),
                        sql,
                        bytes_left,
                        faults,
                    );
                }
            }
            YamlData::Map(entries) => {
                for (key, value) in entries.iter_mut() {
                    self.substitute_in_node(
                        value,
                        &format!("{path}.{}", key.text),
                        sql,
                        bytes_left,
                        faults,
                    );
                }
            }
            YamlData::Text(text) if text.contains("${") => {
                let filled = self.substitute_leaf(text, sql.contains(path), bytes_left);
                node.data = filled.unwrap_or_else(|fault| {
                    faults.push(fault.at(Some(&node.mark.location(self.file, path))));
                    YamlData::Wrong
                });
            }
            _ => {}
        }
    }

    fn substitute_leaf(
        &self,
        text: &str,
        is_sql: bool,
        bytes_left: &mut usize,
    ) -> Result<YamlData, Fault> {
        let pieces = template_pieces(text)?;
        let mut values = Vec::new();
        for piece in &pieces {
            let TemplatePiece::Value(name) = piece else {
                continue;
            };
            match self.values.get(*name) {
                None => return Err(self.unknown(name)),
                Some(ParamValue {
                    data: YamlData::Wrong,
                    ..
                }) => return Ok(YamlData::Wrong),
                Some(value) => {
                    let bytes = if let YamlData::Text(text) = &value.data {
                        text.len()
                    } else {
                        0
                    };
                    *bytes_left = bytes_left.checked_sub(bytes).ok_or_else(|| {
                        let message = format!(
                            "values of parameters add more than {SPEC_TEXT_BYTES_MAX} bytes"
                        );
                        Fault::new(codes::LIMIT, message)
                    })?;
                    values.push(value);
                }
            }
        }
        if let ([TemplatePiece::Value(_)], [value]) = (pieces.as_slice(), values.as_slice())
            && !matches!(value.data, YamlData::Text(_))
        {
            return Ok(value.data.clone());
        }
        let mut values = values.into_iter();
        let pieces = pieces.into_iter().map(|piece| match piece {
            TemplatePiece::Text(text) => SqlPiece::Text(text.to_owned()),
            TemplatePiece::Value(name) => SqlPiece::Value(
                name.to_owned(),
                values
                    .next()
                    .map_or_else(ParamValue::none, ParamValue::in_sql),
            ),
        });
        let pieces: Vec<SqlPiece> = pieces.collect();
        if is_sql {
            return sql_text(&pieces).map(YamlData::Text);
        }
        let each = pieces.iter().map(|piece| match piece {
            SqlPiece::Text(text) => text.as_str(),
            SqlPiece::Value(_, value) => value.text(),
        });
        Ok(YamlData::Text(each.collect()))
    }

    fn unknown(&self, name: &str) -> Fault {
        let names: Vec<&str> = self.values.keys().map(String::as_str).collect();
        let fault = Fault::new(
            codes::UNKNOWN_NAME,
            format!("there is no parameter `{name}`"),
        )
        .fragment(name, 0);
        if names.is_empty() {
            return fault
                .hint("declare it under `params:`, or write `$${` where the text itself is meant");
        }
        fault.hint(suggest_words(name, &names))
    }
}

impl ParamValue {
    fn none() -> SqlValue {
        SqlValue::Text(String::new())
    }

    fn in_sql(&self) -> SqlValue {
        match (&self.data, self.kind) {
            (YamlData::Text(text), Some(ParamType::Date)) => SqlValue::Date(text.clone()),
            (YamlData::Text(text), Some(ParamType::Timestamp)) => SqlValue::Timestamp(text.clone()),
            (YamlData::Text(text), _) => SqlValue::Text(text.clone()),
            (YamlData::Number(number), _) => SqlValue::Plain(number.to_string()),
            (YamlData::Bool(value), _) => SqlValue::Plain(value.to_string()),
            _ => ParamValue::none(),
        }
    }
}

/// A leaf divided at its parameters; `$${` stands for `${` itself.
fn template_pieces(text: &str) -> Result<Vec<TemplatePiece<'_>>, Fault> {
    let mut pieces = Vec::new();
    let mut unread = text;
    while let Some(start) = unread.find("${") {
        if let Some(literal) = unread[..start].strip_suffix('$') {
            pieces.extend([TemplatePiece::Text(literal), TemplatePiece::Text("${")]);
            unread = &unread[start + 2..];
            continue;
        }
        let Some(end) = unread[start..].find('}') else {
            let fault = Fault::new(codes::SYNTAX, "`${` is not closed");
            return Err(fault.hint("write `${name}`, or `$${` where the text itself is meant"));
        };
        pieces.extend([
            TemplatePiece::Text(&unread[..start]),
            TemplatePiece::Value(&unread[start + 2..start + end]),
        ]);
        unread = &unread[start + end + 1..];
    }
    pieces.push(TemplatePiece::Text(unread));
    pieces.retain(|piece| !matches!(piece, TemplatePiece::Text("")));
    Ok(pieces)
}

fn type_accepts_data(kind: ParamType, data: &YamlData) -> bool {
    match (kind, data) {
        (ParamType::Integer, YamlData::Number(number)) => !number.is_f64(),
        (ParamType::Number, YamlData::Number(_)) | (ParamType::Boolean, YamlData::Bool(_)) => true,
        (ParamType::Integer | ParamType::Number | ParamType::Boolean, _) => false,
        (kind, YamlData::Text(text)) => kind.parse_value(text).is_some(),
        _ => false,
    }
}

impl ParamType {
    /// Parses a value of the command line.
    fn parse_value(self, text: &str) -> Option<YamlData> {
        match self {
            ParamType::Integer => {
                let number: i64 = text.parse().ok()?;
                return Some(YamlData::Number(number.into()));
            }
            ParamType::Number => {
                if let Ok(number) = text.parse::<i64>() {
                    return Some(YamlData::Number(number.into()));
                }
                let number = Number::from_f64(text.parse().ok()?)?;
                return Some(YamlData::Number(number));
            }
            ParamType::Boolean => {
                let value: bool = text.parse().ok()?;
                return Some(YamlData::Bool(value));
            }
            ParamType::Path | ParamType::String => {}
            // A date is written as specs write it: other forms would be texts that differ.
            ParamType::Date => {
                let date: Date = text.parse().ok()?;
                if date.to_string() != text {
                    return None;
                }
            }
            ParamType::Timestamp => {
                if text.parse::<DateTime>().is_err() && text.parse::<Timestamp>().is_err() {
                    return None;
                }
            }
            ParamType::Duration => {
                text.parse::<Span>().ok()?;
            }
        }
        Some(YamlData::Text(text.to_owned()))
    }

    fn type_description(self) -> &'static str {
        match self {
            ParamType::Path => "a path",
            ParamType::String => "a string",
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
