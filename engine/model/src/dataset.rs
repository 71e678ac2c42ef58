//! Datasets and their spans.

use arrow::datatypes::SchemaRef;
use serde::Serialize;

use crate::{ContentId, IdBuilder, NameIndex};

/// A contiguous part of one file.
#[derive(Debug, Clone, PartialEq)]
pub struct FileRange {
    /// The file, as an absolute path or a URL without credentials.
    pub path: String,
    /// The file's path below the source's root, with `/` as separator. It seeds the row keys (see
    /// [`crate::RowKeys::file_seed`]), so that they do not change when the root moves.
    pub relative: String,
    /// First and one-past-last row group; `None` means the whole file.
    pub row_groups: Option<(usize, usize)>,
    /// First and one-past-last row of its only row group, counted from the first of that group; `None` means all rows.
    pub row_range: Option<(u64, u64)>,
    /// In a text format, the records that begin at or after the first byte and before the second; `None` means all.
    pub byte_range: Option<(u64, u64)>,
    /// Position in the file of the piece's first row; 0 for a range of bytes, whose reader finds it out.
    pub first_row: u64,
    /// Number of rows, if the format provides it without reading the data.
    pub rows: Option<u64>,
    /// Stored (compressed) bytes of the piece.
    pub bytes: u64,
    /// Hive partition columns and their values, in path order.
    pub partition: Vec<(String, String)>,
    /// Extents of the columns `Dataset::extent_columns`, in that order; `None` if unknown.
    pub extents: Vec<Option<ColumnExtent>>,
    /// Identity of the piece's content: the store's version or etag, else size, modification time and footer.
    /// Includes the relative path and the partition values, because they determine row keys and columns.
    pub fingerprint: ContentId,
}

/// Minimum and maximum of a column over a part of a dataset, from its metadata. No value lies outside the bounds,
/// but the bounds themselves need not occur. Nulls are not covered. There is no extent if the values are unknown or
/// all null.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ColumnExtent {
    /// Lower bound, inclusive.
    pub min: BoundValue,
    /// Upper bound, inclusive.
    pub max: BoundValue,
    /// True if the column may also hold nulls.
    pub nulls: bool,
}

impl ColumnExtent {
    /// Union of several extents; `None` if there are none or one of them is unknown.
    pub fn union<'a>(
        parts: impl IntoIterator<Item = Option<&'a ColumnExtent>>,
    ) -> Option<ColumnExtent> {
        // One unknown part makes the whole unknown.
        let mut parts = parts.into_iter();
        let mut whole = parts.next()??.clone();
        for part in parts {
            let part = part?;
            if part.min < whole.min {
                whole.min = part.min.clone();
            }
            if part.max > whole.max {
                whole.max = part.max.clone();
            }
            whole.nulls |= part.nulls;
        }
        Some(whole)
    }
}

/// A bound of a column's values. All bounds of one column have the same variant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum BoundValue {
    /// An integer. Dates and timestamps are in ticks of the column's logical type; booleans are 0 or 1.
    Int(i64),
    /// A string, compared bytewise.
    Text(String),
}

/// The smallest unit of input that is named, fingerprinted, retried and cached. Small files are coalesced into one
/// span; large files are divided at row groups.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Span {
    /// In reading order.
    pub pieces: Vec<FileRange>,
}

impl Span {
    /// Stored bytes of all pieces.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes).sum()
    }

    /// Rows of all pieces; `None` if a piece does not provide its row count.
    pub fn rows(&self) -> Option<u64> {
        self.pieces.iter().map(|piece| piece.rows).sum()
    }

    /// Extent of the column at index `watched` of `Dataset::extent_columns`.
    pub fn extent(&self, watched: usize) -> Option<ColumnExtent> {
        // Pieces without rows have no extent, and do not make that of the others unknown.
        let filled = self.pieces.iter().filter(|piece| piece.rows != Some(0));
        ColumnExtent::union(filled.map(|piece| piece.extents.get(watched)?.as_ref()))
    }

    /// Id of the content: equal for equal input bytes.
    pub fn fingerprint(&self) -> ContentId {
        let mut id = IdBuilder::new("span");
        for piece in &self.pieces {
            let (from, to) = piece.row_groups.unwrap_or((0, usize::MAX));
            id.id(piece.fingerprint)
                .bytes(&(from as u64).to_le_bytes())
                .bytes(&(to as u64).to_le_bytes());
            if let Some((from, to)) = piece.row_range {
                id.bytes(&from.to_le_bytes()).bytes(&to.to_le_bytes());
            }
            if let Some((from, to)) = piece.byte_range {
                id.text("bytes")
                    .bytes(&from.to_le_bytes())
                    .bytes(&to.to_le_bytes());
            }
        }
        id.finish()
    }

    /// Display name: the file, with the row groups if the span is not a whole file.
    pub fn label(&self) -> String {
        match self.pieces.as_slice() {
            [] => "nothing".to_owned(),
            [piece] => match (piece.row_groups, piece.row_range) {
                (Some((group, _)), Some((from, to))) => {
                    format!("{} row group {group}, rows {from}..{to} of it", piece.path)
                }
                (Some((from, to)), None) if to - from == 1 => {
                    format!("{} row group {from}", piece.path)
                }
                (Some((from, to)), None) => format!("{} row groups {from}..{to}", piece.path),
                (None, _) => match piece.byte_range {
                    Some((from, to)) => format!("{} bytes {from}..{to}", piece.path),
                    None => piece.path.clone(),
                },
            },
            [first, rest @ ..] => format!("{} and {} more files", first.path, rest.len()),
        }
    }
}

