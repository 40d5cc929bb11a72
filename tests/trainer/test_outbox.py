"""Rows on their way to the host: handled in order, a fault raised where the next row is posted."""

import pytest
import torch

from foxhunt_assets.trainer.outbox import Outbox
from foxhunt_assets.trainer.program import StageFault

GPU = pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")])


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_rows_are_handled_in_order_as_they_were_when_posted(device):
    seen, x = [], torch.zeros(3, dtype=torch.int64, device=device)
    with Outbox(x.device, lambda sent: seen.append(sent.tolist())) as outbox:
        for i in range(50):
            x.fill_(i)
            outbox.post(x)
        outbox.flush()
        assert seen == [[i] * 3 for i in range(50)]


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_what_the_handler_refuses_stops_the_run_and_nothing_more_is_handled(device):
    seen, x = [], torch.zeros(1, dtype=torch.int64, device=device)

    def handle(sent):
        if sent.item() == 3:
            raise ValueError("row 3")
        seen.append(sent.item())

    with pytest.raises(ValueError, match="row 3"), Outbox(x.device, handle) as outbox:
        for i in range(50):
            x.fill_(i)
            outbox.post(x)
        outbox.flush()
    assert seen == [0, 1, 2]


def test_a_device_that_failed_is_said_in_one_line():
    outbox = Outbox(torch.device("cpu"), lambda _: None)
    outbox._fault = torch.AcceleratorError("CUDA error: an illegal memory access was encountered\nmore")
    with pytest.raises(StageFault, match="its step failed on the device: CUDA error: an illegal memory access") as said:
        outbox.flush()
    assert "\n" not in str(said.value)
