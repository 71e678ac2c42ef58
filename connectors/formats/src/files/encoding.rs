//! Text in other encodings than UTF-8.

use std::io::{self, Read};

use encoding_rs::{Decoder, DecoderResult, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bytes that are decoded at a time.
const BLOCK_BYTES: usize = 64 << 10;

/// The first bytes of many files of UTF-8.
const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";

/// The first bytes of most files of UTF-16, for both orders of bytes.
const UTF16_MARKS: [&[u8]; 2] = [b"\xff\xfe", b"\xfe\xff"];

/// The encoding of a text file. One that begins with the byte order mark of UTF-8 is read as that where Latin-1 or
/// Windows-1252 is declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum TextEncoding {
    /// UTF-8.
    #[default]
    #[serde(rename = "utf-8")]
    Utf8,
    /// ISO 8859-1.
    #[serde(rename = "latin-1", alias = "iso-8859-1")]
    Latin1,
    /// The encoding of western versions of Windows: Latin-1 with more letters and signs.
    #[serde(rename = "windows-1252", alias = "cp1252")]
    Windows1252,
    /// UTF-16 with a byte order mark. Without one, the bytes that are 0 in commas and line ends tell the order.
    #[serde(rename = "utf-16")]
    Utf16,
}

impl TextEncoding {
    pub(crate) fn is_default(&self) -> bool {
        *self == TextEncoding::default()
    }

    /// A stream of UTF-8.
    pub(crate) fn decode(self, stream: Box<dyn Read + Send>) -> Box<dyn Read + Send> {
        let decoder = match self {
            TextEncoding::Utf8 => return stream,
            TextEncoding::Latin1 => None,
            TextEncoding::Windows1252 => Some(WINDOWS_1252.new_decoder_without_bom_handling()),
            TextEncoding::Utf16 => Some(UTF_16LE.new_decoder()),
        };
        Box::new(DecodedReader {
            stream,
            decoder,
            block: vec![0; BLOCK_BYTES],
            text: Vec::new(),
            at: 0,
            is_begun: false,
            is_over: false,
        })
    }
}

struct DecodedReader {
    stream: Box<dyn Read + Send>,
    /// Latin-1 needs none: its bytes are the numbers of its letters.
    decoder: Option<Decoder>,
    block: Vec<u8>,
    text: Vec<u8>,
    at: usize,
    is_begun: bool,
    is_over: bool,
}

impl DecodedReader {
    /// Reads a block. The first one is full, if the stream has so many bytes: it tells the encoding.
    fn read_block(&mut self) -> io::Result<usize> {
        if self.is_begun {
            return self.stream.read(&mut self.block);
        }
        self.is_begun = true;
        let mut read = 0;
        while read < self.block.len() {
            match self.stream.read(&mut self.block[read..])? {
                0 => break,
                bytes => read += bytes,
            }
        }
        let bytes = &self.block[..read];
        let is_utf16 = self
            .decoder
            .as_ref()
            .is_some_and(|decoder| decoder.encoding() == UTF_16LE);
        if bytes.starts_with(UTF8_MARK) {
            self.decoder = Some(UTF_8.new_decoder());
        } else if is_utf16 && is_big_endian(bytes) {
            self.decoder = Some(UTF_16BE.new_decoder());
        }
        Ok(read)
    }

    fn fill(&mut self) -> io::Result<()> {
        let read = self.read_block()?;
        self.is_over = read == 0;
        self.at = 0;
        let bytes = &self.block[..read];
        let Some(decoder) = &mut self.decoder else {
            self.text = encoding_rs::mem::decode_latin1(bytes)
                .into_owned()
                .into_bytes();
            return Ok(());
        };
        let needed = decoder.max_utf8_buffer_length_without_replacement(read);
        self.text.resize(needed.unwrap_or(4 * BLOCK_BYTES), 0);
        let (result, _, written) =
            decoder.decode_to_utf8_without_replacement(bytes, &mut self.text, self.is_over);
        self.text.truncate(written);
        match result {
            DecoderResult::InputEmpty => Ok(()),
            DecoderResult::OutputFull => Err(io::Error::other("the decoder's buffer is too small")),
            DecoderResult::Malformed(..) => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the text is not valid in its encoding",
            )),
        }
    }
}

/// True if text of UTF-16 without a mark has its greater byte first: that of all ASCII letters is 0.
fn is_big_endian(bytes: &[u8]) -> bool {
    if UTF16_MARKS.iter().any(|mark| bytes.starts_with(mark)) {
        return false;
    }
    let [even, odd] = zero_bytes(bytes);
    even > odd
}

/// True if bytes without a mark look like UTF-16: every second one is often 0, and no other.
pub(crate) fn looks_like_utf16(bytes: &[u8]) -> bool {
    let [even, odd] = zero_bytes(bytes);
    even.min(odd) == 0 && even.max(odd) * 4 > bytes.len()
}

/// The number of bytes at even and at odd places that are 0.
fn zero_bytes(bytes: &[u8]) -> [usize; 2] {
    let mut zeros = [0; 2];
    for (position, byte) in bytes.iter().enumerate() {
        if *byte == 0 {
            zeros[position % 2] += 1;
        }
    }
    zeros
}

impl Read for DecodedReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.text.len() {
            if self.is_over {
                return Ok(0);
            }
            self.fill()?;
        }
        let text = &self.text[self.at..];
        let bytes = text.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&text[..bytes]);
        self.at += bytes;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(encoding: TextEncoding, bytes: &[u8]) -> io::Result<String> {
        let mut text = String::new();
        let stream = Box::new(io::Cursor::new(bytes.to_vec()));
        encoding.decode(stream).read_to_string(&mut text)?;
        Ok(text)
    }

    #[test]
    fn texts_of_all_encodings_are_read() {
        let long = "M\u{fc}ller;\u{1f642}\n".repeat(20_000);
        let little: Vec<u8> = std::iter::once(0xfeff)
            .chain(long.encode_utf16())
            .flat_map(u16::to_le_bytes)
            .collect();
        let big: Vec<u8> = std::iter::once(0xfeff)
            .chain(long.encode_utf16())
            .flat_map(u16::to_be_bytes)
            .collect();
        assert_eq!(decoded(TextEncoding::Utf16, &little).unwrap(), long);
        assert_eq!(decoded(TextEncoding::Utf16, &big).unwrap(), long);
        // Without their marks.
        assert_eq!(decoded(TextEncoding::Utf16, &little[2..]).unwrap(), long);
        assert_eq!(decoded(TextEncoding::Utf16, &big[2..]).unwrap(), long);
        assert_eq!(
            decoded(TextEncoding::Latin1, b"M\xfc\x80").unwrap(),
            "M\u{fc}\u{80}"
        );
        assert_eq!(
            decoded(TextEncoding::Windows1252, b"\x80 5").unwrap(),
            "\u{20ac} 5"
        );
        // The mark says more than the declaration.
        for encoding in [TextEncoding::Latin1, TextEncoding::Windows1252] {
            assert_eq!(
                decoded(encoding, b"\xef\xbb\xbfM\xc3\xbc").unwrap(),
                "M\u{fc}"
            );
            assert_eq!(decoded(encoding, b"\xef").unwrap(), "\u{ef}");
        }
        assert!(decoded(TextEncoding::Utf16, &[0xff, 0xfe, 0x00, 0xd8, 0x20, 0x00]).is_err());
        assert!(looks_like_utf16(&little[2..]) && looks_like_utf16(&big[2..]));
        assert!(!looks_like_utf16(b"a,b\n1,\0\n") && !looks_like_utf16(b""));
    }
}
