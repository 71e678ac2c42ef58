//! Profiles, for people.

use forebay_run::{ColumnPair, ColumnProfile, DatasetProfile, NumericProfile, SeriesProfile};

use super::units;

/// Frequent values of a column that are shown.
const VALUES_SHOWN: usize = 5;

/// Pairs of columns that are shown.
const PAIRS_SHOWN: usize = 20;

/// Letters of a value that are shown.
const VALUE_LETTERS: usize = 24;

/// Heights of bars.
const BARS: [char; 8] = [
    ' ', '\u{2581}', '\u{2582}', '\u{2583}', '\u{2585}', '\u{2586}', '\u{2587}', '\u{2588}',
];

/// A few lines for each column.
pub(crate) fn text(profile: &DatasetProfile) -> String {
    let part = profile
        .part
        .as_ref()
        .map_or_else(String::new, |part| format!(" ({part})"));
    let columns = units::counted(profile.columns.len() as u64, "column");
    let mut text = format!(
        "{}{part}: {}, {columns}\n",
        profile.of,
        units::rows(profile.rows)
    );
    for column in profile.columns.iter() {
        text += &column_text(column);
    }
    if let Some(series) = &profile.series {
        text += &format!(
            "\nseries of {} by {}\n",
            series.time,
            series.keys.join(", ")
        );
        for line in series_lines(series).iter() {
            text += &format!("  {line}\n");
        }
    }
    if !profile.pairs.is_empty() {
        text += "\npairs\n";
        for pair in profile.pairs.iter().take(PAIRS_SHOWN) {
            text += &format!("  {}\n", pair_line(pair));
        }
    }
    text
}

/// Description of the series.
pub(crate) fn series_lines(series: &SeriesProfile) -> Vec<String> {
    let [least, mean, most] = series.rows_per_series;
    let length = format!(
        "{} to {} rows each, mean {}",
        number(least),
        number(most),
        number(mean)
    );
    let mut lines = vec![format!(
        "{} series, {length}",
        units::grouped(series.series)
    )];
    if let (Some(first), Some(last)) = (&series.first, &series.last) {
        lines.push(format!("{first} to {last}"));
    }
    if let Some(period) = &series.period {
        let rows = series
            .rows_per_period
            .map_or_else(String::new, |rows| format!(", {} rows each", number(rows)));
        let gaps = format!(
            "{} missing in {}",
            units::grouped(series.gaps),
            share(series.series_with_gaps, series.series)
        );
        lines.push(format!("periods of {period}{rows}, {gaps} series"));
    }
    let demand = series
        .demand
        .as_ref()
        .map_or_else(String::new, |demand| format!(" by {demand}"));
    lines.push(format!(
        "intermittent{demand}: {} series",
        share(series.intermittent, series.series)
    ));
    lines
}

/// Two columns, and their dependence.
pub(crate) fn pair_line(pair: &ColumnPair) -> String {
    let ColumnPair {
        first,
        second,
        correlation,
        cramers_v,
        ..
    } = pair;
    let measure = match (correlation, cramers_v) {
        (Some(correlation), _) => format!("correlation {correlation:.3}"),
        (None, Some(association)) => format!("Cram\u{e9}r's V {association:.3}"),
        (None, None) => "nothing to compare".to_owned(),
    };
    format!("{first}, {second}: {measure}")
}

fn column_text(column: &ColumnProfile) -> String {
    let mut text = format!("\n{}  {}\n", column.name, column.type_label());
    for line in column_lines(column).iter() {
        text += &format!("  {line}\n");
    }
    text += &column.numeric.as_ref().map(bars).unwrap_or_default();
    text
}

