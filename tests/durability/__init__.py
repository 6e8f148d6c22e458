"""What an acknowledgement means, held with real processes, real kills and simulated power cuts."""
