"""`emitc.records.dataclass` makes the classes that the standard decorator makes: each class is made by both and compared."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from emitc import records


def _define(dataclass: Callable[..., Any]) -> dict[str, Any]:
    """The same classes, made by one of the two decorators. (Type checkers cannot follow a decorator that is a parameter.)"""

    @dataclass(frozen=True, slots=True)
    class Base:
        """Two fields and a class variable."""

        x: int
        names: tuple[str, ...] = ("a",)
        kind: ClassVar[str] = "base"

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Derived(Base):
        """Two more, by name alone, one of them made anew for each object."""

        more: list[int] = dataclasses.field(default_factory=list, hash=False)
        hidden: int = dataclasses.field(default=7, repr=False, compare=False)

    @dataclass(frozen=True)
    class Computed:
        """A field that no argument gives, set after the others."""

        x: int
        twice: int = dataclasses.field(init=False)
        cache: dict[str, int] = dataclasses.field(init=False, default_factory=dict, compare=False)
        fixed: int = dataclasses.field(init=False, default=3)

        def __post_init__(self) -> None:
            object.__setattr__(self, "twice", 2 * self.x)

    @dataclass(frozen=True, slots=True, order=True)
    class Ordered:
        """Of one field."""

        size: int

    @dataclass(frozen=True, slots=True)
    class Empty:
        """Of none."""

    @dataclass(slots=True)
    class Open:
        """It can be changed, so that it has no hash."""

        x: int = 0

    @dataclass(frozen=True, slots=True, eq=False, repr=False)
    class Same:
        """Equal to itself alone."""

        x: int = 0

    @dataclass(frozen=True, slots=True)
    class Own:
        """With methods of its own."""

        x: float

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self))

        def __hash__(self) -> int:
            return 5

    @dataclass(frozen=True, slots=True)
    class Equal:
        """It says itself what is equal, and the class has its hash of one field that does not count for that."""

        x: int
        hashed: int = dataclasses.field(default=3, compare=False, hash=True)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self)) and other.x == self.x

    return {made.__name__: made for made in (Base, Derived, Computed, Ordered, Empty, Open, Same, Own, Equal)}


STANDARD, MADE = _define(dataclasses.dataclass), _define(records.dataclass)
ARGUMENTS: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "Base": [((1,), {}), ((1, ("b",)), {}), ((), {"x": 2}), ((), {}), ((1, 2, 3), {}), ((1,), {"y": 1})],
    "Derived": [((1,), {}), ((1,), {"more": [1], "hidden": 2}), ((1, ("a",), [1]), {}), ((2,), {"hidden": 8})],
    "Computed": [((4,), {}), ((4, 8), {}), ((5,), {})],
    "Ordered": [((1,), {}), ((2,), {}), ((1,), {})],
    "Empty": [((), {}), ((1,), {})],
    "Open": [((), {}), ((3,), {}), ((3,), {})],
    "Same": [((), {}), ((1,), {})],
    "Own": [((1.5,), {}), ((2.5,), {})],
    "Equal": [((1,), {}), ((1, 4), {}), ((1, 4), {}), ((2,), {})],
}
"""Calls of each class: some of them are wrong."""


def _outcome(call: Callable[[], Any]) -> object:
    """What a call gives, or what it raises."""
    try:
        return call()
    except (TypeError, AttributeError) as error:
        return type(error), str(error).replace("_define.<locals>.", "")


def _made(classes: dict[str, Any], name: str) -> list[Any]:
    objects = [_outcome(lambda: classes[name](*given, **named)) for given, named in ARGUMENTS[name]]  # noqa: B023
    return objects


def _values(record: object) -> object:
    return dataclasses.asdict(record) if isinstance(record, tuple(MADE.values()) + tuple(STANDARD.values())) else record  # type: ignore[call-overload]


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_and_errors_are_those_of_the_standard_class(name: str) -> None:
    assert [_values(each) for each in _made(MADE, name)] == [_values(each) for each in _made(STANDARD, name)]
    assert any(dataclasses.is_dataclass(each) for each in _made(MADE, name))


@pytest.mark.parametrize("name", ARGUMENTS)
def test_text_comparisons_and_hashes_are_those_of_the_standard_class(name: str) -> None:
    def facts(classes: dict[str, Any]) -> list[object]:
        objects = [each for each in _made(classes, name) if dataclasses.is_dataclass(each)]
        pairs = [(one, other) for one in objects for other in [*objects, 1]]
        texts = [] if name == "Same" else [repr(each) for each in objects]
        return [
            texts,
            [(one == other, one != other) for one, other in pairs],
            [_outcome(lambda: one < other) for one, other in pairs],  # noqa: B023
            [_outcome(lambda: one >= other) for one, other in pairs],  # noqa: B023
            [_outcome(lambda: hash(one) == hash(other)) for one, other in pairs[:: len(objects) + 1]],  # noqa: B023
            [isinstance(_outcome(lambda: hash(each)), int) for each in objects],  # noqa: B023
        ]

    assert facts(MADE) == facts(STANDARD)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_fields_slots_and_documentation_are_those_of_the_standard_class(name: str) -> None:
    def facts(cls: Any) -> list[object]:
        parts = [(f.name, f.type, f.init, f.repr, f.compare, f.hash, f.kw_only) for f in dataclasses.fields(cls)]
        return [
            parts,
            getattr(cls, "__slots__", None),
            cls.__match_args__,
            cls.__doc__,
            cls.__qualname__,
            cls.__module__,
        ]

    assert facts(MADE[name]) == facts(STANDARD[name])


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_frozen_object_refuses_changes_and_can_be_copied(name: str) -> None:
    def facts(classes: dict[str, Any]) -> list[object]:
        given, named = ARGUMENTS[name][0]
        record = classes[name](*given, **named)
        copied = copy.deepcopy(record)
        names = [each.name for each in dataclasses.fields(record)]
        changes = [_outcome(lambda: setattr(record, name, 9)) for name in names]  # noqa: B023
        deletions = [_outcome(lambda: delattr(record, name)) for name in names]  # noqa: B023
        replaced = _outcome(lambda: _values(dataclasses.replace(record, x=5)))
        return [changes, deletions, _values(copied), replaced]

    assert facts(MADE) == facts(STANDARD)


@pytest.mark.parametrize("name", sorted({*ARGUMENTS} - {"Open"}))
def test_a_frozen_object_takes_no_further_attribute(name: str) -> None:
    """The standard class with slots raises a TypeError of another subject here."""
    record = MADE[name](*ARGUMENTS[name][0][0])
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'unknown'"):
        record.unknown = 1


def test_an_object_of_the_package_survives_a_pickle() -> None:
    from emitc.planner import LiveRange

    assert pickle.loads(pickle.dumps(LiveRange(2, 5))) == LiveRange(2, 5)


def test_a_standard_class_may_be_derived_from_one_of_these() -> None:
    @dataclasses.dataclass(frozen=True, slots=True)
    class Later(MADE["Base"]):  # type: ignore[misc]
        y: int = 2

    assert (Later(1).x, Later(1).y, Later(1).names) == (1, 2, ("a",))
    with pytest.raises(TypeError, match="non-frozen"):
        dataclasses.dataclass(type("Loose", (MADE["Base"],), {"__annotations__": {"y": int}, "y": 1}))


def test_a_constructor_is_compiled_once() -> None:
    made = _define(records.dataclass)["Base"]
    first = made.__init__
    made(1)
    compiled = made.__init__
    made(2)
    assert made.__init__ is compiled is not first
    assert compiled.__qualname__.endswith("Base.__init__")
