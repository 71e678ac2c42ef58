//! Datasets and the spans that they are made of.

use arrow::datatypes::SchemaRef;

use crate::{Id, IdBuilder};

/// A contiguous part of one file.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// The file, as an absolute path or a URL without credentials.
    pub path: String,
    /// The file below the source's root, with `/` between its parts: what seeds its row keys
    /// (see [`crate::RowKeys::file_seed`]), so that they do not change when the root moves.
    pub relative: String,
    /// First and one-past-last row group; `None` means the whole file.
    pub row_groups: Option<(usize, usize)>,
    /// Position in the file of the piece's first row.
    pub first_row: u64,
    /// How many rows, where the format tells without reading.
    pub rows: Option<u64>,
    /// Stored (compressed) bytes of the piece.
    pub bytes: u64,
    /// Hive partition columns and their values, in path order.
    pub partition: Vec<(String, String)>,
    /// What changes when the rows that the file gives change: the store's version or etag, else
    /// size, modification time and footer; and its relative path and partition, which give row
    /// keys and columns.
    pub fingerprint: Id,
}

/// The smallest input piece that is named, fingerprinted, retried and cached.
/// Tiny files are coalesced into one span; large ones are cut at row groups.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// In reading order.
    pub pieces: Vec<Piece>,
}

impl Span {
    /// Stored bytes of all pieces.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes).sum()
    }

    /// Rows of all pieces, when every piece tells.
    pub fn rows(&self) -> Option<u64> {
        self.pieces.iter().map(|piece| piece.rows).sum()
    }

    /// The id of the content: equal for equal bytes of input.
    pub fn fingerprint(&self) -> Id {
        let mut id = IdBuilder::new("span");
        for piece in &self.pieces {
            let (from, to) = piece.row_groups.unwrap_or((0, usize::MAX));
            id.id(piece.fingerprint).bytes(&(from as u64).to_le_bytes()).bytes(&(to as u64).to_le_bytes());
        }
        id.finish()
    }

    /// What people call it: the file, and the row groups where it is not whole.
    pub fn label(&self) -> String {
        match self.pieces.as_slice() {
            [] => "nothing".to_owned(),
            [piece] => match piece.row_groups {
                Some((from, to)) if to - from == 1 => format!("{} row group {from}", piece.path),
                Some((from, to)) => format!("{} row groups {from}..{to}", piece.path),
                None => piece.path.clone(),
            },
            [first, rest @ ..] => format!("{} and {} more files", first.path, rest.len()),
        }
    }
}

/// What a source turned out to hold: its columns and its spans in canonical order.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// Columns with their logical types (see [`crate::logical_type`]); partition columns last.
    pub schema: SchemaRef,
    /// Canonical order: by path, then by position in the file.
    pub spans: Vec<Span>,
    /// Stored bytes per column of `schema`, when the format stores columns apart; reading a
    /// column then costs its own bytes only. `None` for row formats such as CSV.
    pub column_bytes: Option<Vec<u64>>,
}

impl Dataset {
    /// The id of everything in it, in order.
    pub fn fingerprint(&self) -> Id {
        let mut id = IdBuilder::new("dataset");
        for span in &self.spans {
            id.id(span.fingerprint());
        }
        id.finish()
    }

    /// Rows of all spans, when every span tells.
    pub fn rows(&self) -> Option<u64> {
        self.spans.iter().map(Span::rows).sum()
    }

    /// Stored bytes of all spans.
    pub fn bytes(&self) -> u64 {
        self.spans.iter().map(Span::bytes).sum()
    }
}
