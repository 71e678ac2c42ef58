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
    examples: Vec<ValueExample>,
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
        // Most values end here.
        if self.examples.len() == EXAMPLES_MAX
            && let Some(greatest) = self.examples.last()
            && greatest.hash < hash
        {
            return;
        }
        let position = self
            .examples
            .binary_search_by_key(&hash, |example| example.hash);
        // A hash that is found is the same value.
        if let Err(position) = position {
            let text = cut(text());
            self.examples.insert(position, ValueExample { hash, text });
            self.examples.truncate(EXAMPLES_MAX);
        }
    }

    pub(crate) fn merge(&mut self, other: ValueExamples) {
        for example in other.examples {
            self.add(example.hash, || example.text);
        }
    }

    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.examples.iter().map(|example| example.text.as_str())
    }

    pub(crate) fn encode(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        out.varint(self.examples.len() as u64)?;
        for example in &self.examples {
            out.u64(example.hash)?;
            out.bytes(example.text.as_bytes())?;
        }
        Ok(())
    }

    pub(crate) fn decode(input: &mut StateDecoder<'_>) -> Result<ValueExamples> {
        let mut examples: Vec<ValueExample> = Vec::new();
        for _ in 0..input.length(EXAMPLES_MAX)? {
            let hash = input.u64()?;
            let bytes = input.bytes(EXAMPLE_BYTES_MAX)?;
            let text = String::from_utf8(bytes).map_err(|_| corrupt())?;
            if examples.last().is_some_and(|last| last.hash >= hash) {
                return Err(corrupt());
            }
            examples.push(ValueExample { hash, text });
        }
        Ok(ValueExamples { examples })
    }

    /// Bytes of memory held.
    pub(crate) fn size_bytes(&self) -> usize {
        self.examples
            .iter()
            .map(|example| size_of::<ValueExample>() + example.text.capacity())
            .sum()
    }
}

fn corrupt() -> Fault {
    Fault::new(
        codes::CORRUPT,
        "a state has examples that are no texts in order",
    )
}

fn cut(mut text: String) -> String {
    if text.len() > EXAMPLE_BYTES_MAX {
        text.truncate(text.floor_char_boundary(EXAMPLE_BYTES_MAX - CUT.len()));
        text.push_str(CUT);
        text.shrink_to_fit();
    }
    text
}
