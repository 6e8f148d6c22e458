"""Stories of lancemem on a real Spark."""
