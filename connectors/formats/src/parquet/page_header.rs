//! The fields of a page's header that tell its size.
//!
//! A header is a struct in the compact protocol of Thrift, in front of the page. Its end is known once all of its fields
//! have been passed.

use super::byte_walk::ByteWalk;

/// Structs inside of each other, at most.
const DEPTH_MAX: usize = 16;

/// The type of a page that holds a dictionary.
const DICTIONARY_PAGE: u64 = 2;

/// Fields of a header.
const PAGE_TYPE: i16 = 1;
const UNCOMPRESSED_BYTES: i16 = 2;
const COMPRESSED_BYTES: i16 = 3;
const DATA_PAGE_V2: i16 = 8;

/// Fields of the header of a data page of the second version.
const DEFINITION_LEVELS_BYTES: i16 = 5;
const REPETITION_LEVELS_BYTES: i16 = 6;
const IS_COMPRESSED: i16 = 7;

/// Types of the compact protocol.
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const STRUCT: u8 = 12;

/// Sizes of a page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PageHeader {
    pub(super) is_dictionary: bool,
    /// Bytes of the page once it is decompressed.
    pub(super) uncompressed: u64,
    /// Bytes of the page in the file.
    pub(super) compressed: u64,
    /// Bytes of the header itself.
    pub(super) header_bytes: usize,
    /// Bytes at the beginning of the page that are not compressed.
    pub(super) levels_bytes: u64,
    /// False if nothing of the page is compressed.
    pub(super) is_compressed: bool,
}

impl PageHeader {
    /// Reads a header; `None` where the bytes begin with none, or end inside of it.
    pub(super) fn parse(bytes: &[u8]) -> Option<PageHeader> {
        let mut header = PageHeader {
            is_compressed: true,
            ..PageHeader::default()
        };
        let mut fields = Fields {
            walk: ByteWalk::new(bytes),
        };
        let mut has_sizes = [false; 2];
        let mut last = 0;
        while let Some((id, of)) = fields.next(&mut last)? {
            match id {
                PAGE_TYPE => header.is_dictionary = fields.number()? == DICTIONARY_PAGE,
                UNCOMPRESSED_BYTES => {
                    header.uncompressed = fields.number()?;
                    has_sizes[0] = true;
                }
                COMPRESSED_BYTES => {
                    header.compressed = fields.number()?;
                    has_sizes[1] = true;
                }
                DATA_PAGE_V2 if of == STRUCT => fields.data_page(&mut header)?,
                _ => fields.skip(of, 0)?,
            }
        }
        header.header_bytes = fields.walk.position();
        (has_sizes == [true; 2]).then_some(header)
    }

    /// Bytes that the page takes while it is decoded: its bytes as they are stored and as they are read, and for a
    /// dictionary its values.
    pub(super) fn decoded_bytes(&self) -> u64 {
        let stored = if self.compressed < self.uncompressed {
            self.compressed
        } else {
            0
        };
        let values = if self.is_dictionary {
            self.uncompressed
        } else {
            0
        };
        self.uncompressed + stored + values
    }
}

/// A walk through the fields of a struct.
struct Fields<'b> {
    walk: ByteWalk<'b>,
}

