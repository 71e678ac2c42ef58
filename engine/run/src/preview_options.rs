//! Options of previews.

use forebay_setters::Setters;

/// Options of a preview.
#[derive(Debug, Clone, Setters)]
pub struct PreviewOptions {
    /// The step or source; that of the first sink, else the last step, where left out.
    pub step: Option<String>,
    /// Rows to show at most.
    pub rows: usize,
    /// A SQL condition on the rows to show.
    pub condition: Option<String>,
    /// Rows of each source to compute from: its first ones. Sources that joins alone look rows up in are read whole.
    pub sample_rows: u64,
    /// Uses the steps and findings of the newest artifact of the pipeline, rather than learning
    /// from the sample.
    pub newest_artifact: bool,
    /// Begins at the first row that has as many values as any row of the sample, rather than at the
    /// first: windows have no values at the begin of a series.
    pub fullest: bool,
}

impl Default for PreviewOptions {
    fn default() -> Self {
        PreviewOptions {
            step: None,
            rows: 20,
            condition: None,
            sample_rows: 100_000,
            newest_artifact: false,
            fullest: false,
        }
    }
}
