//! What discovery keeps of files, so that it need not read their footers again.

use std::collections::HashMap;
use std::io::Cursor;
use std::time::SystemTime;

use arrow::datatypes::{Fields, Schema};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use forebay_model::{Decoder, Encoder, Extent, Fault, Id, Point, Result, codes};

use crate::files::cut::Group;
use crate::files::stamp::{Node, Stamp};

/// The version of these bytes.
const VERSION: u64 = 3;

/// Kinds of extents: 0 is none, and two more tell that there may be nulls.
const INTEGERS: u64 = 1;
const TEXTS: u64 = 2;

/// Texts, columns and row groups at most: lengths are checked before they are believed.
const LENGTH_MAX: usize = 1 << 24;

/// What a footer tells of a file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Facts {
    /// The file as listings tell it.
    pub(super) listed: Stamp,
    /// The file as it was when its footer was read.
    pub(super) opened: Stamp,
    /// The id of the footer's bytes.
    pub(super) footer: Id,
    pub(super) fields: Fields,
    /// Stored bytes per column of `fields`.
    pub(super) bytes: Vec<u64>,
    pub(super) groups: Vec<Group>,
}

/// The facts of files by their paths. What cannot be read is not there.
pub(super) fn decode(notes: Option<&[u8]>) -> HashMap<String, Facts> {
    notes.and_then(|mut notes| decoded(&mut Decoder(&mut notes)).ok()).unwrap_or_default()
}

/// The notes of some files. A file that may still be changing under the same stamp is left out.
pub(super) fn encode<'f>(files: impl Iterator<Item = (&'f str, &'f Facts)>, now: SystemTime) -> Result<Vec<u8>> {
    let files: Vec<_> = files.filter(|(_, facts)| facts.is_settled(now)).collect();
    let mut schemas: Vec<&Fields> = Vec::new();
    for (_, facts) in &files {
        if !schemas.contains(&&facts.fields) {
            schemas.push(&facts.fields);
        }
    }
    let mut notes = Vec::new();
    let mut out = Encoder(&mut notes);
    out.varint(VERSION)?;
    out.varint(schemas.len() as u64)?;
    for fields in &schemas {
        let mut message = Vec::new();
        StreamWriter::try_new(&mut message, &Schema::new((*fields).clone()))?.finish()?;
        out.bytes(&message)?;
    }
    out.varint(files.len() as u64)?;
    for (path, facts) in files {
        out.bytes(path.as_bytes())?;
        for stamp in [&facts.listed, &facts.opened] {
            out.varint(stamp.size)?;
            out.bytes(stamp.version.as_bytes())?;
            out.varint(u64::from(stamp.strong))?;
            out.varint(u64::from(stamp.node.is_some()))?;
            if let Some(node) = stamp.node {
                out.u64(node.inode)?;
                out.u64(node.changed as u64)?;
            }
        }
        out.bytes(facts.footer.to_string().as_bytes())?;
        out.varint(schemas.iter().position(|fields| **fields == facts.fields).unwrap_or_default() as u64)?;
        facts.bytes.iter().try_for_each(|bytes| out.varint(*bytes))?;
        out.varint(facts.groups.len() as u64)?;
        for group in &facts.groups {
            out.varint(group.rows)?;
            out.varint(group.bytes)?;
            out.varint(group.extents.len() as u64)?;
            for extent in &group.extents {
                match extent {
                    None => out.varint(0)?,
                    Some(Extent { min: Point::Int(min), max: Point::Int(max), nulls }) => {
                        out.varint(INTEGERS + 2 * u64::from(*nulls))?;
                        out.u64(*min as u64)?;
                        out.u64(*max as u64)?;
                    }
                    Some(Extent { min: Point::Text(min), max: Point::Text(max), nulls }) => {
                        out.varint(TEXTS + 2 * u64::from(*nulls))?;
                        out.bytes(min.as_bytes())?;
                        out.bytes(max.as_bytes())?;
                    }
                    Some(_) => return Err(Fault::internal("an extent of two kinds")),
                }
            }
        }
    }
    Ok(notes)
}

