//! Tokens of a pipeline, in the order of their ids.
//!
//! ```text
//! fits/<pipeline>/numbering/<epoch>/begun            mark of a numbering that a run began
//! fits/<pipeline>/numbering/<epoch>/<key>/00000003   the tokens that were added fourth, in a table
//! ```
//! A ledger only grows, so an id belongs to its token permanently. An addition is written once: of
//! two runs that add tokens at the same time, the slower one reads the ledger again. A run adds its
//! tokens before it uses their ids, so that no output ever shows an id that the ledger does not
//! know. Garbage collection keeps all of it.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, LargeStringArray, UInt64Array};
use arrow::compute::{cast, concat};
use arrow::datatypes::DataType;
use bytes::Bytes;
use forebay_model::{ContentId, Fault, Finding, IdBuilder, Result, TextRef, codes};
use forebay_storage::{StorageClient, StorageLocation};

use crate::artifact_findings::{FindingFile, findings_parquet};
use crate::fit_history::FITS;
use crate::gc::list_files;

/// The column of tokens in the tables.
const TOKEN: &str = "token";

/// The directory of numberings, below that of a pipeline.
const NUMBERING: &str = "numbering";

/// Marks a new numbering.
const BEGUN: &str = "begun";

/// True if a file below the directory of a pipeline's fits belongs to a numbering.
pub(crate) fn is_numbering_file(path: &str) -> bool {
    path.split('/').next() == Some(NUMBERING)
}

/// True if a file of a numbering can be read.
pub(crate) fn numbering_file_is_whole(
    io: &StorageClient,
    location: &StorageLocation,
) -> Result<bool> {
    let Some(bytes) = io.get(location)? else {
        return Ok(true);
    };
    let is_marker = location.shown.ends_with(BEGUN);
    Ok(is_marker || read_tokens(bytes).is_ok())
}

/// The tokens of one addition.
fn read_tokens(bytes: Bytes) -> Result<ArrayRef> {
    let table = FindingFile::open(bytes)?.finding(None)?;
    Ok(cast(table.column(TOKEN)?, &DataType::LargeUtf8)?)
}

/// A numbering of the tokens of a pipeline.
#[derive(Clone)]
pub struct TokenNumbering {
    io: StorageClient,
    /// The directory of all numberings of the pipeline.
    place: StorageLocation,
    /// Counts the new numberings.
    epoch: u64,
}

impl TokenNumbering {
    /// A numbering by its epoch.
    pub fn of_epoch(
        io: &StorageClient,
        root: &StorageLocation,
        pipeline: &str,
        epoch: u64,
    ) -> TokenNumbering {
        TokenNumbering {
            io: io.clone(),
            place: root.join(&format!("{FITS}/{pipeline}/{NUMBERING}")),
            epoch,
        }
    }

    /// The newest numbering.
    pub fn newest(
        io: &StorageClient,
        root: &StorageLocation,
        pipeline: &str,
    ) -> Result<TokenNumbering> {
        let first = TokenNumbering::of_epoch(io, root, pipeline, 0);
        let files = list_files(io, &first.place)?;
        let epochs = files
            .iter()
            .filter_map(|file| file.path.split('/').next()?.parse().ok());
        Ok(TokenNumbering {
            epoch: epochs.max().unwrap_or(0),
            ..first
        })
    }

    /// Begins a numbering without tokens.
    pub fn begin_anew(
        io: &StorageClient,
        root: &StorageLocation,
        pipeline: &str,
    ) -> Result<TokenNumbering> {
        let previous = TokenNumbering::newest(io, root, pipeline)?;
        let numbering = TokenNumbering {
            epoch: previous.epoch + 1,
            ..previous
        };
        let marker = numbering.directory().join(BEGUN);
        numbering.io.put_durable(&marker, b"")?;
        Ok(numbering)
    }

    /// The number of the numbering.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    fn directory(&self) -> StorageLocation {
        self.place.join(&self.epoch.to_string())
    }

    /// The ledger of a vocabulary.
    pub fn ledger(&self, key: &str) -> TokenLedger {
        let name = ContentId::of(key.as_bytes());
        TokenLedger {
            io: self.io.clone(),
            place: self.directory().join(&name.to_string()),
        }
    }
}

/// The tokens of one vocabulary.
pub struct TokenLedger {
    io: StorageClient,
    place: StorageLocation,
}

