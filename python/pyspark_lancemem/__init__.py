"""Makes ``spark.read.format("lancemem")`` work without a registration.

Spark imports every top-level module whose name starts with ``pyspark_`` and registers its
`DefaultSource`. Owns nothing else.
"""

from lancemem.spark.source import LancememDataSource as DefaultSource

__all__ = ["DefaultSource"]
