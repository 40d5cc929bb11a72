"""A second simulator in plain Python, one account and one lot at a time: the oracle of the vectorised one.

It shares no code with foxhunt_assets.simulator but the configuration and the reason names of the trades table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

ABSENT = -(2**31)
COUNTS = (
    "orders", "fills", "fill_lots", "buy_lots", "rejected", "cancelled_lots", "forced_rest_lots", "slippage_half_ticks",
)  # fmt: skip


@dataclass
class Unit:
    side: int
    entry_prices: list  # one price a lot
    entry_fee: int
    entry_step: int
    entry_ts: int
    action: int
    signs: tuple
    distance: np.float32
    best: int
    triggered: bool = False
    parts_tick_lots: int = 0
    parts_fee: int = 0
    lots: int = 0

    def __post_init__(self):
        self.lots = len(self.entry_prices)

    def stop(self):
        return self.best - self.side * math.ceil(self.distance)


@dataclass
class Account:
    number: int
    row: int
    units: list = field(default_factory=list)
    taken: dict = field(default_factory=dict)  # (book side, price) -> (lots, size shown)
    pending: list = field(default_factory=list)
    realised: int = 0
    age: int = 0
    mark: int | None = None
    touch: tuple | None = None
    streak: int = 0
    phase_realised: int = 0
    cash: int = 0


class Plain:
    """stretch_last[r], session_end[r]: as the walk means them. start(account, step, row): next row of an ended one."""

    def __init__(self, env, tape, tick_cents, accounts, window, stretch_last, session_end, start):
        self.env, self.tape, self.tick_cents, self.window = env, tape, tick_cents, window
        self.stretch_last, self.session_end, self.start = stretch_last, session_end, start
        self.accounts = [self.fresh(Account(i, 0), start(i, None, None)) for i in range(accounts)]

    def fresh(self, old, row):
        new = Account(old.number, row, phase_realised=old.phase_realised, cash=old.cash)
        new.pending = [(2, (0, 0, 0), None)] * (self.env.latency_steps - 1)
        self.see(new, row)
        return new

    def levels(self, row, side):
        px, sz = (self.tape[f"{side}_px"][row], self.tape[f"{side}_sz"][row])
        return [(int(p), int(s)) for p, s in zip(px, sz) if p != ABSENT]

    def sound(self, row):
        bids, asks = self.levels(row, "bid"), self.levels(row, "ask")
        return bool(bids and asks and bids[0][0] < asks[0][0])

    def see(self, a, row):
        bids, asks = self.levels(row, "bid"), self.levels(row, "ask")
        if bids and asks:
            a.mark = bids[0][0] + asks[0][0]
        if self.sound(row):
            a.touch = (bids[0][0], asks[0][0])
        shown = {("bid", p): s for p, s in bids} | {("ask", p): s for p, s in asks}
        a.taken = {k: (lots, s) for k, (lots, s) in a.taken.items() if shown.get(k) == s}

    def legal(self, a, step):
        env, row = self.env, a.row
        first = row
        while first > 0 and self.tape["segment"][first - 1] == self.tape["segment"][row]:
            first -= 1
        if row - first + 1 < self.window:
            return {2}
        side = a.units[0].side if a.units else 0
        young = [step - u.entry_step < env.min_hold_steps for u in a.units]
        half, touched = (sum(u.lots for u in a.units) + 1) // 2, []
        for u, y in zip(a.units, young):
            if half > 0:
                touched.append(y)
            half -= u.lots
        out = {2}
        room = len(a.units) < env.max_units
        for entry, entry_side in ((0, -1), (1, -1), (5, 1), (6, 1)):
            if (side in (0, entry_side) and room) or (side == -entry_side and not any(young)):
                out.add(entry)
        if side:
            out |= {7, 8}
            if not any(young):
                out.add(3 if side > 0 else 4)
            if not any(touched):
                out.add(9 if side > 0 else 10)
        return out

    def send(self, a, row, side, lots, force=False, stop=None):
        """Prices of the lots filled, in order; None where the order never reached the book."""
        if not self.sound(row):
            if not force:
                self.counts["rejected"] += 1
                return []
            prices = [a.touch[1] if side > 0 else a.touch[0]] * lots
            self.counts["forced_rest_lots"] += lots
        else:
            name = "ask" if side > 0 else "bid"
            prices = []
            levels = self.levels(row, name)
            for px, shown in levels:
                had = a.taken.get((name, px), (0, shown))[0]
                take = min(shown - had, lots - len(prices))
                if take > 0:
                    a.taken[(name, px)] = (had + take, shown)
                    fill = px if stop is None else (max(px, stop) if side > 0 else min(px, stop))
                    prices += [fill] * take
            if force:
                self.counts["forced_rest_lots"] += lots - len(prices)
                prices += [levels[-1][0]] * (lots - len(prices))
        self.counts["orders"] += 1
        self.counts["fills"] += bool(prices)
        self.counts["fill_lots"] += len(prices)
        self.counts["buy_lots"] += len(prices) * (side > 0)
        self.counts["cancelled_lots"] += lots - len(prices)
        self.counts["slippage_half_ticks"] += sum(side * (2 * px - a.mark) for px in prices)
        fee = int(self.tape["fee_cents"][row]) * len(prices)
        self.fee += fee
        a.cash += -side * sum(prices) * self.tick_cents - fee
        return prices

    def close(self, a, unit, prices, row, step, reason, action):
        n = len(prices)
        if n == 0:
            return
        total, fee = sum(unit.entry_prices), unit.entry_fee
        if n == unit.lots:
            entry, entry_fee = total - unit.parts_tick_lots, fee - unit.parts_fee
        else:
            entry, entry_fee = total * n // len(unit.entry_prices), fee * n // len(unit.entry_prices)
        unit.parts_tick_lots += entry
        unit.parts_fee += entry_fee
        unit.lots -= n
        fees = entry_fee + n * int(self.tape["fee_cents"][row])
        pnl = unit.side * (sum(prices) - entry) * self.tick_cents - fees
        a.realised += pnl
        a.phase_realised += pnl
        a.streak = 0 if pnl > 0 else a.streak + 1
        self.trades.append(
            (a.number, unit.side, n, unit.entry_step, step, unit.entry_ts, int(self.tape["ts"][row]), entry,
             sum(prices), fees, pnl, reason, unit.action, action, *unit.signs)
        )  # fmt: skip
        if unit.lots == 0:
            a.units.remove(unit)

    def close_oldest(self, a, prices, row, step, reason, action):
        for unit in list(a.units):
            mine, prices = prices[: unit.lots], prices[unit.lots :]
            self.close(a, unit, mine, row, step, reason, action)

    def open_cents(self, a):
        lots = sum(u.side * u.lots for u in a.units)
        if lots == 0:
            return 0
        cost = sum(u.side * (sum(u.entry_prices) - u.parts_tick_lots) for u in a.units)
        fees = sum(u.entry_fee - u.parts_fee for u in a.units)
        return (lots * a.mark * self.tick_cents) // 2 - cost * self.tick_cents - fees

    def equity(self, a):
        return self.env.start_equity_cents + a.realised + self.open_cents(a)

    def policy(self, a, action, signs, row, step):
        env = self.env
        side = a.units[0].side if a.units else 0
        lots = sum(u.lots for u in a.units)
        if action in (7, 8):
            factor = np.float32(env.trail_tighten if action == 7 else env.trail_loosen)
            for u in a.units:
                u.distance = min(max(np.float32(u.distance * factor), np.float32(env.trail_min_ticks)),
                                 np.float32(env.trail_max_ticks))  # fmt: skip
            return
        wanted = {0: -1, 1: -1, 5: 1, 6: 1}.get(action, 0)
        if wanted and side in (0, wanted):
            if len(a.units) == env.max_units:
                self.counts["rejected"] += 1
                return
            prices = self.send(a, row, wanted, env.lots_large if action in (0, 6) else env.lots_small)
            if prices:
                distance = min(
                    max(env.initial_r_ticks * env.trail_initial_mult, env.trail_min_ticks), env.trail_max_ticks
                )
                best = self.levels(row, "bid" if wanted > 0 else "ask")[0][0]
                fee = len(prices) * int(self.tape["fee_cents"][row])
                a.units.append(
                    Unit(
                        wanted, prices, fee, step, int(self.tape["ts"][row]), action, signs, np.float32(distance), best
                    )
                )
            return
        whole = (wanted and side == -wanted) or (action == 3 and side > 0) or (action == 4 and side < 0)
        half = (action == 9 and side > 0) or (action == 10 and side < 0)
        if whole or half:
            prices = self.send(a, row, -side, lots if whole else (lots + 1) // 2)
            self.close_oldest(a, prices, row, step, "policy", action)
        elif action != 2:
            self.counts["rejected"] += 1

    def step(self, actions, step, signs, phase_end, drain=False):
        """One list of results an account: (equity change, fee, terminated, truncated, equity, reason)."""
        self.trades, self.counts = [], dict.fromkeys(COUNTS, 0)
        out = []
        for a in self.accounts:
            out.append(self.step_one(a, int(actions[a.number]), step, tuple(signs[a.number]), phase_end, drain))
        return out

    def step_one(self, a, action, step, signs, phase_end, drain):
        env = self.env
        before, self.fee = self.equity(a), 0
        anchor, row = a.row, a.row if drain else a.row + 1
        if action not in self.legal(a, step) or drain:
            action = 2
        self.see(a, row)
        due = 2
        if not drain:
            a.pending.append((action, signs, None))
            due, due_signs, _ = a.pending.pop(0)
            self.stops(a, row, step)
            self.policy(a, due, due_signs, row, step)
        reason = ""
        last = self.stretch_last[anchor]
        if not drain and last - anchor <= 1 and self.session_end[last]:
            reason = "session"
        elif self.equity(a) <= 0:
            reason = "blown"
        elif not drain and last - anchor <= 1:
            reason = "gap"
        elif not drain and a.age + 1 >= env.episode_length:
            reason = "length"
        elif phase_end or drain:
            reason = "phase_end"
        if reason and a.units:
            lots = sum(u.lots for u in a.units)
            prices = self.send(a, row, -a.units[0].side, lots, force=True)
            self.close_oldest(a, prices, row, step, reason, due)
        if self.sound(row):
            for u in a.units:
                touch = self.levels(row, "bid" if u.side > 0 else "ask")[0][0]
                u.best = max(u.best, touch) if u.side > 0 else min(u.best, touch)
        a.row, a.age = row, a.age + 1
        equity = self.equity(a)
        done = reason in ("session", "blown")
        return equity - before, self.fee, done, bool(reason) and not done, equity, reason

    def stops(self, a, row, step):
        low, high = int(self.tape["low_bid_px"][row]), int(self.tape["high_ask_px"][row])
        for unit in list(a.units):
            stop = unit.stop()
            touched = low != ABSENT and low <= stop if unit.side > 0 else high != ABSENT and high >= stop
            unit.triggered |= touched
            if unit.triggered:
                prices = self.send(a, row, -unit.side, unit.lots, stop=stop)
                self.close(a, unit, prices, row, step, "trail", 2)

    def advance(self, step, results):
        for i, (a, result) in enumerate(zip(self.accounts, results)):
            if result[5]:
                self.accounts[i] = self.fresh(a, self.start(i, step, a.row))
