//! The page of a profile.

use forebay_run::{ColumnProfile, DatasetProfile};

use super::{Block, ColumnCard, Page, charts, drawn};
use crate::present;
use crate::present::units;

/// A page with a card for each column.
pub(crate) fn profile_page(profile: &DatasetProfile) -> Page {
    let part = profile.part.as_ref().map_or_else(String::new, |part| format!(" ({part})"));
    let columns = units::counted(profile.columns.len() as u64, "column");
    let mut page = Page {
        title: format!("{}{part}", profile.of),
        subtitle: format!("{}, {columns}", units::rows(profile.rows)),
        ..Page::default()
    };
    page.add("columns", "Columns", vec![Block::Columns { columns: profile.columns.iter().map(card).collect() }]);
    page
}

fn card(column: &ColumnProfile) -> ColumnCard {
    let histogram = column.numeric.as_ref().map(|numeric| numeric.histogram.as_slice()).unwrap_or_default();
    ColumnCard {
        name: column.name.clone(),
        r#type: column.r#type.clone(),
        lines: present::profile::column_lines(column),
        svg: drawn(|| charts::histogram(histogram)),
    }
}
