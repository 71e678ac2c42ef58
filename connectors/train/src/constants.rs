//! Warnings of features from which a model learns nothing.

use forebay_contract::TrainingContext;
use forebay_storage::Event;

/// Features that a warning names at most.
const CONSTANTS_MAX: usize = 5;

/// Warns of features that have one value. `rows` says in which rows, such as `all rows`.
pub fn warn_of_constants<S: AsRef<str>>(
    context: &TrainingContext<'_>,
    constants: &[S],
    rows: &str,
) {
    if constants.is_empty() {
        return;
    }
    let named = constants.iter().take(CONSTANTS_MAX);
    let names: Vec<String> = named.map(|name| format!("`{}`", name.as_ref())).collect();
    let unnamed = constants.len() - names.len();
    let others = if unnamed > 0 {
        format!(" and {unnamed} others")
    } else {
        String::new()
    };
    let message = format!(
        "features of `{}` have one value in {rows} that it learns from: {}{others}; \
         look at the steps that make them, or leave them out",
        context.sink(),
        names.join(", ")
    );
    context.emit(Event::Warning { message });
}
