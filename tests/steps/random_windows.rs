//! Random steps over random series, through YAML, against sums and sorts over plain lists.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::TestDirectory;
use crate::support::series::{self, DemandRow, FileOrder, SplitMixRng};

/// A length in rows or days.
#[derive(Debug, Clone, Copy, PartialEq)]
struct RandomLength {
    count: i64,
    days: bool,
}

impl RandomLength {
    fn text(self) -> String {
        format!("{}{}", self.count, if self.days { "d" } else { "" })
    }
}

/// One output.
#[derive(Debug, Clone)]
struct RandomWindow {
    column: &'static str,
    stat: &'static str,
    /// Absent for everything so far.
    over: Option<RandomLength>,
    gap: RandomLength,
    closed: &'static str,
    min_periods: Option<i64>,
}

impl RandomWindow {
    fn random(random: &mut SplitMixRng) -> RandomWindow {
        let days = random.chance(50);
        let length = |count: u64| RandomLength {
            count: count as i64,
            days,
        };
        let stats = [
            "mean",
            "sum",
            "std",
            "min",
            "max",
            "median",
            "count",
            "first",
            "last",
            "n_unique",
            "zero_share",
        ];
        RandomWindow {
            column: random.pick(&["qty", "units"]),
            stat: random.pick(&stats),
            over: random
                .chance(80)
                .then(|| length(random.pick(&[1, 2, 3, 7, 20, 400]))),
            gap: length(random.pick(&[0, 0, 1, 2, 9])),
            closed: random.pick(&["right", "left", "both", "neither"]),
            min_periods: random.chance(50).then(|| random.below(4) as i64),
        }
    }

    fn name(&self) -> String {
        match self.over {
            Some(over) => format!("{}_{}_{}", self.column, self.stat, over.text()),
            None => format!("{}_expanding_{}", self.column, self.stat),
        }
    }

    fn step(&self) -> String {
        let mut text = format!("columns: [{}], compute: [{}]", self.column, self.stat);
        if let Some(over) = self.over {
            text += &format!(", over: [{}], closed: {}", over.text(), self.closed);
        }
        if self.gap.count > 0 {
            text += &format!(", gap: {}", self.gap.text());
        }
        if let Some(min_periods) = self.min_periods {
            text += &format!(", min_periods: {min_periods}");
        }
        let kind = if self.over.is_some() {
            "rolling"
        } else {
            "expanding"
        };
        format!("      - {kind}: {{ {text}, gaps: count_rows }}\n")
    }

