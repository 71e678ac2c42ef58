//! Collects all faults of one step or query: it is bound again as if the columns that it misses
//! existed.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use forebay_model::{Fault, Result, codes, nearest_word};

use crate::bind_faults::{has_word, is_of_column};
use crate::column_selector::unknown_column;

/// Maximum number of times that one step is bound. Each attempt settles the type of at least one
/// column.
const ATTEMPTS_MAX: usize = 200;

/// The name of the table that holds the rows of the step itself.
pub(super) const OWN_TABLE: &str = "";

/// Columns that a step or query can read.
pub(super) struct NamedTable {
    /// The step or source; `OWN_TABLE` for the rows of the step itself.
    pub name: String,
    /// Columns of the table.
    pub schema: SchemaRef,
}

/// Table and type of an assumed column.
struct ColumnGuess {
    /// The only table that has it; `None` means all tables.
    table: Option<String>,
    data_type: DataType,
}

/// Column that was reported as missing or as of a wrong type. The guesses are tried in order.
struct AssumedColumn {
    name: String,
    guesses: Vec<ColumnGuess>,
    current: usize,
}

/// Columns that are taken as present although they were reported.
#[derive(Default)]
pub(super) struct AssumedColumns(Vec<AssumedColumn>);

/// Result of binding with assumed columns.
pub(super) struct MendedBinding<T> {
    /// The result; `None` if a fault is about more than a column.
    pub bound: Option<T>,
    /// All faults, without those that only follow from others.
    pub faults: Vec<Fault>,
    /// Columns that the result assumes.
    pub assumed: AssumedColumns,
}

impl AssumedColumns {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.0.iter().map(|column| &column.name)
    }

    /// The columns of a table, with those that are assumed in it.
    pub fn extend(&self, table: &str, schema: &SchemaRef) -> SchemaRef {
        let mut fields: Vec<Field> = schema
            .fields()
            .iter()
            .map(|field| field.as_ref().clone())
            .collect();
        for column in &self.0 {
            let guess = &column.guesses[column.current];
            if guess.table.as_ref().is_some_and(|only| only != table) {
                continue;
            }
            let assumed = Field::new(&column.name, guess.data_type.clone(), true);
            match fields.iter_mut().find(|field| *field.name() == column.name) {
                Some(field) => *field = assumed,
                None => fields.push(assumed),
            }
        }
        Arc::new(Schema::new(fields))
    }

    /// Assumes the column that a fault is about. Returns true if there is one.
    fn add(&mut self, fault: &Fault, tables: &[NamedTable]) -> bool {
        if !is_of_column(fault) {
            return false;
        }
        let Some(name) = &fault.site().column else {
            return false;
        };
        let mut guesses = Vec::new();
        for table in tables {
            guesses.extend(guesses_in(table, name));
        }
        if tables.len() > 1 {
            for data_type in common_types() {
                guesses.push(ColumnGuess {
                    table: None,
                    data_type,
                });
            }
        }
        if guesses.is_empty() {
            return false;
        }
        self.0.push(AssumedColumn {
            name: name.clone(),
            guesses,
            current: 0,
        });
        true
    }

    /// A fault whose hint names no assumed column.
    fn without_hints(&self, fault: Fault, tables: &[NamedTable]) -> Fault {
        let hint = fault.hint_text().unwrap_or_default();
        let Some(name) = fault.site().column.clone() else {
            return fault;
        };
        if !self.names().any(|name| has_word(hint, name)) {
            return fault;
        }
        let schema = match self.table_of_hint(&name, hint, tables) {
            Some(table) => table.schema.clone(),
            None => Arc::new(Schema::new(fields_of_all(tables))),
        };
        match unknown_column(&name, &schema).hint_text() {
            Some(hint) => fault.hint(hint),
            None => fault,
        }
    }

    /// The table whose columns, with the assumed ones, give a fault about a column this hint.
    fn table_of_hint<'t>(
        &self,
        column: &str,
        hint: &str,
        tables: &'t [NamedTable],
    ) -> Option<&'t NamedTable> {
        for table in tables {
            let extended = self.extend(&table.name, &table.schema);
            if unknown_column(column, &extended).hint_text() == Some(hint) {
                return Some(table);
            }
        }
        None
    }

    /// The assumed columns that a fault is about.
    fn of_fault(&mut self, fault: &Fault) -> Vec<&mut AssumedColumn> {
        let mut columns = Vec::new();
        for column in &mut self.0 {
            let is_of_fault = match &fault.site().column {
                Some(name) if is_of_column(fault) => *name == column.name,
                _ => has_word(fault.message(), &column.name),
            };
            if is_of_fault {
                columns.push(column);
            }
        }
        columns
    }
}

