//! The primary key of a Lance table that names none.
//!
//! Owns: the commits that forbid nulls in its columns and mark them as the key.
//! Does not own: which columns can be a key (`schema_rules`), or enabling the table (`create`).

use arrow_schema::Schema;
use async_recursion::async_recursion as boxed;
use lance::dataset::ColumnAlteration;
use lancemem_core::format::reconcile::KEY_MARK;
use lancemem_core::merge::RuleOptions;
use lancemem_core::types::{Error, Result};

use super::location::Location;
use super::merge_functions::checked_rule;
use super::progress::details_of;
use super::schema_rules::{KEY_POSITION, with_key};
use crate::compaction::committing;
use crate::errors::Context;
use crate::schema::{in_table, key_of};
use crate::table::Table;

impl Table {
    /// Makes columns the primary key of the Lance table at `location`, if it names no key. Nothing
    /// is written if they are its key already. That their values are unique is not checked.
    ///
    /// # Errors
    /// An input error where the table has another key or none by choice, for columns that cannot be a
    /// key or have nulls, and, with nothing written, where the table cannot have the merge rule
    /// `rule` that it is to get with its index.
    pub async fn set_primary_key(
        location: impl Into<Location>,
        key: &[String],
        rule: Option<&RuleOptions>,
    ) -> Result<()> {
        location.into().resolved()?.mark_key(key, rule).await
    }
}

impl Location {
    #[boxed]
    async fn mark_key(&self, key: &[String], rule: Option<&RuleOptions>) -> Result<()> {
        let base = self.open().await?;
        let known = key_of(&base)?;
        if known == key {
            return Ok(());
        }
        if !known.is_empty() {
            return Err(Error::input(format!(
                "table {} has the primary key {}, and a key cannot be changed; leave out primary_key=",
                self.uri(),
                known.join(", ")
            )));
        }
        if details_of(&base).await?.is_some() {
            return Err(Error::input(format!(
                "table {} is append-only: it was created or enabled without a primary key, and cannot \
                 get one; write its rows into another table",
                self.uri()
            )));
        }
        with_key(&Schema::from(base.schema()), key).map_err(|error| in_table(self.uri(), error))?;
        if let Some(rule) = rule {
            checked_rule(self, base.schema(), key, rule).await?;
        }
        let action = format!("setting the primary key of table {}", self.uri());
        let mut base = committing(&base).await.context(&action)?;
        let mut tightened = Vec::new();
        let mut marks = Vec::new();
        for (index, name) in key.iter().enumerate() {
            let field = base.schema().fields.iter().find(|field| field.name == *name);
            let field =
                field.ok_or_else(|| Error::input(format!("{action}: no column '{name}'")))?;
            if field.nullable {
                tightened.push(ColumnAlteration::new(name.clone()).set_nullable(false));
            }
            marks.push((field.id, (index + 1).to_string()));
        }
        if !tightened.is_empty() {
            base.alter_columns(&tightened).await.context(&action)?;
        }
        let mut update = base.update_field_metadata();
        for (id, position) in &marks {
            let marks = [(KEY_MARK, "true"), (KEY_POSITION, position.as_str())];
            update = update.update(*id, marks).context(&action)?;
        }
        update.await.context(&action)?;
        Ok(())
    }
}
