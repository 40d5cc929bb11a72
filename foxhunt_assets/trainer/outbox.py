"""What a row sends to the host: copied to pinned memory beside the next step, handled by a thread a step late.

On a CPU there is nothing to wait for and a row is handled where it is posted.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections import deque
from collections.abc import Callable

import torch

from foxhunt_assets.trainer.program import StageFault, first_line

Handle = Callable[[torch.Tensor], None]

# Rows on their way at once. A row is collected faster than it is written, and written while a window is learnt from.
_SLOTS = 64
# Seconds after which the thread that writes gives way to the one that launches, several times a row: a tenth of a
# captured row, by default a dozen of them.
_TURN_S = 5e-5
# Copies on the device, from which rows leave while the steps behind them run.
_STAGED = 2


class Outbox:
    """handle: called with the tensor of each row on the host, row after row; it must not keep it.

    A fault of `handle` is raised by the next `post` or `flush`, and nothing more is handled. Use as a context.
    """

    def __init__(self, device: torch.device, handle: Handle) -> None:
        self.handle = handle
        self.on_device = device.type == "cuda"
        self._fault: BaseException | None = None
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._posted: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._pinned: list[torch.Tensor] = []
        self._events: list[torch.cuda.Event] = []
        self._staged: deque[tuple[torch.Tensor, torch.cuda.Event]] = deque()  # with the event of what left it last
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Outbox:
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._posted.put(None)
            self._thread.join()
            sys.setswitchinterval(self._turn_before)

    def post(self, row: torch.Tensor) -> None:
        """Send the tensor as it is once the work queued so far is done; it may be overwritten by work after."""
        if not self.on_device:
            self.handle(row)
            return
        if self._thread is None:
            self._start(row)
        slot = self._free.get()
        self._raise()
        self._send(row, slot)
        self._posted.put(slot)

    def flush(self) -> None:
        """Wait until every posted row was handled."""
        if self._thread is not None:
            slots = [self._free.get() for _ in range(_SLOTS)]
            for slot in slots:
                self._free.put(slot)
        self._raise()

    def _send(self, row: torch.Tensor, slot: int) -> None:
        (staged, gone), event = self._staged.popleft(), self._events[slot]
        torch.cuda.current_stream().wait_event(gone)
        staged.copy_(row)
        self._aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._aside):
            self._pinned[slot].copy_(staged, non_blocking=True)
            event.record()
        self._staged.append((staged, event))

    def _start(self, row: torch.Tensor) -> None:
        self._aside = torch.cuda.Stream(row.device)
        for _ in range(_STAGED):
            self._staged.append((torch.empty_like(row), torch.cuda.Event()))
        for slot in range(_SLOTS):
            self._pinned.append(torch.empty(row.shape, dtype=row.dtype, pin_memory=True))
            self._events.append(torch.cuda.Event(blocking=True))
            self._free.put(slot)
        self._turn_before = sys.getswitchinterval()
        sys.setswitchinterval(_TURN_S)
        self._thread = threading.Thread(target=self._work, name="outbox", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while (slot := self._posted.get()) is not None:
            try:
                if self._fault is None:
                    self._events[slot].synchronize()
                    self.handle(self._pinned[slot])
            except BaseException as fault:  # whatever it is, the run's own thread must raise it
                self._fault = fault
            self._free.put(slot)

    def _raise(self) -> None:
        if isinstance(self._fault, torch.AcceleratorError):
            raise StageFault(f"a row did not arrive, its step failed on the device: {first_line(self._fault)}")
        if self._fault is not None:
            raise self._fault
