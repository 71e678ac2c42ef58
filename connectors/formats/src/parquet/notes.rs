//! Notes of discovery about files, so that it need not read their footers again.

use std::collections::HashMap;
use std::io::Cursor;
use std::time::SystemTime;

use arrow::datatypes::{Fields, Schema};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use forebay_model::{
    BoundValue, ColumnExtent, ContentId, Fault, Result, StateDecoder, StateEncoder, codes,
};

use crate::files::cut::RowGroupSummary;
use crate::files::stamp::{FileStamp, InodeStamp};

/// The version of these bytes.
const VERSION: u64 = 5;

/// Kinds of extents: 0 is none, and two more mark possible nulls.
const INTEGERS: u64 = 1;
const TEXTS: u64 = 2;

/// Texts, columns and row groups at most: lengths are checked before they are believed.
const LENGTH_MAX: usize = 1 << 24;

/// Facts about a file from its footer.
#[derive(Debug, Clone, PartialEq)]
pub struct FooterSummary {
    /// Stamp of the file in listings.
    pub(crate) listed: FileStamp,
    /// The file as it was when its footer was read.
    pub(crate) opened: FileStamp,
    /// The id of the footer's bytes.
    pub(crate) footer: ContentId,
    /// Columns of the file.
    pub fields: Fields,
    /// Stored bytes per column of `fields`.
    pub bytes: Vec<u64>,
    /// Nulls per column of `fields`; `None` where the footer does not count them.
    pub(crate) nulls: Vec<Option<u64>>,
    /// Its row groups.
    pub groups: Vec<RowGroupSummary>,
}

/// Decodes the facts of files by their paths. Notes that cannot be read count as empty.
pub(crate) fn decode(notes: Option<&[u8]>) -> HashMap<String, FooterSummary> {
    notes
        .and_then(|mut notes| decode_summaries(&mut StateDecoder(&mut notes)).ok())
        .unwrap_or_default()
}

