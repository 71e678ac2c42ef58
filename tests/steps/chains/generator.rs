//! Chains from seeds. Each step is drawn for the columns that the interpreter says there are, and is kept
//! if the interpreter finds it valid.

use arrow::datatypes::TimeUnit;
use serde_json::{Map, Value as Json, json};

use super::chain::{ChainInput, ChainLayout, ChainNode, ChainSource, ProgramOptions, RandomChain};
use super::interpreter::{self, InterpretedTables, SeriesDeclaration};
use super::table::{
    CellKind, CellRow, CellTable, CellValue, INT32, INT64, TypedColumn, ValueExactness,
};
use crate::support::series::SplitMixRng;

/// The transforms that are drawn.
pub const TRANSFORMS: [&str; 35] = [
    "select",
    "drop",
    "rename",
    "filter",
    "derive",
    "explode",
    "cast",
    "date_parts",
    "clip",
    "log1p",
    "standardize",
    "min_max",
    "robust_scale",
    "bucketize",
    "apply_buckets",
    "quantiles",
    "k_bins",
    "impute",
    "hash_bucket",
    "cross",
    "vocabulary",
    "ordinal",
    "one_hot",
    "multi_hot",
    "lag",
    "diff",
    "pct_change",
    "rolling",
    "expanding",
    "ewm",
    "seasonal_rolling",
    "seasonal_index",
    "fill_forward",
    "interpolate",
    "pooled",
];

/// The transforms after which rows are others.
pub const GATHERS: [&str; 2] = ["aggregate", "dedupe"];

/// Texts that categories are made of.
const TEXTS: [&str; 14] = [
    "",
    "a",
    "b",
    "ab",
    "A",
    "aa",
    "zeta",
    "\u{e4}",
    "1",
    "-1",
    "true",
    " ",
    "a,b",
    "a category that is too long to be kept in place",
];

/// The declared columns, which no step changes.
const PROTECTED: [&str; 4] = ["id", "t", "k1", "k2"];

/// What steps are drawn from.
struct StepGenerator<'w> {
    random: &'w mut SplitMixRng,
    table: CellTable,
    /// Lengths of time that suit the time column.
    lengths: Vec<&'static str>,
    /// The distance of times.
    every: &'static str,
    number: usize,
    /// A step whose keys are unique, for joins.
    unique: Option<(String, Vec<String>)>,
    /// A source for joins.
    other: Option<String>,
    /// Whether a step may gather all rows.
    gathers: bool,
}

fn shuffled<T>(random: &mut SplitMixRng, mut all: Vec<T>) -> Vec<T> {
    for at in (1..all.len()).rev() {
        all.swap(at, random.below(at as u64 + 1) as usize);
    }
    all
}

/// The types of times: the type, the distance of two times, lengths of time, and ticks of the distance.
const TIMES: [(CellKind, &str, [&str; 4], i128); 9] = [
    (CellKind::Date, "1d", ["1d", "2d", "7d", "1w"], 1),
    (
        CellKind::Time(TimeUnit::Second),
        "1h",
        ["1h", "3h", "60m", "1d"],
        3_600,
    ),
    (
        CellKind::Time(TimeUnit::Second),
        "1d",
        ["1d", "2d", "48h", "1w"],
        86_400,
    ),
    (
        CellKind::Time(TimeUnit::Millisecond),
        "6h",
        ["6h", "12h", "1d", "18h"],
        21_600_000,
    ),
    (
        CellKind::Time(TimeUnit::Microsecond),
        "1h",
        ["1h", "5h", "1d", "90m"],
        3_600_000_000,
    ),
    (
        CellKind::Time(TimeUnit::Nanosecond),
        "1d",
        ["1d", "3d", "1w", "36h"],
        86_400_000_000_000,
    ),
    (
        CellKind::Time(TimeUnit::Nanosecond),
        "1s",
        ["1s", "3s", "1m", "2500ms"],
        1_000_000_000,
    ),
    (INT64, "1t", ["1t", "2t", "7t", "3t"], 1),
    (INT32, "2t", ["2t", "4t", "6t", "9t"], 2),
];

/// A value of a type. `style` is one for all values of a column.
fn value(random: &mut SplitMixRng, kind: &CellKind, style: u64) -> CellValue {
    if random.chance([0, 5, 30, 8][(style % 4) as usize]) {
        return CellValue::Null;
    }
    match kind {
        CellKind::Bool => CellValue::Bool(random.chance(50)),
        CellKind::Int { .. } => {
            let (least, greatest) = kind.range();
            let small = i128::from(random.below(12)) - if least < 0 { 4 } else { 0 };
            CellValue::Int(match (style, random.below(6)) {
                (3, 0) => least,
                (3, 1) => greatest,
                (3, 2) => greatest - 1,
                _ => small,
            })
        }
        CellKind::F32 | CellKind::F64 => {
            let tame = (random.below(1200) as f64 - 500.0) / 64.0;
            CellValue::float(
                match (style, random.below(12)) {
                    (1 | 2 | 5, 0) => f64::NAN,
                    (4, 0) => -0.0,
                    (4, 1) => 0.0,
                    (5, 1) => f64::INFINITY,
                    (5, 2) => f64::NEG_INFINITY,
                    (3, 0) => 1e30,
                    (3, 1) => -3e38,
                    (3, 2) => 1e-40,
                    (6, _) => (tame / 2.0).trunc(),
                    _ => tame,
                },
                kind,
            )
        }
        CellKind::Decimal => CellValue::Int(i128::from(random.below(4000)) - 1500),
        CellKind::Text => {
            let known = random.pick(&[3, 8, 14]);
            CellValue::Text(random.pick(&TEXTS[..known]).to_owned())
        }
        CellKind::Date => CellValue::Int(
            16_000 + i128::from(random.below(50)) - if style == 3 { 20_000 } else { 0 },
        ),
        CellKind::Time(unit) => {
            let hours =
                384_000 + i128::from(random.below(500)) - if style == 3 { 390_000 } else { 0 };
            CellValue::Int(
                hours * 3_600_000_000_000 / super::columns::nanoseconds(*unit) + i128::from(style),
            )
        }
        CellKind::List(element) => {
            let length = random.below(4);
            CellValue::List((0..length).map(|_| value(random, element, style)).collect())
        }
        CellKind::Vector(_) => CellValue::Null,
    }
}

