//! forebay-transforms