    /// What the last of these rows of a series has, and how large the numbers behind it are.
    fn expected(&self, rows: &[&DemandRow]) -> Option<(f64, f64)> {
        let place = |row: usize, days: bool| {
            if days {
                i64::from(rows[row].day)
            } else {
                row as i64
            }
        };
        let own = rows.len() - 1;
        let within = |row: &usize| {
            let end = place(own, self.gap.days) - self.gap.count;
            let at = place(*row, self.gap.days);
            let Some(over) = self.over else {
                return at <= end;
            };
            let (low, high) = match self.closed {
                "right" => (false, true),
                "left" => (true, false),
                "both" => (true, true),
                _ => (false, false),
            };
            (at > end - over.count || low && at == end - over.count)
                && (at < end || high && at == end)
        };
        let value = |row: usize| match self.column {
            "qty" => rows[row].qty.filter(|qty| !qty.is_nan()),
            _ => rows[row].units.map(|units| units as f64),
        };
        let values: Vec<f64> = (0..=own).filter(within).filter_map(value).collect();
        let unless_set = match (self.stat, self.over) {
            ("count", _) => 0,
            (_, Some(RandomLength { count, days: false })) => match self.closed {
                "neither" => count - 1,
                _ => count,
            },
            _ => 1,
        };
        if (values.len() as i64) < self.min_periods.unwrap_or(unless_set) {
            return None;
        }
        let n = values.len() as f64;
        let size = values.iter().map(|value| value.abs()).sum::<f64>();
        if values.is_empty() {
            return ["count", "sum", "n_unique"]
                .contains(&self.stat)
                .then_some((0.0, 0.0));
        }
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let mean = values.iter().sum::<f64>() / n;
        Some(match self.stat {
            "mean" => (mean, size / n),
            "sum" => (values.iter().sum(), size),
            "std" if values.len() < 2 => return None,
            "std" => (
                (values
                    .iter()
                    .map(|value| (value - mean).powi(2))
                    .sum::<f64>()
                    / (n - 1.0))
                    .sqrt(),
                size / n,
            ),
            "min" => (sorted[0], 0.0),
            "max" => (sorted[sorted.len() - 1], 0.0),
            "median" => (
                (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0,
                size / n,
            ),
            "count" => (n, 0.0),
            "first" => (values[0], 0.0),
            "last" => (values[values.len() - 1], 0.0),
            "n_unique" => (
                values
                    .iter()
                    .map(|value| (value + 0.0).to_bits())
                    .collect::<BTreeSet<_>>()
                    .len() as f64,
                0.0,
            ),
            _ => (
                values.iter().filter(|value| **value == 0.0).count() as f64 / n,
                0.0,
            ),
        })
    }
}

#[test]
fn random_windows_agree_with_plain_lists() {
    for seed in 0..8 {
        let mut random = SplitMixRng(seed * 1_000_003);
        let shop = TestDirectory::new();
        let rows = series::demand(random.next(), 60);
        let mut windows: BTreeMap<String, RandomWindow> = BTreeMap::new();
        while windows.len() < 14 {
            let window = RandomWindow::random(&mut random);
            windows.entry(window.name()).or_insert(window);
        }
        let steps: String = windows.values().map(RandomWindow::step).collect();
        let order = random.pick(&[FileOrder::Time, FileOrder::Key, FileOrder::Shuffled]);
        let data = series::write_in_order(&shop, "data", &rows, order, random.pick(&[1, 3, 7]), 40);
        shop.write(
            "spec.yaml",
            &format!(
                "version: 1\nname: random\nsources:\n  demand: {{ parquet: {{ path: {data} }}, time: day, keys: [store, \
                 item], duplicates: allow }}\nsteps:\n  features:\n    from: demand\n    do:\n{steps}sinks:\n  table: {{ from: features, \
                 parquet: {{ path: out }} }}\n"
            ),
        );
        let threads = random.pick(&["1", "2", "7"]);
        let batch_rows = random.pick(&["3", "100", "8192"]);
        let args = [
            "run",
            "spec.yaml",
            "--memory=256MiB",
            "--threads",
            threads,
            "--batch-rows",
            batch_rows,
        ];
        shop.forebay(&args).expect(0);
        let found = series::by_id(&shop.rows("out"));
        let mut series: BTreeMap<_, Vec<&DemandRow>> = BTreeMap::new();
        let mut expected: BTreeMap<&String, Vec<Option<(f64, f64)>>> = BTreeMap::new();
        for row in &rows {
            let series = series.entry(row.series()).or_default();
            series.push(row);
            for (name, window) in &windows {
                expected
                    .entry(name)
                    .or_default()
                    .push(window.expected(series));
            }
        }
        for (name, expected) in expected {
            for ((row, found), expected) in
                rows.iter().zip(series::numbers(&found, name)).zip(expected)
            {
                let near = match (found, expected) {
                    (Some(a), Some((b, size))) => {
                        (a - b).abs() <= 1e-9 * (a.abs() + b.abs() + size)
                    }
                    (None, None) => true,
                    _ => false,
                };
                assert!(
                    near,
                    "seed {seed}, {:?}: {found:?}, not {expected:?}, at {row:?}",
                    windows[name]
                );
            }
        }
    }
}
