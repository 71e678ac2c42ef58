//! Statistics by which evictions follow each other.

/// Statistics of evictions and restorations.
#[derive(Debug, Clone, Default)]
pub(crate) struct EvictionStats {
    /// Fewest active series for the next eviction.
    pub crowd: usize,
    /// Number of series in the last eviction.
    pub rested: usize,
    /// Number of series restored since.
    pub woken: usize,
}
