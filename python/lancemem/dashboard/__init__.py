"""A page that shows a table: shards, SSTables, logs, compactions and rates over time.

Owns: nothing but the order: `recorder` samples the table, `pictures` draws, `page` writes the HTML,
`server` serves it. Does not own: the samples (`lancemem.samples`).
"""
