"""Dataclasses that are cheap to declare: `@record` replaces `@dataclass(frozen=True, slots=True)`.

The standard decorator compiles six methods for every class, half a millisecond at every start, and there are
some three hundred classes, most of which no run uses. Here all of them share their methods; `__init__` is
compiled once a class has had dozens of values, which few classes come to in a run; and what `dataclasses`
wants to know of its fields is put together when somebody asks. So a class costs 27 microseconds, not 700, and
that module is not imported, which with all that it needs is a thirtieth of a replay.

Values are frozen, and so is their hash. The standard way to fill a frozen value, `object.__setattr__` for
each field, takes three times as long as plain assignment. Here `__init__` lends the new value a class of the
same slots in which assignment is allowed, and takes it back once the fields are filled: no run takes
measurably longer. What is derived from such a class must be declared `@record` as well.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from dataclasses import Field

    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        """Mean nothing at run time; typing has this from Python 3.11 on, and only type checkers need it."""
        return lambda decorator: decorator


Cls = TypeVar("Cls", bound=type[Any])
Value = TypeVar("Value")


class _Missing:
    """In place of a default that a field does not have."""


class _DefaultFactory:
    """A default that is made for each value."""

    def __init__(self, factory: Callable[[], Any]) -> None:
        self.factory = factory


MISSING: Any = _Missing()


def field(*, default_factory: Callable[[], Value]) -> Value:
    """A field whose default is made for each value, as `dataclasses.field` declares it."""
    return cast(Value, _DefaultFactory(default_factory))


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: Cls) -> Cls:
    """Make a class of annotated fields a value: slotted, compared, hashed and shown by its fields.

    A method of these that the class has itself stays, as with the standard decorator.
    """
    annotations = {name: what for name, what in cls.__annotations__.items() if "ClassVar" not in str(what)}
    body = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    inherited: dict[str, None] = {}
    defaults: dict[str, Any] = {}
    for base in cls.__mro__[:0:-1]:
        inherited.update(dict.fromkeys(vars(base).get("__match_args__", ())))
        defaults.update(vars(base).get("_defaults", {}))
    for name in annotations:
        defaults[name] = _default(body.pop(name, MISSING))
    own = {
        "__qualname__": cls.__qualname__,
        "__slots__": tuple(name for name in annotations if name not in inherited),
        "__match_args__": tuple({**inherited, **annotations}),
        "__dataclass_fields__": _Fields(annotations, defaults),
        "__dataclass_params__": _Params(),
        "_defaults": defaults,
        "_made": 0,
    }
    metaclass: Any = type(cls)
    return cast(Cls, metaclass(cls.__name__, cls.__bases__, {**_METHODS, **body, **own}))


def field_names(cls: type[Any]) -> tuple[str, ...]:
    """The names of a dataclass's fields, of one of ours without making what `dataclasses` knows of each."""
    if "_defaults" in vars(cls):
        return tuple(cls._defaults)
    return tuple(getattr(cls, "__dataclass_fields__", ()))


def replace(value: Value, **changes: Any) -> Value:
    """What `dataclasses.replace` returns, without making what that wants to know of every field.

    A field that is changed is not read: some note that they were.
    """
    names: tuple[str, ...] = type(value).__match_args__  # type: ignore[attr-defined]
    unchanged = {name: getattr(value, name) for name in names if name not in changes}
    return type(value)(**unchanged, **changes)


def as_dict(value: Any) -> dict[str, Any]:
    """What `dataclasses.asdict` makes of a value, but with leaves as they are: ours do not change."""
    return {name: _as_data(getattr(value, name)) for name in field_names(type(value))}


def _as_data(value: Any) -> Any:
    if hasattr(type(value), "__match_args__") and field_names(type(value)):
        return as_dict(value)
    if type(value) in (list, tuple):
        return type(value)([_as_data(item) for item in value])
    if type(value) is dict:
        return {key: _as_data(item) for key, item in value.items()}
    return value


def _default(default: Any) -> Any:
    """The default of a field; plug-ins may declare it as a `Field` of the standard module."""
    standard = sys.modules.get("dataclasses")
    if standard is None or not isinstance(default, standard.Field):
        return default
    if default.default_factory is not standard.MISSING:
        return _DefaultFactory(default.default_factory)
    return MISSING if default.default is standard.MISSING else default.default


class _Params:
    """Serves as `__dataclass_params__` of a class until they are asked for."""

    def __get__(self, value: Any, cls: type[Any]) -> Any:
        from dataclasses import dataclass

        twin: Any = dataclass(init=False, repr=False, eq=False)(type("_", (), {"__doc__": _DOC}))
        return twin.__dataclass_params__


