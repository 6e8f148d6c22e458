//! Reads a table as an async stream of record batches.
//!
//! Owns: an example: `cargo run --release --example scan -- /data/board.lance "price > 3"`.
//! Does not own: writing; see the README.

#![expect(clippy::print_stdout, reason = "an example prints")]

use futures::TryStreamExt;
use lancemem::{Condition, Consistency, Result, Scan, ScanOptions, Table};

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let Some(uri) = arguments.next() else {
        println!("usage: scan TABLE [CONDITION]");
        return Ok(());
    };
    let filter = arguments.next().map(Condition::Sql);
    let table = Table::open(&uri).await?;

    // Each scan of the table takes a snapshot of its own; batches come as they are pulled.
    let options = ScanOptions::default().with_filter(filter);
    let (schema, mut batches) = table.scan(options.clone(), Vec::new()).batches().await?;
    println!("{} columns", schema.fields().len());
    let mut rows = 0;
    while let Some(batch) = batches.try_next().await? {
        rows += batch.num_rows();
    }
    println!("{rows} rows");

    // Two reads of one snapshot agree, whatever is written meanwhile.
    let snapshot = table.snapshot(Consistency::Durable, &[]).await?;
    let scan = Scan::of_snapshot(table.clone(), snapshot.clone(), options.clone());
    let counted = scan.count_rows().await?;
    let again = Scan::of_snapshot(table, snapshot, options).count_rows().await?;
    println!("{counted} rows, and again {again}");
    Ok(())
}
