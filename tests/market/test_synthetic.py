"""The synthetic market: files that Databento's client reads, book rules record by record, hours, the two settings.

Statistical bounds are 4 standard errors (chance 6e-5 a test under the hypothesis); seeds are fixed, so a test that
passes once passes always.
"""

from datetime import date, datetime, time
from zoneinfo import ZoneInfo

import databento
import numpy as np
import pytest
import torch

from foxhunt_assets.contracts.instruments import contract
from foxhunt_assets.errors import BadInput
from foxhunt_assets.market import features, folds, labels, norm, snapshots, synthetic, tape
from foxhunt_assets.market.synthetic import write_files
from tests.market.grid_by_hand import TICK, UNDEF, columns, records

CHICAGO = ZoneInfo("America/Chicago")
SIGMAS = 4.0
LAST = 128
FEE_TICKS = 2 * 225 / 1250


def stacked(r, field):
    return np.stack([r[f"{field}_{k:02d}"] for k in range(10)], 1).astype(np.int64)


@pytest.fixture(scope="module")
def market(tmp_path_factory):
    """Ten minutes of the planted market: the file and its records as the official client reads them."""
    path = write_files(tmp_path_factory.mktemp("m"), "planted", 3, 1, 10)[0]
    return path, records(path)


@pytest.fixture(scope="module", params=["planted", "martingale"])
def sessions(request, tmp_path_factory):
    """Four hours of each setting, one a day, as 250 ms rows: (setting, columns a session)."""
    paths = write_files(tmp_path_factory.mktemp(request.param), request.param, 0, 4, 60)
    return request.param, paths, [columns(p) for p in paths]


def test_the_official_client_reads_it_with_its_symbol(market):
    path, r = market
    assert path.name == "es-2024-04-01.planted.synthetic.mbp-10.dbn.zst"
    store = databento.DBNStore.from_file(path)
    assert (store.dataset, str(store.schema), store.metadata.version) == ("GLBX.MDP3", "mbp-10", 3)
    frame = store.to_df()
    assert len(frame) == len(r) > 5_000 and set(frame["symbol"]) == {"ESM4"}
    assert (r["rtype"] == 10).all() and (r["length"] == 92).all() and (r["publisher_id"] == 1).all()
    assert len(np.unique(r["instrument_id"])) == 1
    assert store.start.value <= r["ts_event"][0] and r["ts_event"][-1] < store.end.value


def test_times_and_events(market):
    _, r = market
    event, recv = r["ts_event"].astype(np.int64), r["ts_recv"].astype(np.int64)
    assert event[0] == datetime(2024, 4, 1, 8, 30, tzinfo=CHICAGO).timestamp() * 1e9
    assert (np.diff(event) >= 0).all() and (np.diff(recv) >= 0).all()
    delay = recv - event
    assert delay.min() >= 150_000 and 250_000 < np.median(delay) < 350_000
    # records of one event share sequence and times; F_LAST stands on the last of them and nowhere else
    same = np.diff(r["sequence"].astype(np.int64)) == 0
    assert (np.diff(r["sequence"].astype(np.int64)) >= 0).all()
    assert (np.diff(event)[same] == 0).all() and (np.diff(recv)[same] == 0).all()
    after_clear = np.flatnonzero(r["action"] == b"R")[0] + 1
    last = (r["flags"] & LAST) != 0
    assert (last[:-1] == ~same)[after_clear:].all() and last[-1]
    assert 0.1 < same.mean() < 0.5


def test_it_opens_with_a_clear_and_builds_the_book_in_one_event(market):
    _, r = market
    clear = r[0]
    assert (clear["action"], clear["side"], clear["price"], clear["size"], clear["flags"]) == (
        b"R",
        b"N",
        UNDEF,
        0,
        LAST,
    )
    assert (stacked(r[:1], "bid_px") == UNDEF).all() and (stacked(r[:1], "ask_sz") == 0).all()
    assert (r["action"] == b"R").sum() == 1
    opening = r[1:21]
    assert (opening["action"] == b"A").all() and (opening["sequence"] == opening["sequence"][0]).all()
    assert (stacked(r[19:20], "ask_px")[0, 9] == UNDEF) and (stacked(r[20:21], "ask_px") != UNDEF).all()


