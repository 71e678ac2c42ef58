//! Checks the marked tree against a JSON Schema, the same one that editors get. Every problem is
//! reported at its own place; nothing stops at the first.

use forebay_model::{Fault, FaultCode, NameIndex, codes, nearest_word, suggestion};
use serde_json::Value;

use super::name::{NAME_PATTERN, is_name, name_complaint, name_hint};
use super::node::{TextPosition, YamlData, YamlKey, YamlNode};
use super::other_tools;
use super::synonyms::synonym;
use super::transform_text::transform_text_hint;

/// The title of the schema of transforms.
const TRANSFORM_TITLE: &str = "transform";

/// Unknown fields of one map that are reported one by one. All further ones are counted.
const UNKNOWN_FIELDS_MAX: usize = 1000;

/// SQL text that was found during the check.
pub(super) struct SqlText {
    pub text: String,
    pub mark: TextPosition,
    pub path: String,
    /// A whole query, not an expression.
    pub is_query: bool,
}

pub(super) struct SchemaChecker<'a> {
    root: &'a Value,
    file: &'a str,
    pub faults: Vec<Fault>,
    pub sql: Vec<SqlText>,
}

/// Position of a value: its own mark, and the mark of its key for problems of the value as a whole.
#[derive(Clone, Copy)]
struct ValueContext<'p> {
    path: &'p str,
    key: TextPosition,
}

impl<'a> SchemaChecker<'a> {
    /// `root` holds the definitions that references point to.
    pub fn new(root: &'a Value, file: &'a str) -> Self {
        SchemaChecker {
            root,
            file,
            faults: Vec::new(),
            sql: Vec::new(),
        }
    }

    /// Checks the whole document.
    pub fn check_document(&mut self, node: &YamlNode) {
        self.check(
            node,
            self.root,
            ValueContext {
                path: "",
                key: TextPosition::START,
            },
        );
    }

    fn fault(
        &mut self,
        code: FaultCode,
        mark: TextPosition,
        path: &str,
        message: String,
        hint: Option<String>,
    ) {
        let fault = Fault::new(code, message).at(Some(&mark.location(self.file, path)));
        self.faults.push(match hint {
            Some(hint) => fault.hint(hint),
            None => fault,
        });
    }

    fn resolve(&self, mut schema: &'a Value) -> &'a Value {
        while let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            match reference
                .strip_prefix('#')
                .and_then(|pointer| self.root.pointer(pointer))
            {
                Some(target) => schema = target,
                None => break,
            }
        }
        schema
    }

    fn check(&mut self, node: &YamlNode, schema: &'a Value, at: ValueContext<'_>) {
        let schema = self.resolve(schema);
        if matches!(node.data, YamlData::Wrong) || schema.is_boolean() {
            return;
        }
        if let Some((key, value, inner)) = select_keyed_variant(schema, node) {
            let path = if at.path.is_empty() {
                key.text.clone()
            } else {
                format!("{}.{}", at.path, key.text)
            };
            return self.check(
                value,
                inner,
                ValueContext {
                    path: &path,
                    key: key.mark,
                },
            );
        }
        let alternatives = self.alternatives(schema);
        if !alternatives.is_empty() {
            return self.check_variant(node, schema, &alternatives, at);
        }
        if let Some(constant) = schema.get("const") {
            if node.value() != *constant {
                let message = format!(
                    "{} must be {}, not {}",
                    subject(at.path),
                    display_json_value(constant),
                    describe_yaml_node(node)
                );
                let is_quoted = node.text() == Some(constant.to_string().as_str());
                let hint = is_quoted.then(|| format!("write it without quotes: {constant}"));
                self.fault(codes::BAD_VALUE, node.mark, at.path, message, hint);
            }
            return;
        }
        if !type_accepts_node(schema, node) {
            return self.report_mismatch(node, &[schema], at);
        }
        match &node.data {
            YamlData::Map(_) => self.check_map(node, schema, at),
            YamlData::List(items) => self.check_list(items, node, schema, at),
            YamlData::Text(text) => self.check_text(text, node, schema, at),
            YamlData::Number(number) => {
                self.check_number(number.as_f64().unwrap_or_default(), node, schema, at)
            }
            YamlData::Null | YamlData::Bool(_) | YamlData::Wrong => {}
        }
    }

    fn report_mismatch(&mut self, node: &YamlNode, schemas: &[&Value], at: ValueContext<'_>) {
        let mut types: Vec<String> = Vec::new();
        for schema in schemas {
            let words = self.type_words(schema);
            if words != "nothing" && !types.contains(&words) {
                types.push(words);
            }
        }
        let hint = self.mismatch_hint(node, schemas, at.path);
        self.report_wrong_type(&types.join(" or "), node, hint, at);
    }

