//! An example of each format for the reference: commands, and what they print. The tests of the documentation run them.

/// Sections and names of formats, each with the text of its file in `examples`.
macro_rules! examples {
    ($($section:literal $name:literal)*) => {
        &[$((
            $section,
            $name,
            include_str!(concat!("../examples/", $section, "_", $name, ".md")),
        )),*]
    };
}

/// The examples in Markdown: `source` or `sink`, the name of the format, and the text.
pub const FORMAT_EXAMPLES: &[(&str, &str, &str)] = examples! {
    "source" "parquet"
    "source" "delta"
    "source" "arrow"
    "source" "csv"
    "source" "json"
    "sink" "parquet"
    "sink" "delta"
    "sink" "arrow"
    "sink" "csv"
    "sink" "json"
    "sink" "train"
    "sink" "predict"
};
