//! Lines and histograms.

use forebay_run::HistogramBin;
use plotters::prelude::*;

/// Colours that are read on light and on dark ground; those of text follow the page.
const COLOURS: [RGBColor; 4] =
    [RGBColor(47, 109, 181), RGBColor(209, 120, 28), RGBColor(38, 146, 102), RGBColor(160, 86, 170)];
const GREY: RGBColor = RGBColor(128, 138, 150);

/// A line of a chart.
pub(super) struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// Lines over common axes, with their names beside them; `None` where there is nothing to draw.
pub(super) fn lines(x_title: &str, y_title: &str, lines: &[Line]) -> Option<String> {
    let points = || lines.iter().flat_map(|line| &line.points).filter(|(x, y)| x.is_finite() && y.is_finite());
    let bounds = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
    };
    let (left, right) = bounds(&mut points().map(|(x, _)| *x));
    let (low, high) = bounds(&mut points().map(|(_, y)| *y).chain([0.0]));
    if left >= right || low >= high {
        return None;
    }
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (720, 260)).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(70)
            .build_cartesian_2d(left..right, low..high * 1.05)
            .ok()?;
        let mesh = chart
            .configure_mesh()
            .disable_x_mesh()
            .x_desc(x_title)
            .y_desc(y_title)
            .axis_style(GREY)
            .light_line_style(TRANSPARENT)
            .bold_line_style(GREY.mix(0.3))
            .draw();
        mesh.ok()?;
        for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
            let points = line.points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite());
            let colour = *colour;
            let drawn = chart.draw_series(LineSeries::new(points, colour.stroke_width(2))).ok()?;
            drawn
                .label(&line.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
        }
        if lines.len() > 1 {
            chart.configure_series_labels().position(SeriesLabelPosition::UpperRight).border_style(GREY).draw().ok()?;
        }
        area.present().ok()?;
    }
    Some(svg)
}

/// Bars of shares.
pub(super) fn histogram(bins: &[HistogramBin]) -> Option<String> {
    let (first, last) = (bins.first()?, bins.last()?);
    let most = bins.iter().map(|bin| bin.share).fold(0.0, f64::max);
    if bins.len() < 2 || most <= 0.0 || !(last.upper - first.lower).is_finite() {
        return None;
    }
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (320, 90)).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(2)
            .x_label_area_size(18)
            .build_cartesian_2d(first.lower..last.upper, 0.0..most)
            .ok()?;
        chart.configure_mesh().disable_mesh().disable_y_axis().x_labels(3).axis_style(GREY).draw().ok()?;
        let bars =
            bins.iter().map(|bin| Rectangle::new([(bin.lower, 0.0), (bin.upper, bin.share)], COLOURS[0].filled()));
        chart.draw_series(bars).ok()?;
        area.present().ok()?;
    }
    Some(svg)
}
