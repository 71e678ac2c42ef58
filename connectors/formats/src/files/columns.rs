//! The columns of a source that a spec selects.

use arrow::datatypes::FieldRef;
use forebay_model::{Fault, NameIndex, Result, codes};

/// The selected ones of columns, in the order of `selection`; all columns if it is `None`. `owner`
/// begins the fault for a missing one: `the table has`.
pub fn select_columns(
    columns: Vec<FieldRef>,
    selection: Option<&[String]>,
    owner: &str,
) -> Result<Vec<FieldRef>> {
    let Some(selected_names) = selection else {
        return Ok(columns);
    };
    let names = || columns.iter().map(|field| field.name().as_str());
    let index = NameIndex::new(names());
    let find = |name: &String| {
        index
            .get(name)
            .map(|position| columns[position].clone())
            .ok_or_else(|| {
                let fault =
                    Fault::new(codes::UNKNOWN_COLUMN, format!("{owner} no column `{name}`"))
                        .column(name);
                fault.suggest(name, names(), "")
            })
    };
    selected_names.iter().map(find).collect()
}
