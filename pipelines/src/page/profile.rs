//! The page of a profile.

use forebay_run::{
    ColumnPair, ColumnProfile, ComparedProfile, DatasetProfile, HistogramBin, SeriesProfile,
};

use super::charts::NamedBins;
use super::{Block, Cell, ColumnCard, Page, charts, drawn};
use crate::present;
use crate::present::units;

/// Pairs of columns that are shown.
const PAIRS_SHOWN: usize = 100;

/// A page with a card for each column.
pub(crate) fn profile_page(profile: &DatasetProfile) -> Page {
    let part = profile
        .part
        .as_ref()
        .map_or_else(String::new, |part| format!(" ({part})"));
    let columns = units::counted(profile.columns.len() as u64, "column");
    let mut page = Page {
        title: format!("{}{part}", profile.of),
        subtitle: format!("{}, {columns}", units::rows(profile.rows)),
        ..Page::default()
    };
    page.add(
        "columns",
        "Columns",
        vec![Block::Columns {
            columns: profile.columns.iter().map(card).collect(),
        }],
    );
    if let Some(series) = &profile.series {
        page.add("series", "Series", series_blocks(series));
    }
    if !profile.pairs.is_empty() {
        page.add("pairs", "Pairs", vec![pairs_table(&profile.pairs)]);
    }
    page
}

/// Page with the distributions of each column over the same axes, and cards next to each other, one for each part of the
/// split.
pub(crate) fn parts_page(of: &str, profiles: &[DatasetProfile]) -> Page {
    let rows: Vec<String> = profiles
        .iter()
        .map(|profile| format!("{} {}", part(profile), units::rows(profile.rows)))
        .collect();
    let mut page = Page {
        title: of.to_owned(),
        subtitle: rows.join(", "),
        ..Page::default()
    };
    let sides = profiles.iter().map(|profile| ProfileSide {
        label: part(profile).to_owned(),
        profile,
    });
    page.add(
        "columns",
        "Columns by part of the split",
        columns_by_side(&sides.collect::<Vec<_>>()),
    );
    page
}

/// One of several profiles in parallel columns.
struct ProfileSide<'a> {
    label: String,
    profile: &'a DatasetProfile,
}

