//! YAML as a tree in which every value and key knows its place.

use std::collections::{BTreeMap, HashMap};

use forebay_model::{
    Fault, FaultCode, SPEC_BYTES_MAX, SPEC_DEPTH_MAX, SPEC_NODES_MAX, SPEC_TEXT_BYTES_MAX,
    SpecLocation, codes,
};
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span};
use serde_json::{Map, Number, Value};

use super::yaml_hints;

/// A place in the text; lines and columns count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TextPosition {
    pub line: usize,
    pub column: usize,
    pub width: usize,
}

impl TextPosition {
    /// Begin of a document.
    pub const START: TextPosition = TextPosition {
        line: 1,
        column: 1,
        width: 1,
    };

    pub fn location(self, file: &str, path: &str) -> SpecLocation {
        SpecLocation {
            file: file.to_owned(),
            line: self.line,
            column: self.column,
            width: self.width,
            path: path.into(),
        }
    }
}

/// A key of a map.
#[derive(Debug, Clone)]
pub(super) struct YamlKey {
    pub text: String,
    pub mark: TextPosition,
}

/// A value.
#[derive(Debug, Clone)]
pub(super) struct YamlNode {
    pub data: YamlData,
    pub mark: TextPosition,
}

#[derive(Debug, Clone)]
pub(super) enum YamlData {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<YamlNode>),
    Map(Vec<(YamlKey, YamlNode)>),
    /// A value that has been reported as wrong already.
    Wrong,
}

impl YamlNode {
    /// The entries of a section of the spec; none where it is left out.
    pub fn section(&self, key: &str) -> &[(YamlKey, YamlNode)] {
        self.get(key).map(YamlNode::entries).unwrap_or_default()
    }

    pub fn entries(&self) -> &[(YamlKey, YamlNode)] {
        if let YamlData::Map(entries) = &self.data {
            entries
        } else {
            &[]
        }
    }

    pub fn items(&self) -> &[YamlNode] {
        if let YamlData::List(items) = &self.data {
            items
        } else {
            &[]
        }
    }

    pub fn text(&self) -> Option<&str> {
        if let YamlData::Text(text) = &self.data {
            Some(text)
        } else {
            None
        }
    }

    pub fn entry(&self, key: &str) -> Option<&(YamlKey, YamlNode)> {
        self.entries()
            .iter()
            .find(|(entry_key, _)| entry_key.text == key)
    }

    pub fn get(&self, key: &str) -> Option<&YamlNode> {
        self.entry(key).map(|(_, node)| node)
    }

    /// True if a part of it has been reported as wrong.
    pub fn wrong(&self) -> bool {
        match &self.data {
            YamlData::Wrong => true,
            YamlData::List(items) => items.iter().any(YamlNode::wrong),
            YamlData::Map(entries) => entries.iter().any(|(_, node)| node.wrong()),
            _ => false,
        }
    }

    pub fn value(&self) -> Value {
        match &self.data {
            YamlData::Null | YamlData::Wrong => Value::Null,
            YamlData::Bool(value) => Value::Bool(*value),
            YamlData::Number(number) => Value::Number(number.clone()),
            YamlData::Text(text) => Value::String(text.clone()),
            YamlData::List(items) => items.iter().map(YamlNode::value).collect(),
            YamlData::Map(entries) => Value::Object(
                entries
                    .iter()
                    .map(|(key, node)| (key.text.clone(), node.value()))
                    .collect::<Map<_, _>>(),
            ),
        }
    }

    /// The value at a path such as `columns[1].name`, or the deepest one on the way to it. Returns
    /// the mark of its key if it has one.
    pub fn at_path(&self, path: &str) -> (TextPosition, String) {
        let mut node = self;
        let mut mark = self.mark;
        let mut reached = String::new();
        for part in path.split(['.', '[']).filter(|part| !part.is_empty()) {
            if let Some(index) = part
                .strip_suffix(']')
                .and_then(|index| index.parse::<usize>().ok())
            {
                let Some(item) = node.items().get(index) else {
                    break;
                };
                (node, mark) = (item, item.mark);
                reached.push_str(&format!("[{index}]"));
            } else {
                let Some((_, value)) = node.entry(part) else {
                    break;
                };
                (node, mark) = (value, value.mark);
                reached.push('.');
                reached.push_str(part);
            }
        }
        (mark, reached)
    }
}

