"""pylance beside lancemem: commits to the base table as any program makes them.

Owns: rows that only pylance writes, and their state in the oracle; restores, which are undone in
the same step or by the next life. Does not own: what lancemem makes of them.
"""

from __future__ import annotations

import time
from datetime import timedelta

import lance
import pyarrow as pa

import lancemem

from .oracle import FOREIGN_ROWS, Foreign
from .role import Role
from .shape import FOREIGN_GROUP

TASKS = {
    "append": 4,
    "delete": 3,
    "update": 3,
    "merge": 1,
    "compact_files": 1,
    "clean_up": 2,
    "create_index": 1,
    "optimize_indices": 1,
    "tag": 1,
    "columns": 1,
    "restore": 1,
}
LONGEST_PAUSE_SECONDS = 0.05
OLDEST_RESTORED = 6


def restore(uri: str, version: int) -> None:
    """Make an older version the newest."""
    lance.dataset(uri, version=version).restore()  # type: ignore[no-untyped-call]


def is_restore(dataset: lance.LanceDataset, version: int) -> bool:
    """Whether a version was made by a restore."""
    try:
        transaction = dataset.read_transaction(version)
    except TypeError:
        # pylance 14.0.2 cannot describe a compaction that rewrote an index.
        return False
    return isinstance(getattr(transaction, "operation", None), lance.LanceOperation.Restore)


