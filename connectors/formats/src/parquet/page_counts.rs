//! Counts of texts in pages, which are checked before the texts are decoded.
//!
//! Texts that are packed with their lengths begin with the number of these lengths. The decoder believes it and allocates
//! as much before it reads the first one, so that a few damaged bytes end the whole program. No page has more texts than
//! its header tells values.

use parquet::basic::Encoding;
use parquet::column::page::Page;
use parquet::schema::types::ColumnDescriptor;

use super::byte_walk::ByteWalk;

/// Bytes of the length in front of the levels of a page of the first version.
const LEVELS_LENGTH_BYTES: usize = 4;

/// Levels that stand in front of the values of a page of the first version.
#[derive(Debug, Clone, Copy)]
pub(super) struct LevelsOfPages {
    repetition_max: i16,
    definition_max: i16,
}

impl LevelsOfPages {
    pub(super) fn of(column: &ColumnDescriptor) -> LevelsOfPages {
        LevelsOfPages {
            repetition_max: column.max_rep_level(),
            definition_max: column.max_def_level(),
        }
    }

    /// The values of a page, behind its levels; `None` where the page ends before. Repetition comes first.
    fn values_of(self, page: &[u8], count: u32, encodings: [Encoding; 2]) -> Option<&[u8]> {
        let [repetition, definition] = encodings;
        let definitions = behind_levels(page, count, self.repetition_max, repetition)?;
        behind_levels(definitions, count, self.definition_max, definition)
    }
}

/// The bytes behind levels up to a greatest one. Where that is 0, there are none, whatever encoding the page names.
fn behind_levels(page: &[u8], count: u32, level_max: i16, encoding: Encoding) -> Option<&[u8]> {
    if level_max <= 0 {
        return Some(page);
    }
    if encoding == Encoding::RLE {
        let (length, behind) = page.split_first_chunk::<LEVELS_LENGTH_BYTES>()?;
        let length = u32::from_le_bytes(*length) as usize;
        return behind.get(length..);
    }
    // The oldest pages have the bits of each level, without a length. The decoder refuses other encodings.
    let level_bits = u64::from(i16::BITS - level_max.leading_zeros());
    let length = (u64::from(count) * level_bits).div_ceil(8);
    page.get(usize::try_from(length).ok()?..)
}

/// True if a page, decompressed, has no more lengths of texts than values.
pub(super) fn has_fitting_lengths(page: &Page, levels: LevelsOfPages) -> bool {
    let lists = match page.encoding() {
        Encoding::DELTA_LENGTH_BYTE_ARRAY => 1,
        Encoding::DELTA_BYTE_ARRAY => 2,
        _ => return true,
    };
    let values = match page {
        Page::DataPage {
            buf,
            num_values,
            def_level_encoding,
            rep_level_encoding,
            ..
        } => {
            let encodings = [*rep_level_encoding, *def_level_encoding];
            levels.values_of(buf, *num_values, encodings)
        }
        Page::DataPageV2 {
            buf,
            def_levels_byte_len,
            rep_levels_byte_len,
            ..
        } => {
            let levels_bytes = *def_levels_byte_len as usize + *rep_levels_byte_len as usize;
            buf.get(levels_bytes..)
        }
        // No dictionary has texts of this kind.
        Page::DictionaryPage { .. } => None,
    };
    values.is_some_and(|values| are_lengths_fitting(values, lists, page.num_values()))
}

/// True if the lists of lengths at the beginning of a page hold no more of them than the page has values.
fn are_lengths_fitting(values: &[u8], lists: usize, values_of_page: u32) -> bool {
    // Without any value there need be no list.
    if values.is_empty() {
        return true;
    }
    let mut walk = ByteWalk::new(values);
    for list in 1..=lists {
        let Some(lengths) = LengthsHeader::read(&mut walk) else {
            return false;
        };
        if lengths.count > u64::from(values_of_page) {
            return false;
        }
        if list < lists && lengths.pass(&mut walk).is_none() {
            return false;
        }
    }
    true
}

/// The header of a list of lengths. They are packed as differences in blocks of several parts, each with its own width.
///
/// The form is that of [Parquet's DELTA_BINARY_PACKED](https://parquet.apache.org/docs/file-format/data-pages/encodings/).
struct LengthsHeader {
    /// Lengths of the list.
    count: u64,
    /// Parts of a block.
    parts: usize,
    /// Lengths of a part.
    part_lengths: usize,
}

