"""Compaction beside `merge_insert` of the same rows.

Owns: the tables, the measurements and the report. Does not own: statistics and the facts of the
machine (`benches.write`).
"""
