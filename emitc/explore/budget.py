"""Budgets for continuous integration: limits of what a model may take, from options and a file, and what exceeds them.

A file is TOML: limits for every model at its top, and those of one model, which replace them, in a table with its C
name.

    max-arena = "20K"
    max-ms = 30

    [models.kws_ref_int8]
    max-flash = 40000
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from emitc.errors import EmitcError, Where, unknown_choice
from emitc.records import dataclass

LIMITS: Mapping[str, str] = {
    "arena": "bytes",
    "flash": "bytes",
    "stack": "bytes",
    "instructions": "instructions",
    "ms": "ms",
}
"""What has a limit, and its unit. Flash is what the model puts there, without test cases and start-up code."""
_BYTES = re.compile(r"(\d{1,12})([KM]?)", re.ASCII)
_SCALES = {"": 1, "K": 1024, "M": 1024 * 1024}
_LARGEST = 1 << 20
"""Bytes of a budget file at most."""
Limits = Mapping[str, float]
"""Limits by their names in LIMITS."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A value of the model: None where it is not known, with what would tell. estimated: it is no measurement."""

    value: float | None
    needs: str = ""
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class Compared:
    """A limit and the value that it is compared with. estimated: the value is no measurement."""

    name: str
    limit: float
    value: float
    estimated: bool = False

    @property
    def over(self) -> float:
        """How far the value is over the limit; 0 where it is not."""
        return max(0, self.value - self.limit)

    def to_json(self) -> dict[str, Any]:
        stated = {"limit": f"max-{self.name}", "allowed": self.limit, "value": self.value, "excess": self.over}
        return stated | {"unit": LIMITS[self.name], "estimated": self.estimated}


def read_budget(path: Path, model: str) -> dict[str, float]:
    """The limits of a budget file for a model, by its C name.

    Raises EmitcError for a file that cannot be read, is no TOML, or has a key or a value that is no limit.
    """
    where = Where(option=f"--budget {path.name}")
    hint = 'a key such as max-arena = 20000 or max-flash = "64K", and tables [models.NAME]'
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise EmitcError("the budget file is too large", where, f"it has more than {_LARGEST} bytes", hint)
        content = tomllib.loads(data.decode("utf-8"))
    except OSError as error:
        raise EmitcError("the budget file cannot be read", where, error.strerror or str(error), hint) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EmitcError("the budget file is no TOML", where, str(error)[:200], hint) from error
    models = content.pop("models", {})
    if not isinstance(models, dict) or not all(isinstance(table, dict) for table in models.values()):
        raise EmitcError("the budget file is not understood", where, "models is no table of tables", hint)
    tables = {name: _limits(table, where) for name, table in (("", content), *models.items())}
    return tables[""] | tables.get(model, {})


def _limits(table: Mapping[str, Any], where: Where) -> dict[str, float]:
    limits = {}
    for key, value in table.items():
        name = key.removeprefix("max-")
        if name not in LIMITS or name == key:
            raise unknown_choice(f"{where.option}: key", key, tuple(f"max-{limit}" for limit in LIMITS))
        limits[name] = _limit(key, value, where)
    return limits


def _limit(key: str, value: object, where: Where) -> float:
    """A number of at least 0; bytes may have the suffix K or M."""
    if isinstance(value, str) and (match := _BYTES.fullmatch(value)):
        return int(match[1]) * _SCALES[match[2]]
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15:
        return value
    hint = 'a number of at least 0, or bytes as in "64K"'
    raise EmitcError(f"{key} is no limit", where, f"its value is {str(value)[:40]!r}", hint)


def compared(limits: Limits, figures: Mapping[str, Figure]) -> tuple[Compared, ...]:
    """Every limit with the model's value, in the order of LIMITS.

    Raises EmitcError for a limit of something that is not known.
    """
    rows = []
    for name in LIMITS:
        limit = limits.get(name)
        if limit is None:
            continue
        figure = figures[name]
        if figure.value is None:
            what = f"max-{name} cannot be checked"
            raise EmitcError(what, Where(option=f"--max-{name}"), "the value is not known", figure.needs)
        rows.append(Compared(name, limit, figure.value, figure.estimated))
    return tuple(rows)
