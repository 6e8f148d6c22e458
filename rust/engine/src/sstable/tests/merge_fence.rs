//! SSTables of tables with a merge rule: lance refuses them, and lancemem reads those of its rule.
//! Owns these stories only; does not own the engine's rules, which are in the modules under test.

use std::fs;
use std::path::Path;

use lance::Dataset;
use lance::dataset::mem_wal::{DatasetMemWalExt, ShardWriterConfig};
use lance_core::utils::tempfile::TempStrDir;
use lance_table::feature_flags::FLAG_DELETION_FILES;
use lance_table::format::pb::Manifest as ManifestMessage;
use lancemem_core::format::checksummed;
use lancemem_core::merge::MergeRule;
use lancemem_core::types::ErrorKind;
use prost::Message;

use super::damage::files;
use super::key_types::Key;
use super::support::{Table, WrittenSsTable, listed};
use super::{BASE, PUTS};
use crate::errors::SsTableErrors;
use crate::snapshot::SsTableCache;
use crate::sstable::{SsTableFiles, compare, open_sstable};

/// What lance answers for a dataset with a reader flag that it does not know.
const REFUSED: &str = "cannot be read by this version of Lance";
const BY_TIME: &str = concat!(
    r#"{"format":1,"engine":"deduplicate","sequence":[1],"groups":[],"functions":{},"#,
    r#""deletes":"remove","nulls":"set","delete_retention_ms":604800000}"#
);

fn by_time() -> MergeRule {
    MergeRule::from_json(BY_TIME).unwrap()
}

fn first_row() -> MergeRule {
    MergeRule::from_json(
        &BY_TIME
            .replace("deduplicate", "first_row")
            .replace(",\"delete_retention_ms\":604800000", ""),
    )
    .unwrap()
}

/// The message of an SSTable's manifest, without its checksum.
fn message_of(sstable: &WrittenSsTable) -> ManifestMessage {
    let versions = Path::new(&sstable.local_folder()).join("_versions");
    let [(_, path)] = files(&versions).try_into().unwrap();
    let bytes = fs::read(path).unwrap();
    let footer = bytes.len() - 16;
    let start = u64::from_le_bytes(bytes[footer..footer + 8].try_into().unwrap());
    let message = &bytes[usize::try_from(start).unwrap() + 4..footer];
    ManifestMessage::decode(checksummed::unseal(message, "m").unwrap()).unwrap()
}

#[tokio::test]
async fn lance_reads_no_sstable_of_a_table_with_a_rule() {
    for key in [Key::Int64, Key::Composite] {
        let directory = TempStrDir::default();
        let table = Table::create(directory.as_str(), key, BASE).await;
        let sstable = table.write_under(Some(&by_time()), 1, PUTS).await;
        let opened = Dataset::open(&sstable.local_folder()).await.unwrap_err();
        assert!(opened.to_string().contains(REFUSED), "{opened}");
        let scanned = sstable.scanner(&table).try_into_batch().await.unwrap_err();
        assert!(scanned.to_string().contains(REFUSED), "{scanned}");
        let found = sstable.scanner(&table).contains_pks(&key.batch(&[3])).await.unwrap_err();
        assert!(found.to_string().contains(REFUSED), "{found}");
        // The base table alone stays readable.
        assert_eq!(table.base.count_rows(None).await.unwrap(), BASE.len());
    }
}

#[tokio::test]
async fn lancemem_reads_an_sstable_of_the_rule_of_its_table() {
    let directory = TempStrDir::default();
    let table = Table::create(directory.as_str(), Key::Int64, BASE).await;
    let (plain, ruled) =
        (table.write(1, PUTS).await, table.write_under(Some(&by_time()), 2, PUTS).await);
    let (plain, opened) = (plain.open().await, ruled.open().await);
    let rows = async |sstable: &Dataset| sstable.scan().try_into_batch().await.unwrap();
    assert_eq!(rows(&opened).await, rows(&plain).await);
    // What lance sees has no flag that it would have to know.
    assert_eq!(opened.manifest().reader_feature_flags, plain.manifest().reader_feature_flags);
    let compared = compare(&opened, SsTableFiles::All).await.unwrap();
    assert_eq!((compared.files, compared.damaged.len()), (5, 0));
}

