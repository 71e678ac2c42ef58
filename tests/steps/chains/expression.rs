//! The part of SQL that random expressions use: parsed and evaluated row by row, with three-valued logic.

use super::table::{CellKind, CellTable, CellValue, INT64};

/// An expression, bound to the columns of a table.
pub enum BoundExpression {
    Column(usize, CellKind),
    Literal(CellValue),
    Call(String, Vec<BoundExpression>),
    Cast(Box<BoundExpression>, CellKind),
    /// Conditions and results in turn, then what holds otherwise.
    Case(Vec<BoundExpression>),
    In(Box<BoundExpression>, Vec<BoundExpression>),
}

/// Parses an expression over the columns of a table.
pub fn parse(text: &str, table: &CellTable) -> Result<BoundExpression, String> {
    let mut parser = ExpressionParser {
        tokens: tokens(text)?,
        at: 0,
        table,
    };
    let expression = parser.either()?;
    match parser.peek() {
        None => Ok(expression),
        Some(rest) => Err(format!("`{rest}` is left over in {text}")),
    }
}

fn tokens(text: &str) -> Result<Vec<String>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '\'' => 1 + rest[1..].find('\'').ok_or("an open quote")? + 1,
            '"' => 1 + rest[1..].find('"').ok_or("an open quote")? + 1,
            c if c.is_ascii_alphanumeric() || c == '_' => rest
                .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.'))
                .unwrap_or(rest.len()),
            _ if ["<=", ">=", "<>", "||"]
                .iter()
                .any(|two| rest.starts_with(two)) =>
            {
                2
            }
            c => c.len_utf8(),
        };
        tokens.push(rest[..end].to_owned());
        rest = rest[end..].trim_start();
    }
    Ok(tokens)
}

struct ExpressionParser<'t> {
    tokens: Vec<String>,
    at: usize,
    table: &'t CellTable,
}

impl ExpressionParser<'_> {
    fn peek(&self) -> Option<&str> {
        self.tokens.get(self.at).map(String::as_str)
    }

    fn accept(&mut self, token: &str) -> bool {
        let found = self.peek() == Some(token);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.accept(token) {
            Ok(())
        } else {
            Err(format!("{:?}, not `{token}`", self.peek()))
        }
    }

    fn next(&mut self) -> Result<String, String> {
        self.at += 1;
        self.tokens
            .get(self.at - 1)
            .cloned()
            .ok_or_else(|| "the text ends".to_owned())
    }

    fn either(&mut self) -> Result<BoundExpression, String> {
        self.left_to_right(&["OR"], |parser| {
            parser.left_to_right(&["AND"], ExpressionParser::not)
        })
    }

    fn left_to_right(
        &mut self,
        operators: &[&str],
        operand: impl Fn(&mut Self) -> Result<BoundExpression, String>,
    ) -> Result<BoundExpression, String> {
        let mut left = operand(self)?;
        while let Some(operator) = operators
            .iter()
            .find(|operator| self.peek() == Some(operator))
        {
            self.at += 1;
            left = BoundExpression::Call((*operator).to_owned(), vec![left, operand(self)?]);
        }
        Ok(left)
    }

    fn not(&mut self) -> Result<BoundExpression, String> {
        if self.accept("NOT") {
            Ok(BoundExpression::Call("NOT".into(), vec![self.not()?]))
        } else {
            self.compared()
        }
    }

    fn compared(&mut self) -> Result<BoundExpression, String> {
        let sum = |parser: &mut Self| {
            parser.left_to_right(&["||"], |parser| {
                parser.left_to_right(&["+", "-"], |parser| {
                    parser.left_to_right(&["*", "/", "%"], ExpressionParser::primary)
                })
            })
        };
        let left = sum(self)?;
        if self.accept("IS") {
            let not = self.accept("NOT");
            self.expect("NULL")?;
            return Ok(BoundExpression::Call(
                if not { "IS NOT NULL" } else { "IS NULL" }.into(),
                vec![left],
            ));
        }
        if self.accept("IN") {
            self.expect("(")?;
            return Ok(BoundExpression::In(Box::new(left), self.list()?));
        }
        let known = ["=", "<>", "<", "<=", ">", ">="];
        let Some(operator) = known
            .into_iter()
            .find(|operator| self.peek() == Some(operator))
        else {
            return Ok(left);
        };
        self.at += 1;
        Ok(BoundExpression::Call(
            operator.to_owned(),
            vec![left, sum(self)?],
        ))
    }

    /// Expressions up to the closing parenthesis.
    fn list(&mut self) -> Result<Vec<BoundExpression>, String> {
        let mut list = vec![self.either()?];
        while self.accept(",") {
            list.push(self.either()?);
        }
        self.expect(")")?;
        Ok(list)
    }

    fn primary(&mut self) -> Result<BoundExpression, String> {
        let token = self.next()?;
        let first = token.chars().next().unwrap_or(' ');
        Ok(match token.as_str() {
            "(" => {
                let inner = self.either()?;
                self.expect(")")?;
                inner
            }
            "-" => BoundExpression::Call("negative".into(), vec![self.primary()?]),
            "TRUE" => BoundExpression::Literal(CellValue::Bool(true)),
            "FALSE" => BoundExpression::Literal(CellValue::Bool(false)),
            "CAST" => {
                self.expect("(")?;
                let inner = self.either()?;
                self.expect("AS")?;
                let kind = match self.next()?.as_str() {
                    "BIGINT" => INT64,
                    "DOUBLE" => CellKind::F64,
                    "VARCHAR" => CellKind::Text,
                    other => return Err(format!("no type {other}")),
                };
                self.expect(")")?;
                BoundExpression::Cast(Box::new(inner), kind)
            }
            "CASE" => {
                let mut parts = Vec::new();
                while self.accept("WHEN") {
                    parts.push(self.either()?);
                    self.expect("THEN")?;
                    parts.push(self.either()?);
                }
                self.expect("ELSE")?;
                parts.push(self.either()?);
                self.expect("END")?;
                BoundExpression::Case(parts)
            }
            text if first == '\'' => {
                BoundExpression::Literal(CellValue::Text(text[1..text.len() - 1].to_owned()))
            }
            name if first == '"' => self.column(&name[1..name.len() - 1])?,
            number if first.is_ascii_digit() => {
                BoundExpression::Literal(match number.parse::<i128>() {
                    Ok(whole) => CellValue::Int(whole),
                    Err(_) => CellValue::Float(
                        number
                            .parse()
                            .map_err(|_| format!("{number} is no number"))?,
                    ),
                })
            }
            function if self.peek() == Some("(") => {
                self.at += 1;
                BoundExpression::Call(function.to_owned(), self.list()?)
            }
            name => self.column(name)?,
        })
    }

    fn column(&self, name: &str) -> Result<BoundExpression, String> {
        let at = self.table.find(name)?;
        Ok(BoundExpression::Column(
            at,
            self.table.columns[at].kind.clone(),
        ))
    }
}

