"""What is in a market file, whatever it is, and whether one can train on it: the facts behind `foxhunt inspect`.

The counts are made by `survey`, apart from the decoder, so the two can be held against each other. `usable` says
whether the decoder would take the file with the product it holds (data.root) and instrument_mode front_month.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from foxhunt_assets.contracts.instruments import CONTRACTS, UNDEF_PRICE, ContractFacts
from foxhunt_assets.contracts.tables import ABSENT_PX
from foxhunt_assets.errors import BadInput
from foxhunt_assets.market import batch, calendar, lobster, roll, symbology
from foxhunt_assets.market.book import MAX_SLOTS
from foxhunt_assets.market.databento_csv import CsvReader
from foxhunt_assets.market.dbn import NOT_DBN, DbnStream, Header, Mapping, midnight, require_book_schema
from foxhunt_assets.market.decode_report import NO_SESSION, ONE_SIDED, OTHER_MONTH, UNPROVEN, unproven
from foxhunt_assets.market.formats import is_csv, is_synthetic
from foxhunt_assets.market.frames import zstd_frames
from foxhunt_assets.market.passes import ACTIONS, LONGEST_YEARS
from foxhunt_assets.market.snapshots import DATASET
from foxhunt_assets.market.survey import UNMAPPED, Chunk, RecordChunks, Survey, Tally
from foxhunt_assets.settings import DataSettings
from foxhunt_assets.storage import file_sha256

GAP_S = 60
ROOT = DataSettings.root  # of a home whose settings say nothing of it
_SHORT_S = 150  # of trading; one fold of the shortest profile needs as many seconds of rows
_FINEST = 50_000_000  # 0.05, the tick of calendar spreads of the products known; outrights trade in multiples of it
_MONTH = re.compile(rf"[A-Z0-9]{{1,3}}[{roll.MONTH_CODES}]\d{{1,2}}")
_SERIES = re.compile(r"[A-Z0-9]+\.[cvn]\.\d+")
_KIND_ORDER = {"outright": 0, "series": 1, "instrument": 2, "spread": 3}

Facts = dict[str, Any]


def inspect(path: Path, gap_s: float = GAP_S) -> Facts:
    """Everything the command prints, as plain values (times in ns UTC). BadInput where nothing of it can be read.

    path: a file, or the folder of a batch download. gap_s: silences longer than this inside a session are listed.
    """
    if path.is_dir():
        return _folder(path)
    if path.name.endswith("symbology.csv"):
        return _symbology(path)
    if lobster.is_lobster(path):
        return _lobster(path, gap_s)
    return _records(path, gap_s)


def kind_of(symbol: str) -> str:
    """outright, spread, series (a continuous symbol) or instrument (anything else), by the symbol's form."""
    if roll.is_spread(symbol):
        return "spread"
    if _MONTH.fullmatch(symbol):
        return "outright"
    return "series" if _SERIES.fullmatch(symbol) else "instrument"


def _records(path: Path, gap_s: float) -> Facts:
    """DBN of any schema, or CSV of a book schema."""
    damage: list[str] = []
    with _reader(path) as reader:
        header = reader.header
        known = any(_product_of(m.symbol, header) for m in header.mappings)
        chunks = RecordChunks(_FINEST if known else 0)
        survey = Survey(header, header.dataset == DATASET, int(gap_s * 1e9))
        try:
            for octets in reader.batches() if isinstance(reader, CsvReader) else reader.groups():
                for chunk in chunks.of(octets):
                    survey.add(chunk)
        except BadInput as error:
            damage.append(_without_path(error, path))
        said = list(reader.warnings)
    errors = {name: n for name, n in chunks.order_errors.items() if n}
    facts = {
        **_file_facts(path, header),
        **_survey_facts(survey, header),
        "order_errors": errors,
        "unproven_events": chunks.unproven,
        "gap_s": gap_s,
    }
    download, refused = _download(path)
    said += batch.warnings(download, path, header.start, header.end or header.start + 1)
    facts["warnings"] = said + _remarks(header, survey, errors)
    if chunks.unproven and facts["event_ends"]:  # where there is none, the verdict says it
        facts["warnings"].append(unproven(chunks.unproven, facts["event_ends"]))
    if header.dataset == DATASET:
        facts["warnings"] += _lead_remarks(header, survey)
    if chunks.not_rebuilt:
        left = _n(chunks.not_rebuilt, "order record")
        facts["warnings"].append(f"{left} in no book: beyond {MAX_SLOTS} instruments, or off the step of the prices")
    reasons = [*damage, *refused, *_reasons(path, header, survey, chunks.unproven)]
    return _concluded(facts, reasons)