/// Types that a column of a table may have: that of the column with the nearest name first. A type
/// that was reported as wrong is none of them.
fn guesses_in(table: &NamedTable, name: &str) -> Vec<ColumnGuess> {
    let wrong_type = type_in(table, name);
    let mut types = Vec::new();
    types.extend(type_of_nearest(table, name));
    types.extend(common_types());
    let mut guesses = Vec::with_capacity(types.len());
    for data_type in types {
        if wrong_type.as_ref() != Some(&data_type) {
            guesses.push(ColumnGuess {
                table: Some(table.name.clone()),
                data_type,
            });
        }
    }
    guesses
}

fn type_in(table: &NamedTable, name: &str) -> Option<DataType> {
    let field = table.schema.field_with_name(name).ok()?;
    Some(field.data_type().clone())
}

fn type_of_nearest(table: &NamedTable, name: &str) -> Option<DataType> {
    let fields = table.schema.fields().iter();
    let nearest_name = nearest_word(name, fields.map(|field| field.name().as_str()))?;
    type_in(table, nearest_name)
}

fn fields_of_all(tables: &[NamedTable]) -> Vec<FieldRef> {
    let mut fields = Vec::new();
    for table in tables {
        fields.extend(table.schema.fields().iter().cloned());
    }
    fields
}

/// Binds until all faults are known. After a fault about a column, the column is assumed, of one
/// type after the other, until the fault is gone. Faults that only follow from an assumed column
/// are dropped.
pub(super) fn bind_with_assumptions<T>(
    tables: impl Fn() -> Vec<NamedTable>,
    mut bind: impl FnMut(&AssumedColumns) -> Result<T>,
) -> MendedBinding<T> {
    let mut assumed = AssumedColumns::default();
    let mut faults: Vec<Fault> = Vec::new();
    for _ in 0..ATTEMPTS_MAX {
        let new_faults = match bind(&assumed) {
            Ok(bound) => {
                return MendedBinding {
                    bound: Some(bound),
                    faults,
                    assumed,
                };
            }
            Err(fault) => fault.into_each(),
        };
        let mut changed = false;
        for fault in new_faults {
            let is_repeated =
                |other: &Fault| other.message() == fault.message() && other.site() == fault.site();
            if faults.iter().any(is_repeated) && !is_of_column(&fault) {
                continue;
            }
            let has_assumed = !assumed.is_empty();
            let mut columns = assumed.of_fault(&fault);
            if columns.is_empty() && has_assumed && fault.code() == codes::COLUMN_CLASH {
                // Of a key with its right name there would be one column.
                continue;
            }
            if columns.is_empty() {
                let fault = assumed.without_hints(fault, &tables());
                changed |= assumed.add(&fault, &tables());
                faults.push(fault);
                continue;
            }
            for column in &mut columns {
                if column.current + 1 < column.guesses.len() {
                    column.current += 1;
                    changed = true;
                }
            }
        }
        if !changed {
            break;
        }
    }
    MendedBinding {
        bound: None,
        faults,
        assumed,
    }
}

/// Types that most steps accept one of.
fn common_types() -> [DataType; 7] {
    let item = Arc::new(Field::new_list_field(DataType::Utf8, true));
    [
        DataType::Float64,
        DataType::Utf8,
        DataType::Int64,
        DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Date32,
        DataType::Boolean,
        DataType::List(item),
    ]
}
