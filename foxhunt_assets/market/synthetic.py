"""Synthetic ES: an order-flow market written as DBN v3 MBP-10 files that Databento's own client reads back.

One instrument, ten levels a side on quarter points, sessions from 08:30 Chicago with the daily break, a clear (R)
and a book built order by order at each opening, trades before the book change they cause, several records to an
event, capture times a few hundred microseconds behind. Everything is called synthetic in the file's name.

The market. A latent pressure z in {-1, 0, 1} holds for 10 to 60 s. It tilts the sizes of the four best levels,
the adds and cancels that carry them there, and small trades, all towards its side. At exogenous times the mid
moves by a half or a whole tick. The two settings differ in one number, the odds of its direction:
- planted: up with probability 1/2 + z/4, a drift of about 0.4 ticks/s that lasts as long as z does. Over five
  seeds of 4 x 60 minutes on 250 ms rows, the mid 60 rows (15 s) on correlates 0.28 with the touch size imbalance,
  0.18 with touch order flow, and 0.41 out of sample with a ridge forecast from all features (0.40 to 0.43; standard
  deviation of the move 6.1 ticks). The trader in the tests (one row of latency, a tick of spread, 225 cents a
  side) nets a little over four ticks a round trip of 20 seconds or so.
- martingale: a fair coin, independent of sizes, flow and z. The mid is a martingale in everything displayed,
  bounces included: the spread opens and closes by fair coins too, so a half-tick step says nothing of the next.
  Over 341,246 moves of 40 seeds the direction is 1.0, 1.2 and 0.8 standard errors from independence of nothing, of
  the touch imbalance before it, and of the move before it.

Beside each file lies its recipe (.recipe.json): what it was made with. From it `latent_at` tells the pressure at any
instant, which the records do not: an oracle's knowledge. On demand a file is a parent file (`synthetic_parent`).

Numbers are drawn with numpy's PCG64, keyed by (seed, session): its raw stream is fixed by numpy, and the market
uses only integers, +, -, *, / and comparisons of doubles, so the records are the same on every machine. The file's
bytes are too, under one version of zstd (single thread, level 3, checksum).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Literal

import databento_dbn
import numpy as np
import zstandard
from numba import njit

from foxhunt_assets.contracts.instruments import CONTRACTS, UNDEF_PRICE
from foxhunt_assets.contracts.tables import LEVELS
from foxhunt_assets.errors import BadInput
from foxhunt_assets.market import calendar, roll
from foxhunt_assets.market.dbn import F_LAST, MBP10_DTYPE, RTYPES
from foxhunt_assets.market.synthetic_parent import ParentFile
from foxhunt_assets.storage import read_json, write_json

Setting = Literal["planted", "martingale"]
EDGE: dict[str, float] = {"planted": 0.25, "martingale": 0.0}  # added to the odds of an up-move, times z

FIRST_DAY = date(2024, 4, 1)  # no holiday and no roll for the eleven weeks after it
EVENTS_PER_SECOND = 20.0  # a thin real ES hour has 13
MAX_SESSIONS = 2_500  # ten years of trading days
MAX_MINUTES = 23 * 60  # a whole trade day; a longer session would run into the next file's
_MIN_EVENTS_PER_SECOND = 8.0  # below it the moves would be more than the events
_MAX_EVENTS_PER_SECOND = 1e6  # above it the nanoseconds between events are too few to draw from
MAX_SEED = 2**63 - 1

_START = time(8, 30)  # Chicago
_ES = CONTRACTS["ES"]
_START_TICKS = 20_000  # 5,000 points
_SPREAD_ID = 100_000  # added to the front month's id: an id of its own for the spread
_DEPTH = 16  # price levels kept a side, so that ten remain when some are empty
_LANES = 4  # 64-bit draws an event
_BLOCK = 4_096  # events a kernel call
_RECORDS_PER_EVENT = 4
_WORDS = MBP10_DTYPE.itemsize // 8  # a record as int64 words; every field lies inside one

_SECOND = 1_000_000_000
_MOVE_RATE, _NARROW_RATE = 1.0, 3.0  # a second, at one tick of spread and at two
_WHOLE_TICK = 0.7  # share of moves from a one-tick spread that keep it
_TRADE_SHARE, _TRADE_TILT = 0.08, 0.3
_SIZE_TILT, _TILTED_LEVELS = 0.7, 4
_SAFE_LEVELS = 4  # the best levels are never emptied by cancels
# np.int64 and not int: a call with a plain integer is compiled anew for each value
_ZERO, _BID, _ASK = np.int64(0), np.int64(0), np.int64(1)
_A, _B, _C, _M, _N_SIDE, _R, _T = (np.int64(ord(c)) for c in "ABCMNRT")
_TICK, _UNDEF, _LEVELS = _ES.tick, UNDEF_PRICE, LEVELS
_HEAD = MBP10_DTYPE.itemsize // 4 | RTYPES["mbp-10"] << 8 | 1 << 16  # length, rtype, publisher 1 (Globex)


def write_files(
    out: Path,
    setting: Setting,
    seed: int,
    sessions: int,
    minutes: float,
    first_day: date = FIRST_DAY,
    events_per_second: float = EVENTS_PER_SECOND,
    progress: Callable[[str], None] | None = None,
    parent: bool = False,
    thin: bool = False,
) -> list[Path]:
    """Write out/es-<date>.<setting>.synthetic.mbp-10.dbn.zst for `sessions` trading days from first_day; return paths.

    A session starts at 08:30 Chicago and lasts `minutes` of open market: it stops for 16:00 to 17:00 and for the
    weekend. progress gets one line a file. parent: the next month and the calendar spread lie in the file too. thin:
    spells in which a side of the book is thin or empty. Neither moves the front month.
    BadInput: unknown setting, or a number out of its bounds.
    """
    if setting not in EDGE:
        raise BadInput(f"unknown setting {setting!r}; known: {', '.join(EDGE)}")
    bounds = (
        ("sessions", sessions, 1, MAX_SESSIONS),
        ("minutes", minutes, 1 / 60, MAX_MINUTES),
        ("events_per_second", events_per_second, _MIN_EVENTS_PER_SECOND, _MAX_EVENTS_PER_SECOND),
        ("seed", seed, 0, MAX_SEED),
    )
    for name, value, least, most in bounds:
        if not least <= value <= most:  # nor a number that is none
            raise BadInput(f"{name} {value}: {least:.4g} to {most:.4g} can be made")
    out.mkdir(parents=True, exist_ok=True)
    days = _trading_days(first_day, sessions + 1)
    paths = []
    for number, (day, next_day) in enumerate(pairwise(days)):
        recipe = Recipe(setting, seed, number, str(day), str(next_day), minutes, events_per_second, parent, thin)
        path = out / f"es-{day}.{setting}.synthetic.mbp-10.dbn.zst"
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        with beside.open("wb") as raw:
            n = _write_session(raw, recipe)
        write_json(recipe_path(path), recipe.to_json())
        os.replace(beside, path)
        paths.append(path)
        if progress:
            progress(f"{path.name}: {n:,} records")
    return paths


@dataclass(frozen=True)
class Recipe:
    """Everything a generated file was made with. number: of the session. day, next_day: this file's and the next."""

    setting: str
    seed: int
    number: int
    day: str
    next_day: str
    minutes: float
    events_per_second: float
    parent: bool
    thin: bool

    @property
    def openings(self) -> list[_Opening]:
        return _openings(date.fromisoformat(self.day), date.fromisoformat(self.next_day), self.minutes)

    def draws(self, *purpose: int) -> np.random.PCG64:
        return np.random.PCG64([self.seed, self.number, *purpose])

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def recipe_path(path: Path) -> Path:
    """Where the recipe of a generated file lies."""
    return path.with_name(path.name.removesuffix(".mbp-10.dbn.zst") + ".recipe.json")