class Pylance(Role):
    """Commits, and records for each of its rows what a reader may see."""

    def prepare(self) -> None:
        """Undo a restore that a killed life has left."""
        self.marker = self.told.folder / "restoring"
        self.rows: list[int] = []
        self.restore_newest()

    def step(self) -> None:
        """Do one task; if it fails, the state of its rows is unknown from then on."""
        task = self.chance.choices(list(TASKS), list(TASKS.values()))[0]
        self.rows = []
        try:
            getattr(self, task)()
            self.counts[task] += 1
        except Exception as error:  # noqa: BLE001 - pylance's errors are not the subject
            self.set_states(Foreign.UNKNOWN)
            self.met(task, error, (Exception,))
        time.sleep(self.chance.uniform(0, LONGEST_PAUSE_SECONDS))

    @property
    def dataset(self) -> lance.LanceDataset:
        """Open the newest version."""
        return lance.dataset(self.told.uri)

    def set_states(self, state: Foreign) -> None:
        """Record the state of the rows of this step."""
        for row in self.rows:
            self.oracle.states[row] = state

    def some(self, state: Foreign, most: int) -> list[int]:
        """Choose rows of a state."""
        found = [row for row in range(FOREIGN_ROWS) if self.oracle.states[row] == state]
        if state == Foreign.NEVER:
            return found[: self.chance.randint(1, most)]
        return self.chance.sample(found, min(len(found), self.chance.randint(1, most)))

    def new_rows(self) -> pa.Table:
        """Return new rows with the present columns."""
        self.rows = self.some(Foreign.NEVER, 30)
        self.set_states(Foreign.APPENDING)
        keys = [self.shape.foreign_key(row) for row in self.rows]
        table = self.shape.rows([(key, FOREIGN_GROUP, 0, "pylance") for key in keys])
        schema = self.dataset.schema
        for column in schema:
            if column.name not in table.column_names:
                table = table.append_column(column, pa.nulls(table.num_rows, column.type))
        return table.select(schema.names).cast(schema)

    def append(self) -> None:
        """Append rows."""
        lance.write_dataset(self.new_rows(), self.told.uri, mode="append")
        self.set_states(Foreign.THERE)

    def merge(self) -> None:
        """Insert rows with `merge_insert`."""
        merge = self.dataset.merge_insert(self.shape.key_columns)
        merge.when_matched_update_all().when_not_matched_insert_all().execute(self.new_rows())
        self.set_states(Foreign.THERE)

    def change(self) -> str:
        """Begin to change some rows; return the condition that they meet."""
        self.rows = self.some(Foreign.THERE, 6)
        self.set_states(Foreign.CHANGING)
        return " OR ".join(self.shape.condition(row) for row in self.rows)

    def delete(self) -> None:
        """Delete rows."""
        if condition := self.change():
            self.dataset.delete(condition)
            self.set_states(Foreign.GONE)

    def update(self) -> None:
        """Update rows."""
        if condition := self.change():
            self.dataset.update({"n": "n + 1"}, where=condition)
            for row in self.rows:
                self.oracle.values[row] += 1
            self.set_states(Foreign.THERE)

    def compact_files(self) -> None:
        """Rewrite fragments."""
        self.dataset.optimize.compact_files(
            materialize_deletions_threshold=self.chance.choice([0.0, 0.1]),
            target_rows_per_fragment=self.chance.choice([1_000, 1 << 20]),
        )

    def clean_up(self) -> None:
        """Remove old versions, at once."""
        if self.shape.cleans_up:
            self.dataset.cleanup_old_versions(
                older_than=timedelta(seconds=self.chance.choice([0, 0, 1])),
                error_if_tagged_old_versions=False,
            )

    def create_index(self) -> None:
        """Create the index of a column again."""
        column = self.chance.choice([self.shape.key_columns[0], "n"])
        self.dataset.create_scalar_index(column, "BTREE", replace=True)

    def optimize_indices(self) -> None:
        """Bring indexes up to date."""
        self.dataset.optimize.optimize_indices()

    def tag(self) -> None:
        """Tag a version, or remove the tag."""
        dataset, name = self.dataset, f"t{self.chance.randrange(3)}"
        if name in dataset.tags.list():
            dataset.tags.delete(name)
        else:
            dataset.tags.create(name, dataset.version)

    def columns(self) -> None:
        """Add a column, or drop an added column."""
        if not self.shape.changes_columns:
            return
        dataset = self.dataset
        added = [name for name in dataset.schema.names if name.startswith("extra")]
        if added and self.chance.random() < 0.6:
            dataset.drop_columns([self.chance.choice(added)])
        else:
            kind = self.chance.choice([pa.int32(), pa.string()])
            dataset.add_columns(pa.field(f"extra{self.chance.randrange(4)}", kind))

    def restore(self) -> None:
        """Restore an old version and, after a moment, the newest one before it."""
        if not self.shape.restores:
            return
        dataset = self.dataset
        versions = [each["version"] for each in dataset.versions()]
        old = self.chance.choice(versions[-OLDEST_RESTORED:])
        self.marker.write_text(str(dataset.version))
        self.oracle.count_restore()
        try:
            restore(self.told.uri, old)
        except OSError:
            # pylance refuses a version from before field ids were made non-reusable.
            self.end_restore()
            raise
        time.sleep(self.chance.uniform(0, LONGEST_PAUSE_SECONDS))
        self.restore_newest()

    def restore_newest(self) -> None:
        """Undo a restore of this life or of a killed one.

        A restore is the transaction of its own version. The version below it has every earlier
        commit. So that version is restored, unless later commits exist and the table can be read:
        a compaction may be among them. pylance restores on top of whatever is the newest version
        by then: if that was a compaction, the undo has dropped it and is itself undone.
        """
        if not self.marker.exists():
            return
        while (version := self.version_before_restore()) is not None:
            restore(self.told.uri, version)
        self.end_restore()

    def version_before_restore(self) -> int | None:
        """Choose the version that undoes the last restore, unless the newest version may stay."""
        dataset = self.dataset
        later = range(int(self.marker.read_text()) + 1, dataset.version + 1)
        restores = [version for version in later if is_restore(dataset, version)]
        if not restores:
            # The life was killed before its restore.
            return None
        is_undone = len(restores) > 1
        if not is_undone and restores[0] == dataset.version:
            return restores[0] - 1
        is_behind = self.is_behind()
        if is_undone == is_behind:
            # The newest version that stays or comes was made from the old version.
            self.rows = [row for row in range(FOREIGN_ROWS) if self.oracle.states[row]]
            self.set_states(Foreign.UNKNOWN)
        return restores[-1] - 1 if is_behind else None

    def end_restore(self) -> None:
        """Forget the restore: it is undone, or it was none."""
        self.marker.unlink()
        if self.oracle.restores % 2:
            self.oracle.count_restore()

    def is_behind(self) -> bool:
        """Whether the restored version lacks SSTables that the shards have given away."""
        try:
            lancemem.open_table(self.told.uri).scan().count_rows()
        except lancemem.CorruptionError:
            return True
        return False
