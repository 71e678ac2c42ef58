//! YAML as a tree in which every value and key knows its place.

use std::collections::BTreeMap;

use forebay_model::{
    Code, Fault, Location, SPEC_BYTES_MAX, SPEC_DEPTH_MAX, SPEC_NODES_MAX, SPEC_TEXT_BYTES_MAX, codes,
};
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span};
use serde_json::{Map, Number, Value};

/// A place in the text; lines and columns count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mark {
    pub line: usize,
    pub column: usize,
    pub width: usize,
}

impl Mark {
    /// Where a document begins.
    pub const START: Mark = Mark { line: 1, column: 1, width: 1 };

    pub fn location(self, file: &str, path: &str) -> Location {
        Location { file: file.to_owned(), line: self.line, column: self.column, width: self.width, path: path.into() }
    }
}

/// A key of a map.
#[derive(Debug, Clone)]
pub(super) struct Key {
    pub text: String,
    pub mark: Mark,
}

/// A value.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub data: Data,
    pub mark: Mark,
}

#[derive(Debug, Clone)]
pub(super) enum Data {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
    /// A value that has been reported as wrong already.
    Wrong,
}

impl Node {
    pub fn entries(&self) -> &[(Key, Node)] {
        if let Data::Map(entries) = &self.data { entries } else { &[] }
    }

    pub fn items(&self) -> &[Node] {
        if let Data::List(items) = &self.data { items } else { &[] }
    }

    pub fn text(&self) -> Option<&str> {
        if let Data::Text(text) = &self.data { Some(text) } else { None }
    }

    pub fn entry(&self, key: &str) -> Option<&(Key, Node)> {
        self.entries().iter().find(|(known, _)| known.text == key)
    }

    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|(_, node)| node)
    }

    /// Whether something inside has been reported as wrong.
    pub fn wrong(&self) -> bool {
        match &self.data {
            Data::Wrong => true,
            Data::List(items) => items.iter().any(Node::wrong),
            Data::Map(entries) => entries.iter().any(|(_, node)| node.wrong()),
            _ => false,
        }
    }

    pub fn value(&self) -> Value {
        match &self.data {
            Data::Null | Data::Wrong => Value::Null,
            Data::Bool(value) => Value::Bool(*value),
            Data::Number(number) => Value::Number(number.clone()),
            Data::Text(text) => Value::String(text.clone()),
            Data::List(items) => items.iter().map(Node::value).collect(),
            Data::Map(entries) => {
                Value::Object(entries.iter().map(|(key, node)| (key.text.clone(), node.value())).collect::<Map<_, _>>())
            }
        }
    }

    /// The value at a path such as `columns[1].name`, or the deepest one on the way to it. Gives
    /// the mark of its key where it has one.
    pub fn at_path(&self, path: &str) -> (Mark, String) {
        let (mut node, mut mark, mut found) = (self, self.mark, String::new());
        for part in path.split(['.', '[']).filter(|part| !part.is_empty()) {
            if let Some(index) = part.strip_suffix(']').and_then(|index| index.parse::<usize>().ok()) {
                let Some(item) = node.items().get(index) else { break };
                (node, mark) = (item, item.mark);
                found.push_str(&format!("[{index}]"));
            } else {
                let Some((_, value)) = node.entry(part) else { break };
                (node, mark) = (value, value.mark);
                found.push('.');
                found.push_str(part);
            }
        }
        (mark, found)
    }
}

