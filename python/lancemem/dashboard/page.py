"""The page of a dashboard as one HTML text: no script, no form, nothing from another address.

Owns: the markup, the style and the policy that the browser holds the page to. Does not own:
pictures, samples, or the server. Every text of a table is escaped.
"""

from __future__ import annotations

import base64
import hashlib
import time
from html import escape
from typing import TYPE_CHECKING

import lancemem
from lancemem.dashboard import pictures

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lancemem.dashboard.recorder import State
    from lancemem.samples import Sample

__all__ = ["POLICY", "render"]

_STYLE = (
    "body{font:15px/1.45 system-ui,sans-serif;margin:0 auto;max-width:1180px;padding:16px;"
    "color:#1b1f24;background:#fff}"
    "h1{font-size:20px;margin:0 0 2px;overflow-wrap:anywhere}h2{font-size:16px;margin:22px 0 6px}"
    "p{margin:0 0 10px}.quiet,.unit{color:#57606a;font-weight:400}"
    ".error{background:#ffebe9;border:1px solid #cf222e;padding:8px 12px}"
    "dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(124px,1fr));gap:10px;"
    "margin:14px 0}"
    "dl div{border:1px solid #d0d7de;border-radius:6px;padding:8px 12px}"
    "dt{color:#57606a;font-size:13px}dd{margin:0;font-size:21px;font-variant-numeric:tabular-nums}"
    ".pictures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(460px,100%),1fr));gap:14px}"
    "figure{margin:0;border:1px solid #d0d7de;border-radius:6px;padding:8px 10px}"
    "figcaption{font-weight:600;font-size:14px}.key{font-weight:400;margin-left:10px}"
    ".key i{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:4px}"
    + "".join(f".c{place}{{background:{it}}}" for place, it in enumerate(pictures.COLOURS))
    + "svg{width:100%;height:auto;display:block}polyline{fill:none;stroke-width:2}"
    ".grid{stroke:#d8dee4}.tick{font-size:11px;fill:#57606a}.end{text-anchor:end}"
    ".middle{text-anchor:middle}"
    "table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}"
    "th,td{text-align:left;padding:4px 10px;border-bottom:1px solid #d8dee4;font-size:14px}"
    "th{font-weight:600;color:#57606a}.n{text-align:right}.scroll{overflow-x:auto}"
)
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
# The browser loads nothing and runs nothing; the style above is the only one.
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_LISTED = 20


def render(uri: str, state: State, interval: float) -> str:
    """Return the page.

    Args:
        uri: The table.
        state: What is known of it.
        interval: Seconds after which the browser loads the page again.

    Returns:
        An HTML document.
    """
    body = [f"<h1>{escape(uri)}</h1>", _subtitle(state, interval)]
    if state.error is not None:
        body.append(f'<p class="error">The last sample failed: {escape(state.error)}</p>')
    if state.samples:
        newest = state.samples[-1]
        body += [_sizes(newest), f'<div class="pictures">{_pictures(state)}</div>']
        body += [_shards(newest), _versions(state.versions)]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta http-equiv="refresh" content="{max(1, round(interval))}">'
        '<link rel="icon" href="data:,"><title>lancemem dashboard</title>'
        f"<style>{_STYLE}</style></head><body>{''.join(body)}</body></html>"
    )


def _subtitle(state: State, interval: float) -> str:
    at = state.samples[-1].seconds if state.samples else time.time()
    clock = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))
    return (
        f'<p class="quiet">lancemem {escape(lancemem.__version__)}, read only; sampled {clock}, '
        f"every {interval:g} s, {len(state.samples)} samples kept</p>"
    )


def _sizes(sample: Sample) -> str:
    values = [
        ("base version", f"{sample.base_version:,}"),
        ("base rows", f"{sample.num_base_rows:,}"),
        ("shards", f"{len(sample.shards):,}"),
        ("SSTables", f"{sample.num_sstables:,}"),
        ("SSTable rows", f"{sample.num_sstable_rows:,}"),
        ("log rows", f"{sample.num_log_rows or 0:,}"),
        ("log bytes", f"{sample.log_bytes or 0:,}"),
        ("lag, rows", f"{sample.lag_rows:,}"),
    ]
    cells = (f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in values)
    return f"<dl>{''.join(cells)}</dl>"


def _pictures(state: State) -> str:
    times = [sample.seconds for sample in state.samples]
    between = times[len(times) - len(state.rates) :]
    newest = state.samples[-1]
    rates = [
        ("written", [rate.written_rows or 0 for rate in state.rates]),
        ("flushed", [rate.flushed_rows for rate in state.rates]),
        ("compacted", [rate.compacted_rows for rate in state.rates]),
    ]
    debt = [
        ("in SSTables", [sample.num_sstable_rows for sample in state.samples]),
        ("in logs", [sample.num_log_rows or 0 for sample in state.samples]),
    ]
    shards = [
        (_name(shard.ordinal, shard.shard_id), (shard.num_sstable_rows, shard.num_log_rows or 0))
        for shard in newest.shards
    ]
    return "".join(
        [
            pictures.lines("Rates", "rows/s", between, rates),
            pictures.lines("Compaction debt", "rows", times, debt),
            pictures.lines(
                "SSTables",
                "count",
                times,
                [("uncompacted", [it.num_sstables for it in state.samples])],
            ),
            pictures.lines(
                "Log", "bytes", times, [("in logs", [it.log_bytes or 0 for it in state.samples])]
            ),
            pictures.lines(
                "Base table", "rows", times, [("live", [it.num_base_rows for it in state.samples])]
            ),
            pictures.bars("Shards", "rows above the base", shards, ("in SSTables", "in logs")),
        ]
    )


def _name(ordinal: int | None, shard_id: str) -> str:
    return shard_id[:8] if ordinal is None else str(ordinal)


def _shards(sample: Sample) -> str:
    head = (
        "!shard",
        "!id",
        "epoch",
        "!claim",
        "next generation",
        "SSTables",
        "SSTable rows",
        "log rows",
        "log bytes",
    )
    claims = {None: "", True: "released", False: "held: a job may run"}
    rows = (
        (
            _name(shard.ordinal, shard.shard_id),
            shard.shard_id,
            shard.writer_epoch,
            claims[shard.is_released],
            shard.current_generation,
            len(shard.generations),
            shard.num_sstable_rows,
            shard.num_log_rows,
            shard.log_bytes,
        )
        for shard in sample.shards
    )
    return f"<h2>Shards and generations</h2>{_table(head, rows)}"


def _versions(versions: Sequence[lancemem.TableVersion]) -> str:
    head = ("version", "!time (UTC)", "!operation", "compacted shards")
    rows = (
        (
            it.version,
            it.timestamp.strftime("%Y-%m-%d %H:%M:%S"),
            it.operation,
            it.num_compacted_shards,
        )
        for it in versions[:_LISTED]
    )
    return f"<h2>Compactions and other versions of the base table</h2>{_table(head, rows)}"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; `!` before a column's name sets text to the left."""
    sides = ["" if name.startswith("!") else ' class="n"' for name in head]
    names = (
        f"<th{side}>{escape(it.lstrip('!'))}</th>" for it, side in zip(head, sides, strict=True)
    )
    lines = (
        "".join(f"<td{side}>{_cell(it)}</td>" for it, side in zip(row, sides, strict=True))
        for row in rows
    )
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return (
        f'<div class="scroll"><table><thead><tr>{"".join(names)}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else escape(str(value))
