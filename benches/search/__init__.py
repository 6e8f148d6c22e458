"""Vector search beside pylance's search of a compacted copy, and beside its LSM planner."""
