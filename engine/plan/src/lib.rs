//! forebay-plan