/// The notes of some files. A file that may still be changing under the same stamp is left out.
pub(crate) fn encode<'f>(
    files: impl Iterator<Item = (&'f str, &'f FooterSummary)>,
    now: SystemTime,
) -> Result<Vec<u8>> {
    let files: Vec<_> = files.filter(|(_, facts)| facts.is_settled(now)).collect();
    let mut schemas: Vec<&Fields> = Vec::new();
    for (_, facts) in &files {
        if !schemas.contains(&&facts.fields) {
            schemas.push(&facts.fields);
        }
    }
    let mut notes = Vec::new();
    let mut out = StateEncoder(&mut notes);
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
        out.varint(
            schemas
                .iter()
                .position(|fields| **fields == facts.fields)
                .unwrap_or_default() as u64,
        )?;
        for bytes in facts.bytes.iter() {
            out.varint(*bytes)?;
        }
        for nulls in &facts.nulls {
            // 0 stands for a column whose nulls are not counted.
            out.varint(nulls.map_or(0, |nulls| nulls.saturating_add(1)))?;
        }
        out.varint(facts.groups.len() as u64)?;
        for group in &facts.groups {
            out.varint(group.rows)?;
            out.varint(group.bytes)?;
            out.varint(group.extents.len() as u64)?;
            for extent in &group.extents {
                match extent {
                    None => out.varint(0)?,
                    Some(ColumnExtent {
                        min: BoundValue::Int(min),
                        max: BoundValue::Int(max),
                        nulls,
                    }) => {
                        out.varint(INTEGERS + 2 * u64::from(*nulls))?;
                        out.u64(*min as u64)?;
                        out.u64(*max as u64)?;
                    }
                    Some(ColumnExtent {
                        min: BoundValue::Text(min),
                        max: BoundValue::Text(max),
                        nulls,
                    }) => {
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

fn decode_summaries(notes: &mut StateDecoder<'_>) -> Result<HashMap<String, FooterSummary>> {
    let broken = || Fault::new(codes::CORRUPT, "notes cannot be read");
    if notes.varint()? != VERSION {
        return Err(broken());
    }
    let mut schemas = Vec::new();
    for _ in 0..notes.length(LENGTH_MAX)? {
        let message = notes.bytes(LENGTH_MAX)?;
        schemas.push(
            StreamReader::try_new(Cursor::new(message), None)?
                .schema()
                .fields()
                .clone(),
        );
    }
    let mut files = HashMap::new();
    for _ in 0..notes.length(LENGTH_MAX)? {
        let path = decode_text(notes)?;
        let listed = decode_stamp(notes)?;
        let opened = decode_stamp(notes)?;
        let footer = ContentId::parse(&decode_text(notes)?).ok_or_else(broken)?;
        let fields: Fields = schemas
            .get(notes.length(LENGTH_MAX)?)
            .ok_or_else(broken)?
            .clone();
        let bytes = fields
            .iter()
            .map(|_| notes.varint())
            .collect::<Result<_>>()?;
        let nulls = fields
            .iter()
            .map(|_| Ok(notes.varint()?.checked_sub(1)))
            .collect::<Result<_>>()?;
        let mut groups = Vec::new();
        for _ in 0..notes.length(LENGTH_MAX)? {
            let rows = notes.varint()?;
            let bytes = notes.varint()?;
            let extents = (0..notes.length(LENGTH_MAX)?)
                .map(|_| decode_extent(notes))
                .collect::<Result<_>>()?;
            groups.push(RowGroupSummary {
                rows,
                bytes,
                extents,
            });
        }
        files.insert(
            path,
            FooterSummary {
                listed,
                opened,
                footer,
                fields,
                bytes,
                nulls,
                groups,
            },
        );
    }
    Ok(files)
}

fn decode_text(notes: &mut StateDecoder<'_>) -> Result<String> {
    String::from_utf8(notes.bytes(LENGTH_MAX)?)
        .map_err(|error| Fault::new(codes::CORRUPT, "no text").cause(error))
}

fn decode_stamp(notes: &mut StateDecoder<'_>) -> Result<FileStamp> {
    let size = notes.varint()?;
    let version = decode_text(notes)?;
    let strong = notes.varint()? == 1;
    let node = match notes.varint()? {
        0 => None,
        _ => Some(InodeStamp {
            inode: notes.u64()?,
            changed: notes.u64()? as i64,
        }),
    };
    Ok(FileStamp {
        size,
        version,
        strong,
        node,
    })
}

fn decode_extent(notes: &mut StateDecoder<'_>) -> Result<Option<ColumnExtent>> {
    let kind = notes.varint()?;
    if kind == 0 {
        return Ok(None);
    }
    let (min, max) = if kind % 2 == INTEGERS {
        (
            BoundValue::Int(notes.u64()? as i64),
            BoundValue::Int(notes.u64()? as i64),
        )
    } else {
        (
            BoundValue::Text(decode_text(notes)?),
            BoundValue::Text(decode_text(notes)?),
        )
    };
    Ok(Some(ColumnExtent {
        min,
        max,
        nulls: kind > TEXTS,
    }))
}

impl FooterSummary {
    fn is_settled(&self, now: SystemTime) -> bool {
        self.listed.is_settled(now) && self.opened.is_settled(now)
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, TimeUnit};

    use super::*;

    fn facts(version: &str, strong: bool) -> FooterSummary {
        let node = (!strong).then_some(InodeStamp {
            inode: 7,
            changed: -1,
        });
        let stamp = FileStamp {
            size: 1000,
            version: version.to_owned(),
            strong,
            node,
        };
        let fields = [
            Field::new("a", DataType::Utf8, true),
            Field::new("b", DataType::Date32, false),
        ];
        let zoned = Field::new(
            "c",
            DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            true,
        );
        let int = ColumnExtent {
            min: BoundValue::Int(-5),
            max: BoundValue::Int(i64::MAX),
            nulls: true,
        };
        let words = ColumnExtent {
            min: BoundValue::Text(String::new()),
            max: BoundValue::Text("zürich".to_owned()),
            nulls: false,
        };
        let group = RowGroupSummary {
            rows: 10,
            bytes: 300,
            extents: vec![None, Some(int), Some(words)],
        };
        FooterSummary {
            listed: stamp.clone(),
            opened: stamp,
            footer: ContentId::of(b"footer"),
            fields: fields.into_iter().chain([zoned]).collect(),
            bytes: vec![1, 2, u64::MAX],
            nulls: vec![Some(0), None, Some(7)],
            groups: vec![group.clone(), group],
        }
    }

    #[test]
    fn notes_come_back_as_they_were() {
        let now = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(100);
        let all = [
            ("old", facts("7", false)),
            ("etag", facts("\"x\"", true)),
            ("young", facts("99000000000", false)),
        ];
        let notes = encode(all.iter().map(|(path, facts)| (*path, facts)), now).unwrap();
        let read = decode(Some(&notes));
        assert_eq!(
            read.len(),
            2,
            "a file that was just written may change under its stamp"
        );
        assert!(all[..2].iter().all(|(path, facts)| read[*path] == *facts));
        for broken in [&notes[..notes.len() - 1], &[][..], &[9, 9, 9], &[255; 40]] {
            assert!(decode(Some(broken)).is_empty());
        }
        assert!(decode(None).is_empty());
    }
}
