//! The one form of a spec's text: indentation, spaces, quotes and the length of lines. Comments stay.

use forebay_model::{Fault, Result, codes};
use pretty_yaml::config::{FormatOptions, LanguageOptions, LayoutOptions, LineBreak, Quotes};

use super::node;

/// Columns of a line at most, where a list or map can be divided.
const LINE_WIDTH: usize = 120;

/// Formats the text of a spec. Formatted text stays as it is. All values are the same afterwards,
/// and so are the ids of the pipeline; a text for which that is impossible is refused, as is one
/// with problems in its YAML.
///
/// ```
/// let formatted = forebay::spec::format("version:   1\nname: 'demand'\n", "demand.yaml")?;
/// assert_eq!(formatted, "version: 1\nname: \"demand\"\n");
/// # Ok::<(), forebay::model::Fault>(())
/// ```
pub fn format(text: &str, file: &str) -> Result<String> {
    let original = values(text, file)?;
    let line_break = if text.contains("\r\n") {
        LineBreak::Crlf
    } else {
        LineBreak::Lf
    };
    let options = FormatOptions {
        layout: LayoutOptions {
            print_width: LINE_WIDTH,
            line_break,
            ..LayoutOptions::default()
        },
        language: LanguageOptions {
            quotes: Quotes::PreferDouble,
            ..LanguageOptions::default()
        },
    };
    let refused = |message: &str| {
        let fault = Fault::new(codes::UNSUPPORTED, message).file(file);
        fault.hint("format it by hand: the file was left as it is")
    };
    let formatted = pretty_yaml::format_text(text, &options)
        .map_err(|error| refused("this YAML cannot be formatted").cause(error.to_string()))?;
    let again = pretty_yaml::format_text(&formatted, &options);
    match values(&formatted, file) {
        Ok(parsed) if parsed == original && again.is_ok_and(|again| again == formatted) => {
            Ok(formatted)
        }
        _ => Err(refused("formatting would change what this spec says")),
    }
}

/// All values of a spec, without substitution of parameters.
fn values(text: &str, file: &str) -> Result<serde_json::Value> {
    let mut faults = Vec::new();
    let root = node::load(text, file, &mut faults)?;
    Fault::combine(faults).map_or(Ok(root.value()), Err)
}

#[cfg(test)]
mod tests {
    use super::format;

    fn formatted(text: &str) -> String {
        format(text, "spec.yaml")
            .map_err(|fault| fault.to_string())
            .unwrap_or_else(|fault| fault)
    }

    #[test]
    fn has_one_form_for_each_spec() {
        let messy = concat!(
            "# Head.\n",
            "version:   1\n",
            "name: 'demand'   # trailing\n",
            "sources:\n",
            "    a:\n",
            "        parquet: {path: x,\n",
            "          }\n\n\n\n",
            "    b: { parquet: {path: y} }\n",
            "steps:\n",
            "  s:\n",
            "    do:\n",
            "    # Why.\n",
            "    - filter: 'qty > 0 AND item_id = ''a'''\n",
            "    - lag: {columns: [qty],by: [ 7d ]}\n",
        );
        let neat = concat!(
            "# Head.\n",
            "version: 1\n",
            "name: \"demand\" # trailing\n",
            "sources:\n",
            "  a:\n",
            "    parquet: { path: x }\n\n",
            "  b: { parquet: { path: y } }\n",
            "steps:\n",
            "  s:\n",
            "    do:\n",
            "      # Why.\n",
            "      - filter: 'qty > 0 AND item_id = ''a'''\n",
            "      - lag: { columns: [qty], by: [7d] }\n",
        );
        assert_eq!(formatted(messy), neat);
        assert_eq!(formatted(neat), neat);
        assert_eq!(
            formatted(&neat.replace('\n', "\r\n")),
            neat.replace('\n', "\r\n")
        );
    }

    #[test]
    fn refuses_what_is_no_spec() {
        for text in [
            "",
            "a: [1",
            "a: 1\na: 2\n",
            "a: *nothing\n",
            "a: 1\n---\nb: 2\n",
        ] {
            assert!(
                format(text, "spec.yaml").is_err_and(|fault| fault.site().spec.is_some()),
                "{text:?}"
            );
        }
    }
}
