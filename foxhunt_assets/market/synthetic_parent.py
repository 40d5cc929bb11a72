"""What a parent file of ES holds beside the front month, for generated files: a back month, the calendar spread
between the two, and spells in which a side of the front book is thin or empty.

The back month follows the front month at a fixed distance, a tick wider on either side; the spread trades on its own
tick of 0.05 at negative prices. Each of their records is true to the book it shows, as those of the front month are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from foxhunt_assets.contracts.instruments import UNDEF_PRICE
from foxhunt_assets.contracts.tables import LEVELS
from foxhunt_assets.market.dbn import F_LAST, MBP10_DTYPE, RTYPES

CARRY_TICKS = 220  # back month over front month: 55 points, about what ES months lie apart at 5 % interest
SPREAD_TICK = 50_000_000  # CME: 0.05 points for ES calendar spreads
SPREAD_START = -1_100  # ticks of the spread: -55.00
_SPREAD_REACH = 3  # ticks the spread wanders from where it starts
_SPREAD_EVERY = 4  # changes of the front touch to a move of the spread
_WIDER = 1  # ticks the back month is wider on either side
_SECOND = 10**9
_THIN_KEEPS = (0, 3)  # levels a thin side still shows
_SIDES = "BA"
_NAMES = ("bid", "ask")


class Follower:
    """An instrument whose touch is set from outside; tells each change as records. Sizes depend on the price alone."""

    def __init__(self, instrument_id: int, tick: int):
        self.instrument_id, self.tick = instrument_id, tick
        self.touch: list[int] | None = None

    def requote(self, at: np.void, bid: int, ask: int) -> list[np.ndarray]:
        """Records of one event at the times of another instrument's record `at`: the best prices become bid and ask,
        each at most a tick from where it was. A level that is lost was traded, or cancelled, by its price."""
        if self.touch is None:
            return self._open(at, bid, ask)
        out: list[np.ndarray] = []
        for side, new in enumerate((bid, ask)):
            old, outward = self.touch[side], (-1, 1)[side]
            if new == old:
                continue
            if (new - old) * outward > 0:
                if old % 2:
                    out.append(self._record(at, "T", 1 - side, old, 0))
                self.touch[side] = new
                out.append(self._record(at, "C", side, old, 0))
            else:
                self.touch[side] = new
                out.append(self._record(at, "A", side, new, 0))
        return _ended(out)

    def _open(self, at: np.void, bid: int, ask: int) -> list[np.ndarray]:
        self.touch = [bid, ask]
        whole = self._record(at, "A", 0, bid, 0)
        clear = whole.copy()
        clear["action"], clear["side"], clear["price"], clear["size"] = ord("R"), ord("N"), UNDEF_PRICE, 0
        clear["flags"] = F_LAST
        for side in range(2):
            hide(clear, side, 0)
        adds = []
        for level in range(LEVELS):
            for side in range(2):
                add = self._record(at, "A", side, (bid - level, ask + level)[side], level)
                hide(add, 0, level + 1)
                hide(add, 1, level + side)
                adds.append(add)
        return [clear, *_ended(adds)]

    def _record(self, at: np.void, action: str, letter: int, price: int, depth: int) -> np.ndarray:
        """A record that shows the standing book. letter: index into "BA"."""
        assert self.touch is not None
        made = np.zeros(1, MBP10_DTYPE)
        made["length"], made["rtype"], made["publisher_id"] = MBP10_DTYPE.itemsize // 4, RTYPES["mbp-10"], 1
        made["instrument_id"] = self.instrument_id
        for name in ("ts_event", "ts_recv", "ts_in_delta", "sequence"):
            made[name] = at[name]
        made["action"], made["side"], made["depth"] = ord(action), ord(_SIDES[letter]), depth
        made["price"], made["size"] = price * self.tick, _lots(np.array(price))
        k = np.arange(LEVELS)
        for name, prices in zip(_NAMES, (self.touch[0] - k, self.touch[1] + k), strict=True):
            made["levels"][f"{name}_px"] = prices * self.tick
            made["levels"][f"{name}_sz"] = _lots(prices)
            made["levels"][f"{name}_ct"] = (_lots(prices) + 2) // 3
        return made


class ParentFile:
    """Turns blocks of front-month records into blocks of all three instruments, in order of capture.

    back_id, spread_id: exchange ids. thin: whether the front book has thin spells. draws: a stream of their own, so
    that the front month is the same with and without them.
    """

    def __init__(self, back_id: int, spread_id: int, parent: bool, thin: bool, draws: np.random.PCG64, start: int):
        self._back = Follower(back_id, 250_000_000)
        self._spread = Follower(spread_id, SPREAD_TICK)
        self._parent, self._draws = parent, draws
        self._wander, self._events = SPREAD_START, 0
        self._spells = _Spells(draws, start) if thin else None

    def add(self, block: np.ndarray) -> np.ndarray:
        """Records MBP10 [n] of the front month, whole events; returns those and what goes with them."""
        others = [record for at in _touch_changes(block) for record in self._follow(at)] if self._parent else []
        front = self._spells.thin(block) if self._spells else block
        both = np.concatenate([front, *others])
        return both[np.argsort(both["ts_recv"], kind="stable")]

    def _follow(self, at: np.void) -> Iterator[np.ndarray]:
        bid, ask = (int(at["levels"][0][f"{name}_px"]) // self._back.tick + CARRY_TICKS for name in _NAMES)
        yield from self._back.requote(at, bid - _WIDER, ask + _WIDER)
        if self._events % _SPREAD_EVERY == 0:
            step = 1 if int(self._draws.random_raw()) & 1 else -1
            if abs(self._wander + step - SPREAD_START) <= _SPREAD_REACH:
                self._wander += step
            yield from self._spread.requote(at, self._wander, self._wander + 1)
        self._events += 1


def hide(records: np.ndarray, side: int, keep: int) -> None:
    """Take the levels from `keep` on off one side of the books of records: no price, size 0, count 0."""
    name = _NAMES[side]
    records["levels"][f"{name}_px"][:, keep:] = UNDEF_PRICE
    records["levels"][f"{name}_sz"][:, keep:] = 0
    records["levels"][f"{name}_ct"][:, keep:] = 0


@dataclass(frozen=True)
class _Spell:
    start: int
    end: int
    side: int
    keep: int


class _Spells:
    """Stretches of two to six seconds, half a minute or so apart, in which one side of the book is thin or empty.

    It thins by cancels and comes back by adds, an event each. While it lasts, what happens out of sight is not told.
    """

    def __init__(self, draws: np.random.PCG64, start: int):
        self._draws = draws
        self._next = self._draw(start)
        self._now: _Spell | None = None
        self._before: np.ndarray | None = None  # the last record told, its book whole

    def _draw(self, after: int) -> _Spell:
        a, b, c = (int(x) for x in self._draws.random_raw(3))
        start = after + 20 * _SECOND + a % (20 * _SECOND)
        return _Spell(start, start + 2 * _SECOND + b % (4 * _SECOND), c & 1, _THIN_KEEPS[c >> 1 & 1])

    def thin(self, block: np.ndarray) -> np.ndarray:
        out: list[np.ndarray] = []
        at = 0
        while at < len(block):
            t = int(block["ts_event"][at])
            if self._now is not None and t >= self._now.end:
                out += self._come_back(block[at], self._now)
                self._next, self._now = self._draw(self._now.end), None
            if self._now is None and t >= self._next.start:
                self._now = self._next
                out += self._go(block[at], self._now)
            until = self._now.end if self._now else self._next.start
            stop = at + int(np.searchsorted(block["ts_event"][at:], until, side="left"))
            part = block[at:stop]
            out.append(_seen(part, self._now) if self._now else part)
            self._before = part[-1:].copy()
            at = stop
        return np.concatenate(out)

    def _go(self, at: np.void, spell: _Spell) -> list[np.ndarray]:
        levels = range(self._shown(spell) - 1, spell.keep - 1, -1)
        return _ended([self._change(at, spell, "C", level, level) for level in levels])

    def _come_back(self, at: np.void, spell: _Spell) -> list[np.ndarray]:
        levels = range(spell.keep, self._shown(spell))
        return _ended([self._change(at, spell, "A", level, level + 1) for level in levels])

    def _shown(self, spell: _Spell) -> int:
        assert self._before is not None
        return int((self._before["levels"][f"{_NAMES[spell.side]}_px"] != UNDEF_PRICE).sum())

    def _change(self, at: np.void, spell: _Spell, action: str, level: int, left: int) -> np.ndarray:
        assert self._before is not None
        made, name = self._before.copy(), _NAMES[spell.side]
        for field in ("ts_event", "ts_recv", "ts_in_delta", "sequence"):
            made[field] = at[field]
        made["action"], made["side"], made["depth"] = ord(action), ord(_SIDES[spell.side]), level
        made["price"], made["size"] = (made["levels"][f"{name}_{what}"][:, level] for what in ("px", "sz"))
        made["flags"] = 0
        hide(made, spell.side, left)
        return made


def _seen(part: np.ndarray, spell: _Spell) -> np.ndarray:
    """Records of a spell: books without the hidden levels, nothing about those, every event ended."""
    part = part.copy()
    resting = np.where(part["action"] == ord("T"), ord("A") + ord("B") - part["side"], part["side"])
    told = (resting != ord(_SIDES[spell.side])) | (part["depth"] < spell.keep)
    hide(part, spell.side, spell.keep)
    part = part[told]
    last = np.append(np.diff(part["sequence"].astype(np.int64)) != 0, True)[: len(part)]
    part["flags"] = np.where(last, F_LAST, 0)
    return part


def _touch_changes(block: np.ndarray) -> Iterator[np.void]:
    """Records that end an event with another touch than the event end before; the block's first too."""
    ends = block[((block["flags"] & F_LAST) != 0) & (block["action"] != ord("R"))]
    touch = np.stack([ends["levels"][f"{name}_px"][:, 0] for name in _NAMES], 1)
    moved = np.append(True, (np.diff(touch, axis=0) != 0).any(axis=1))
    yield from ends[moved[: len(ends)]]


def _ended(records: list[np.ndarray]) -> list[np.ndarray]:
    for record in records:
        record["flags"] = F_LAST if record is records[-1] else 0
    return records


def _lots(price: np.ndarray) -> np.ndarray:
    return 3 + price * 7 % 11
