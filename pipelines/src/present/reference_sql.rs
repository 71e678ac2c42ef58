//! The SQL of specs in the reference.

use std::fmt::Write;

use forebay_plan::{FOREIGN_FUNCTIONS, sql_functions};

/// The prose before the list.
const ABOUT: &str = "
## SQL functions

`filter`, `derive`, `expect`, `split` and steps with `sql:` take SQL: that of
[DataFusion](https://datafusion.apache.org/user-guide/sql/index.html), \
which is close to PostgreSQL's. Its pages say
what each function does. Names of columns are case-sensitive, \
and names with other letters than those of words stand in
double quotes. `/` of integers cuts the fraction off; \
`log` is the logarithm of base 10, and `ln` the natural one. NaN
equals itself, and is above every number.

An expression sees one row: aggregates and windows are for steps with `sql:`. \
Functions whose result changes from run to
run (`now`, `random`, `current_date`) are refused.

Sums, differences, products, negations and shifts of integers \
that do not fit their type are faults (FB0210). \
`CAST(20240101 AS
DATE)` is refused, since whole numbers count days from 1970-01-01. A date has no hours: `day +
INTERVAL '36 hours'` is refused, and `CAST(day AS TIMESTAMP)` has them. \
`arrow_cast('1 month', 'Interval(DayTime)')` is refused, since a month has no fixed number of days.

A cast of a number to a whole type cuts the fraction off, toward zero: `CAST(1.9 AS INT)` is 1, \
and `CAST(-1.9 AS INT)` is -1, as in Spark. \
PostgreSQL and DuckDB round: `CAST(round(x) AS INT)`. \
These cuts are not counted; the transform `cast` counts them. A cast to \
`DECIMAL(10, 2)` rounds, halves away from zero. A cast to `BOOLEAN` makes every number but 0 true, \
2 and NaN among them: `x = 1` is true for 1 alone. Numbers beyond the type, and NaN as a whole \
number, are faults (FB0206); `try_cast` makes them null, and counts them.

In steps with `sql:`, `INTERSECT ALL` and `EXCEPT
ALL` are refused, and so are `RIGHT JOIN` and `FULL JOIN` with `USING` or `NATURAL`.
";

/// The functions, and the names of other tools.
pub fn markdown() -> String {
    let mut text = String::from(ABOUT);
    text.push_str(
        "\nNames that other tools have, and SQL for the same:\n\n| name | write |\n|---|---|\n",
    );
    for function in FOREIGN_FUNCTIONS {
        let _ = writeln!(text, "| `{}` | `{}` |", function.name, function.sql);
    }
    let names: Vec<String> = sql_functions()
        .iter()
        .map(|name| format!("`{name}`"))
        .collect();
    let _ = write!(
        text,
        "\nAll functions, those for `sql:` steps alone among them: {}.\n",
        names.join(", ")
    );
    text
}
