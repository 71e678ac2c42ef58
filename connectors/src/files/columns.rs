//! The columns of a source that a spec asks for.

use arrow::datatypes::FieldRef;
use forebay_model::{Fault, Result, codes};

/// The wanted ones of all columns, in the order in which they are wanted; all if none is named. `owner` begins the fault
/// for one that is not there: `the table has`.
pub(crate) fn select_columns(
    all: Vec<FieldRef>,
    wanted: Option<&[String]>,
    owner: &str,
) -> Result<Vec<FieldRef>> {
    let Some(wanted) = wanted else { return Ok(all) };
    let find = |name: &String| {
        all.iter()
            .find(|field| field.name() == name)
            .cloned()
            .ok_or_else(|| {
                let fault =
                    Fault::new(codes::UNKNOWN_COLUMN, format!("{owner} no column `{name}`"))
                        .column(name);
                fault.suggest(name, all.iter().map(|field| field.name().as_str()), "")
            })
    };
    wanted.iter().map(find).collect()
}