/// Profile of a column, without its histogram.
pub(crate) fn column_lines(column: &ColumnProfile) -> Vec<String> {
    let mut facts = vec![format!("nulls {}", share(column.nulls, column.rows))];
    if let Some(distinct) = column.distinct {
        let about = if column.distinct_is_exact {
            ""
        } else {
            "about "
        };
        facts.push(format!("distinct {about}{}", units::grouped(distinct)));
    }
    if let Some(time) = &column.time {
        let text = |time: &Option<String>| time.clone().unwrap_or_else(|| "-".to_owned());
        facts.push(format!("{} to {}", text(&time.first), text(&time.last)));
    }
    if let Some(length) = &column.length
        && let (Some(min), Some(mean), Some(max)) = (length.min, length.mean, length.max)
    {
        facts.push(format!("length {min} to {max}, mean {}", number(mean)));
    }
    let mut lines = vec![facts.join(", ")];
    if let Some(numeric) = &column.numeric {
        lines.extend(numeric_lines(numeric, column.rows));
    }
    if !column.frequent.is_empty() {
        let values = column.frequent.iter().take(VALUES_SHOWN);
        let values: Vec<String> = values
            .map(|value| {
                format!(
                    "{} {}",
                    shortened(&value.value),
                    share(value.count, column.rows)
                )
            })
            .collect();
        let ellipsis = if column.frequent.len() > VALUES_SHOWN {
            ", ..."
        } else {
            ""
        };
        lines.push(values.join(", ") + ellipsis);
    }
    // Values that are all listed need no examples.
    let is_listed = column.distinct_is_exact && column.frequent.len() <= VALUES_SHOWN;
    if !column.examples.is_empty() && !is_listed {
        let examples: Vec<String> = column
            .examples
            .iter()
            .map(|example| shortened(example))
            .collect();
        lines.push(format!("such as {}", examples.join(", ")));
    }
    lines
}

/// Special values, then moments and quantiles.
fn numeric_lines(numeric: &NumericProfile, rows: u64) -> Vec<String> {
    let mut special = Vec::new();
    for (name, count) in [
        ("zeros", numeric.zeros),
        ("negative", numeric.negatives),
        ("NaN", numeric.nans),
        ("infinite", numeric.infinities),
    ] {
        if count > 0 {
            special.push(format!("{name} {}", share(count, rows)));
        }
    }
    let quantile = |percent: usize| numeric.quantiles.get(percent).copied();
    let mut facts = Vec::new();
    for (name, value) in [
        ("mean", numeric.mean),
        ("std", numeric.std),
        ("min", numeric.min),
        ("25 %", quantile(25)),
        ("median", quantile(50)),
        ("75 %", quantile(75)),
        ("max", numeric.max),
    ] {
        if let Some(value) = value {
            facts.push(format!("{name} {}", number(value)));
        }
    }
    let mut lines = vec![special.join(", "), facts.join(", ")];
    lines.retain(|line| !line.is_empty());
    lines
}

/// The histogram in one line.
fn bars(numeric: &NumericProfile) -> String {
    let most = numeric
        .histogram
        .iter()
        .map(|bin| bin.share)
        .fold(0.0, f64::max);
    if numeric.histogram.len() < 2 || most <= 0.0 {
        return String::new();
    }
    let bar = |share: f64| {
        BARS[((share / most * (BARS.len() - 1) as f64).ceil() as usize).min(BARS.len() - 1)]
    };
    format!(
        "  |{}|\n",
        numeric
            .histogram
            .iter()
            .map(|bin| bar(bin.share))
            .collect::<String>()
    )
}

/// A count, and its share of all rows.
fn share(count: u64, rows: u64) -> String {
    match (count, rows) {
        (0, _) | (_, 0) => units::grouped(count),
        _ => format!(
            "{} ({:.1} %)",
            units::grouped(count),
            100.0 * count as f64 / rows as f64
        ),
    }
}

/// Five significant digits.
fn number(value: f64) -> String {
    let size = value.abs();
    if value == value.trunc() && size < 1e15 {
        format!("{value}")
    } else if (1e-4..1e6).contains(&size) {
        let digits = (4 - size.log10().floor() as i32).clamp(0, 9) as usize;
        let text = format!("{value:.digits$}");
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text
        }
    } else {
        format!("{value:.4e}")
    }
}

fn shortened(value: &str) -> String {
    let mut text: String = value
        .chars()
        .take(VALUE_LETTERS)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if value.chars().nth(VALUE_LETTERS).is_some() {
        text.push_str("...");
    }
    // Blanks at an end would not be seen.
    if text.trim() != text || text.is_empty() {
        format!("\"{text}\"")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        for (value, text) in [
            (0.0, "0"),
            (3.0, "3"),
            (1.234_567, "1.2346"),
            (123_450.7, "123451"),
            (99_999.5, "100000"),
            (0.5, "0.5"),
            (1e-9, "1.0000e-9"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn blanks_at_an_end_are_shown() {
        for (value, text) in [
            ("pro", "pro"),
            ("pro ", "\"pro \""),
            (" a b", "\" a b\""),
            ("a b", "a b"),
            ("", "\"\""),
        ] {
            assert_eq!(shortened(value), text);
        }
    }
}