impl Fields<'_> {
    /// A number that is not negative and has 31 bits at most. Of others, the decoder would drop bits.
    fn number(&mut self) -> Option<u64> {
        let zigzag = self.walk.varint()?;
        let number = zigzag / 2;
        let is_whole = zigzag.is_multiple_of(2) && i32::try_from(number).is_ok();
        is_whole.then_some(number)
    }

    /// The next field and its type. The inner value is `None` at the end of the struct.
    fn next(&mut self, last: &mut i16) -> Option<Option<(i16, u8)>> {
        let begin = self.walk.byte()?;
        if begin == 0 {
            return Some(None);
        }
        let delta = i16::from(begin >> 4);
        *last = if delta == 0 {
            i16::try_from(self.number()?).ok()?
        } else {
            last.checked_add(delta)?
        };
        Some(Some((*last, begin & 0x0f)))
    }

    /// Reads the header of a data page of the second version.
    fn data_page(&mut self, header: &mut PageHeader) -> Option<()> {
        let mut last = 0;
        while let Some((id, of)) = self.next(&mut last)? {
            match id {
                DEFINITION_LEVELS_BYTES | REPETITION_LEVELS_BYTES => {
                    header.levels_bytes = header.levels_bytes.checked_add(self.number()?)?;
                }
                IS_COMPRESSED => header.is_compressed = of == TRUE,
                _ => self.skip(of, 1)?,
            }
        }
        Some(())
    }

    fn skip_bytes(&mut self, count: u64) -> Option<()> {
        self.walk.take(usize::try_from(count).ok()?).map(drop)
    }

    /// Passes a value of a type.
    fn skip(&mut self, of: u8, depth: usize) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        match of {
            TRUE | FALSE => Some(()),
            BYTE => self.skip_bytes(1),
            I16..=I64 => self.walk.varint().map(drop),
            DOUBLE => self.skip_bytes(8),
            BINARY => {
                let length = self.walk.varint()?;
                self.skip_bytes(length)
            }
            LIST | SET => {
                let begin = self.walk.byte()?;
                let count = match begin >> 4 {
                    0x0f => self.walk.varint()?,
                    count => u64::from(count),
                };
                for _ in 0..count {
                    match begin & 0x0f {
                        // In lists, these have a byte.
                        TRUE | FALSE => self.skip_bytes(1)?,
                        item => self.skip(item, depth + 1)?,
                    }
                }
                Some(())
            }
            STRUCT => {
                let mut last = 0;
                while let Some((_, of)) = self.next(&mut last)? {
                    self.skip(of, depth + 1)?;
                }
                Some(())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A field that follows the one before, an `i32`.
    const NEXT_I32: u8 = 0x15;

    fn push_number(bytes: &mut Vec<u8>, number: u32) {
        let mut zigzag = u64::from(number) * 2;
        while zigzag >= 0x80 {
            bytes.push(zigzag as u8 | 0x80);
            zigzag >>= 7;
        }
        bytes.push(zigzag as u8);
    }

    /// A header with these first fields.
    pub(in super::super) fn header(fields: [u32; 3]) -> Vec<u8> {
        let mut bytes = open_header(fields);
        bytes.push(0);
        bytes
    }

    fn open_header(fields: [u32; 3]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for field in fields {
            bytes.push(NEXT_I32);
            push_number(&mut bytes, field);
        }
        bytes
    }

    #[test]
    fn headers_tell_the_sizes_of_pages() {
        let bytes = header([0, 400_000_000, 20_000]);
        let page = PageHeader::parse(&bytes).unwrap();
        assert_eq!((page.uncompressed, page.compressed), (400_000_000, 20_000));
        assert_eq!(page.decoded_bytes(), 400_020_000);
        assert_eq!(page.header_bytes, bytes.len());
        assert!(page.is_compressed);
        let dictionary = PageHeader::parse(&header([2, 100, 100])).unwrap();
        assert!(dictionary.is_dictionary);
        assert_eq!(dictionary.decoded_bytes(), 200);
        assert_eq!(PageHeader::parse(&[0x15, 0x80]), None);
        assert_eq!(PageHeader::parse(b"PAR1PAR1"), None);
        // The decoder would take it for -1: it drops the bits above 32.
        assert_eq!(PageHeader::parse(&header([0, u32::MAX, 100])), None);
    }

    #[test]
    fn levels_of_the_second_version_are_not_compressed() {
        let mut bytes = open_header([3, 1_000, 500]);
        // The struct of field 8, with four counts, two lengths and false.
        bytes.push(0x5c);
        for number in [10, 0, 10, 0, 7, 300] {
            bytes.push(NEXT_I32);
            push_number(&mut bytes, number);
        }
        bytes.push(0x12);
        // Statistics: a struct of a text and a list of booleans.
        bytes.extend([0x1c, 0x18, 2, b'a', b'b', 0x19, 0x21, 1, 2, 0]);
        bytes.extend([0, 0]);
        let page = PageHeader::parse(&bytes).unwrap();
        assert_eq!(page.levels_bytes, 307);
        assert!(!page.is_compressed);
        assert_eq!(page.header_bytes, bytes.len());
        for end in 0..bytes.len() {
            assert_eq!(PageHeader::parse(&bytes[..end]), None, "{end}");
        }
    }
}
