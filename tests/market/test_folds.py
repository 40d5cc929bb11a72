"""Folds on made-up sources: known cuts, no leak over many shapes, stability when files arrive, refusals."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foxhunt_assets.errors import BadInput
from foxhunt_assets.market import folds
from foxhunt_assets.market.folds import FoldSpec, SourceInfo, TapeSegment, make_fold

GRID = 250_000_000
DAY = 86_400 * 10**9
HOUR = 3_600 * 10**9


def source(key, stretches, outside=0, grid_ms=250):
    """stretches: (rows, trade date, first ts, ended_by[, instrument]). outside: rows before each segment."""
    segments, spans, at = [], [], 0
    for number, (rows, date, ts, ended_by, *iid) in enumerate(stretches):
        at += outside
        segments.append(
            TapeSegment(number, "ESM4", iid[0] if iid else 7, date, at, at + rows, ended_by, 250_000_000, 5_000)
        )
        spans.append((ts, ts + (rows - 1) * GRID))
        at += rows
    return SourceInfo(key, at, tuple(segments), tuple(spans), lambda a, b: f"{key}[{a}:{b}]", grid_ms)


def day(n, rows=1000, ended_by="session"):
    return source(f"day{n}", [(rows, f"2024-04-{n:02d}", n * DAY + 14 * HOUR, ended_by)])


def fold(index, n_folds, sources, **changes):
    settings = {"root": "ES", "grid_ms": 250, "window": 4, "latency_steps": 1, "horizons": (10, 20)}
    return make_fold(index, n_folds, sources, **{**settings, **changes})


def test_whole_sessions():
    days = [day(n) for n in range(1, 8)]  # 7 sessions, 2 folds: 2 sessions a block
    first, second = fold(0, 2, days), fold(1, 2, days)
    assert first.mode == second.mode == "sessions" and first.purge_rows == 21
    assert first.train == ((0, 979),)
    assert first.validation == ((1000, 1979),)
    assert first.test == ((2000, 3000), (3000, 4000))
    assert [s.key for s in first.sources] == ["day1", "day2", "day3", "day4"] and first.n_rows == 4000
    assert second.train == ((0, 1000), (1000, 2000), (2000, 2979))
    assert second.validation == ((3000, 3979),)
    assert second.test == ((4000, 5000), (5000, 6000))
    assert second.segments[5] == TapeSegment(5, "ESM4", 7, "2024-04-06", 5000, 6000, "session", 250_000_000, 5_000)


def test_one_short_file_is_cut_in_blocks():
    one = source("hour", [(3000, "2024-04-01", DAY, "session")])
    first, second = fold(0, 2, [one]), fold(1, 2, [one])
    assert first.mode == "blocks"
    assert first.validation == ((882, 979),)  # blocks of 1000; 979 kept after the purge, 97 of them validate
    assert first.train == ((0, 861),) and first.test == ((1000, 2000),)
    assert first.n_rows == 2000 and first.segments[0].row_end == 2000 and first.segments[0].ended_by == "file"
    assert second.validation == ((1782, 1979),) and second.train == ((0, 1761),) and second.test == ((2000, 3000),)
    assert second.segments[0].ended_by == "session"


def test_embargo_takes_rows_after_what_an_earlier_fold_evaluated():
    one = source("hour", [(3000, "2024-04-01", DAY, "session")])
    second = fold(1, 2, [one], embargo_rows=7)
    # fold 0 validated up to 979 and tested up to 2000, which is past this fold's training
    assert second.train == ((0, 979), (986, 1761))
    assert fold(0, 2, [one], embargo_rows=7).train == ((0, 861),)


def test_a_new_file_leaves_old_folds_alone():
    days = [day(n) for n in range(1, 8)]
    versions = [folds.data_version(fold(i, 2, days)) for i in range(2)]
    assert versions[0] != versions[1]
    later = [*days, day(8)]  # 8 sessions still make blocks of 2
    assert [fold(i, 2, later) for i in range(2)] == [fold(i, 2, days) for i in range(2)]
    assert [folds.data_version(fold(i, 2, later, quarantined=[("day9", "cut")])) for i in range(2)] == versions
    # more folds over more files, by a fixed block: fold 0 and 1 stay
    fixed = [fold(i, 2, days, sessions_per_block=1) for i in range(2)]
    assert [fold(i, 5, later, sessions_per_block=1) for i in range(2)] == fixed
    # a change of content of an old file is seen
    changed = [dataclasses.replace(days[0], content=lambda a, b: "other"), *days[1:]]
    assert folds.data_version(fold(0, 2, changed)) != versions[0]


def test_sources_come_in_any_order():
    days = [day(n) for n in range(1, 8)]
    assert fold(1, 2, days[::-1]) == fold(1, 2, days)


BLOCKS = [
    (3, 2, 0), (4, 2, 1), (6, 2, 2), (9, 2, 3), (12, 2, 4), (17, 2, 4), (18, 2, 6), (2, 1, 0), (3, 1, 1), (10, 8, 1),
]  # fmt: skip


@pytest.mark.parametrize(("sessions", "folds_", "block"), BLOCKS)
def test_automatic_block(sessions, folds_, block):
    assert folds._automatic_block(sessions, folds_) == block


def test_files_cut_at_midnight_join_into_one_segment():
    midnight = 2 * DAY
    a = source("a", [(400, "2024-04-02", midnight - 400 * GRID, "file")], outside=3)
    b = source("b", [(600, "2024-04-02", midnight, "session"), (500, "2024-04-03", midnight + HOUR, "file")])
    spec = fold(0, 1, [a, b])
    assert spec.mode == "blocks"  # two sessions are one too few
    assert [(s.row_start, s.row_end, s.trade_date) for s in spec.segments] == [
        (0, 1000, "2024-04-02"), (1000, 1500, "2024-04-03"),
    ]  # fmt: skip
    assert [(s.key, s.row_start, s.row_end, s.content) for s in spec.sources] == [
        ("a", 3, 403, "a[3:403]"), ("b", 0, 1100, "b[0:1100]"),
    ]  # fmt: skip
    assert spec.test == ((750, 1000), (1000, 1500))


@pytest.mark.parametrize("change", ["reset", "rows before", "silence", "other date", "other instrument"])
def test_files_with_something_between_do_not_join(change):
    midnight = 2 * DAY
    ended_by = "reset" if change == "reset" else "file"
    date = "2024-04-03" if change == "other date" else "2024-04-02"
    late = 11 * 10**9 if change == "silence" else 0
    a = source("a", [(400, "2024-04-02", midnight - 400 * GRID, ended_by)])
    b = source("b", [(600, date, midnight + late, "session", 8 if change == "other instrument" else 7)],
               outside=1 if change == "rows before" else 0)  # fmt: skip
    assert len(fold(0, 1, [a, b]).segments) == 2


def test_rows_between_segments_of_one_file_stay_outside_every_segment():
    one = source("one", [(1500, "2024-04-01", DAY, "reset"), (1500, "2024-04-01", DAY + HOUR, "session")], outside=10)
    spec = fold(1, 2, [one])
    assert spec.sources[0].row_start == 10 and spec.n_rows == 3010
    assert [(s.row_start, s.row_end) for s in spec.segments] == [(0, 1500), (1510, 3010)]
    assert spec.test == ((2010, 3010),)
    assert spec.validation == ((1792, 1989),)


def test_a_session_whose_other_half_has_not_come_is_left_out():
    days = [day(n) for n in range(1, 4)]
    stub = source("stub", [(400, "2024-04-05", 5 * DAY - 400 * GRID, "file")])
    assert fold(0, 1, [*days, stub]).test == ((2000, 3000),)
    assert fold(0, 1, [*days, stub]) == fold(0, 1, days)
    whole = source("whole", [(400, "2024-04-05", 4 * DAY + HOUR, "file")])
    assert fold(0, 2, [*days, whole]).mode == "sessions"
    assert fold(0, 2, [*days, stub]).mode == "blocks"


def test_refusals():
    with pytest.raises(BadInput, match=r"fold_2: folds are fold_0 to fold_1"):
        fold(2, 2, [day(1, 5000)])
    with pytest.raises(BadInput, match="twin: ESM4 on 2024-04-01 overlaps in time with day1"):
        fold(0, 1, [day(1, 5000), dataclasses.replace(day(1, 5000), key="twin")])
    with pytest.raises(BadInput, match="different instruments overlap"):
        other = source("other", [(2000, "2024-04-01", DAY + 14 * HOUR + 1, "session", 8)])
        fold(0, 1, [day(1, 2000), other])
    with pytest.raises(BadInput, match="0 usable rows"):
        fold(0, 1, [])


def test_too_few_rows_names_a_number_that_is_enough():
    with pytest.raises(BadInput, match="usable rows, 2 folds need") as error:
        fold(0, 2, [day(1, 100)])
    need = int(str(error.value).split(" folds need ")[1].split(":")[0])
    assert fold(0, 2, [day(1, need)]).mode == "blocks"
    with pytest.raises(BadInput, match=f"{need - 1} usable rows"):
        fold(0, 2, [day(1, need - 1)])


def test_short_pieces_are_refused():
    pieces = [(5, "2024-04-01", DAY + n * HOUR, "gap") for n in range(200)]
    with pytest.raises(BadInput, match="an unbroken stretch of 6"):
        fold(0, 1, [source("gappy", pieces)])


def test_json_round_trip():
    spec = fold(1, 2, [day(n) for n in range(1, 8)], quarantined=[("x", "cut")])
    assert FoldSpec.from_json(spec.to_json()) == spec


shapes = st.fixed_dictionaries({
    "lengths": st.lists(st.integers(50, 400), min_size=1, max_size=9),
    "per_date": st.integers(1, 3), "outside": st.integers(0, 3), "n_folds": st.integers(1, 3),
    "horizon": st.integers(1, 30), "latency": st.integers(1, 3), "window": st.integers(1, 8),
    "embargo": st.integers(0, 20), "block": st.sampled_from([None, 1, 2]),
})  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(shapes)
def test_nothing_of_a_training_row_reaches_an_evaluation_row(shape):
    sources = [
        source(f"s{i}", [(n, f"2024-04-{1 + i // shape['per_date']:02d}", (i + 1) * DAY, "session")], shape["outside"])
        for i, n in enumerate(shape["lengths"])
    ]
    reach = shape["horizon"] + shape["latency"]
    try:
        specs = [
            fold(i, shape["n_folds"], sources, horizons=(1, shape["horizon"]), latency_steps=shape["latency"],
                 window=shape["window"], embargo_rows=shape["embargo"], sessions_per_block=shape["block"])
            for i in range(shape["n_folds"])
        ]  # fmt: skip
    except BadInput:
        return
    for spec in specs:
        usable = [r for s in spec.segments for r in range(s.row_start, s.row_end)]
        rank = {row: i for i, row in enumerate(usable)}
        parts = [[r for a, b in ranges for r in range(a, b)] for ranges in (spec.train, spec.validation, spec.test)]
        assert all(parts) and all(set(p) <= set(usable) for p in parts)
        for earlier, later in ((0, 1), (0, 2), (1, 2)):
            # the furthest row a label or a pending order can touch, even were segments to go on
            assert rank[parts[earlier][-1]] + reach < rank[parts[later][0]]
        # each range lies inside one segment, and each part has room to stand
        segment = {r: s.segment for s in spec.segments for r in range(s.row_start, s.row_end)}
        for ranges in (spec.train, spec.validation, spec.test):
            assert all(segment[a] == segment[b - 1] and b - a == segment_rows(segment, a, b) for a, b in ranges)
            assert max(b - a for a, b in ranges) > shape["window"] + shape["latency"]
        # the tape ends with the test
        assert spec.n_rows == spec.segments[-1].row_end == spec.test[-1][1]
    tested = [_source_rows(spec, spec.test) for spec in specs]
    assert all(not a & b for i, a in enumerate(tested) for b in tested[i + 1 :])
    for spec, earlier in zip(specs[1:], specs):
        # embargo: the rows right after what an earlier fold tested on
        seen, trained = _source_rows(earlier, earlier.test), _source_rows(spec, spec.train)
        after = _usable_after(spec, max(seen), shape["embargo"])
        assert not after & trained


def segment_rows(segment, a, b):
    return sum(r in segment for r in range(a, b))


def _source_rows(spec, ranges):
    """(source number, file row) of tape rows, comparable between folds."""
    out, at = {}, 0
    for s in spec.sources:
        for r in range(s.row_start, s.row_end):
            out[at + r - s.row_start] = (int(s.key[1:]), r)
        at += s.row_end - s.row_start
    return {out[r] for a, b in ranges for r in range(a, b)}


def _usable_after(spec, row, n):
    usable = sorted(_source_rows(spec, [(s.row_start, s.row_end) for s in spec.segments]))
    return set(usable[usable.index(row) + 1 :][:n]) if row in usable else set()


def test_rows_of_another_clock_are_refused():
    days = [day(n) for n in range(1, 8)]
    with pytest.raises(BadInput, match=r"data.clock is event: folds are cut on the grid clock only"):
        fold(0, 2, days, grid_ms=0)
    for grid_ms, has in ((0, "on the event clock"), (500, "on a grid of 500 ms")):
        other = dataclasses.replace(days[3], grid_ms=grid_ms)
        with pytest.raises(BadInput, match=f"day4: decoded {has}, folds are cut at 250 ms; materialise"):
            fold(0, 2, [*days[:3], other, *days[4:]])


def side_by_side(n, lag):
    """A trade date of two instruments; the second one begins `lag` after the first."""
    date, ts = f"2024-04-{n:02d}", n * DAY + 14 * HOUR
    return source(f"day{n}", [(1000, date, ts, "session", 7), (1000, date, ts + lag, "session", 8)])


def test_instruments_side_by_side_may_be_trained_on_but_not_walked_as_one_track_record():
    one_after_another = [side_by_side(n, 1000 * GRID) for n in range(1, 5)]
    plain = fold(0, 1, [*one_after_another[:2], *(day(n, 2000) for n in (3, 4))])
    mixed = fold(0, 1, [*(side_by_side(n, GRID) for n in (1,)), *one_after_another[1:]])
    assert mixed.train == plain.train and mixed.segments[0].instrument_id == 7
    with pytest.raises(BadInput, match="ESM4 and ESM4 overlap in time on 2024-04-03, and an evaluation is one track"):
        fold(0, 1, [*one_after_another[:2], side_by_side(3, GRID), one_after_another[3]])


def test_a_given_number_of_sessions_a_block_never_moves():
    days = [day(n) for n in range(1, 11)]
    assert [fold(0, 2, days[:n], sessions_per_block=1).test for n in (4, 7, 10)] == [((2000, 3000),)] * 3
    assert fold(1, 2, days, sessions_per_block=3).mode == "sessions"
    assert fold(1, 2, days[:8], sessions_per_block=3).mode == "blocks", "nine sessions are needed"