fn kind(random: &mut SplitMixRng) -> CellKind {
    let int = |bits, signed| CellKind::Int { bits, signed };
    let plain = [
        CellKind::Bool,
        int(8, true),
        int(16, true),
        INT32,
        INT64,
        INT64,
        int(8, false),
        int(16, false),
        int(32, false),
        int(64, false),
        CellKind::F32,
        CellKind::F64,
        CellKind::F64,
        CellKind::F64,
        CellKind::Decimal,
        CellKind::Text,
        CellKind::Text,
        CellKind::Date,
        CellKind::Time(TimeUnit::Millisecond),
        CellKind::Time(TimeUnit::Microsecond),
        CellKind::List(Box::new(CellKind::Text)),
        CellKind::List(Box::new(INT64)),
    ];
    plain[random.below(plain.len() as u64) as usize].clone()
}

/// A source with an id, a time, two keys and some values.
fn source(
    random: &mut SplitMixRng,
    name: &str,
    like: Option<&ChainSource>,
    time: usize,
) -> ChainSource {
    let rows = random.pick(&[0, 1, 2, 6, 15, 30, 30, 45, 60]);
    let (columns, styles): (Vec<TypedColumn>, Vec<u64>) = match like {
        Some(like) => (
            like.table.columns.clone(),
            like.table.columns.iter().map(|_| random.below(2)).collect(),
        ),
        None => {
            let key = random.pick(&[0, 1, 2, 3]);
            let key = [CellKind::Text, INT64, CellKind::Bool, CellKind::Date][key as usize].clone();
            let mut columns = vec![
                TypedColumn::new("id", INT64),
                TypedColumn::new("t", TIMES[time].0.clone()),
                TypedColumn::new("k1", CellKind::Text),
                TypedColumn::new("k2", key),
            ];
            let mut styles = vec![0, 0, random.pick(&[0, 1]), random.pick(&[0, 1])];
            for number in 0..2 + random.below(4) {
                let kind = kind(random);
                let style = random.below(7);
                // Zeros of either sign are told apart nowhere, so that they are not compared.
                let name = if style == 4 && kind.is_float() {
                    format!("z{number}")
                } else {
                    format!("v{number}")
                };
                let wild = style == 3 && (kind.is_number() && kind != CellKind::Decimal);
                let care = if wild {
                    ValueExactness::Wild
                } else {
                    ValueExactness::Tame
                };
                columns.push(TypedColumn { name, kind, care });
                styles.push(style);
            }
            (columns, styles)
        }
    };
    let span = random.pick(&[4, 12, 40]);
    let ticks = TIMES[time].3;
    let sparse_keys = random.chance(50);
    let mut all: Vec<CellRow> = (0..rows)
        .map(|_| {
            let cells =
                columns
                    .iter()
                    .zip(&styles)
                    .map(|(column, style)| match column.name.as_str() {
                        "t" => CellValue::Int(
                            (if TIMES[time].0.is_int() {
                                0
                            } else {
                                384_000 * 3_600_000_000_000 / tick_of(&TIMES[time].0) / ticks
                            } + i128::from(random.below(span)))
                                * ticks,
                        ),
                        "k1" if *style == 1 && random.chance(10) => CellValue::Null,
                        "k1" => CellValue::Text(random.pick(&["a", "b", "\u{e4}"]).to_owned()),
                        "k2" if sparse_keys && !column.kind.is_int() => {
                            value(random, &column.kind, *style)
                        }
                        "k2" if column.kind.is_int() => CellValue::Int(i128::from(random.below(2))),
                        "k2" => value(random, &column.kind, 0),
                        _ => value(random, &column.kind, *style),
                    });
            CellRow {
                cells: cells.collect(),
                fitted: true,
            }
        })
        .collect();
    match random.below(3) {
        0 => all.sort_by(|a, b| a.cells[1].cmp(&b.cells[1])),
        1 => all.sort_by(|a, b| {
            a.cells[2..4]
                .cmp(&b.cells[2..4])
                .then(a.cells[1].cmp(&b.cells[1]))
        }),
        _ => {}
    }
    (0..)
        .zip(&mut all)
        .for_each(|(id, row)| row.cells[0] = CellValue::Int(id));
    let series = SeriesDeclaration {
        time: Some("t".into()),
        keys: random_keys(random),
    };
    ChainSource {
        name: name.to_owned(),
        table: CellTable { columns, rows: all },
        series,
    }
}

fn tick_of(kind: &CellKind) -> i128 {
    match kind {
        CellKind::Time(unit) => super::columns::nanoseconds(*unit),
        _ => super::columns::DAY,
    }
}

fn random_keys(random: &mut SplitMixRng) -> Vec<String> {
    let keys: &[&str] = random.pick(&[&["k1", "k2"] as &[&str], &["k1"], &["k2"], &[]]);
    keys.iter().map(|key| (*key).to_owned()).collect()
}

