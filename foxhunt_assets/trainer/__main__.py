"""`python -m foxhunt_assets.trainer train|evaluate run.json`: one run in one process.

Exit codes: 0 fine, 1 the run broke its contract (it lies in quarantine), 2 bad input, 4 our own error, 130 interrupted.
One line on stderr says what to do; progress goes to stdout.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path

from foxhunt_assets.trainer import lifeline

INTERRUPTED = 130
USAGE = "usage: python -m foxhunt_assets.trainer train|evaluate RUN.json"


def main(argv: list[str]) -> int:
    if len(argv) != 2 or argv[0] not in ("train", "evaluate"):
        print(USAGE, file=sys.stderr)
        return 2
    kind, path = argv[0], Path(argv[1])
    _arm(path)
    # torch is imported only now: the process already dies with its parent
    from foxhunt_assets.errors import FoxhuntError

    try:
        return _run(kind, path)
    except FoxhuntError as error:
        print(f"trainer: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("trainer: interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception:
        traceback.print_exc()
        print("trainer: our own error, with its traceback above; please report it", file=sys.stderr)
        return 4


def _arm(path: Path) -> None:
    try:
        parent = json.loads(path.read_text(encoding="utf-8")).get("parent", 0)
    except (OSError, ValueError, AttributeError):
        return  # RunSpec.read names the fault
    lifeline.arm(parent if isinstance(parent, int) else 0)


def _run(kind: str, path: Path) -> int:
    from foxhunt_assets.errors import BadInput
    from foxhunt_assets.trainer import loop
    from foxhunt_assets.trainer.run_spec import RunSpec

    spec = RunSpec.read(path)
    if spec.kind != kind:
        raise BadInput(f"{path}: orders to {spec.kind}, not to {kind}")
    manifest = (loop.train if kind == "train" else loop.evaluate)(spec, lambda text: print(text, flush=True))
    if "DAGSTER_PIPES_CONTEXT" in os.environ:
        from dagster_pipes import open_dagster_pipes

        with open_dagster_pipes() as pipes:
            pipes.log.info(f"committed {spec.out} with {len(manifest['files'])} files")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
