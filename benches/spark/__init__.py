"""lancemem inside Spark, beside Spark without lancemem: `make bench-spark`."""
