//! Substitution of parameters in SQL text: a value can change compared values, but never the
//! structure of the expression.

use arrow::datatypes::DataType;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, Whitespace};
use forebay_model::{Fault, Result, codes, logical_type};

/// A piece of SQL text.
#[derive(Debug, Clone, PartialEq)]
pub enum SqlPiece {
    /// Text written in the spec.
    Text(String),
    /// A parameter's name and value.
    Value(String, SqlValue),
}

/// Value of a parameter in SQL text.
#[derive(Debug, Clone, PartialEq)]
pub enum SqlValue {
    /// Any text.
    Text(String),
    /// A number or a boolean in SQL notation.
    Plain(String),
    /// A date, such as 2016-05-22.
    Date(String),
    /// A timestamp, such as 2016-05-22T06:30:00.
    Timestamp(String),
}

impl SqlValue {
    /// The value without SQL quoting.
    pub fn text(&self) -> &str {
        match self {
            SqlValue::Text(text)
            | SqlValue::Plain(text)
            | SqlValue::Date(text)
            | SqlValue::Timestamp(text) => text,
        }
    }
}

/// A column's or table's name in SQL.
pub fn sql_name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as a literal of SQL for a column of this type: a date, a timestamp, or else a text.
pub fn sql_literal(text: &str, data_type: &DataType) -> String {
    let text = text.replace('\'', "''");
    match logical_type(data_type) {
        DataType::Date32 | DataType::Date64 => format!("DATE '{text}'"),
        DataType::Timestamp(..) => format!("TIMESTAMP '{text}'"),
        _ => format!("'{text}'"),
    }
}

/// Substitutes parameter values in SQL text. Inside quotes any value is allowed and escaped. Outside quotes only
/// numbers, booleans, dates (as `DATE '...'`), timestamps (as `TIMESTAMP '...'`) and names of letters, digits and
/// `_` are allowed; any other text is a fault. Comments keep the names of parameters.
pub fn sql_text(pieces: &[SqlPiece]) -> Result<String> {
    let marked = MarkedText::new(pieces);
    let dialect = GenericDialect {};
    let tokens = Tokenizer::new(&dialect, &marked.text)
        .tokenize_with_location()
        .map_err(|error| {
            let message = format!("`{}` is not valid SQL: {}", shown(pieces), error.message);
            Fault::new(codes::EXPRESSION, message)
        })?;
    let mut out = String::with_capacity(marked.text.len());
    for (token, source) in with_sources(&tokens, &marked.text) {
        if source.contains(&marked.prefix) {
            out.push_str(&marked.filled(token, source)?)
        } else {
            out.push_str(source)
        }
    }
    Ok(out)
}

/// SQL text with a unique marker word in place of each value.
struct MarkedText<'a> {
    values: Vec<(&'a str, &'a SqlValue)>,
    prefix: String,
    text: String,
}

impl<'a> MarkedText<'a> {
    fn new(pieces: &'a [SqlPiece]) -> Self {
        let written = |prefix: &str| {
            let mut written = pieces.iter().filter_map(|piece| match piece {
                SqlPiece::Text(text) => Some(text),
                SqlPiece::Value(..) => None,
            });
            written.any(|text| text.contains(prefix))
        };
        let mut prefix = "__value_".to_owned();
        while written(&prefix) {
            prefix.push('_');
        }
        let mut values = Vec::new();
        let mut text = String::new();
        for piece in pieces {
            match piece {
                SqlPiece::Text(written) => text.push_str(written),
                SqlPiece::Value(name, value) => {
                    text.push_str(&marker(&prefix, values.len()));
                    values.push((name.as_str(), value));
                }
            }
        }
        MarkedText {
            values,
            prefix,
            text,
        }
    }

    /// Replaces the markers in a token.
    fn filled(&self, token: &Token, source: &str) -> Result<String> {
        let mut filled = source.to_owned();
        for (index, (name, value)) in self.values.iter().enumerate() {
            let marker = marker(&self.prefix, index);
            if source.contains(&marker) {
                filled = filled.replace(&marker, &rendered(token, source == marker, name, value)?);
            }
        }
        Ok(filled)
    }
}

fn marker(prefix: &str, index: usize) -> String {
    format!("{prefix}{index}__")
}

