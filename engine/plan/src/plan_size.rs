//! Size of the plan of a query, counted before it is planned.
//!
//! The planner puts the plan of a common table expression in the place of each mention. A chain of tables that read the
//! one before twice doubles with each: forty of them are 10^12 operators. A chain of tables that read the one before once
//! is as deep as it is long, and is walked by recursion again and again.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, Visit, Visitor};
use forebay_model::{Fault, Result, codes};

use crate::expression_depth::EXPRESSION_LEVELS_MAX;
use crate::sql_faults::shown;

/// Most tables and subqueries of a plan. Each takes some 1.5 KiB whenever the plan is rewritten.
const PLAN_TABLES_MAX: u64 = 20_000;

/// Fails if the plan of a query is too large to be made.
pub(crate) fn refuse_large_plan(parsed: &ast::Query, query: &str) -> Result<()> {
    let mut size = PlanSizeVisitor::default();
    // The visitor never breaks.
    let _ = parsed.visit(&mut size);
    if size.levels > EXPRESSION_LEVELS_MAX {
        let message = format!(
            "the query `{}` nests {} levels of subqueries and WITH tables; at most \
             {EXPRESSION_LEVELS_MAX} are allowed",
            shown(query),
            size.levels
        );
        return Err(Fault::new(codes::EXPRESSION, message)
            .hint("make steps of some WITH tables: a step is planned on its own"));
    }
    if size.tables <= PLAN_TABLES_MAX {
        return Ok(());
    }
    let message = format!(
        "the query `{}` reads {} tables once its WITH tables stand in the place of their names; \
         at most {PLAN_TABLES_MAX} are allowed",
        shown(query),
        size.tables
    );
    Err(Fault::new(codes::EXPRESSION, message).hint(
        "make a step of each WITH table that is used more than once: a step is computed once",
    ))
}

/// Counts tables and subqueries with those of common table expressions for each mention.
#[derive(Default)]
struct PlanSizeVisitor {
    /// The queries around the visited place, the outermost first.
    queries: Vec<OpenQuery>,
    /// Names of common table expressions by the address of their query.
    names: HashMap<*const ast::Query, String>,
    /// Tables of the outermost query once it has been visited.
    tables: u64,
    /// Levels of it.
    levels: usize,
}

/// A query that is being visited.
struct OpenQuery {
    tables: u64,
    /// Levels of the deepest query in it.
    levels_inside: usize,
    /// Its common table expressions by name.
    common: HashMap<String, QuerySize>,
}

/// Size of a query.
#[derive(Clone, Copy)]
struct QuerySize {
    tables: u64,
    /// Queries that stand inside each other, with itself.
    levels: usize,
}

impl PlanSizeVisitor {
    /// Size of what a name stands for: the innermost common table expression of this name, else one table.
    fn size_of(&self, name: &str) -> QuerySize {
        let mut scopes = self.queries.iter().rev();
        let common = scopes.find_map(|query| query.common.get(name).copied());
        common.unwrap_or(QuerySize {
            tables: 1,
            levels: 0,
        })
    }

    /// Adds a query or a table to the query that is being visited.
    fn add(&mut self, size: QuerySize) {
        if let Some(query) = self.queries.last_mut() {
            query.tables = query.tables.saturating_add(size.tables);
            query.levels_inside = query.levels_inside.max(size.levels);
        }
    }
}

impl Visitor for PlanSizeVisitor {
    type Break = ();

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
        for table in query.with.iter().flat_map(|with| &with.cte_tables) {
            let address = std::ptr::from_ref(table.query.as_ref());
            self.names.insert(address, table.alias.name.value.clone());
        }
        self.queries.push(OpenQuery {
            tables: 1,
            levels_inside: 0,
            common: HashMap::new(),
        });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
        let Some(visited) = self.queries.pop() else {
            return ControlFlow::Continue(());
        };
        let name = self.names.remove(&std::ptr::from_ref(query));
        let size = QuerySize {
            tables: visited.tables,
            levels: visited.levels_inside + 1,
        };
        match (self.queries.last_mut(), name) {
            (Some(outer), Some(name)) => {
                outer.common.insert(name, size);
            }
            (Some(_), None) => self.add(size),
            (None, _) => {
                self.tables = size.tables;
                self.levels = size.levels;
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ast::ObjectName) -> ControlFlow<()> {
        let name = relation.0.last().and_then(|part| part.as_ident());
        let size = self.size_of(name.map_or("", |name| &name.value));
        self.add(size);
        ControlFlow::Continue(())
    }
}
