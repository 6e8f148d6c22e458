//! The stored form of a merge rule.
//!
//! Owns: the JSON text, one for each rule, and its reader, which refuses what it does not know: a
//! rule is never read as another one.
//! Does not own: where the text is stored, or whether the rule fits the table.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use serde_json::{Map, Value};

use super::error::RuleError;
use super::function::{Aggregate, KeepEnd, MergeFunction};
use super::rule::{
    DELETE_RETENTION_MS, DeletePolicy, MergeEngine, MergeRule, NullPolicy, SequenceGroup,
};

/// The only format that there is.
const FORMAT: u64 = 1;

type Object = Map<String, Value>;
type Result<T> = std::result::Result<T, RuleError>;

impl MergeRule {
    /// The rule as JSON: the same text for equal rules, in every process.
    #[must_use]
    pub fn to_json(&self) -> String {
        Printed(self).to_string()
    }

    /// Reads a rule that [`Self::to_json`] wrote. Members may stand in any order.
    ///
    /// # Errors
    /// [`RuleError::Undecodable`] for a text that is no rule, [`RuleError::LaterVersion`] for a format,
    /// a name or a member that this version does not have.
    pub fn from_json(text: &str) -> Result<Self> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| undecodable(error.to_string()))?;
        let Value::Object(rule) = value else { return Err(undecodable("it is no object")) };
        match rule.get("format").and_then(Value::as_u64) {
            Some(FORMAT) => {}
            Some(other) => return Err(later(format!("format {other}"))),
            None => return Err(undecodable("it has no format")),
        }
        refuse_unknown(
            &rule,
            &[
                "format",
                "engine",
                "sequence",
                "groups",
                "functions",
                "deletes",
                "nulls",
                "delete_retention_ms",
            ],
        )?;
        let retention = rule.get("delete_retention_ms");
        let read = Self {
            engine: choice(&rule, "engine", MergeEngine::from_name)?,
            sequence: field_ids(&rule, "sequence")?,
            groups: groups(&rule)?,
            functions: functions(&rule)?,
            deletes: choice(&rule, "deletes", DeletePolicy::from_name)?,
            nulls: choice(&rule, "nulls", NullPolicy::from_name)?,
            delete_retention_ms: match retention {
                Some(ms) => ms.as_u64().ok_or_else(|| misfit("delete_retention_ms"))?,
                None => DELETE_RETENTION_MS,
            },
        };
        if retention.is_some() == read.remembers_deletes() {
            return Ok(read);
        }
        Err(undecodable("delete_retention_ms does not fit engine and sequence"))
    }
}

struct Printed<'a>(&'a MergeRule);

impl Display for Printed<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let rule = self.0;
        let engine = rule.engine.name();
        write!(f, "{{\"format\":{FORMAT},\"engine\":\"{engine}\",\"sequence\":")?;
        print_ids(f, &rule.sequence)?;
        f.write_str(",\"groups\":[")?;
        for (place, group) in rule.groups.iter().enumerate() {
            f.write_str(if place == 0 { "{\"sequence\":" } else { ",{\"sequence\":" })?;
            print_ids(f, &group.sequence)?;
            f.write_str(",\"columns\":")?;
            print_ids(f, &group.columns)?;
            f.write_str("}")?;
        }
        f.write_str("],\"functions\":{")?;
        for (place, (id, aggregate)) in rule.functions.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}\"{id}\":")?;
            print_function(f, aggregate)?;
        }
        let (deletes, nulls) = (rule.deletes.name(), rule.nulls.name());
        write!(f, "}},\"deletes\":\"{deletes}\",\"nulls\":\"{nulls}\"")?;
        if let Some(ms) = rule.delete_retention_ms() {
            write!(f, ",\"delete_retention_ms\":{ms}")?;
        }
        f.write_str("}")
    }
}

fn print_ids(f: &mut Formatter<'_>, ids: &[i32]) -> fmt::Result {
    f.write_str("[")?;
    for (place, id) in ids.iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        write!(f, "{comma}{id}")?;
    }
    f.write_str("]")
}

/// Parameters at their defaults are left out, so that each function has one text.
fn print_function(f: &mut Formatter<'_>, aggregate: &Aggregate) -> fmt::Result {
    write!(f, "{{\"name\":\"{}\"", aggregate.function.name())?;
    let print_list = |f: &mut Formatter<'_>, distinct: bool, limit: Option<u32>| {
        if distinct {
            f.write_str(",\"distinct\":true")?;
        }
        limit.map_or(Ok(()), |limit| write!(f, ",\"limit\":{limit}"))
    };
    match &aggregate.function {
        MergeFunction::ListAgg { separator, distinct, limit } => {
            write!(f, ",\"separator\":{}", Value::from(separator.as_str()))?;
            print_list(f, *distinct, *limit)?;
        }
        MergeFunction::Collect { distinct, limit, keep } => {
            print_list(f, *distinct, *limit)?;
            if *keep == KeepEnd::Last {
                f.write_str(",\"keep\":\"last\"")?;
            }
        }
        MergeFunction::User { name } => {
            write!(f, ",\"function\":{}", Value::from(name.as_str()))?;
        }
        _ => {}
    }
    if aggregate.ignore_retract {
        f.write_str(",\"ignore_retract\":true")?;
    }
    f.write_str("}")
}

