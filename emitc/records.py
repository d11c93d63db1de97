"""The `dataclass` of the standard library, for modules that define many: the same classes, made in less time.

The standard decorator compiles up to six functions of every class while its module is imported. A run of emitc imports 260
such classes, which took an eighth of its time. Here the constructor is compiled when the first object is made, and the other
methods share their code. Type checkers see the standard decorator; the functions of the standard module know no difference.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from dataclasses import MISSING, FrozenInstanceError, asdict, field, fields, is_dataclass, replace
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["MISSING", "FrozenInstanceError", "asdict", "dataclass", "field", "fields", "is_dataclass", "replace"]

_Class = TypeVar("_Class", bound=type)
_NOT_GIVEN = object()
"""The default value of a parameter whose field has a `default_factory`."""

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, eq=True, order=False, repr=True, kw_only=False):
        """A decorator like `dataclasses.dataclass`, with those of its parameters that emitc uses.

        Of its errors one comes later: a field without a default value after one with is a SyntaxError of the first object.
        """

        def made(cls: _Class) -> _Class:
            own = {name for name, value in vars(cls).items() if name != "__hash__" or value is not None}
            cls = _with_fields(cls, frozen=frozen, slots=slots, kw_only=kw_only)
            methods = {"__init__": _constructor(cls, frozen=frozen)}
            if repr:
                methods["__repr__"] = _printer(cls)
            if eq:
                methods |= _comparisons(cls, hashed=frozen, order=order)
            if frozen:
                methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
            if frozen and slots:
                methods |= {"__getstate__": _state, "__setstate__": _restore}
            for name, method in methods.items():
                if name not in own:
                    setattr(cls, name, method)
            return cls

        return made if cls is None else made(cls)


def _with_fields(cls: type, *, frozen: bool, slots: bool, kw_only: bool) -> Any:
    """The class as the standard decorator makes it without any method; derived from a frozen one, it is frozen there too."""
    derived = any(map(is_dataclass, cls.__mro__[1:]))
    decorate = dataclasses.dataclass(
        init=False, repr=False, eq=False, frozen=frozen and derived, slots=slots, kw_only=kw_only
    )
    made: Any = decorate(cls)
    made.__dataclass_params__.frozen = frozen  # what a class that is derived from this one is checked against
    return made


def _constructor(cls: type, *, frozen: bool) -> Callable[..., None]:
    """An `__init__` that the compiled one takes the place of at the first call."""

    def __init__(self: Any, *arguments: Any, **named: Any) -> None:
        compiled = _compiled_constructor(cls, frozen=frozen)
        cls.__init__ = compiled  # type: ignore[misc]
        compiled(self, *arguments, **named)

    return __init__


def _compiled_constructor(cls: type, *, frozen: bool) -> Callable[..., None]:
    """An `__init__` with a parameter for each field, which it sets, and a call of `__post_init__`."""
    names: dict[str, Any] = {"_set": object.__setattr__, "_NOT_GIVEN": _NOT_GIVEN}
    positional, keywords, lines = ["self"], list[str](), list[str]()
    for one in fields(cls):
        name, parameter, value = one.name, one.name, one.name
        if one.default_factory is not MISSING:
            names[f"_make_{name}"] = one.default_factory
            parameter, value = f"{name}=_NOT_GIVEN", f"_make_{name}()"
            value = f"{value} if {name} is _NOT_GIVEN else {name}" if one.init else value
        elif one.default is not MISSING:
            names[f"_default_{name}"] = one.default
            parameter, value = f"{name}=_default_{name}", name if one.init else f"_default_{name}"
        elif not one.init:
            continue
        if one.init:
            (keywords if one.kw_only else positional).append(parameter)
        lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters = ", ".join([*positional, *(["*", *keywords] if keywords else [])])
    exec(f"def __init__({parameters}):\n    " + "\n    ".join(lines or ["pass"]), names)
    made: Callable[..., None] = names["__init__"]
    made.__qualname__, made.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return made


def _printer(cls: type) -> Callable[[Any], str]:
    names = [one.name for one in fields(cls) if one.repr]

    @recursive_repr()
    def __repr__(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _values(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that gives these attributes of an object."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda record: tuple(getattr(record, name) for name in names)


def _comparisons(cls: type, *, hashed: bool, order: bool) -> dict[str, Any]:
    """The methods that compare two objects of one class by their fields, and the hash of these fields, or None.

    A field may say of itself that it counts for one of the two alone.
    """
    values = _values([one.name for one in fields(cls) if one.compare])

    def comparison(compare: Callable[[Any, Any], bool]) -> Callable[[Any, object], bool]:
        def method(self: Any, other: object) -> bool:
            return compare(values(self), values(other)) if type(self) is type(other) else NotImplemented

        return method

    methods: dict[str, Any] = {"__eq__": comparison(operator.eq), "__hash__": None}
    if hashed:
        hashed_values = _values([one.name for one in fields(cls) if (one.compare if one.hash is None else one.hash)])
        methods["__hash__"] = lambda self: hash(hashed_values(self))
    if order:
        methods |= {f"__{name}__": comparison(getattr(operator, name)) for name in ("lt", "le", "gt", "ge")}
    return methods


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in fields(self)]


def _restore(self: Any, state: Sequence[Any]) -> None:
    for one, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)
