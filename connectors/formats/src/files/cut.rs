//! Cutting files into spans.

use forebay_model::{
    ColumnExtent, Fault, FileRange, Result, SPAN_BYTES_TARGET, SPAN_FILES_MAX, SPAN_ROW_BYTES_MIN,
    SPANS_MAX, Span, codes,
};
use xxhash_rust::xxh3::xxh3_64;

/// One small file in this many ends its span whatever the span's size. Boundaries then depend on
/// names nearby and not on everything before: a file that appears in the middle of the order
/// changes the spans around it, and the rest do not change and keep their states.
const BOUNDARY_EVERY: u64 = 32;

/// A row group.
#[derive(Debug, Clone, PartialEq)]
pub struct RowGroupSummary {
    /// Number of its rows.
    pub rows: u64,
    /// Stored bytes.
    pub bytes: u64,
    /// Extents of the watched columns, from its file.
    pub extents: Vec<Option<ColumnExtent>>,
}

/// The size of rows against the target of a span: their stored bytes, or more where they are
/// packed so well that computing with them takes longer than reading them.
fn span_weight(bytes: u64, rows: u64) -> u64 {
    bytes.max(rows.saturating_mul(SPAN_ROW_BYTES_MIN))
}

/// Cuts files, in order, into spans: large ones at their row groups, small ones together. A range
/// of bytes is a span. `groups` of a format without row groups is empty. Extents that a file
/// already has are those of its folders, and apply to all of its row groups.
pub fn cut_spans(
    files: impl IntoIterator<Item = (FileRange, Vec<RowGroupSummary>)>,
) -> Result<Vec<Span>> {
    let mut spans = Vec::new();
    let mut open: Vec<FileRange> = Vec::new();
    let mut open_weight = 0;
    for (mut whole, groups) in files {
        if whole.byte_range.is_some() {
            if !open.is_empty() {
                spans.push(Span {
                    pieces: std::mem::take(&mut open),
                });
                open_weight = 0;
            }
            spans.push(Span {
                pieces: vec![whole],
            });
            continue;
        }
        let weight = span_weight(whole.bytes, whole.rows.unwrap_or(0));
        if weight > SPAN_BYTES_TARGET && groups.len() > 1 {
            if !open.is_empty() {
                spans.push(Span {
                    pieces: std::mem::take(&mut open),
                });
                open_weight = 0;
            }
            spans.extend(row_group_runs(&groups).into_iter().map(|(from, to)| Span {
                pieces: vec![row_group_piece(&whole, &groups, from, to)],
            }));
            continue;
        }
        whole.extents = extents(&whole, &groups);
        if !open.is_empty()
            && (open_weight + weight > SPAN_BYTES_TARGET || open.len() >= SPAN_FILES_MAX)
        {
            spans.push(Span {
                pieces: std::mem::take(&mut open),
            });
            open_weight = 0;
        }
        let boundary = xxh3_64(whole.relative.as_bytes()).is_multiple_of(BOUNDARY_EVERY);
        open_weight += weight;
        open.push(whole);
        if boundary {
            spans.push(Span {
                pieces: std::mem::take(&mut open),
            });
            open_weight = 0;
        }
    }
    if !open.is_empty() {
        spans.push(Span { pieces: open });
    }
    if spans.len() > SPANS_MAX {
        return Err(Fault::new(
            codes::LIMIT,
            format!(
                "the source has {} spans; the limit is {SPANS_MAX}",
                spans.len()
            ),
        )
        .hint("read a part of it, or rewrite it with larger files"));
    }
    Ok(spans)
}

/// Runs of row groups, each as near to the target as it gets from below.
fn row_group_runs(groups: &[RowGroupSummary]) -> Vec<(usize, usize)> {
    let mut runs = Vec::new();
    let mut from = 0;
    let mut run_weight = 0;
    for (i, group) in groups.iter().enumerate() {
        let weight = span_weight(group.bytes, group.rows);
        if i > from && run_weight + weight > SPAN_BYTES_TARGET {
            runs.push((from, i));
            from = i;
            run_weight = 0;
        }
        run_weight += weight;
    }
    runs.push((from, groups.len()));
    runs
}

fn row_group_piece(
    whole: &FileRange,
    groups: &[RowGroupSummary],
    from: usize,
    to: usize,
) -> FileRange {
    FileRange {
        row_groups: Some((from, to)),
        first_row: groups[..from].iter().map(|group| group.rows).sum(),
        rows: Some(groups[from..to].iter().map(|group| group.rows).sum()),
        bytes: groups[from..to].iter().map(|group| group.bytes).sum(),
        extents: extents(whole, &groups[from..to]),
        ..whole.clone()
    }
}

