//! Every kind of damage at many positions of every file of an SSTable: each is found.
//! Owns these stories only; does not own the engine's rules, which are in the modules under test.

use std::fs;
use std::path::{Path, PathBuf};

use lance_core::utils::tempfile::TempStrDir;
use lance_file::version::LanceFileVersion;
use lancemem_core::types::ErrorKind;
use lancemem_testkit::damage::{damages, positions};

use super::key_types::Key;
use super::support::{Table, WrittenSsTable, listed};
use super::{BASE, PUTS};
use crate::errors::SsTableErrors;
use crate::snapshot::SsTableCache;
use crate::sstable::{Compared, DamagedFile, SsTableFiles, compare, open_sstable};

/// The files below `folder`, each with its path there.
pub(super) fn files(folder: &Path) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                found.push((name, path));
            }
        }
    }
    found.sort();
    found
}

async fn compared(sstable: &WrittenSsTable) -> lancemem_core::types::Result<Compared> {
    let name = &sstable.written.path;
    let dataset = open_sstable(&sstable.context, name).await.in_sstable(name)?;
    compare(&dataset, SsTableFiles::All).await.in_sstable(name)
}

/// The first handle of a process.
async fn opened(table: &Table, sstable: &WrittenSsTable) -> lancemem_core::types::Result<()> {
    let listed = listed(&sstable.written.path, Some(sstable.written.physical_rows));
    let cache = SsTableCache::default();
    let handle = cache.open(&table.base, table.shard, &listed).await?;
    handle.filter().await?;
    handle.verify().await
}

#[tokio::test]
async fn damage_anywhere_in_a_file_of_an_sstable_is_found_and_named() {
    let directory = TempStrDir::default();
    let table = Table::create(directory.as_str(), Key::Utf8, BASE).await;
    let sstable = table.write(1, PUTS).await;
    let whole = compared(&sstable).await.unwrap();
    let files = files(Path::new(&sstable.local_folder()));
    let manifest = |name: &str| name.starts_with("_versions");
    assert_eq!(files.len(), 6, "{files:?}");
    assert_eq!((whole.files, whole.damaged.len()), (5, 0));
    opened(&table, &sstable).await.unwrap();
    let mut count = 0;
    for (name, path) in &files {
        let bytes = fs::read(path).unwrap();
        // No reader uses the version in the last bytes of a manifest file.
        let end = bytes.len() - if manifest(name) { 8 } else { 0 };
        for (at, kind, damaged) in damages(&bytes, positions(end)) {
            count += 1;
            fs::write(path, damaged).unwrap();
            match compared(&sstable).await {
                Ok(Compared { damaged, .. }) => {
                    let named: Vec<&str> = damaged.iter().map(|it| it.file.as_str()).collect();
                    assert_eq!(named, [name.as_str()], "{kind:?} at {at}");
                }
                Err(error) => {
                    assert!(manifest(name), "{kind:?} at {at} of {name}: {error}");
                    assert_eq!(error.kind(), ErrorKind::Corruption, "{kind:?} at {at}: {error}");
                }
            }
            if at % 10 == 0 {
                let error = opened(&table, &sstable).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corruption, "{kind:?} at {at}: {error}");
            }
        }
        fs::write(path, bytes).unwrap();
    }
    assert!(count > 5_000, "{count}");
    assert_eq!(compared(&sstable).await.unwrap(), whole, "healed");
}

#[tokio::test]
async fn a_removed_file_of_an_sstable_is_missing() {
    let directory = TempStrDir::default();
    let table = Table::create(directory.as_str(), Key::Int64, BASE).await;
    let sstable = table.write(1, PUTS).await;
    let folder = sstable.local_folder();
    for (name, path) in files(Path::new(&folder)) {
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        match compared(&sstable).await {
            Ok(Compared { damaged, .. }) => {
                assert_eq!(damaged, [DamagedFile { file: name, kind: "missing" }]);
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corruption, "{name}: {error}"),
        }
        fs::write(path, bytes).unwrap();
    }
}

#[tokio::test]
async fn every_way_to_write_an_sstable_records_checksums() {
    for version in [LanceFileVersion::Legacy, LanceFileVersion::V2_0, LanceFileVersion::V2_1] {
        let directory = TempStrDir::default();
        let table = Table::create_with(directory.as_str(), Key::Int64, BASE, Some(version)).await;
        let found = compared(&table.write(1, PUTS).await).await.unwrap();
        assert_eq!((found.files, found.damaged), (5, Vec::new()), "{version:?}");
    }
    let table = Table::create_in_memory(Key::Int64, BASE).await;
    let found = compared(&table.write(1, PUTS).await).await.unwrap();
    assert_eq!((found.files, found.damaged), (5, Vec::new()), "in an object store");
}