def test_every_book_is_a_book(market):
    _, r = market
    r = r[20:]
    bid, ask = stacked(r, "bid_px"), stacked(r, "ask_px")
    assert (bid != UNDEF).all() and (ask != UNDEF).all()
    assert (bid % TICK == 0).all() and (ask % TICK == 0).all()
    assert (np.diff(bid, axis=1) < 0).all() and (np.diff(ask, axis=1) > 0).all()
    for side in ("bid", "ask"):
        size, count = stacked(r, f"{side}_sz"), stacked(r, f"{side}_ct")
        assert (size >= 1).all() and (count >= 1).all() and (count <= size).all() and size.max() < 2_000
    spread = (ask[:, 0] - bid[:, 0]) // TICK
    last = (r["flags"] & LAST) != 0
    assert set(np.unique(spread[last])) == {1, 2} and (spread[last] == 1).mean() > 0.8
    assert (np.diff(ask, axis=1) > TICK).any()  # holes in the book


def test_each_record_says_what_happened_to_the_book(market):
    _, r = market
    px = {s: stacked(r, f"{n}_px") for s, n in ((b"B", "bid"), (b"A", "ask"))}
    sz = {s: stacked(r, f"{n}_sz") for s, n in ((b"B", "bid"), (b"A", "ask"))}
    seen = set()
    for i in range(21, len(r)):
        action, side, price, size, rank = (r[i][f] for f in ("action", "side", "price", "size", "depth"))
        seen.add(bytes(action))
        if action == b"T":
            touched = b"A" if side == b"B" else b"B"  # the aggressor buys from the ask
            for s in (b"A", b"B"):  # the book before the trade
                assert (px[s][i] == px[s][i - 1]).all() and (sz[s][i] == sz[s][i - 1]).all()
            assert price == px[touched][i][0] and 0 < size <= sz[touched][i][0]
            follower = r[i + 1]
            assert follower["action"] in (b"C", b"M") and follower["side"] == touched
            assert follower["sequence"] == r[i]["sequence"] and follower["size"] == size
            continue
        other = b"A" if side == b"B" else b"B"
        assert (px[other][i] == px[other][i - 1]).all() and (sz[other][i] == sz[other][i - 1]).all()
        before = dict(zip(px[side][i - 1], sz[side][i - 1])).get(price, 0)
        after = dict(zip(px[side][i], sz[side][i])).get(price, 0)
        if action == b"A":
            assert after - before == size and px[side][i][rank] == price
        elif action == b"C":
            assert before - after == size and px[side][i - 1][rank] == price
        else:
            assert abs(after - before) == size and px[side][i][rank] == price
    assert seen == {b"A", b"C", b"M", b"T"}


def test_same_seed_same_bytes(tmp_path):
    one = write_files(tmp_path / "one", "martingale", 5, 2, 2)
    again = write_files(tmp_path / "again", "martingale", 5, 3, 2)
    other = write_files(tmp_path / "other", "martingale", 6, 1, 2)
    assert [p.read_bytes() for p in one] == [p.read_bytes() for p in again[:2]]
    assert one[0].read_bytes() != other[0].read_bytes()
    assert not np.array_equal(records(one[0])["price"], records(one[1])["price"])


def test_two_settings_differ_in_direction_alone(tmp_path):
    planted, fair = (records(write_files(tmp_path, s, 5, 1, 3)[0]) for s in ("planted", "martingale"))
    times = [np.unique(r["ts_event"]) for r in (planted, fair)]
    shared = np.intersect1d(*times).size / max(t.size for t in times)
    assert shared > 0.99
    assert not np.array_equal(planted["bid_px_00"][: len(fair)], fair["bid_px_00"][: len(planted)])


def test_a_session_over_the_weekend_clears_and_rolls(tmp_path):
    lines = []
    # 452 minutes from Friday 08:30: 450 to the close, 2 on Sunday, where the roll of 17 June 2024 is in force
    path = write_files(tmp_path, "martingale", 0, 1, 452, date(2024, 6, 14), 8, progress=lines.append)[0]
    r = records(path)
    gap = int(np.argmax(np.diff(r["ts_event"].astype(np.int64))))
    before, after, end = (datetime.fromtimestamp(int(r["ts_event"][i]) / 1e9, CHICAGO) for i in (gap, gap + 1, -1))
    assert before.date() == date(2024, 6, 14) and time(15, 59, 50) < before.time() < time(16)
    assert after == datetime(2024, 6, 16, 17, tzinfo=CHICAGO) and time(17, 1, 50) < end.time() < time(17, 2)
    assert r["action"][gap + 1] == b"R" and (r["action"] == b"R").sum() == 2
    mappings = databento.DBNStore.from_file(path).mappings
    ids = {symbol: int(parts[0]["symbol"]) for symbol, parts in mappings.items()}
    assert set(ids) == {"ESM4", "ESU4"}
    assert (r["instrument_id"][: gap + 1] == ids["ESM4"]).all() and (r["instrument_id"][gap + 1 :] == ids["ESU4"]).all()
    assert lines == [f"{path.name}: {len(r):,} records"]