/// Renders a value for a token, of which it may be all or a part.
fn rendered(token: &Token, is_all: bool, name: &str, value: &SqlValue) -> Result<String> {
    let text = value.text();
    let misplaced =
        |message: String, hint: &str| Err(Fault::new(codes::EXPRESSION, message).hint(hint));
    match token {
        Token::SingleQuotedString(_) | Token::NationalStringLiteral(_) => {
            Ok(text.replace('\'', "''"))
        }
        Token::DoubleQuotedString(_) => Ok(text.replace('"', "\"\"")),
        Token::Word(word) => match (word.quote_style, value) {
            (Some(quote @ ('"' | '`')), _) => Ok(text.replace(quote, &format!("{quote}{quote}"))),
            (Some(_), _) => misplaced(
                format!("`${{{name}}}` cannot stand inside brackets"),
                "quote the name with double quotes",
            ),
            (None, SqlValue::Date(_)) if is_all => Ok(format!("DATE '{text}'")),
            (None, SqlValue::Timestamp(_)) if is_all => {
                Ok(format!("TIMESTAMP '{}'", text.replace('\'', "''")))
            }
            // Two minus signs in a row would begin a comment.
            (None, SqlValue::Plain(_)) if is_all && text.starts_with('-') => {
                Ok(format!("({text})"))
            }
            (None, SqlValue::Plain(_)) if is_all => Ok(text.to_owned()),
            (None, _) if is_word(text) => Ok(text.to_owned()),
            (None, _) => misplaced(
                format!(
                    "`${{{name}}}` stands outside of quotes, and its value is not a name, a \
                     number or a date"
                ),
                "put it in quotes to compare it as text: a value cannot extend the expression",
            ),
        },
        Token::Whitespace(
            Whitespace::SingleLineComment { .. } | Whitespace::MultiLineComment(_),
        ) => Ok(format!("${{{name}}}")),
        other => misplaced(
            format!("`${{{name}}}` cannot stand in `{other}`"),
            "write it inside single quotes, or outside of quotes where it is a name, a number or \
             a date",
        ),
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Pairs each token with its source text.
fn with_sources<'t>(tokens: &'t [TokenWithSpan], text: &'t str) -> Vec<(&'t Token, &'t str)> {
    // Lines and columns count characters from 1.
    let mut line = 1;
    let mut column = 1;
    let mut starts = Vec::with_capacity(tokens.len());
    let mut next = tokens.iter().peekable();
    for (offset, character) in text.char_indices() {
        while next
            .next_if(|token| (token.span.start.line, token.span.start.column) <= (line, column))
            .is_some()
        {
            starts.push(offset);
        }
        (line, column) = if character == '\n' {
            (line + 1, 1)
        } else {
            (line, column + 1)
        };
    }
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let sources = starts
        .iter()
        .zip(ends)
        .map(|(start, end)| &text[*start..end]);
    tokens
        .iter()
        .map(|token| &token.token)
        .zip(sources)
        .collect()
}

fn shown(pieces: &[SqlPiece]) -> String {
    let each = pieces.iter().map(|piece| match piece {
        SqlPiece::Text(text) => text.clone(),
        SqlPiece::Value(name, _) => format!("${{{name}}}"),
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(template: &str, value: SqlValue) -> Result<String> {
        let mut pieces = Vec::new();
        for (index, text) in template.split("${x}").enumerate() {
            if index > 0 {
                pieces.push(SqlPiece::Value("x".into(), value.clone()));
            }
            pieces.push(SqlPiece::Text(text.into()));
        }
        sql_text(&pieces)
    }

    #[test]
    fn text_is_a_value_inside_quotes() {
        let text = |value: &str| SqlValue::Text(value.into());
        for (template, value, expected) in [
            ("a = '${x}'", "it's", "a = 'it''s'"),
            (
                "a = 'b''${x}' OR c",
                "' OR TRUE --",
                "a = 'b'''' OR TRUE --' OR c",
            ),
            ("\"${x}\" > 1", "odd\"name", "\"odd\"\"name\" > 1"),
            ("qty_${x} > 1", "28d", "qty_28d > 1"),
            (
                "ü = 'é'\n  AND '${x}' = d -- of ${x}",
                "é'",
                "ü = 'é'\n  AND 'é''' = d -- of ${x}",
            ),
            ("__value_0__ = '${x}'", "a", "__value_0__ = 'a'"),
        ] {
            assert_eq!(filled(template, text(value)).unwrap(), expected);
        }
        for (template, value) in [
            ("a = ${x}", "1 OR TRUE"),
            ("a = ${x}", ""),
            ("a = E'${x}'", "\\' OR TRUE --"),
            ("a = $$${x}$$", "$$ OR TRUE --"),
            ("a = X'${x}'", "00"),
            ("a = '${x}", "b"),
        ] {
            let fault = filled(template, text(value)).unwrap_err();
            assert_eq!(fault.code(), codes::EXPRESSION, "{template}");
        }
    }

    #[test]
    fn numbers_and_dates_stand_outside_of_quotes() {
        assert_eq!(
            filled("a -${x}", SqlValue::Plain("-5".into())).unwrap(),
            "a -(-5)"
        );
        assert_eq!(
            filled("a > ${x}", SqlValue::Plain("0.5".into())).unwrap(),
            "a > 0.5"
        );
        assert_eq!(
            filled("a < ${x}", SqlValue::Date("2016-05-22".into())).unwrap(),
            "a < DATE '2016-05-22'"
        );
        assert_eq!(
            filled("a < DATE '${x}'", SqlValue::Date("2016-05-22".into())).unwrap(),
            "a < DATE '2016-05-22'"
        );
        let moment = SqlValue::Timestamp("2016-05-22T06:30:00".into());
        assert_eq!(
            filled("a < ${x}", moment).unwrap(),
            "a < TIMESTAMP '2016-05-22T06:30:00'"
        );
        assert!(filled("a_${x} < 1", SqlValue::Date("2016-05-22".into())).is_err());
    }
}
