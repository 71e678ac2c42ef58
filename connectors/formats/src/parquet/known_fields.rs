//! Footers with fields that the format has under another type, or that mean nothing.
//!
//! Versions of Dremio wrote lists of their own under numbers that the format has given to integers since. Readers that are
//! generated from the format skip a field whose type is another one; the decoder takes its bytes for an integer. Such
//! fields are left out before it decodes. So is the place of a dictionary that is 0, where no dictionary can be, and a
//! converted type that the format does not have.

/// Types of Thrift's compact protocol.
const BOOL_TRUE: u8 = 1;
const BOOL_FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;
const UUID: u8 = 13;

/// The field of a column that tells where its dictionary begins.
const DICTIONARY_OFFSET: i64 = 11;

/// The field of a part of the schema that tells its converted type.
const CONVERTED_TYPE: i64 = 6;

/// The last converted type that the format has, as it is written: twice 21. Early versions of parquet-cpp wrote 24 for a
/// column of nulls alone, which the decoder refuses and other readers ignore.
const CONVERTED_TYPE_MAX: u8 = 42;

/// Structs and lists within each other at most.
const DEPTH_MAX: usize = 64;

/// A struct of the format, or one whose fields are not looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    File,
    SchemaElement,
    RowGroup,
    ColumnChunk,
    Column,
    Other,
}

/// Fields by number: the type, and the struct that it is or that its elements are.
type KnownFields = &'static [(i64, u8, Known)];

impl Known {
    fn fields(self) -> KnownFields {
        use Known::*;
        match self {
            File => &[
                (1, I32, Other),
                (2, LIST, SchemaElement),
                (3, I64, Other),
                (4, LIST, RowGroup),
                (5, LIST, Other),
                (6, BINARY, Other),
                (7, LIST, Other),
                (8, STRUCT, Other),
                (9, BINARY, Other),
            ],
            SchemaElement => &[
                (1, I32, Other),
                (2, I32, Other),
                (3, I32, Other),
                (4, BINARY, Other),
                (5, I32, Other),
                (6, I32, Other),
                (7, I32, Other),
                (8, I32, Other),
                (9, I32, Other),
                (10, STRUCT, Other),
            ],
            RowGroup => &[
                (1, LIST, ColumnChunk),
                (2, I64, Other),
                (3, I64, Other),
                (4, LIST, Other),
                (5, I64, Other),
                (6, I64, Other),
                (7, I16, Other),
            ],
            ColumnChunk => &[
                (1, BINARY, Other),
                (2, I64, Other),
                (3, STRUCT, Column),
                (4, I64, Other),
                (5, I32, Other),
                (6, I64, Other),
                (7, I32, Other),
                (8, STRUCT, Other),
                (9, BINARY, Other),
            ],
            Column => &[
                (1, I32, Other),
                (2, LIST, Other),
                (3, LIST, Other),
                (4, I32, Other),
                (5, I64, Other),
                (6, I64, Other),
                (7, I64, Other),
                (8, LIST, Other),
                (9, I64, Other),
                (10, I64, Other),
                (11, I64, Other),
                (12, STRUCT, Other),
                (13, LIST, Other),
                (14, I64, Other),
                (15, I32, Other),
                (16, STRUCT, Other),
                (17, STRUCT, Other),
            ],
            Other => &[],
        }
    }
}

/// A footer without the fields that the format has under another type or that mean nothing; `None` where there are no
/// such fields.
pub(super) fn without_other_fields(footer: &[u8]) -> Option<Vec<u8>> {
    let mut copy = FooterCopy {
        bytes: footer,
        at: 0,
        copied: Vec::with_capacity(footer.len()),
        left_out: 0,
    };
    copy.copy_struct(Known::File, 0)?;
    (copy.left_out > 0).then_some(copy.copied)
}

struct FooterCopy<'a> {
    bytes: &'a [u8],
    at: usize,
    copied: Vec<u8>,
    /// The number of fields that were left out.
    left_out: usize,
}

