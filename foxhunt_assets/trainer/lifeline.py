"""A trainer dies with the process that started it, and is armed before torch is imported: no orphan holds a GPU."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1
_POLL_S = 1.0


def arm(parent: int) -> None:
    """Die when process `parent` dies; 0 arms nothing. Where the kernel cannot tell us, a thread watches."""
    if parent == 0:
        return
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    # Also covers a parent that died before it was armed, and one that is not the direct parent.
    while _alive(parent):
        time.sleep(_POLL_S)
    os.kill(os.getpid(), signal.SIGKILL)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
