"""Groups of real tests name tests that there are, and each group is handed out as a whole."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from side_by_side import GROUPS, group_of

REPOSITORY = Path(__file__).parents[1]


@pytest.mark.parametrize("which", GROUPS)
def test_a_group_names_tests_that_there_are(which: str):
    beginning, _, end = which.partition(" ")
    path, _, name = beginning.partition("::")
    text = (REPOSITORY / path).read_text()
    assert f"def {name}" in text and f'"{end[1:-1]}"' in (text if end else '""')
    assert group_of(f"{beginning}::test_x{end or '[1]'}") == GROUPS[which]


def test_other_cases_of_a_test_are_in_no_group():
    for of in ("spawn", "lightning"):
        name = f"tests/real/blackbox/test_launchers.py::test_x[{of}]"
        assert group_of(name) == name


def alone() -> Iterator[str]:
    """Every test marked `alone`; of a whole file one made-up name."""
    for path in (REPOSITORY / "tests/real").rglob("test_*.py"):
        name, text = path.relative_to(REPOSITORY), path.read_text()
        if re.search(r"^pytestmark = .*\bmark\.alone\b", text, re.MULTILINE):
            yield f"{name}::test_x"
        for test in re.findall(r"^@pytest\.mark\.alone\n(?:@.*\n)*def (\w+)", text, re.MULTILINE):
            yield f"{name}::{test}"


def test_what_measures_rates_and_time_limits_is_in_one_of_two_groups():
    """More than two of them at a time would be other work beside a measurement."""
    assert {group_of(name) for name in alone()} == {"rates", "time limits"}


@pytest.mark.slow
def test_a_group_is_run_by_one_worker(tmp_path: Path):
    (tmp_path / "conftest.py").write_text(
        f"import sys; sys.path.insert(0, {str(REPOSITORY / 'tests' / 'support')!r})\n"
        "import side_by_side\n"
        "side_by_side.GROUPS.update({'test_a.py': 'one', 'test_b.py::test_x': 'one'})\n"
        "from side_by_side import pytest_xdist_make_scheduler\n"
    )
    test = "import time\ndef test_x(worker_id): time.sleep(0.2); print('at', worker_id)\n"
    (tmp_path / "test_a.py").write_text(test + test.replace("test_x", "test_z"))
    (tmp_path / "test_b.py").write_text(test + test.replace("test_x", "test_y"))
    argv = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", "-v", "-p", "no:cacheprovider"]
    done = subprocess.run([*argv, str(tmp_path)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    lines = [line.split() for line in done.stdout.splitlines() if "PASSED" in line]
    workers = {line[-1]: line[0] for line in lines}
    assert len(workers) == 4, done.stdout
    assert (
        len({workers[name] for name in ("test_a.py::test_x", "test_a.py::test_z", "test_b.py::test_x")}) == 1
    )
