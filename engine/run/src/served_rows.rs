//! The rows that applying an artifact writes.

/// The rows that applying an artifact writes.
///
/// ```
/// use forebay_run::ServedRows;
///
/// let served = ServedRows { from: Some("2016-05-22".into()), ..ServedRows::default() };
/// # let _ = served;
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServedRows {
    /// The time from which on rows are written. Earlier rows are history: they are read for windows, and not written.
    /// All rows are written when left out.
    pub from: Option<String>,
    /// The given rows are all the history that windows need, however far windows reach.
    pub whole_history: bool,
    /// Columns of labels, which new rows may lack, with the columns that depend on nothing else.
    pub labels: Vec<String>,
    /// Columns that rows of the future must have, since they are known in advance.
    pub known: Vec<String>,
}
