"""Benches of the write path against peers: `python -m benches.write`.

Owns: the map of the package. `data` makes rows, `peers` drive one engine each, `cases` pair them.
`runner` and `stats` interleave and judge. `children` and `fsync` run a side in its own process.
`report` and `picture` write results. Does not own: benches from Rust (`benches/*.rs`).
"""
