"""The read path beside its peers."""
