//! Coverage of intervals beside the level that they state.

use super::report::{ForecasterScores, IntervalCoverage, StepCoverage};

/// Difference between the level of an interval and its coverage up to which it holds.
const TOLERANCE: f64 = 0.03;

/// Rounding that does not count as a difference.
const ROUNDING: f64 = 1e-9;

/// The coverage of each central interval of a model, the widest first; none of a forecast without intervals.
pub(super) fn judge_coverage(model: &ForecasterScores) -> Vec<IntervalCoverage> {
    let mut judged = Vec::with_capacity(model.overall.intervals.len());
    for (number, interval) in model.overall.intervals.iter().enumerate() {
        let level = interval.level;
        let mut steps = Vec::with_capacity(model.steps.len());
        for step in &model.steps {
            let of_step = step.score.intervals.get(number);
            let coverage = of_step.and_then(|interval| interval.coverage);
            steps.push(StepCoverage {
                step: step.step,
                rows: step.score.rows,
                coverage,
                holds: coverage.map(|coverage| is_within(coverage, level)),
            });
        }
        judged.push(IntervalCoverage {
            level,
            coverage: interval.coverage,
            holds: interval.coverage.map(|coverage| is_within(coverage, level)),
            summary: sentence(model, level, interval.coverage, &steps),
            steps,
        });
    }
    judged
}

fn is_within(coverage: f64, level: f64) -> bool {
    (coverage - level).abs() <= TOLERANCE + ROUNDING
}

/// `trees: intervals of 0.8 hold, within 0.03: 0.7875 of 800 values lie inside, and 6 of 7 steps are within 0.03`.
fn sentence(
    model: &ForecasterScores,
    level: f64,
    coverage: Option<f64>,
    steps: &[StepCoverage],
) -> String {
    let name = &model.forecaster;
    let Some(coverage) = coverage else {
        return format!("{name}: intervals of {level} cannot be judged, since no value came");
    };
    let verdict = if is_within(coverage, level) {
        format!("hold, within {TOLERANCE}")
    } else if coverage < level {
        "are too narrow".to_owned()
    } else {
        "are too wide".to_owned()
    };
    let rows = model.overall.rows;
    let mut text = format!(
        "{name}: intervals of {level} {verdict}: {coverage:.4} of {rows} values lie inside"
    );
    let judged_steps = steps.iter().filter(|step| step.holds.is_some()).count();
    if judged_steps > 1 {
        let holding_steps = steps.iter().filter(|step| step.holds == Some(true)).count();
        text += &format!(", and {holding_steps} of {judged_steps} steps are within {TOLERANCE}");
    }
    let deviation = chance_deviation(level, rows);
    if deviation > TOLERANCE {
        text += &format!("; chance alone moves the share of so few values by {deviation:.2}");
    }
    text
}

/// Two standard errors of the share of independent values inside an interval of a level.
fn chance_deviation(level: f64, rows: u64) -> f64 {
    2.0 * (level * (1.0 - level) / rows as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backtest::report::StepScore;
    use crate::backtest::scores::{ForecastScore, IntervalScore};

    fn score(rows: u64, coverages: &[(f64, Option<f64>)]) -> ForecastScore {
        let mut intervals = Vec::new();
        for (level, coverage) in coverages {
            intervals.push(IntervalScore {
                level: *level,
                coverage: *coverage,
                winkler: None,
            });
        }
        ForecastScore {
            rows,
            intervals,
            ..ForecastScore::default()
        }
    }

    /// Scores over two steps with half of the rows each.
    fn model(
        rows: u64,
        overall: &[(f64, Option<f64>)],
        steps: [&[(f64, Option<f64>)]; 2],
    ) -> ForecasterScores {
        let mut step_scores = Vec::new();
        for (step, coverages) in (1..).zip(steps) {
            step_scores.push(StepScore {
                step,
                score: score(rows / 2, coverages),
            });
        }
        ForecasterScores {
            forecaster: "trees".to_owned(),
            overall: score(rows, overall),
            missing: 0,
            folds: Vec::new(),
            steps: step_scores,
            groups: Vec::new(),
            totals: Vec::new(),
        }
    }

    #[test]
    fn intervals_hold_within_three_hundredths() {
        for (rows, coverage, step_coverages, holds, words) in [
            (
                10_000,
                0.77,
                [0.83, 0.71],
                Some(true),
                "trees: intervals of 0.8 hold, within 0.03: 0.7700 of 10000 values lie inside, \
                 and 1 of 2 steps are within 0.03",
            ),
            (
                10_000,
                0.76,
                [0.76, 0.76],
                Some(false),
                "trees: intervals of 0.8 are too narrow: 0.7600 of 10000 values lie inside, and 0 \
                 of 2 steps are within 0.03",
            ),
            (
                100,
                0.9,
                [0.8, 1.0],
                Some(false),
                "trees: intervals of 0.8 are too wide: 0.9000 of 100 values lie inside, and 1 of \
                 2 steps are within 0.03; chance alone moves the share of so few values by 0.08",
            ),
        ] {
            let [first, second] = step_coverages;
            let scores = model(
                rows,
                &[(0.8, Some(coverage))],
                [&[(0.8, Some(first))], &[(0.8, Some(second))]],
            );
            let judged = judge_coverage(&scores);
            assert_eq!(judged.len(), 1);
            assert_eq!(judged[0].holds, holds, "{coverage}");
            assert_eq!(judged[0].summary, words);
            let mut steps = Vec::new();
            for step in &judged[0].steps {
                steps.push((step.step, step.rows, step.coverage));
            }
            let expected = [(1, rows / 2, Some(first)), (2, rows / 2, Some(second))];
            assert_eq!(steps, expected);
        }
    }

    #[test]
    fn levels_are_judged_one_by_one() {
        let scores = model(
            10_000,
            &[(0.9, Some(0.91)), (0.5, Some(0.3))],
            [
                &[(0.9, Some(0.9)), (0.5, Some(0.5))],
                &[(0.9, Some(0.92)), (0.5, Some(0.1))],
            ],
        );
        let judged = judge_coverage(&scores);
        let holds: Vec<Option<bool>> = judged.iter().map(|interval| interval.holds).collect();
        assert_eq!(holds, [Some(true), Some(false)]);
        let steps: Vec<Option<bool>> = judged[1].steps.iter().map(|step| step.holds).collect();
        assert_eq!(steps, [Some(true), Some(false)]);
    }

    #[test]
    fn intervals_without_values_are_not_judged() {
        let none: &[(f64, Option<f64>)] = &[(0.8, None)];
        let judged = judge_coverage(&model(0, none, [none, none]));
        assert_eq!(judged[0].holds, None);
        assert_eq!(judged[0].steps[0].holds, None);
        assert_eq!(
            judged[0].summary,
            "trees: intervals of 0.8 cannot be judged, since no value came"
        );
        assert!(judge_coverage(&model(10, &[], [&[], &[]])).is_empty());
    }
}
