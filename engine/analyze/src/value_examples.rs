//! A few values of a column, chosen by their hashes.

use forebay_model::{Fault, Result, StateDecoder, StateEncoder, codes};

/// Examples of a column.
const EXAMPLES_MAX: usize = 5;

/// Bytes of an example; longer ones are cut.
const EXAMPLE_BYTES_MAX: usize = 256;

/// Stands at the end of a value that was cut.
pub(crate) const CUT: &str = "...";

/// The values with the least hashes. Which ones these are depends on the set of values alone.
#[derive(Debug, Default)]
pub(crate) struct ValueExamples {
    /// Ascending by hash.
    kept: Vec<ValueExample>,
}

#[derive(Debug)]
struct ValueExample {
    hash: u64,
    text: String,
}

impl ValueExamples {
    /// The bytes of a state at most.
    pub(crate) const SIZE_MAX: usize =
        EXAMPLES_MAX * (size_of::<ValueExample>() + EXAMPLE_BYTES_MAX);

    /// Adds a value by its hash. `text` is called only for a value that is kept.
    #[inline]
    pub(crate) fn add(&mut self, hash: u64, text: impl FnOnce() -> String) {
        if self.kept.len() == EXAMPLES_MAX
            && self
                .kept
                .last()
                .is_some_and(|greatest| greatest.hash < hash)
        {
            return;
        }
        if let Err(place) = self
            .kept
            .binary_search_by_key(&hash, |example| example.hash)
        {
            self.kept.insert(
                place,
                ValueExample {
                    hash,
                    text: cut(text()),
                },
            );
            self.kept.truncate(EXAMPLES_MAX);
        }
    }

    pub(crate) fn merge(&mut self, other: ValueExamples) {
        other
            .kept
            .into_iter()
            .for_each(|example| self.add(example.hash, || example.text));
    }

    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.kept.iter().map(|example| example.text.as_str())
    }

    pub(crate) fn encode(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        out.varint(self.kept.len() as u64)?;
        self.kept
            .iter()
            .try_for_each(|ValueExample { hash, text }| {
                out.u64(*hash)?;
                out.bytes(text.as_bytes())
            })
    }

    pub(crate) fn decode(input: &mut StateDecoder<'_>) -> Result<ValueExamples> {
        let corrupt = || {
            Fault::new(
                codes::CORRUPT,
                "a state has examples that are no texts in order",
            )
        };
        let mut kept: Vec<ValueExample> = Vec::new();
        for _ in 0..input.length(EXAMPLES_MAX)? {
            let hash = input.u64()?;
            let text = String::from_utf8(input.bytes(EXAMPLE_BYTES_MAX)?).map_err(|_| corrupt())?;
            if kept.last().is_some_and(|before| before.hash >= hash) {
                return Err(corrupt());
            }
            kept.push(ValueExample { hash, text });
        }
        Ok(ValueExamples { kept })
    }

    /// Bytes of memory held.
    pub(crate) fn size_bytes(&self) -> usize {
        self.kept
            .iter()
            .map(|example| size_of::<ValueExample>() + example.text.capacity())
            .sum()
    }
}

fn cut(mut text: String) -> String {
    if text.len() > EXAMPLE_BYTES_MAX {
        text.truncate(text.floor_char_boundary(EXAMPLE_BYTES_MAX - CUT.len()));
        text.push_str(CUT);
        text.shrink_to_fit();
    }
    text
}
