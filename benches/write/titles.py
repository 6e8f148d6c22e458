"""The titles of the tables of the write path, in the order of the page.

Owns: the titles. Does not own: the cases, which need every peer to be installed.
"""

# By the bench of a comparison; a case may have several.
TITLES = {
    "put": "put from Python, not durable, against pylance: bursts",
    "put-sustained": "put from Python, not durable, against pylance: flush and close included",
    "key-value": "put from Python, not durable, against RocksDB and SlateDB: bursts",
    "key-value-sustained": (
        "put from Python, not durable, against RocksDB and SlateDB: flush and close included"
    ),
    "durable": "durable put with fsync, one producer, against the same calls by hand",
    "producers": "durable put with fsync, 16 producers against one",
    "unsynced": "durable put without fsync, against pylance",
    "writer": "durable put of one row through a table's writer, against a put of a job",
    "writer-threads": "durable puts of four threads through one writer, against one thread",
    "upsert": "upsert in a loop without a writer, against a job for each row",
    "replay": "replay of a WAL that a dead process left, against pylance",
    "flush": "flush of a MemTable, against pylance and lance",
}
