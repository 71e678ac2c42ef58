//! Content-addressed ids: the hash of everything that determines a result.

use std::fmt;
use std::io::{ErrorKind, Read};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Bytes of a reader that are hashed at a time.
const READ_BLOCK_BYTES: usize = 64 << 10;

/// The first 128 bits of a SHA-256, written as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentId([u8; 16]);

impl ContentId {
    /// Id of a byte string.
    pub fn of(bytes: &[u8]) -> ContentId {
        let mut builder = IdBuilder::new("bytes");
        builder.bytes(bytes);
        builder.finish()
    }

    /// Parses 32 hexadecimal digits.
    pub fn parse(text: &str) -> Option<ContentId> {
        if text.len() != 32 || !text.is_ascii() {
            return None;
        }
        let mut bytes = [0; 16];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
        }
        Some(ContentId(bytes))
    }

    /// The id of sixteen bytes, as [`ContentId::to_bytes`] gives them.
    pub fn from_bytes(bytes: [u8; 16]) -> ContentId {
        ContentId(bytes)
    }

    /// The sixteen bytes of the id.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// The first eight digits, for display.
    pub fn short(&self) -> String {
        self.to_string()[..8].to_owned()
    }
}

impl fmt::Display for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 32];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl Serialize for ContentId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ContentId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        ContentId::parse(&text).ok_or_else(|| de::Error::custom("an id has 32 hexadecimal digits"))
    }
}

impl fmt::Debug for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Hashes the parts that determine a result. Every part is length-prefixed, so that different sequences of parts
/// never produce the same bytes.
pub struct IdBuilder(Sha256);

impl IdBuilder {
    /// Starts an id of one kind (`"state"`, `"pass"`, ...): ids of different kinds never collide.
    pub fn new(kind: &str) -> Self {
        let mut builder = IdBuilder(Sha256::new());
        builder.text(kind);
        builder
    }

    /// Adds bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
        self
    }

    /// Adds `length` bytes of a reader, as [`IdBuilder::bytes`] adds them. An error if it has fewer.
    pub fn read_bytes(&mut self, length: u64, input: impl Read) -> std::io::Result<()> {
        self.0.update(length.to_le_bytes());
        let mut input = input.take(length);
        let mut block = vec![0; READ_BLOCK_BYTES];
        let mut missing = length;
        while missing > 0 {
            let read = match input.read(&mut block) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.0.update(&block[..read]);
            missing -= read as u64;
        }
        Ok(())
    }

    /// Adds text.
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.bytes(text.as_bytes())
    }

    /// Adds a configuration as canonical JSON.
    pub fn json(&mut self, value: &Value) -> &mut Self {
        self.text(&canonical_json(value))
    }

    /// Adds another id.
    pub fn id(&mut self, id: ContentId) -> &mut Self {
        self.bytes(&id.0)
    }

    /// The id of all parts added.
    pub fn finish(self) -> ContentId {
        // Half of the hash: 128 bits are enough that no two ids collide by chance.
        let digest = self.0.finalize();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        ContentId(bytes)
    }
}

/// JSON with sorted keys and no spaces: equal values give equal text.
pub fn canonical_json(value: &Value) -> String {
    let mut out = String::new();
    write_canonical(value, &mut out);
    out
}

fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_canonical(item, out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            // Equal objects have equal text, whatever the order of their keys.
            let mut keys: Vec<_> = map.keys().collect();
            keys.sort_unstable();
            out.push('{');
            for (i, key) in keys.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                out.push_str(&Value::String(key.clone()).to_string());
                out.push(':');
                write_canonical(&map[key], out);
            }
            out.push('}');
        }
        leaf => out.push_str(&leaf.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn canonical_json_sorts_keys_at_every_depth() {
        let a = json!({"b": [1, {"y": null, "x": "q\""}], "a": 1.5});
        assert_eq!(
            canonical_json(&a),
            r#"{"a":1.5,"b":[1,{"x":"q\"","y":null}]}"#
        );
    }

    #[test]
    fn a_reader_counts_as_its_bytes() {
        let content = vec![7; 200_000];
        let mut whole = IdBuilder::new("test");
        whole.bytes(&content);
        let mut read = IdBuilder::new("test");
        read.read_bytes(200_000, &content[..]).unwrap();
        assert_eq!(read.finish(), whole.finish());
        let mut short = IdBuilder::new("test");
        assert!(short.read_bytes(200_001, &content[..]).is_err());
    }

    #[test]
    fn parts_are_length_prefixed() {
        let id = |parts: &[&str]| {
            let mut builder = IdBuilder::new("test");
            parts.iter().for_each(|part| {
                builder.text(part);
            });
            builder.finish()
        };
        assert_ne!(id(&["ab", "c"]), id(&["a", "bc"]));
        assert_eq!(ContentId::parse(&id(&["x"]).to_string()), Some(id(&["x"])));
        assert_eq!(ContentId::parse("zz"), None);
    }
}