#[tokio::test]
async fn the_fence_of_an_sstable_has_the_bytes_of_the_format() {
    let directory = TempStrDir::default();
    let table = Table::create(directory.as_str(), Key::Int64, BASE).await;
    let ruled = message_of(&table.write_under(Some(&by_time()), 1, PUTS).await);
    assert_eq!(ruled.reader_feature_flags, 1 << 62 | FLAG_DELETION_FILES);
    assert_eq!(ruled.config["lancemem.rule"], "a6c78304");
    let plain = message_of(&table.write(2, PUTS).await);
    assert_eq!(plain.reader_feature_flags, FLAG_DELETION_FILES);
    assert!(!plain.config.contains_key("lancemem.rule"));
}

#[tokio::test]
async fn an_sstable_of_another_rule_is_damage() {
    let directory = TempStrDir::default();
    let table = Table::create(directory.as_str(), Key::Int64, BASE).await;
    let rules = [None, Some(by_time()), Some(first_row())];
    for (place, written) in rules.iter().enumerate() {
        let sstable = table.write_under(written.as_ref(), 1, PUTS).await;
        let name = &sstable.written.path;
        for (other, read) in rules.iter().enumerate() {
            let mut context = sstable.context.clone().with_rule(read.as_ref());
            for verifies in [true, false] {
                context.verifies = verifies;
                let opened = open_sstable(&context, name).await.in_sstable(name);
                if place == other {
                    opened.unwrap();
                    continue;
                }
                let error = opened.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corruption);
                assert!(
                    error.to_string().contains("the manifest records the merge rule"),
                    "{error}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_reader_of_a_table_with_a_rule_opens_its_sstables_alone() {
    let directory = TempStrDir::default();
    let table = Table::create(directory.as_str(), Key::Int64, BASE).await;
    let sstable = table.write_under(Some(&by_time()), 1, PUTS).await;
    let listed = listed(&sstable.written.path, Some(sstable.written.physical_rows));
    let ruled = SsTableCache::default().with_rule(Some(by_time().into()));
    ruled.open(&table.base, table.shard, &listed).await.unwrap().verify().await.unwrap();
    let plain = SsTableCache::default();
    let error = plain.open(&table.base, table.shard, &listed).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
}

#[tokio::test]
async fn an_sstable_of_lance_is_none_of_a_table_with_a_rule() {
    let directory = TempStrDir::default();
    let mut table = Table::create(directory.as_str(), Key::Int64, BASE).await;
    table.base.initialize_mem_wal().unsharded().execute().await.unwrap();
    let config = ShardWriterConfig::new(table.shard);
    let writer = table.base.mem_wal_writer(table.shard, config).await.unwrap();
    let row = table.base.scan().limit(Some(1), None).unwrap().try_into_batch().await.unwrap();
    writer.put(vec![row]).await.unwrap();
    let manifests = writer.manifest_store();
    writer.close().await.unwrap();
    let theirs = manifests.latest().await.unwrap().unwrap().sstables[0].path.clone();
    let context = table.write(1, PUTS).await.context;
    open_sstable(&context, &theirs).await.unwrap();
    let context = context.with_rule(Some(&by_time()));
    let error = open_sstable(&context, &theirs).await.in_sstable(&theirs).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.to_string().contains("another program wrote the SSTable"), "{error}");
}

#[tokio::test]
async fn a_damaged_manifest_is_read_without_verification_behind_the_fence_too() {
    let directory = TempStrDir::default();
    let table = Table::create(directory.as_str(), Key::Int64, BASE).await;
    let sstable = table.write_under(Some(&by_time()), 1, PUTS).await;
    let versions = Path::new(&sstable.local_folder()).join("_versions");
    let [(_, path)] = files(&versions).try_into().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    // Another letter of a checksum of a file: the message can be decoded.
    let sum = bytes.windows(15).position(|it| it == b"lancemem.crc32/").unwrap();
    let digit = bytes[sum..].windows(2).position(|it| it == b"\x12\x08").unwrap() + sum + 2;
    bytes[digit] = if bytes[digit] == b'0' { b'1' } else { b'0' };
    fs::write(&path, bytes).unwrap();
    let name = &sstable.written.path;
    let error = open_sstable(&sstable.context, name).await.in_sstable(name).unwrap_err();
    assert!(error.to_string().contains("checksum mismatch in the manifest"), "{error}");
    let mut context = sstable.context.clone();
    context.verifies = false;
    let opened = open_sstable(&context, name).await.unwrap();
    assert!(opened.count_rows(None).await.unwrap() > 0);
}
