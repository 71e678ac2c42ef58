//! The part of SQL that random expressions use: parsed and evaluated row by row, with three-valued logic.

use super::table::{INT64, Kind, Table, Value};

/// An expression, bound to the columns of a table.
pub enum Expression {
    Column(usize, Kind),
    Literal(Value),
    Call(String, Vec<Expression>),
    Cast(Box<Expression>, Kind),
    /// Conditions and results in turn, then what holds otherwise.
    Case(Vec<Expression>),
    In(Box<Expression>, Vec<Expression>),
}

/// Parses an expression over the columns of a table.
pub fn parse(text: &str, table: &Table) -> Result<Expression, String> {
    let mut parser = Parser { tokens: tokens(text)?, at: 0, table };
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
            c if c.is_ascii_alphanumeric() || c == '_' => {
                rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.')).unwrap_or(rest.len())
            }
            _ if ["<=", ">=", "<>", "||"].iter().any(|two| rest.starts_with(two)) => 2,
            c => c.len_utf8(),
        };
        tokens.push(rest[..end].to_owned());
        rest = rest[end..].trim_start();
    }
    Ok(tokens)
}

struct Parser<'t> {
    tokens: Vec<String>,
    at: usize,
    table: &'t Table,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&str> {
        self.tokens.get(self.at).map(String::as_str)
    }

    fn accept(&mut self, token: &str) -> bool {
        let found = self.peek() == Some(token);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.accept(token) { Ok(()) } else { Err(format!("{:?}, not `{token}`", self.peek())) }
    }

    fn next(&mut self) -> Result<String, String> {
        self.at += 1;
        self.tokens.get(self.at - 1).cloned().ok_or_else(|| "the text ends".to_owned())
    }

    fn either(&mut self) -> Result<Expression, String> {
        self.left_to_right(&["OR"], |parser| parser.left_to_right(&["AND"], Parser::not))
    }

    fn left_to_right(
        &mut self,
        operators: &[&str],
        operand: impl Fn(&mut Self) -> Result<Expression, String>,
    ) -> Result<Expression, String> {
        let mut left = operand(self)?;
        while let Some(operator) = operators.iter().find(|operator| self.peek() == Some(operator)) {
            self.at += 1;
            left = Expression::Call((*operator).to_owned(), vec![left, operand(self)?]);
        }
        Ok(left)
    }

    fn not(&mut self) -> Result<Expression, String> {
        if self.accept("NOT") { Ok(Expression::Call("NOT".into(), vec![self.not()?])) } else { self.compared() }
    }

    fn compared(&mut self) -> Result<Expression, String> {
        let sum = |parser: &mut Self| {
            parser.left_to_right(&["||"], |parser| {
                parser.left_to_right(&["+", "-"], |parser| parser.left_to_right(&["*", "/", "%"], Parser::primary))
            })
        };
        let left = sum(self)?;
        if self.accept("IS") {
            let not = self.accept("NOT");
            self.expect("NULL")?;
            return Ok(Expression::Call(if not { "IS NOT NULL" } else { "IS NULL" }.into(), vec![left]));
        }
        if self.accept("IN") {
            self.expect("(")?;
            return Ok(Expression::In(Box::new(left), self.list()?));
        }
        let known = ["=", "<>", "<", "<=", ">", ">="];
        let Some(operator) = known.into_iter().find(|operator| self.peek() == Some(operator)) else { return Ok(left) };
        self.at += 1;
        Ok(Expression::Call(operator.to_owned(), vec![left, sum(self)?]))
    }

    /// Expressions up to the closing parenthesis.
    fn list(&mut self) -> Result<Vec<Expression>, String> {
        let mut list = vec![self.either()?];
        while self.accept(",") {
            list.push(self.either()?);
        }
        self.expect(")")?;
        Ok(list)
    }

    fn primary(&mut self) -> Result<Expression, String> {
        let token = self.next()?;
        let first = token.chars().next().unwrap_or(' ');
        Ok(match token.as_str() {
            "(" => {
                let inner = self.either()?;
                self.expect(")")?;
                inner
            }
            "-" => Expression::Call("negative".into(), vec![self.primary()?]),
            "TRUE" => Expression::Literal(Value::Bool(true)),
            "FALSE" => Expression::Literal(Value::Bool(false)),
            "CAST" => {
                self.expect("(")?;
                let inner = self.either()?;
                self.expect("AS")?;
                let kind = match self.next()?.as_str() {
                    "BIGINT" => INT64,
                    "DOUBLE" => Kind::F64,
                    "VARCHAR" => Kind::Text,
                    other => return Err(format!("no type {other}")),
                };
                self.expect(")")?;
                Expression::Cast(Box::new(inner), kind)
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
                Expression::Case(parts)
            }
            text if first == '\'' => Expression::Literal(Value::Text(text[1..text.len() - 1].to_owned())),
            name if first == '"' => self.column(&name[1..name.len() - 1])?,
            number if first.is_ascii_digit() => Expression::Literal(match number.parse::<i128>() {
                Ok(whole) => Value::Int(whole),
                Err(_) => Value::Float(number.parse().map_err(|_| format!("{number} is no number"))?),
            }),
            function if self.peek() == Some("(") => {
                self.at += 1;
                Expression::Call(function.to_owned(), self.list()?)
            }
            name => self.column(name)?,
        })
    }

    fn column(&self, name: &str) -> Result<Expression, String> {
        let at = self.table.find(name)?;
        Ok(Expression::Column(at, self.table.columns[at].kind.clone()))
    }
}