def read_recipe(path: Path) -> Recipe | None:
    """The recipe beside a generated file; None where there is none."""
    beside = recipe_path(path)
    return Recipe(**read_json(beside)) if beside.is_file() else None


def latent_path(recipe: Recipe) -> tuple[np.ndarray, np.ndarray]:
    """(instants int64 [m] ns UTC, states int8 [m]): the latent pressure from each instant until the next."""
    draws = recipe.draws()
    market = _new_market(draws)
    times, states = [np.zeros(0, np.int64)], [np.zeros(0, np.int8)]
    for opening in recipe.openings:
        market["ts"], market["latent_end"] = opening.start, 0
        draws.random_raw(2 * _DEPTH)  # the opening book's
        while market["ts"] < opening.end:
            drawn = draws.random_raw(_BLOCK * _LANES).reshape(_BLOCK, _LANES)
            at, state = np.zeros(_BLOCK, np.int64), np.zeros(_BLOCK, np.int8)
            n = _latent_on(market, drawn, opening.end, recipe.events_per_second, at, state)
            times.append(at[:n])
            states.append(state[:n])
    return np.concatenate(times), np.concatenate(states)


def latent_at(recipe: Recipe, ts: np.ndarray) -> np.ndarray:
    """int8 [n]: the latent pressure at instants int64 [n], ns UTC; 0 before the market opens."""
    times, states = latent_path(recipe)
    return np.append(np.int8(0), states)[np.searchsorted(times, ts, side="right")]


