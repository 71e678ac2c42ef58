//! forebay-benches