/// Reads one document. Problems that leave the rest readable are added to `faults`.
pub(super) fn load(text: &str, file: &str, faults: &mut Vec<Fault>) -> Result<Node, Fault> {
    if text.len() > SPEC_BYTES_MAX {
        let message = format!("the spec has {} bytes, more than the limit of {SPEC_BYTES_MAX}", text.len());
        return Err(Fault::new(codes::LIMIT, message).at(Some(&Mark::START.location(file, ""))));
    }
    let lines = text.lines().collect();
    let mut loader = Loader {
        file,
        lines,
        faults,
        open: Vec::new(),
        anchors: BTreeMap::new(),
        size: Size::default(),
        root: None,
        documents: 0,
    };
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            let mark = loader.mark(*error.marker(), None);
            let reason = error.info().trim_end_matches('.');
            let fault = loader.fault(mark, format!("the YAML cannot be parsed: {reason}"));
            let line = loader.lines.get(mark.line - 1).copied().unwrap_or_default();
            if line.trim_start_matches(' ').starts_with('\t') {
                return fault.hint("indent with spaces, not with tabs");
            }
            match loader.bracket() {
                Some((bracket, line)) => fault.hint(format!("is the `{bracket}` in line {line} closed?")),
                None => fault,
            }
        })?;
        loader.event(event, span)?;
    }
    Ok(loader.root.unwrap_or(Node { data: Data::Map(Vec::new()), mark: Mark::START }))
}

struct Loader<'a> {
    file: &'a str,
    lines: Vec<&'a str>,
    faults: &'a mut Vec<Fault>,
    open: Vec<Open>,
    anchors: BTreeMap<usize, Anchored>,
    /// Of what was read so far, aliases expanded.
    size: Size,
    root: Option<Node>,
    documents: usize,
}

/// How much there is of something.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    nodes: usize,
    /// Of texts and keys.
    bytes: usize,
}

impl Size {
    /// One value with a text of so many bytes.
    fn one(bytes: usize) -> Size {
        Size { nodes: 1, bytes }
    }

    fn since(self, before: Size) -> Size {
        Size { nodes: self.nodes - before.nodes, bytes: self.bytes - before.bytes }
    }
}

/// A value that aliases can stand for.
#[derive(Debug)]
struct Anchored {
    node: Node,
    size: Size,
    depth: usize,
}

/// A list or map whose end has not come yet.
struct Open {
    start: Marker,
    anchor: usize,
    before: Size,
    /// Levels below this one.
    depth: usize,
    children: Children,
}

enum Children {
    List(Vec<Node>),
    Map { entries: Vec<(Key, Node)>, key: NextKey },
}

enum NextKey {
    Awaited,
    Read(Key),
    /// Reported; its value is left out.
    Refused,
}

