//! Probabilities of classes, and the loss that scores of classes are learned by.

/// Share of a class at least, as in LightGBM: the logarithm of 0 is no score.
const SHARE_MIN: f64 = 1e-15;

/// Logarithms of the shares of classes with these weights among a total: the scores of a model that predicts the shares.
pub fn log_shares(weights: &[f64], total: f64) -> Vec<f64> {
    let mut shares = Vec::with_capacity(weights.len());
    for weight in weights {
        shares.push((weight / total).max(SHARE_MIN).ln());
    }
    shares
}

/// Replaces the scores of classes by their probabilities.
pub fn softmax(scores: &mut [f64]) {
    let greatest = greatest_of(scores);
    let mut sum = 0.0;
    for score in scores.iter_mut() {
        *score = (*score - greatest).exp();
        sum += *score;
    }
    for score in scores {
        *score /= sum;
    }
}

/// The negative logarithm of the probability of a class, given the scores of all.
pub fn class_loss(scores: &[f64], class: usize) -> f64 {
    let greatest = greatest_of(scores);
    let mut sum = 0.0;
    for score in scores {
        sum += (score - greatest).exp();
    }
    sum.ln() + greatest - scores[class]
}

fn greatest_of(scores: &[f64]) -> f64 {
    scores.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}