/// The discovered content of a source: its columns, and its spans in canonical order.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// Columns with their logical types (see [`crate::logical_type`]); partition columns last.
    pub schema: SchemaRef,
    /// Canonical order: by path, then by position in the file; or by time after `Dataset::sort_spans_by_time`
    /// succeeded.
    pub spans: Vec<Span>,
    /// Stored bytes per column of `schema`, for columnar formats: reading a column costs only its own bytes. `None`
    /// for row formats such as CSV.
    pub column_bytes: Option<Vec<u64>>,
    /// Nulls per column of `schema`, as metadata counts them before any row is read: 0 only where a column has none,
    /// `None` where the metadata do not say. Empty for formats without such metadata.
    pub null_counts: Vec<Option<u64>>,
    /// Columns whose extents were requested, whether or not `schema` contains them.
    pub watched: Vec<String>,
    /// The version of the table that was found, for sources that have versions. It has no part in the fingerprint.
    pub version: Option<u64>,
    /// Files of its folders that are not read.
    pub left_out: LeftOutFiles,
    /// Contents of its files, as metadata describe them. Empty for formats without such metadata.
    pub files: Vec<FileContent>,
}

/// The content of a file, as its metadata describe it before any row is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileContent {
    /// The file, as in [`FileRange::path`].
    pub path: String,
    /// Id of the metadata without the file's name: copies of a file have the same.
    pub digest: ContentId,
    /// Indices of the columns of `Dataset::schema` that are null in all of its rows.
    pub empty_columns: Vec<usize>,
}

/// Names of files left out that are kept for messages.
const LEFT_OUT_SHOWN: usize = 5;

/// Files of a source's folders that are not read, and columns of its files. Hidden files, whose names begin with `_` or
/// `.`, are not among them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LeftOutFiles {
    /// Number of the files.
    pub files: u64,
    /// The first of them by name.
    pub first: Vec<LeftOutFile>,
    /// Columns whose values are those of folders, and not those in the files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
}

/// A file that is not read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOutFile {
    /// The path below the source's root.
    pub path: String,
    /// The reason.
    pub reason: LeftOutReason,
}

/// The reason for which a file of a folder is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftOutReason {
    /// By its name and its first bytes it is no file of the source's format.
    Name,
    /// By its name it is a backup or an unfinished file.
    Copy,
}

impl LeftOutFiles {
    /// Files with their reasons, in the order of their names.
    pub fn new(files: impl IntoIterator<Item = (String, LeftOutReason)>) -> LeftOutFiles {
        let mut left_out = LeftOutFiles::default();
        for (path, reason) in files {
            left_out.files += 1;
            if left_out.first.len() < LEFT_OUT_SHOWN {
                left_out.first.push(LeftOutFile { path, reason });
            }
        }
        left_out
    }

    /// These, and columns of the files that folders replace.
    pub fn with_columns(mut self, columns: Vec<String>) -> LeftOutFiles {
        self.columns = columns;
        self
    }

    /// True if all is read.
    pub fn is_empty(&self) -> bool {
        self.files == 0 && self.columns.is_empty()
    }