/// A comparison of SQL: unknown where either side is null; NaN equals itself and is above all numbers.
fn compare_values(operator: &str, a: &CellValue, b: &CellValue) -> CellValue {
    if a.is_null() || b.is_null() {
        return CellValue::Null;
    }
    let order = match (a, b) {
        (CellValue::Int(a), CellValue::Float(_)) => CellValue::Float(*a as f64).cmp(b),
        (CellValue::Float(_), CellValue::Int(b)) => a.cmp(&CellValue::Float(*b as f64)),
        _ => a.cmp(b),
    };
    CellValue::Bool(match operator {
        "=" => order.is_eq(),
        "<>" => order.is_ne(),
        "<" => order.is_lt(),
        "<=" => order.is_le(),
        ">" => order.is_gt(),
        _ => order.is_ge(),
    })
}

fn fits(x: i128) -> Result<CellValue, String> {
    i64::try_from(x)
        .map(|x| CellValue::Int(x.into()))
        .map_err(|_| "an overflow".to_owned())
}

fn arithmetic(operator: &str, a: &CellValue, b: &CellValue) -> Result<CellValue, String> {
    match (a, b) {
        (CellValue::Null, _) | (_, CellValue::Null) => Ok(CellValue::Null),
        (CellValue::Int(_), CellValue::Int(0)) if operator == "/" || operator == "%" => {
            Err("a division by zero".into())
        }
        (CellValue::Int(a), CellValue::Int(b)) => fits(match operator {
            "+" => a + b,
            "-" => a - b,
            "*" => a * b,
            "/" => a / b,
            _ => a % b,
        }),
        (CellValue::Int(a), b) => arithmetic(operator, &CellValue::Float(*a as f64), b),
        (a, CellValue::Int(b)) => arithmetic(operator, a, &CellValue::Float(*b as f64)),
        (CellValue::Float(a), CellValue::Float(b)) => Ok(CellValue::Float(match operator {
            "+" => a + b,
            "-" => a - b,
            "*" => a * b,
            "/" => a / b,
            _ => a % b,
        })),
        _ => Err(format!("{operator} of {a:?} and {b:?}")),
    }
}

