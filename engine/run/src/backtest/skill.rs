//! Skill: the errors of a forecast beside those of the seasonal naive one.

use super::report::ForecasterScores;
use super::scores::ForecastScore;

/// The forecaster that others are compared with, where there is no seasonal one the last value.
const BASELINES: [&str; 2] = ["seasonal_naive", "last_value"];

/// Sets the skill of all scores beside those of the naive forecast of the same rows; returns the sentence that sums it
/// up. Nothing happens where no naive forecast was made.
pub(super) fn set_skill(forecasters: &mut [ForecasterScores]) -> Option<String> {
    let baseline = find_baseline(forecasters)?.clone();
    for scores in forecasters.iter_mut() {
        if scores.forecaster != baseline.forecaster {
            compare_forecaster(scores, &baseline);
        }
    }
    let model = forecasters.first()?;
    sentence(model, &baseline.forecaster)
}

fn find_baseline(forecasters: &[ForecasterScores]) -> Option<&ForecasterScores> {
    for name in BASELINES {
        for scores in forecasters {
            if scores.forecaster == name {
                return Some(scores);
            }
        }
    }
    None
}

/// Compares each score with that of the baseline for the same rows.
fn compare_forecaster(scores: &mut ForecasterScores, baseline: &ForecasterScores) {
    compare(&mut scores.overall, Some(&baseline.overall));
    for (fold, score) in scores.folds.iter_mut().enumerate() {
        compare(score, baseline.folds.get(fold));
    }
    for step in &mut scores.steps {
        let same = baseline.steps.iter().find(|other| other.step == step.step);
        compare(&mut step.score, same.map(|other| &other.score));
    }
    for group in &mut scores.groups {
        let same = baseline
            .groups
            .iter()
            .find(|other| other.group == group.group);
        compare(&mut group.score, same.map(|other| &other.score));
    }
}

/// One less the ratio of both mean absolute errors.
fn compare(score: &mut ForecastScore, baseline: Option<&ForecastScore>) {
    let Some(baseline) = baseline else {
        return;
    };
    let Some(error) = score.mae else {
        return;
    };
    let Some(baseline_error) = baseline.mae else {
        return;
    };
    if baseline_error > 0.0 {
        score.skill = Some(1.0 - error / baseline_error);
    }
}

/// `trees: better than seasonal naive by 23 %, on 4 of 4 folds`.
fn sentence(model: &ForecasterScores, baseline: &str) -> Option<String> {
    let skill = model.overall.skill?;
    let percent = (skill.abs() * 100.0).round();
    let baseline = baseline.replace('_', " ");
    let is_better = skill > 0.0;
    let mut compared = 0_usize;
    let mut agreeing = 0_usize;
    for fold in &model.folds {
        let Some(fold_skill) = fold.skill else {
            continue;
        };
        compared += 1;
        if (fold_skill > 0.0) == is_better {
            agreeing += 1;
        }
    }
    if percent == 0.0 {
        return Some(format!(
            "{}: as good as {baseline}, within half a percent",
            model.forecaster
        ));
    }
    let word = if is_better { "better" } else { "worse" };
    // A single fold has the skill of the whole.
    let folds = if compared > 1 {
        format!(", on {agreeing} of {compared} folds")
    } else {
        String::new()
    };
    Some(format!(
        "{}: {word} than {baseline} by {percent} %{folds}",
        model.forecaster
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(name: &str, errors: &[f64]) -> ForecasterScores {
        let score = |mae: f64| ForecastScore {
            mae: Some(mae),
            ..ForecastScore::default()
        };
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        ForecasterScores {
            forecaster: name.to_owned(),
            overall: score(mean),
            missing: 0,
            folds: errors.iter().map(|error| score(*error)).collect(),
            steps: Vec::new(),
            groups: Vec::new(),
            totals: Vec::new(),
        }
    }

    #[test]
    fn skill_is_said_plainly() {
        for (errors, expected) in [
            (
                [1.0, 1.0],
                "trees: better than seasonal naive by 50 %, on 2 of 2 folds",
            ),
            (
                [1.0, 2.5],
                "trees: better than seasonal naive by 13 %, on 1 of 2 folds",
            ),
            (
                [3.0, 3.0],
                "trees: worse than seasonal naive by 50 %, on 2 of 2 folds",
            ),
            (
                [2.0, 2.0],
                "trees: as good as seasonal naive, within half a percent",
            ),
        ] {
            let mut both = [
                scores("trees", &errors),
                scores("seasonal_naive", &[2.0, 2.0]),
            ];
            let sentence = set_skill(&mut both);
            assert_eq!(sentence.as_deref(), Some(expected));
            assert!(both[0].folds[0].skill.is_some() && both[1].overall.skill.is_none());
        }
        let mut one_fold = [scores("trees", &[1.0]), scores("seasonal_naive", &[2.0])];
        let sentence = set_skill(&mut one_fold);
        let expected = "trees: better than seasonal naive by 50 %";
        assert_eq!(sentence.as_deref(), Some(expected));
        assert_eq!(set_skill(&mut [scores("trees", &[1.0])]), None);
    }
}
