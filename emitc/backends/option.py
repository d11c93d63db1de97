"""An option of the command line that belongs to a backend. Nothing is imported here: `emitc --help` reads all of them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BackendOption:
    """An option of the command line that belongs to a backend.

    name: without the dashes; also its key in `Settings.values`. metavar: what its value is called in the help; "" for
    a flag, whose value is "yes". choices: what it may be, () for anything.
    """

    name: str
    help: str
    metavar: str
    choices: tuple[str, ...] = ()
    default: str = ""