/// Distributions of each column over the same axes, and cards next to each other.
fn columns_by_side(sides: &[ProfileSide<'_>]) -> Vec<Block> {
    let mut blocks = Vec::new();
    for column in sides.first().iter().flat_map(|side| &side.profile.columns) {
        blocks.push(Block::heading(format!(
            "{}, {}",
            column.name,
            column.type_label()
        )));
        let chart = overlaid_chart(sides, &column.name);
        let columns = sides.iter().filter_map(|ProfileSide { label, profile }| {
            let other_side = profile.column(&column.name)?;
            let mut card = ColumnCard {
                name: label.clone(),
                ..card(other_side)
            };
            if chart.is_some() {
                card.svg = None;
            }
            Some(card)
        });
        let columns = columns.collect();
        blocks.extend(chart);
        blocks.push(Block::Columns { columns });
    }
    blocks
}

/// The distributions of a column on all sides, over the same axes; `None` where fewer than two sides have one.
fn overlaid_chart(sides: &[ProfileSide<'_>], column: &str) -> Option<Block> {
    let mut distributions = Vec::new();
    for ProfileSide { label, profile } in sides {
        let Some(profile) = profile.column(column) else {
            continue;
        };
        distributions.push(NamedBins {
            name: label.clone(),
            bins: histogram_of(profile),
        });
    }
    let svg = drawn(|| charts::overlaid_histograms(&distributions))?;
    Some(Block::Chart {
        label: format!("Distributions of {column}"),
        class: "chart",
        svg,
    })
}

/// Bins of a column of numbers; none of others.
fn histogram_of(column: &ColumnProfile) -> &[HistogramBin] {
    let numeric = column.numeric.as_ref();
    numeric.map_or(&[], |numeric| &numeric.histogram)
}

fn part(profile: &DatasetProfile) -> &str {
    profile.part.as_deref().unwrap_or("all rows")
}

impl Page {
    /// Adds profiles of a run, by step or source. Those of several parts of the split, and of the
    /// run before, are next to each other.
    pub(super) fn add_profiles(&mut self, profiles: &[ComparedProfile]) {
        let mut steps: Vec<&String> = Vec::new();
        for ComparedProfile { profile, .. } in profiles {
            if !steps.contains(&&profile.of) {
                steps.push(&profile.of);
            }
        }
        for of in steps {
            let step_profiles = profiles
                .iter()
                .filter(|compared| compared.profile.of == *of);
            self.extend(
                "profiles",
                "Profiles",
                profile_blocks(of, &step_profiles.collect::<Vec<_>>()),
            );
        }
    }
}

/// The profiles of the rows of one step.
fn profile_blocks(of: &str, compared: &[&ComparedProfile]) -> Vec<Block> {
    let mut blocks = Vec::new();
    // A profile alone has a card for each column, and is not compared.
    if let [
        ComparedProfile {
            profile,
            before: None,
        },
    ] = compared
    {
        blocks.push(Block::heading(title(of, profile)));
        blocks.push(Block::Columns {
            columns: profile.columns.iter().map(card).collect(),
        });
        blocks.extend(series_and_pairs(profile));
        return blocks;
    }
    let mut sides = Vec::new();
    for ComparedProfile {
        profile,
        before: earlier,
    } in compared
    {
        let mut text = title(of, profile);
        // The part distinguishes several profiles of one step.
        let (label, earlier_label) = if compared.len() > 1 {
            let part = part(profile);
            (part.to_owned(), format!("{part}, run before"))
        } else {
            ("this run".to_owned(), "run before".to_owned())
        };
        sides.push(ProfileSide { label, profile });
        if let Some(earlier) = earlier {
            text += &format!(", {} in the run before", units::grouped(earlier.rows));
            sides.push(ProfileSide {
                label: earlier_label,
                profile: earlier,
            });
        }
        blocks.push(Block::text(text));
    }
    blocks.extend(columns_by_side(&sides));
    for ComparedProfile { profile, .. } in compared {
        let others = series_and_pairs(profile);
        if !others.is_empty() {
            blocks.push(Block::heading(title(of, profile)));
            blocks.extend(others);
        }
    }
    blocks
}

fn title(of: &str, profile: &DatasetProfile) -> String {
    format!("{of}, {}: {}", part(profile), units::rows(profile.rows))
}

fn series_and_pairs(profile: &DatasetProfile) -> Vec<Block> {
    let mut blocks: Vec<Block> = profile.series.iter().flat_map(series_blocks).collect();
    if !profile.pairs.is_empty() {
        blocks.push(pairs_table(&profile.pairs));
    }
    blocks
}

fn series_blocks(series: &SeriesProfile) -> Vec<Block> {
    present::profile::series_lines(series)
        .into_iter()
        .map(Block::text)
        .collect()
}

fn pairs_table(pairs: &[ColumnPair]) -> Block {
    let mut rows = Vec::new();
    for pair in pairs.iter().take(PAIRS_SHOWN) {
        rows.push(vec![
            Cell::text(&*pair.first),
            Cell::text(&*pair.second),
            strength_cell(pair.correlation),
            strength_cell(pair.cramers_v),
            Cell::number(units::grouped(pair.rows)),
        ]);
    }
    let head = [
        "column",
        "column",
        "#correlation",
        "#Cram\u{e9}r's V",
        "#rows",
    ];
    Block::table("Pairs of columns, the strongest first", &head, rows)
}

fn strength_cell(strength: Option<f64>) -> Cell {
    match strength {
        Some(strength) => Cell::number(format!("{strength:.3}")),
        None => Cell::number(String::new()),
    }
}

fn card(column: &ColumnProfile) -> ColumnCard {
    ColumnCard {
        name: column.name.clone(),
        r#type: column.type_label(),
        lines: present::profile::column_lines(column),
        svg: drawn(|| charts::histogram(histogram_of(column))),
    }
}