/// The chain of a seed.
pub fn chain(seed: u64) -> RandomChain {
    let mut random = SplitMixRng(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x51ed);
    let random = &mut random;
    let time = random.below(TIMES.len() as u64) as usize;
    let main = source(random, "m", None, time);
    let split = random
        .chance(25)
        .then(|| format!("id < {}", random.pick(&[0, 3, 20])));
    let mut chain = RandomChain {
        sources: vec![main],
        nodes: Vec::new(),
        split,
        layouts: layouts(random, seed),
    };
    let mut unique = None;
    let mut other = None;
    let mut input = ChainInput::From("m".into());
    if random.chance(15) {
        let more = source(random, "n", Some(&chain.sources[0]), time);
        let series = chain.sources[0].series.clone();
        chain.sources.push(ChainSource { series, ..more });
        input = ChainInput::Union(vec!["m".into(), "n".into()]);
    }
    if random.chance(40) {
        let mut there = source(random, "o", None, time);
        // Its keys are of the types that those of `m` have.
        there.table.columns.iter_mut().for_each(|column| {
            column.name.insert_str(
                0,
                if PROTECTED.contains(&column.name.as_str()) {
                    ""
                } else {
                    "o_"
                },
            )
        });
        if there.table.columns[3].kind != chain.sources[0].table.columns[3].kind {
            let kind = chain.sources[0].table.columns[3].kind.clone();
            for row in &mut there.table.rows {
                row.cells[3] = if kind.is_int() {
                    CellValue::Int(i128::from(random.below(2)))
                } else {
                    value(random, &kind, 0)
                };
            }
            there.table.columns[3].kind = kind;
        }
        chain.sources.push(there);
        other = Some("o".to_owned());
        let keys: Vec<String> = random
            .pick(&[&["k1"] as &[&str], &["k1", "k2"], &["id"]])
            .iter()
            .map(|k| (*k).to_owned())
            .collect();
        let steps =
            vec![json!({ "dedupe": { "keys": keys, "keep": random.pick(&["first", "last"]) } })];
        chain.nodes.push(ChainNode {
            name: "unique".into(),
            input: ChainInput::From("o".into()),
            fitted: false,
            steps,
        });
        extend(random, &mut chain, 2, &RIGHT, time, None, None);
        unique = Some(("unique".to_owned(), keys));
    }
    let fitted = chain.split.is_some() && random.chance(70);
    chain.nodes.push(ChainNode {
        name: "features".into(),
        input,
        fitted,
        steps: Vec::new(),
    });
    let count = 1 + random.below(7) as usize;
    let mut families: Vec<&str> = TRANSFORMS.to_vec();
    if chain.split.is_none() {
        families.extend(GATHERS);
    }
    families.extend(["join", "as_of_join", "rolling", "filter", "derive"]);
    extend(random, &mut chain, count, &families, time, unique, other);
    chain
}

/// Transforms on the other side of a join.
const RIGHT: [&str; 8] = [
    "derive",
    "filter",
    "standardize",
    "vocabulary",
    "clip",
    "bucketize",
    "date_parts",
    "impute",
];

/// One of so many chains is run through the program, too.
const PROGRAM_EVERY: u64 = 25;

fn layouts(random: &mut SplitMixRng, seed: u64) -> Vec<ChainLayout> {
    let one = ChainLayout {
        files: 1,
        group_rows: 100_000,
        threads: 1,
        batch_rows: 8192,
        program: None,
    };
    let cut = ChainLayout {
        files: random.pick(&[1, 2, 3, 7]),
        group_rows: random.pick(&[1, 3, 10, 100]),
        threads: random.pick(&[1, 2, 4]),
        batch_rows: random.pick(&[1, 3, 7, 8192]),
        program: None,
    };
    let mut layouts = if random.chance(50) {
        vec![one, cut]
    } else {
        vec![cut, one]
    };
    if seed.is_multiple_of(PROGRAM_EVERY) {
        let local_workers = random.pick(&[0, 2]);
        let program = ProgramOptions {
            // Each worker gets a share of it.
            memory_mib: random.pick(&[64, 96, 160]) * (1 + local_workers as u64),
            local_workers,
            killed_at: random.chance(60).then(|| random.below(60)),
        };
        layouts.push(ChainLayout {
            threads: 2,
            program: Some(program),
            ..cut
        });
    }
    layouts
}

/// Draws steps for the last node of a chain.
fn extend(
    random: &mut SplitMixRng,
    chain: &mut RandomChain,
    count: usize,
    families: &[&str],
    time: usize,
    unique: Option<(String, Vec<String>)>,
    other: Option<String>,
) {
    let Ok(world) = interpreter::interpret_chain(chain, 1) else {
        return;
    };
    let last = chain.nodes.len() - 1;
    let Ok((_, series)) = world.input(&chain.nodes[last].input) else {
        return;
    };
    let mut table = world.tables[chain.last()].clone();
    let fitted = chain.nodes[last].fitted;
    let before = chain.nodes[last].steps.len();
    for try_ in 0..30 * count {
        if chain.nodes[last].steps.len() >= before + count {
            break;
        }
        let family = random.pick(families);
        let lengths = TIMES[time].2.to_vec();
        let unique = unique.clone();
        let other = other.clone();
        let every = TIMES[time].1;
        let number = try_;
        let gathers = chain.split.is_none();
        let table_ = table.clone();
        let mut draw = StepGenerator {
            random,
            table: table_,
            lengths,
            every,
            number,
            unique,
            other,
            gathers,
        };
        let Some(config) = draw.config(family) else {
            continue;
        };
        let step = json!({ family: config });
        if let Some(next) = apply_valid_step(&step, &table, &world, &series, fitted) {
            table = next;
            chain.nodes[last].steps.push(step);
        }
    }
}

/// What a step comes to, if it is valid and small enough to go on with.
fn apply_valid_step(
    step: &Json,
    table: &CellTable,
    world: &InterpretedTables,
    series: &SeriesDeclaration,
    fitted: bool,
) -> Option<CellTable> {
    let next = interpreter::step(step, table, world, series, fitted).ok()?;
    (next.rows.len() <= 200 && next.columns.len() <= 40).then_some(next)
}

fn tame(column: &TypedColumn) -> bool {
    column.care == ValueExactness::Tame
}

fn exact(column: &TypedColumn) -> bool {
    !matches!(column.care, ValueExactness::Near(_))
}

