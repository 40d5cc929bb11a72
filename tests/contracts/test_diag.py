"""The contract of leaves: what the README says of it is what it holds."""

from __future__ import annotations

import re
from pathlib import Path

from foxhunt_assets.contracts.diag import leaves, live_leaves

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_readme_says_how_many_leaves_there_are_and_how_many_live():
    found = re.search(r"has (\d+) leaves; (\d+) of them are live", README.read_text(encoding="utf-8"))
    assert found and [int(n) for n in found.groups()] == [len(leaves()), len(live_leaves())]
