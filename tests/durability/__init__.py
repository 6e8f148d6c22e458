"""The meaning of an acknowledgement, with real processes, real kills and simulated power cuts."""