def _reader(path: Path) -> CsvReader | DbnStream:
    return CsvReader(path) if is_csv(path) else DbnStream(path)


def _download(path: Path) -> tuple[batch.Batch | None, list[str]]:
    """The batch folder of a file, and why the file is not the one its manifest names."""
    try:
        return batch.check(path), []
    except BadInput as error:
        return None, [_without_path(error, path)]


def _file_facts(path: Path, header: Header) -> Facts:
    compressed = {".zst": "zstd", ".zip": "zip"}.get(path.suffix, "none")
    encoding = "CSV" if header.version == NOT_DBN else f"DBN v{header.version}"
    facts: Facts = {
        "file": path.name, "bytes": path.stat().st_size, "encoding": encoding, "compression": compressed,
        "schema": header.schema, "dataset": header.dataset, "stype_in": header.stype_in, "ts_out": header.ts_out,
        "request_start": header.start, "request_end": header.end, "symbols": list(header.symbols),
        "partial": list(header.partial), "not_found": list(header.not_found), "synthetic": is_synthetic(path),
    }  # fmt: skip
    if compressed == "zstd":
        try:
            facts["frames"] = zstd_frames(path)
        except BadInput:  # the records say so too
            facts["frames"] = None
    return facts


def _survey_facts(survey: Survey, header: Header) -> Facts:
    tallies = survey.tallies
    seen = [t for t in tallies.values() if t.records]
    sessions = survey.sessions
    return {
        "records": survey.records,
        "records_by_kind": dict(sorted(survey.kinds.items(), key=lambda kv: -kv[1])),
        "records_unmapped": tallies[UNMAPPED].records if UNMAPPED in tallies else 0,
        "records_snapshot": survey.snapshots,
        "first": min((t.first for t in seen), default=None),
        "last": max((t.last for t in seen), default=None),
        "actions": survey.action_counts(),
        "flags": survey.flag_counts(),
        "event_ends": sum(t.events for t in seen),
        "crossed": sum(t.crossed for t in seen),
        "locked": sum(t.locked for t in seen),
        "crossed_or_locked_outside_sessions": sessions.crossed_outside,
        "one_sided": sum(t.one_sided for t in seen),
        "trades": sum(t.trades for t in seen),
        "lots": sum(t.lots for t in seen),
        "instruments": _instruments(survey, header),
        "session_kind": "trade date" if sessions.globex else "UTC day",
        "sessions": [
            {
                "date": name,
                "records": n,
                "first": first,
                "last": last,
                "crossed_or_locked": bad,
                "lead": _lead_symbol(header, name) if sessions.globex else None,
            }
            for name, (n, first, last, bad) in sorted(sessions.found.items())
        ],
        "records_outside_sessions": sessions.outside,
        "gaps": [{"from": a, "to": b} for a, b in sorted(sessions.gaps)],
        "gap_count": sessions.gap_count,
        "longest_silence_ns": sessions.longest,
        "ts_inversions": survey.inversions,
        "ts_event_undefined": survey.undefined_ts_event,
        "times_out_of_range": survey.bad_times,
    }


def _instruments(survey: Survey, header: Header) -> list[Facts]:
    """One entry a symbol and instrument id, those with most records first, then by kind and symbol."""
    days: dict[tuple[str, int], list[Mapping]] = {}
    for mapping in header.mappings:
        days.setdefault((mapping.symbol, mapping.instrument_id), []).append(mapping)
    found = []
    for (symbol, instrument), mappings in days.items():
        tally = _sum([survey.tallies[m] for m in mappings if m in survey.tallies])
        tick, source = _tick(symbol, header, tally)
        found.append(
            {
                "symbol": symbol, "instrument_id": instrument, "kind": kind_of(symbol),
                "mapped": [[m.start_ns, m.end_ns] for m in mappings],
                "records": tally.records, "trades": tally.trades, "lots": tally.lots, "event_ends": tally.events,
                "one_sided": tally.one_sided, "tick": tick, "tick_from": source, "step_seen": tally.step,
                "spreads": _in_ticks(tally, tick),
            }
        )  # fmt: skip
    return sorted(found, key=lambda i: (-i["records"], _KIND_ORDER[i["kind"]], i["symbol"]))


