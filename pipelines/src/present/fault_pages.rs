//! A page for each code of a fault: its cause, an example, and what to do.

use forebay_model::{FaultCode, RetryAdvice, codes};

/// The pages, each below its code.
const PAGES: &str = include_str!("faults.md");

/// The page of a code, in Markdown.
pub(crate) fn page(code: FaultCode) -> String {
    let text = PAGES
        .split("## ")
        .find_map(|page| page.strip_prefix(code.name))
        .unwrap_or_default();
    let retry = match code.retry {
        RetryAdvice::Later => "; a retry can succeed",
        RetryAdvice::Never => "",
    };
    format!(
        "### {}\n\nExit code {}{retry}. {}\n",
        code.name,
        crate::exit_codes::code_of(code),
        text.trim()
    )
}

/// All pages in the order of their codes.
pub(crate) fn pages() -> String {
    codes::ALL
        .iter()
        .map(|code| format!("\n{}", page(*code)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_page_and_every_page_a_code() {
        let titles: Vec<&str> = PAGES
            .lines()
            .filter_map(|line| line.strip_prefix("## "))
            .collect();
        let names: Vec<&str> = codes::ALL.iter().map(|code| code.name).collect();
        assert_eq!(titles, names);
        for code in codes::ALL {
            // A cause and a remedy, apart from the example.
            assert!(page(*code).split("\n\n").count() >= 3, "{}", code.name);
        }
    }
}
