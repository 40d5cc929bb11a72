"""Numbers side by side, each as the word that Python's struct writes for it."""

import struct

import torch

from kernels.pack import op


def _packed(*sources):
    out = torch.empty(sum(x.numel() for x in sources), dtype=torch.int64)
    op.words(sources, out)
    return out.tolist()


def _bits(x):
    return struct.unpack("<q", struct.pack("<d", x))[0]


def test_floats_keep_their_value_as_doubles_and_whole_numbers_theirs():
    thirds = torch.tensor([[1.0], [-3.0]]) / 3
    wide, small = torch.tensor(-0.0, dtype=torch.float64), torch.tensor([-128, 127], dtype=torch.int8)
    whole = torch.tensor([-(2**63), 2**63 - 1])
    expected = [_bits(11184811 / 2**25), _bits(-1.0), _bits(-0.0), -128, 127, -(2**63), 2**63 - 1, 1]
    assert _packed(thirds, wide, small, whole, torch.tensor(True)) == expected


def test_any_number_of_tensors_some_empty_some_a_column():
    columns = torch.arange(200, dtype=torch.int32).view(2, 100)
    sources = [x for i in range(100) for x in (columns[:, i], columns[0, :0])]
    assert _packed(*sources) == [n for i in range(100) for n in (i, 100 + i)]
