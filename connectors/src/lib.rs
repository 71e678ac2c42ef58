//! forebay-connectors
