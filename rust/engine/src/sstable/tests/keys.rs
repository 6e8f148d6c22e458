//! The key index and the bloom filter of an SSTable, probed with present and absent keys.
//! Owns these stories only; does not own the engine's rules, which are in the modules under test.

use datafusion::scalar::ScalarValue;
use lance::dataset::mem_wal::index::encode_pk_tuple;
use lance::dataset::mem_wal::scanner::exec::compute_pk_hash;
use lance_core::utils::bloomfilter::sbbf::Sbbf;
use lance_core::utils::tempfile::TempStrDir;
use lancemem_core::format::KeyEncoder;

use super::key_types::Key;
use super::support::Table;
use crate::sstable::{KeyFilter, KeyIndex, is_ours};

#[tokio::test]
async fn every_key_is_in_the_filter_and_few_others_are() {
    let mut keys = Key::NUMEROUS.to_vec();
    keys.push(Key::Bool);
    for key in keys {
        let ids: Vec<u32> = if key == Key::Bool { vec![1] } else { (0..100).collect() };
        let puts: Vec<(u32, Option<i64>)> = ids.iter().map(|id| (*id, Some(0))).collect();
        let directory = TempStrDir::default();
        let table = Table::create(directory.as_str(), key, &[0]).await;
        let sstable = table.write(1, &[&puts]).await;
        let bytes = std::fs::read(format!("{}/bloom_filter.bin", sstable.local_folder())).unwrap();
        let filter = Sbbf::new(&bytes).unwrap();
        let found = |ids: &[u32]| {
            let batch = key.batch(ids);
            let columns: Vec<usize> = (0..batch.num_columns()).collect();
            let hit = |row: &usize| filter.check_hash(compute_pk_hash(&batch, &columns, *row));
            (0..batch.num_rows()).filter(hit).count()
        };
        assert_eq!(found(&ids), ids.len(), "{key:?}");
        let absent: Vec<u32> = if key == Key::Bool { vec![0] } else { (100..200).collect() };
        assert!(found(&absent) <= 2, "{key:?}");
    }
}

#[tokio::test]
async fn a_key_index_of_many_pages_finds_each_key_and_no_other() {
    for key in [Key::Int64, Key::Utf8, Key::Composite] {
        // Every third id of 60,000 in an order far from sorted, in many puts, one third twice.
        let ids: Vec<u32> = (0..20_000_u32).map(|i| i * 7_919 % 20_000 * 3).collect();
        let rows: Vec<(u32, Option<i64>)> = ids
            .iter()
            .chain(&ids[..7_000])
            .enumerate()
            .map(|(i, id)| (*id, Some(i64::try_from(i).unwrap())))
            .collect();
        let puts: Vec<&[(u32, Option<i64>)]> = rows.chunks(611).collect();
        let directory = TempStrDir::default();
        let table = Table::create(directory.as_str(), key, &[1, 3]).await;
        let sstable = table.write(1, &puts).await;
        let probed: Vec<u32> = (0..60_000).collect();
        let scanner = sstable.scanner(&table);
        let found = scanner.contains_pks(&key.batch(&probed)).await.unwrap();
        for (id, found) in probed.iter().zip(found) {
            assert_eq!(found, id % 3 == 0, "{key:?} {id}");
        }
        sstable.assert_reads_like(&table).await;
    }
}

#[tokio::test]
async fn filter_and_key_index_lead_to_the_newest_row_of_every_key() {
    for key in Key::NUMEROUS {
        let first: Vec<(u32, Option<i64>)> = (0..900).map(|id| (id, Some(0))).collect();
        let puts: &[&[(u32, Option<i64>)]] = &[&first, &[(5, Some(1)), (7, None)], &[(5, None)]];
        let directory = TempStrDir::default();
        let table = Table::create(directory.as_str(), key, &[0]).await;
        let sstable = table.write(1, puts).await.open().await;
        assert!(is_ours(&sstable));
        let (filter, index) =
            (KeyFilter::read(&sstable).await.unwrap(), KeyIndex::open(&sstable).await.unwrap());
        let asked = key.batch(&[0, 5, 7, 899, 900, 12_345]);
        let encoded =
            KeyEncoder::new(asked.schema_ref(), &key.names()).unwrap().encode_block(&asked);
        let newest = [Some(0), Some(902), Some(901), Some(899), None, None];
        for (row, expected) in newest.into_iter().enumerate() {
            let value = match asked.columns() {
                [column] => ScalarValue::try_from_array(column, row).unwrap(),
                _ => ScalarValue::Binary(Some(encoded.get(row).to_vec())),
            };
            assert_eq!(index.newest(value).await.unwrap(), expected, "{key:?} {row}");
            assert!(expected.is_none() || filter.may_hold(&asked, row), "{key:?} {row}");
        }
    }
}

#[tokio::test]
async fn composite_keys_are_encoded_as_lance_encodes_them() {
    let batch = Key::Composite.batch(&[0, 1, 2, 255, 256, 70_000]);
    let names: Vec<String> = Key::Composite.names();
    let ours = KeyEncoder::new(batch.schema_ref(), &names).unwrap().encode(&batch);
    for (row, key) in ours.iter().enumerate() {
        let tuple: Vec<_> =
            batch.columns().iter().map(|c| ScalarValue::try_from_array(c, row).unwrap()).collect();
        assert_eq!(key.as_slice(), encode_pk_tuple(&tuple).unwrap());
    }
}