/// Reads one document. Problems that leave the rest readable are added to `faults`.
pub(super) fn load(text: &str, file: &str, faults: &mut Vec<Fault>) -> Result<YamlNode, Fault> {
    if text.len() > SPEC_BYTES_MAX {
        let message = format!(
            "the spec has {} bytes, more than the limit of {SPEC_BYTES_MAX}",
            text.len()
        );
        return Err(
            Fault::new(codes::LIMIT, message).at(Some(&TextPosition::START.location(file, "")))
        );
    }
    let lines = text.lines().collect();
    let mut loader = YamlLoader {
        file,
        lines,
        faults,
        open: Vec::new(),
        anchors: BTreeMap::new(),
        size: TreeSize::default(),
        root: None,
        documents: 0,
    };
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            let mark = loader.mark(*error.marker(), None);
            let problem =
                yaml_hints::explain(&loader.lines, mark.line, error.info(), loader.bracket());
            let mark = problem.place.map_or(mark, |(line, column)| TextPosition {
                line,
                column,
                width: 1,
            });
            let fault = loader.fault(mark, problem.message);
            match problem.hint {
                Some(hint) => fault.hint(hint),
                None => fault,
            }
        })?;
        loader.handle_yaml_event(event, span)?;
    }
    loader.root.ok_or_else(|| {
        let fault = Fault::new(codes::SYNTAX, "the spec is empty")
            .at(Some(&TextPosition::START.location(file, "")));
        fault.hint(
            "begin with `version: 1`, `name:` and `sources:`, or let `forebay new DATA` \
             write a first spec",
        )
    })
}

struct YamlLoader<'a> {
    file: &'a str,
    lines: Vec<&'a str>,
    faults: &'a mut Vec<Fault>,
    open: Vec<OpenContainer>,
    anchors: BTreeMap<usize, AnchoredNode>,
    /// Size of the nodes read so far, aliases expanded.
    size: TreeSize,
    root: Option<YamlNode>,
    documents: usize,
}

/// Size of a tree.
#[derive(Debug, Clone, Copy, Default)]
struct TreeSize {
    nodes: usize,
    /// Bytes of texts and keys.
    bytes: usize,
}

impl TreeSize {
    /// Size of one value with a text of `bytes` bytes.
    fn of_node(bytes: usize) -> TreeSize {
        TreeSize { nodes: 1, bytes }
    }

    fn since(self, earlier: TreeSize) -> TreeSize {
        TreeSize {
            nodes: self.nodes - earlier.nodes,
            bytes: self.bytes - earlier.bytes,
        }
    }
}

/// Value that aliases refer to.
#[derive(Debug)]
struct AnchoredNode {
    node: YamlNode,
    size: TreeSize,
    depth: usize,
}

/// A list or map whose end has not come yet.
struct OpenContainer {
    start: Marker,
    anchor: usize,
    before: TreeSize,
    /// Levels below this one.
    depth: usize,
    children: ContainerItems,
}

enum ContainerItems {
    List(Vec<YamlNode>),
    Map {
        entries: Vec<(YamlKey, YamlNode)>,
        /// The places of all keys so far.
        key_marks: HashMap<String, TextPosition>,
        key: NextKey,
    },
}

enum NextKey {
    Awaited,
    Read(YamlKey),
    /// Reported; its value is left out.
    Refused,
}

