"""What a package made with `--profile` records of a run: which layers share a record, and how many runs are left out."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Profiling:
    """records: the layers of each record by their indices, in the order of the layer hook. interval: one run of so many is
    recorded.
    """

    records: tuple[tuple[int, ...], ...]
    interval: int = 1

    @property
    def hooked(self) -> tuple[int, ...]:
        """The layers after which the layer hook is called. A single record needs no call: it is the whole run."""
        return tuple(record[-1] for record in self.records) if len(self.records) > 1 else ()

    @property
    def shared(self) -> tuple[str, ...]:
        """The records that several layers share, for people: `0 to 2`."""
        return tuple(f"{record[0]} to {record[-1]}" for record in self.records if len(record) > 1)

    def to_json(self) -> dict[str, Any]:
        """For the manifest."""
        return {"interval": self.interval, "records": [list(record) for record in self.records]}