impl TokenLedger {
    /// Reads all tokens.
    pub fn read(&self) -> Result<NumberedTokens> {
        let mut parts: Vec<ArrayRef> = Vec::new();
        let files = list_files(&self.io, &self.place)?;
        let entries = files
            .iter()
            .filter(|file| file.path.parse::<u64>().is_ok())
            .count();
        for entry in 0..entries {
            let location = self.entry_place(entry as u64);
            let broken = || {
                let fault = Fault::new(codes::CORRUPT, "the ids of tokens cannot be read");
                fault
                    .file(&location.shown)
                    .hint("restore the file; without it, `--renumber` gives all tokens new ids")
            };
            let bytes = self.io.get(&location)?.ok_or_else(broken)?;
            parts.push(read_tokens(bytes).map_err(|fault| broken().cause(fault))?);
        }
        let tokens: ArrayRef = if parts.is_empty() {
            Arc::new(LargeStringArray::from(Vec::<&str>::new()))
        } else {
            let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
            concat(&parts)?
        };
        Ok(NumberedTokens {
            tokens,
            entries: entries as u64,
        })
    }

    /// Adds tokens after those that were read. False if another run has added tokens since.
    pub fn append(&self, numbered: &NumberedTokens, tokens: ArrayRef) -> Result<bool> {
        let table = Finding::of([(TOKEN, tokens)])?;
        let bytes = findings_parquet(std::iter::once(&table))?;
        self.io
            .put_durable_if_absent(&self.entry_place(numbered.entries), Bytes::from(bytes))
    }

    fn entry_place(&self, entry: u64) -> StorageLocation {
        self.place.join(&format!("{entry:08}"))
    }
}

/// The tokens of a ledger, as it was when it was read.
#[derive(Clone)]
pub struct NumberedTokens {
    tokens: ArrayRef,
    /// Additions so far.
    entries: u64,
}

impl NumberedTokens {
    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// True if there is no token.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The tokens as a vocabulary of no rows.
    pub fn finding(&self) -> Result<Finding> {
        let counts = UInt64Array::from(vec![0; self.tokens.len()]);
        Finding::of([
            (TOKEN, self.tokens.clone()),
            ("count", Arc::new(counts) as ArrayRef),
        ])
    }

    /// Id of the first tokens in their order; `None` if there are fewer.
    pub fn digest(&self, tokens: usize) -> Result<Option<ContentId>> {
        if tokens > self.len() {
            return Ok(None);
        }
        let texts = TextRef::new(&self.tokens)
            .ok_or_else(|| Fault::internal("the tokens of a ledger are not text"))?;
        let mut id = IdBuilder::new("numbered tokens");
        for token in texts.iter().take(tokens) {
            id.text(token.unwrap_or_default());
        }
        Ok(Some(id.finish()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(texts: &[&str]) -> ArrayRef {
        Arc::new(LargeStringArray::from(texts.to_vec()))
    }

    #[test]
    fn a_ledger_only_grows() {
        let dir = tempfile::tempdir().unwrap();
        let io = StorageClient::new().unwrap();
        let root = io.resolve(&dir.path().display().to_string()).unwrap();
        let numbering = TokenNumbering::newest(&io, &root, "shop").unwrap();
        let ledger = numbering.ledger("features.page");
        let empty = ledger.read().unwrap();
        assert!(empty.is_empty());
        assert!(ledger.append(&empty, tokens(&["b", "a"])).unwrap());
        // Another run read it before: its tokens are not added.
        assert!(!ledger.append(&empty, tokens(&["x"])).unwrap());
        let first = ledger.read().unwrap();
        assert!(ledger.append(&first, tokens(&["x"])).unwrap());
        let second = ledger.read().unwrap();
        assert_eq!((first.len(), second.len()), (2, 3));
        assert_eq!(second.digest(2).unwrap(), first.digest(2).unwrap());
        assert_ne!(second.digest(3).unwrap(), second.digest(2).unwrap());
        assert_eq!(first.digest(3).unwrap(), None);
        assert_eq!(second.finding().unwrap().rows(), 3);
        // Other vocabularies and numberings know nothing of it.
        assert!(
            numbering
                .ledger("features.other")
                .read()
                .unwrap()
                .is_empty()
        );
        let anew = TokenNumbering::begin_anew(&io, &root, "shop").unwrap();
        assert_eq!(anew.epoch(), 1);
        let newest = TokenNumbering::newest(&io, &root, "shop").unwrap();
        assert_eq!(newest.epoch(), 1);
        assert!(newest.ledger("features.page").read().unwrap().is_empty());
        let again = TokenNumbering::of_epoch(&io, &root, "shop", 0).ledger("features.page");
        assert_eq!(again.read().unwrap().len(), 3);
    }
}