@dataclass(frozen=True)
class _Opening:
    """Trading from start to end, ns UTC, in the lead contract of its trade date."""

    symbol: str
    instrument_id: int
    start: int
    end: int


def _trading_days(first: date, n: int) -> list[date]:
    """The first n weekdays from `first` on which Globex is open at 08:30 Chicago."""
    days: list[date] = []
    day = first
    while len(days) < n:
        close = calendar.calendar_close(day) if day.weekday() < 5 else None
        if close is not None and close > _START:
            days.append(day)
        day += timedelta(1)
    return days


def _openings(day: date, next_day: date, minutes: float) -> list[_Opening]:
    """Trading windows from 08:30 of `day` until `minutes` are used up or the next file's session starts."""
    start, stop = calendar.chicago_ns(day, _START), calendar.chicago_ns(next_day, _START)
    left = round(minutes * 60) * _SECOND
    out = []
    for window in calendar.windows(day, next_day):
        a, b = max(window.open_ns, start), min(window.shut_ns, stop)
        b = min(b, a + left)
        if a < b:
            contract = roll.lead_contract(window.trade_date, _ES)
            out.append(_Opening(roll.symbol_of(contract, _ES), contract.code, a, b))
            left -= b - a
    return out


def _write_session(raw: IO[bytes], recipe: Recipe) -> int:
    """One file: metadata, then the records of every opening. Returns the number of records."""
    written, openings, draws = 0, recipe.openings, recipe.draws()
    market = _new_market(draws)
    with zstandard.ZstdCompressor(level=3, write_checksum=True).stream_writer(raw, closefd=False) as file:
        file.write(_metadata([x for o in openings for x in (o, *_beside(o))] if recipe.parent else openings))
        for number, opening in enumerate(openings):
            blocks = _session(market, opening, draws, EDGE[recipe.setting], recipe.events_per_second)
            if recipe.parent or recipe.thin:
                back, spread = _beside(opening)
                more = ParentFile(back.instrument_id, spread.instrument_id, recipe.parent, recipe.thin,
                                  recipe.draws(1 + number), opening.start)  # fmt: skip
                blocks = (more.add(block.view(MBP10_DTYPE)[:, 0]) for block in blocks)
            for records in blocks:
                file.write(records.data)
                written += len(records)
    return written