def _sum(tallies: list[Tally]) -> Tally:
    """One tally of several, e.g. of the days of one symbol."""
    total = Tally()
    for t in tallies:
        total = replace(
            total,
            **{n: getattr(total, n) + getattr(t, n) for n in ("records", "trades", "lots", "events")},
            **{n: getattr(total, n) + getattr(t, n) for n in ("crossed", "locked", "one_sided")},
            step=int(np.gcd(total.step, t.step)),
            spreads={k: total.spreads.get(k, 0) + t.spreads.get(k, 0) for k in total.spreads | t.spreads},
        )
    return total


def _root(header: Header) -> ContractFacts | None:
    """The first product we know of which the header maps an outright."""
    return next((f for f in CONTRACTS.values() if roll.outrights(header, f)), None)


def _lead_symbol(header: Header, day: str) -> str | None:
    """The lead month of a trade date in the product of the file, by the exchange's convention."""
    facts = _root(header)
    return roll.symbol_of(roll.lead_contract(date.fromisoformat(day), facts), facts) if facts else None


def _lead_remarks(header: Header, survey: Survey) -> list[str]:
    """What a reader with the default settings would not expect: another product, another month than the lead."""
    facts = _root(header)
    if facts is None:
        return []
    said = [] if facts.root == ROOT else [f"of {facts.root}: set data.root to {facts.root} in foxhunt.toml"]
    others = [f.root for f in CONTRACTS.values() if f is not facts and roll.outrights(header, f)]
    if others:
        said.append(f"of {', '.join([facts.root, *others])}: only outrights of data.root are decoded")
    seen = {survey.sessions.name(w): None for t in survey.tallies.values() for w in t.events_in}
    codes = {s.code for s in roll.outrights(header, facts)}
    away = [day for day in sorted(seen) if roll.lead_contract(date.fromisoformat(day), facts).code not in codes]
    if away and roll.ANY not in codes:
        more = f" and {_n(len(away) - 1, 'later session')}" if len(away) > 1 else ""
        said.append(f"the lead month of {away[0]}{more}, {_lead_symbol(header, away[0])}, is not in the file")
    for slot in roll.outrights(header, facts):
        its = [
            t.last
            for m, t in survey.tallies.items()
            if (m.symbol, m.instrument_id) == (slot.symbol, slot.instrument_id)
        ]
        said += roll.outlived(slot, facts, max(its, default=-1))
    return said


def _tick(symbol: str, header: Header, tally: Tally) -> tuple[int, str]:
    """Tick of an instrument, 1e-9 points, and where it comes from."""
    facts = _product_of(symbol, header)
    return (facts.tick, "contract") if facts else (tally.step, "prices")


def _product_of(symbol: str, header: Header) -> ContractFacts | None:
    """The product we know of which a symbol is an outright."""
    if header.dataset != DATASET:
        return None
    one = [m for m in header.mappings if m.symbol == symbol]
    return next((f for f in CONTRACTS.values() if roll.outrights(replace(header, mappings=tuple(one)), f)), None)


def _in_ticks(tally: Tally, tick: int) -> dict[str, int]:
    """Spread in ticks -> event ends; a spread off the tick keeps its decimals."""
    if not tick:
        return {}
    return {f"{width / tick:g}": n for width, n in sorted(tally.spreads.items())}


def _remarks(header: Header, survey: Survey, order_errors: dict[str, int]) -> list[str]:
    """What does not forbid the file but should be known."""
    said = []
    if header.partial:
        said.append(
            f"{_n(len(header.partial), 'symbol')} known on some days of the request only: {_some(header.partial)}"
        )
    if header.not_found:
        said.append(f"{_n(len(header.not_found), 'symbol')} the venue does not know: {_some(header.not_found)}")
    unmapped = survey.tallies.get(UNMAPPED)
    if unmapped:
        said.append(f"{_n(unmapped.records, 'record')} of instrument ids without a symbol on their date")
    if survey.inversions:
        said.append(f"the time steps back {_n(survey.inversions, 'time')}")
    if survey.undefined_ts_event:
        said.append(f"{_n(survey.undefined_ts_event, 'record')} without ts_event")
    if order_errors:
        listed = ", ".join(f"{name} {n:,}" for name, n in order_errors.items())
        said.append(f"order records that do not fit the book: {listed}")
    return said