impl YamlLoader<'_> {
    fn mark(&self, start: Marker, end: Option<Marker>) -> TextPosition {
        let line = self
            .lines
            .get(start.line().saturating_sub(1))
            .copied()
            .unwrap_or_default();
        let width = match end {
            Some(end) if end.line() == start.line() => end.col().saturating_sub(start.col()),
            Some(_) => line.trim_end().chars().count().saturating_sub(start.col()),
            None => 1,
        };
        TextPosition {
            line: start.line().max(1),
            column: start.col() + 1,
            width: width.max(1),
        }
    }

    /// The bracket inside which reading stands, and its line.
    fn bracket(&self) -> Option<(char, usize)> {
        let start = self.open.last()?.start;
        let bracket = self
            .lines
            .get(start.line().checked_sub(1)?)?
            .chars()
            .nth(start.col())?;
        matches!(bracket, '[' | '{').then_some((bracket, start.line()))
    }

    /// Path of the current value.
    fn path(&self) -> String {
        let mut path = String::new();
        for open in &self.open {
            match &open.children {
                ContainerItems::List(items) => path.push_str(&format!("[{}]", items.len())),
                ContainerItems::Map {
                    key: NextKey::Read(key),
                    ..
                } if path.is_empty() => path.push_str(&key.text),
                ContainerItems::Map {
                    key: NextKey::Read(key),
                    ..
                } => path.push_str(&format!(".{}", key.text)),
                ContainerItems::Map { .. } => {}
            }
        }
        path
    }

    fn fault(&self, mark: TextPosition, message: impl Into<String>) -> Fault {
        self.fault_with_code(codes::SYNTAX, mark, message)
    }

    fn fault_with_code(
        &self,
        code: FaultCode,
        mark: TextPosition,
        message: impl Into<String>,
    ) -> Fault {
        Fault::new(code, message).at(Some(&mark.location(self.file, &self.path())))
    }

    fn handle_yaml_event(&mut self, event: Event<'_>, span: Span) -> Result<(), Fault> {
        let mark = self.mark(span.start, Some(span.end));
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => {
                self.documents += 1;
                match self.documents {
                    1 => Ok(()),
                    _ => Err(self
                        .fault(mark, "a second document begins here")
                        .hint("one file holds one spec: remove the `---`")),
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                if tag.is_some() {
                    self.refuse_tag(mark);
                }
                let size_before = self.size;
                self.add_size(TreeSize::of_node(text.len()), mark)?;
                let data = if matches!(style, ScalarStyle::Plain) {
                    self.plain_scalar(&text, mark)
                } else {
                    YamlData::Text(text.into_owned())
                };
                self.finish_node(YamlNode { data, mark }, anchor, size_before, 0)
            }
            Event::SequenceStart(anchor, tag) | Event::MappingStart(anchor, tag)
                if tag.is_some() =>
            {
                let _ = anchor;
                Err(self
                    .fault(mark, "tags have no meaning in a spec")
                    .hint("remove the tag"))
            }
            Event::SequenceStart(anchor, _) => {
                self.begin_container(span.start, anchor, ContainerItems::List(Vec::new()), mark)
            }
            Event::MappingStart(anchor, _) => self.begin_container(
                span.start,
                anchor,
                ContainerItems::Map {
                    entries: Vec::new(),
                    key_marks: HashMap::new(),
                    key: NextKey::Awaited,
                },
                mark,
            ),
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else {
                    return Ok(());
                };
                let mark = self.mark(open.start, Some(span.end));
                let data = match open.children {
                    ContainerItems::List(items) => YamlData::List(items),
                    ContainerItems::Map { entries, .. } => YamlData::Map(entries),
                };
                self.finish_node(
                    YamlNode { data, mark },
                    open.anchor,
                    open.before,
                    open.depth + 1,
                )
            }
            Event::Alias(anchor) => {
                let Some((size, depth)) = self
                    .anchors
                    .get(&anchor)
                    .map(|anchored| (anchored.size, anchored.depth))
                else {
                    return Err(self.fault(mark, "this alias stands inside of what it refers to"));
                };
                // Counted before it is copied.
                self.add_size(size, mark)?;
                self.check_depth(self.open.len() + depth, mark)?;
                let Some(node) = self.anchors.get(&anchor).map(|anchored| YamlNode {
                    mark,
                    ..anchored.node.clone()
                }) else {
                    return Err(self.fault(mark, "this alias refers to nothing"));
                };
                self.finish_node(node, 0, self.size, depth)
            }
        }
    }

    fn begin_container(
        &mut self,
        start: Marker,
        anchor: usize,
        children: ContainerItems,
        mark: TextPosition,
    ) -> Result<(), Fault> {
        let size_before = self.size;
        self.add_size(TreeSize::of_node(0), mark)?;
        self.check_depth(self.open.len() + 1, mark)?;
        self.open.push(OpenContainer {
            start,
            anchor,
            before: size_before,
            depth: 0,
            children,
        });
        Ok(())
    }

    fn add_size(&mut self, added: TreeSize, mark: TextPosition) -> Result<(), Fault> {
        self.size.nodes = self.size.nodes.saturating_add(added.nodes);
        self.size.bytes = self.size.bytes.saturating_add(added.bytes);
        let message = if self.size.nodes > SPEC_NODES_MAX {
            format!("the spec has more than {SPEC_NODES_MAX} values, aliases expanded")
        } else if self.size.bytes > SPEC_TEXT_BYTES_MAX {
            format!("the spec has more than {SPEC_TEXT_BYTES_MAX} bytes of text, aliases expanded")
        } else {
            return Ok(());
        };
        Err(self
            .fault_with_code(codes::LIMIT, mark, message)
            .hint("write out what is meant, with fewer aliases"))
    }

    fn check_depth(&self, depth: usize, mark: TextPosition) -> Result<(), Fault> {
        if depth <= SPEC_DEPTH_MAX {
            return Ok(());
        }
        let message = format!("more than {SPEC_DEPTH_MAX} maps and lists stand inside each other");
        Err(self.fault_with_code(codes::LIMIT, mark, message))
    }

    fn refuse_tag(&mut self, mark: TextPosition) {
        let fault = self.fault(mark, "tags have no meaning in a spec");
        self.faults
            .push(fault.hint("remove the tag; quote text that looks like a number"));
    }

    /// Adds a finished value to its parent.
    fn finish_node(
        &mut self,
        node: YamlNode,
        anchor: usize,
        size_before: TreeSize,
        depth: usize,
    ) -> Result<(), Fault> {
        if anchor != 0 {
            // What is kept for aliases takes as much again.
            let size = self.size.since(size_before);
            self.add_size(size, node.mark)?;
            self.anchors.insert(
                anchor,
                AnchoredNode {
                    node: node.clone(),
                    size,
                    depth,
                },
            );
        }
        let file = self.file;
        let path = self.path();
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        open.depth = open.depth.max(depth);
        match &mut open.children {
            ContainerItems::List(items) => items.push(node),
            ContainerItems::Map {
                entries,
                key_marks,
                key,
            } => match std::mem::replace(key, NextKey::Awaited) {
                NextKey::Awaited => {
                    let (accepted, fault) =
                        as_key(node, key_marks, |mark| mark.location(file, &path));
                    *key = accepted;
                    self.faults.extend(fault);
                }
                NextKey::Read(key) => entries.push((key, node)),
                NextKey::Refused => {}
            },
        }
        Ok(())
    }

    /// YAML 1.2's core schema.
    fn plain_scalar(&mut self, text: &str, mark: TextPosition) -> YamlData {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => return YamlData::Null,
            "true" | "True" | "TRUE" => return YamlData::Bool(true),
            "false" | "False" | "FALSE" => return YamlData::Bool(false),
            _ => {}
        }
        if let Some(value) = special_float(text) {
            let message = format!("`{text}` is {value}, which has no meaning in a spec");
            let fault = self.fault_with_code(codes::BAD_VALUE, mark, message);
            self.faults.push(fault);
            return YamlData::Wrong;
        }
        match parse_yaml_number(text) {
            ParsedNumber::Text => YamlData::Text(text.to_owned()),
            ParsedNumber::Number(number) => YamlData::Number(number),
            ParsedNumber::TooLarge => {
                let fault = self.fault_with_code(
                    codes::BAD_VALUE,
                    mark,
                    format!("`{text}` is too large for a number"),
                );
                self.faults
                    .push(fault.hint(format!("quote it where it is meant as text: \"{text}\"")));
                YamlData::Wrong
            }
        }
    }
}

