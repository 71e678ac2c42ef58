//! From text to ids without a string per row.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use arrow::buffer::NullBuffer;
use arrow::compute::take;
use forebay_analyze::TextIndex;
use forebay_model::{Fault, Finding, Result, StringColumn, TextRef};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A dictionary larger than this multiple of the batch is looked up row by row.
const VALUES_PER_ROW_MAX: usize = 8;

/// A set of distinct tokens that gives each one's position.
#[derive(Debug)]
pub(crate) struct TokenIndex {
    text: ArrayRef,
    /// Loaded with the learned state, or made at the first look-up. A coordinator looks up no tokens and needs none.
    index: OnceLock<TextIndex>,
}

impl TokenIndex {
    /// Tokens in one of the string layouts; of equal ones the first counts.
    pub(crate) fn new(text: ArrayRef) -> Result<Self> {
        match TextRef::new(&text) {
            Some(_) => Ok(TokenIndex {
                text,
                index: OnceLock::new(),
            }),
            None => Err(Fault::internal("a vocabulary is not text")),
        }
    }

    /// Those of a vocabulary, in its order.
    pub(crate) fn from_finding(finding: &Finding) -> Result<Self> {
        let tokens = TokenIndex::new(finding.column("token")?.clone())?;
        let index = finding.index().and_then(TextIndex::from_bytes);
        Ok(TokenIndex {
            index: index.map(OnceLock::from).unwrap_or_default(),
            ..tokens
        })
    }

    /// Number of tokens.
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    /// All tokens, in their order.
    pub(crate) fn to_texts(&self) -> Vec<String> {
        let Some(texts) = TextRef::new(&self.text) else {
            return Vec::new();
        };
        texts.iter().flatten().map(str::to_owned).collect()
    }

    /// The position of a token.
    pub(crate) fn find(&self, token: &str) -> Option<u32> {
        let texts = TextRef::new(&self.text)?;
        self.index
            .get_or_init(|| TextIndex::new(texts))
            .find(token, texts)
    }
}

/// A slot below `slots` by the hash of a text, without the bias of a remainder.
pub(crate) fn scaled_hash(text: &[u8], seed: u64, slots: u64) -> u64 {
    ((u128::from(xxh3_64_with_seed(text, seed)) * u128::from(slots)) >> 64) as u64
}

