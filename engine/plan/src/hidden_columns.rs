//! Columns that steps neither see nor drop.

use forebay_contract::TARGET_PREFIX;

/// Hidden column of rows of the future: the time up to which their series is known.
pub const KNOWN_UNTIL: &str = "__future_known_until";

/// Hidden Boolean column that is true in rows of the future.
pub const FUTURE_ROW: &str = "__future_row";

/// Prefix of the hidden columns of rows of the future.
const FUTURE_PREFIX: &str = "__future_";

/// Hidden column that keeps a column as it was when `future_rows` made the rows.
pub fn source_column(name: &str) -> String {
    format!("{FUTURE_PREFIX}source_{name}")
}

/// Hidden column of served rows of the future: the values of a column that a request gives.
pub fn request_column(name: &str) -> String {
    format!("{FUTURE_PREFIX}request_{name}")
}

/// True if a column is hidden: steps neither see nor drop it.
pub(crate) fn is_hidden(column: &str) -> bool {
    let prefixes = [FUTURE_PREFIX, crate::PART_PREFIX, TARGET_PREFIX];
    prefixes.iter().any(|prefix| column.starts_with(prefix))
}
