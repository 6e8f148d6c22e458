"""lancemem inside Spark, beside what Spark does without it: `make bench-spark`."""
