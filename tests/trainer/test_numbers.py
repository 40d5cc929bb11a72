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


@pytest.mark.parametrize("other", [torch.zeros(3), torch.zeros(2, dtype=torch.int64)], ids=["more", "whole"])
def test_a_row_of_other_numbers_is_refused(other):
    rows = iter((torch.zeros(2), other))
    packing = Packing([Group("a", lambda: {"x": next(rows)})])
    packing.measure(0)
    packing.lay_out()
    with pytest.raises(AssertionError, match="other numbers"):
        packing.measure(0)


def test_a_leaf_that_two_groups_measure_is_refused():
    packing = Packing([Group(name, lambda: {"x": torch.zeros(1)}) for name in "ab"])
    for number in (0, 1):
        packing.measure(number)
    packing.lay_out()
    assert packing.words is not None
    with pytest.raises(AssertionError, match="same leaf"):
        packing.finish(packing.words)
