//! The specifications of the MemWAL index: how rows are spread over shards, and the merge rule.
//!
//! Owns: reading both, and the index entry of a table with a rule.
//! Does not own: the rule itself (the core's `merge`), or what a table with one cannot have (`merge_gate`).
//!
//! Lance knows sharding specifications only, and refuses to write where there are two. So the rule is
//! the second one: no program that ignores the rule writes rows above the base table.

use std::collections::HashMap;
use std::sync::Arc;

use lance::Dataset;
use lance::dataset::CommitBuilder;
use lance::dataset::transaction::{Operation, Transaction};
use lance_index::mem_wal::{MemWalIndexDetails, ShardingField, ShardingSpec};
use lance_table::system_index::mem_wal::new_mem_wal_index_meta;
use lancemem_core::format::Sharding;
use lancemem_core::merge::{MergeRule, RuleError};
use lancemem_core::types::{Error, Result};

use super::SHARDING_FIELD;
use crate::compaction::{committing, forgetting_deletes};
use crate::schema::rule_in_table;

/// The id of the specification of the rule. Lance counts those of shardings from 1.
const RULE_SPEC: u32 = 0x7fff_ffff;
/// The field and the transform of that specification.
const MERGE: &str = "lancemem:merge";
/// The parameter with the stored text of the rule.
const RULE: &str = "rule";
/// The id that Lance gives the only sharding of a table.
const SHARDING_SPEC: u32 = 1;

/// What the specifications of a MemWAL index record.
#[derive(Clone, Debug)]
pub(super) struct Specifications {
    /// The id of the sharding specification; 0 where callers name the shards.
    pub spec_id: u32,
    /// How rows are spread, with its record in shard manifests; `None` where callers name the shards.
    pub sharding: Option<(Sharding, String)>,
    /// The merge rule; `None` for plain `deduplicate`.
    pub rule: Option<Arc<MergeRule>>,
}

impl Specifications {
    /// Reads the specifications of the index of `base`.
    ///
    /// # Errors
    /// An input error that names the table: for a sharding or a rule that this version does not have,
    /// and for more specifications. Damage where the rule cannot be decoded.
    pub fn of(base: &Dataset, details: &MemWalIndexDetails) -> Result<Self> {
        let (rules, shardings): (Vec<&ShardingSpec>, Vec<&ShardingSpec>) =
            details.sharding_specs.iter().partition(|spec| is_rule(spec));
        let refused = |reason: String| {
            Err(Error::input(format!("the MemWAL index of table {} has {reason}", base.uri())))
        };
        let rule = match (rules.as_slice(), shardings.len()) {
            ([], _) => None,
            ([spec], 1) => {
                let rule = rule_of(spec).map_err(|error| rule_in_table(base.uri(), error))?;
                Some(Arc::new(rule))
            }
            (rules, others) => {
                return refused(format!(
                    "{} merge rules and {others} sharding specifications; a table with a rule has one \
                     of each, restore a version of the table that has",
                    rules.len()
                ));
            }
        };
        let (spec_id, sharding) = match shardings.as_slice() {
            [] => (0, None),
            [spec] => (spec.spec_id, Some(meaning_of(base, spec)?)),
            specs => {
                let many = specs.len();
                return refused(format!(
                    "{many} sharding specifications, at most one is supported"
                ));
            }
        };
        Ok(Self { spec_id, sharding, rule })
    }
}

/// Commits the MemWAL index of a table with a rule: the index that Lance's builder makes for the
/// sharding, and the rule in the same commit.
///
/// # Errors
/// An error of lance.
pub(super) async fn add_index_with_rule(
    base: &Dataset,
    sharding: &Sharding,
    rule: &MergeRule,
    settings: HashMap<String, String>,
) -> lance_core::Result<()> {
    let base = committing(base).await?;
    let details = MemWalIndexDetails {
        num_shards: sharding.shards(),
        sharding_specs: vec![sharding_spec(&base, sharding)?, rule_spec(rule)],
        maintain_all_indexes: true,
        writer_config_defaults: settings,
        ..MemWalIndexDetails::default()
    };
    let version = base.manifest().version;
    let new_indices = vec![new_mem_wal_index_meta(version, details)?];
    let operation = Operation::CreateIndex { new_indices, removed_indices: Vec::new() };
    let transaction = Transaction::new(version, operation, None);
    let handler = forgetting_deletes(&base);
    let commit = CommitBuilder::new(Arc::new(base)).with_commit_handler(handler);
    commit.execute(transaction).await.map(drop)
}

