"""Transaction ids of Spark's writes: a repeated task, batch or query writes once.

Owns the names of transaction ids, and the version of lancemem that every process of a Spark
application must share. Does not own what a transaction id does: see `lancemem.Table.upsert`.
"""

from __future__ import annotations

import operator
import secrets
import time
from typing import TYPE_CHECKING

import lancemem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Txn = tuple[str, int]

# The engine's limits on a transaction id.
VERSIONS = 1 << 63
MAX_NAME_BYTES = 256

# Set by Spark for the jobs of a micro-batch, on the driver and in every task.
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


def once() -> Txn:
    """Make the transaction id of a write for which the user gave none.

    It makes retries, speculative copies and zombies of a call's tasks harmless. A shard remembers
    only the newest ids, ordered by name, so the name starts with the time.
    """
    return f"once:{time.time_ns():016x}-{secrets.token_hex(8)}", 0


def of_application(txn_app_id: str | None, txn_version: str | int | None) -> Txn | None:
    """Make the transaction id from Delta's two options; None without them."""
    if txn_app_id is None and txn_version is None:
        return None
    if txn_app_id is None or txn_version is None:
        raise lancemem.InvalidInputError(
            "an application and its version go together (txn_app_id, txn_version; as options "
            "txnAppId, txnVersion): give both or none"
        )
    try:
        # int() would truncate a version such as 1.7 to 1, and the write would count as written.
        version = int(txn_version) if isinstance(txn_version, str) else operator.index(txn_version)
    except (TypeError, ValueError):
        raise lancemem.InvalidInputError(
            f"txnVersion is an integer that increases with each write, got {txn_version!r}"
        ) from None
    if not -VERSIONS <= version < VERSIONS:
        raise lancemem.InvalidInputError(f"txnVersion is an integer of 64 bits, got {version}")
    name = f"app:{txn_app_id}"
    beyond = len(name.encode()) - MAX_NAME_BYTES
    if beyond > 0:
        most = MAX_NAME_BYTES - len("app:")
        raise lancemem.InvalidInputError(f"txnAppId has at most {most} bytes, got {most + beyond}")
    return name, version


def of_micro_batch(query_id: str, batch_id: int) -> Txn:
    """Make the transaction id of a micro-batch; a restarted query keeps its id."""
    return f"stream:{query_id}", batch_id


def streaming_query_id(spark: SparkSession) -> str:
    """Return the id of the query whose foreachBatch function calls this."""
    query_id = spark.sparkContext.getLocalProperty(QUERY_ID)
    if not query_id:
        raise lancemem.InvalidInputError(
            "no streaming query: call this in the function of foreachBatch"
        )
    return str(query_id)


def check_version(driver: str) -> None:
    """Refuse to work in a process whose lancemem has another version than the driver's."""
    if driver == lancemem.__version__:
        return
    raise lancemem.LancememError(
        f"this Spark task runs lancemem {lancemem.__version__}, the driver has {driver}: install "
        "one version, and let PYSPARK_PYTHON name its interpreter on every node"
    )