    fn report_wrong_type(
        &mut self,
        expected: &str,
        node: &YamlNode,
        hint: Option<String>,
        at: ValueContext<'_>,
    ) {
        let subject = subject(at.path);
        let mark = node.mark;
        let (message, mark) = match &node.data {
            YamlData::Null => (
                format!("{subject} must be {expected}, and it is empty"),
                at.key,
            ),
            _ => (
                format!(
                    "{subject} must be {expected}, not {}",
                    describe_yaml_node(node)
                ),
                mark,
            ),
        };
        self.fault(codes::BAD_VALUE, mark, at.path, message, hint);
    }

    fn mismatch_hint(&self, node: &YamlNode, schemas: &[&Value], path: &str) -> Option<String> {
        let wants = |name: &str| {
            schemas
                .iter()
                .any(|schema| schema_types(schema).contains(&name))
        };
        match &node.data {
            YamlData::Map(entries) if wants("array") && last_name(path) == "do" => {
                let name = entries.first().map_or("lag", |(key, _)| key.text.as_str());
                Some(format!("begin each transform with `- `: `- {name}: ...`"))
            }
            YamlData::Map(_) if wants("string") && last_name(path) == "filter" => {
                Some("write SQL, such as \"qty > 3 AND price IS NOT NULL\"".to_owned())
            }
            YamlData::List(_) if wants("string") && last_name(path) == "path" => Some(
                "name several files by a pattern, such as 'data/*.parquet', or unite sources by \
                 `union`"
                    .to_owned(),
            ),
            YamlData::List(_) if wants("string") && last_name(path) == "from" => {
                Some("name one step; a step with `union` has the rows of several".to_owned())
            }
            YamlData::Text(text) if wants("array") => Some(format!("write a list: [{text}]")),
            YamlData::Text(text) if wants("object") && call_parts(text).is_some() => {
                let (function, column) = call_parts(text).unwrap_or_default();
                Some(format!("write `{{ {function}: {column} }}`"))
            }
            YamlData::Text(text) if wants("object") && is_entry(text) => {
                Some(format!("write it without quotes: {{ {text} }}"))
            }
            YamlData::Number(_) if schemas.iter().any(|schema| is_length(schema)) => Some(
                "write a whole number of rows, or a whole number and a unit: 12h, 7d or 2w"
                    .to_owned(),
            ),
            YamlData::Number(number) if wants("string") => Some(format!("quote it: \"{number}\"")),
            YamlData::Bool(value) if wants("string") => Some(format!("quote it: \"{value}\"")),
            YamlData::Text(text) if wants("boolean") && ["yes", "on"].contains(&text.as_str()) => {
                Some("write `true`".into())
            }
            YamlData::Text(text) if wants("boolean") && ["no", "off"].contains(&text.as_str()) => {
                Some("write `false`".into())
            }
            YamlData::Text(text)
                if (wants("integer") || wants("number")) && text.parse::<f64>().is_ok() =>
            {
                Some(format!("write it without quotes: {text}"))
            }
            YamlData::Null if wants("object") => Some(format!(
                "indent its fields below it, or write `{}: {{}}` for the defaults",
                last_name(path)
            )),
            _ => None,
        }
    }

    fn type_words(&self, schema: &Value) -> String {
        let names = schema_types(schema);
        let words = names
            .iter()
            .filter(|name| **name != "null")
            .map(|name| match *name {
                "string" => "a string".to_owned(),
                "integer" => "a whole number".to_owned(),
                "number" => "a number".to_owned(),
                "boolean" => "true or false".to_owned(),
                "object" => "a map".to_owned(),
                "array" => match schema.get("items").map(|items| self.resolve_any(items)) {
                    Some(items) if schema_types(items) == ["string"] => {
                        "a list of strings".to_owned()
                    }
                    Some(items) if schema_types(items) == ["integer"] => {
                        "a list of whole numbers".to_owned()
                    }
                    Some(items) if schema_types(items) == ["number"] => {
                        "a list of numbers".to_owned()
                    }
                    _ => "a list".to_owned(),
                },
                other => other.to_owned(),
            });
        let words = words.collect::<Vec<_>>().join(" or ");
        if words.is_empty() {
            "nothing".to_owned()
        } else {
            words
        }
    }

