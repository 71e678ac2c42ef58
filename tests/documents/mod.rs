//! Examples of the documentation and of `pipelines/examples`, run as they are written.

mod examples;
mod pages;
