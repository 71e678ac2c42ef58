//! An index from text to position, in one buffer without pointers: a process can map it from a file instead of
//! building it.

use arrow::buffer::{Buffer, ScalarBuffer};
use forebay_model::TextRef;
use xxhash_rust::xxh3::xxh3_64;

use crate::short_key_map::ShortKey;

/// Header words: the numbers of slots for short and for long texts.
const HEAD: usize = 2;

/// Slots per four short texts: the highest load that is still fast.
const SLOTS_PER_FOUR_TEXTS: usize = 5;

/// Slots per long text: each probe also reads the text that it refers to.
const SLOTS_PER_LONG_TEXT: usize = 2;

/// Positions of texts, with open addressing. Short texts are stored in their slot, so that a lookup touches one
/// cache line. Slots of long texts hold half of the hash.
#[derive(Debug, Clone)]
pub struct TextIndex {
    words: ScalarBuffer<u64>,
}

impl TextIndex {
    /// Indexes all texts; of equal texts the first one counts.
    pub fn new(texts: TextRef<'_>) -> TextIndex {
        let mut short_count = 0;
        let mut long_count = 0;
        for text in texts.iter().flatten() {
            if ShortKey::pack(text.as_bytes()).is_some() {
                short_count += 1;
            } else {
                long_count += 1;
            }
        }
        let short_slots = short_count * SLOTS_PER_FOUR_TEXTS / 4 + 8;
        let long_slots = long_count * SLOTS_PER_LONG_TEXT + 1;
        let mut words = vec![0; HEAD + 2 * short_slots + long_slots];
        words[0] = short_slots as u64;
        words[1] = long_slots as u64;
        let (short, long) = words[HEAD..].split_at_mut(2 * short_slots);
        let short = short.as_chunks_mut().0;
        for (position, text) in texts.iter().enumerate() {
            let Some(text) = text else { continue };
            match ShortKey::pack(text.as_bytes()) {
                Some(key) => {
                    let slot = &mut short[short_slot(short, key)];
                    // A slot that is taken holds the first of equal texts.
                    if is_free(slot) {
                        *slot = [key.head, u64::from(key.tail) | (position as u64) << 32];
                    }
                }
                None => {
                    let hash = xxh3_64(text.as_bytes());
                    let slot = &mut long[long_slot(long, hash, text, texts)];
                    if *slot == 0 {
                        *slot = long_word(hash, position);
                    }
                }
            }
        }
        TextIndex {
            words: words.into(),
        }
    }

    /// Reads the output of [`TextIndex::bytes`]; `None` if it is not an index.
    pub fn from_bytes(bytes: &Buffer) -> Option<TextIndex> {
        let is_aligned = bytes.as_ptr().align_offset(align_of::<u64>()) == 0;
        let bytes = if is_aligned {
            bytes.clone()
        } else {
            Buffer::from(bytes.as_slice())
        };
        let words = ScalarBuffer::<u64>::new(bytes.clone(), 0, bytes.len() / size_of::<u64>());
        let index = TextIndex { words };
        let [short, long, ..] = *index.words else {
            return None;
        };
        let slots = short.checked_mul(2)?.checked_add(long)?;
        let has_slots = short > 0 && long > 0;
        let is_whole = slots == (index.words.len() - HEAD) as u64;
        (has_slots && is_whole).then_some(index)
    }

    /// The encoded index.
    pub fn bytes(&self) -> &Buffer {
        self.words.inner()
    }

    /// Position of a text in the indexed list.
    pub fn find(&self, text: &str, texts: TextRef<'_>) -> Option<u32> {
        let short_words = 2 * self.words[0] as usize;
        let (short, long) = self.words[HEAD..].split_at(short_words);
        match ShortKey::pack(text.as_bytes()) {
            Some(key) => {
                let short = short.as_chunks().0;
                let slot = &short[short_slot(short, key)];
                (!is_free(slot)).then_some((slot[1] >> 32) as u32)
            }
            None => {
                let hash = xxh3_64(text.as_bytes());
                long_position(long[long_slot(long, hash, text, texts)])
            }
        }
    }
}

fn is_free(slot: &[u64; 2]) -> bool {
    slot[1] as u32 == 0
}

/// The slot of a short text, or the free slot where it belongs. At least one slot has to be free.
fn short_slot(slots: &[[u64; 2]], key: ShortKey) -> usize {
    let mut at = key.home(slots.len());
    loop {
        let [head, tail_and_position] = slots[at];
        let is_key = head == key.head && tail_and_position as u32 == key.tail;
        if is_key || is_free(&slots[at]) {
            return at;
        }
        at = if at + 1 == slots.len() { 0 } else { at + 1 };
    }
}

/// A slot word: half of the hash, and the position plus one. Never zero.
fn long_word(hash: u64, position: usize) -> u64 {
    hash >> 32 << 32 | (position as u64 + 1)
}

fn long_position(word: u64) -> Option<u32> {
    (word as u32).checked_sub(1)
}

/// The slot of a long text, or the free slot where it belongs.
fn long_slot(slots: &[u64], hash: u64, text: &str, texts: TextRef<'_>) -> usize {
    let mut at = ((u128::from(hash) * slots.len() as u128) >> 64) as usize;
    loop {
        let Some(position) = long_position(slots[at]) else {
            return at;
        };
        // Half of the hash is compared first: most other texts need no look at their bytes.
        let has_same_hash = slots[at] >> 32 == hash >> 32;
        if has_same_hash && texts.get(position as usize) == Some(text) {
            return at;
        }
        at = if at + 1 == slots.len() { 0 } else { at + 1 };
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, StringArray};
    use proptest::prelude::*;

    use super::*;

    fn check_lookups(texts: &[Option<String>], others: &[String]) {
        let array: ArrayRef = std::sync::Arc::new(StringArray::from(texts.to_vec()));
        let texts_of = TextRef::new(&array).unwrap();
        let made = TextIndex::new(texts_of);
        // Unaligned, as a file may hold it.
        let mut bytes = vec![0; 3];
        bytes.extend_from_slice(made.bytes());
        let left = TextIndex::from_bytes(&Buffer::from(bytes).slice(3)).unwrap();
        for text in texts.iter().flatten().chain(others) {
            let first = texts
                .iter()
                .position(|known| known.as_ref() == Some(text))
                .map(|at| at as u32);
            assert_eq!(made.find(text, texts_of), first, "{text}");
            assert_eq!(left.find(text, texts_of), first, "{text}");
        }
    }

    #[test]
    fn an_empty_index_finds_nothing() {
        check_lookups(
            &[],
            &["a".to_owned(), "longer than eleven bytes".to_owned()],
        );
        check_lookups(&[None], &[String::new()]);
    }

    #[test]
    fn invalid_index_bytes_are_refused() {
        assert!(TextIndex::from_bytes(&Buffer::from(vec![0u8; 0])).is_none());
        assert!(TextIndex::from_bytes(&Buffer::from(vec![0u64; 9])).is_none());
        assert!(TextIndex::from_bytes(&Buffer::from(vec![u64::MAX, 3, 0, 0])).is_none());
        assert!(TextIndex::from_bytes(&Buffer::from(vec![1u64, 2, 0, 0, 0])).is_none());
    }

    proptest! {
        #[test]
        fn the_first_of_equal_texts_is_found(
            texts in prop::collection::vec(prop::option::of("[ab]{0,4}|[ab]{10,14}"), 0..200),
            others in prop::collection::vec("[abc]{0,14}", 0..50),
        ) {
            check_lookups(&texts, &others);
        }
    }
}