def opened(day, next_day, minutes):
    """(first minute, last minute) in Chicago of each stretch of a session."""
    spans = [(o.start, o.end) for o in synthetic._openings(day, next_day, minutes)]
    return [tuple(f"{datetime.fromtimestamp(t // 10**9, CHICAGO):%a %H:%M}" for t in span) for span in spans]


def test_sessions_keep_the_hours_of_the_exchange():
    monday, tuesday = date(2024, 4, 1), date(2024, 4, 2)
    assert opened(monday, tuesday, 10) == [("Mon 08:30", "Mon 08:40")]
    assert opened(monday, tuesday, 500) == [("Mon 08:30", "Mon 16:00"), ("Mon 17:00", "Mon 17:50")]
    assert opened(monday, tuesday, 1380) == [("Mon 08:30", "Mon 16:00"), ("Mon 17:00", "Tue 08:30")]
    friday = opened(date(2024, 4, 5), date(2024, 4, 8), 1380)
    assert friday == [("Fri 08:30", "Fri 16:00"), ("Sun 17:00", "Mon 08:30")]
    # 27 May 2024 closes at noon; what is left of the day does not run into Tuesday's file
    assert opened(date(2024, 5, 27), date(2024, 5, 28), 1380) == [
        ("Mon 08:30", "Mon 12:00"),
        ("Mon 17:00", "Tue 08:30"),
    ]
    # summer time began on Sunday 10 March 2024: the hours stay Chicago's
    assert opened(date(2024, 3, 8), date(2024, 3, 11), 1380)[1] == ("Sun 17:00", "Mon 08:30")


def test_days_are_trading_days():
    days = synthetic._trading_days(date(2024, 3, 27), 4)  # Good Friday, 29 March 2024, is closed
    assert [f"{d:%m-%d}" for d in days] == ["03-27", "03-28", "04-01", "04-02"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"setting": "random"}, "unknown setting 'random'; known: planted, martingale"),
        ({"sessions": 0}, "sessions 0"), ({"minutes": 0}, "minutes 0"), ({"minutes": 1381}, "to 1380"),
        ({"minutes": 0.016}, "minutes 0.016"),
        ({"minutes": float("nan")}, "minutes nan"), ({"sessions": 2_501}, "sessions 2501: 1 to 2500"),
        ({"events_per_second": float("inf")}, "events_per_second inf"), ({"seed": 2**63}, "seed 9223372036854775808"),
        ({"events_per_second": 1}, "events_per_second 1"), ({"seed": -1}, "seed -1"),
    ],
)  # fmt: skip
def test_refusals(tmp_path, changes, message):
    with pytest.raises(BadInput, match=message):
        write_files(tmp_path, **{"setting": "planted", "seed": 0, "sessions": 1, "minutes": 1, **changes})
    assert list(tmp_path.iterdir()) == []


def mids(c):
    return (c["bid_px"][:, 0] + c["ask_px"][:, 0]).numpy() / 2


