//! Stored bytes of a scan, estimated from the rows that have been read.

use forebay_model::Span;

/// Assumed bytes of a row where neither this scan nor a footer gives them. It only affects how
/// evenly progress is reported.
const ROW_BYTES_GUESS: f64 = 64.0;

/// Progress of a scan in stored bytes. At the end exactly the bytes of its spans have been
/// reported, with any estimate of their rows.
pub(crate) struct ScanProgress {
    bytes_per_row: f64,
    left: u64,
}

impl ScanProgress {
    /// A scan of some spans that reads this share of their bytes.
    pub fn new<'s>(spans: impl Iterator<Item = &'s Span>, share: f64) -> ScanProgress {
        let mut bytes = 0;
        let mut counted_bytes = 0;
        let mut counted_rows = 0;
        for span in spans {
            bytes += span.bytes();
            if let Some(rows) = span.rows() {
                (counted_bytes, counted_rows) = (counted_bytes + span.bytes(), counted_rows + rows);
            }
        }
        let bytes_per_row = match counted_rows {
            0 => ROW_BYTES_GUESS,
            rows => counted_bytes as f64 / rows as f64,
        };
        ScanProgress {
            bytes_per_row: bytes_per_row * share,
            left: (bytes as f64 * share) as u64,
        }
    }

    /// The bytes of some more rows.
    pub fn advance(&mut self, rows: u64) -> u64 {
        let bytes = ((rows as f64 * self.bytes_per_row) as u64).min(self.left);
        self.left -= bytes;
        bytes
    }

    /// The bytes that are left when all rows have gone through.
    pub fn finish(&mut self) -> u64 {
        std::mem::take(&mut self.left)
    }
}
