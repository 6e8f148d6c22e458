"""How many shards a new table gets where its creator names none.

Owns the rule and its reason as text. Does not own what a shard is, or how rows are routed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from lancemem import _lancemem

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lancemem._lancemem import Sharding

__all__ = ["ShardingAdvice", "advise_sharding"]

# Bytes of rows, in memory, that one shard takes before another one is worth its price.
_BYTES_PER_SHARD = 4 << 30
_MAX_SHARDS = 64


class ShardingAdvice(NamedTuple):
    """A sharding, and why it was chosen; `str` is the reason.

    Attributes:
        sharding: The sharding, for `create_table` or `enable`.
        reason: Why, in a sentence.
    """

    sharding: Sharding
    reason: str

    def __str__(self) -> str:
        return self.reason


def advise_sharding(
    schema: pa.Schema,
    primary_key: str | Sequence[str] | None,
    *,
    num_bytes: int | None = None,
    processors: int | None = None,
) -> ShardingAdvice:
    """Choose the sharding of a new table, and say why. `create_table` asks this by default.

    The sharding of a table cannot be changed later. Where more processes will write than the rows
    of the beginning show, choose `bucket` with a shard for each writer (docs/write-path.md).

    Args:
        schema: The columns.
        primary_key: As in `create_table`.
        num_bytes: The size of the rows in memory. Default: unknown.
        processors: Processors of the machine that writes. Default: those of this one.

    Returns:
        The sharding with the reason.

    Example:
        print(lancemem.advise_sharding(schema, "id", num_bytes=20 << 30))
    """
    # `create_table` refuses what is neither a name nor a list.
    names = primary_key if isinstance(primary_key, Iterable) else ()
    key = [primary_key] if isinstance(primary_key, str) else list(names)
    one = _lancemem.unsharded()
    if num_bytes is None:
        return ShardingAdvice(one, "one shard: the size of the rows is not known")
    size = f"{num_bytes / (1 << 30):.1f} GiB of rows"
    if num_bytes <= _BYTES_PER_SHARD:
        return ShardingAdvice(one, f"one shard: {size}, and one takes 4 GiB")
    column = next((name for name in key if _can_route(schema, name)), None)
    if column is None:
        reason = f"one shard: {size}, and no key column of integers, booleans or text to divide by"
        return ShardingAdvice(one, reason)
    cores = processors or os.cpu_count() or 1
    wanted = -(-num_bytes // _BYTES_PER_SHARD)
    shards = min(wanted, cores, _MAX_SHARDS)
    if shards == 1:
        return ShardingAdvice(one, f"one shard: {size}, and one processor to write them")
    reason = (
        f"{shards} shards by '{column}': {size}, one shard for each 4 GiB, at most one for each of "
        f"{cores} processors and {_MAX_SHARDS}"
    )
    return ShardingAdvice(_lancemem.bucket(column, shards), reason)


def _can_route(schema: pa.Schema, name: str) -> bool:
    import pyarrow as pa  # noqa: PLC0415 - `import lancemem` does not load it

    if name not in schema.names:
        return False
    of = schema.field(name).type
    is_text = pa.types.is_string(of) or pa.types.is_large_string(of)
    return bool(is_text or pa.types.is_integer(of) or pa.types.is_boolean(of))
