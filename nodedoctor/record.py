"""Dataclasses that are cheap to declare: `@noun` stands for `@dataclass(frozen=True, slots=True)`.

The standard decorator compiles six methods for every class, half a millisecond at every start, and there are
some three hundred classes, most of which no run uses. Here all of them share three methods, and `__init__` is
compiled when the first value of a class is made; the type checker sees to it that nobody assigns to a field.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        """Mean nothing at run time; typing has this from Python 3.11 on, and only type checkers need it."""
        return lambda decorator: decorator


Cls = TypeVar("Cls", bound=type[Any])


@dataclass_transform(frozen_default=True)
def record(cls: Cls) -> Cls:
    """Make a class of annotated fields a value: slotted, compared, hashed and shown by its fields."""
    for method in (__init__, __repr__, __eq__, __hash__):
        setattr(cls, method.__name__, method)
    return cast(Cls, dataclass(init=False, repr=False, eq=False, slots=True)(cls))


def __init__(self: Any, *args: Any, **values: Any) -> None:
    """Stands in each class until its first value is made."""
    cls = type(self)
    cls.__init__ = _initialiser(cls)
    cls.__init__(self, *args, **values)


def _initialiser(cls: type[Any]) -> Any:
    """The `__init__` that @dataclass would have written: a parameter for each field, and its default."""
    known: dict[str, Any] = {"MISSING": MISSING}
    parameters, body = ["self"], ["pass"]
    for field in fields(cls):
        name = value = field.name
        if field.default_factory is not MISSING:
            known[f"_{name}"] = field.default_factory
            parameters.append(f"{name}=MISSING")
            value = f"_{name}() if {name} is MISSING else {name}"
        elif field.default is not MISSING:
            known[f"_{name}"] = field.default
            parameters.append(f"{name}=_{name}")
        else:
            parameters.append(name)
        body.append(f"self.{name} = {value}")
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(body), known)
    known["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    return known["__init__"]


def _values(self: Any) -> tuple[Any, ...]:
    return tuple([getattr(self, name) for name in self.__dataclass_fields__])


def __repr__(self: Any) -> str:
    shown = (f"{name}={getattr(self, name)!r}" for name in self.__dataclass_fields__)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def __eq__(self: Any, other: object) -> Any:
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def __hash__(self: Any) -> int:
    return hash(_values(self))
