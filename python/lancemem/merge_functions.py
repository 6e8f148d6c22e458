"""Functions of users that merge the values of a column: how they are found and checked.

Owns `check_merge_function`, and the import of a function by its name. Does not own when a function
is called: the engine does where it merges rows, and refuses what a function may not return.
"""

from __future__ import annotations

import importlib
import math
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from lancemem import _lancemem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

__all__ = ["MergeFunction", "check_merge_function", "load", "loaded"]

MergeFunction: TypeAlias = "Callable[[pa.Array, pa.Array], pa.Array]"

# Pairs that one call of the engine has at most.
_PAIRS = 8_192
# Groups of samples that a check compares, and pairs that it also gives to the function alone.
_GROUPS = 1_000
_ALONE = 64
_FORM = "a merge function is named 'package.module:function'"
_WAYS = (
    "put its module on the PYTHONPATH of each process that opens the table; in Spark ship it with "
    "--py-files"
)


def load(name: str) -> MergeFunction:
    """Import a function.

    Args:
        name: The module and the name in it, such as "package.module:function".

    Returns:
        The function.

    Raises:
        InvalidInputError: There is no such module or function; its `__cause__` is the error of the
            import.
    """
    module_name, path = _parts(name)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise _lancemem.InvalidInputError(f"{type(error).__name__}: {error}; {_WAYS}") from error
    try:
        function = _member(module, path)
    except AttributeError as error:
        place = getattr(module, "__file__", None) or "built in"
        raise _lancemem.InvalidInputError(
            f"module {module_name!r} ({place}) has no {path!r}; {_WAYS}"
        ) from error
    if not callable(function):
        raise _lancemem.InvalidInputError(
            f"{path!r} of module {module_name!r} is no function, but of type "
            f"{type(function).__name__}"
        )
    return cast("MergeFunction", function)


def loaded(name: str) -> MergeFunction | None:
    """Return a function whose module is imported already, without waiting for an import.

    Args:
        name: As for `load`.

    Returns:
        The function; None where `load` has to look for it.
    """
    module_name, _, path = name.partition(":")
    if module_name == "__main__":
        return None
    try:
        function = _member(sys.modules[module_name], path)
    except (AttributeError, KeyError):
        return None
    return function if callable(function) else None


def check_merge_function(
    function: str | MergeFunction,
    samples: pa.Array | Iterable[object],
    *,
    type: pa.DataType | None = None,  # noqa: A002 - the name in pyarrow.array
    tolerance: float = 1e-5,
) -> None:
    """Check on samples that a function can merge the values of a column.

    The engine merges the events of a key in any grouping: a flush two of them, a compaction their
    result with a third. So the function has to be associative. The check compares all groupings of
    three and of four samples, and calls the function again with the same values, in another order,
    one pair at a time and in arrays with an offset. It also compares type, length and nulls of each
    result. Nulls among the samples are left out, as the engine leaves them out.

    Args:
        function: The function, or its name as in `create_table(merge_functions=)`.
        samples: Values of the column, the more unlike the better. Of more than ten, some triples
            are compared.
        type: The type of the column, for samples that are no Arrow array. Default: the type that
            pyarrow finds.
        tolerance: How far two floats may differ, as a share of the greatest sample. Sums and means
            of floats depend on the grouping in their last bits.

    Raises:
        InvalidInputError: The function cannot be loaded, raised an exception, or gave results that
            differ; the text has the first samples for which they do.

    Example:
        lancemem.check_merge_function("vectors:longest", [[3.0, 4.0], [1.0, 0.0], [0.0, 6.0]])
    """
    called = _Called(function, tolerance)
    values = _values(samples, type)
    if not len(values):
        raise _lancemem.InvalidInputError(
            f"{called.place}: a check needs samples that are not null, better three or more"
        )
    called.scale = _magnitude(values.to_pylist())
    called(values.slice(0, 0), values.slice(0, 0))
    _check_calls(called, values)
    _check_groupings(called, values)