def forecast(sessions, h):
    """Ridge on the features of the first half of the sessions; (forecast, h-row return) over the second half."""
    x = [features.compute(c, torch.zeros_like(c["ts"])).double().numpy() for c in sessions]
    y = [mids(c)[h:] - mids(c)[:-h] for c in sessions]
    fitted = np.concatenate(x[: len(x) // 2])
    mean, std = fitted.mean(0), fitted.std(0)
    z = [np.clip((v - mean) / np.where(std > 0, std, 1), -8, 8)[:-h] for v in x]
    half = len(z) // 2
    a, b = np.concatenate(z[:half]), np.concatenate(y[:half])
    weights = np.linalg.solve(a.T @ a + 10 * np.eye(a.shape[1]), a.T @ b)
    return [v @ weights for v in z[half:]], y[half:]


def test_features_predict_the_planted_market_and_not_the_martingale(sessions):
    setting, _, rows = sessions
    for h in (1, 60):
        guess, truth = forecast(rows, h)
        p, y = (np.concatenate([v[::h] for v in part]) for part in (guess, truth))  # returns that do not overlap
        # under a martingale the sum of p y has mean 0 and variance sum of p^2 y^2; out-of-sample R2, whatever the
        # scale of the forecast, is at most (sum p y)^2 / (sum p^2 sum y^2), about t^2 / n
        t = (p * y).sum() / np.sqrt((p**2 * y**2).sum())
        r2 = 1 - ((y - p) ** 2).sum() / (y**2).sum()
        if setting == "martingale":
            assert abs(t) < SIGMAS and r2 < SIGMAS**2 / len(y)
        else:
            assert t > 1.5 * SIGMAS and r2 > (0.005 if h == 1 else 0.08)
            assert np.corrcoef(p, y)[0, 1] > (0.08 if h == 1 else 0.3)


def test_moves_of_the_mid_are_fair_coins_in_the_martingale(sessions):
    """At the level of events: neither the book, nor the flow, nor the last move says which way the next one goes."""
    setting, paths, _ = sessions
    for path in paths:
        r = records(path)
        books = r[(r["flags"] & LAST) != 0][1:]
        mid = (books["bid_px_00"] + books["ask_px_00"]) / (2 * TICK)
        move = np.flatnonzero(np.diff(mid)) + 1
        step = np.diff(mid)[move - 1]
        assert set(np.abs(step)) == {0.5, 1.0} and len(move) > 3_000
        sizes = np.log(books["bid_sz_00"] / books["ask_sz_00"])[move - 1]
        odds = {"up": np.ones(len(step)), "imbalance": sizes, "last move": np.concatenate(([0], step[:-1]))}
        t = {k: (v * step).sum() / np.sqrt((v**2 * step**2).sum()) for k, v in odds.items()}
        if setting == "martingale":
            assert all(abs(v) < SIGMAS for v in t.values()), t
        else:
            assert t["imbalance"] > 2 * SIGMAS and t["last move"] > SIGMAS


def test_a_trader_with_latency_and_fees_earns_on_the_planted_edge_alone(sessions):
    """Enter on the mean of eight forecasts, fill one row later at the touch, hold eight rows or more, pay 450 cents."""
    setting, _, rows = sessions
    guess, _ = forecast(rows, 60)
    gains = []
    for p, c in zip(guess, rows[len(rows) // 2 :]):
        p = np.convolve(p, np.ones(8) / 8)[: len(p)]
        bid, ask = c["bid_px"][:, 0].numpy(), c["ask_px"][:, 0].numpy()
        i = 0
        while i < len(p) - 10:
            side = np.sign(p[i]) * (abs(p[i]) > 1.5)
            if side == 0:
                i += 1
                continue
            k = i + 9
            while k < len(p) - 2 and p[k] * side > -0.5:
                k += 1
            entry, leave = (ask[i + 1], bid[k + 1]) if side > 0 else (bid[i + 1], ask[k + 1])
            gains.append(side * (leave - entry) - FEE_TICKS)
            i = k + 1
    mean, error = np.mean(gains), np.std(gains) / np.sqrt(len(gains))
    if setting == "planted":
        assert len(gains) > 100 and mean > 2 and mean > SIGMAS * error
    else:
        assert mean < SIGMAS * error


def test_the_decoder_sees_the_same_market(market, tmp_path):
    """File to rows, fold, labels and scaling through the project's own decoder, against the rows made by hand."""
    path, _ = market
    snapshots.decode(path, tmp_path, contract("ES"), 250)
    snapshots.validate(tmp_path)
    by_hand = columns(path)
    info = folds.source_info("es-planted-synthetic", tmp_path)
    assert len(info.segments) == 1 and info.segments[0].symbol == "ESM4" and info.segments[0].trade_date == "2024-04-01"
    names = [*features.COLUMNS, "segment"]
    read = tape.read_columns([folds.TapeSource("k", 0, info.n_rows, "")], lambda key: tmp_path, names)
    start = int(np.searchsorted(read["ts"].numpy(), by_hand["ts"][0].item()))
    n = min(info.n_rows - start, len(by_hand["ts"]))
    assert n > 2_390
    for name in features.COLUMNS:
        # the first row by hand also counts the opening, which the decoder may count into a row of its own
        a, b = read[name][start + 1 : start + n], by_hand[name][1:n]
        assert np.array_equal(a if name != "ofi" else a[:, 0], b if name != "ofi" else b[:, 0]), name
    spec = folds.make_fold(0, 1, [info], root="ES", grid_ms=250, window=32, latency_steps=1, horizons=(4, 60))
    assert spec.synthetic
    tensors = tape.read_columns(spec.sources, lambda key: tmp_path, features.COLUMNS)
    report = labels.write_labels(spec, tensors, tmp_path)
    assert 0.3 < report["sigma_step"] < 0.6 and min(report["counts"]["h60"][1:]) > 0
    assert norm.write_norm(spec, tensors, tmp_path)["constant"] == []