    fn resolve_any<'b>(&'b self, schema: &'b Value) -> &'b Value {
        let reference = schema.get("$ref").and_then(Value::as_str);
        let target = reference
            .and_then(|text| text.strip_prefix('#'))
            .and_then(|pointer| self.root.pointer(pointer));
        target.unwrap_or(schema)
    }

    fn check_text(&mut self, text: &str, node: &YamlNode, schema: &'a Value, at: ValueContext<'_>) {
        if let Some(words) = schema.get("enum").and_then(Value::as_array) {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            if !words.contains(&text) {
                self.report_unknown_word(text, &words, node, at);
            }
            return;
        }
        if schema.get("pattern").and_then(Value::as_str) == Some(NAME_PATTERN) && !is_name(text) {
            self.report_bad_name(text, node.mark, at.path);
        }
        let length_min = schema.get("minLength").and_then(Value::as_u64).unwrap_or(0);
        if (text.chars().count() as u64) < length_min {
            let message = format!("{} must not be empty", subject(at.path));
            self.fault(codes::BAD_VALUE, node.mark, at.path, message, None);
        }
        let format = schema.get("format").and_then(Value::as_str);
        if let Some(format @ ("sql" | "sql-query")) = format {
            let text = text.to_owned();
            let path = at.path.to_owned();
            self.sql.push(SqlText {
                text,
                mark: node.mark,
                path,
                is_query: format == "sql-query",
            });
        }
    }

    fn report_unknown_word(
        &mut self,
        text: &str,
        words: &[&str],
        node: &YamlNode,
        at: ValueContext<'_>,
    ) {
        let message = format!("{} cannot be `{text}`", subject(at.path));
        let hint = other_training_hint(at.path, text).unwrap_or_else(|| suggest_words(text, words));
        self.fault(codes::BAD_VALUE, node.mark, at.path, message, Some(hint));
    }

    fn report_bad_name(&mut self, text: &str, mark: TextPosition, path: &str) {
        let message = name_complaint(text);
        self.fault(codes::BAD_VALUE, mark, path, message, name_hint(text));
    }

    fn check_number(
        &mut self,
        value: f64,
        node: &YamlNode,
        schema: &'a Value,
        at: ValueContext<'_>,
    ) {
        let limit = |key: &str| schema.get(key).and_then(Value::as_f64);
        let complaint = if let Some(limit) = limit("minimum").filter(|limit| value < *limit) {
            format!("at least {limit}")
        } else if let Some(limit) = limit("maximum").filter(|limit| value > *limit) {
            format!("at most {limit}")
        } else if let Some(limit) = limit("exclusiveMinimum").filter(|limit| value <= *limit) {
            format!("more than {limit}")
        } else if let Some(limit) = limit("exclusiveMaximum").filter(|limit| value >= *limit) {
            format!("less than {limit}")
        } else {
            return;
        };
        let message = format!(
            "{} must be {complaint}, not {}",
            subject(at.path),
            describe_yaml_node(node)
        );
        self.fault(codes::BAD_VALUE, node.mark, at.path, message, None);
    }

    fn check_list(
        &mut self,
        items: &[YamlNode],
        node: &YamlNode,
        schema: &'a Value,
        at: ValueContext<'_>,
    ) {
        let length_min = schema.get("minItems").and_then(Value::as_u64).unwrap_or(0) as usize;
        let length_max = schema
            .get("maxItems")
            .and_then(Value::as_u64)
            .unwrap_or(u64::MAX) as usize;
        if items.len() < length_min || items.len() > length_max {
            let length = match (length_min, length_max) {
                (min, max) if min == max => format!("{min} items"),
                (1, _) if items.is_empty() => "at least one item".to_owned(),
                (min, _) if items.len() < min => format!("at least {min} items"),
                (_, max) => format!("at most {max} items"),
            };
            let message = format!(
                "{} must have {length}, not {}",
                subject(at.path),
                items.len()
            );
            self.fault(codes::BAD_VALUE, node.mark, at.path, message, None);
        }
        let prefix = schema.get("prefixItems").and_then(Value::as_array);
        for (index, item) in items.iter().enumerate() {
            let item_schema = prefix
                .and_then(|prefix| prefix.get(index))
                .or_else(|| schema.get("items"));
            if let Some(item_schema) = item_schema {
                self.check(
                    item,
                    item_schema,
                    ValueContext {
                        path: &format!("{}[{index}]", at.path),
                        key: item.mark,
                    },
                );
            }
        }
    }