/// The MurmurHash3 (x86, 32 bits) of a text, which other runtimes have.
///
/// Source: Austin Appleby, MurmurHash3, 2011, <https://github.com/aappleby/smhasher/wiki/MurmurHash3>.
pub(crate) fn murmur3(text: &[u8], seed: u32) -> u32 {
    let scrambled = |word: u32| {
        let word = word.wrapping_mul(0xcc9e_2d51).rotate_left(15);
        word.wrapping_mul(0x1b87_3593)
    };
    let mut hash = seed;
    let (words, tail) = text.as_chunks::<4>();
    for word in words {
        hash ^= scrambled(u32::from_le_bytes(*word));
        hash = hash.rotate_left(13).wrapping_mul(5);
        hash = hash.wrapping_add(0xe654_6b64);
    }
    let mut last = [0; 4];
    last[..tail.len()].copy_from_slice(tail);
    hash ^= scrambled(u32::from_le_bytes(last));
    hash ^= text.len() as u32;
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

/// One number for each string, computed once per distinct value; nulls stay null, and `None`
/// gives null.
pub(crate) fn gather_ids<T: ArrowPrimitiveType>(
    strings: &StringColumn,
    mut of_text: impl FnMut(&str) -> Result<Option<T::Native>>,
) -> Result<PrimitiveArray<T>> {
    let values = strings.values()?;
    let mut rows = IdArrayBuilder::<T>::new(strings.len());
    match strings {
        StringColumn::Plain(_) => {
            for text in values.iter() {
                rows.push(text.map_or(Ok(None), &mut of_text)?);
            }
        }
        StringColumn::Dictionary(keys, _) if values.len() > VALUES_PER_ROW_MAX * keys.len() => {
            for key in keys.iter() {
                let text = key.and_then(|key| values.get(key as usize));
                rows.push(text.map_or(Ok(None), &mut of_text)?);
            }
        }
        StringColumn::Dictionary(keys, _) => {
            // Only values that occur are computed.
            let mut ids: Vec<Option<Option<T::Native>>> = vec![None; values.len()];
            for key in keys.iter() {
                let Some(key) = key else {
                    rows.push(None);
                    continue;
                };
                let slot = ids
                    .get_mut(key as usize)
                    .ok_or_else(|| Fault::internal("a dictionary key is too large"))?;
                let id = match slot {
                    Some(id) => *id,
                    None => *slot.insert(values.get(key as usize).map_or(Ok(None), &mut of_text)?),
                };
                rows.push(id);
            }
        }
    }
    Ok(rows.finish())
}

/// Results of a kernel for whole dictionaries. All batches of a row group share one, so that
/// each distinct value is computed once per row group rather than once per batch.
pub(crate) struct DictionaryCache<T: ArrowPrimitiveType>(Mutex<VecDeque<CachedDictionary<T>>>);

struct CachedDictionary<T: ArrowPrimitiveType> {
    /// Not kept alive; while this is held, no other can have its address.
    values: Weak<dyn Array>,
    /// Absent until the dictionary comes a second time: it may not come again.
    ids: Option<PrimitiveArray<T>>,
}

impl<T: ArrowPrimitiveType> CachedDictionary<T> {
    fn holds(&self, values: &ArrayRef) -> bool {
        std::ptr::addr_eq(self.values.as_ptr(), Arc::as_ptr(values))
    }
}

/// Dictionaries that are remembered at most; those whose row group is done are forgotten anyway.
const REMEMBERED_MAX: usize = 256;

impl<T: ArrowPrimitiveType> Default for DictionaryCache<T> {
    fn default() -> Self {
        DictionaryCache(Mutex::default())
    }
}

impl<T: ArrowPrimitiveType> DictionaryCache<T> {
    /// Like [`gather_ids`].
    pub fn gather(
        &self,
        strings: &StringColumn,
        mut of_text: impl FnMut(&str) -> Result<Option<T::Native>>,
    ) -> Result<PrimitiveArray<T>> {
        let StringColumn::Dictionary(keys, values) = strings else {
            return gather_ids(strings, of_text);
        };
        let cached_ids = {
            let mut remembered = self.lock()?;
            match remembered.iter().find(|cached| cached.holds(values)) {
                Some(cached) => cached.ids.clone(),
                None => {
                    remembered.retain(|cached| cached.values.strong_count() > 0);
                    remembered.push_back(CachedDictionary {
                        values: Arc::downgrade(values),
                        ids: None,
                    });
                    if remembered.len() > REMEMBERED_MAX {
                        remembered.pop_front();
                    }
                    drop(remembered);
                    return gather_ids(strings, of_text);
                }
            }
        };
        let ids = match cached_ids {
            Some(ids) => ids,
            None => {
                let plain = gather_ids::<T>(&StringColumn::Plain(values.clone()), &mut of_text)?;
                let mut remembered = self.lock()?;
                if let Some(cached) = remembered.iter_mut().find(|cached| cached.holds(values)) {
                    cached.ids = Some(plain.clone());
                }
                plain
            }
        };
        Ok(take(&ids, keys, None)?.as_primitive::<T>().clone())
    }

    fn lock(&self) -> Result<MutexGuard<'_, VecDeque<CachedDictionary<T>>>> {
        self.0
            .lock()
            .map_err(|_| Fault::internal("another thread failed while it held a dictionary"))
    }
}

struct IdArrayBuilder<T: ArrowPrimitiveType> {
    values: Vec<T::Native>,
    valid: Vec<bool>,
    nulls: usize,
}

impl<T: ArrowPrimitiveType> IdArrayBuilder<T> {
    fn new(rows: usize) -> Self {
        IdArrayBuilder {
            values: Vec::with_capacity(rows),
            valid: Vec::with_capacity(rows),
            nulls: 0,
        }
    }

    fn push(&mut self, value: Option<T::Native>) {
        self.values.push(value.unwrap_or_default());
        self.valid.push(value.is_some());
        self.nulls += usize::from(value.is_none());
    }

    fn finish(self) -> PrimitiveArray<T> {
        let nulls = (self.nulls > 0).then(|| NullBuffer::from(self.valid));
        PrimitiveArray::new(self.values.into(), nulls)
    }
}
