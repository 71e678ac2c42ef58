//! Packs: files of many small frames.
//!
//! ```text
//! the frames, in the order of their ids
//! for each frame: its id (16 bytes), its length, when it was written in seconds (0: when the pack was)
//! the number of frames, the version, the digest of all that follows the frames (16 bytes), `FBPK`
//! ```
//! Numbers have four bytes, the least significant first. A pack is called by the hash of the ids in it: equal ids mean
//! equal frames, so packs of the same name hold the same.

use std::io::{BufWriter, Write};

use forebay_model::{ContentId, IdBuilder, Result};
use xxhash_rust::xxh3::xxh3_128;

use super::frame::write_failed;

/// Suffix of the names of packs.
pub const PACK_SUFFIX: &str = ".pack";

/// The version of packs.
const VERSION: u32 = 1;

/// Last bytes of a pack.
const MAGIC: &[u8; 4] = b"FBPK";

/// Bytes of an entry of the directory.
const ENTRY_BYTES: usize = 16 + 4 + 4;

/// Bytes after the directory.
const TRAILER_BYTES: usize = 4 + 4 + 16 + MAGIC.len();

/// Bytes at the end of a pack that are read first: they hold the directory of 2,700 frames.
pub const TAIL_BYTES: u64 = 64 << 10;

/// Position of a frame in a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackEntry {
    pub id: ContentId,
    pub offset: u64,
    pub bytes: u32,
    /// Time of writing, in seconds since 1970; 0 for the time of the pack.
    pub written: u32,
}

/// A pack while it is written.
pub struct PackWriter<W: Write> {
    out: BufWriter<W>,
    entries: Vec<PackEntry>,
    bytes: u64,
}

impl<W: Write> PackWriter<W> {
    pub fn new(out: W) -> Self {
        PackWriter {
            out: BufWriter::with_capacity(1 << 16, out),
            entries: Vec::new(),
            bytes: 0,
        }
    }

    /// Appends a frame. Frames come in the order of their ids.
    pub fn append(&mut self, id: ContentId, frame: &[u8], written: u32) -> Result<()> {
        self.out.write_all(frame).map_err(write_failed)?;
        self.entries.push(PackEntry {
            id,
            offset: self.bytes,
            bytes: frame.len() as u32,
            written,
        });
        self.bytes += frame.len() as u64;
        Ok(())
    }

    /// Writes the directory.
    pub fn finish(mut self) -> Result<Vec<PackEntry>> {
        let mut end = Vec::with_capacity(self.entries.len() * ENTRY_BYTES + TRAILER_BYTES);
        for entry in &self.entries {
            end.extend(entry.id.to_bytes());
            end.extend(entry.bytes.to_le_bytes());
            end.extend(entry.written.to_le_bytes());
        }
        end.extend((self.entries.len() as u32).to_le_bytes());
        end.extend(VERSION.to_le_bytes());
        end.extend(xxh3_128(&end).to_le_bytes());
        end.extend(MAGIC);
        self.out
            .write_all(&end)
            .and_then(|()| self.out.flush())
            .map_err(write_failed)?;
        Ok(self.entries)
    }
}

/// The name of the pack of some frames, whose ids come in order.
pub fn pack_name<'i>(ids: impl Iterator<Item = &'i ContentId>) -> String {
    let mut name = IdBuilder::new("pack");
    ids.for_each(|id| {
        name.id(*id);
    });
    format!("{}{PACK_SUFFIX}", name.finish())
}

/// The directory of a pack, as far as its tail holds it.
#[derive(Debug, PartialEq, Eq)]
pub enum PackDirectory {
    Whole(Vec<PackEntry>),
    /// The tail has to have this number of bytes.
    Longer(u64),
    /// The pack is not whole.
    Broken,
}

/// Reads the directory from the last bytes of a pack.
pub fn read_directory(tail: &[u8], pack_bytes: u64) -> PackDirectory {
    let Some((body, trailer)) = tail.split_last_chunk::<TRAILER_BYTES>() else {
        return PackDirectory::Broken;
    };
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_le_bytes);
    let count = number(&trailer[..4]) as usize;
    let version = number(&trailer[4..8]);
    if trailer[24..] != *MAGIC || version != VERSION {
        return PackDirectory::Broken;
    }
    let directory_bytes = count.saturating_mul(ENTRY_BYTES);
    let end_bytes = (directory_bytes + TRAILER_BYTES) as u64;
    let Some(frames_bytes) = pack_bytes.checked_sub(end_bytes) else {
        return PackDirectory::Broken;
    };
    let Some(start) = body.len().checked_sub(directory_bytes) else {
        return PackDirectory::Longer(end_bytes);
    };
    if xxh3_128(&tail[start..body.len() + 8]).to_le_bytes() != trailer[8..24] {
        return PackDirectory::Broken;
    }
    let mut offset = 0;
    let entries = body[start..].chunks_exact(ENTRY_BYTES).map(|entry| {
        let mut id = [0; 16];
        id.copy_from_slice(&entry[..16]);
        let bytes = number(&entry[16..20]);
        let entry = PackEntry {
            id: ContentId::from_bytes(id),
            offset,
            bytes,
            written: number(&entry[20..]),
        };
        offset += u64::from(bytes);
        entry
    });
    let entries: Vec<PackEntry> = entries.collect();
    if offset == frames_bytes {
        PackDirectory::Whole(entries)
    } else {
        PackDirectory::Broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_round_trip_and_damage_is_found() {
        let mut pack = Vec::new();
        let mut writer = PackWriter::new(&mut pack);
        let ids: Vec<ContentId> = (0..4u8).map(|id| ContentId::from_bytes([id; 16])).collect();
        for (nth, id) in ids.iter().enumerate() {
            writer
                .append(*id, &vec![nth as u8; 10 * nth], nth as u32)
                .unwrap();
        }
        let entries = writer.finish().unwrap();
        assert_eq!(
            entries[3],
            PackEntry {
                id: ids[3],
                offset: 30,
                bytes: 30,
                written: 3
            }
        );
        let bytes = pack.len() as u64;
        assert_eq!(
            read_directory(&pack, bytes),
            PackDirectory::Whole(entries.clone())
        );
        assert_eq!(
            read_directory(&pack[60..], bytes),
            PackDirectory::Whole(entries)
        );
        let end_bytes = bytes - 60;
        assert_eq!(
            read_directory(&pack[70..], bytes),
            PackDirectory::Longer(end_bytes)
        );
        assert_eq!(read_directory(&pack[..20], 20), PackDirectory::Broken);
        assert_eq!(
            read_directory(&pack[1..], bytes - 1),
            PackDirectory::Broken,
            "the first byte is missing"
        );
        for at in 60..pack.len() {
            let mut broken = pack.clone();
            broken[at] ^= 1;
            let found = read_directory(&broken, bytes);
            assert!(
                matches!(found, PackDirectory::Broken | PackDirectory::Longer(_)),
                "byte {at}: {found:?}"
            );
        }
        let names = [pack_name(ids.iter()), pack_name(ids[..3].iter())];
        assert!(names[0] != names[1] && names[0].ends_with(PACK_SUFFIX));
    }
}
