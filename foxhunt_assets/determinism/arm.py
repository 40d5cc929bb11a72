"""Started as a file: become the command given, after asking the kernel to be killed when the parent dies.

    python arm.py PARENT_PID COMMAND [ARGUMENT ...]

A preexec_fn would do the same inside a threaded parent, where it may deadlock.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h; survives exec


def main(parent: int, command: list[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before we asked
            sys.exit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
