//! Where the time of each case goes, as bars.

use std::error::Error;

use plotters::prelude::*;

use crate::Case;
use crate::cluster::Merging;

const COLOURS: [RGBColor; 4] = [
    RGBColor(128, 138, 150),
    RGBColor(47, 109, 181),
    RGBColor(209, 120, 28),
    RGBColor(160, 86, 170),
];
const NAMES: [&str; 4] = [
    "listing and footers",
    "passes",
    "merging on workers",
    "merging on the coordinator",
];
/// Pixels of a row, of the names beside it, of the bars, and of the margin.
const ROW: i32 = 22;
const NAME_WIDTH: i32 = 280;
const BAR_WIDTH: i32 = 480;
const TOP: i32 = 36;

/// An SVG with one bar for each case; the bars of a job have one scale.
pub(crate) fn draw(cases: &[Case]) -> Result<String, Box<dyn Error>> {
    let mut svg = String::new();
    {
        let size = (
            (NAME_WIDTH + BAR_WIDTH + 90) as u32,
            (TOP + ROW * cases.len() as i32 + 10) as u32,
        );
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE)?;
        let text = ("sans-serif", 13).into_font().color(&BLACK);
        for (place, (name, colour)) in NAMES.iter().zip(COLOURS).enumerate() {
            let left = 10 + place as i32 * 195;
            area.draw(&Rectangle::new(
                [(left, 10), (left + 12, 22)],
                colour.filled(),
            ))?;
            area.draw(&Text::new(*name, (left + 18, 9), text.clone()))?;
        }
        for (place, case) in cases.iter().enumerate() {
            let top = TOP + place as i32 * ROW;
            let merging = match case.merging {
                Merging::OnCoordinator => "states on the coordinator",
                Merging::InRuns { .. } => "states in runs",
            };
            let name = format!("{}, {}, {merging}", case.job, case.workers);
            area.draw(&Text::new(name, (10, top + 3), text.clone()))?;
            let longest = cases
                .iter()
                .filter(|other| other.job == case.job)
                .map(|other| other.outcome.seconds);
            let scale = f64::from(BAR_WIDTH) / longest.fold(1e-9, f64::max);
            let one = &case.outcome;
            let passes: f64 = one.pass_seconds.iter().map(|(_, seconds)| seconds).sum();
            let parts = [
                one.listing_seconds,
                passes,
                one.worker_merge_seconds,
                one.coordinator_merge_seconds,
            ];
            let mut left = f64::from(NAME_WIDTH);
            for (seconds, colour) in parts.into_iter().zip(COLOURS) {
                let right = left + seconds * scale;
                let corners = [(left as i32, top + 3), (right as i32, top + ROW - 4)];
                area.draw(&Rectangle::new(corners, colour.filled()))?;
                left = right;
            }
            let total = format!("{:.0} s", one.seconds);
            area.draw(&Text::new(total, (left as i32 + 6, top + 3), text.clone()))?;
        }
        area.present()?;
    }
    Ok(svg)
}