def _n(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:4]) + (" ..." if len(names) > 4 else "")


def _reasons(path: Path, header: Header, survey: Survey, unproven_events: int) -> list[str]:
    """Why the decoder would not take the file, or nothing would come of it; the gravest first."""
    try:
        require_book_schema(path, header)
    except BadInput as error:
        return [_without_path(error, path)]
    if header.dataset != DATASET:
        return [f"dataset {header.dataset}; only {DATASET} (CME Globex) is known here"]
    reasons = []
    facts = _root(header) or CONTRACTS[ROOT]
    kept = {m: t for m, t in survey.tallies.items() if m != UNMAPPED and _product_of(m.symbol, header) is facts}
    selected: tuple[roll.Selection, ...] = ()
    try:
        selected = roll.select(path, header, facts, roll.FRONT_MONTH)
    except BadInput as error:
        reasons.append(_without_path(error, path))
    foreign = {kind: n for kind, n in survey.kinds.items() if kind != header.schema}
    if foreign:
        reasons.append(
            f"holds {_counts(foreign)} records besides {header.schema}; a live capture: download a batch file"
        )
    strange = {name: n for name, n in survey.action_counts().items() if name not in ACTIONS}
    if strange:
        reasons.append(f"unknown actions {_counts(strange)}; download the file again")
    if survey.bad_times:
        reasons.append(f"{_n(survey.bad_times, 'record')} not between 2000 and 2100; download the file again")
    if survey.latest >= 0:
        a, b = (calendar.chicago_date(t).year for t in (survey.first, survey.latest))
        if b - a > LONGEST_YEARS:
            reasons.append(f"a record received in {b}, over {LONGEST_YEARS} years after the first ({a}); damaged")
    for mapping, tally in kept.items():
        if tally.step % facts.tick:
            said = f"prices of {mapping.symbol} are no multiples of the tick {facts.tick_points}"
            reasons.append(f"{said}; another product?")
        if tally.wide:
            reasons.append(f"{_n(tally.wide, 'record')} with a size or count over 2^31 - 1; download the file again")
    return reasons or _emptiness(survey, kept, selected[0], unproven_events)


def _emptiness(survey: Survey, kept: dict[Mapping, Tally], selected: roll.Selection, unproven_events: int) -> list[str]:
    """Why a sound file yields no row to train on. kept: the outrights of its product; selected: their series."""
    if not survey.records:
        return ["no record at all; the market was shut or the request was empty"]
    if not kept:
        return ["no symbol is mapped to the instrument ids of its records on their dates, or only calendar spreads are"]
    if survey.snapshots + int(survey.actions[ord("R")]) == survey.records:
        return ["holds only the opening book snapshot, no event"]
    events = sum(t.events for t in kept.values())
    if not events:
        return [UNPROVEN if unproven_events else "no record ends an event (F_LAST)"]
    if events == sum(t.one_sided for t in kept.values()):
        return [ONE_SIDED]
    codes = {(slot.symbol, slot.instrument_id): slot.code for slot in selected.slots}
    led = [
        selected.lead_on(date.fromisoformat(survey.sessions.name(w))) in (roll.ANY, codes[m.symbol, m.instrument_id])
        for m, t in kept.items()
        for w in t.events_in
    ]
    if not led:
        return [NO_SESSION]
    return [] if any(led) else [OTHER_MONTH]


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{n:,} {name}" for name, n in counts.items())


def _concluded(facts: Facts, reasons: list[str]) -> Facts:
    verdict = f"not usable for training: {reasons[0]}" if reasons else f"usable for training: {_amount(facts)}"
    return facts | {"usable": not reasons, "problems": reasons, "verdict": verdict}


