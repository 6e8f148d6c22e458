"""The flights of a year as a stream of changes to an airport's board.

Owns the board's schema and key, the events and their order, and the division of the stream into
micro-batches. Does not own Spark, tables or the final state of the board.

A flight's events, each a full image of its row except the delete, which carries the key alone:

* scheduled (insert), `BOARD_LEAD` before the scheduled departure;
* departed (update), at departure: the aircraft is known from here on;
* arrived (update), at arrival, for flights that departed and whose arrival is known;
* cancelled (delete), at the scheduled departure, for flights that never left.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pandas as pd  # noqa: TID253 - the demo works in pandas
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterator

BOARD_LEAD = pd.Timedelta(hours=4)
LATE_MINUTES = 15

_INSTANT = pa.timestamp("us", tz="UTC")

KEY_FIELDS = [
    pa.field("year", pa.int32(), nullable=False),
    pa.field("month", pa.int32(), nullable=False),
    pa.field("day", pa.int32(), nullable=False),
    pa.field("carrier", pa.string(), nullable=False),
    pa.field("flight", pa.int32(), nullable=False),
    pa.field("origin", pa.string(), nullable=False),
    pa.field("sched_dep_time", pa.int32(), nullable=False),
]
KEY = [field.name for field in KEY_FIELDS]

BOARD_SCHEMA = pa.schema(
    [
        *KEY_FIELDS,
        pa.field("dest", pa.string()),
        pa.field("distance_miles", pa.int32()),
        pa.field("scheduled_departure", _INSTANT),
        pa.field("status", pa.string()),
        pa.field("remark", pa.string()),
        pa.field("tailnum", pa.string()),
        pa.field("departed_at", _INSTANT),
        pa.field("departure_delay_minutes", pa.int32()),
        pa.field("arrived_at", _INSTANT),
        pa.field("arrival_delay_minutes", pa.int32()),
        pa.field("air_minutes", pa.int32()),
        pa.field("updated_at", _INSTANT),
    ]
)

# `op` and `sequence` belong to the stream, not to the board; "D" deletes, the others upsert.
EVENT_SCHEMA = pa.schema(
    [
        *BOARD_SCHEMA,
        pa.field("op", pa.string(), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
    ]
)


def derive_events(flights: pd.DataFrame) -> pa.Table:
    """Every event of `flights` in event-time order, numbered by `sequence` from 0."""
    left = flights[flights["dep_time"].notna()]
    landed = left[left["arr_time"].notna()]
    never_left = flights[flights["dep_time"].isna()]
    # Arrow's sort is stable: events of one minute keep this order, so events of a key are never
    # swapped.
    kinds = [_scheduled(flights), _departed(left), _arrived(landed), _cancelled(never_left)]
    events = pa.concat_tables(map(_to_events, kinds), promote_options="default")
    events = events.sort_by("updated_at")
    sequence = pa.array(range(events.num_rows), pa.int64())
    return events.append_column("sequence", sequence).select(EVENT_SCHEMA.names).cast(EVENT_SCHEMA)


def count_by_kind(events: pa.Table) -> dict[str, int]:
    """Count the events of each kind."""
    kinds = pc.fill_null(events["status"], "cancelled").value_counts()
    counted = {str(pair["values"]): int(pair["counts"]) for pair in kinds.to_pylist()}
    return {
        kind: counted.get(kind, 0) for kind in ("scheduled", "departed", "arrived", "cancelled")
    }


def split_into_micro_batches(events: pa.Table, count: int) -> Iterator[pa.Table]:
    """Divide the stream into `count` spans of equal event time; each keeps the stream's order."""
    times = events["updated_at"].to_pandas().array
    edges = pd.date_range(times[0], times[-1], periods=count + 1)[1:-1]
    cuts = [0, *times.searchsorted(edges, side="right"), len(times)]
    for start, end in pairwise(cuts):
        yield events.slice(start, end - start)


def _to_events(frame: pd.DataFrame) -> pa.Table:
    schema = pa.schema([field for field in EVENT_SCHEMA if field.name in frame.columns])
    return pa.Table.from_pandas(frame, schema=schema, preserve_index=False)


def _scheduled(flights: pd.DataFrame) -> pd.DataFrame:
    frame = flights[[*KEY, "dest", "scheduled_departure"]]
    return frame.assign(
        distance_miles=flights["distance"],
        status="scheduled",
        updated_at=flights["scheduled_departure"] - BOARD_LEAD,
        op="I",
    )


def _departed(left: pd.DataFrame) -> pd.DataFrame:
    late = left["dep_delay"] >= LATE_MINUTES
    return _scheduled(left).assign(
        status="departed",
        remark=late.map({True: "late departure", False: None}),
        tailnum=left["tailnum"],
        departed_at=left["departed_at"],
        departure_delay_minutes=left["dep_delay"],
        updated_at=left["departed_at"],
        op="U",
    )


def _arrived(landed: pd.DataFrame) -> pd.DataFrame:
    late = landed["arr_delay"] >= LATE_MINUTES
    # A flight that arrived without an air time was diverted on its way.
    diverted = landed["air_time"].isna()
    return _departed(landed).assign(
        status="arrived",
        remark=late.map({True: "late arrival", False: None}).mask(diverted, "diverted"),
        arrived_at=landed["arrived_at"],
        arrival_delay_minutes=landed["arr_delay"],
        air_minutes=landed["air_time"],
        updated_at=landed["arrived_at"],
        op="U",
    )


def _cancelled(never_left: pd.DataFrame) -> pd.DataFrame:
    return never_left[KEY].assign(updated_at=never_left["scheduled_departure"], op="D")
