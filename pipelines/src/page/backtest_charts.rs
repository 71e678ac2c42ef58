//! Charts of a backtest: actual values beside forecasts, and the errors of the model.

use forebay_run::{BacktestReport, BacktestedForecast, ForecasterScores, GroupScore};

use super::charts::{Band, BandPoint, Line, LineChart, tick};
use super::{Bar, Block, Cell, SmallChart, drawn};

/// Folds that are drawn, the latest ones; the JSON summary has all.
const FOLDS_SHOWN: usize = 12;

/// Ways to forecast that are drawn beside the actual values: the model and the first naive forecast.
const FORECASTERS_SHOWN: usize = 2;

/// Groups with bars at most, those with the greatest bias.
const GROUPS_SHOWN: usize = 40;

/// Width and height of a chart of a fold, and of one over all folds.
const FOLD_SIZE: (u32, u32) = (400, 270);
const WIDE_SIZE: (u32, u32) = (720, 280);

/// Labels of an axis at most.
const LABELS_MAX: usize = 8;

/// Sums of values and of their forecasts at a place of a chart.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sums {
    x: f64,
    actual: f64,
    predicted: f64,
}

/// Sums over all series by step, a chart for each fold; one chart by fold, where a forecast has one step.
pub(super) fn total_charts(report: &BacktestReport, forecast: &BacktestedForecast) -> Vec<Block> {
    let folds = report.folds.len();
    let mut charts = Vec::new();
    for (number, fold) in report.folds.iter().enumerate().skip(first_shown(folds)) {
        let scores = forecast.forecasters.iter().take(FORECASTERS_SHOWN);
        let sums = scores.map(|scores| sums_by_step(scores, number));
        let lines = sum_lines(&report.label, forecast, sums.collect());
        let title = format!("Known before {}", fold.known_before);
        charts.extend(fold_chart(title, "step of the horizon", &lines));
    }
    if charts.is_empty() {
        let scores = forecast.forecasters.iter().take(FORECASTERS_SHOWN);
        let sums = scores.map(sums_by_fold);
        let lines = sum_lines(&report.label, forecast, sums.collect());
        charts.extend(fold_chart("By fold".to_owned(), "fold", &lines));
    }
    if charts.is_empty() {
        return Vec::new();
    }
    let heading = format!("Sums of {} over all series, by fold", forecast.sink);
    let mut blocks = vec![Block::heading(heading)];
    blocks.extend(folds_left_out(folds));
    blocks.push(Block::Charts { charts });
    blocks
}

/// The number of the first fold that is drawn.
pub(super) fn first_shown(folds: usize) -> usize {
    folds.saturating_sub(FOLDS_SHOWN)
}

/// Explains which folds are drawn, where not all are.
pub(super) fn folds_left_out(folds: usize) -> Option<Block> {
    let text =
        format!("The latest {FOLDS_SHOWN} of {folds} folds are drawn; the JSON summary has all.");
    (folds > FOLDS_SHOWN).then(|| Block::text(text))
}

/// The actual values, and each forecast of them; `sums` has an element for each forecaster that is drawn.
fn sum_lines(label: &str, forecast: &BacktestedForecast, sums: Vec<Vec<Sums>>) -> Vec<Line> {
    let mut lines = Vec::new();
    for (scores, sums) in forecast.forecasters.iter().zip(sums) {
        if lines.is_empty() {
            lines.push(Line {
                name: format!("actual {label}"),
                points: sums.iter().map(|sums| (sums.x, sums.actual)).collect(),
            });
        }
        lines.push(Line {
            name: scores.forecaster.clone(),
            points: sums.iter().map(|sums| (sums.x, sums.predicted)).collect(),
        });
    }
    lines
}

/// Sums of the steps of a fold for which values came.
fn sums_by_step(scores: &ForecasterScores, fold: usize) -> Vec<Sums> {
    let steps = scores.totals.get(fold).map_or(&[][..], Vec::as_slice);
    let mut sums = Vec::with_capacity(steps.len());
    for total in steps {
        if total.rows > 0 {
            sums.push(Sums {
                x: total.step as f64,
                actual: total.actual,
                predicted: total.predicted,
            });
        }
    }
    sums
}

