"""Run the dbt-style tests of dbt_like_checks/ over artefacts with DuckDB, in process.

The files are dbt's own: schema.yml with `data_tests:`, generic tests as `{% test name(model, ...) %}`, singular
tests as one SELECT with ref(). A test selects the FAILING rows. Where dbt would pass in silence this runner stops:
a ref that is not there, a key it does not know, no test selected, an empty relation (unless the model's
`config.meta.may_be_empty` says so), and `where` in a singular test, which dbt ignores.

Every model has one more column, file_row: the row number in file order, from 0. No Dagster in here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

import duckdb
import jinja2
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import yaml

import dbt_like_checks
from foxhunt_assets.errors import BadInput, ContractBroken

Severity = Literal["error", "warn"]
Source: TypeAlias = "Path | pa.Table | Mapping[str, Any]"
FOLDER = Path(dbt_like_checks.__file__).parent
SHOWN = 5  # failing rows kept of a test that sets no limit

# Models a check hands over together; a test runs where all its refs are given.
MARKET_MODELS = ("snapshots", "segments")
LABEL_MODELS = ("labels", "config")
TRAIN_MODELS = ("diag", "trades", "train_summary", "config")
EVAL_MODELS = ("diag", "eval_diag", "eval_trades", "equity", "eval_summary", "config")


@dataclass(frozen=True)
class SqlResult:
    """One test. failures: how many rows it selected. rows: the first of them, bounded. model: what it is about."""

    name: str
    model: str
    severity: Severity
    passed: bool
    failures: int
    rows: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class _Test:
    """One test, rendered. refs: models it names, the one it is about first. config: of its SQL, then its YAML."""

    name: str
    sql: str
    refs: tuple[str, ...]
    config: dict[str, Any]


@dataclass(frozen=True)
class _Project:
    folder: Path
    tests: tuple[_Test, ...]
    may_be_empty: dict[str, bool]


def run_tests(
    models: Mapping[str, Source], select: Sequence[str] | None = None, folder: Path = FOLDER
) -> list[SqlResult]:
    """Run tests over the models given and return what each found, in the order of schema.yml, then singular/.

    models: name -> Parquet, Arrow IPC or JSON file, Arrow table, or one row as a mapping (nested keys dotted).
    select: names of tests, and names of models, which stand for every test all of whose refs are among them;
    everything when left out. BadInput: a test file or a selection that cannot be used, a ref that was not given.
    ContractBroken: an empty relation.
    """
    project = _load(folder)
    chosen = _select(project, select)
    needed = {name for test in chosen for name in test.refs}
    if unknown := sorted(set(models) - set(project.may_be_empty)):
        raise BadInput(f"{folder}/schema.yml: no model {unknown[0]!r}; known: {', '.join(project.may_be_empty)}")
    if missing := sorted(needed - set(models)):
        test = next(t for t in chosen if missing[0] in t.refs)
        raise BadInput(f"{test.name}: refers to {missing[0]!r}, which was not given")
    with duckdb.connect(config={"threads": 1}) as connection:
        for name in sorted(needed):
            table = _table(name, models[name])
            if table.num_rows == 0 and not project.may_be_empty[name]:
                raise ContractBroken(f"{name}: an empty relation proves nothing; only tables that may be empty may be")
            connection.register(name, table)
        return [_run(connection, test) for test in chosen]


def list_tests(folder: Path = FOLDER) -> list[tuple[str, tuple[str, ...]]]:
    """(name, models it refers to) of every test, in the order they run."""
    return [(test.name, test.refs) for test in _load(folder).tests]


def _run(connection: duckdb.DuckDBPyConnection, test: _Test) -> SqlResult:
    try:
        connection.execute(f"create or replace temp table failing as ({test.sql}\n)")
        failures = connection.execute("select count(*) from failing").fetchall()[0][0]
        shown = connection.execute(f"select * from failing limit {test.config.get('limit', SHOWN)}")
        names = [column[0] for column in shown.description or []]
        rows = tuple(dict(zip(names, map(_plain, row))) for row in shown.fetchall())
    except duckdb.Error as error:
        raise BadInput(f"{test.name}: {str(error).splitlines()[0]}") from None
    severity = test.config.get("severity", "error")
    return SqlResult(test.name, test.refs[0], severity, failures == 0, failures, rows)


def _plain(value: Any) -> Any:
    """NaN and infinity as text, so that a row can go into JSON."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


# Reading models