fn decoded(notes: &mut Decoder<'_>) -> Result<HashMap<String, Facts>> {
    let broken = || Fault::new(codes::CORRUPT, "notes cannot be read");
    if notes.varint()? != VERSION {
        return Err(broken());
    }
    let mut schemas = Vec::new();
    for _ in 0..notes.length(LENGTH_MAX)? {
        let message = notes.bytes(LENGTH_MAX)?;
        schemas.push(StreamReader::try_new(Cursor::new(message), None)?.schema().fields().clone());
    }
    let mut files = HashMap::new();
    for _ in 0..notes.length(LENGTH_MAX)? {
        let path = text(notes)?;
        let (listed, opened) = (stamp(notes)?, stamp(notes)?);
        let footer = Id::parse(&text(notes)?).ok_or_else(broken)?;
        let fields: Fields = schemas.get(notes.length(LENGTH_MAX)?).ok_or_else(broken)?.clone();
        let bytes = fields.iter().map(|_| notes.varint()).collect::<Result<_>>()?;
        let mut groups = Vec::new();
        for _ in 0..notes.length(LENGTH_MAX)? {
            let (rows, bytes) = (notes.varint()?, notes.varint()?);
            let extents = (0..notes.length(LENGTH_MAX)?).map(|_| extent(notes)).collect::<Result<_>>()?;
            groups.push(Group { rows, bytes, extents });
        }
        files.insert(path, Facts { listed, opened, footer, fields, bytes, groups });
    }
    Ok(files)
}

fn text(notes: &mut Decoder<'_>) -> Result<String> {
    String::from_utf8(notes.bytes(LENGTH_MAX)?).map_err(|error| Fault::new(codes::CORRUPT, "no text").cause(error))
}

fn stamp(notes: &mut Decoder<'_>) -> Result<Stamp> {
    let (size, version, strong) = (notes.varint()?, text(notes)?, notes.varint()? == 1);
    let node = match notes.varint()? {
        0 => None,
        _ => Some(Node { inode: notes.u64()?, changed: notes.u64()? as i64 }),
    };
    Ok(Stamp { size, version, strong, node })
}

fn extent(notes: &mut Decoder<'_>) -> Result<Option<Extent>> {
    let kind = notes.varint()?;
    if kind == 0 {
        return Ok(None);
    }
    let (min, max) = match kind % 2 == INTEGERS {
        true => (Point::Int(notes.u64()? as i64), Point::Int(notes.u64()? as i64)),
        false => (Point::Text(text(notes)?), Point::Text(text(notes)?)),
    };
    Ok(Some(Extent { min, max, nulls: kind > TEXTS }))
}

impl Facts {
    fn is_settled(&self, now: SystemTime) -> bool {
        self.listed.is_settled(now) && self.opened.is_settled(now)
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, TimeUnit};

    use super::*;

    fn facts(version: &str, strong: bool) -> Facts {
        let node = (!strong).then_some(Node { inode: 7, changed: -1 });
        let stamp = Stamp { size: 1000, version: version.to_owned(), strong, node };
        let fields = [Field::new("a", DataType::Utf8, true), Field::new("b", DataType::Date32, false)];
        let zoned = Field::new("c", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), true);
        let int = Extent { min: Point::Int(-5), max: Point::Int(i64::MAX), nulls: true };
        let words = Extent { min: Point::Text(String::new()), max: Point::Text("zürich".to_owned()), nulls: false };
        let group = Group { rows: 10, bytes: 300, extents: vec![None, Some(int), Some(words)] };
        Facts {
            listed: stamp.clone(),
            opened: stamp,
            footer: Id::of(b"footer"),
            fields: fields.into_iter().chain([zoned]).collect(),
            bytes: vec![1, 2, u64::MAX],
            groups: vec![group.clone(), group],
        }
    }

    #[test]
    fn notes_come_back_as_they_were() {
        let now = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(100);
        let all = [("old", facts("7", false)), ("etag", facts("\"x\"", true)), ("young", facts("99000000000", false))];
        let notes = encode(all.iter().map(|(path, facts)| (*path, facts)), now).unwrap();
        let read = decode(Some(&notes));
        assert_eq!(read.len(), 2, "a file that was just written may change under its stamp");
        assert!(all[..2].iter().all(|(path, facts)| read[*path] == *facts));
        for broken in [&notes[..notes.len() - 1], &[][..], &[9, 9, 9], &[255; 40]] {
            assert!(decode(Some(broken)).is_empty());
        }
        assert!(decode(None).is_empty());
    }
}