/// Sums of the folds for which values came, counted from 1.
fn sums_by_fold(scores: &ForecasterScores) -> Vec<Sums> {
    let mut sums = Vec::with_capacity(scores.totals.len());
    for fold in 0..scores.totals.len() {
        let steps = sums_by_step(scores, fold);
        if !steps.is_empty() {
            sums.push(Sums {
                x: (fold + 1) as f64,
                actual: steps.iter().map(|sums| sums.actual).sum(),
                predicted: steps.iter().map(|sums| sums.predicted).sum(),
            });
        }
    }
    sums
}

fn fold_chart(title: String, x_title: &str, lines: &[Line]) -> Option<SmallChart> {
    let chart = LineChart {
        x_title,
        y_title: "",
        lines,
        band: None,
        marks: &[],
        x_text: &tick,
        x_labels_max: LABELS_MAX,
        size: FOLD_SIZE,
    };
    let svg = drawn(|| chart.draw())?;
    let label = format!("{title}: actual and predicted values by {x_title}");
    Some(SmallChart { title, label, svg })
}

/// The mean error of the model by step of the horizon, with the spread of the errors around it.
pub(super) fn bias_chart(forecast: &BacktestedForecast) -> Option<Block> {
    let model = forecast.forecasters.first()?;
    let mut means = Vec::with_capacity(model.steps.len());
    let mut spread = Vec::with_capacity(model.steps.len());
    for step in &model.steps {
        let moments = step.score.mean_error.zip(step.score.error_deviation);
        if let Some((mean, deviation)) = moments {
            let x = step.step as f64;
            means.push((x, mean));
            spread.push(BandPoint {
                x,
                low: mean - deviation,
                high: mean + deviation,
            });
        }
    }
    let lines = [Line {
        name: format!("mean error of {}", model.forecaster),
        points: means,
    }];
    let band = Band {
        name: "one standard deviation of the errors".to_owned(),
        points: spread,
    };
    let chart = LineChart {
        x_title: "step of the horizon",
        y_title: "forecast less value",
        lines: &lines,
        band: Some(&band),
        marks: &[],
        x_text: &tick,
        x_labels_max: LABELS_MAX,
        size: WIDE_SIZE,
    };
    let svg = drawn(|| chart.draw())?;
    Some(Block::Chart {
        label: format!("Mean error of {} by step of the horizon", forecast.sink),
        class: "chart",
        svg,
    })
}

/// The bias of the model by group, as bars; the greatest first.
pub(super) fn bias_bars(forecast: &BacktestedForecast) -> Vec<Block> {
    let groups = match forecast.forecasters.first() {
        Some(model) => biased_groups(&model.groups),
        None => Vec::new(),
    };
    let Some(greatest) = groups.first().map(|group| group.bias.abs()) else {
        return Vec::new();
    };
    let mut rows = Vec::new();
    for group in groups.iter().take(GROUPS_SHOWN) {
        let text = format!("{:.4}", group.bias);
        rows.push(vec![
            Cell::text(group.name.clone()),
            Cell::measure(text.clone(), group.bias),
            Cell {
                bar: Some(bar_from_middle(group.bias, greatest)),
                ..Cell::text(format!("bias {text}"))
            },
        ]);
    }
    let explanation = "Bars go to the left of the middle where forecasts are too low, and to the \
                       right where they are too high.";
    let label = format!("Bias of {} by group", forecast.sink);
    let head = ["group", "#bias", "too low, too high"];
    let mut blocks = vec![Block::heading(label.clone()), Block::text(explanation)];
    if groups.len() > GROUPS_SHOWN {
        let count = groups.len();
        let text = format!(
            "The {GROUPS_SHOWN} of {count} groups with the greatest bias are drawn; the JSON \
             summary has all."
        );
        blocks.push(Block::text(text));
    }
    blocks.push(Block::stacked_table(&label, &head, rows));
    blocks
}

