//! Codecs that decompress a page to its end, whatever size its header tells.

use std::io::{self, Read};

use parquet::basic::Compression;

/// Highest compression ratio of Deflate: two bits stand for 258 bytes.
const GZIP_RATIO_MAX: u64 = 1032;

/// Highest compression ratio of LZ4: one more byte of a length stands for 255 bytes.
const LZ4_RATIO_MAX: u64 = 255;

/// The first bytes of a frame of LZ4.
const LZ4_FRAME: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];

/// Bytes that are decompressed at a time.
const BLOCK_BYTES: usize = 64 << 10;

/// A codec whose decoder stops at the end of its input alone. The others write no more than the size that they are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnboundedCodec {
    Brotli,
    Gzip,
    /// The older one: its decoder takes blocks of known sizes, and frames of LZ4.
    Lz4,
}

impl UnboundedCodec {
    pub(super) fn of(compression: Compression) -> Option<UnboundedCodec> {
        match compression {
            Compression::BROTLI(_) => Some(UnboundedCodec::Brotli),
            Compression::GZIP(_) => Some(UnboundedCodec::Gzip),
            Compression::LZ4 => Some(UnboundedCodec::Lz4),
            _ => None,
        }
    }

    /// The most bytes that so many compressed ones become.
    pub(super) fn most_bytes(self, compressed: usize) -> u64 {
        let ratio = match self {
            // A few bytes repeat what was before 16 million times.
            UnboundedCodec::Brotli => u64::MAX,
            UnboundedCodec::Gzip => GZIP_RATIO_MAX,
            UnboundedCodec::Lz4 => LZ4_RATIO_MAX,
        };
        (compressed as u64).saturating_mul(ratio)
    }

    /// Bytes that the decoder holds besides the page.
    pub(super) fn buffer_bytes(self, uncompressed: u64) -> u64 {
        match self {
            UnboundedCodec::Brotli => uncompressed,
            UnboundedCodec::Gzip | UnboundedCodec::Lz4 => 0,
        }
    }

    /// True if compressed bytes become no more than so many. Damaged ones do: the decoder stops where they are.
    pub(super) fn is_within(self, compressed: &[u8], bytes: u64) -> bool {
        let mut stream: Box<dyn Read + '_> = match self {
            UnboundedCodec::Brotli => Box::new(brotli::Decompressor::new(compressed, BLOCK_BYTES)),
            UnboundedCodec::Gzip => Box::new(flate2::read::MultiGzDecoder::new(compressed)),
            UnboundedCodec::Lz4 if compressed.starts_with(&LZ4_FRAME) => {
                Box::new(lz4_flex::frame::FrameDecoder::new(compressed))
            }
            UnboundedCodec::Lz4 => return true,
        };
        let mut block = vec![0; BLOCK_BYTES];
        let mut read = 0;
        while read <= bytes {
            match stream.read(&mut block) {
                Ok(0) => return true,
                Ok(count) => read += count as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return true,
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn compressed(codec: UnboundedCodec, bytes: &[u8]) -> Vec<u8> {
        match codec {
            UnboundedCodec::Brotli => {
                let mut writer = brotli::CompressorWriter::new(Vec::new(), 4096, 5, 22);
                writer.write_all(bytes).unwrap();
                writer.into_inner()
            }
            UnboundedCodec::Gzip => {
                let level = flate2::Compression::best();
                let mut writer = flate2::write::GzEncoder::new(Vec::new(), level);
                writer.write_all(bytes).unwrap();
                writer.finish().unwrap()
            }
            UnboundedCodec::Lz4 => {
                let mut writer = lz4_flex::frame::FrameEncoder::new(Vec::new());
                writer.write_all(bytes).unwrap();
                writer.finish().unwrap()
            }
        }
    }

    #[test]
    fn sizes_are_measured_without_keeping_what_is_decompressed() {
        let bytes = vec![7; 3 << 20];
        for codec in [
            UnboundedCodec::Brotli,
            UnboundedCodec::Gzip,
            UnboundedCodec::Lz4,
        ] {
            let compressed = compressed(codec, &bytes);
            assert!(codec.is_within(&compressed, 3 << 20), "{codec:?}");
            assert!(!codec.is_within(&compressed, (3 << 20) - 1), "{codec:?}");
            assert!(!codec.is_within(&compressed, 0), "{codec:?}");
            assert!(codec.most_bytes(compressed.len()) >= 3 << 20, "{codec:?}");
            // A damaged page ends where the damage is.
            assert!(codec.is_within(&compressed[..4], 3 << 20), "{codec:?}");
        }
    }
}
