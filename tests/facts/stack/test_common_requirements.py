"""What is read without `packaging` is what `packaging` reads."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from nodedoctor.facts.stack import common_requirements

ENVIRONMENT = {
    "python_version": "3.11",
    "python_full_version": "3.11.7",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
    "platform_machine": "x86_64",
    "platform_system": "Linux",
    "sys_platform": "linux",
    "os_name": "posix",
    "platform_release": "",
}

blanks = st.sampled_from(("", " ", "  "))
names = st.sampled_from(("torch", "nvidia-nccl-cu12", "typing_extensions", "ruamel.yaml", "a", "-bad", "x-"))
releases = st.sampled_from(
    ("2", "2.0", "2.7.1", "2.27.5", "0", "0.0", "1.10", "1.9.0.0", "2.0.0.1", "12.8.93")
)
versions = releases | st.sampled_from(
    ("2.7.1+cu128", "2.8.0rc1", "1.0.post1", "1.*", "v2.0", "1!2.0", "dev", "2.", ".")
)
signs = st.sampled_from(("==", "!=", ">=", "<=", ">", "<", "~=", "===", "=", ""))
clauses = st.tuples(signs, blanks, versions).map("".join)
specifiers = st.lists(clauses, max_size=3).flatmap(
    lambda found: st.sampled_from((",", ", ", " ,", " ")).map(lambda between: between.join(found))
)
variables = st.sampled_from((*ENVIRONMENT, "extra", "nonsense"))
values = st.sampled_from(
    (
        "Linux",
        "linux",
        "x86_64",
        "aarch64",
        "cpython",
        "posix",
        "3.11",
        "3.9",
        "3.12",
        "3",
        "v3",
        "a1",
        "CPython",
        "",
    )
)
terms = st.tuples(
    variables, blanks, st.sampled_from(("==", "!=", ">=", "<", "in", "not in", ">")), blanks, values
).map(lambda parts: f'{parts[0]}{parts[1]}{parts[2]}{parts[3] or " "}"{parts[4]}"')
markers = st.lists(terms, min_size=1, max_size=3).flatmap(
    lambda found: st.sampled_from((" and ", " or ", " and (", " ")).map(lambda between: between.join(found))
)
lines = st.tuples(
    blanks, names, blanks, specifiers, blanks, st.just("") | markers.map(lambda m: f"; {m}")
).map("".join)


@given(lines | st.text('ab=<>!~;., 12"()[]@', max_size=30))
@example('nvidia-nccl-cu12==2.27.5; platform_system == "Linux" and platform_machine == "x86_64"')
@example("typing-extensions>=4.10.0")
@example("sympy>=1.13.3,<2")
@example("setuptools; python_version >= '3.12'")
@example('a; python_version == "3.11"and os_name == "posix"')
def test_a_line_reads_as_packaging_reads_it(line: str) -> None:
    read = common_requirements.read(line, ENVIRONMENT)
    if read is None:
        return
    requirement = Requirement(line)
    applies = requirement.marker is None or requirement.marker.evaluate({**ENVIRONMENT, "extra": ""})
    assert read == (requirement.name, str(requirement.specifier), applies)


@given(specifiers | st.lists(clauses, min_size=1, max_size=3).map(",".join), versions)
@example("==2.27.5", "2.27.5")
@example(">=2.0", "2")
@example("<2", "2.0.0.1")
def test_a_version_is_allowed_as_packaging_allows_it(wanted: str, version: str) -> None:
    allowed = common_requirements.allows(wanted, version)
    if allowed is not None:
        assert allowed == SpecifierSet(wanted, prereleases=True).contains(Version(version), prereleases=True)


@pytest.mark.parametrize(
    "line",
    [
        "torch",
        "torch==2.7.1",
        "numpy >= 1.26",
        "sympy>=1.13.3, <2",
        'nvidia-nccl-cu12==2.27.5; platform_system == "Linux" and platform_machine == "x86_64"',
        "setuptools ; python_version >= '3.12'",
    ],
)
def test_what_wheels_ask_for_needs_no_grammar(line: str) -> None:
    assert common_requirements.read(line, ENVIRONMENT) is not None


@pytest.mark.parametrize(
    "line", ["torch @ https://example.com/t.whl", "ray[default]==2.9", 'a; extra == "x"', "a~=1.0"]
)
def test_other_forms_are_left_to_packaging(line: str) -> None:
    assert common_requirements.read(line, ENVIRONMENT) is None
    try:
        Requirement(line)
    except (InvalidRequirement, InvalidVersion):
        pytest.fail("it is a requirement")