/// The specification that Lance's builder makes for the sharding.
fn sharding_spec(base: &Dataset, sharding: &Sharding) -> lance_core::Result<ShardingSpec> {
    let (source_ids, transform, parameters) = match sharding {
        Sharding::Unsharded => (Vec::new(), "unsharded", HashMap::new()),
        Sharding::Bucket { column, buckets } => {
            let field = base.schema().field(column).ok_or_else(|| {
                lance_core::Error::invalid_input(format!("sharding column '{column}' is missing"))
            })?;
            let buckets = ("num_buckets".to_owned(), buckets.to_string());
            (vec![field.id], "bucket", HashMap::from([buckets]))
        }
    };
    let field = ShardingField {
        field_id: SHARDING_FIELD.to_owned(),
        source_ids,
        transform: Some(transform.to_owned()),
        expression: None,
        result_type: "int32".to_owned(),
        parameters,
    };
    Ok(ShardingSpec { spec_id: SHARDING_SPEC, fields: vec![field] })
}

fn rule_spec(rule: &MergeRule) -> ShardingSpec {
    let field = ShardingField {
        field_id: MERGE.to_owned(),
        source_ids: Vec::new(),
        transform: Some(MERGE.to_owned()),
        expression: None,
        result_type: "utf8".to_owned(),
        parameters: HashMap::from([(RULE.to_owned(), rule.to_json())]),
    };
    ShardingSpec { spec_id: RULE_SPEC, fields: vec![field] }
}

fn is_rule(spec: &ShardingSpec) -> bool {
    let is_merge = |field: &ShardingField| field.transform.as_deref() == Some(MERGE);
    spec.spec_id == RULE_SPEC || spec.fields.iter().any(is_merge)
}

/// The rule of a specification that [`rule_spec`] made.
fn rule_of(spec: &ShardingSpec) -> Result<MergeRule, RuleError> {
    let undecodable = |reason: &str| RuleError::Undecodable { reason: reason.to_owned() };
    let [field] = spec.fields.as_slice() else {
        return Err(undecodable("its specification has not one field"));
    };
    if spec.spec_id != RULE_SPEC || field.transform.as_deref() != Some(MERGE) {
        return Err(undecodable("its specification has another id or transform"));
    }
    let text = field.parameters.get(RULE);
    let text = text.ok_or_else(|| undecodable("its specification has no text"))?;
    let rule = MergeRule::from_json(text)?;
    if rule.is_plain() {
        return Err(undecodable("it is deduplicate without a sequence, which has no rule"));
    }
    Ok(rule)
}

fn meaning_of(base: &Dataset, spec: &ShardingSpec) -> Result<(Sharding, String)> {
    let unsupported = |reason: String| {
        Error::input(format!(
            "sharding specification {} of table {} is not supported: {reason}",
            spec.spec_id,
            base.uri()
        ))
    };
    let [field] = spec.fields.as_slice() else {
        return Err(unsupported(format!("it has {} fields", spec.fields.len())));
    };
    let column = field.source_ids.first().copied();
    let sharding = match field.transform.as_deref() {
        Some("unsharded") => Sharding::Unsharded,
        Some("bucket") => {
            let buckets = field
                .parameters
                .get("num_buckets")
                .and_then(|number| number.parse().ok())
                .ok_or_else(|| unsupported("it records no number of buckets".to_owned()))?;
            let column = column
                .and_then(|id| base.schema().field_by_id(id))
                .map(|field| field.name.clone())
                .ok_or_else(|| unsupported("its column is not in the table".to_owned()))?;
            Sharding::Bucket { column, buckets }
        }
        other => return Err(unsupported(format!("transform {other:?}; use bucket or unsharded"))),
    };
    let record = sharding.record(column);
    Ok((sharding, record))
}

#[cfg(test)]
mod tests {
    use lance_table::format::pb;
    use prost::Message;

    use super::*;

    #[test]
    fn the_bytes_are_those_of_the_golden_file() {
        let golden: &[u8] = include_bytes!("golden/merge_rule.binpb");
        let stored = pb::ShardingSpec::decode(golden).unwrap();
        let rule = rule_of(&ShardingSpec::from(stored)).unwrap();
        assert_eq!(rule.sequence(), [1]);
        assert_eq!(pb::ShardingSpec::from(&rule_spec(&rule)).encode_to_vec(), golden);
    }
}
