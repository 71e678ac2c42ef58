//! forebay