def _table(name: str, source: Source) -> pa.Table:
    table = source if isinstance(source, pa.Table) else None
    if isinstance(source, Path):
        table = _read(source)
    elif isinstance(source, Mapping):
        table = _one_row(source)
    assert table is not None
    if "file_row" in table.column_names:
        raise BadInput(f"{name}: file_row is the runner's own column")
    return table.append_column("file_row", pa.array(range(table.num_rows), pa.int64()))


def _read(path: Path) -> pa.Table:
    if not path.is_file():
        raise BadInput(f"{path}: no such file")
    try:
        if path.suffix == ".parquet":
            return pq.read_table(path)
        if path.suffix == ".arrow":
            with pa.memory_map(str(path)) as source:
                return pa.ipc.open_file(source).read_all()
        if path.suffix == ".json":
            return _one_row(json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse))
    except (pa.ArrowInvalid, ValueError) as error:
        raise BadInput(f"{path}: {str(error).splitlines()[0]}") from None
    raise BadInput(f"{path}: a model is a .parquet, .arrow or .json file")


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _one_row(document: Mapping[str, Any]) -> pa.Table:
    flat = dict(_flat(document, ""))
    return pa.table({name: pa.array([value]) for name, value in flat.items()})


def _flat(document: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


# Loading the tests

_TEST_KEYS = ("arguments", "config", "name", "description")
_CONFIG_KEYS = {False: ("severity", "limit", "where"), True: ("severity", "limit")}


@cache
def _load(folder: Path) -> _Project:
    """Every test of a folder, rendered; read once a process."""
    path = folder / "schema.yml"
    raw = _yaml(path)
    _only(path, "", raw, ("version", "models"))
    macros = _generic_macros(folder)
    tests: list[_Test] = []
    may_be_empty: dict[str, bool] = {}
    for model in raw.get("models") or []:
        _only(path, "model ", model, ("name", "description", "config", "columns", "data_tests"))
        if not model.get("name"):
            raise BadInput(f"{path}: a model without a name")
        if model["name"] in may_be_empty:
            raise BadInput(f"{path}: two models are called {model['name']}")
        _only(path, f"{model['name']} config ", model.get("config", {}), ("meta",))
        meta = model.get("config", {}).get("meta", {})
        _only(path, f"{model['name']} meta ", meta, ("may_be_empty",))
        may_be_empty[model["name"]] = meta.get("may_be_empty", False)
        tests += _model_tests(path, model, macros)
    tests += [_singular(sql) for sql in sorted((folder / "singular").glob("*.sql"))]
    names = [test.name for test in tests]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadInput(f"{path}: two tests are called {twice}; give one a name")
    unknown = sorted({ref for test in tests for ref in test.refs} - set(may_be_empty))
    if unknown:
        raise BadInput(f"{path}: no model {unknown[0]!r}, which a test refers to")
    return _Project(folder, tuple(tests), may_be_empty)


def _yaml(path: Path) -> dict[str, Any]:
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except yaml.YAMLError as error:
        raise BadInput(f"{path}: not YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(raw, dict):
        raise BadInput(f"{path}: not a mapping")
    return raw


def _only(path: Path, where: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    if unknown := [key for key in given if key not in known]:
        raise BadInput(f"{path}: {where}unknown key {unknown[0]!r}; known: {', '.join(known)}")


def _generic_macros(folder: Path) -> dict[str, tuple[Path, str]]:
    """Test name -> (file, its text with `test` blocks turned into macros), as dbt itself does."""
    found: dict[str, tuple[Path, str]] = {}
    for path in sorted((folder / "generic").glob("*.sql")):
        text = path.read_text(encoding="utf-8")
        names = re.findall(r"{%-?\s*test\s+(\w+)\s*\(", text)
        if not names:
            raise BadInput(f"{path}: no {{% test %}} block")
        text = re.sub(r"({%-?\s*)test\s+(\w+)", r"\1macro test_\2", text)
        text = re.sub(r"({%-?\s*)endtest", r"\1endmacro", text)
        found.update(dict.fromkeys(names, (path, text)))
    return found


def _model_tests(path: Path, model: dict[str, Any], macros: Mapping[str, tuple[Path, str]]) -> Iterator[_Test]:
    for entry in model.get("data_tests") or []:
        yield _generic(path, model["name"], None, entry, macros)
    for column in model.get("columns") or []:
        _only(path, f"{model['name']} column ", column, ("name", "quote", "description", "data_tests"))
        for entry in column.get("data_tests") or []:
            yield _generic(path, model["name"], column, entry, macros)


def _generic(
    path: Path, model: str, column: dict[str, Any] | None, entry: Any, macros: Mapping[str, tuple[Path, str]]
) -> _Test:
    kind, body = _kind_and_body(path, model, entry)
    where = f"{model} {kind}: "
    if kind not in macros:
        raise BadInput(f"{path}: {where}no such generic test; known: {', '.join(macros)}")
    _only(path, where, body, _TEST_KEYS)
    settings = body.get("config", {})
    _check_config(path, where, settings, singular=False)
    parts = [kind, model, *([column["name"]] if column else [])]
    name = body.get("name") or re.sub(r"\W", "_", "_".join(parts))
    arguments = dict(body.get("arguments", {}))
    if column:
        arguments["column_name"] = f'"{column["name"]}"' if column.get("quote") else column["name"]
    file, text = macros[kind]

    def render(environment: jinja2.Environment) -> str:
        relation = environment.from_string(f"{{{{ ref('{model}') }}}}").render()
        if settings.get("where"):
            relation = f"(select * from {relation} where {settings['where']}) as dbt_subquery"
        given = {key: _rendered(environment, value) for key, value in arguments.items()}
        macro = getattr(environment.from_string(text).module, f"test_{kind}")
        return str(macro(model=relation, **given))

    return _compile(file, name, render, settings, singular=False)


def _kind_and_body(path: Path, model: str, entry: Any) -> tuple[str, dict[str, Any]]:
    if isinstance(entry, str):
        return entry, {}
    if not isinstance(entry, dict) or len(entry) != 1:
        raise BadInput(f"{path}: {model}: a test is a name, or one name with its keys under it, not {entry!r}")
    kind, body = next(iter(entry.items()))
    return kind, body or {}


def _singular(path: Path) -> _Test:
    text = path.read_text(encoding="utf-8")
    test = _compile(path, path.stem, lambda e: e.from_string(text).render(), {}, singular=True)
    if not test.refs:
        raise BadInput(f"{path}: refers to no model")
    return test


def _compile(
    file: Path, name: str, render: Callable[[jinja2.Environment], str], settings: dict[str, Any], singular: bool
) -> _Test:
    """Render a test, noting the models it refers to and the config it sets in its SQL."""
    config: dict[str, Any] = {}
    refs: list[str] = []
    try:
        sql = render(_environment(config, refs))
    except (jinja2.TemplateError, TypeError) as error:
        raise BadInput(f"{file}: {name}: {error}") from None
    _check_config(file, f"{name}: ", config, singular)
    return _Test(name, sql, tuple(dict.fromkeys(refs)), {**config, **settings})


def _environment(config: dict[str, Any], refs: list[str]) -> jinja2.Environment:
    """dbt's names as far as they are used here: ref and config; anything else is an error."""

    def ref(name: str) -> str:
        refs.append(name)
        return f'"{name}"'

    def set_config(**settings: Any) -> str:
        config.update(settings)
        return ""

    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)
    environment.globals.update(ref=ref, config=set_config)
    return environment


def _rendered(environment: jinja2.Environment, value: Any) -> Any:
    if isinstance(value, list):
        return [_rendered(environment, item) for item in value]
    return environment.from_string(value).render() if isinstance(value, str) else value


def _check_config(path: Path, where: str, config: Mapping[str, Any], singular: bool) -> None:
    if singular and "where" in config:
        raise BadInput(f"{path}: {where}dbt ignores `where` in a singular test; write it into the SQL")
    _only(path, f"{where}config ", config, _CONFIG_KEYS[singular])
    if config.get("severity", "error") not in ("error", "warn"):
        raise BadInput(f"{path}: {where}severity is error or warn, not {config['severity']!r}")
    if not isinstance(config.get("limit", 1), int) or config.get("limit", 1) < 1:
        raise BadInput(f"{path}: {where}limit is an integer of 1 or more, not {config['limit']!r}")


def _select(project: _Project, select: Sequence[str] | None) -> tuple[_Test, ...]:
    chosen = project.tests
    if select is not None:
        known = {*project.may_be_empty, *(test.name for test in project.tests)}
        if unknown := sorted(set(select) - known):
            raise BadInput(f"{project.folder}: no model or test is called {unknown[0]!r}")
        given = set(select)
        chosen = tuple(test for test in project.tests if test.name in given or set(test.refs) <= given)
    if not chosen:
        raise BadInput(f"{project.folder}: no test selected by {', '.join(select or ['everything'])}")
    return chosen
