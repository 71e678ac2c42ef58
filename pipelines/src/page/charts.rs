//! Lines and histograms.

use forebay_run::HistogramBin;
use plotters::prelude::*;

/// Colours that are read on light and on dark ground; those of text follow the page.
const COLOURS: [RGBColor; 4] = [
    RGBColor(47, 109, 181),
    RGBColor(209, 120, 28),
    RGBColor(38, 146, 102),
    RGBColor(160, 86, 170),
];
const GREY: RGBColor = RGBColor(128, 138, 150);

/// The texts of a chart. The library divides sizes by 1.24: 16 becomes 13 pixels.
const FONT: (&str, i32) = ("sans-serif", 16);

/// Margin of a histogram, for half of a label.
const HISTOGRAM_SIDE: u32 = 24;

/// Pixels for the name of a line, and for the margin of all names.
const NAME_HEIGHT: f64 = 20.0;
const NAMES_MARGIN: f64 = 14.0;

/// Pixels around the lines, above and below, and for the axis below them.
const MARGIN: u32 = 10;
const X_AXIS_HEIGHT: u32 = 48;

/// Labels of an axis at most.
const LABELS_MAX: usize = 8;

/// A line of a chart.
pub(super) struct Line {
    pub name: String,
    /// Points in order. The line is broken at one that is not finite.
    pub points: Vec<(f64, f64)>,
}

/// The space between two lines.
pub(super) struct Band {
    pub name: String,
    /// The lower line and then the upper one, at the same places.
    pub points: Vec<BandPoint>,
}

/// A place of a band.
#[derive(Debug, Clone, Copy)]
pub(super) struct BandPoint {
    pub x: f64,
    pub low: f64,
    pub high: f64,
}

/// A chart with lines.
pub(super) struct LineChart<'a> {
    pub x_title: &'a str,
    pub y_title: &'a str,
    pub lines: &'a [Line],
    /// Band in the colour of the last line.
    pub band: Option<&'a Band>,
    /// Positions of upright lines behind the others.
    pub marks: &'a [f64],
    /// Labels of the axis from left to right.
    pub x_text: &'a dyn Fn(f64) -> String,
    pub x_labels_max: usize,
    pub size: (u32, u32),
}

/// Lines over common axes, with their names at the side; `None` if there is nothing to draw.
pub(super) fn lines(x_title: &str, y_title: &str, lines: &[Line]) -> Option<String> {
    let x_text = &tick;
    LineChart {
        x_title,
        y_title,
        lines,
        band: None,
        marks: &[],
        x_text,
        x_labels_max: LABELS_MAX,
        size: (720, 280),
    }
    .draw()
}

impl Line {
    /// Runs of points that can be drawn.
    fn pieces(&self) -> impl Iterator<Item = &[(f64, f64)]> {
        let pieces = self.points.split(|point| !is_finite(point));
        pieces.filter(|piece| !piece.is_empty())
    }
}

impl Band {
    /// The lower line onwards, and the upper one back.
    fn outline(&self) -> Vec<(f64, f64)> {
        let onwards = self.points.iter().map(|point| (point.x, point.low));
        let back = self.points.iter().rev().map(|point| (point.x, point.high));
        onwards.chain(back).collect()
    }
}

fn is_finite((x, y): &(f64, f64)) -> bool {
    x.is_finite() && y.is_finite()
}

/// The least and the greatest value; infinite if there is none.
fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let mut low = f64::INFINITY;
    let mut high = f64::NEG_INFINITY;
    for value in values {
        low = low.min(value);
        high = high.max(value);
    }
    (low, high)
}

