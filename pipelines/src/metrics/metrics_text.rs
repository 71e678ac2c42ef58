//! Metrics as text.

use forebay_model::Result;

/// The text of the metrics page.
pub(super) trait MetricsText: Send + Sync {
    fn text(&self) -> Result<String>;
}
