"""The errors a user can cause. Each message names the file, the place and the remedy, in one line."""


class FoxhuntError(Exception):
    """Base of every error that is the input's fault and not ours; the command line prints it as one line."""

    exit_code = 2


class BadInput(FoxhuntError):
    """A file, a configuration or an argument that cannot be used (exit 2)."""


class ContractBroken(FoxhuntError):
    """An artefact that is readable but not what its contract says (exit 1)."""

    exit_code = 1


class NotComparable(FoxhuntError):
    """Two things whose comparison would mean nothing (exit 3)."""

    exit_code = 3
