"""A check is one function in one file: through a folder, through an entry point, and when it is broken."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

PLUGIN = '''
"""Is the rack painted?"""

from collections.abc import Iterator

from nodedoctor.model import Finding
from nodedoctor.engine.registry import check


@check("rack.painted", "The rack is painted", tags={"fast"})
def rack_painted() -> Iterator[Finding]:
    """Whether somebody painted it."""
    yield Finding.warn("bare metal")
'''


def nodedoctor(*words, pythonpath=(), **more):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *map(str, pythonpath)])}
    argv = [sys.executable, "-m", "nodedoctor", *words]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, cwd="/", timeout=60, **more)


def results(done):
    assert done.stderr == ""
    return {result["check"]: result for result in json.loads(done.stdout)["results"]}


def test_a_check_in_a_folder(tmp_path):
    (tmp_path / "rack.py").write_text(PLUGIN)
    done = nodedoctor("--json", "--checks", str(tmp_path), "rack", "--fail-on", "warn")
    assert results(done)["rack.painted"]["findings"][0]["summary"] == "bare metal"
    assert done.returncode == 1


def test_a_check_in_a_folder_of_the_folder_with_a_helper_beside_it(tmp_path):
    source = PLUGIN.replace('"bare metal"', "METAL").replace(
        "from nodedoctor.model", "from .words import METAL\nfrom nodedoctor.model"
    )
    (tmp_path / "paint").mkdir()
    (tmp_path / "paint" / "rack.py").write_text(source)
    (tmp_path / "paint" / "words.py").write_text('METAL = "bare metal"\n')
    for passed_over in ("_draft", ".git", "notes"):
        (tmp_path / passed_over).mkdir()
    (tmp_path / "_draft" / "rack.py").write_text("1/0\n")
    (tmp_path / ".git" / "rack.py").write_text("1/0\n")
    (tmp_path / "notes" / "rack.txt").write_text("no Python")
    (tmp_path / "round").symlink_to(tmp_path)
    found = results(nodedoctor("--json", "--checks", str(tmp_path), "rack", "doctor.plugins"))
    assert found["rack.painted"]["findings"][0]["summary"] == "bare metal"
    assert found["doctor.plugins"]["status"] == "pass"


def test_a_check_from_an_entry_point(tmp_path):
    (tmp_path / "my_rack.py").write_text(PLUGIN)
    info = tmp_path / "my_rack-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-rack\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[nodedoctor.checks]\nrack = my_rack\n")
    done = nodedoctor("--json", "rack.painted", pythonpath=[tmp_path])
    assert results(done)["rack.painted"]["status"] == "warn"


def test_a_check_from_an_entry_point_in_an_archive(tmp_path):
    archive = tmp_path / "my_rack.zip"
    with zipfile.ZipFile(archive, "w") as written:
        written.writestr("my_rack.py", PLUGIN)
        info = "my_rack-1.0.dist-info"
        written.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: my-rack\nVersion: 1.0\n")
        written.writestr(f"{info}/entry_points.txt", "[nodedoctor.checks]\nrack = my_rack\n")
    done = nodedoctor("--json", "rack.painted", pythonpath=[archive])
    assert results(done)["rack.painted"]["status"] == "warn"


@pytest.mark.parametrize(
    "source", ["def broken(:\n", "import no_such_module_here\n", "raise SystemExit(0)\n", "1/0\n"]
)
def test_a_plugin_that_does_not_load_is_one_unknown_and_the_rest_runs(tmp_path, source):
    (tmp_path / "broken.py").write_text(source)
    (tmp_path / "rack.py").write_text(PLUGIN)
    done = nodedoctor("--json", "--checks", str(tmp_path), "rack", "doctor.plugins")
    found = results(done)
    assert found["rack.painted"]["status"] == "warn"
    (finding,) = found["doctor.plugins"]["findings"]
    assert (finding["status"], finding["reason"]) == ("unknown", "crash")
    assert finding["subject"] == "plugin:broken"
    assert str(tmp_path / "broken.py") in finding["fix"]["text"]
    assert done.returncode == 3


def test_an_entry_point_that_does_not_load_is_named(tmp_path):
    info = tmp_path / "gone-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gone\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[nodedoctor.checks]\ngone = no_such_module\n")
    done = nodedoctor("--json", "doctor.plugins", pythonpath=[tmp_path])
    (finding,) = results(done)["doctor.plugins"]["findings"]
    assert "no_such_module" in finding["summary"]


def test_the_same_id_twice_names_both_files(tmp_path):
    (tmp_path / "one.py").write_text(PLUGIN)
    (tmp_path / "two.py").write_text(PLUGIN)
    done = nodedoctor("--json", "--checks", str(tmp_path), "rack")
    assert done.returncode == 64
    assert "one.py" in done.stderr and "two.py" in done.stderr


def test_the_working_directory_is_no_source(tmp_path):
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "rack.py").write_text(PLUGIN)
    (tmp_path / "json.py").write_text("raise SystemExit('never import me')")
    code = (
        "import sys; sys.path.remove(''); from nodedoctor.cli.main import main; "
        "sys.exit(main(['--json', 'rack']))"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 64
    assert "no check or subject 'rack'" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root refuses")
def test_root_does_not_load_what_others_can_write(tmp_path):
    (tmp_path / "rack.py").write_text(PLUGIN)
    (tmp_path / "rack.py").chmod(0o666)
    done = nodedoctor("--json", "--checks", str(tmp_path), "rack")
    assert done.returncode == 64
    assert "can be written by others" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root refuses")
def test_root_does_not_load_what_others_can_write_further_down(tmp_path):
    (tmp_path / "paint").mkdir()
    (tmp_path / "paint" / "rack.py").write_text(PLUGIN)
    (tmp_path / "paint").chmod(0o777)
    done = nodedoctor("--json", "--checks", str(tmp_path), "rack")
    assert done.returncode == 64
    assert f"{tmp_path / 'paint'} can be written by others" in done.stderr