/// A comparison of SQL: unknown where either side is null; NaN equals itself and is above all numbers.
fn compared(operator: &str, a: &Value, b: &Value) -> Value {
    if a.is_null() || b.is_null() {
        return Value::Null;
    }
    let order = match (a, b) {
        (Value::Int(a), Value::Float(_)) => Value::Float(*a as f64).cmp(b),
        (Value::Float(_), Value::Int(b)) => a.cmp(&Value::Float(*b as f64)),
        _ => a.cmp(b),
    };
    Value::Bool(match operator {
        "=" => order.is_eq(),
        "<>" => order.is_ne(),
        "<" => order.is_lt(),
        "<=" => order.is_le(),
        ">" => order.is_gt(),
        _ => order.is_ge(),
    })
}

fn fits(x: i128) -> Result<Value, String> {
    i64::try_from(x).map(|x| Value::Int(x.into())).map_err(|_| "an overflow".to_owned())
}

fn computed(operator: &str, a: &Value, b: &Value) -> Result<Value, String> {
    match (a, b) {
        (Value::Null, _) | (_, Value::Null) => Ok(Value::Null),
        (Value::Int(_), Value::Int(0)) if operator == "/" || operator == "%" => Err("a division by zero".into()),
        (Value::Int(a), Value::Int(b)) => fits(match operator {
            "+" => a + b,
            "-" => a - b,
            "*" => a * b,
            "/" => a / b,
            _ => a % b,
        }),
        (Value::Int(a), b) => computed(operator, &Value::Float(*a as f64), b),
        (a, Value::Int(b)) => computed(operator, a, &Value::Float(*b as f64)),
        (Value::Float(a), Value::Float(b)) => Ok(Value::Float(match operator {
            "+" => a + b,
            "-" => a - b,
            "*" => a * b,
            "/" => a / b,
            _ => a % b,
        })),
        _ => Err(format!("{operator} of {a:?} and {b:?}")),
    }
}

