"""Histories of a whole table: processes that write, read, maintain and commit beside each other."""
