"""What several test files share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import build_nvml, nvml_env, write_config
from hypothesis import settings

settings.register_profile("any-machine", deadline=None)  # how long one example takes is the machine's affair
settings.load_profile("any-machine")


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
