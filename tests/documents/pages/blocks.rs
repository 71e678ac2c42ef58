//! The code blocks of a Markdown page, with the comments that say how they are run.

/// A fenced block.
pub struct PageBlock {
    /// The line of its fence, from 1.
    pub line: usize,
    /// The nearest heading above it.
    pub heading: String,
    /// The word behind the fence; empty where there is none.
    pub language: String,
    /// Its lines.
    pub text: String,
    /// The comments directly above it.
    marks: Vec<String>,
}

/// The words that a comment above a block may begin with.
const MARKS: [&str; 7] = [
    "not run",
    "checked",
    "over",
    "exit code 65",
    "file",
    "output",
    "example",
];

impl PageBlock {
    /// What a comment `<!-- WORD: TEXT -->` above the block says.
    pub fn mark(&self, word: &str) -> Option<&str> {
        self.marks
            .iter()
            .find_map(|mark| mark.strip_prefix(word)?.strip_prefix(": "))
    }
}

/// The blocks of a page in order.
pub fn blocks(page: &str) -> Vec<PageBlock> {
    let mut found = Vec::new();
    let mut heading = String::new();
    let mut marks = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let line = line.trim();
        if let Some(language) = line.strip_prefix("```") {
            let text = lines
                .by_ref()
                .map(|(_, line)| line)
                .take_while(|line| line.trim() != "```")
                .flat_map(|line| [line, "\n"])
                .collect();
            found.push(PageBlock {
                line: number + 1,
                heading: heading.clone(),
                language: language.to_owned(),
                text,
                marks: std::mem::take(&mut marks),
            });
        } else if let Some(mark) = line
            .strip_prefix("<!-- ")
            .and_then(|mark| mark.strip_suffix(" -->"))
        {
            let is_known = MARKS.iter().any(|word| mark.starts_with(word));
            assert!(is_known, "line {}: no test reads `{mark}`", number + 1);
            marks.push(mark.to_owned());
        } else if !line.is_empty() {
            marks.clear();
            if line.starts_with('#') {
                heading = line.trim_start_matches('#').trim().to_owned();
            }
        }
    }
    found
}

#[test]
fn blocks_have_their_marks() {
    let page = "# Top\n\n<!-- not run: no\nprose\n\n<!-- over: a.yaml -->\n<!-- checked: it waits -->\n\n```yaml\na: 1\n```\n\
                \n## Below\n```\nforebay\n```\n";
    let found = blocks(page);
    let [first, second] = found.as_slice() else {
        panic!("{} blocks", found.len());
    };
    assert_eq!((first.line, first.heading.as_str()), (9, "Top"));
    assert_eq!(
        (first.language.as_str(), first.text.as_str()),
        ("yaml", "a: 1\n")
    );
    assert_eq!(first.mark("over"), Some("a.yaml"));
    assert_eq!(first.mark("checked"), Some("it waits"));
    assert_eq!(first.mark("not run"), None);
    assert_eq!(
        (second.heading.as_str(), second.mark("over")),
        ("Below", None)
    );
}