impl LineChart<'_> {
    /// Draws the chart; `None` if there is nothing to draw.
    pub fn draw(&self) -> Option<String> {
        let points = self.finite_points();
        let (x_min, x_max) = bounds(points.iter().map(|(x, _)| *x));
        if x_min >= x_max {
            return None;
        }
        let band_points: &[BandPoint] = self.band.map_or(&[], |band| &band.points);
        let band_ends = band_points.iter().flat_map(|point| [point.low, point.high]);
        // The axis shows zero, too.
        let y_values = points.iter().map(|(_, y)| *y).chain(band_ends).chain([0.0]);
        let (y_min, y_max) = bounds(y_values);
        let y_max = if y_min < y_max { y_max } else { y_min + 1.0 };
        let names = self.lines.len() + usize::from(self.band.is_some());
        let x_values: Vec<f64> = points.iter().map(|(x, _)| *x).collect();
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, self.size).into_drawing_area();
            let y_end = y_min + (y_max - y_min) * self.headroom(names);
            let mut chart = ChartBuilder::on(&area)
                .margin(MARGIN)
                .x_label_area_size(X_AXIS_HEIGHT)
                .y_label_area_size(if self.y_title.is_empty() { 48 } else { 84 })
                .build_cartesian_2d(x_min..x_max, y_min..y_end)
                .ok()?;
            let mesh = chart
                .configure_mesh()
                .disable_x_mesh()
                .x_desc(self.x_title)
                .y_desc(self.y_title)
                .x_labels(label_count(&x_values).min(self.x_labels_max))
                .y_labels(LABELS_MAX)
                .x_label_formatter(&|x| (self.x_text)(*x))
                .y_label_formatter(&|y| tick(*y))
                .label_style(FONT)
                .axis_desc_style(FONT)
                .axis_style(GREY)
                .light_line_style(TRANSPARENT)
                .bold_line_style(GREY.mix(0.3))
                .draw();
            mesh.ok()?;
            for x in self.marks {
                let ends = vec![(*x, y_min), (*x, y_end)];
                let mark = PathElement::new(ends, GREY.mix(0.6));
                chart.draw_series([mark]).ok()?;
            }
            if let Some(band) = self.band {
                let colour = COLOURS[self.lines.len().saturating_sub(1) % COLOURS.len()];
                let style = colour.mix(0.3).filled();
                let drawn = chart
                    .draw_series([Polygon::new(band.outline(), style)])
                    .ok()?;
                drawn
                    .label(&band.name)
                    .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 16, y + 5)], style));
            }
            for (line, colour) in self.lines.iter().zip(COLOURS.iter().cycle()) {
                let style = colour.stroke_width(2);
                let mut pieces = line.pieces();
                let first = pieces.next().unwrap_or_default();
                let series = LineSeries::new(first.iter().copied(), style);
                let drawn = chart.draw_series(series).ok()?;
                drawn
                    .label(&line.name)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], style));
                for piece in pieces {
                    let series = LineSeries::new(piece.iter().copied(), style);
                    chart.draw_series(series).ok()?;
                }
            }
            if names > 1 {
                let mut labels = chart.configure_series_labels();
                labels
                    .position(SeriesLabelPosition::UpperRight)
                    .label_font(FONT)
                    .border_style(GREY)
                    .draw()
                    .ok()?;
            }
            area.present().ok()?;
        }
        Some(svg)
    }

    /// The points of all lines that can be drawn.
    fn finite_points(&self) -> Vec<(f64, f64)> {
        let points = self.lines.iter().flat_map(|line| &line.points);
        points.copied().filter(is_finite).collect()
    }

    /// Factor by which the axis goes beyond the highest value: names of lines stand above the lines.
    fn headroom(&self, names: usize) -> f64 {
        let (_, height) = self.size;
        let height = f64::from(height.saturating_sub(2 * MARGIN + X_AXIS_HEIGHT));
        let names_height = if names > 1 {
            NAME_HEIGHT * names as f64 + NAMES_MARGIN
        } else {
            0.0
        };
        1.05 / (1.0 - names_height / height).max(0.1)
    }
}

/// Number of labels of an axis: one for each whole number, if there are few.
fn label_count(values: &[f64]) -> usize {
    let (low, high) = values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(*value), high.max(*value))
        });
    if values.iter().all(|value| value.fract() == 0.0) && high - low < LABELS_MAX as f64 {
        (high - low) as usize + 1
    } else {
        LABELS_MAX
    }
}

/// A number as a label: without zeros at its end, in powers of ten where it is long.
pub(super) fn tick(value: f64) -> String {
    if value != 0.0 && !(1e-3..1e6).contains(&value.abs()) {
        return format!("{value:.1e}");
    }
    let text = format!("{value:.3}");
    match text.trim_end_matches('0').trim_end_matches('.') {
        "-0" => "0".to_owned(),
        text => text.to_owned(),
    }
}

/// A distribution with its name.
pub(super) struct NamedBins<'a> {
    pub name: String,
    pub bins: &'a [HistogramBin],
}