/// A group with its bias.
#[derive(Debug, Clone, PartialEq)]
struct GroupBias {
    name: String,
    bias: f64,
}

/// Groups that have a bias, the greatest first, whatever its sign.
fn biased_groups(groups: &[GroupScore]) -> Vec<GroupBias> {
    let mut biases = Vec::with_capacity(groups.len());
    for group in groups {
        if let Some(bias) = group.score.bias.filter(|bias| bias.is_finite()) {
            biases.push(GroupBias {
                name: group_name(&group.group),
                bias,
            });
        }
    }
    biases.sort_by(|a, b| b.bias.abs().total_cmp(&a.bias.abs()));
    biases
}

/// The values of a group: `FOODS, null`.
pub(super) fn group_name(values: &[Option<String>]) -> String {
    let texts = values
        .iter()
        .map(|value| value.as_deref().unwrap_or("null"));
    texts.collect::<Vec<_>>().join(", ")
}

/// A bar whose greatest length is half of the track.
fn bar_from_middle(value: f64, greatest: f64) -> Bar {
    let share = if greatest > 0.0 {
        value / greatest
    } else {
        0.0
    };
    let width = 50.0 * share.abs().min(1.0);
    let from = if share < 0.0 { 50.0 - width } else { 50.0 };
    Bar { from, width }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};
    use forebay_run::{FoldReport, ForecastScore, StepScore, StepTotal};

    use super::*;

    fn total(step: u64, rows: u64, actual: f64, predicted: f64) -> StepTotal {
        StepTotal {
            step,
            rows,
            actual,
            predicted,
        }
    }

    fn forecaster(name: &str, totals: Vec<Vec<StepTotal>>) -> ForecasterScores {
        ForecasterScores {
            forecaster: name.to_owned(),
            overall: ForecastScore::default(),
            missing: 0,
            folds: Vec::new(),
            steps: Vec::new(),
            groups: Vec::new(),
            totals,
        }
    }

    fn forecast(forecasters: Vec<ForecasterScores>) -> BacktestedForecast {
        BacktestedForecast {
            sink: "forecast".to_owned(),
            summary: None,
            coverage: Vec::new(),
            rules: Vec::new(),
            by: Vec::new(),
            forecasters,
            residuals: None,
            time: Field::new("date", DataType::Date32, true),
            series: Vec::new(),
        }
    }

    fn report(folds: usize) -> BacktestReport {
        let mut reports = Vec::with_capacity(folds);
        for number in 1..=folds {
            reports.push(FoldReport {
                known_before: format!("2024-01-{number:02}"),
                seconds: 0.0,
            });
        }
        BacktestReport {
            label: "qty".to_owned(),
            folds: reports,
            forecasts: Vec::new(),
        }
    }

    fn sums(x: f64, actual: f64, predicted: f64) -> Sums {
        Sums {
            x,
            actual,
            predicted,
        }
    }

    fn group(name: Option<&str>, bias: Option<f64>) -> GroupScore {
        GroupScore {
            group: vec![name.map(str::to_owned)],
            score: ForecastScore {
                bias,
                ..ForecastScore::default()
            },
        }
    }

    fn has_text(blocks: &[Block], expected: &str) -> bool {
        blocks
            .iter()
            .any(|block| matches!(block, Block::Text { text, .. } if text == expected))
    }

    fn charts(blocks: &[Block]) -> &[SmallChart] {
        for block in blocks {
            if let Block::Charts { charts } = block {
                return charts;
            }
        }
        &[]
    }

    #[test]
    fn each_fold_has_its_sums_by_step() {
        let totals = vec![
            vec![total(1, 2, 10.0, 12.0), total(2, 2, 20.0, 18.0)],
            vec![
                total(1, 2, 5.0, 4.0),
                total(2, 0, 0.0, 0.0),
                total(3, 1, 7.0, 9.0),
            ],
        ];
        let model = forecaster("trees", totals);
        // Nothing came for the second step.
        assert_eq!(
            sums_by_step(&model, 1),
            [sums(1.0, 5.0, 4.0), sums(3.0, 7.0, 9.0)]
        );
        assert_eq!(
            sums_by_fold(&model),
            [sums(1.0, 30.0, 30.0), sums(2.0, 12.0, 13.0)]
        );
        let naive = forecaster("naive", vec![vec![total(1, 2, 10.0, 8.0)], Vec::new()]);
        let blocks = total_charts(&report(2), &forecast(vec![model, naive]));
        let drawn_charts = charts(&blocks);
        assert_eq!(drawn_charts.len(), 2);
        assert_eq!(drawn_charts[1].title, "Known before 2024-01-02");
        for name in ["actual qty", "trees", "naive"] {
            assert!(drawn_charts[0].svg.contains(name), "{name}");
        }
    }

    #[test]
    fn folds_of_one_step_share_a_chart() {
        let totals = vec![vec![total(1, 1, 3.0, 4.0)], vec![total(1, 1, 5.0, 4.0)]];
        let blocks = total_charts(&report(2), &forecast(vec![forecaster("trees", totals)]));
        assert_eq!(charts(&blocks).len(), 1);
        assert_eq!(charts(&blocks)[0].title, "By fold");
        let nothing = forecaster("trees", vec![Vec::new(), Vec::new()]);
        assert!(total_charts(&report(2), &forecast(vec![nothing])).is_empty());
    }

    #[test]
    fn the_latest_of_many_folds_are_drawn() {
        let steps = vec![total(1, 1, 3.0, 4.0), total(2, 1, 5.0, 4.0)];
        let many = FOLDS_SHOWN + 3;
        let model = forecaster("trees", vec![steps; many]);
        let blocks = total_charts(&report(many), &forecast(vec![model]));
        assert_eq!(charts(&blocks).len(), FOLDS_SHOWN);
        assert_eq!(charts(&blocks)[0].title, "Known before 2024-01-04");
        let text = "The latest 12 of 15 folds are drawn; the JSON summary has all.";
        assert!(has_text(&blocks, text));
    }

    #[test]
    fn the_bias_by_step_has_a_band() {
        let mut model = forecaster("trees", Vec::new());
        for (step, mean, deviation) in [(1, -0.5, 1.0), (2, 0.25, 2.0)] {
            model.steps.push(StepScore {
                step,
                score: ForecastScore {
                    mean_error: Some(mean),
                    error_deviation: Some(deviation),
                    ..ForecastScore::default()
                },
            });
        }
        let block = bias_chart(&forecast(vec![model])).unwrap();
        let Block::Chart { svg, label, .. } = block else {
            panic!("no chart");
        };
        assert_eq!(label, "Mean error of forecast by step of the horizon");
        assert!(svg.contains("<polygon") && svg.contains("mean error of trees"));
        assert!(bias_chart(&forecast(vec![forecaster("trees", Vec::new())])).is_none());
    }

    #[test]
    fn bars_of_groups_go_from_the_middle() {
        let groups = [
            group(Some("foods"), Some(0.1)),
            group(None, Some(-0.4)),
            group(Some("toys"), None),
        ];
        let biases = biased_groups(&groups);
        let names: Vec<&str> = biases.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(names, ["null", "foods"]);
        for (value, from, width) in [(-0.4, 0.0, 50.0), (0.1, 50.0, 12.5), (0.0, 50.0, 0.0)] {
            let bar = bar_from_middle(value, 0.4);
            assert!((bar.from - from).abs() < 1e-9, "{value}");
            assert!((bar.width - width).abs() < 1e-9, "{value}");
        }
        assert!(bar_from_middle(0.0, 0.0).width.abs() < 1e-9);
        let mut model = forecaster("trees", Vec::new());
        model.groups = groups.to_vec();
        assert_eq!(bias_bars(&forecast(vec![model])).len(), 3);
        let mut model = forecaster("trees", Vec::new());
        model.groups = vec![group(Some("foods"), Some(0.1)); GROUPS_SHOWN + 1];
        let text =
            "The 40 of 41 groups with the greatest bias are drawn; the JSON summary has all.";
        assert!(has_text(&bias_bars(&forecast(vec![model])), text));
    }
}