class _Fields:
    """Serves as `__dataclass_fields__` of a class until they are asked for, and then makes them."""

    def __init__(self, annotations: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        self._annotations = annotations
        pairs = ((name, defaults[name]) for name in annotations)
        self._defaults = {name: value for name, value in pairs if value is not MISSING}

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._owner = owner

    def __get__(self, value: Any, cls: type[Any]) -> dict[str, Field[Any]]:
        from dataclasses import dataclass, fields
        from dataclasses import field as standard

        owner: Any = self._owner
        by_name: dict[str, Field[Any]] = {}
        for base in reversed(owner.__mro__[1:]):
            by_name.update(getattr(base, "__dataclass_fields__", {}))
        about = {"__annotations__": self._annotations, "__doc__": _DOC}
        defaults = {
            name: standard(default_factory=value.factory) if isinstance(value, _DefaultFactory) else value
            for name, value in self._defaults.items()
        }
        twin: Any = type(owner.__name__, (), {**defaults, **about})
        declared = dataclass(init=False, repr=False, eq=False)(twin)
        by_name.update({field.name: field for field in fields(declared)})
        owner.__dataclass_fields__ = by_name
        return by_name


_DOC = "A class without a docstring is given one, which takes 4 ms the first time."


BY_HAND = 30
"""Values of a class that are filled without its own `__init__`: to compile one takes as long as that."""


def __init__(self: Any, *args: Any, **values: Any) -> None:
    """Serves each class until it is worth while to compile one for it, or arguments are wrong."""
    cls = type(self)
    cls._made += 1
    if cls._made > BY_HAND or not _fill_fields(self, args, values):
        cls.__init__ = _initialiser(cls)
        cls.__init__(self, *args, **values)


_set_value = object.__setattr__


def _fill_fields(self: Any, args: tuple[Any, ...], values: dict[str, Any]) -> bool:
    """Fill a value; False when the arguments do not fit its fields."""
    names, defaults, used = self.__match_args__, self._defaults, 0
    for name, value in zip(names, args, strict=False):
        _set_value(self, name, value)
    for name in names[len(args) :]:
        if name in values:
            value, used = values[name], used + 1
        else:
            value = defaults[name]
            if isinstance(value, _DefaultFactory):
                value = value.factory()
            elif value is MISSING:
                return False
        _set_value(self, name, value)
    return len(args) <= len(names) and used == len(values)  # else too many, or one of them twice


def _initialiser(cls: type[Any]) -> Any:
    """The `__init__` that @dataclass would have written: a parameter for each field, and its default."""
    namespace: dict[str, Any] = {"MISSING": MISSING, "_class": cls, "_open": _open(cls), "_lend": _lend}
    parameters, body = ["self"], ["_lend(self, _open)"]
    for name in cls.__match_args__:
        value, default = name, cls._defaults.get(name, MISSING)
        if isinstance(default, _DefaultFactory):
            namespace[f"_{name}"] = default.factory
            parameters.append(f"{name}=MISSING")
            value = f"_{name}() if {name} is MISSING else {name}"
        elif default is not MISSING:
            namespace[f"_{name}"] = default
            parameters.append(f"{name}=_{name}")
        else:
            parameters.append(name)
        body.append(f"self.{name} = {value}")
    body.append("self.__class__ = _class")
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(body), namespace)
    namespace["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    return namespace["__init__"]


_lend = vars(object)["__class__"].__set__
"""What `self.__class__ = ...` does, past the `__setattr__` of a frozen class."""


def _open(cls: type[Any]) -> type[Any]:
    """A class of the same layout whose values can be assigned to."""
    body = {"__setattr__": object.__setattr__, "__slots__": cls.__slots__}
    body["__orig_bases__"] = getattr(cls, "__orig_bases__", cls.__bases__)  # without it, Generic refuses
    metaclass: Any = type(cls)
    open_class: type[Any] = metaclass(cls.__name__, cls.__bases__, body)
    return open_class


def _values(self: Any) -> tuple[Any, ...]:
    return tuple([getattr(self, name) for name in self.__match_args__])


def __repr__(self: Any) -> str:
    shown = (f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def __eq__(self: Any, other: Any) -> Any:
    if self is other:
        return True
    if type(other) is not type(self):
        return NotImplemented
    for name in self.__match_args__:
        mine, its = getattr(self, name), getattr(other, name)
        if mine is not its and mine != its:
            return False
    return True


def __hash__(self: Any) -> int:
    return hash(_values(self))


def __setattr__(self: Any, name: str, value: Any) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def __delattr__(self: Any, name: str) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot delete field {name!r}")


def __setstate__(self: Any, state: tuple[None, Mapping[str, Any]]) -> None:
    """What pickle and copy do with slots, which without this method would be to assign."""
    for name, value in state[1].items():
        object.__setattr__(self, name, value)


_METHODS = {
    method.__name__: method
    for method in (__init__, __repr__, __eq__, __hash__, __setattr__, __delattr__, __setstate__)
}
