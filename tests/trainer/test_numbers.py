"""Numbers and tables through the packed words and back."""

import pytest
import torch

from foxhunt_assets.trainer.numbers import Group, Packing, finished


def test_numbers_of_every_kind_come_back_as_they_were():
    big, small = 2**62 + 1, 5e-324
    numbers = {
        "flag": torch.tensor([True, False]), "whole": torch.tensor(big), "single": torch.tensor(0.1),
        "double": torch.tensor([small, -0.0, 1 / 3], dtype=torch.float64), "byte": torch.tensor([-3], dtype=torch.int8),
    }  # fmt: skip
    read = finished(Group("any", lambda: numbers))
    assert read.pop("single") == float(torch.tensor(0.1))
    assert repr(read) == repr({"flag": [1, 0], "whole": big, "double": [small, -0.0, 1 / 3], "byte": [-3]})


def test_rows_follow_each_other_in_one_place_and_tables_keep_their_shape():
    x = torch.zeros(2, dtype=torch.int64)
    packing = Packing([Group("a", lambda: {"x": x}), Group("b", lambda: {"y": x[1] * 0.5}, lambda read: read)])
    for row in range(3):
        x.fill_(row)
        for number in (1, 0):  # in any order
            packing.measure(number)
        packing.keep({"table": x.repeat(3, 1) + 7, "mask": x > 1})
        packing.lay_out()
        words = packing.words
        assert words is not None and packing.finish(words) == {"x": [row, row], "y": row * 0.5}
        tables = packing.tables(words)
        assert tables["table"].tolist() == [[row + 7] * 2] * 3 and tables["mask"].bool().tolist() == [row > 1] * 2
    assert packing.words is words


def test_a_row_of_other_numbers_is_refused():
    sizes = iter((2, 3))
    packing = Packing([Group("a", lambda: {"x": torch.zeros(next(sizes))})])
    packing.measure(0)
    packing.lay_out()
    with pytest.raises(AssertionError, match="other numbers"):
        packing.measure(0)