impl FooterCopy<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn skip_bytes(&mut self, bytes: u64) -> Option<()> {
        self.at = self.at.checked_add(usize::try_from(bytes).ok()?)?;
        (self.at <= self.bytes.len()).then_some(())
    }

    /// Copies the bytes from a place up to the one at hand.
    fn copy_from(&mut self, start: usize) -> Option<()> {
        self.copied
            .extend_from_slice(self.bytes.get(start..self.at)?);
        Some(())
    }

    /// Reads the head of a field: its number and its type; type 0 ends a struct.
    fn field_head(&mut self, number_before: i64) -> Option<(i64, u8)> {
        let head = self.byte()?;
        let of = head & 0x0f;
        let step = i64::from(head >> 4);
        if head == 0 || step > 0 {
            return Some((number_before + step, of));
        }
        let number = self.varint()?;
        Some(((number >> 1) as i64 ^ -((number & 1) as i64), of))
    }

    fn write_head(&mut self, number_before: i64, number: i64, of: u8) {
        let step = number - number_before;
        if (1..=15).contains(&step) {
            self.copied.push((step as u8) << 4 | of);
            return;
        }
        self.copied.push(of);
        let mut bits = ((number << 1) ^ (number >> 63)) as u64;
        while bits >= 0x80 {
            self.copied.push(bits as u8 | 0x80);
            bits >>= 7;
        }
        self.copied.push(bits as u8);
    }

    fn copy_struct(&mut self, layout: Known, depth: usize) -> Option<()> {
        let mut number_before = 0;
        let mut written_before = 0;
        loop {
            let (number, of) = self.field_head(number_before)?;
            number_before = number;
            if of == 0 {
                self.copied.push(0);
                return Some(());
            }
            let fields = layout.fields();
            let field = fields.iter().find(|(field_id, ..)| *field_id == number);
            let is_zero = self.bytes.get(self.at) == Some(&0);
            let is_no_place = layout == Known::Column && number == DICTIONARY_OFFSET && is_zero;
            let is_beyond = self.bytes.get(self.at) > Some(&CONVERTED_TYPE_MAX);
            let is_no_type =
                layout == Known::SchemaElement && number == CONVERTED_TYPE && is_beyond;
            if is_no_place || is_no_type || field.is_some_and(|(_, expected, _)| *expected != of) {
                self.left_out += 1;
                self.skip_field(of, depth)?;
                continue;
            }
            self.write_head(written_before, number, of);
            written_before = number;
            let inner = field.map_or(Known::Other, |(_, _, inner)| *inner);
            match of {
                BOOL_TRUE | BOOL_FALSE => {}
                STRUCT => self.copy_struct(inner, depth + 1)?,
                LIST if inner != Known::Other => self.copy_list(inner, depth)?,
                _ => {
                    let start = self.at;
                    self.skip_value(of, depth)?;
                    self.copy_from(start)?;
                }
            }
            if depth > DEPTH_MAX {
                return None;
            }
        }
    }

    fn copy_list(&mut self, layout: Known, depth: usize) -> Option<()> {
        let start = self.at;
        let (length, of) = self.list_head()?;
        self.copy_from(start)?;
        for _ in 0..length {
            if of == STRUCT {
                self.copy_struct(layout, depth + 1)?;
            } else {
                let start = self.at;
                self.skip_value(of, depth + 1)?;
                self.copy_from(start)?;
            }
        }
        Some(())
    }

    fn list_head(&mut self) -> Option<(u64, u8)> {
        let head = self.byte()?;
        let length = match head >> 4 {
            15 => self.varint()?,
            length => u64::from(length),
        };
        Some((length, head & 0x0f))
    }

    fn skip_field(&mut self, of: u8, depth: usize) -> Option<()> {
        // The type of a Boolean field is its value.
        if matches!(of, BOOL_TRUE | BOOL_FALSE) {
            return Some(());
        }
        self.skip_value(of, depth)
    }

    fn skip_value(&mut self, of: u8, depth: usize) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        match of {
            BOOL_TRUE | BOOL_FALSE | BYTE => self.skip_bytes(1),
            I16 | I32 | I64 => self.varint().map(drop),
            DOUBLE => self.skip_bytes(8),
            BINARY => {
                let length = self.varint()?;
                self.skip_bytes(length)
            }
            LIST | SET => {
                let (length, of) = self.list_head()?;
                (0..length).try_for_each(|_| self.skip_value(of, depth + 1))
            }
            MAP => {
                let length = self.varint()?;
                if length == 0 {
                    return Some(());
                }
                let types = self.byte()?;
                (0..length).try_for_each(|_| {
                    self.skip_value(types >> 4, depth + 1)?;
                    self.skip_value(types & 0x0f, depth + 1)
                })
            }
            STRUCT => loop {
                let (_, of) = self.field_head(0)?;
                if of == 0 {
                    return Some(());
                }
                self.skip_field(of, depth + 1)?;
            },
            UUID => self.skip_bytes(16),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A footer with one row group of one column.
    fn footer(column: &[u8]) -> Vec<u8> {
        // The version, then the row groups, of which the first has a list of column chunks.
        let mut footer = vec![0x15, 0x02, 0x39, 0x1c, 0x19, 0x1c, 0x3c];
        footer.extend_from_slice(column);
        // The ends of the column, the chunk, the row group and the footer; between them the rows of the group.
        footer.extend_from_slice(&[0x00, 0x00, 0x26, 0x08, 0x00, 0x00]);
        footer
    }

    #[test]
    fn fields_of_another_type_are_left_out() {
        // Field 1, then a list of integers as field 15, a map as field 14 and a text as field 40; field 5 comes last.
        let other = [
            0x15, 0x02, 0xe9, 0x25, 0x02, 0x04, 0x0b, 0x1c, 0x00, 0x08, 0x50, 0x01, b'x', 0x06,
            0x0a, 0x06,
        ];
        let expected = [0x15, 0x02, 0x08, 0x50, 0x01, b'x', 0x06, 0x0a, 0x06];
        assert_eq!(
            without_other_fields(&footer(&other)),
            Some(footer(&expected))
        );
        // The step to the next field grows.
        let other = [0x15, 0x02, 0x31, 0x16, 0x04];
        let expected = [0x15, 0x02, 0x46, 0x04];
        assert_eq!(
            without_other_fields(&footer(&other)),
            Some(footer(&expected))
        );
    }

    #[test]
    fn dictionaries_at_the_beginning_of_the_file_are_none() {
        // The places of the data page and of the dictionary.
        let zero = footer(&[0x96, 0x08, 0x26, 0x00, 0x1c, 0x00]);
        let expected = footer(&[0x96, 0x08, 0x3c, 0x00]);
        assert_eq!(without_other_fields(&zero), Some(expected));
        let other = footer(&[0x96, 0x40, 0x26, 0x08, 0x1c, 0x00]);
        assert_eq!(without_other_fields(&other), None);
    }

    #[test]
    fn converted_types_that_the_format_does_not_have_are_left_out() {
        // The version, then the schema of one part: its name, its converted type and its number of children.
        let footer = |part: &[u8]| [&[0x15, 0x02, 0x19, 0x1c][..], part, &[0x00, 0x00]].concat();
        let null = footer(&[0x48, 0x01, b'x', 0x25, 0x30, 0x15, 0x02]);
        // The head of the field behind it tells a greater step.
        let expected = footer(&[0x48, 0x01, b'x', 0x35, 0x02]);
        assert_eq!(without_other_fields(&null), Some(expected));
        let interval = footer(&[0x48, 0x01, b'x', 0x25, 0x2a]);
        assert_eq!(without_other_fields(&interval), None);
    }

    #[test]
    fn right_and_broken_footers_are_left_alone() {
        let right = footer(&[0x15, 0x02, 0x19, 0x25, 0x00, 0x08]);
        for end in 0..=right.len() {
            assert_eq!(without_other_fields(&right[..end]), None, "{end}");
        }
        assert_eq!(without_other_fields(&[0x1c; 4000]), None);
        assert_eq!(without_other_fields(&[0x19; 4000]), None);
    }
}