impl BoundExpression {
    pub fn kind(&self) -> CellKind {
        match self {
            BoundExpression::Column(_, kind) | BoundExpression::Cast(_, kind) => kind.clone(),
            BoundExpression::Literal(CellValue::Int(_)) => INT64,
            BoundExpression::Literal(CellValue::Float(_)) => CellKind::F64,
            BoundExpression::Literal(CellValue::Text(_)) => CellKind::Text,
            BoundExpression::Literal(_) | BoundExpression::In(..) => CellKind::Bool,
            BoundExpression::Case(parts) => wider(parts[1].kind(), parts[parts.len() - 1].kind()),
            BoundExpression::Call(name, args) => match name.as_str() {
                "+" | "-" | "*" | "/" | "%" => wider(args[0].kind(), args[1].kind()),
                "COALESCE" | "NULLIF" | "ABS" | "negative" => args[0].kind(),
                "||" | "UPPER" | "LOWER" => CellKind::Text,
                _ => CellKind::Bool,
            },
        }
    }

    pub fn value(&self, cells: &[CellValue]) -> Result<CellValue, String> {
        Ok(match self {
            // Expressions see -0.0 as 0.0.
            BoundExpression::Column(at, _) => match &cells[*at] {
                CellValue::Float(value) => CellValue::Float(value + 0.0),
                other => other.clone(),
            },
            BoundExpression::Literal(value) => value.clone(),
            BoundExpression::Cast(inner, kind) => {
                super::columns::cast_value(&inner.value(cells)?, &inner.kind(), kind)?
                    .ok_or("a value that cannot be cast")?
            }
            BoundExpression::Case(parts) => {
                for pair in parts.chunks(2) {
                    match pair {
                        [condition, result] if condition.value(cells)? == CellValue::Bool(true) => {
                            return result.value(cells);
                        }
                        [otherwise] => return otherwise.value(cells),
                        _ => {}
                    }
                }
                CellValue::Null
            }
            BoundExpression::In(value, list) => {
                let value = value.value(cells)?;
                let mut found = CellValue::Bool(false);
                for item in list {
                    match compare_values("=", &value, &item.value(cells)?) {
                        CellValue::Bool(false) => {}
                        other if found != CellValue::Bool(true) => found = other,
                        _ => {}
                    }
                }
                found
            }
            BoundExpression::Call(name, args) => {
                let values = args
                    .iter()
                    .map(|arg| arg.value(cells))
                    .collect::<Result<Vec<_>, _>>()?;
                call_function(name, &values)?
            }
        })
    }
}

fn wider(a: CellKind, b: CellKind) -> CellKind {
    if a == CellKind::F64 || b == CellKind::F64 {
        CellKind::F64
    } else {
        a
    }
}

fn call_function(name: &str, args: &[CellValue]) -> Result<CellValue, String> {
    let text = |of: fn(&str) -> String| match &args[0] {
        CellValue::Text(text) => CellValue::Text(of(text)),
        _ => CellValue::Null,
    };
    Ok(match (name, args) {
        ("AND", [CellValue::Bool(false), _] | [_, CellValue::Bool(false)]) => {
            CellValue::Bool(false)
        }
        ("OR", [CellValue::Bool(true), _] | [_, CellValue::Bool(true)]) => CellValue::Bool(true),
        ("AND", [CellValue::Bool(true), CellValue::Bool(true)]) => CellValue::Bool(true),
        ("OR", [CellValue::Bool(false), CellValue::Bool(false)]) => CellValue::Bool(false),
        ("AND" | "OR", _) => CellValue::Null,
        ("NOT", [CellValue::Bool(x)]) => CellValue::Bool(!x),
        ("NOT", _) => CellValue::Null,
        ("IS NULL", [x]) => CellValue::Bool(x.is_null()),
        ("IS NOT NULL", [x]) => CellValue::Bool(!x.is_null()),
        ("COALESCE", all) => all
            .iter()
            .find(|value| !value.is_null())
            .cloned()
            .unwrap_or(CellValue::Null),
        ("NULLIF", [a, b]) if compare_values("=", a, b) == CellValue::Bool(true) => CellValue::Null,
        ("NULLIF", [a, _]) => a.clone(),
        ("ABS", [CellValue::Int(x)]) => fits(x.abs())?,
        ("ABS", [CellValue::Float(x)]) => CellValue::Float(x.abs()),
        ("negative", [CellValue::Int(x)]) => fits(-x)?,
        ("negative", [CellValue::Float(x)]) => CellValue::Float(-x),
        ("ABS" | "negative", _) => CellValue::Null,
        ("UPPER", _) => text(str::to_uppercase),
        ("LOWER", _) => text(str::to_lowercase),
        ("||", [CellValue::Text(a), CellValue::Text(b)]) => CellValue::Text(format!("{a}{b}")),
        ("||", _) => CellValue::Null,
        ("+" | "-" | "*" | "/" | "%", [a, b]) => arithmetic(name, a, b)?,
        (_, [a, b]) => compare_values(name, a, b),
        _ => return Err(format!("no function {name}")),
    })
}
