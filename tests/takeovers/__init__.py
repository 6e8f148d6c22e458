"""Processes that take one shard from each other, and whether what each saw is one history."""
