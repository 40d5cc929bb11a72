"""Pictures that show the deepest point and say what is synthetic; a table that explains what is missing."""

import io
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from matplotlib import image

from foxhunt_assets.evaluation import report, summary
from tests.evaluation.test_summary import EQUITY_2, FACTS, TRADES_2, equity_table

DATES = [["2024-01-02"] * 3 + ["2024-01-03"] * 2, ["2024-01-03"] * 5]
RECORD = summary.track_record(equity_table([[0, 5_000, -2_000, 100, 100], [0, 10, 20, 30, 40]], DATES))


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were turned into PNG, in order."""
    seen = []
    png = report._png
    monkeypatch.setattr(report, "_png", lambda figure: seen.append(figure) or png(figure))
    return seen


def test_the_equity_picture_is_a_png_with_both_curves_and_the_sessions(drawn):
    png = report.equity_picture(RECORD, "fold_0 seed 7", synthetic=True)
    assert image.imread(io.BytesIO(png)).shape[:2] == (400, 720)
    figure = drawn[0]
    assert figure.get_suptitle() == "fold_0 seed 7 (SYNTHETIC data)"
    upper, lower = figure.axes
    assert (upper.get_ylabel(), lower.get_ylabel()) == ("equity, USD", "drawdown, USD")
    assert lower.dataLim.y0 == -70.0 and upper.dataLim.y1 == 50.0  # USD, from 5,000 down to -2,000 cents
    assert [text.get_text() for text in upper.texts] == ["2024-01-02", "2024-01-03"]
    assert png == report.equity_picture(RECORD, "fold_0 seed 7", synthetic=True)


def test_real_data_is_not_called_synthetic(drawn):
    report.equity_picture(RECORD, "fold_0", synthetic=False)
    assert drawn[0].get_suptitle() == "fold_0"


def test_sessions_begin_where_the_trade_date_changes_and_not_where_an_account_does():
    assert report.session_starts(RECORD) == [(0, "2024-01-02"), (3, "2024-01-03")]


def test_a_single_deep_row_survives_thinning():
    values = np.zeros(1_000_000)
    values[123_457] = -9.0
    rows, least, most = report.envelope(values)
    assert len(rows) <= 1_200 and least.min() == -9.0 and most.max() == 0.0
    few = np.array([3.0, 1.0, 2.0])
    assert [x.tolist() for x in report.envelope(few)] == [[0, 1, 2], [3.0, 1.0, 2.0], [3.0, 1.0, 2.0]]


def test_labels_picture_counts_what_has_no_label(drawn):
    labels = pa.table({"h8": pa.array([0, 20, 20, -1], pa.int8()), "h32": pa.array([-1, -1, 10, 10], pa.int8())})
    counts, without = report.label_counts(labels["h8"].to_numpy())
    assert (counts[0], counts[20], counts.sum(), without) == (1, 2, 3, 1)
    report.labels_picture(labels, "fold_0", synthetic=True)
    titles = [axes.get_title() for axes in drawn[0].axes]
    assert titles == ["h8: 3 labels, 25.0% of rows have none", "h32: 2 labels, 50.0% of rows have none"]
    assert [patch.get_height() for patch in drawn[0].axes[1].patches] == [0.0] * 10 + [2.0]
    assert "SYNTHETIC" in drawn[0].get_suptitle()


def test_the_table_says_what_a_figure_rests_on():
    s = summary.eval_summary(TRADES_2, EQUITY_2, FACTS)
    text = report.markdown(s)
    assert "**fold_0, seed 7** (SYNTHETIC data)" in text
    for line in (
        "| net pnl | 7.00 USD |",
        "| maximum drawdown (market time) | 70.00 USD |",
        "| win rate | 33.3% |",
        "| daily Sharpe, annualised | none: 1 trade dates, 20 are needed |",
        "| break-even fee a lot and side | 3.12 USD |",
        "| walked | 3 steps x 2 accounts, 100.0% of the test range, greedy |",
    ):
        assert line in text.splitlines()


def test_the_annualised_ratio_is_the_published_one():
    s = summary.eval_summary(TRADES_2, EQUITY_2, FACTS)
    text = report.markdown({**s, "sharpe_daily": 0.338853778, "n_trade_dates": 21})
    assert "| daily Sharpe, annualised | 5.38 over 21 trade dates |" in text
    same = report.markdown({**s, "n_trade_dates": 21})
    assert "pnl is the same on each of 21 trade dates" in same


def test_nothing_is_divided_where_nothing_traded():
    s = summary.eval_summary(TRADES_2, EQUITY_2, FACTS)
    none = {"n_trades": 0, "break_even_fee_usd_per_side": None, "break_even_ticks_per_lot": None}
    text = report.markdown({**s, **none, "synthetic": False})
    assert text.count("no trade") == 3 and "SYNTHETIC" not in text


def test_matplotlib_is_loaded_only_for_pictures():
    code = "import sys, foxhunt_assets.evaluation.report; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
