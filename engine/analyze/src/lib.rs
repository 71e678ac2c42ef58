//! forebay-analyze