/// The extents of some row groups of a file.
fn extents(whole: &FileRange, groups: &[RowGroupSummary]) -> Vec<Option<ColumnExtent>> {
    let filled = || groups.iter().filter(|group| group.rows > 0);
    let united =
        |watched: usize| ColumnExtent::union(filled().map(|group| group.extents[watched].as_ref()));
    let folders = whole.extents.iter().enumerate();
    folders
        .map(|(watched, of_folder)| of_folder.clone().or_else(|| united(watched)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_model::{BoundValue, ContentId};

    fn file(name: &str, bytes: u64) -> FileRange {
        FileRange {
            path: format!("/{name}"),
            relative: name.to_owned(),
            row_groups: None,
            row_range: None,
            byte_range: None,
            first_row: 0,
            rows: Some(1),
            bytes,
            partition: Vec::new(),
            extents: Vec::new(),
            fingerprint: ContentId::of(name.as_bytes()),
        }
    }

    #[test]
    fn large_files_are_cut_and_small_ones_kept_together() {
        let groups = vec![
            RowGroupSummary {
                rows: 10,
                bytes: SPAN_BYTES_TARGET / 2 + 1,
                extents: Vec::new()
            };
            3
        ];
        let large = file("large", groups.iter().map(|group| group.bytes).sum());
        let small = (0..3).map(|i| (file(&format!("small-{i}"), 10), vec![]));
        let spans = cut_spans(std::iter::once((large, groups)).chain(small)).unwrap();
        let shape: Vec<_> = spans
            .iter()
            .map(|span| (span.pieces.len(), span.pieces[0].row_groups))
            .collect();
        assert_eq!(
            shape[..3],
            [(1, Some((0, 1))), (1, Some((1, 2))), (1, Some((2, 3)))]
        );
        assert_eq!(spans[2].pieces[0].first_row, 20);
        assert_eq!(
            spans[3..]
                .iter()
                .map(|span| span.pieces.len())
                .sum::<usize>(),
            3
        );
    }

    #[test]
    fn rows_that_are_packed_well_are_cut_by_their_number() {
        let rows = SPAN_BYTES_TARGET / SPAN_ROW_BYTES_MIN / 4;
        let groups = vec![
            RowGroupSummary {
                rows,
                bytes: 1000,
                extents: Vec::new()
            };
            10
        ];
        let mut large = file("large", 10_000);
        large.rows = Some(10 * rows);
        let mut small = file("small", 10);
        small.rows = Some(3 * rows);
        let files = [
            (large, groups),
            (small.clone(), Vec::new()),
            (small, Vec::new()),
        ];
        let spans = cut_spans(files).unwrap();
        let rows_of = |span: &Span| {
            span.pieces
                .iter()
                .filter_map(|piece| piece.rows)
                .sum::<u64>()
        };
        let span_rows: Vec<u64> = spans.iter().map(rows_of).collect();
        assert_eq!(
            span_rows,
            [4 * rows, 4 * rows, 2 * rows, 3 * rows, 3 * rows]
        );
    }

    #[test]
    fn extents_are_those_of_the_row_groups_or_of_the_folder() {
        let extent = |min, max| {
            Some(ColumnExtent {
                min: BoundValue::Int(min),
                max: BoundValue::Int(max),
                nulls: false,
            })
        };
        let group = |rows, bytes, found| RowGroupSummary {
            rows,
            bytes,
            extents: vec![found, None, extent(0, 0)],
        };
        let check = |bytes: u64, expected: &[Option<ColumnExtent>]| {
            let groups = vec![
                group(1, bytes, extent(3, 5)),
                group(0, bytes, None),
                group(1, bytes, extent(1, 4)),
                group(1, bytes, None),
            ];
            let mut whole = file("a", bytes * 4);
            whole.extents = vec![None, None, extent(7, 7)];
            let spans = cut_spans([(whole, groups)]).unwrap();
            let found: Vec<_> = spans.iter().map(|span| span.extent(0)).collect();
            assert_eq!(found, expected);
            assert!(
                spans
                    .iter()
                    .all(|span| span.extent(1).is_none() && span.extent(2) == extent(7, 7))
            );
        };
        check(SPAN_BYTES_TARGET / 2, &[extent(3, 5), None]);
        check(SPAN_BYTES_TARGET / 3, &[extent(1, 5), None]);
        check(1, &[None]);
    }

    #[test]
    fn a_new_file_changes_few_spans() {
        let names: Vec<String> = (0..5000)
            .map(|i| format!("store={:03}/day={:03}.parquet", i / 50, i % 50))
            .collect();
        let cut_all = |skip: usize| {
            let files = names
                .iter()
                .enumerate()
                .filter(|(i, _)| *i != skip)
                .map(|(_, name)| (file(name, 1000), vec![]));
            cut_spans(files)
                .unwrap()
                .iter()
                .map(Span::fingerprint)
                .collect::<Vec<_>>()
        };
        let before = cut_all(2222);
        let after = cut_all(usize::MAX);
        let new = after.iter().filter(|id| !before.contains(id)).count();
        assert!(new <= 2, "{new} of {} spans are new", after.len());
    }
}
