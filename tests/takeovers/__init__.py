"""Processes that claim one shard in turn, and whether their reads and writes are one history."""