    fn check_map(&mut self, node: &YamlNode, schema: &'a Value, at: ValueContext<'_>) {
        let properties = schema.get("properties").and_then(Value::as_object);
        let others = schema.get("additionalProperties");
        let names_pattern = schema.pointer("/propertyNames/pattern");
        let has_names = names_pattern.and_then(Value::as_str) == Some(NAME_PATTERN);
        let fields: Vec<&str> = match properties {
            Some(properties) => properties.keys().map(String::as_str).collect(),
            None => Vec::new(),
        };
        let mut unknown: Vec<&str> = Vec::new();
        let has_cut_sql = node.entries().iter().any(|(_, value)| is_cut_sql(value));
        for (key, value) in node.entries() {
            let path = if at.path.is_empty() {
                key.text.clone()
            } else {
                format!("{}.{}", at.path, key.text)
            };
            let inner = ValueContext {
                path: &path,
                key: key.mark,
            };
            if matches!(value.data, YamlData::Null) && has_cut_sql && closes_sql(&key.text) {
                continue;
            }
            if let Some(property) = properties.and_then(|properties| properties.get(&key.text)) {
                self.check(value, property, inner);
                continue;
            }
            match others {
                Some(Value::Bool(true)) => {}
                None if fields.is_empty() || is_open(schema) => {}
                None | Some(Value::Bool(false)) => {
                    unknown.push(&key.text);
                    if unknown.len() > UNKNOWN_FIELDS_MAX {
                        continue;
                    }
                    let container = describe_container(at.path);
                    let message = format!("{container} has no field `{}`", key.text);
                    let hint = suggest_words(&key.text, &fields);
                    self.fault(codes::UNKNOWN_FIELD, key.mark, &path, message, Some(hint));
                }
                Some(other) => {
                    if has_names && !is_name(&key.text) {
                        self.report_bad_name(&key.text, key.mark, &path);
                    }
                    self.check(value, other, inner);
                }
            }
        }
        let unlisted = unknown.len().saturating_sub(UNKNOWN_FIELDS_MAX);
        if unlisted > 0 {
            let container = describe_container(at.path);
            let message = format!("{container} has {unlisted} more unknown fields");
            let hint = suggest_words("", &fields);
            self.fault(codes::UNKNOWN_FIELD, at.key, at.path, message, Some(hint));
        }
        let required = schema.get("required").and_then(Value::as_array);
        for field in required.into_iter().flatten().filter_map(Value::as_str) {
            // A misspelt field has been reported: that it is missing as well is no news.
            if node.get(field).is_none() && !is_misspelt(field, &unknown) {
                let message = format!("{} needs the field `{field}`", describe_container(at.path));
                self.fault(codes::MISSING_FIELD, at.key, at.path, message, None);
            }
        }
        self.check_choices(node, &exactly_one(schema), &unknown, at);
    }

    /// Checks that a map has exactly one of some fields, if there are any; `unknown` are fields that were reported.
    fn check_choices(
        &mut self,
        node: &YamlNode,
        choices: &[&str],
        unknown: &[&str],
        at: ValueContext<'_>,
    ) {
        if choices.is_empty() {
            return;
        }
        let mut chosen = Vec::new();
        for (key, _) in node.entries() {
            if choices.contains(&key.text.as_str()) {
                chosen.push(key);
            }
        }
        let container = describe_container(at.path);
        match chosen.as_slice() {
            [_] => {}
            [] if choices.iter().any(|choice| is_misspelt(choice, unknown)) => {}
            [] => {
                let message = format!("{container} needs one of {}", quoted(choices));
                let path = node.get("path").and_then(YamlNode::text);
                let hint = path.and_then(|path| path_hint(path, choices));
                self.fault(codes::MISSING_FIELD, at.key, at.path, message, hint);
            }
            [first, second, ..] => {
                let message = format!(
                    "{container} has both `{}` and `{}`",
                    first.text, second.text
                );
                let hint = format!("keep one of {}", quoted(choices));
                self.fault(codes::BAD_VALUE, second.mark, at.path, message, Some(hint));
            }
        }
    }