fn groups(rule: &Object) -> Result<Vec<SequenceGroup>> {
    let groups = rule.get("groups").and_then(Value::as_array).ok_or_else(|| misfit("groups"))?;
    let group = |value: &Value| {
        let group = value.as_object().ok_or_else(|| misfit("groups"))?;
        refuse_unknown(group, &["sequence", "columns"])?;
        let (sequence, columns) = (field_ids(group, "sequence")?, field_ids(group, "columns")?);
        Ok(SequenceGroup { sequence, columns })
    };
    groups.iter().map(group).collect()
}

fn functions(rule: &Object) -> Result<BTreeMap<i32, Aggregate>> {
    let entries =
        rule.get("functions").and_then(Value::as_object).ok_or_else(|| misfit("functions"))?;
    let mut functions = BTreeMap::new();
    for (id, value) in entries {
        let parsed =
            id.parse().ok().filter(|parsed: &i32| *parsed >= 0 && parsed.to_string() == *id);
        let id = parsed.ok_or_else(|| undecodable(format!("'{id}' is no field id")))?;
        functions.insert(id, function(id, value)?);
    }
    Ok(functions)
}

fn function(id: i32, value: &Value) -> Result<Aggregate> {
    let entry = value.as_object().ok_or_else(|| misfit("functions"))?;
    let name = text(entry, "name")?;
    let (distinct, limit) = (flag(entry, "distinct")?, limit(entry)?);
    let (function, members): (MergeFunction, &[&str]) = match name {
        "listagg" => {
            let separator = text(entry, "separator")?.to_owned();
            let function = MergeFunction::ListAgg { separator, distinct, limit };
            (function, &["separator", "distinct", "limit"])
        }
        "collect" => {
            let keep = match entry.get("keep").map(Value::as_str) {
                None | Some(Some("first")) => KeepEnd::First,
                Some(Some("last")) => KeepEnd::Last,
                Some(_) => return Err(misfit("keep")),
            };
            (MergeFunction::Collect { distinct, limit, keep }, &["distinct", "limit", "keep"])
        }
        "user" => {
            (MergeFunction::User { name: text(entry, "function")?.to_owned() }, &["function"])
        }
        _ => {
            let function = MergeFunction::from_name(&format!("field id {id}"), name);
            (function.map_err(|_| later(format!("the function '{name}'")))?, &[])
        }
    };
    let known: Vec<&str> = ["name", "ignore_retract"].iter().chain(members).copied().collect();
    refuse_unknown(entry, &known)?;
    function.check_parameters(&format!("field id {id}"))?;
    Ok(Aggregate { function, ignore_retract: flag(entry, "ignore_retract")? })
}

fn limit(entry: &Object) -> Result<Option<u32>> {
    let Some(value) = entry.get("limit") else { return Ok(None) };
    let limit = value.as_u64().and_then(|limit| u32::try_from(limit).ok());
    limit.map(Some).ok_or_else(|| misfit("limit"))
}

fn flag(entry: &Object, member: &'static str) -> Result<bool> {
    entry.get(member).map_or(Ok(false), |value| value.as_bool().ok_or_else(|| misfit(member)))
}

fn text<'a>(entry: &'a Object, member: &'static str) -> Result<&'a str> {
    entry.get(member).and_then(Value::as_str).ok_or_else(|| misfit(member))
}

fn choice<T>(
    rule: &Object,
    member: &'static str,
    from_name: impl Fn(&str) -> Option<T>,
) -> Result<T> {
    let name = text(rule, member)?;
    from_name(name).ok_or_else(|| later(format!("{member} '{name}'")))
}

fn field_ids(object: &Object, member: &'static str) -> Result<Vec<i32>> {
    let ids = object.get(member).and_then(Value::as_array).ok_or_else(|| misfit(member))?;
    let id = |value: &Value| {
        let id = value.as_i64().and_then(|id| i32::try_from(id).ok());
        id.filter(|id| *id >= 0).ok_or_else(|| misfit(member))
    };
    ids.iter().map(id).collect()
}

fn refuse_unknown(object: &Object, known: &[&str]) -> Result<()> {
    match object.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(later(format!("the member '{name}'"))),
        None => Ok(()),
    }
}

fn misfit(member: &str) -> RuleError {
    undecodable(format!("'{member}' is missing or has another type"))
}

fn undecodable(reason: impl Into<String>) -> RuleError {
    RuleError::Undecodable { reason: reason.into() }
}

fn later(found: impl Into<String>) -> RuleError {
    RuleError::LaterVersion { found: found.into() }
}
