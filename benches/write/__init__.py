"""Benches of the write path against peers: `python -m benches.write`.

Owns: the map of the package. `data` makes rows, `peers` drive one engine each, `cases` pair them,
`runner` and `stats` interleave and judge, `children` and `fsync` isolate a side in a process of its
own, `report` and `picture` write results. Does not own: benches from Rust (`benches/*.rs`).
"""
