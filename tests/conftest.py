"""What several test files share."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import examples
import pytest
from fakes import build_nvml, nvml_env, write_config
from recorded import STORE

pytest_plugins = ("no_skips", "share_of_tests", "side_by_side", "tiers", "trial_table")
examples.load_profile()
gc.disable()  # until all tests are imported: a third of what that costs
# A shell's background jobs ignore these, and nohup the last; what tests start and end must not inherit that.
for _number, _handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--times", type=int, default=1, help="run each test marked `race` so many times")


def pytest_configure(config: pytest.Config) -> None:
    """Give all workers one folder for the reports they share; the first process makes and removes it."""
    if hasattr(config, "workerinput"):
        return
    folder = tempfile.mkdtemp(prefix="nodedoctor-reports-")
    os.environ[STORE] = folder
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_collection_finish() -> None:
    """What is imported stays: neither collections nor forks look at it again."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # to look less often saves a twenty-fifth of their time
    gc.enable()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    times = metafunc.config.getoption("times")
    if times > 1 and metafunc.definition.get_closest_marker("race"):
        metafunc.fixturenames.append("_time")
        metafunc.parametrize("_time", range(times), ids=lambda number: f"time{number}")


@pytest.fixture
def _time() -> int:
    """Which of how many times this is."""
    return 0


@pytest.fixture(scope="session")
def nvml_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the fake libnvidia-ml.so.1 lies."""
    return build_nvml(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_nvml_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a fake libnvidia-ml.so.1 of the 470 branch lies."""
    return build_nvml(tmp_path_factory.mktemp("old-nvml"), old_driver=True)


@pytest.fixture
def fake_nvml(nvml_folder: Path, tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Say what NVML shall tell (keys of fakes/nvml.c), get the environment in which it does.

    Called again it changes what running children see; `nvml.conf` in tmp_path is the file.
    """

    def tell(values: dict[str, object] | None = None) -> dict[str, str]:
        return nvml_env(nvml_folder, write_config(tmp_path / "nvml.conf", values or {}))

    return tell


@pytest.fixture
def memory_cgroup() -> Iterator[Path]:
    """A group of cgroup v1 or v2 in which processes may use 150 MiB and no swap."""
    groups = Path("/sys/fs/cgroup")
    v1 = (groups / "memory/memory.limit_in_bytes").exists()
    group = groups / ("memory" if v1 else "") / f"nodedoctor-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here: {error}")
    try:
        limits = (
            ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
            if v1
            else ("memory.max", "memory.swap.max")
        )
        if not (group / limits[0]).exists():
            pytest.skip("the memory controller is not delegated to here")
        (group / limits[0]).write_text(str(150 << 20))
        if (group / limits[1]).exists():
            (group / limits[1]).write_text(str(150 << 20) if v1 else "0")
        yield group
    finally:
        group.rmdir()