class _Called:
    """A function, whose results are checked as the engine checks them."""

    def __init__(self, function: str | MergeFunction, tolerance: float) -> None:
        self.function = load(function) if isinstance(function, str) else function
        name = (
            function if isinstance(function, str) else getattr(function, "__qualname__", function)
        )
        self.place = f"function '{name}'"
        self.tolerance = tolerance
        self.scale = 0.0

    def __call__(self, older: pa.Array, newer: pa.Array) -> pa.Array:
        import pyarrow as pa  # noqa: PLC0415 - `import lancemem` does not load it

        parts = [
            self._part(older.slice(first, _PAIRS), newer.slice(first, _PAIRS))
            for first in range(0, max(len(older), 1), _PAIRS)
        ]
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)

    def _part(self, older: pa.Array, newer: pa.Array) -> pa.Array:
        import pyarrow as pa  # noqa: PLC0415 - `import lancemem` does not load it

        try:
            made = self.function(older, newer)
        except Exception as error:
            raise _lancemem.InvalidInputError(
                f"{self.place} raised {type(error).__name__}: {error} for {len(older)} pairs"
            ) from error
        if not isinstance(made, pa.Array):
            self.refuse(f"returned {type(made).__name__}, expected pyarrow.Array")
        if made.type != older.type:
            self.refuse(f"returned {made.type}, expected {older.type} for {len(older)} pairs")
        if len(made) != len(older):
            self.refuse(f"returned {len(made)} values for {len(older)} pairs")
        if made.null_count:
            row = made.is_null().to_pylist().index(True)
            pair = f"{older[row].as_py()} and {newer[row].as_py()}"
            self.refuse(f"returned a null for {pair}, which are not null")
        return made

    def refuse(self, why: str) -> None:
        raise _lancemem.InvalidInputError(f"{self.place} {why}")

    def difference(self, left: pa.Array, right: pa.Array) -> int | None:
        """Return the first row in which two results differ."""
        if left.equals(right):
            return None
        for row, (one, other) in enumerate(zip(left.to_pylist(), right.to_pylist(), strict=True)):
            if not self._same(one, other):
                return row
        return None

    def _same(self, one: object, other: object) -> bool:
        if isinstance(one, float) and isinstance(other, float):
            if math.isnan(one) or math.isnan(other):
                return math.isnan(one) and math.isnan(other)
            return one == other or abs(one - other) <= self.tolerance * self.scale
        if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
            return len(one) == len(other) and all(map(self._same, one, other))
        if isinstance(one, dict) and isinstance(other, dict):
            return one.keys() == other.keys() and all(
                self._same(value, other[name]) for name, value in one.items()
            )
        return one == other


def _check_calls(called: _Called, values: pa.Array) -> None:
    """Compare calls with the same pairs."""
    import pyarrow as pa  # noqa: PLC0415 - `import lancemem` does not load it

    pairs = _groups(len(values), 2)
    older, newer = _taken(values, pairs)
    made = called(older, newer)

    def compare(other: pa.Array, when: str) -> None:
        row = called.difference(made, other)
        if row is not None:
            given = _shown(values, pairs[row])
            results = f"{made[row].as_py()} and {other[row].as_py()}"
            called.refuse(f"gave two results {when}: {results} for {given}")

    compare(called(older, newer), "for the same call")
    backwards = pa.array(range(len(pairs) - 1, -1, -1))
    turned = called(older.take(backwards), newer.take(backwards))
    compare(turned.take(backwards), "that depend on the order of the pairs in a call")
    # Copies, because a slice has an offset.
    rows = [pa.array([row]) for row in range(len(pairs))[:_ALONE]]
    alone = [called(older.take(row), newer.take(row)) for row in rows]
    rest = made.slice(len(alone))
    compare(pa.concat_arrays([*alone, rest]), "that depend on the other pairs of a call")
    padded = [pa.concat_arrays([values.slice(0, 1)] * count) for count in (1, 3)]
    older = pa.concat_arrays([padded[0], older]).slice(1)
    newer = pa.concat_arrays([padded[1], newer]).slice(3)
    compare(called(older, newer), "that depend on the offset of an array")


