//! Parquet alone.