fn as_key(
    node: YamlNode,
    key_marks: &mut HashMap<String, TextPosition>,
    locate: impl Fn(TextPosition) -> SpecLocation,
) -> (NextKey, Option<Fault>) {
    let fault = |code, message: String| Fault::new(code, message).at(Some(&locate(node.mark)));
    let text = match &node.data {
        YamlData::Text(text) => text,
        YamlData::List(_) | YamlData::Map(_) => {
            return (
                NextKey::Refused,
                Some(fault(codes::SYNTAX, "a key must be text".into())),
            );
        }
        other => {
            let text = match other {
                YamlData::Bool(value) => value.to_string(),
                YamlData::Number(number) => number.to_string(),
                _ => "null".into(),
            };
            let fault = fault(
                codes::SYNTAX,
                format!("a key must be text, and `{text}` is not"),
            );
            return (
                NextKey::Refused,
                Some(fault.hint(format!("quote it: \"{text}\""))),
            );
        }
    };
    if text == "<<" {
        let fault = fault(
            codes::UNSUPPORTED,
            "merge keys are not part of YAML 1.2".into(),
        );
        return (NextKey::Refused, Some(fault.hint("write the fields out")));
    }
    if let Some(first) = key_marks.get(text) {
        let message = format!("`{text}` is given twice in the same map");
        let fault = fault(codes::DUPLICATE, message)
            .related("it is first given here", Some(&locate(*first)));
        return (NextKey::Refused, Some(fault));
    }
    key_marks.insert(text.clone(), node.mark);
    (
        NextKey::Read(YamlKey {
            text: text.clone(),
            mark: node.mark,
        }),
        None,
    )
}

