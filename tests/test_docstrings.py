"""`help` shows the docstrings of the stub.

Owns: functions, methods, and classes with arguments of the extension. Does not own: other classes,
whose docstrings in the stub are longer, or what Python adds to them (test_first_calls).
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import lancemem
from lancemem import _lancemem

STUB = ast.parse((Path(lancemem.__file__).parent / "_lancemem.pyi").read_text())
ARGUMENTS = "Args:"


def documented() -> dict[str, str]:
    """Return the docstrings that `help` shows, by the names of what they describe."""
    found = {}
    for node in STUB.body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        before = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for each in inside:
            text = ast.get_docstring(each) if isinstance(each, ast.FunctionDef) else None
            if isinstance(each, ast.FunctionDef) and text:
                found[before + each.name] = text
        of_class = ast.get_docstring(node) if isinstance(node, ast.ClassDef) else None
        if isinstance(node, ast.ClassDef) and of_class and ARGUMENTS in of_class:
            found[node.name] = of_class
    return found


@pytest.mark.parametrize("settings_class", [lancemem.WriterConfig, lancemem.MaintenanceConfig])
def test_help_of_the_settings_explains_each(settings_class: type) -> None:
    text = documented()[settings_class.__name__]
    settings = inspect.signature(settings_class).parameters
    assert settings
    assert [name for name in settings if f"\n    {name}: " not in text] == []


@pytest.mark.parametrize(("name", "text"), documented().items())
def test_help_says_what_the_stub_says(name: str, text: str) -> None:
    found: object = _lancemem
    for part in name.split("."):
        found = getattr(found, part)
    assert inspect.getdoc(found) == text
