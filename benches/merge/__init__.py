"""Tables with a merge rule beside tables without one, `merge_insert` and `keep_newest`."""