impl Loader<'_> {
    fn mark(&self, start: Marker, end: Option<Marker>) -> Mark {
        let line = self.lines.get(start.line().saturating_sub(1)).copied().unwrap_or_default();
        let width = match end {
            Some(end) if end.line() == start.line() => end.col().saturating_sub(start.col()),
            Some(_) => line.trim_end().chars().count().saturating_sub(start.col()),
            None => 1,
        };
        Mark { line: start.line().max(1), column: start.col() + 1, width: width.max(1) }
    }

    /// The bracket inside which reading stands, and its line.
    fn bracket(&self) -> Option<(char, usize)> {
        let start = self.open.last()?.start;
        let bracket = self.lines.get(start.line().checked_sub(1)?)?.chars().nth(start.col())?;
        matches!(bracket, '[' | '{').then_some((bracket, start.line()))
    }

    /// The path of what is being read.
    fn path(&self) -> String {
        let mut path = String::new();
        for open in &self.open {
            match &open.children {
                Children::List(items) => path.push_str(&format!("[{}]", items.len())),
                Children::Map { key: NextKey::Read(key), .. } if path.is_empty() => path.push_str(&key.text),
                Children::Map { key: NextKey::Read(key), .. } => path.push_str(&format!(".{}", key.text)),
                Children::Map { .. } => {}
            }
        }
        path
    }

    fn fault(&self, mark: Mark, message: impl Into<String>) -> Fault {
        self.coded(codes::SYNTAX, mark, message)
    }

    fn coded(&self, code: Code, mark: Mark, message: impl Into<String>) -> Fault {
        Fault::new(code, message).at(Some(&mark.location(self.file, &self.path())))
    }

    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Fault> {
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
                let before = self.size;
                self.count(Size::one(text.len()), mark)?;
                let data = if matches!(style, ScalarStyle::Plain) {
                    self.plain(&text, mark)
                } else {
                    Data::Text(text.into_owned())
                };
                self.complete(Node { data, mark }, anchor, before, 0)
            }
            Event::SequenceStart(anchor, tag) | Event::MappingStart(anchor, tag) if tag.is_some() => {
                let _ = anchor;
                Err(self.fault(mark, "tags have no meaning in a spec").hint("remove the tag"))
            }
            Event::SequenceStart(anchor, _) => self.begin(span.start, anchor, Children::List(Vec::new()), mark),
            Event::MappingStart(anchor, _) => {
                self.begin(span.start, anchor, Children::Map { entries: Vec::new(), key: NextKey::Awaited }, mark)
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else { return Ok(()) };
                let mark = self.mark(open.start, Some(span.end));
                let data = match open.children {
                    Children::List(items) => Data::List(items),
                    Children::Map { entries, .. } => Data::Map(entries),
                };
                self.complete(Node { data, mark }, open.anchor, open.before, open.depth + 1)
            }
            Event::Alias(anchor) => {
                let Some((size, depth)) = self.anchors.get(&anchor).map(|known| (known.size, known.depth)) else {
                    return Err(self.fault(mark, "this alias stands inside of what it refers to"));
                };
                // Counted before it is copied.
                self.count(size, mark)?;
                self.deep(self.open.len() + depth, mark)?;
                let Some(node) = self.anchors.get(&anchor).map(|known| Node { mark, ..known.node.clone() }) else {
                    return Err(self.fault(mark, "this alias refers to nothing"));
                };
                self.complete(node, 0, self.size, depth)
            }
        }
    }

    fn begin(&mut self, start: Marker, anchor: usize, children: Children, mark: Mark) -> Result<(), Fault> {
        let before = self.size;
        self.count(Size::one(0), mark)?;
        self.deep(self.open.len() + 1, mark)?;
        self.open.push(Open { start, anchor, before, depth: 0, children });
        Ok(())
    }

    fn count(&mut self, more: Size, mark: Mark) -> Result<(), Fault> {
        self.size.nodes = self.size.nodes.saturating_add(more.nodes);
        self.size.bytes = self.size.bytes.saturating_add(more.bytes);
        let message = if self.size.nodes > SPEC_NODES_MAX {
            format!("the spec has more than {SPEC_NODES_MAX} values, aliases expanded")
        } else if self.size.bytes > SPEC_TEXT_BYTES_MAX {
            format!("the spec has more than {SPEC_TEXT_BYTES_MAX} bytes of text, aliases expanded")
        } else {
            return Ok(());
        };
        Err(self.coded(codes::LIMIT, mark, message).hint("write out what is meant, with fewer aliases"))
    }

    fn deep(&self, depth: usize, mark: Mark) -> Result<(), Fault> {
        if depth <= SPEC_DEPTH_MAX {
            return Ok(());
        }
        let message = format!("more than {SPEC_DEPTH_MAX} maps and lists stand inside each other");
        Err(self.coded(codes::LIMIT, mark, message))
    }

    fn refuse_tag(&mut self, mark: Mark) {
        let fault = self.fault(mark, "tags have no meaning in a spec");
        self.faults.push(fault.hint("remove the tag; quote text that looks like a number"));
    }

    /// Puts a finished value where it belongs.
    fn complete(&mut self, node: Node, anchor: usize, before: Size, depth: usize) -> Result<(), Fault> {
        if anchor != 0 {
            // What is kept for aliases takes as much again.
            let size = self.size.since(before);
            self.count(size, node.mark)?;
            self.anchors.insert(anchor, Anchored { node: node.clone(), size, depth });
        }
        let (file, path) = (self.file, self.path());
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        open.depth = open.depth.max(depth);
        match &mut open.children {
            Children::List(items) => items.push(node),
            Children::Map { entries, key } => match std::mem::replace(key, NextKey::Awaited) {
                NextKey::Awaited => {
                    let (accepted, fault) = as_key(node, entries, |mark| mark.location(file, &path));
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
    fn plain(&mut self, text: &str, mark: Mark) -> Data {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => return Data::Null,
            "true" | "True" | "TRUE" => return Data::Bool(true),
            "false" | "False" | "FALSE" => return Data::Bool(false),
            _ => {}
        }
        if let Some(value) = special_float(text) {
            let message = format!("`{text}` is {value}, which has no meaning in a spec");
            let fault = self.coded(codes::BAD_VALUE, mark, message);
            self.faults.push(fault);
            return Data::Wrong;
        }
        match number(text) {
            Parsed::Text => Data::Text(text.to_owned()),
            Parsed::Number(number) => Data::Number(number),
            Parsed::TooLarge => {
                let fault = self.coded(codes::BAD_VALUE, mark, format!("`{text}` is too large for a number"));
                self.faults.push(fault.hint(format!("quote it where it is meant as text: \"{text}\"")));
                Data::Wrong
            }
        }
    }
}

fn as_key(node: Node, entries: &[(Key, Node)], place: impl Fn(Mark) -> Location) -> (NextKey, Option<Fault>) {
    let fault = |code, message: String| Fault::new(code, message).at(Some(&place(node.mark)));
    let text = match &node.data {
        Data::Text(text) => text,
        Data::List(_) | Data::Map(_) => {
            return (NextKey::Refused, Some(fault(codes::SYNTAX, "a key must be text".into())));
        }
        other => {
            let text = match other {
                Data::Bool(value) => value.to_string(),
                Data::Number(number) => number.to_string(),
                _ => "null".into(),
            };
            let fault = fault(codes::SYNTAX, format!("a key must be text, and `{text}` is not"));
            return (NextKey::Refused, Some(fault.hint(format!("quote it: \"{text}\""))));
        }
    };
    if text == "<<" {
        let fault = fault(codes::UNSUPPORTED, "merge keys are not part of YAML 1.2".into());
        return (NextKey::Refused, Some(fault.hint("write the fields out")));
    }
    if let Some((first, _)) = entries.iter().find(|(key, _)| key.text == *text) {
        let message = format!("`{text}` is given twice in the same map");
        let fault = fault(codes::DUPLICATE, message).note(format!("it is first given in line {}", first.mark.line));
        return (NextKey::Refused, Some(fault));
    }
    (NextKey::Read(Key { text: text.clone(), mark: node.mark }), None)
}

enum Parsed {
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

fn number(text: &str) -> Parsed {
    let (digits, radix) = match text.get(..2) {
        Some("0x") => (&text[2..], 16),
        Some("0o") => (&text[2..], 8),
        _ => (text.trim_start_matches(['+', '-']), 10),
    };
    if text.len() - digits.len() > 1 && radix == 10 {
        return Parsed::Text;
    }
    if !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix)) {
        let signed = if radix == 10 { text.trim_start_matches('+') } else { digits };
        return match (i64::from_str_radix(signed, radix), u64::from_str_radix(signed, radix)) {
            (Ok(number), _) => Parsed::Number(number.into()),
            (_, Ok(number)) => Parsed::Number(number.into()),
            _ => Parsed::TooLarge,
        };
    }
    if radix != 10 || !looks_like_float(digits) {
        return Parsed::Text;
    }
    match text.parse::<f64>().ok().and_then(Number::from_f64) {
        Some(number) => Parsed::Number(number),
        None => Parsed::TooLarge,
    }
}

/// `.5`, `1.`, `1.5e-3`, `1e3`: digits with a point or an exponent.
fn looks_like_float(text: &str) -> bool {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (text, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    digits(whole)
        && digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|exponent| !exponent.is_empty() && digits(exponent))
}