def _beside(opening: _Opening) -> tuple[_Opening, _Opening]:
    """The next listed month, and the calendar spread to it, over the same time."""
    front = roll.Contract.of_code(opening.instrument_id)
    back = roll.next_listed(front, _ES)
    symbols = [roll.symbol_of(c, _ES) for c in (front, back)]
    return (
        dataclasses.replace(opening, symbol=symbols[1], instrument_id=back.code),
        dataclasses.replace(opening, symbol="-".join(symbols), instrument_id=_SPREAD_ID + front.code),
    )


@dataclass(frozen=True)
class _Interval:
    """What the metadata encoder reads of a mapping interval; the official class is a protocol."""

    start_date: date
    end_date: date
    symbol: str


@dataclass(frozen=True)
class _SymbolMapping:
    raw_symbol: str
    intervals: list[_Interval]


def _metadata(openings: list[_Opening]) -> bytes:
    """DBN v3 metadata of a parent request, as a batch download of ES.FUT has; end dates are exclusive."""
    mappings = []
    for symbol in dict.fromkeys(o.symbol for o in openings):
        mine = [o for o in openings if o.symbol == symbol]
        first, last = (datetime.fromtimestamp(t // _SECOND, UTC).date() for t in (mine[0].start, mine[-1].end))
        mappings.append(_SymbolMapping(symbol, [_Interval(first, last + timedelta(1), str(mine[0].instrument_id))]))
    fields: dict[str, Any] = {  # the stubs of the official class take neither its own enums nor our mappings
        "dataset": "GLBX.MDP3",
        "schema": databento_dbn.Schema.MBP_10,
        "start": openings[0].start,
        "end": openings[-1].end,
        "stype_in": databento_dbn.SType.PARENT,
        "stype_out": databento_dbn.SType.INSTRUMENT_ID,
        "symbols": ["ES.FUT"],
        "partial": [],
        "not_found": [],
        "mappings": mappings,
        "ts_out": False,
        "version": 3,
    }
    return bytes(databento_dbn.Metadata(**fields))


# State of the market that the kernel carries from block to block.
_MARKET = np.dtype([
    ("word0", "<i8"),  # first word of every record
    ("ts", "<i8"), ("recv", "<i8"), ("sequence", "<i8"),  # of the event
    ("latent", "<i8"), ("latent_end", "<i8"),  # pressure z, and the instant it changes
    ("touch", "<i8", (2,)),  # best prices in ticks
    ("lots", "<i8", (2, _DEPTH)), ("orders", "<i8", (2, _DEPTH)),  # by ticks behind the touch, 0 is an empty price
    ("steps", "<i8"), ("plan", "<i8", (1 + 2 * _LEVELS, 9)),  # of the event under way, see _then
    ("n", "<i8"),  # records in the block
])  # fmt: skip
_STAYS, _SET, _GONE, _AHEAD = np.arange(4)


def _new_market(draws: np.random.PCG64) -> np.void:
    market = np.zeros(1, _MARKET)[0]
    bid = _START_TICKS + int(draws.random_raw()) % 81 - 40
    market["touch"] = bid, bid + 1
    return market


def _session(
    market: np.void, opening: _Opening, draws: np.random.PCG64, edge: float, events_per_second: float
) -> Iterator[np.ndarray]:
    """Blocks of records, int64 [n, _WORDS], views of one buffer: use each before the next."""
    out = np.zeros((_RECORDS_PER_EVENT * _BLOCK, _WORDS), "<i8")
    market["word0"] = _HEAD | opening.instrument_id << 32
    market["ts"], market["latent_end"], market["n"] = opening.start, 0, 0
    _open_book(market, out, draws.random_raw(2 * _DEPTH))
    while market["n"]:
        yield out[: market["n"]]
        market["n"] = 0
        while market["n"] == 0 and market["ts"] < opening.end:
            drawn = draws.random_raw(_BLOCK * _LANES).reshape(_BLOCK, _LANES)
            _trade_on(market, out, drawn, opening.end, edge, events_per_second)


@njit(cache=True)
def _high(word):
    """Uniform double in [0, 1) from the upper half of a draw."""
    return np.float64(word >> np.uint64(32)) * 2.0**-32


@njit(cache=True)
def _low(word):
    """Uniform double in [0, 1) from the lower half of a draw."""
    return np.float64(word & np.uint64(0xFFFFFFFF)) * 2.0**-32


@njit(cache=True)
def _outward(side):
    """Ticks from a level to the one behind it."""
    return 1 if side == _ASK else -1


@njit(cache=True)
def _aim(side, level, latent):
    """Size that a level reverts to: more with depth, tilted by the latent pressure near the touch."""
    lots = 30.0 + 12.0 * min(level, 8)
    if level < _TILTED_LEVELS:
        lots *= 1.0 - _SIZE_TILT * latent * _outward(side)
    return lots


@njit(cache=True)
def _orders_of(lots):
    """About three lots an order."""
    return (lots + 2) // 3


@njit(cache=True)
def _then(m, action, side, rank, price, size, change, level, lots, orders):
    """Append a step to the event: a change of the book and the record that tells it.

    side: _BID or _ASK of the book. rank, price, size: what the record says. change: _STAYS (a trade: its effect is a
    later step), _SET level to lots and orders, _GONE (the best level, the one behind is best), _AHEAD (a new best
    level one tick inside). A plan of steps gives `_record` one call site, so it is compiled once.
    """
    step = m.plan[m.steps]
    m.steps += 1
    step[0], step[1], step[2], step[3], step[4] = action, side, rank, price, size
    step[5], step[6], step[7], step[8] = change, level, lots, orders


@njit(cache=True)
def _happen(m, out):
    """Carry out the steps of one event in order; the last record has F_LAST, and so has a clear."""
    for i in range(m.steps):
        step = m.plan[i]
        side, change = step[1], step[5]
        if change == _SET:
            m.lots[side, step[6]], m.orders[side, step[6]] = step[7], step[8]
        elif change == _GONE:
            for k in range(_DEPTH - 1):
                m.lots[side, k], m.orders[side, k] = m.lots[side, k + 1], m.orders[side, k + 1]
            m.lots[side, _DEPTH - 1], m.orders[side, _DEPTH - 1] = step[7], step[8]
            m.touch[side] += _outward(side)
        elif change == _AHEAD:
            for k in range(_DEPTH - 1, 0, -1):
                m.lots[side, k], m.orders[side, k] = m.lots[side, k - 1], m.orders[side, k - 1]
            m.lots[side, 0], m.orders[side, 0] = step[7], step[8]
            m.touch[side] -= _outward(side)
        _record(m, out, step, F_LAST if i == m.steps - 1 or step[0] == _R else 0)
    m.steps = 0


@njit(cache=True)
def _record(m, out, step, flags):
    """Append a record with the standing book. The side of a trade is its aggressor's: the other one."""
    row = out[m.n]
    m.n += 1
    action, side = step[0], step[1]
    letter = _N_SIDE if action == _R else _B if (side == _BID) != (action == _T) else _A
    row[0] = m.word0
    row[1] = m.ts
    row[2] = _UNDEF if action == _R else step[3] * _TICK
    row[3] = step[4] | action << 32 | letter << 40 | flags << 48 | step[2] << 56
    row[4] = m.recv
    row[5] = 21_000 + m.sequence % 2_000 | m.sequence << 32  # ts_in_delta below
    row[6:] = 0
    for book_side in range(2):
        shift = 32 * book_side  # of a level's four words two are prices, two hold the bid's number below the ask's
        filled = 0
        for k in range(_DEPTH):
            if m.lots[book_side, k] > 0 and filled < _LEVELS:
                at = 6 + 4 * filled
                row[at + book_side] = (m.touch[book_side] + k * _outward(book_side)) * _TICK
                row[at + 2] |= m.lots[book_side, k] << shift
                row[at + 3] |= m.orders[book_side, k] << shift
                filled += 1
        for k in range(filled, _LEVELS):
            row[6 + 4 * k + book_side] = _UNDEF


@njit(cache=True)
def _open_book(m, out, drawn):
    """Clear, then one step a level; what lies deeper than the feed appears unseen."""
    m.recv = max(m.recv, m.ts + 270_000)
    m.sequence += 1
    m.lots[:] = 0
    m.orders[:] = 0
    m.touch[_ASK] = m.touch[_BID] + 1
    _then(m, _R, _BID, _ZERO, _ZERO, _ZERO, _STAYS, _ZERO, _ZERO, _ZERO)
    for i in range(2 * _LEVELS):
        side, level = i % 2, i // 2
        size = np.int64(_aim(side, level, _ZERO) * (0.7 + 0.6 * _high(drawn[i])))
        price = m.touch[side] + level * _outward(side)
        _then(m, _A, side, level, price, size, _SET, level, size, _orders_of(size))
    _happen(m, out)
    for i in range(2 * _LEVELS, 2 * _DEPTH):
        side, level = i % 2, i // 2
        m.lots[side, level] = np.int64(_aim(side, level, _ZERO) * (0.7 + 0.6 * _high(drawn[i])))
        m.orders[side, level] = _orders_of(m.lots[side, level])


@njit(cache=True)
def _trade_on(m, out, drawn, end, edge, events_per_second):
    """One block of events, fewer where the session ends and none after. drawn: uint64 [_BLOCK, _LANES]."""
    for e in range(drawn.shape[0]):
        gap = _gap(drawn[e, 0], events_per_second)
        if m.ts + gap >= end:
            m.ts = end
            return
        m.ts += gap
        m.recv = max(m.recv, m.ts + 150_000 + np.int64(300_000.0 * _low(drawn[e, 1])))
        m.sequence += 1
        _press(m, drawn[e, 3])
        what = _high(drawn[e, 1])
        moves = (_MOVE_RATE if m.touch[_ASK] - m.touch[_BID] == 1 else _NARROW_RATE) / events_per_second
        if what < moves:
            _move(m, drawn[e, 2], what / moves, edge)
        elif what < moves + _TRADE_SHARE:
            _small_trade(m, drawn[e, 2])
        else:
            _quote(m, drawn[e, 2], drawn[e, 3])
        _happen(m, out)


@njit(cache=True)
def _gap(word, events_per_second):
    """ns from an event to the next: bursts, of mean 1 / events_per_second."""
    return 1 + np.int64(4.0 * _SECOND / events_per_second * _high(word) * _low(word))


@njit(cache=True)
def _press(m, word):
    """Let the latent pressure change when its time has come; True if it did."""
    if m.ts < m.latent_end:
        return False
    step = 1 if _high(word) < 0.5 else 2  # to either of the other two states
    m.latent = (m.latent + 1 + step) % 3 - 1
    m.latent_end = m.ts + 10 * _SECOND + np.int64(50.0 * _SECOND * _low(word))
    return True


@njit(cache=True)
def _latent_on(m, drawn, end, events_per_second, at, state):
    """The times and the pressure of `_trade_on` without its book: changes into at and state, returns how many."""
    n = 0
    for e in range(drawn.shape[0]):
        gap = _gap(drawn[e, 0], events_per_second)
        if m.ts + gap >= end:
            m.ts = end
            break
        m.ts += gap
        if _press(m, drawn[e, 3]):
            at[n], state[n] = m.ts, m.latent
            n += 1
    return n


@njit(cache=True)
def _move(m, word, share, edge):
    """The mid moves by half a tick or a whole one. The upper half of `word` gives the direction and nothing else."""
    up = _high(word) < 0.5 + edge * m.latent
    ahead, behind = (_ASK, _BID) if up else (_BID, _ASK)
    narrow = m.touch[_ASK] - m.touch[_BID] > 1
    if not narrow:
        _lose_touch(m, ahead, _low(word))
    if narrow or share < _WHOLE_TICK:
        size = np.int64(_aim(behind, _ZERO, m.latent) * (0.6 + 0.8 * _low(word)))
        _then(m, _A, behind, _ZERO, m.touch[behind] - _outward(behind), size, _AHEAD, _ZERO, size, _orders_of(size))


@njit(cache=True)
def _lose_touch(m, side, u):
    """The whole best level of a side goes: traded in three cases of five, else cancelled."""
    price, size = m.touch[side], m.lots[side, 0]
    if u < 0.6:
        _then(m, _T, side, _ZERO, price, size, _STAYS, _ZERO, _ZERO, _ZERO)
    deep = np.int64(_aim(side, np.int64(_DEPTH - 1), _ZERO))
    _then(m, _C, side, _ZERO, price, size, _GONE, _ZERO, deep, _orders_of(deep))
    if m.lots[side, 1] == 0:  # the hole behind is quoted within the event, so that the spread opens by one tick only
        lots = np.int64(_aim(side, _ZERO, m.latent))
        _then(m, _A, side, _ZERO, price + _outward(side), lots, _SET, _ZERO, lots, _orders_of(lots))


@njit(cache=True)
def _small_trade(m, word):
    """A trade that leaves the best level standing: T with the book before, then the fill as C or M."""
    side = _ASK if _high(word) < 0.5 + _TRADE_TILT * m.latent else _BID
    lots, orders, price = m.lots[side, 0], m.orders[side, 0], m.touch[side]
    size = min(1 + np.int64(6.0 * _low(word)), lots - 1)
    if size < 1:
        return
    whole = size % 2 == 0 and orders > 1  # an order filled whole leaves, one filled in part is changed
    orders = min(orders - 1 if whole else orders, lots - size)
    _then(m, _T, side, _ZERO, price, size, _STAYS, _ZERO, _ZERO, _ZERO)
    _then(m, _C if whole else _M, side, _ZERO, price, size, _SET, _ZERO, lots - size, orders)


@njit(cache=True)
def _quote(m, where, how):
    """An order is added, cancelled or changed at one price; sizes revert to their aim."""
    side = _BID if _high(where) < 0.5 else _ASK
    level = np.int64(_low(where) * _low(where) * _low(where) * _DEPTH)  # two quotes in five meet the touch
    aim, size, orders = _aim(side, level, m.latent), m.lots[side, level], m.orders[side, level]
    lot = 1 + np.int64(_low(how) * (2.0 + aim / 4.0))
    adds = _high(how) * (aim * aim + size * size) < aim * aim
    keep = 1 if level < _SAFE_LEVELS else 0
    if not adds:
        pulled = keep == 0 and _high(how) > 0.98  # the whole price goes: a hole in the book
        lot = size if pulled else min(lot, size - keep)
        if lot < 1:
            return
    rank = 0
    for k in range(level):
        rank += 1 if m.lots[side, k] > 0 else 0
    change = lot % 5 == 0 and size > lot  # an order grows or shrinks instead of coming or going
    left = size + lot if adds else size - lot
    if not change:
        orders += 1 if adds else -1
    orders = min(max(orders, 1), left)  # an order has a lot at least, and lots have an order
    if rank < _LEVELS:
        action = _M if change else _A if adds else _C
        _then(m, action, side, rank, m.touch[side] + level * _outward(side), lot, _SET, level, left, orders)
    else:  # deeper than the feed shows
        m.lots[side, level], m.orders[side, level] = left, orders
