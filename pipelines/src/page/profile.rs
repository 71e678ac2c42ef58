//! The page of a profile.

use forebay_run::{ColumnPair, ColumnProfile, ComparedProfile, DatasetProfile, SeriesProfile};

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

/// A page with the cards of each column side by side, one for each part of the split.
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

/// One of several profiles that stand side by side.
struct ProfileSide<'a> {
    label: String,
    profile: &'a DatasetProfile,
}

/// The cards of each column side by side.
fn columns_by_side(sides: &[ProfileSide<'_>]) -> Vec<Block> {
    let mut blocks = Vec::new();
    for column in sides.first().iter().flat_map(|side| &side.profile.columns) {
        blocks.push(Block::Heading {
            text: format!("{}, {}", column.name, column.type_label()),
        });
        let columns = sides.iter().filter_map(|ProfileSide { label, profile }| {
            let found = profile.column(&column.name)?;
            Some(ColumnCard {
                name: label.clone(),
                ..card(found)
            })
        });
        blocks.push(Block::Columns {
            columns: columns.collect(),
        });
    }
    blocks
}

fn part(profile: &DatasetProfile) -> &str {
    profile.part.as_deref().unwrap_or("all rows")
}

impl Page {
    /// Adds profiles that a run has learned, by the step or source that they are of. Those of several parts of the split,
    /// and of the run before, stand side by side.
    pub(super) fn add_profiles(&mut self, profiles: &[ComparedProfile]) {
        let mut steps: Vec<&String> = Vec::new();
        for ComparedProfile { profile, .. } in profiles {
            if !steps.contains(&&profile.of) {
                steps.push(&profile.of);
            }
        }
        for of in steps {
            let own = profiles
                .iter()
                .filter(|compared| compared.profile.of == *of);
            self.extend(
                "profiles",
                "Profiles",
                profile_blocks(of, &own.collect::<Vec<_>>()),
            );
        }
    }
}

/// The profiles of the rows of one step.
fn profile_blocks(of: &str, compared: &[&ComparedProfile]) -> Vec<Block> {
    let title = |profile: &DatasetProfile| {
        format!("{of}, {}: {}", part(profile), units::rows(profile.rows))
    };
    let rest = |profile: &DatasetProfile| {
        let mut blocks: Vec<Block> = profile.series.iter().flat_map(series_blocks).collect();
        if !profile.pairs.is_empty() {
            blocks.push(pairs_table(&profile.pairs));
        }
        blocks
    };
    if let [
        ComparedProfile {
            profile,
            before: None,
        },
    ] = compared
    {
        let cards = Block::Columns {
            columns: profile.columns.iter().map(card).collect(),
        };
        return [
            Block::Heading {
                text: title(profile),
            },
            cards,
        ]
        .into_iter()
        .chain(rest(profile))
        .collect();
    }
    let (mut blocks, mut sides) = (Vec::new(), Vec::new());
    for ComparedProfile { profile, before } in compared {
        let earlier = before
            .as_ref()
            .map(|before| format!(", {} in the run before", units::grouped(before.rows)));
        blocks.push(Block::text(format!(
            "{}{}",
            title(profile),
            earlier.unwrap_or_default()
        )));
        // The part says which of them it is, where there are several.
        let part = if compared.len() > 1 {
            part(profile)
        } else {
            "this run"
        };
        sides.push(ProfileSide {
            label: part.to_owned(),
            profile,
        });
        sides.extend(before.as_ref().map(|profile| {
            let part = if compared.len() > 1 {
                format!("{part}, ")
            } else {
                String::new()
            };
            ProfileSide {
                label: format!("{part}run before"),
                profile,
            }
        }));
    }
    blocks.extend(columns_by_side(&sides));
    for ComparedProfile { profile, .. } in compared {
        let rest = rest(profile);
        if !rest.is_empty() {
            blocks.push(Block::Heading {
                text: title(profile),
            });
            blocks.extend(rest);
        }
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
    let row = |pair: &ColumnPair| {
        let number = |value: Option<f64>| {
            Cell::number(value.map_or_else(String::new, |value| format!("{value:.3}")))
        };
        let (first, second) = (Cell::text(&*pair.first), Cell::text(&*pair.second));
        vec![
            first,
            second,
            number(pair.correlation),
            number(pair.cramers_v),
            Cell::number(units::grouped(pair.rows)),
        ]
    };
    let head = [
        "column",
        "column",
        "#correlation",
        "#Cram\u{e9}r's V",
        "#rows",
    ];
    Block::table(
        "Pairs of columns, the strongest first",
        &head,
        pairs.iter().take(PAIRS_SHOWN).map(row).collect(),
    )
}

fn card(column: &ColumnProfile) -> ColumnCard {
    let histogram = column
        .numeric
        .as_ref()
        .map(|numeric| numeric.histogram.as_slice())
        .unwrap_or_default();
    ColumnCard {
        name: column.name.clone(),
        r#type: column.type_label(),
        lines: present::profile::column_lines(column),
        svg: drawn(|| charts::histogram(histogram)),
    }
}
