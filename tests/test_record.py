"""Our values behave as frozen dataclasses do."""

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, is_dataclass, replace
from typing import Generic, TypeVar

import pytest

from nodedoctor.model import Finding
from nodedoctor.record import BY_HAND, record
from nodedoctor.record import replace as record_replace


@record
class Pair:
    """Two things and what comes with them."""

    one: int
    two: "str | None" = None
    more: list[int] = field(default_factory=list)


@record
class Triple(Pair):
    """A pair and something."""

    three: float = 3.0


@record
class Named:
    """Shown as it shows itself."""

    name: str

    def __repr__(self) -> str:
        return self.name


@dataclass(repr=False, eq=False, slots=True)
class Usual:
    """What the standard decorator makes of the same fields."""

    one: int
    two: "str | None" = None
    more: list[int] = field(default_factory=list)


@pytest.mark.parametrize(
    "args, values", [((1,), {}), ((1, "b"), {}), ((), {"two": "b", "one": 1}), ((1, None, [2]), {})]
)
def test_arguments_and_defaults_are_those_of_a_dataclass(args, values):
    ours, usual = Pair(*args, **values), Usual(*args, **values)
    assert asdict(ours) == asdict(usual)
    assert ours == Pair(*args, **values) and repr(ours).startswith("Pair(one=1, two=")


@pytest.mark.parametrize(
    "args, values", [((), {}), ((1, "b", [], 4), {}), ((1,), {"one": 2}), ((1,), {"four": 4})]
)
def test_wrong_arguments_are_refused_with_the_same_words(args, values):
    with pytest.raises(TypeError) as usual:
        Usual(*args, **values)
    for _ in range(2):
        with pytest.raises(TypeError) as ours:
            Pair(*args, **values)
        assert str(ours.value) == str(usual.value).replace("Usual", "Pair")


def test_a_method_of_its_own_stays():
    assert repr(Named("one")) == "one" and Named("one") == Named("one")


def test_defaults_are_not_shared_between_values():
    one, two = Pair(1), Pair(1)
    one.more.append(5)
    assert two.more == []


def test_a_class_made_of_another_has_its_fields_whichever_is_used_first():
    assert Triple(1, three=4.0) == Triple(1, None, [], 4.0) != Pair(1)
    assert [f.name for f in fields(Triple)] == ["one", "two", "more", "three"]
    assert replace(Triple(1), two="b").two == "b"


Held = TypeVar("Held")


@record
class Box(Generic[Held]):
    held: Held


def test_a_generic_class_stays_one_when_it_has_its_own_initialiser():
    assert [Box[int](number).held for number in range(2 * BY_HAND)] == list(range(2 * BY_HAND))


def test_values_are_slotted_hashed_by_their_fields_and_survive_pickling():
    first = Pair(1, "b")
    assert is_dataclass(Pair) and not hasattr(first, "__dict__")
    with pytest.raises(AttributeError):
        first.other = 1  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(first)) == copy.copy(first) == copy.deepcopy(first) == first

    @record
    class Plain:
        """Of values that can be hashed."""

        name: str

    assert {Plain("a"), Plain("a")} == {Plain("a")} and Plain("a") != Plain("b")
    match Plain("a"):
        case Plain(name):
            assert name == "a"


@pytest.mark.parametrize("cls", [Pair, Triple])
@pytest.mark.parametrize(
    "made", [lambda value: value, copy.copy, lambda value: pickle.loads(pickle.dumps(value))]
)
def test_no_field_can_be_changed_or_taken_away(cls, made):
    value = made(cls(1, "b"))
    assert type(value) is cls
    for name in ("one", "two"):
        with pytest.raises(FrozenInstanceError):
            setattr(value, name, 5)
        with pytest.raises(FrozenInstanceError):
            delattr(value, name)
    assert value == cls(1, "b")


def test_the_hash_of_a_finding_stays():
    finding = Finding.warn("it is slow", subject="gpu:3")
    before = hash(finding)
    with pytest.raises(FrozenInstanceError):
        finding.summary = "it is fast"  # type: ignore[misc]
    assert hash(finding) == before


def test_a_changed_value_is_that_of_dataclasses_and_reads_no_field_that_changes():
    class Noting(Triple):
        __slots__ = ()

        def __getattribute__(self, name):
            read.append(name)
            return object.__getattribute__(self, name)

    read = []
    value = Noting(1, "b", [2], three=4.0)
    read.clear()
    made = record_replace(value, two="c")
    assert "one" in read and "two" not in read
    assert type(made) is Noting and made == replace(value, two="c")
    with pytest.raises(TypeError):
        record_replace(value, four=4)