def _check_groupings(called: _Called, values: pa.Array) -> None:
    """Compare the groupings of three and of four values."""
    triples = _groups(len(values), 3)
    a, b, c = _taken(values, triples)
    groupings = {
        "f(f(a, b), c)": called(called(a, b), c),
        "f(a, f(b, c))": called(a, called(b, c)),
    }
    _compare(called, values, triples, groupings)
    # A sample may be simpler than what the function makes of two.
    fours = _groups(len(values), 4)
    a, b, c, d = _taken(values, fours)
    ab, bc, cd = called(a, b), called(b, c), called(c, d)
    groupings = {
        "f(f(f(a, b), c), d)": called(called(ab, c), d),
        "f(f(a, f(b, c)), d)": called(called(a, bc), d),
        "f(f(a, b), f(c, d))": called(ab, cd),
        "f(a, f(f(b, c), d))": called(a, called(bc, d)),
        "f(a, f(b, f(c, d)))": called(a, called(b, cd)),
    }
    _compare(called, values, fours, groupings)


def _compare(
    called: _Called, values: pa.Array, groups: list[list[int]], groupings: dict[str, pa.Array]
) -> None:
    for (one, left), (other, right) in pairwise(groupings.items()):
        row = called.difference(left, right)
        if row is not None:
            called.refuse(
                f"is not associative: {one} = {left[row].as_py()}, {other} = {right[row].as_py()} "
                f"for {_shown(values, groups[row])}; a table groups its events in any way"
            )


def _parts(name: str) -> tuple[str, str]:
    module, sign, path = name.partition(":")
    if not (module and sign and path):
        raise _lancemem.InvalidInputError(f"{_FORM}, got {name!r}")
    if module == "__main__":
        raise _lancemem.InvalidInputError(
            f"{_FORM}, got {name!r}: another process has another __main__; move the function into "
            "a module"
        )
    return module, path


def _member(module: object, path: str) -> Any:  # noqa: ANN401 - whatever the module has
    member = module
    for part in path.split("."):
        member = getattr(member, part)
    return member


def _values(samples: pa.Array | Iterable[object], of: pa.DataType | None) -> pa.Array:
    import pyarrow as pa  # noqa: PLC0415 - `import lancemem` does not load it

    if isinstance(samples, pa.ChunkedArray):
        samples = samples.combine_chunks()
    if not isinstance(samples, pa.Array):
        samples = pa.array(list(samples), type=of)
    elif of is not None:
        samples = samples.cast(of)
    return samples.drop_null()


def _groups(count: int, size: int) -> list[list[int]]:
    """Return groups of positions: all of them, or some that are far from each other."""
    total = count**size
    stride = 1 if total <= _GROUPS else 2_654_435_761
    chosen = [number * stride % total for number in range(min(total, _GROUPS))]
    return [[number // count**place % count for place in range(size)] for number in chosen]


def _taken(values: pa.Array, groups: list[list[int]]) -> list[pa.Array]:
    import pyarrow as pa  # noqa: PLC0415 - `import lancemem` does not load it

    places = zip(*groups, strict=True)
    return [values.take(pa.array(place, type=pa.int64())) for place in places]


def _shown(values: pa.Array, group: list[int]) -> str:
    named = zip("abcd", group, strict=False)
    return ", ".join(f"{name} = {values[place].as_py()} (sample {place})" for name, place in named)


def _magnitude(value: object) -> float:
    """Return the greatest finite number in a value."""
    if isinstance(value, float):
        return abs(value) if math.isfinite(value) else 0.0
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return max(map(_magnitude, value), default=0.0)
    return 0.0