    /// A sentence part on the files and the columns that are left out; `None` if all is read.
    pub fn text(&self) -> Option<String> {
        let parts: Vec<String> = self
            .files_text()
            .into_iter()
            .chain(self.columns_text())
            .collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    fn columns_text(&self) -> Option<String> {
        if self.columns.is_empty() {
            return None;
        }
        let names: Vec<String> = self
            .columns
            .iter()
            .map(|name| format!("`{name}`"))
            .collect();
        let verb = if names.len() == 1 { "is" } else { "are" };
        Some(format!(
            "{} of its files {verb} not read: the folders give the values (`partitions: none` \
             reads those of files)",
            names.join(", ")
        ))
    }

    /// The number of files, the first names and their reasons.
    fn files_text(&self) -> Option<String> {
        if self.files == 0 {
            return None;
        }
        let mut named = Vec::with_capacity(self.first.len());
        for file in &self.first {
            let reason = match file.reason {
                LeftOutReason::Name => " (not of this format by its name)",
                LeftOutReason::Copy => " (a backup or an unfinished file by its name)",
            };
            named.push(format!("`{}`{reason}", file.path));
        }
        let named = named.join(", ");
        let others = match self.files - self.first.len() as u64 {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        let files = if self.files == 1 { "file" } else { "files" };
        Some(format!("{} {files} left out: {named}{others}", self.files))
    }
}

impl Dataset {
    /// The nulls of a column, where metadata count them.
    pub fn null_count(&self, column: &str) -> Option<u64> {
        let index = self.schema.index_of(column).ok()?;
        self.null_counts.get(index).copied().flatten()
    }

    /// The folder that holds all its files, if it has any; `.` for that of relative paths.
    pub fn folder(&self) -> Option<String> {
        let mut ends: Option<(&str, &str)> = None;
        for piece in self.spans.iter().flat_map(|span| &span.pieces) {
            let folder = match piece.path.rsplit_once('/') {
                Some((folder, _)) => folder,
                None => ".",
            };
            ends = Some(match ends {
                None => (folder, folder),
                Some((first, last)) => (first.min(folder), last.max(folder)),
            });
        }
        // All folders share what the first and the last one in order share.
        let (first, last) = ends?;
        let mut shared = Vec::new();
        for (first_part, last_part) in first.split('/').zip(last.split('/')) {
            if first_part != last_part {
                break;
            }
            shared.push(first_part);
        }
        let shared = shared.join("/");
        if shared.is_empty() {
            Some("/".to_owned())
        } else {
            Some(shared)
        }
    }

    /// Turns every piece into a span of its own and sorts the spans by the time column. Returns true if all extents
    /// are known and do not overlap, except for one value shared by consecutive spans. Otherwise returns false and
    /// leaves the spans unchanged. One span per file makes an added, removed or changed file affect one span only.
    /// The order of rows inside a span is not checked.
    pub fn sort_spans_by_time(&mut self, time: &str) -> bool {
        let Some(watched) = self.watched.iter().position(|name| name == time) else {
            return false;
        };
        let mut spans: Vec<Span> = Vec::new();
        for piece in self.spans.iter().flat_map(|span| &span.pieces) {
            spans.push(Span {
                pieces: vec![piece.clone()],
            });
        }
        let mut extents = Vec::with_capacity(spans.len());
        for (index, span) in spans.iter().enumerate() {
            match span.extent(watched) {
                // Spans of equal extent stay in path order.
                Some(extent) => extents.push((Some(extent), index)),
                None if span.rows() == Some(0) => extents.push((None, index)),
                None => return false,
            }
        }
        extents.sort_unstable();
        for pair in extents.windows(2) {
            if let (Some(extent), Some(next)) = (&pair[0].0, &pair[1].0)
                && extent.max > next.min
            {
                return false;
            }
        }
        let mut sorted = Vec::with_capacity(spans.len());
        for (_, index) in extents {
            sorted.push(std::mem::take(&mut spans[index]));
        }
        self.spans = sorted;
        true
    }

    /// Id of the content of all spans, in order.
    pub fn fingerprint(&self) -> ContentId {
        let mut id = IdBuilder::new("dataset");
        for span in &self.spans {
            id.id(span.fingerprint());
        }
        id.finish()
    }

    /// Rows of all spans; `None` if a span does not provide its row count.
    pub fn rows(&self) -> Option<u64> {
        self.spans.iter().map(Span::rows).sum()
    }

    /// Stored bytes of all spans.
    pub fn bytes(&self) -> u64 {
        self.spans.iter().map(Span::bytes).sum()
    }

    /// Stored bytes of some columns in all spans, if known. Names of other columns count nothing.
    pub fn bytes_of_columns(&self, columns: &[String]) -> Option<u64> {
        let bytes = self.column_bytes.as_ref()?;
        let names = NameIndex::of_fields(self.schema.fields());
        let mut sum = 0;
        for name in columns {
            if let Some(index) = names.get(name) {
                sum += bytes.get(index).copied().unwrap_or(0);
            }
        }
        Some(sum)
    }

    /// The share of the stored bytes that lies in some columns, from 0 to 1; 1 if it is not known.
    pub fn share_of_columns(&self, columns: &[String]) -> f64 {
        let total = self.column_bytes.iter().flatten().sum::<u64>().max(1);
        match self.bytes_of_columns(columns) {
            Some(bytes) => bytes as f64 / total as f64,
            None => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::Schema;

    use super::*;

    fn piece(name: &str, rows: u64, extent: Option<(i64, i64)>) -> FileRange {
        let extent = extent.map(|(min, max)| ColumnExtent {
            min: BoundValue::Int(min),
            max: BoundValue::Int(max),
            nulls: false,
        });
        FileRange {
            path: format!("/{name}"),
            relative: name.to_owned(),
            row_groups: None,
            row_range: None,
            byte_range: None,
            first_row: 0,
            rows: Some(rows),
            bytes: 1,
            partition: Vec::new(),
            extents: vec![None, extent],
            fingerprint: ContentId::of(name.as_bytes()),
        }
    }

    fn span(pieces: &[Option<(i64, i64)>]) -> Span {
        Span {
            pieces: pieces.iter().map(|extent| piece("a", 1, *extent)).collect(),
        }
    }

    #[test]
    fn span_extent_is_the_union_of_its_ranges() {
        let check = |pieces: &[Option<(i64, i64)>], expected: Option<(i64, i64)>| {
            let expected = expected.map(|(min, max)| ColumnExtent {
                min: BoundValue::Int(min),
                max: BoundValue::Int(max),
                nulls: false,
            });
            assert_eq!(span(pieces).extent(1), expected, "{pieces:?}");
        };
        check(&[Some((3, 5))], Some((3, 5)));
        check(&[Some((3, 5)), Some((-1, 4)), Some((4, 9))], Some((-1, 9)));
        check(&[Some((3, 5)), None], None);
        check(&[], None);
        let mut with_empty = span(&[Some((3, 5))]);
        with_empty.pieces.push(piece("empty", 0, None));
        assert_eq!(with_empty.extent(1), span(&[Some((3, 5))]).extent(1));
        assert_eq!(with_empty.extent(0), None);
        assert_eq!(with_empty.extent(7), None);
    }

    #[test]
    fn fingerprints_ignore_extents() {
        assert_eq!(
            span(&[Some((3, 5))]).fingerprint(),
            span(&[None]).fingerprint()
        );
    }

    #[test]
    fn spans_that_do_not_overlap_are_put_in_time_order() {
        let check = |extents: &[(u64, Option<(i64, i64)>)], expected: Option<&[usize]>| {
            let spans = extents.iter().enumerate();
            let spans = spans.map(|(i, (rows, extent))| Span {
                pieces: vec![piece(&i.to_string(), *rows, *extent)],
            });
            let schema = Arc::new(Schema::empty());
            let watched = vec!["nowhere".to_owned(), "day".to_owned()];
            let mut dataset = Dataset {
                schema,
                spans: spans.collect(),
                column_bytes: None,
                null_counts: Vec::new(),
                watched,
                version: None,
                left_out: LeftOutFiles::default(),
                files: Vec::new(),
            };
            assert_eq!(
                dataset.sort_spans_by_time("day"),
                expected.is_some(),
                "{extents:?}"
            );
            let order: Vec<usize> = dataset
                .spans
                .iter()
                .map(|span| span.pieces[0].relative.parse().unwrap())
                .collect();
            let unchanged: Vec<usize> = (0..extents.len()).collect();
            assert_eq!(order, expected.unwrap_or(&unchanged), "{extents:?}");
            assert!(!dataset.sort_spans_by_time("nowhere") || extents.is_empty());
            assert!(!dataset.sort_spans_by_time("unwatched"));
        };
        check(&[], Some(&[]));
        check(&[(1, Some((1, 2))), (1, Some((3, 4)))], Some(&[0, 1]));
        check(
            &[(1, Some((5, 6))), (1, Some((3, 4))), (1, Some((1, 2)))],
            Some(&[2, 1, 0]),
        );
        // Consecutive spans may share a boundary value, even if a span has a single value.
        check(&[(1, Some((2, 3))), (1, Some((1, 2)))], Some(&[1, 0]));
        check(
            &[
                (1, Some((1, 2))),
                (1, Some((1, 1))),
                (1, Some((2, 2))),
                (1, Some((1, 1))),
            ],
            Some(&[1, 3, 0, 2]),
        );
        check(&[(1, Some((3, 5))), (1, Some((1, 4)))], None);
        check(&[(1, Some((1, 9))), (1, Some((2, 3)))], None);
        check(&[(1, Some((3, 4))), (1, None)], None);
        check(
            &[(1, Some((3, 4))), (0, None), (1, Some((1, 2)))],
            Some(&[1, 2, 0]),
        );
    }
}
