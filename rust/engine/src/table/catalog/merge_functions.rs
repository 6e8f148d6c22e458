//! The functions of users that a table's merge rule names.
//!
//! Owns: the seam by which a process loads them, their load when a table is opened, and their trial
//! before a rule or a type of a column is written.
//! Does not own: how a language finds a function (the loader), what a function may return
//! (`lancemem_core::merge`), or when a fold calls it.

use std::fmt::Debug;
use std::sync::Arc;

use arrow_schema::{DataType, Schema};
use lance_core::datatypes::Schema as Columns;
use lancemem_core::merge::{
    MergeRule, PairFunction, PairFunctions, RuleError, RuleOptions, try_function,
};
use lancemem_core::types::{Error, Result};

use super::Catalog;
use super::location::Location;
use crate::schema::{in_table, rule_in_table, with_ids};

/// How a process loads functions of users by their importable names. A location carries it
/// ([`Location::with_functions`]).
///
/// ```
/// use std::sync::Arc;
///
/// use arrow_array::ArrayRef;
/// use lancemem::{Error, FunctionLoader, Location, PairFunction, Result};
///
/// #[derive(Debug)]
/// struct Newer;
///
/// impl PairFunction for Newer {
///     fn combine(&self, _: &ArrayRef, newer: &ArrayRef) -> Result<ArrayRef> {
///         Ok(newer.clone())
///     }
/// }
///
/// #[derive(Debug)]
/// struct Functions;
///
/// impl FunctionLoader for Functions {
///     fn load(&self, name: &str) -> Result<Arc<dyn PairFunction>> {
///         match name {
///             "functions:newer" => Ok(Arc::new(Newer)),
///             _ => Err(Error::input("this program has no such function")),
///         }
///     }
/// }
///
/// let location = Location::new("/data/pages.lance").with_functions(Arc::new(Functions));
/// # drop(location);
/// ```
pub trait FunctionLoader: Debug + Send + Sync {
    /// Loads the function with the importable name `name`, such as `package.module:function`. It is
    /// called on a thread that may block.
    ///
    /// # Errors
    /// An input error with the reason and the next step. The caller adds table, column and name.
    fn load(&self, name: &str) -> Result<Arc<dyn PairFunction>>;
}

/// A function, and the column that it combines.
struct Named {
    column: String,
    name: String,
    of: DataType,
}

/// The functions of the columns of `schema`, which are a table's; those of dropped columns are not
/// needed.
fn named(rule: &MergeRule, schema: &Schema) -> Vec<Named> {
    let functions = rule.options(schema).merge_functions.into_iter();
    let named = |(column, name): (String, String)| {
        let of = schema.field_with_name(&column).ok()?.data_type().clone();
        Some(Named { column, name, of })
    };
    functions.filter_map(named).collect()
}

/// The functions that `rule` names for the table at `location` with the columns `schema`.
///
/// # Errors
/// An input error that names table, column and function where this process cannot load one.
pub(super) async fn load(
    location: &Location,
    rule: Option<&MergeRule>,
    schema: &Schema,
) -> Result<Arc<PairFunctions>> {
    let named = rule.map(|rule| named(rule, schema)).unwrap_or_default();
    let Some(first) = named.first() else { return Ok(Arc::default()) };
    let Some(loader) = location.functions().cloned() else {
        let (column, function) = (first.column.clone(), first.name.clone());
        let refused = RuleError::NotLoaded { column, function };
        return Err(rule_in_table(location.uri(), refused));
    };
    let uri = location.uri().to_owned();
    blocking(move || {
        let (mut functions, mut refused) = (PairFunctions::new(), None);
        // Each name is asked for, so that a loader which has to prepare itself learns all of them.
        for Named { column, name, .. } in named {
            match loader.load(&name) {
                Ok(function) => {
                    functions.insert(name, function);
                }
                Err(error) => {
                    let place = format!(
                        "table {uri}: the merge function '{name}' of column '{column}' cannot be \
                         loaded in this process"
                    );
                    refused.get_or_insert(error.input_at(place));
                }
            }
        }
        refused.map_or(Ok(Arc::new(functions)), Err)
    })
    .await
}

/// The rule of `options` for a table with these columns; `None` for plain `deduplicate`.
pub(super) fn rule_for(
    uri: &str,
    columns: &Columns,
    key: &[String],
    options: &RuleOptions,
) -> Result<Option<MergeRule>> {
    if options.is_plain() {
        return Ok(None);
    }
    let rule = MergeRule::new(options, &with_ids(columns), key);
    rule.map(Some).map_err(|error| rule_in_table(uri, error))
}

/// As [`rule_for`], for a table that is to get the rule at `location`: its functions are loaded and
/// tried.
///
/// # Errors
/// As [`rule_for`] and [`load`], and where a function does not take the type of its column.
pub(super) async fn checked_rule(
    location: &Location,
    columns: &Columns,
    key: &[String],
    options: &RuleOptions,
) -> Result<Option<MergeRule>> {
    let rule = rule_for(location.uri(), columns, key, options)?;
    let schema = with_ids(columns);
    let functions = load(location, rule.as_ref(), &schema).await?;
    let named = rule.as_ref().map(|rule| named(rule, &schema)).unwrap_or_default();
    tried(location.uri(), named, functions).await?;
    Ok(rule)
}

impl Catalog {
    /// Tries the merge function of `column`, if it has one, with the type `of`.
    ///
    /// # Errors
    /// An input error where the function does not take the type.
    pub(super) async fn try_function(&self, column: &str, of: &DataType) -> Result<()> {
        let Some(name) = self.rule_options().merge_functions.remove(column) else { return Ok(()) };
        let functions = self.base.known().schema.functions.clone();
        let named = Named { column: column.to_owned(), name, of: of.clone() };
        tried(self.uri(), vec![named], functions).await
    }
}

/// Calls each function without values.
async fn tried(uri: &str, named: Vec<Named>, functions: Arc<PairFunctions>) -> Result<()> {
    if named.is_empty() {
        return Ok(());
    }
    let uri = uri.to_owned();
    blocking(move || {
        named.iter().try_for_each(|Named { column, name, of }| {
            let Some(function) = functions.get(name) else { return Ok(()) };
            let tried = try_function(column, name, function.as_ref(), of);
            tried.map_err(|error| in_table(&uri, error))
        })
    })
    .await
}

/// Runs `work` on a thread that may block: a loader and a function may wait for a lock of their
/// language.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::internal(format!("merge functions: {error}")).with_source(error))?
}