impl Expression {
    pub fn kind(&self) -> Kind {
        match self {
            Expression::Column(_, kind) | Expression::Cast(_, kind) => kind.clone(),
            Expression::Literal(Value::Int(_)) => INT64,
            Expression::Literal(Value::Float(_)) => Kind::F64,
            Expression::Literal(Value::Text(_)) => Kind::Text,
            Expression::Literal(_) | Expression::In(..) => Kind::Bool,
            Expression::Case(parts) => wider(parts[1].kind(), parts[parts.len() - 1].kind()),
            Expression::Call(name, args) => match name.as_str() {
                "+" | "-" | "*" | "/" | "%" => wider(args[0].kind(), args[1].kind()),
                "COALESCE" | "NULLIF" | "ABS" | "negative" => args[0].kind(),
                "||" | "UPPER" | "LOWER" => Kind::Text,
                _ => Kind::Bool,
            },
        }
    }

    pub fn value(&self, cells: &[Value]) -> Result<Value, String> {
        Ok(match self {
            Expression::Column(at, _) => cells[*at].clone(),
            Expression::Literal(value) => value.clone(),
            Expression::Cast(inner, kind) => super::columns::cast_value(&inner.value(cells)?, &inner.kind(), kind)?
                .ok_or("a value that cannot be cast")?,
            Expression::Case(parts) => {
                for pair in parts.chunks(2) {
                    match pair {
                        [condition, result] if condition.value(cells)? == Value::Bool(true) => {
                            return result.value(cells);
                        }
                        [otherwise] => return otherwise.value(cells),
                        _ => {}
                    }
                }
                Value::Null
            }
            Expression::In(value, list) => {
                let value = value.value(cells)?;
                let mut found = Value::Bool(false);
                for item in list {
                    match compared("=", &value, &item.value(cells)?) {
                        Value::Bool(false) => {}
                        other if found != Value::Bool(true) => found = other,
                        _ => {}
                    }
                }
                found
            }
            Expression::Call(name, args) => {
                let values = args.iter().map(|arg| arg.value(cells)).collect::<Result<Vec<_>, _>>()?;
                called(name, &values)?
            }
        })
    }
}

fn wider(a: Kind, b: Kind) -> Kind {
    if a == Kind::F64 || b == Kind::F64 { Kind::F64 } else { a }
}

fn called(name: &str, args: &[Value]) -> Result<Value, String> {
    let text = |of: fn(&str) -> String| match &args[0] {
        Value::Text(text) => Value::Text(of(text)),
        _ => Value::Null,
    };
    Ok(match (name, args) {
        ("AND", [Value::Bool(false), _] | [_, Value::Bool(false)]) => Value::Bool(false),
        ("OR", [Value::Bool(true), _] | [_, Value::Bool(true)]) => Value::Bool(true),
        ("AND", [Value::Bool(true), Value::Bool(true)]) => Value::Bool(true),
        ("OR", [Value::Bool(false), Value::Bool(false)]) => Value::Bool(false),
        ("AND" | "OR", _) => Value::Null,
        ("NOT", [Value::Bool(x)]) => Value::Bool(!x),
        ("NOT", _) => Value::Null,
        ("IS NULL", [x]) => Value::Bool(x.is_null()),
        ("IS NOT NULL", [x]) => Value::Bool(!x.is_null()),
        ("COALESCE", all) => all.iter().find(|value| !value.is_null()).cloned().unwrap_or(Value::Null),
        ("NULLIF", [a, b]) if compared("=", a, b) == Value::Bool(true) => Value::Null,
        ("NULLIF", [a, _]) => a.clone(),
        ("ABS", [Value::Int(x)]) => fits(x.abs())?,
        ("ABS", [Value::Float(x)]) => Value::Float(x.abs()),
        ("negative", [Value::Int(x)]) => fits(-x)?,
        ("negative", [Value::Float(x)]) => Value::Float(-x),
        ("ABS" | "negative", _) => Value::Null,
        ("UPPER", _) => text(str::to_uppercase),
        ("LOWER", _) => text(str::to_lowercase),
        ("||", [Value::Text(a), Value::Text(b)]) => Value::Text(format!("{a}{b}")),
        ("||", _) => Value::Null,
        ("+" | "-" | "*" | "/" | "%", [a, b]) => computed(name, a, b)?,
        (_, [a, b]) => compared(name, a, b),
        _ => return Err(format!("no function {name}")),
    })
}