def _amount(facts: Facts) -> str:
    sessions = facts["sessions"]
    seconds = sum(s["last"] - s["first"] for s in sessions) / 1e9
    below = ((1, "under 1 s"), (60, f"{seconds:.0f} s"), (7200, f"{seconds / 60:.0f} min"))
    size = next((text for limit, text in below if seconds < limit), f"{seconds / 3600:.1f} h")
    short = "; too short to train on alone" if seconds < _SHORT_S else ""
    held, taken = facts["unproven_events"], facts["event_ends"]
    few = f", rows of {taken / (held + taken):.0%} of it" if held else ""
    return f"{size} of trading in {_n(len(sessions), 'session')}{few}{short}"


def _without_path(error: BadInput, path: Path) -> str:
    return str(error).removeprefix(f"{path}: ")


def _lobster(path: Path, gap_s: float) -> Facts:
    pair = lobster.pair_of(path)
    day = midnight(pair.day)
    mapping = Mapping(pair.symbol, 0, day, day + 2 * 86_400 * 10**9)
    header = Header(NOT_DBN, "LOBSTER", "LOBSTER (Nasdaq)", day, None, False, None, (pair.symbol,), (mapping,))
    survey = Survey(header, False, int(gap_s * 1e9))
    for block in lobster.books(pair):
        survey.add(_lobster_chunk(block))
    facts = {
        **_file_facts(path, header),
        **_survey_facts(survey, header),
        "order_errors": {},
        "unproven_events": 0,
        "gap_s": gap_s,
    }
    facts |= {"encoding": "LOBSTER", "schema": "message + orderbook, 10 levels", "with": _other(pair, path).name}
    facts["warnings"] = ["no order counts, no instrument ids and no receive times: the format has none"]
    return _concluded(facts, ["LOBSTER, a Nasdaq equity; only Databento files of CME Globex are decoded"])


def _other(pair: lobster.Pair, path: Path) -> Path:
    return pair.orderbook if path == pair.message else pair.message


def _lobster_chunk(block: dict[str, np.ndarray]) -> Chunk:
    best = {
        side: np.where(px != ABSENT_PX, px * np.int64(lobster.TICK), UNDEF_PRICE)
        for side, px in ((s, block[f"{s}_px"][:, 0].astype(np.int64)) for s in ("bid", "ask"))
    }
    prices = np.concatenate([block["bid_px"], block["ask_px"]], axis=1).astype(np.int64)
    n = len(prices)
    return Chunk(
        kind="LOBSTER", ids=np.zeros(n, np.uint32), ts=block["ts_event"], ts_event=block["ts_event"].astype(np.uint64),
        action=block["action"], side=block["side"], size=block["size"], bid=best["bid"], ask=best["ask"],
        ends=np.ones(n, bool), prices=np.where(prices != ABSENT_PX, prices * lobster.TICK, UNDEF_PRICE),
    )  # fmt: skip


def _symbology(path: Path) -> Facts:
    mappings = symbology.read_csv(path)
    symbols = tuple(sorted({m.symbol for m in mappings}))
    header = Header(NOT_DBN, "symbology", "unknown", 0, None, False, None, symbols, mappings)
    facts = {
        **_file_facts(path, header), "records": 0, "instruments": _instruments(Survey(header, False, 1), header),
        "warnings": [],
    }  # fmt: skip
    return _concluded(facts, ["what instrument ids mean, no market data; it is read together with a CSV beside it"])


def _folder(path: Path) -> Facts:
    """A batch download: each file against the manifest, the days that are not good."""
    found = batch.read_batch(path)
    if found is None:
        raise BadInput(f"{path}: a folder without {batch.MANIFEST_NAME} or {batch.CONDITION_NAME}; name a file in it")
    states = dict(_states(found))
    bad = {day: c for day, c in found.conditions.items() if c != batch.GOOD}
    reasons = [f"{name}: {state}" for name, state in states.items() if state != "ok"]
    verdict = (
        "every file is as its manifest says"
        if not reasons
        else f"{len(reasons)} of {len(states)} files are not as the manifest says"
    )
    return {
        "folder": str(path), "files": states, "conditions": found.conditions, "bad_days": bad,
        "usable": not reasons, "problems": reasons, "verdict": verdict,
    }  # fmt: skip


def _states(found: batch.Batch) -> Iterator[tuple[str, str]]:
    for name, (digest, size) in found.files.items():
        file = found.folder / name
        if not file.is_file():
            yield name, "missing"
        elif file.stat().st_size != size or file_sha256(file) != digest:
            yield name, "changed or damaged"
        else:
            yield name, "ok"
