"""What `help` says is what the stub says.

Owns: functions and methods. Does not own: classes and fields of values, whose stub says more.
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import lancemem

STUB = ast.parse((Path(lancemem.__file__).parent / "_lancemem.pyi").read_text())
# Of a class whose fields are all that it is, each has one line in the stub.
VALUES = ("JobStats", "CompactedSsTable")


def documented() -> dict[str, str]:
    """Return the docstrings of functions and methods in the stub, by their names."""
    found = {}
    for node in STUB.body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        before = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for each in inside:
            text = ast.get_docstring(each) if isinstance(each, ast.FunctionDef) else None
            if isinstance(each, ast.FunctionDef) and text and each.name != "__new__":
                found[before + each.name] = text
    return {name: text for name, text in found.items() if not name.startswith(VALUES)}


@pytest.mark.parametrize(("name", "text"), documented().items())
def test_help_says_what_the_stub_says(name: str, text: str) -> None:
    found: object = lancemem
    for part in name.split("."):
        found = getattr(found, part)
    assert inspect.getdoc(found) == text