/// Outlines of distributions over the same axes; `None` where fewer than two can be drawn. Heights are densities: areas
/// are the same for bins of any width.
pub(super) fn overlaid_histograms(distributions: &[NamedBins<'_>]) -> Option<String> {
    let mut lines = Vec::new();
    for distribution in distributions {
        let points = density_outline(distribution.bins);
        if points.len() > 2 {
            lines.push(Line {
                name: distribution.name.clone(),
                points,
            });
        }
    }
    if lines.len() < 2 {
        return None;
    }
    LineChart {
        x_title: "",
        y_title: "density",
        lines: &lines,
        band: None,
        marks: &[],
        x_text: &tick,
        x_labels_max: LABELS_MAX,
        size: (480, 240),
    }
    .draw()
}

/// Steps around the bins, from zero to zero; none of bins without a width.
fn density_outline(bins: &[HistogramBin]) -> Vec<(f64, f64)> {
    let mut points = Vec::with_capacity(2 * bins.len() + 2);
    for bin in bins {
        let density = bin.share / (bin.upper - bin.lower);
        if !density.is_finite() {
            return Vec::new();
        }
        if points.is_empty() {
            points.push((bin.lower, 0.0));
        }
        points.push((bin.lower, density));
        points.push((bin.upper, density));
    }
    if let Some(last) = bins.last() {
        points.push((last.upper, 0.0));
    }
    points
}

/// Bars of shares.
pub(super) fn histogram(bins: &[HistogramBin]) -> Option<String> {
    let first = bins.first()?;
    let last = bins.last()?;
    let most = bins.iter().map(|bin| bin.share).fold(0.0, f64::max);
    if bins.len() < 2 || most <= 0.0 || !(last.upper - first.lower).is_finite() {
        return None;
    }
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (320, 96)).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin_top(2)
            .margin_left(HISTOGRAM_SIDE)
            .margin_right(HISTOGRAM_SIDE)
            .x_label_area_size(24)
            .build_cartesian_2d(first.lower..last.upper, 0.0..most)
            .ok()?;
        let mut mesh = chart.configure_mesh();
        mesh.disable_mesh()
            .disable_y_axis()
            .x_labels(3)
            .x_label_formatter(&|x| tick(*x));
        mesh.label_style(FONT).axis_style(GREY).draw().ok()?;
        let bars = bins.iter().map(|bin| {
            Rectangle::new(
                [(bin.lower, 0.0), (bin.upper, bin.share)],
                COLOURS[0].filled(),
            )
        });
        chart.draw_series(bars).ok()?;
        area.present().ok()?;
    }
    Some(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_of_any_bins_have_the_same_area() {
        let bin = |lower: f64, upper: f64, share: f64| HistogramBin {
            lower,
            upper,
            share,
        };
        let narrow = [bin(0.0, 1.0, 0.25), bin(1.0, 2.0, 0.75)];
        let wide = [bin(0.0, 4.0, 1.0)];
        assert_eq!(
            density_outline(&narrow),
            [
                (0.0, 0.0),
                (0.0, 0.25),
                (1.0, 0.25),
                (1.0, 0.75),
                (2.0, 0.75),
                (2.0, 0.0)
            ]
        );
        assert_eq!(density_outline(&wide)[1], (0.0, 0.25));
        assert!(density_outline(&[bin(3.0, 3.0, 1.0)]).is_empty());
        let named = |name: &str, bins| NamedBins {
            name: name.to_owned(),
            bins,
        };
        let drawing = overlaid_histograms(&[named("train", &narrow), named("test", &wide)]);
        let drawing = drawing.unwrap();
        assert!(drawing.contains("train") && drawing.contains("test"));
        assert!(overlaid_histograms(&[named("train", &narrow), named("test", &[])]).is_none());
    }

    #[test]
    fn a_line_is_broken_where_it_has_no_point() {
        let line = Line {
            name: "predicted".to_owned(),
            points: vec![
                (f64::NAN, f64::NAN),
                (1.0, 2.0),
                (2.0, 3.0),
                (f64::NAN, f64::NAN),
                (2.0, 5.0),
                (3.0, f64::INFINITY),
            ],
        };
        let pieces: Vec<&[(f64, f64)]> = line.pieces().collect();
        assert_eq!(pieces, [&[(1.0, 2.0), (2.0, 3.0)][..], &[(2.0, 5.0)]]);
    }

    #[test]
    fn labels_are_short() {
        let cases = [
            (0.0, "0"),
            (-0.0, "0"),
            (-0.0004, "-4.0e-4"),
            (1000.0, "1000"),
            (0.25, "0.25"),
            (-2.5, "-2.5"),
            (1.0 / 3.0, "0.333"),
            (2.5e9, "2.5e9"),
        ];
        for (value, expected) in cases {
            assert_eq!(tick(value), expected);
        }
        assert_eq!(label_count(&[-1.0, 0.0]), 2);
        assert_eq!(label_count(&[0.0, 0.5]), LABELS_MAX);
        assert_eq!(label_count(&[0.0, 400.0]), LABELS_MAX);
    }
}
