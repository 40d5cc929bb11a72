"""Imports only go down: the house rules, read from the source by AST."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "foxhunt_assets"
# From the ground up. Modules of one floor do not import each other; errors and settings lie under everything.
FLOORS = (
    ("errors", "settings"),
    ("contracts", "kernels", "storage"),
    ("market", "simulator"),
    ("evaluation", "determinism"),
    ("trainer",),
    ("partitions", "resources", "sources", "gates", "audits"),
    ("assets", "checks", "automation"),
    ("build", "lineage", "run_folders", "ui"),
    ("demo", "gate"),
    ("cli", "definitions"),
)
LEVEL = {name: level for level, names in enumerate(FLOORS) for name in names}
# A floor may look inside itself only as said here, with the reason.
WITHIN = {
    ("gates", "resources"), ("gates", "partitions"), ("audits", "resources"),  # small modules of one floor
    ("sources", "resources"),
    ("settings", "errors"),
}  # fmt: skip
ABOVE_TRAINER = [name for floor in FLOORS[FLOORS.index(("trainer",)) + 1 :] for name in floor]
HEAVY = {"dagster", "pydantic", "pandera"}
# contracts.pandera_schemas is built from the plain tables for the checks, and only they import it.
PANDERA_HOME = "foxhunt_assets/contracts/pandera_schemas.py"


def sources() -> list[Path]:
    found = [*PACKAGE.rglob("*.py"), *(ROOT / "kernels").rglob("*.py"), ROOT / "definitions.py"]
    return [p for p in found if "__pycache__" not in p.parts]


def unit(path: Path) -> str:
    """The house unit a file belongs to: a package or a top module."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0] != "foxhunt_assets":
        return parts[0]
    return parts[1]


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """(dotted module imported, whether only for a type checker)."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test)
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in typing_only) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from ((name, id(node) in typing_only) for name in names)


def target_unit(name: str) -> str | None:
    parts = name.split(".")
    if parts[0] in ("kernels", "definitions"):
        return parts[0]
    if parts[0] == "foxhunt_assets" and len(parts) > 1 and parts[1] in LEVEL:
        return parts[1]
    return None


def broken(path: Path, name: str) -> str | None:
    """Why an import breaks the floors; None when it does not."""
    here, there = unit(path), target_unit(name)
    if there is None or here == there or here == "__init__":
        return None
    if LEVEL[there] < LEVEL[here] or (here, there) in WITHIN:
        return None
    return f"{path.relative_to(ROOT)} imports {name}: {here} may not look at {there}"


def test_every_unit_of_the_house_has_a_floor():
    units = {unit(p) for p in sources()} - {"__init__", "__main__", "defs"}
    assert units <= set(LEVEL), units - set(LEVEL)
    assert {"market", "trainer", "assets", "kernels"} <= units


def test_imports_only_go_down():
    faults = [fault for path in sources() for name, _ in imports(path) if (fault := broken(path, name))]
    assert faults == []


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("foxhunt_assets/market/x.py", "foxhunt_assets.simulator.config"),
        ("foxhunt_assets/evaluation/x.py", "foxhunt_assets.trainer.config"),
        ("foxhunt_assets/contracts/x.py", "foxhunt_assets.storage"),
        ("foxhunt_assets/assets/x.py", "foxhunt_assets.checks.factory"),
    ],
)
def test_the_rule_sees_an_import_that_goes_up_or_sideways(file, name):
    assert broken(ROOT / file, name)


def test_kernels_import_nothing_of_the_package():
    found = [
        (p.name, name)
        for p in sources()
        if unit(p) == "kernels"
        for name, _ in imports(p)
        if name.startswith("foxhunt_assets")
    ]
    assert found == []


def test_no_dagster_pydantic_or_pandera_at_the_trainer_and_below():
    faults = []
    for path in sources():
        if unit(path) in (*ABOVE_TRAINER, "__init__", "defs"):
            continue
        if path.relative_to(ROOT).as_posix() == PANDERA_HOME:
            continue
        faults += [f"{path}: {name}" for name, typing in imports(path) if name.split(".")[0] in HEAVY and not typing]
    assert faults == []


def test_only_checks_and_the_command_line_import_the_pandera_schemas():
    users = {unit(p) for p in sources() for name, _ in imports(p) if "pandera_schemas" in name}
    assert users <= {"checks", "cli"}
    assert "checks" in users


def test_nothing_above_the_kernels_imports_cupy():
    users = {unit(p) for p in sources() for name, _ in imports(p) if name.split(".")[0] == "cupy"}
    assert users <= {"kernels"}


def trainer_modules() -> list[str]:
    files = sorted((PACKAGE / "trainer").glob("*.py"))
    return [f"foxhunt_assets.trainer.{p.stem}" for p in files if p.stem not in ("__init__", "__main__")]


def test_importing_the_whole_trainer_loads_no_dagster_pydantic_or_pandera():
    code = (
        "import importlib, json, sys\n"
        f"for name in {trainer_modules()!r}: importlib.import_module(name)\n"
        "print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    loaded = set(json.loads(out.stdout.splitlines()[-1]))
    assert loaded & (HEAVY | {"cupy"}) == set()
    assert "torch" in loaded and len(trainer_modules()) > 5
