//! The columns of a source that a spec selects.

use arrow::datatypes::FieldRef;
use forebay_model::{Fault, NameIndex, Result, codes};

/// The selected ones of all columns, in the order of `wanted`; all if it is `None`. `owner` begins
/// the fault for a missing one: `the table has`.
pub(crate) fn select_columns(
    all: Vec<FieldRef>,
    wanted: Option<&[String]>,
    owner: &str,
) -> Result<Vec<FieldRef>> {
    let Some(wanted) = wanted else { return Ok(all) };
    let names = || all.iter().map(|field| field.name().as_str());
    let index = NameIndex::new(names());
    let find = |name: &String| {
        index
            .get(name)
            .map(|position| all[position].clone())
            .ok_or_else(|| {
                let fault =
                    Fault::new(codes::UNKNOWN_COLUMN, format!("{owner} no column `{name}`"))
                        .column(name);
                fault.suggest(name, names(), "")
            })
    };
    wanted.iter().map(find).collect()
}
