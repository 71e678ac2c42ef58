//! Bound on the time that SQL takes to be parsed.
//!
//! The parser reads `CAST(...)`, `CASE ... END` and their kin by rules of their own. Where such a rule fails, it reads the
//! same text again as the call of a function: an error inside of n of them is met `2^n` times.

use forebay_model::{Fault, Result, codes};

use crate::sql_faults::shown;

/// Most nested constructs that are read again after an error.
const RETRIED_LEVELS_MAX: usize = 16;

/// Words whose brackets are read twice, and how often the time doubles.
const RETRIED_WORDS: [(&str, usize); 20] = [
    ("ARRAY", 1),
    ("CAST", 1),
    ("CEIL", 1),
    ("CONVERT", 1),
    ("CURRENT_DATE", 1),
    ("CURRENT_TIME", 1),
    ("CURRENT_TIMESTAMP", 1),
    ("EXTRACT", 1),
    ("FLOOR", 1),
    ("INTERVAL", 1),
    ("LOCALTIME", 1),
    ("LOCALTIMESTAMP", 1),
    ("NOT", 1),
    ("OVERLAY", 1),
    ("POSITION", 2),
    ("SAFE_CAST", 1),
    ("SUBSTR", 1),
    ("SUBSTRING", 1),
    ("TRIM", 1),
    ("TRY_CAST", 1),
];

/// Refuses SQL whose parser could not tell an error in time.
pub(crate) fn refuse_retried_parses(text: &str) -> Result<()> {
    let levels = retried_levels(text);
    if levels <= RETRIED_LEVELS_MAX {
        return Ok(());
    }
    let message = format!(
        "`{}` nests {levels} casts, conditions and functions such as `floor`; at most \
         {RETRIED_LEVELS_MAX} are allowed",
        shown(text)
    );
    let hint = "compute the inner ones in a step before, or write one `CASE` with several `WHEN`";
    Err(Fault::new(codes::EXPRESSION, message).hint(hint))
}

/// Most constructs that are open at one place of a text and that the parser reads again after an error. Letters in quotes
/// are no words.
fn retried_levels(text: &str) -> usize {
    let mut counter = RetryCounter::default();
    let mut quote = None;
    let mut word_start = 0;
    for (position, letter) in text.char_indices() {
        if quote.is_some() {
            if quote == Some(letter) {
                quote = None;
                word_start = position + letter.len_utf8();
            }
            continue;
        }
        if letter.is_alphanumeric() || letter == '_' {
            continue;
        }
        counter.enter_word(&text[word_start..position]);
        word_start = position + letter.len_utf8();
        match letter {
            '\'' | '"' | '`' => quote = Some(letter),
            '(' | '[' => counter.open(),
            ')' | ']' => counter.close(),
            _ => {}
        }
    }
    counter.levels_max
}

/// Constructs that are open.
#[derive(Debug, Default)]
struct RetryCounter {
    /// Weights of the open brackets.
    brackets: Vec<usize>,
    /// Weight of a bracket that would follow the last word.
    weight: usize,
    levels: usize,
    levels_max: usize,
    cases: usize,
}

impl RetryCounter {
    fn enter_word(&mut self, word: &str) {
        if word.is_empty() {
            return;
        }
        let is_word = |(retried, _): &&(&str, usize)| word.eq_ignore_ascii_case(retried);
        let retried = RETRIED_WORDS.iter().find(is_word);
        self.weight = retried.map_or(0, |(_, weight)| *weight);
        if word.eq_ignore_ascii_case("CASE") {
            self.cases += 1;
            self.add(1);
        } else if word.eq_ignore_ascii_case("END") && self.cases > 0 {
            self.cases -= 1;
            self.levels = self.levels.saturating_sub(1);
        }
    }

    fn open(&mut self) {
        let weight = std::mem::take(&mut self.weight);
        self.brackets.push(weight);
        self.add(weight);
    }

    fn close(&mut self) {
        let weight = self.brackets.pop().unwrap_or(0);
        self.levels = self.levels.saturating_sub(weight);
    }

    fn add(&mut self, levels: usize) {
        self.levels += levels;
        self.levels_max = self.levels_max.max(self.levels);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize, start: &str, end: &str) -> String {
        format!("{}x y{}", start.repeat(levels), end.repeat(levels))
    }

    #[test]
    fn open_constructs_are_counted() {
        for (text, levels) in [
            ("a + b", 0),
            ("CAST(a AS INT) + cast (b AS INT)", 1),
            ("abs(abs(abs(a)))", 0),
            ("NOT (a AND NOT(b))", 2),
            ("position('a' IN floor(b))", 3),
            (
                "CASE WHEN a THEN CASE WHEN b THEN 1 END ELSE CASE c WHEN 1 THEN 2 END END",
                2,
            ),
            ("'CAST(CAST(' || \"NOT(\" || a", 0),
            ("make_array(floor(a), ARRAY[ceil(b)])", 2),
        ] {
            assert_eq!(retried_levels(text), levels, "{text}");
        }
    }

    #[test]
    fn errors_inside_of_many_constructs_are_told_at_once() {
        let compiler = crate::SqlCompiler::default();
        let schema = arrow::datatypes::Schema::empty();
        for (start, end) in [
            ("CAST(", " AS INT)"),
            ("NOT(", ")"),
            ("ARRAY[", "]"),
            ("CASE WHEN a THEN ", " END"),
            ("substring(", ", 1)"),
        ] {
            for levels in [17, 24, 80, 400] {
                let text = nested(levels, start, end);
                let fault = compiler.expression(&text, &schema).err().unwrap();
                assert_eq!(fault.code(), codes::EXPRESSION, "{text}");
            }
        }
    }
}
