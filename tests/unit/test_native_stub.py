"""The typed stub and the compiled module must name the same things."""

import ast
from pathlib import Path

import hotrow
from hotrow import _native

STUB = Path(hotrow.__file__).with_name("_native.pyi")


def stubbed_names() -> dict[str, set[str]]:
    """Top-level names of the stub, with the members of classes."""
    found: dict[str, set[str]] = {}
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = set()
        elif isinstance(node, ast.ClassDef):
            found[node.name] = {name for member in node.body for name in _member_names(member)}
    return found


def _member_names(member: ast.stmt) -> list[str]:
    match member:
        case ast.FunctionDef(name=name):
            return [name]
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return [name]
        case _:
            return []


def test_stub_names_what_the_module_has() -> None:
    public = {name for name in dir(_native) if not name.startswith("_")}
    assert set(stubbed_names()) == public


def test_stub_classes_have_the_members_of_the_module() -> None:
    for name, members in stubbed_names().items():
        described = {member for member in members if not member.startswith("_")}
        actual = {member for member in dir(getattr(_native, name)) if not member.startswith("_")}
        if members:
            assert described == actual - {"name", "value"}, name
