"""Node sets: what Slurm writes can be read, and what is written reads back the same."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.nodeset import MOST, NodeSetError, expand, expand_nodes, fold, is_name, natural_key, of_file


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu-1", ["gpu-1"]),
        ("gpu-[001-003,007]", ["gpu-001", "gpu-002", "gpu-003", "gpu-007"]),
        ("gpu-[9-11]", ["gpu-9", "gpu-10", "gpu-11"]),
        ("r[1-2]n[01-02]", ["r1n01", "r1n02", "r2n01", "r2n02"]),
        ("a[1-2]-ib,login, x7", ["a1-ib", "a2-ib", "login", "x7"]),
        ("a,b\nc\td,,a", ["a", "b", "c", "d"]),
        ("root@10.0.0.[1-3]", ["root@10.0.0.1", "root@10.0.0.2", "root@10.0.0.3"]),
        ("fe80::1,fe80::2%eth0", ["fe80::1", "fe80::2%eth0"]),
        ("", []),
    ],
)
def test_what_slurm_writes_can_be_read(text: str, names: list[str]):
    assert expand(text) == names


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        ([f"gpu-{n:03d}" for n in range(1, 129)], "gpu-[001-128]"),
        (["n9", "n10", "n11", "n1"], "n[1,9-11]"),
        (["n09", "n10", "n9"], "n[9,09-10]"),
        (["login", "gpu-2", "gpu-1", "gpu-1"], "gpu-[1-2],login"),
        ([f"r{r}n{n:02d}" for r in (1, 2) for n in range(1, 5)], "r[1-2]n[01-04]"),
        ([f"rack1-n{n}" for n in (1, 2, 3)] + ["rack2-n7"], "rack1-n[1-3],rack2-n7"),
        ([f"n{n}.pod7.example" for n in range(1, 4)], "n[1-3].pod7.example"),
        ([f"10.0.0.{n}" for n in range(1, 5)], "10.0.0.[1-4]"),
        (["gpu-017"], "gpu-017"),
        ([], ""),
    ],
)
def test_names_fold_as_people_count(hosts: list[str], text: str):
    assert fold(hosts) == text
    assert sorted(expand(text), key=natural_key) == sorted(set(hosts), key=natural_key)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpu-[1-3", "does not close"),
        ("gpu-1]", "does not close"),
        ("gpu-[[1]]", "does not close"),
        ("gpu-[]", "nothing is no number"),
        ("gpu-[a-b]", "a-b is no number"),
        ("gpu-[3-1]", "counts downwards"),
        ("gpu-[0-65536]", f"more than {MOST}"),
        ("a[0-255]b[0-255],c", f"more than {MOST}"),
        ("a[0-999]b[0-999]c[0-999]d[0-999]", f"more than {MOST}"),
        ("gpu-[1-99999999999999999999]", "is no number"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(text: str, said: str):
    with pytest.raises(NodeSetError, match=said) as caught:
        expand(text)
    assert "\n" not in str(caught.value)


def test_the_largest_set_is_taken():
    assert len(expand("a[0-255]b[0-255]")) == MOST
    assert fold(expand("a[0-255]b[0-255]")) == "a[0-255]b[0-255]"


names = st.from_regex(r"[a-c@.:%-]{0,3}([0-9]{1,3}[a-b.-]{0,2}){0,3}", fullmatch=True).filter(bool)


@given(st.lists(names, max_size=40))
def test_what_is_folded_reads_back(hosts: list[str]):
    folded = fold(hosts)
    assert sorted(expand(folded), key=natural_key) == sorted(set(hosts), key=natural_key)
    assert fold(reversed(hosts)) == folded


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 120)), max_size=60))
def test_one_build_reads_back_in_order(numbers: list[tuple[int, int]]):
    hosts = {f"gpu-{number:03d}" for _, number in numbers}
    assert expand(fold(hosts)) == sorted(hosts, key=natural_key)


@given(st.text(max_size=60))
def test_any_text_gives_names_or_one_error(text: str):
    try:
        assert all(expand(text))
    except NodeSetError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    "name", ["-oProxyCommand=x", "../x", ".x", ";", "a;b", "a\0", "a\x1b[m", "--", "@", "a/b"]
)
def test_what_is_no_name_is_none(name: str):
    assert not is_name(name)
    with pytest.raises(NodeSetError):
        expand_nodes(name)


def test_names_and_addresses_are_names():
    names = ["gpu-1", "root@gpu-1", "10.0.0.7", "fe80::1%eth0", "::1", "n.corp", "_x"]
    assert expand_nodes(",".join(names)) == names


@given(st.text())
def test_a_file_names_a_node_that_no_command_mistakes(name: str):
    assert is_name(of_file(f"day/{name.replace('/', '')}.json.gz"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("unit", ["a1", "[1,", "1,", "[", "[1]", "[1-2]", "[0-9", "a[1", "1", "a", "-"])
def test_a_word_of_any_length_takes_no_more_than_its_length(unit: str):
    """What stands for no node is left as it is."""
    word = unit * (300_000 // len(unit))
    began = time.process_time()
    assert sorted([fold([word]), fold(["gpu-1", "gpu-2"])]) == sorted([word, "gpu-[1-2]"])
    for read in (expand, expand_nodes):
        try:
            read(word)
        except NodeSetError as error:
            assert len(str(error)) < 200
    assert time.process_time() - began < 3.0