enum ParsedNumber {
    Text,
    Number(Number),
    TooLarge,
}

fn special_float(text: &str) -> Option<&'static str> {
    match text.trim_start_matches(['+', '-']) {
        ".inf" | ".Inf" | ".INF" => Some("infinite"),
        ".nan" | ".NaN" | ".NAN" => Some("not a number"),
        _ => None,
    }
}

fn parse_yaml_number(text: &str) -> ParsedNumber {
    let (digits, radix) = match text.get(..2) {
        Some("0x") => (&text[2..], 16),
        Some("0o") => (&text[2..], 8),
        _ => (text.trim_start_matches(['+', '-']), 10),
    };
    if text.len() - digits.len() > 1 && radix == 10 {
        return ParsedNumber::Text;
    }
    if !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix)) {
        let signed = if radix == 10 {
            text.trim_start_matches('+')
        } else {
            digits
        };
        return match (
            i64::from_str_radix(signed, radix),
            u64::from_str_radix(signed, radix),
        ) {
            (Ok(number), _) => ParsedNumber::Number(number.into()),
            (_, Ok(number)) => ParsedNumber::Number(number.into()),
            _ => ParsedNumber::TooLarge,
        };
    }
    if radix != 10 || !looks_like_float(digits) {
        return ParsedNumber::Text;
    }
    match text.parse::<f64>().ok().and_then(Number::from_f64) {
        Some(number) => ParsedNumber::Number(number),
        None => ParsedNumber::TooLarge,
    }
}

/// `.5`, `1.`, `1.5e-3`, `1e3`: digits with a point or an exponent.
fn looks_like_float(text: &str) -> bool {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (
            mantissa,
            Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)),
        ),
        None => (text, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    digits(whole)
        && digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|exponent| !exponent.is_empty() && digits(exponent))
}