impl LengthsHeader {
    fn read(walk: &mut ByteWalk) -> Option<LengthsHeader> {
        let block_lengths = usize::try_from(walk.varint()?).ok()?;
        let parts = usize::try_from(walk.varint()?).ok()?;
        let count = walk.varint()?;
        let _first_length = walk.varint()?;
        Some(LengthsHeader {
            count,
            parts,
            part_lengths: block_lengths.checked_div(parts)?,
        })
    }

    /// Passes the blocks behind the header; `None` where they do not end.
    fn pass(&self, walk: &mut ByteWalk) -> Option<()> {
        // The first length stands in the header.
        let mut remaining = usize::try_from(self.count).ok()?.saturating_sub(1);
        while remaining > 0 {
            let _least_difference = walk.varint()?;
            let widths = walk.take(self.parts)?;
            for width in widths {
                // The last block has widths of parts that it does not have.
                if remaining > 0 {
                    let bits = self.part_lengths.checked_mul(usize::from(*width))?;
                    walk.take(bits / 8)?;
                    remaining = remaining.saturating_sub(self.part_lengths);
                }
            }
        }
        Some(())
    }
}

/// Most values that a page can have: of a dictionary one for each byte, and of data `data_max`, if there is a limit.
pub(super) fn values_max_of(page: &Page, data_max: Option<u64>) -> Option<u64> {
    match page {
        Page::DictionaryPage { buf, .. } => Some((buf.len() as u64).max(1)),
        Page::DataPage { .. } | Page::DataPageV2 { .. } => data_max,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// A header of 128 lengths a block, in 4 parts.
    fn lengths_header(count: u8) -> [u8; 5] {
        [0x80, 0x01, 4, count, 0]
    }

    #[test]
    fn lists_of_more_lengths_than_values_do_not_fit() {
        for lists in [1, 2] {
            assert!(are_lengths_fitting(&[], lists, 0));
            assert!(!are_lengths_fitting(&[0x80], lists, 9));
            let one = lengths_header(1).repeat(lists);
            assert!(are_lengths_fitting(&one, lists, 1));
            assert!(!are_lengths_fitting(&one, lists, 0));
        }
        let second_is_long = [lengths_header(1), lengths_header(9)].concat();
        assert!(are_lengths_fitting(&second_is_long, 2, 9));
        assert!(!are_lengths_fitting(&second_is_long, 2, 8));
    }

    #[test]
    fn texts_stand_behind_the_levels_that_a_column_has() {
        let cases: [(i16, i16, &[u8], Encoding); 4] = [
            (0, 0, &[], Encoding::RLE),
            // Writers name any encoding for levels that there are none of.
            (0, 0, &[], Encoding::PLAIN),
            (0, 1, &[1, 0, 0, 0, 7], Encoding::RLE),
            // Nine levels of two bits, and nine of one bit.
            (3, 1, &[0xff; 5], Encoding::PLAIN),
        ];
        for (repetition_max, definition_max, levels, encoding) in cases {
            let column = LevelsOfPages {
                repetition_max,
                definition_max,
            };
            for count in [9, 10] {
                let page = Page::DataPage {
                    buf: Bytes::from([levels, &lengths_header(count)[..]].concat()),
                    num_values: 9,
                    encoding: Encoding::DELTA_LENGTH_BYTE_ARRAY,
                    def_level_encoding: encoding,
                    rep_level_encoding: encoding,
                    statistics: None,
                };
                assert_eq!(has_fitting_lengths(&page, column), count == 9, "{levels:?}");
            }
        }
    }

    #[test]
    fn the_second_list_stands_behind_the_parts_that_the_first_has() {
        // Of 40 lengths, 39 lie in two parts of 32 with 3 and 1 bits each; the other widths mean nothing.
        let block = [&[0, 3, 1, 77, 77][..], &[0; 12], &[0; 4]].concat();
        let values = [&lengths_header(40)[..], &block, &lengths_header(40)].concat();
        assert!(are_lengths_fitting(&values, 2, 40));
        assert!(!are_lengths_fitting(&values, 2, 39));
        assert!(!are_lengths_fitting(&values[..15], 2, 40));
        // A block without parts has no end.
        assert!(!are_lengths_fitting(&[0x80, 0x01, 0, 40, 0], 1, 40));
        assert!(!are_lengths_fitting(&[0, 4, 40, 0], 2, 40));
    }

    #[test]
    fn dictionaries_have_a_byte_for_each_value() {
        for (bytes, expected) in [(0, 1), (1, 1), (40, 40)] {
            let page = Page::DictionaryPage {
                buf: vec![0; bytes].into(),
                num_values: u32::MAX,
                encoding: Encoding::PLAIN,
                is_sorted: false,
            };
            assert_eq!(values_max_of(&page, Some(7)), Some(expected));
        }
    }
}