    /// The variants of `oneOf` and `anyOf`, those inside variants too.
    fn alternatives(&self, schema: &'a Value) -> Vec<&'a Value> {
        let mut flat = Vec::new();
        // A map with fields of its own in addition to the variants (`flatten`) is left to its type.
        if !exactly_one(schema).is_empty() || schema.get("properties").is_some() {
            return flat;
        }
        for variants in [schema.get("oneOf"), schema.get("anyOf")]
            .into_iter()
            .flatten()
        {
            for variant in variants.as_array().into_iter().flatten() {
                let variant = self.resolve(variant);
                let inner = self.alternatives(variant);
                if inner.is_empty() {
                    flat.push(variant)
                } else {
                    flat.extend(inner)
                }
            }
        }
        flat
    }

    /// Checks variants that a field distinguishes: a map without the field is of the first one.
    fn check_discriminated(
        &mut self,
        node: &YamlNode,
        field: &str,
        variants: &[&'a Value],
        at: ValueContext<'_>,
    ) {
        let selector = node.entries().iter().find(|(key, _)| key.text == field);
        let Some((_, value)) = selector else {
            return self.check_first(node, variants, at);
        };
        let YamlData::Text(text) = &value.data else {
            return self.check_first(node, variants, at);
        };
        let mut known_words = Vec::new();
        for variant in variants {
            let property = variant
                .get("properties")
                .and_then(|properties| properties.get(field));
            let Some(property) = property else {
                continue;
            };
            let words = self.field_words(property);
            if words.contains(&text.as_str()) {
                return self.check(node, variant, at);
            }
            known_words.extend(words);
        }
        let path = format!("{}.{field}", at.path);
        let at_field = ValueContext { path: &path, ..at };
        self.report_unknown_word(text, &known_words, value, at_field);
    }

    fn check_first(&mut self, node: &YamlNode, variants: &[&'a Value], at: ValueContext<'_>) {
        if let Some(variant) = variants.first() {
            self.check(node, variant, at);
        }
    }

    /// The words that a field can be.
    fn field_words(&self, property: &'a Value) -> Vec<&'a str> {
        let property = self.resolve(property);
        let variants = self.alternatives(property);
        if variants.is_empty() {
            unit_words(property)
        } else {
            variants.into_iter().flat_map(unit_words).collect()
        }
    }

    fn check_variant(
        &mut self,
        node: &YamlNode,
        schema: &'a Value,
        variants: &[&'a Value],
        at: ValueContext<'_>,
    ) {
        if let Some(field) = schema
            .pointer("/discriminator/propertyName")
            .and_then(Value::as_str)
            && matches!(node.data, YamlData::Map(_))
        {
            return self.check_discriminated(node, field, variants, at);
        }
        let mut words: Vec<&str> = Vec::new();
        let mut keyed: Vec<(&str, &'a Value)> = Vec::new();
        for variant in variants.iter().copied() {
            words.extend(unit_words(variant));
            keyed.extend(one_key(variant));
        }
        if keyed.len() + words.len() < 2 && schema.get("title").is_none() {
            // An optional map that happens to have one field.
            keyed.clear();
        }
        let is_keyed_by = |word: &str| keyed.iter().any(|(name, _)| *name == word);
        match &node.data {
            YamlData::Text(text) if words.contains(&text.as_str()) => return,
            // The word, which YAML takes for no value where it has no quotes.
            YamlData::Null if words.contains(&"null") => return,
            YamlData::Map(entries) if entries.iter().any(|(key, _)| is_keyed_by(&key.text)) => {
                return self.check_keyed_variant(node, &keyed, schema, at);
            }
            _ => {}
        }
        let mut fitting: Vec<&'a Value> = Vec::new();
        for variant in variants.iter().copied() {
            let is_keyed = one_key(variant).is_some_and(|(name, _)| is_keyed_by(name));
            if unit_words(variant).is_empty() && !is_keyed && type_accepts_node(variant, node) {
                fitting.push(variant);
            }
        }
        match fitting.as_slice() {
            [only] => self.check(node, only, at),
            [] => self.report_no_variant(node, schema, variants, &words, &keyed, at),
            several => self.check_nearest(node, several, at),
        }
    }

    /// Reports a value that is of no variant. `words` are those of variants without a value, `keyed` those with a key.
    fn report_no_variant(
        &mut self,
        node: &YamlNode,
        schema: &'a Value,
        variants: &[&'a Value],
        words: &[&str],
        keyed: &[(&str, &'a Value)],
        at: ValueContext<'_>,
    ) {
        let title = schema.get("title").and_then(Value::as_str);
        match &node.data {
            YamlData::Map(_) if !keyed.is_empty() => {
                self.check_keyed_variant(node, keyed, schema, at)
            }
            YamlData::Text(text) if keyed.iter().any(|(name, _)| name == text) => {
                let message = format!("`{text}` needs a value");
                let hint = match title {
                    Some(_) => format!("write `{text}: ...`"),
                    None => format!("write `{{ {text}: ... }}`"),
                };
                self.fault(codes::BAD_VALUE, node.mark, at.path, message, Some(hint));
            }
            YamlData::Text(text) if title == Some(TRANSFORM_TITLE) => {
                let mut transforms: Vec<(&str, &Value)> = Vec::new();
                for (name, body) in keyed {
                    transforms.push((name, self.resolve(body)));
                }
                let hint = transform_text_hint(text, &transforms);
                let hint = hint.or_else(|| self.mismatch_hint(node, variants, at.path));
                self.report_wrong_type("a map", node, hint, at);
            }
            data if !words.is_empty() => {
                let mut known_words = words.to_vec();
                known_words.extend(keyed.iter().map(|(name, _)| *name));
                if let YamlData::Text(text) = data {
                    self.report_unknown_word(text, &known_words, node, at);
                } else {
                    let expected = format!("one of {}", quoted(&known_words));
                    self.report_wrong_type(&expected, node, None, at);
                }
            }
            _ => self.report_mismatch(node, variants, at),
        }
    }

    /// Checks a value by each of several variants; reports the faults of the first of those with the fewest.
    fn check_nearest(&mut self, node: &YamlNode, variants: &[&'a Value], at: ValueContext<'_>) {
        let mut nearest: Option<SchemaChecker<'a>> = None;
        for variant in variants {
            let mut quiet = SchemaChecker::new(self.root, self.file);
            quiet.check(node, variant, at);
            let is_nearer = |other: &SchemaChecker<'_>| quiet.faults.len() < other.faults.len();
            if nearest.as_ref().is_none_or(is_nearer) {
                nearest = Some(quiet);
            }
        }
        if let Some(nearest) = nearest {
            self.faults.extend(nearest.faults);
            self.sql.extend(nearest.sql);
        }
    }

    /// A map with one key that chooses.
    fn check_keyed_variant(
        &mut self,
        node: &YamlNode,
        keyed: &[(&str, &'a Value)],
        schema: &Value,
        at: ValueContext<'_>,
    ) {
        let title = schema.get("title").and_then(Value::as_str);
        let noun = title.unwrap_or("choice");
        let names: Vec<&str> = keyed.iter().map(|(name, _)| *name).collect();
        match node.entries() {
            [] => {
                let message = format!("{} names no {noun}", subject(at.path));
                self.fault(
                    codes::MISSING_FIELD,
                    at.key,
                    at.path,
                    message,
                    Some(suggest_words("", &names)),
                );
            }
            [(key, value)] => {
                let path = if at.path.is_empty() {
                    key.text.clone()
                } else {
                    format!("{}.{}", at.path, key.text)
                };
                match keyed.iter().find(|(name, _)| *name == key.text) {
                    Some((_, inner)) => self.check(
                        value,
                        inner,
                        ValueContext {
                            path: &path,
                            key: key.mark,
                        },
                    ),
                    None => {
                        let message = match title {
                            Some(noun) => format!("there is no {noun} `{}`", key.text),
                            None => format!("{} cannot be `{}`", subject(at.path), key.text),
                        };
                        let foreign = match title {
                            Some(TRANSFORM_TITLE) => other_tools::transform_hint(&key.text, &names),
                            _ => None,
                        };
                        let hint = foreign.unwrap_or_else(|| suggest_words(&key.text, &names));
                        self.fault(codes::UNKNOWN_NAME, key.mark, &path, message, Some(hint));
                    }
                }
            }
            [(first, value), (second, _), ..] if matches!(value.data, YamlData::Null) => {
                let message = format!(
                    "`{}` stands beside `{}`, not inside it",
                    second.text, first.text
                );
                let hint = Some(format!("indent the lines below `{}:` further", first.text));
                self.fault(codes::BAD_VALUE, second.mark, at.path, message, hint);
            }
            [(first, _), (second, _), ..] => {
                let message = format!(
                    "one {noun} is expected here, and there are `{}` and `{}`",
                    first.text, second.text
                );
                let hint = if at.path.ends_with(']') {
                    "give each its own item in the list: begin its line with `-`".to_owned()
                } else {
                    "keep one of them".to_owned()
                };
                self.fault(codes::BAD_VALUE, second.mark, at.path, message, Some(hint));
            }
        }
    }
}

/// Reports misspelt sections of the spec, and renames them to the intended ones, so that their
/// content and the references to it are checked.
pub(super) fn mend_sections(
    root: &mut YamlNode,
    sections: Option<&Value>,
    file: &str,
    faults: &mut Vec<Fault>,
) {
    let Some(sections) = sections.and_then(Value::as_object) else {
        return;
    };
    let keys: Vec<String> = root
        .entries()
        .iter()
        .map(|(key, _)| key.text.clone())
        .collect();
    let YamlData::Map(entries) = &mut root.data else {
        return;
    };
    let keys = NameIndex::new(keys.iter().map(String::as_str));
    let mut free: Vec<&str> = sections.keys().map(String::as_str).collect();
    free.retain(|name| !keys.contains(name));
    for (key, _) in entries
        .iter_mut()
        .filter(|(key, _)| !sections.contains_key(&key.text))
    {
        let Some(meant) = nearest_word(&key.text, free.iter().copied()) else {
            continue;
        };
        let fault = Fault::new(
            codes::UNKNOWN_FIELD,
            format!("the spec has no field `{}`", key.text),
        );
        let at = key.mark.location(file, &key.text);
        faults.push(fault.at(Some(&at)).hint(format!("did you mean `{meant}`?")));
        key.text = meant.to_owned();
    }
}

/// The variant that a map with one key selects among variants that are listed directly. It gives
/// the same result as [`SchemaChecker::check_variant`], which is slower with as many variants as
/// there are transforms.
fn select_keyed_variant<'n, 'a>(
    schema: &'a Value,
    node: &'n YamlNode,
) -> Option<(&'n YamlKey, &'n YamlNode, &'a Value)> {
    let [(key, value)] = node.entries() else {
        return None;
    };
    let variants = schema
        .get("oneOf")
        .or_else(|| schema.get("anyOf"))?
        .as_array()?;
    let inner = variants
        .iter()
        .filter_map(one_key)
        .find(|(name, _)| *name == key.text)?
        .1;
    schema
        .get("properties")
        .is_none()
        .then_some((key, value, inner))
}

/// True if fields may be declared elsewhere than among the properties.
pub(super) fn is_open(schema: &Value) -> bool {
    let others = ["allOf", "anyOf", "oneOf", "unevaluatedProperties"];
    exactly_one(schema).is_empty() && others.iter().any(|key| schema.get(key).is_some())
}

/// Keys of which exactly one must be given, if the schema requires that.
fn exactly_one(schema: &Value) -> Vec<&str> {
    let variants = schema.get("oneOf").and_then(Value::as_array);
    let keys = variants
        .into_iter()
        .flatten()
        .map(|variant| match variant.as_object() {
            Some(object) if object.len() == 1 => {
                variant.pointer("/required/0").and_then(Value::as_str)
            }
            _ => None,
        });
    keys.collect::<Option<Vec<_>>>().unwrap_or_default()
}

/// The words that a variant stands for.
fn unit_words(variant: &Value) -> Vec<&str> {
    let constant = variant.get("const").and_then(Value::as_str);
    let listed = variant
        .get("enum")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    constant.into_iter().chain(listed).collect()
}

/// A variant that is a map with one required key and no other.
fn one_key(variant: &Value) -> Option<(&str, &Value)> {
    let properties = variant.get("properties")?.as_object()?;
    let required = variant.get("required")?.as_array()?;
    match (properties.iter().next(), required.as_slice()) {
        (Some((name, schema)), [only]) if properties.len() == 1 && only.as_str() == Some(name) => {
            (schema.get("const").is_none()).then_some((name.as_str(), schema))
        }
        _ => None,
    }
}

fn schema_types(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(name)) => vec![name.as_str()],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn type_accepts_node(schema: &Value, node: &YamlNode) -> bool {
    let types = schema_types(schema);
    types.is_empty()
        || types.iter().any(|name| match &node.data {
            YamlData::Null => *name == "null",
            YamlData::Bool(_) => *name == "boolean",
            YamlData::Number(number) => {
                *name == "number" || (*name == "integer" && !number.is_f64())
            }
            YamlData::Text(_) => *name == "string",
            YamlData::List(_) => *name == "array",
            YamlData::Map(_) => *name == "object",
            YamlData::Wrong => true,
        })
}

fn display_json_value(value: &Value) -> String {
    match value {
        Value::String(text) => format!("`{text}`"),
        other => other.to_string(),
    }
}

/// Text of a value for a message; short values are unchanged.
fn describe_yaml_node(node: &YamlNode) -> String {
    match &node.data {
        YamlData::Null | YamlData::Wrong => "empty".to_owned(),
        YamlData::Bool(value) => value.to_string(),
        YamlData::Number(number) => number.to_string(),
        YamlData::Text(text) if text.chars().count() <= 40 => format!("the text `{text}`"),
        YamlData::Text(_) => "text".to_owned(),
        YamlData::List(_) => "a list".to_owned(),
        YamlData::Map(_) => "a map".to_owned(),
    }
}

/// True if a schema is the schema of lengths of time and rows.
fn is_length(schema: &Value) -> bool {
    schema_types(schema) == ["integer", "string"] && schema.get("pattern").is_some()
}

/// True if a value may be the begin of SQL text that a comma inside { } has cut: it is reported.
fn is_cut_sql(value: &YamlNode) -> bool {
    let text = value.text().unwrap_or_default();
    text.matches('(').count() > text.matches(')').count()
}

/// True if a key may be the end of SQL text that a comma inside { } has cut.
fn closes_sql(key: &str) -> bool {
    key.matches(')').count() > key.matches('(').count()
}

/// True if an unknown field is much like this one.
fn is_misspelt(field: &str, unknown: &[&str]) -> bool {
    unknown
        .iter()
        .any(|word| nearest_word(word, [field]).is_some())
}

/// Suggests the format that the ending of a path names, of some formats.
fn path_hint(path: &str, formats: &[&str]) -> Option<String> {
    let format = formats.iter().find(|format| path_ends_in(path, format))?;
    Some(format!("write `{format}: {{ path: {path} }}`"))
}

/// True if the name of a file has the ending of a format.
fn path_ends_in(path: &str, format: &str) -> bool {
    forebay_connectors::format_of_name(path) == Some(format)
}

/// The parts of `mean(qty)`.
fn call_parts(text: &str) -> Option<(&str, &str)> {
    let (function, column) = text.strip_suffix(')')?.split_once('(')?;
    let is_name = |text: &str| {
        !text.is_empty()
            && text
                .chars()
                .all(|letter| letter.is_alphanumeric() || letter == '_')
    };
    (is_name(function) && (is_name(column) || column == "*")).then_some((function, column))
}

/// True if a text looks like `key: value`.
fn is_entry(text: &str) -> bool {
    let is_name = |word: &str| {
        !word.is_empty()
            && word
                .chars()
                .all(|letter| letter.is_alphanumeric() || letter == '_')
    };
    text.split_once(": ")
        .is_some_and(|(key, value)| is_name(key) && !value.trim().is_empty())
}

fn last_name(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// Subject of a sentence about a value.
fn subject(path: &str) -> String {
    match last_name(path) {
        "" => "the spec".to_owned(),
        name => match name.split_once('[') {
            Some((list, _)) => format!("an item of `{list}`"),
            None => format!("`{name}`"),
        },
    }
}

/// Subject of a sentence about a map and its fields.
pub(super) fn describe_container(path: &str) -> String {
    let parts: Vec<&str> = path.split('.').collect();
    match parts.as_slice() {
        ["params", name] => format!("parameter `{name}`"),
        ["sources", name] => format!("source `{name}`"),
        ["steps", name] => format!("step `{name}`"),
        ["sinks", name] => format!("sink `{name}`"),
        _ => subject(path),
    }
}

pub(super) fn quoted(words: &[&str]) -> String {
    words
        .iter()
        .map(|word| format!("`{word}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Models of single series, which no training of trees holds.
const SERIES_MODELS: [&str; 4] = ["theta", "ets", "ensemble", "seasonal_naive"];

/// Models of features, which no ensemble of methods for single series holds.
const FEATURE_MODELS: [&str; 4] = ["gbdt", "linear", "logistic", "mlp"];

/// The remedy for a model that stands inside the training of another one; `None` for other words.
fn other_training_hint(path: &str, word: &str) -> Option<String> {
    if path.ends_with(".train.fallback") && SERIES_MODELS.contains(&word) {
        return Some(format!(
            "train it in a sink of its own, such as `{word}`, and name that sink in the forecast: \
             `predict: {{ ..., fallback: {word} }}`"
        ));
    }
    if path.contains(".train.of[") && FEATURE_MODELS.contains(&word) {
        return Some(
            "train each model in a sink of its own, and combine them in the forecast: \
             `predict: { ..., ensemble: { with: [...] } }`"
                .to_owned(),
        );
    }
    None
}

/// The nearest word, or all of them.
pub(super) fn suggest_words(word: &str, words: &[&str]) -> String {
    if let Some(meant) = synonym(word, words) {
        return format!("write `{meant}`");
    }
    match suggestion(word, words.iter().copied(), "") {
        Some(near) => near,
        None if words.is_empty() => "nothing may stand here".to_owned(),
        None if words.len() == 1 => format!("use {}", quoted(words)),
        None => format!("use one of {}", quoted(words)),
    }
}