fn category(column: &TypedColumn) -> bool {
    exact(column)
        && matches!(
            column.kind,
            CellKind::Text | CellKind::Int { .. } | CellKind::Bool | CellKind::Date
        )
}

fn key(column: &TypedColumn) -> bool {
    category(column) || matches!(column.kind, CellKind::Time(_))
}

fn listed(column: &TypedColumn) -> bool {
    matches!(&column.kind, CellKind::List(_))
}

impl StepGenerator<'_> {
    fn chance(&mut self, percent: u64) -> bool {
        self.random.chance(percent)
    }

    /// Up to two columns that suit.
    fn columns(&mut self, suits: impl Fn(&TypedColumn) -> bool) -> Option<Vec<String>> {
        let names: Vec<String> = self
            .table
            .columns
            .iter()
            .filter(|c| suits(c))
            .map(|c| c.name.clone())
            .collect();
        let count = if self.chance(25) { 2 } else { 1 };
        let mut names = shuffled(self.random, names);
        names.truncate(count);
        (!names.is_empty()).then_some(names)
    }

    fn one(&mut self, suits: impl Fn(&TypedColumn) -> bool) -> Option<String> {
        self.columns(suits)?.pop()
    }

    /// A map with these columns, and a suffix where it is drawn or where columns must not change.
    fn columns_config(
        &mut self,
        suits: impl Fn(&TypedColumn) -> bool,
    ) -> Option<Map<String, Json>> {
        let columns = self.columns(suits)?;
        let mut config = Map::new();
        if self.chance(50)
            || columns
                .iter()
                .any(|name| PROTECTED.contains(&name.as_str()))
        {
            config.insert("suffix".into(), json!(format!("_{}", self.number)));
        }
        config.insert("columns".into(), json!(columns));
        Some(config)
    }

    fn add_option(
        &mut self,
        config: &mut Map<String, Json>,
        percent: u64,
        name: &str,
        values: &[Json],
    ) {
        if self.chance(percent) {
            let value = values[self.random.below(values.len() as u64) as usize].clone();
            config.insert(name.into(), value);
        }
    }

    fn config(&mut self, family: &str) -> Option<Json> {
        Some(match family {
            "select" => {
                let names: Vec<String> = self
                    .table
                    .columns
                    .iter()
                    .map(|column| column.name.clone())
                    .collect();
                let kept = names
                    .into_iter()
                    .filter(|name| PROTECTED.contains(&name.as_str()) || self.random.chance(75));
                let kept: Vec<String> = kept.collect();
                json!(shuffled(self.random, kept))
            }
            "drop" => json!(self.columns(|column| !PROTECTED.contains(&column.name.as_str()))?),
            "rename" => {
                let old = self.one(|column| !PROTECTED.contains(&column.name.as_str()))?;
                let new = format!(
                    "r{}{}",
                    self.number,
                    if old.starts_with('z') { "z" } else { "" }
                );
                let new = if old.starts_with('z') {
                    format!("z{new}")
                } else {
                    new
                };
                json!({ old: new })
            }
            "filter" => json!(self.condition(2)?),
            "derive" => self.derive()?,
            "explode" => {
                let column = self.one(listed)?;
                json!({ "column": column, "keep_empty": self.chance(50) })
            }
            "cast" => self.cast()?,
            "date_parts" => {
                let columns =
                    self.columns(|c| matches!(c.kind, CellKind::Date | CellKind::Time(_)))?;
                let all = [
                    "year",
                    "quarter",
                    "month",
                    "week",
                    "day",
                    "day_of_week",
                    "day_of_year",
                    "hour",
                    "minute",
                    "second",
                    "is_weekend",
                ];
                let parts = [self.random.pick(&all), self.random.pick(&all)];
                let parts = if parts[0] == parts[1] {
                    &parts[..1]
                } else {
                    &parts[..]
                };
                json!({ "columns": columns, "parts": parts, "cyclic": self.chance(30) })
            }
            "aggregate" => self.aggregate()?,
            "dedupe" => {
                if self.has_vectors() {
                    return None;
                }
                let keys = self.columns(key)?;
                json!({ "keys": keys, "keep": self.random.pick(&["first", "last"]) })
            }
            "join" => {
                let (with, on) = self.unique.clone()?;
                let how = self.random.pick(&["left", "inner", "semi", "anti"]);
                let strategy = self.random.pick(&["auto", "lookup", "shuffle"]);
                let name = self.random.pick(&["suffix", "prefix"]);
                let suffix = format!("j{}_", self.number);
                let brings = how == "left" || how == "inner";
                if brings && self.gathers && self.chance(30) {
                    let with = self
                        .other
                        .clone()
                        .filter(|_| self.random.chance(70))
                        .unwrap_or(with);
                    return Some(
                        json!({ "with": with, "on": on, "how": how, "cardinality": "many_to_many", name: suffix }),
                    );
                }
                json!({ "with": with, "on": on, "how": how, "strategy": strategy, name: suffix })
            }
            "as_of_join" => self.as_of()?,
            "pooled" => self.pooled()?,
            "lag" | "diff" | "pct_change" | "rolling" | "expanding" | "ewm"
            | "seasonal_rolling" | "seasonal_index" | "fill_forward" | "interpolate" => {
                self.window(family)?
            }
            _ => Json::Object(self.learned(family)?),
        })
    }

    fn has_vectors(&self) -> bool {
        self.table
            .columns
            .iter()
            .any(|column| matches!(column.kind, CellKind::Vector(_)))
    }

    /// Transforms of one column each.
    fn learned(&mut self, family: &str) -> Option<Map<String, Json>> {
        let number = |column: &TypedColumn| column.kind.is_number();
        let tame_number = |column: &TypedColumn| column.kind.is_number() && tame(column);
        let mut config = match family {
            "clip" | "log1p" => self.columns_config(number)?,
            "apply_buckets" | "bucketize" => {
                self.columns_config(|column| column.kind.is_number() && exact(column))?
            }
            "hash_bucket" | "vocabulary" => {
                self.columns_config(|column| category(column) || listed(column))?
            }
            "cross" => Map::new(),
            "ordinal" | "one_hot" => self.columns_config(category)?,
            "multi_hot" => {
                self.columns_config(|column| listed(column) || column.kind == CellKind::Text)?
            }
            "impute" => self.columns_config(|column| {
                !column.kind.is_nested() && tame(column) && column.kind != CellKind::Decimal
            })?,
            _ => self.columns_config(tame_number)?,
        };
        let columns: Vec<String> = config
            .get("columns")
            .and_then(|c| serde_json::from_value(c.clone()).ok())
            .unwrap_or_default();
        let first = columns
            .first()
            .and_then(|name| self.table.columns.iter().find(|c| c.name == *name).cloned());
        let halves = [
            json!(-1),
            json!(0),
            json!(0.5),
            json!(2.5),
            json!(-3.5),
            json!(4),
        ];
        match family {
            "clip" => {
                self.add_option(&mut config, 70, "min", &halves[..3]);
                let percent = if config.contains_key("min") { 50 } else { 100 };
                self.add_option(&mut config, percent, "max", &halves[2..4]);
            }
            "apply_buckets" => {
                let boundaries = [
                    json!([0]),
                    json!([-1, 0.5, 3]),
                    json!([1, 2, 3, 4.25]),
                    json!([2]),
                ];
                self.add_option(&mut config, 100, "boundaries", &boundaries);
            }
            "standardize" => {
                self.add_option(&mut config, 40, "ddof", &[json!(0), json!(1)]);
                self.add_option(
                    &mut config,
                    40,
                    "zero_variance",
                    &[json!("zero"), json!("centre")],
                );
                self.add_group_keys(&mut config, &columns);
            }
            "min_max" => {
                self.add_option(&mut config, 40, "lo", &halves[..2]);
                self.add_option(&mut config, 40, "hi", &halves[2..4]);
                self.add_option(
                    &mut config,
                    40,
                    "zero_range",
                    &[json!("sigmoid"), json!("lower"), json!("middle")],
                );
                self.add_group_keys(&mut config, &columns);
            }
            "robust_scale" => {
                self.add_option(&mut config, 40, "lower", &[json!(0.1), json!(0.0)]);
                self.add_option(&mut config, 40, "upper", &[json!(0.9), json!(1.0)]);
                self.add_option(&mut config, 40, "exact", &[json!(true)]);
            }
            "bucketize" | "quantiles" => {
                self.add_option(
                    &mut config,
                    100,
                    "q",
                    &[json!(2), json!(3), json!(4), json!(10)],
                );
                self.add_option(&mut config, 40, "exact", &[json!(true)]);
            }
            "k_bins" => {
                self.add_option(&mut config, 100, "bins", &[json!(2), json!(3), json!(5)]);
                self.add_option(
                    &mut config,
                    50,
                    "strategy",
                    &[json!("quantile"), json!("uniform")],
                );
                self.add_option(&mut config, 40, "exact", &[json!(true)]);
            }
            "impute" => {
                let kind = first?.kind;
                let mut with = vec![];
                if kind.is_number() {
                    with.extend([json!("mean"), json!("median")]);
                }
                if category(&TypedColumn::new("", kind.clone())) {
                    with.push(json!("mode"));
                }
                match kind {
                    CellKind::Bool => with.push(json!({ "constant": true })),
                    CellKind::Text => with.push(json!({ "constant": "none" })),
                    CellKind::F32 | CellKind::F64 => with.push(json!({ "constant": 0.5 })),
                    CellKind::Int { .. } => with.push(json!({ "constant": 7 })),
                    _ => {}
                }
                if with.is_empty() {
                    return None;
                }
                self.add_option(&mut config, 100, "with", &with);
                self.add_option(&mut config, 30, "indicator", &[json!(true)]);
            }
            "hash_bucket" => {
                self.add_option(
                    &mut config,
                    100,
                    "buckets",
                    &[json!(1), json!(2), json!(10), json!(1000)],
                );
                self.add_option(&mut config, 40, "seed", &[json!(1), json!(77)]);
            }
            "cross" => {
                let a = self.one(category)?;
                let b = self.one(category)?;
                config.insert("columns".into(), json!([a, b]));
                config.insert("name".into(), json!(format!("x{}", self.number)));
                self.add_option(
                    &mut config,
                    100,
                    "buckets",
                    &[json!(1), json!(3), json!(100)],
                );
            }
            "vocabulary" => {
                self.add_option(&mut config, 30, "min_count", &[json!(2), json!(3)]);
                self.add_option(&mut config, 30, "top_k", &[json!(1), json!(2), json!(5)]);
                self.add_option(
                    &mut config,
                    20,
                    "reserved",
                    &[json!(["pad"]), json!(["a", "pad"])],
                );
                self.add_option(&mut config, 30, "oov_buckets", &[json!(1), json!(3)]);
                self.add_option(&mut config, 20, "default", &[json!(-7)]);
                self.add_option(
                    &mut config,
                    50,
                    "order",
                    &[
                        json!("count_then_reverse"),
                        json!("count_then_value"),
                        json!("value"),
                    ],
                );
                self.add_option(&mut config, 30, "dtype", &[json!("int32")]);
            }
            "ordinal" => {
                self.add_option(
                    &mut config,
                    70,
                    "unknown",
                    &[json!("missing"), json!({ "value": -1 })],
                );
                self.add_option(
                    &mut config,
                    15,
                    "categories",
                    &[json!(["b", "a"]), json!(["1", "", "true"])],
                );
                self.add_option(&mut config, 30, "dtype", &[json!("int32")]);
            }
            "one_hot" | "multi_hot" => {
                self.add_option(
                    &mut config,
                    30,
                    "categories",
                    &[json!(["b", "a"]), json!(["1", "", "true"])],
                );
                self.add_option(&mut config, 20, "min_count", &[json!(2)]);
                self.add_option(&mut config, 20, "top_k", &[json!(2)]);
                if family == "multi_hot" && first?.kind == CellKind::Text {
                    self.add_option(&mut config, 100, "delimiter", &[json!(","), json!("a")]);
                }
            }
            _ => {}
        }
        Some(config)
    }

    fn add_group_keys(&mut self, config: &mut Map<String, Json>, columns: &[String]) {
        let drawn = self.chance(40);
        let keys = self.columns(|column| key(column) && !columns.contains(&column.name));
        if let Some(keys) = keys.filter(|_| drawn) {
            config.insert("by".into(), json!(keys));
        }
    }

    fn cast(&mut self) -> Option<Json> {
        let column = self.one(|column| {
            !PROTECTED.contains(&column.name.as_str()) && exact(column) && !column.kind.is_nested()
        })?;
        let kind = &self.table.columns[self.table.find(&column).ok()?].kind;
        let to: &[&str] = match kind {
            CellKind::Int { .. } => &[
                "int8", "int64", "uint8", "uint64", "float32", "float64", "boolean", "string",
            ],
            CellKind::F32 | CellKind::F64 => {
                &["int32", "int64", "uint8", "float32", "float64", "boolean"]
            }
            CellKind::Bool => &["int8", "int64", "float64", "string"],
            CellKind::Text => &["int64", "int8", "string"],
            CellKind::Decimal => &["float64", "int64"],
            CellKind::Date => &["timestamp", "string"],
            _ => &["date"],
        };
        let to = self.random.pick(to);
        let on_error = self.random.pick(&["error", "missing"]);
        Some(json!({ "columns": { column: to }, "on_error": on_error }))
    }

    fn aggregate(&mut self) -> Option<Json> {
        if self.has_vectors() {
            return None;
        }
        let mut config = Map::new();
        let mut by = if self.chance(85) {
            self.columns(key).unwrap_or_default()
        } else {
            Vec::new()
        };
        if self.chance(30) {
            by.retain(|name| name != "t");
            if let Some(time) = self.one(|column| {
                matches!(column.kind, CellKind::Date | CellKind::Time(_)) && column.name == "t"
            }) {
                config.insert("time".into(), json!(time));
                self.add_option(
                    &mut config,
                    100,
                    "every",
                    &[json!("1d"), json!("2d"), json!("1w"), json!("7d")],
                );
            }
        }
        config.insert("by".into(), json!(by));
        let mut compute = Map::new();
        for number in 0..1 + self.random.below(3) {
            let words = [
                "sum", "mean", "count", "min", "max", "std", "var", "first", "last", "n_unique",
                "median",
            ];
            let word = self.random.pick(&words);
            let of = match word {
                // Sums of decimals have more digits than the decimals of these tables.
                "sum" | "mean" => self.one(|column| {
                    column.kind.is_number() && column.kind != CellKind::Decimal && tame(column)
                })?,
                "std" | "var" | "median" => {
                    self.one(|column| column.kind.is_number() && tame(column))?
                }
                "n_unique" => self.one(key)?,
                "count" if self.chance(40) => "*".into(),
                _ => self.one(|column| !column.kind.is_nested() && exact(column))?,
            };
            compute.insert(format!("g{}_{number}", self.number), json!({ word: of }));
        }
        config.insert("compute".into(), Json::Object(compute));
        self.add_option(&mut config, 30, "ddof", &[json!(0), json!(1)]);
        Some(Json::Object(config))
    }

    fn length(&mut self) -> Json {
        let lengths = self.lengths.clone();
        json!(self.random.pick(&lengths))
    }

    fn as_of(&mut self) -> Option<Json> {
        let mut config = Map::new();
        config.insert("with".into(), json!(self.other.clone()?));
        let on: &[&str] = self
            .random
            .pick(&[&["k1"] as &[&str], &["k1", "k2"], &["k2"]]);
        config.insert("on".into(), json!(on));
        self.add_option(
            &mut config,
            70,
            "direction",
            &[json!("backward"), json!("forward"), json!("nearest")],
        );
        if self.chance(50) {
            let tolerance = self.length();
            config.insert("tolerance".into(), tolerance);
        }
        self.add_option(&mut config, 40, "exact", &[json!(false)]);
        config.insert("suffix".into(), json!(format!("_a{}", self.number)));
        Some(Json::Object(config))
    }

    /// Statistics that suit what is known of a column.
    fn statistics(&mut self, column: &str) -> Option<Json> {
        let column = &self.table.columns[self.table.find(column).ok()?];
        let all = [
            "min",
            "max",
            "first",
            "last",
            "count",
            "mean",
            "sum",
            "std",
            "var",
            "median",
            "quantile",
            "skew",
            "kurtosis",
            "n_unique",
            "slope",
            "zero_share",
            "since_nonzero",
        ];
        let known = match column.care {
            ValueExactness::Wild => &all[..5],
            ValueExactness::Near(_) => &all[..7],
            ValueExactness::Tame => &all[..],
        };
        let a = self.random.pick(known);
        let b = self.random.pick(known);
        let word = |name: &str| {
            if name == "quantile" {
                json!({ "quantile": 0.9 })
            } else {
                json!(name)
            }
        };
        Some(if a == b {
            json!([word(a)])
        } else {
            json!([word(a), word(b)])
        })
    }

    fn window(&mut self, family: &str) -> Option<Json> {
        let mut config = Map::new();
        let number = |column: &TypedColumn| column.kind.is_number();
        let tame_number = |column: &TypedColumn| number(column) && tame(column);
        let copied = |column: &TypedColumn| {
            !column.kind.is_nested() && !matches!(column.kind, CellKind::Text | CellKind::Decimal)
        };
        let column = match family {
            "lag" => self.one(copied)?,
            "fill_forward" => {
                self.one(|column| copied(column) && !PROTECTED.contains(&column.name.as_str()))?
            }
            "diff" => {
                self.one(|column| number(column) && (tame(column) || column.kind.is_int()))?
            }
            "rolling" | "expanding" | "seasonal_rolling" => {
                self.one(|column| number(column) || column.kind == CellKind::Bool)?
            }
            "interpolate" => {
                self.one(|column| number(column) && !PROTECTED.contains(&column.name.as_str()))?
            }
            _ => self.one(tame_number)?,
        };
        config.insert("columns".into(), json!([column]));
        if ["rolling", "expanding", "seasonal_rolling"].contains(&family) {
            config.insert("compute".into(), self.statistics(&column)?);
        }
        let rows = self.chance(50);
        let a_length = |draw: &mut Self| {
            if rows {
                json!(1 + draw.random.below(5))
            } else {
                draw.length()
            }
        };
        match family {
            "lag" | "diff" | "pct_change" => {
                config.insert("by".into(), json!([a_length(self)]));
                if family == "lag" && !rows {
                    let within = self.length();
                    self.add_option(&mut config, 40, "as_of", &[json!(true), within]);
                }
            }
            "rolling" => {
                config.insert("over".into(), json!([a_length(self)]));
                self.add_option(
                    &mut config,
                    40,
                    "closed",
                    &[json!("left"), json!("both"), json!("neither")],
                );
                self.add_option(
                    &mut config,
                    40,
                    "min_periods",
                    &[json!(0), json!(1), json!(2)],
                );
            }
            "expanding" => self.add_option(&mut config, 40, "min_periods", &[json!(0), json!(2)]),
            "seasonal_rolling" => {
                config.insert("season".into(), a_length(self));
                config.insert("over".into(), json!([1 + self.random.below(3)]));
                self.add_option(&mut config, 40, "min_periods", &[json!(0), json!(1)]);
            }
            "ewm" => {
                self.add_option(
                    &mut config,
                    100,
                    "compute",
                    &[json!(["mean"]), json!(["std"]), json!(["var", "mean"])],
                );
                match self.random.below(5) {
                    0 => config.insert("alpha".into(), json!(0.3)),
                    1 => config.insert("span".into(), json!(3.0)),
                    2 => config.insert("com".into(), json!(1.5)),
                    3 => config.insert("half_life".into(), json!(2.0)),
                    _ => {
                        let length = self.length();
                        config.insert("half_life".into(), length)
                    }
                };
                if !config.get("half_life").is_some_and(Json::is_string) {
                    self.add_option(&mut config, 40, "adjust", &[json!(false)]);
                }
                self.add_option(&mut config, 30, "ignore_na", &[json!(true)]);
                self.add_option(&mut config, 30, "min_periods", &[json!(2), json!(3)]);
            }
            "seasonal_index" => {
                let periods = [
                    "day_of_week",
                    "day_of_month",
                    "month",
                    "quarter",
                    "week_of_year",
                    "hour",
                    "day_of_year",
                ];
                config.insert("period".into(), json!(self.random.pick(&periods)));
                self.add_option(&mut config, 30, "min_periods", &[json!(2)]);
                self.add_option(&mut config, 30, "shrink", &[json!({ "strength": 2.0 })]);
            }
            "fill_forward" | "interpolate" => {
                self.add_option(&mut config, 40, "limit", &[json!(1), json!(2)]);
                self.add_option(
                    &mut config,
                    50,
                    "suffix",
                    &[json!(format!("_{}", self.number))],
                );
            }
            _ => {}
        }
        if [
            "rolling",
            "expanding",
            "seasonal_rolling",
            "ewm",
            "seasonal_index",
        ]
        .contains(&family)
            && self.chance(40)
        {
            let rows = if family == "ewm" {
                !config.get("half_life").is_some_and(Json::is_string)
            } else {
                rows
            };
            let gap = if rows {
                json!(1 + self.random.below(2))
            } else {
                self.length()
            };
            config.insert("gap".into(), gap);
        }
        let every = self.every;
        let complete = [
            json!({ "complete": { "every": every } }),
            json!({ "complete": { "every": every, "fill": "zero" } }),
            json!({ "complete": { "every": every, "fill": "forward" } }),
        ];
        config.insert("gaps".into(), json!("count_rows"));
        let known = if family == "interpolate" { 1 } else { 3 };
        self.add_option(&mut config, 25, "gaps", &complete[..known]);
        self.add_option(
            &mut config,
            15,
            "keys",
            &[json!([]), json!(["k1"]), json!(["k2", "k1"])],
        );
        if !["lag", "fill_forward"].contains(&family) {
            self.add_option(&mut config, 20, "dtype", &[json!("float32")]);
        }
        Some(Json::Object(config))
    }

    fn pooled(&mut self) -> Option<Json> {
        let mut config = Map::new();
        let column = self.one(|column| column.kind.is_number() && tame(column))?;
        config.insert("columns".into(), json!([column]));
        let all = ["mean", "sum", "count", "std", "var", "min", "max"];
        let more = [
            "median",
            "first",
            "last",
            "n_unique",
            "skew",
            "kurtosis",
            "zero_share",
            "since_nonzero",
            "slope",
        ];
        let aggregate = self.chance(40);
        let word = if aggregate && self.chance(50) {
            self.random.pick(&more)
        } else {
            self.random.pick(&all)
        };
        config.insert("compute".into(), json!([word]));
        if aggregate {
            self.add_option(
                &mut config,
                100,
                "aggregate",
                &[
                    json!("sum"),
                    json!("mean"),
                    json!("min"),
                    json!("max"),
                    json!("count"),
                ],
            );
        }
        if self.chance(60) {
            let keys = self.columns(key)?;
            config.insert("by".into(), json!(keys));
        }
        if self.chance(70) {
            let over = self.length();
            config.insert("over".into(), json!([over]));
        }
        if self.chance(50) {
            let gap = self.length();
            config.insert("gap".into(), gap);
        }
        self.add_option(
            &mut config,
            30,
            "closed",
            &[json!("left"), json!("both"), json!("neither")],
        );
        self.add_option(
            &mut config,
            30,
            "min_periods",
            &[json!(0), json!(1), json!(3)],
        );
        Some(Json::Object(config))
    }

    fn derive(&mut self) -> Option<Json> {
        let name = format!("d{}", self.number);
        let text = match self.random.below(4) {
            0 => self.int(2)?,
            1 => self.float(2)?,
            2 => self.text(2)?,
            _ => self.condition(2)?,
        };
        Some(json!({ name: text }))
    }

    fn compared(&self, column: &TypedColumn) -> bool {
        tame(column) && !column.name.starts_with('z')
    }

    fn int(&mut self, depth: u64) -> Option<String> {
        let table = self.table.clone();
        let column = self.one(|column| column.kind.is_int() && tame(column));
        let atom = |draw: &mut Self| match (&column, draw.chance(70)) {
            (Some(name), true) if table.has(name) => format!("CAST({name} AS BIGINT)"),
            _ => draw.random.below(9).to_string(),
        };
        if depth == 0 {
            return Some(atom(self));
        }
        let a = self.int(depth - 1)?;
        let b = self.int(depth - 1)?;
        Some(match self.random.below(9) {
            0 => format!("({a} + {b})"),
            1 => format!("({a} - {b})"),
            2 => format!("({a} * {b})"),
            3 => format!("({a} / 3)"),
            4 => format!("({a} % 4)"),
            5 => format!("COALESCE({a}, {b})"),
            6 => format!(
                "CASE WHEN {} THEN {a} ELSE {b} END",
                self.condition(depth - 1)?
            ),
            7 => format!("NULLIF({a}, {b})"),
            _ => format!("ABS({a})"),
        })
    }

    fn float(&mut self, depth: u64) -> Option<String> {
        let float = |column: &TypedColumn| {
            tame(column) && column.kind.is_float() && !column.name.starts_with('z')
        };
        if depth == 0 {
            let column = self.one(float);
            return Some(match column {
                Some(name) if self.chance(70) => format!("CAST({name} AS DOUBLE)"),
                _ => format!("{}.5", self.random.below(5)),
            });
        }
        let a = self.float(depth - 1)?;
        let b = self.float(depth - 1)?;
        Some(match self.random.below(7) {
            0 => format!("({a} + {b})"),
            1 => format!("({a} - {b})"),
            2 => format!("({a} * {b})"),
            3 => format!("({a} / {b})"),
            4 => format!("COALESCE({a}, {b})"),
            5 => format!("({a} + {})", self.int(depth - 1)?),
            _ => format!(
                "CASE WHEN {} THEN {a} ELSE {b} END",
                self.condition(depth - 1)?
            ),
        })
    }

    fn text(&mut self, depth: u64) -> Option<String> {
        if depth == 0 {
            let column = self.one(|column| column.kind == CellKind::Text);
            return Some(match column {
                Some(name) if self.chance(80) => name,
                _ => format!("'{}'", self.random.pick(&["a", "x", ""])),
            });
        }
        let a = self.text(depth - 1)?;
        let b = self.text(depth - 1)?;
        Some(match self.random.below(6) {
            0 => format!("UPPER({a})"),
            1 => format!("LOWER({a})"),
            2 => format!("({a} || {b})"),
            3 => format!("COALESCE({a}, {b})"),
            4 => format!("CAST({} AS VARCHAR)", self.int(depth - 1)?),
            _ => format!(
                "CASE WHEN {} THEN {a} ELSE {b} END",
                self.condition(depth - 1)?
            ),
        })
    }

    fn condition(&mut self, depth: u64) -> Option<String> {
        let operator = self.random.pick(&["=", "<>", "<", "<=", ">", ">="]);
        if depth == 0 || self.chance(40) {
            let table = self.table.clone();
            let suits = |column: &&TypedColumn| self.compared(column) && !column.kind.is_nested();
            let suiting: Vec<&TypedColumn> = table.columns.iter().filter(suits).collect();
            let column = suiting.get(self.random.below(suiting.len().max(1) as u64) as usize)?;
            let name = &column.name;
            return Some(match (&column.kind, self.random.below(5)) {
                (_, 0) => format!("{name} IS NULL"),
                (_, 1) => format!("{name} IS NOT NULL"),
                (CellKind::Text, 2) => format!("{name} IN ('a', 'b', '')"),
                (CellKind::Text, _) => format!(
                    "{name} {operator} '{}'",
                    self.random.pick(&["a", "b", "", "zeta"])
                ),
                (CellKind::Int { .. }, 2) => format!("{name} IN (1, 2, 5)"),
                (CellKind::Int { .. }, _) => format!("{name} {operator} {}", self.random.below(20)),
                (CellKind::F32 | CellKind::F64, _) => {
                    format!("{name} {operator} {}.5", self.random.below(6))
                }
                (CellKind::Bool, _) => name.clone(),
                _ => format!("{name} IS NOT NULL"),
            });
        }
        Some(match self.random.below(6) {
            0 => format!(
                "({} AND {})",
                self.condition(depth - 1)?,
                self.condition(depth - 1)?
            ),
            1 => format!(
                "({} OR {})",
                self.condition(depth - 1)?,
                self.condition(depth - 1)?
            ),
            2 => format!("NOT ({})", self.condition(depth - 1)?),
            3 => format!(
                "{} {operator} {}",
                self.float(depth - 1)?,
                self.float(depth - 1)?
            ),
            4 => format!(
                "{} {operator} {}",
                self.text(depth - 1)?,
                self.text(depth - 1)?
            ),
            _ => format!(
                "{} {operator} {}",
                self.int(depth - 1)?,
                self.int(depth - 1)?
            ),
        })
    }
}
