"""A check is one function in one file: through a folder, through an entry point, and when it is broken."""

import json
import math
import os
import py_compile
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import pytest
from forked import nodedoctor_forked

from nodedoctor.engine import sandbox

REPOSITORY = Path(__file__).parents[2]

PLUGIN = '''
"""Is the rack painted?"""

from collections.abc import Iterator

from nodedoctor.plugin import Finding, check


@check("rack.painted", "The rack is painted", tags={"fast"})
def rack_painted() -> Iterator[Finding]:
    """Whether somebody painted it."""
    yield Finding.warn("bare metal")
'''


def nodedoctor(*words, pythonpath=(), **more):
    if not pythonpath and not more:
        return nodedoctor_forked(*words, cwd="/")
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
        "from nodedoctor.plugin", "from .words import METAL\nfrom nodedoctor.plugin"
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


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "source",
    [
        "def broken(:\n",
        "import no_such_module_here\n",
        "raise SystemExit(0)\n",
        "1/0\n",
        "raise KeyboardInterrupt\n",
        "raise GeneratorExit\n",
        "class Odd(BaseException): pass\nraise Odd\n",
        "import os\nos._exit(9)\n",
        "import ctypes\nctypes.string_at(0)\n",
        "import os\nos.closerange(0, 64)\n",
        "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n",
    ],
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


def test_what_a_plugin_prints_is_not_in_the_report(tmp_path):
    (tmp_path / "rack.py").write_text(
        "import os\nprint('imported')\nos.write(1, b'written\\n')\n"
        + PLUGIN.replace("yield", "print('asked'); yield")
    )
    done = nodedoctor("--json", "--checks", str(tmp_path), "rack")
    assert json.loads(done.stdout)["results"][0]["check"] == "rack.painted"
    assert sorted(done.stderr.split()) == ["asked", "imported", "written"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("raised", ["KeyboardInterrupt", "SystemExit(0)", "GeneratorExit"])
def test_whatever_a_check_raises_is_one_unknown(tmp_path, raised):
    (tmp_path / "rack.py").write_text(PLUGIN + f"    raise {raised}\n")
    found = results(nodedoctor("--json", "--checks", str(tmp_path), "rack"))["rack.painted"]["findings"]
    assert [finding["status"] for finding in found] == ["warn", "unknown"]
    assert raised.partition("(")[0] in found[1]["summary"]


HOSTILE = '''
"""Checks that harm the process they are judged in."""

import os
import signal
import sys
from dataclasses import dataclass

from nodedoctor.plugin import Command, Finding, Observation, Options, check, fact, probe


@probe("harm")
def plan_harm(options: Options) -> Command:
    """A plan that ends the process."""
    os._exit(0)


@probe("calm")
def plan_calm(options: Options) -> Command:
    """Nothing wrong with it."""
    return Command((sys.executable, "-c", "print('calm')"))


@fact("harm")
@dataclass(frozen=True)
class Harm:
    """What the plan did."""

    text: str

    @classmethod
    def parse(cls, seen):
        return cls(seen.note)


@fact("calm")
@dataclass(frozen=True)
class Calm:
    """A fact whose short form ends the process."""

    text: str

    @classmethod
    def parse(cls, seen):
        return cls(seen.text)

    def headline(self):
        os._exit(0)


@fact("calm")
class Fatal:
    """A fact whose parser ends the process."""

    @classmethod
    def parse(cls, seen):
        os.kill(os.getpid(), signal.SIGSEGV)


@check("harm.exit", "Ends the process")
def ends():
    """Ends it."""
    yield Finding.warn("seen before")
    os._exit(2)


@check("harm.kill", "Kills the process")
def kills():
    """Kills it."""
    os.kill(os.getpid(), signal.SIGKILL)
    yield Finding.ok("alive")


@check("harm.close", "Closes what is not its own")
def closes():
    """Closes it."""
    os.closerange(3, 1000)
    yield Finding.ok("closed")


@check("harm.odd", "Finds what cannot be handed over")
def odd():
    """Finds it."""
    yield Finding.ok("odd", subject=lambda: None)


@check("harm.moves", "Leaves for another folder and empties the environment")
def moves():
    """Leaves."""
    os.chdir("/")
    os.environ.clear()
    yield Finding.ok("left")


@check("harm.plan", "Rests on a plan that ends the process")
def planned(harm: Harm):
    """Rests on it."""
    yield Finding.warn(harm.text)


@check("harm.parse", "Rests on a parser that crashes")
def parsed(fatal: Fatal):
    """Rests on it."""
    yield Finding.ok("parsed")


@check("harm.form", "Rests on a fact that cannot show itself")
def shown(calm: Calm):
    """Rests on it."""
    yield Finding.warn(calm.text.strip())
'''


def test_what_a_plugin_does_to_its_process_costs_one_check(tmp_path):
    (tmp_path / "hostile.py").write_text(HOSTILE)
    (tmp_path / "rack.py").write_text(PLUGIN)
    done = nodedoctor("--json", "--checks", str(tmp_path), "harm", "rack")
    found = {check: result["findings"] for check, result in results(done).items()}
    assert done.returncode == 3
    (odd,) = found.pop("harm.odd")
    assert odd["status"] == "unknown" and "could not answer: " in odd["summary"]
    assert {check: [one["summary"] for one in findings] for check, findings in found.items()} == {
        "harm.close": ["the check itself closes descriptors that are not its own"],
        "harm.exit": ["the check itself ends the process with exit code 2"],
        "harm.form": ["calm"],
        "harm.kill": ["the check itself ends the process with SIGKILL"],
        "harm.moves": ["left"],
        "harm.parse": ["reading Fatal ends the process with SIGSEGV"],
        "harm.plan": ["planning ends the process with exit code 0"],
        "rack.painted": ["bare metal"],
    }
    unknown = {check for check, findings in found.items() if findings[0]["status"] == "unknown"}
    assert unknown == {"harm.close", "harm.exit", "harm.kill", "harm.parse"}


@pytest.mark.parametrize("wait", ["time.sleep(600)", "exec('while True: pass')"])
def test_what_a_plugin_leaves_for_the_end_does_not_put_it_off(tmp_path, wait):
    (tmp_path / "late.py").write_text(f"import atexit, time\natexit.register(lambda: {wait})\n{PLUGIN}")
    done = nodedoctor("--json", "--checks", str(tmp_path), "rack")
    assert done.returncode == 0 and results(done)["rack.painted"]["status"] == "warn"


@pytest.mark.slow
def test_a_check_that_heeds_no_limit_is_killed_with_what_it_started(tmp_path):
    (tmp_path / "deaf.py").write_text(
        "import os, subprocess, time\nfrom nodedoctor.plugin import Finding, check\n"
        "@check('deaf.check', 'Never ends')\ndef deaf():\n    'Never ends.'\n"
        f"    subprocess.Popen(['sleep', '{600 + os.getpid() / 1e7:.7f}'])\n"
        "    while True:\n        try:\n            time.sleep(60)\n        except BaseException:\n"
        "            pass\n    yield\n"
    )
    (tmp_path / "rack.py").write_text(PLUGIN)
    found = results(nodedoctor("--json", "--checks", str(tmp_path), "deaf", "rack"))
    assert found["deaf.check"]["findings"][0]["summary"] == "the check itself took longer than 5 s"
    assert found["rack.painted"]["status"] == "warn"
    asleep = subprocess.run(["pgrep", "-f", f"sleep {600 + os.getpid() / 1e7:.7f}"], stdout=subprocess.PIPE)
    assert not asleep.stdout


def test_no_code_of_others_runs_on_after_the_deadline():
    def forever() -> None:
        while True:
            time.sleep(60)

    try:
        sandbox.end_by(time.monotonic() + 0.4)
        with pytest.raises(TimeoutError, match=r"it took longer than 0\.[01]"):
            sandbox.run_in_fork(forever, 5.0)
        sandbox.end_by(time.monotonic() - 60)
        with pytest.raises(TimeoutError, match="it was not begun before the deadline"):
            sandbox.run_in_fork(forever, 5.0)
    finally:
        sandbox.end_by(math.inf)


@pytest.mark.slow
def test_several_that_hang_leave_time_for_our_own_checks(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.py").write_text(
            "import time\nfrom nodedoctor.plugin import Finding, check\n"
            f"@check('deaf.{name}', 'Never ends')\ndef deaf():\n    'Never ends.'\n"
            "    while True:\n        try:\n            time.sleep(60)\n        except BaseException:\n"
            "            pass\n    yield\n"
        )
    words = ("--json", "--checks", str(tmp_path), "deaf", "limits.nofile", "--deadline", "12")
    found = results(nodedoctor(*words))
    told = [found[f"deaf.{name}"]["findings"][0]["summary"] for name in ("a", "b", "c")]
    assert all(one.startswith("the check itself took longer than ") for one in told)
    assert found["limits.nofile"]["status"] != "unknown"


@pytest.mark.slow
def test_plugins_that_do_not_end_cost_their_time_once(tmp_path):
    wait = "import time\nwhile True:\n    try:\n        time.sleep(60)\n    except Exception:\n        pass\n"
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.py").write_text(wait)
    (tmp_path / "rack.py").write_text(PLUGIN)
    began = time.monotonic()
    found = results(nodedoctor("--json", "--checks", str(tmp_path), "rack", "doctor.plugins"))
    assert time.monotonic() - began < 30
    assert found["rack.painted"]["status"] == "warn"
    assert ["took longer than" in one["summary"] for one in found["doctor.plugins"]["findings"]] == [True] * 3


def test_checks_are_loaded_from_source(tmp_path):
    """Compiled code is neither used nor written: it may be another than the source that was looked at."""
    (tmp_path / "sub").mkdir()
    for file in (tmp_path / "helper.py", tmp_path / "sub" / "deeper.py", tmp_path / "alone.py"):
        file.write_text("raise RuntimeError('compiled code was run')\n")
        unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(file), invalidation_mode=unchecked)
        file.write_text("WORD = 'bare metal'\n")
    (tmp_path / "alone.py").unlink()
    py_compile.compile(str(tmp_path / "helper.py"), cfile=str(tmp_path / "alone.pyc"))
    (tmp_path / "fast.abi3.so").write_bytes(b"no library")
    imports = "from .helper import WORD\nfrom .sub.deeper import WORD as SAME\n"
    (tmp_path / "rack.py").write_text(imports + PLUGIN.replace('"bare metal"', "SAME"))
    done = nodedoctor("--json", "--checks", str(tmp_path), "rack", "doctor.plugins")
    found = results(done)
    assert found["rack.painted"]["findings"][0]["summary"] == "bare metal"
    for finding, name in zip(found["doctor.plugins"]["findings"], ("alone", "fast"), strict=True):
        assert f"no {name}.py: only source files are checks" in finding["summary"]
    assert not list(tmp_path.glob("__pycache__/rack*"))


def test_a_package_of_checks_that_does_not_start_is_one_unknown(tmp_path):
    (tmp_path / "__init__.py").write_text("1/0\n")
    (tmp_path / "rack.py").write_text(PLUGIN)
    found = results(nodedoctor("--json", "--checks", str(tmp_path), "rack", "doctor.plugins"))
    assert found["rack.painted"]["status"] == "warn"
    assert found["doctor.plugins"]["findings"][0]["subject"] == "plugin:__init__"


@pytest.fixture
def planting():
    """A folder of root's with a good check, and in it a line that leaves a mark: (folder, mark, code)."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files to somebody else")
    with tempfile.TemporaryDirectory() as name:
        folder, mark = Path(name, "checks"), Path(name, "mark")
        folder.mkdir()
        (folder / "rack.py").write_text(PLUGIN)
        yield folder, mark, f"open({str(mark)!r}, 'w')\n"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["sub/deeper.py", "__pycache__/rack.pyc", "fast.so", "__init__.py"])
@pytest.mark.parametrize("link", [False, True])
def test_root_loads_no_folder_with_something_of_others(planting, name, link):
    folder, mark, code = planting
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    theirs = folder.parent / "theirs.py" if link else file
    theirs.write_text(code)
    if link:
        file.symlink_to(theirs)
    os.chown(theirs, 65534, 65534)
    done = nodedoctor("--json", "--checks", str(folder), "rack")
    assert done.returncode == 64 and f"{theirs} can be written by others" in done.stderr
    assert not mark.exists()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("what", ["my_rack.py", "entry_points.txt", "deeper"])
def test_root_loads_no_entry_point_that_others_can_write(planting, what):
    folder, mark, code = planting
    info = folder / "my_rack-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-rack\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[nodedoctor.checks]\nrack = my_rack\n")
    if what == "deeper":
        (folder / "my_rack").mkdir()
        (folder / "my_rack" / "__init__.py").write_text("from my_rack import deeper\n" + PLUGIN)
        (folder / "my_rack" / "deeper.py").write_text(code)
        os.chown(folder / "my_rack" / "deeper.py", 65534, 65534)
    else:
        (folder / "my_rack.py").write_text(code + PLUGIN)
        os.chown((info if what.endswith("txt") else folder) / what, 65534, 65534)
    found = results(nodedoctor("--json", "doctor.plugins", pythonpath=[folder]))
    (finding,) = found["doctor.plugins"]["findings"]
    assert "as root nodedoctor does not load it" in finding["summary"] and "uid 65534" in finding["summary"]
    assert not mark.exists()


def test_ctrl_c_while_a_plugin_loads_ends_the_run(tmp_path):
    here = tmp_path / "here"
    (tmp_path / "slow.py").write_text(f"import time\nopen({str(here)!r}, 'w')\ntime.sleep(60)\n")
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    argv = [sys.executable, "-m", "nodedoctor", "--json", "--checks", str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, env=environment, stdout=pipe, stderr=pipe, text=True, cwd="/") as running:
        ends = time.monotonic() + 60
        while not here.exists() and time.monotonic() < ends:
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=20) == 130


@pytest.mark.skipif(os.geteuid() != 0, reason="only root refuses")
def test_root_does_not_load_what_others_can_write_further_down(tmp_path):
    (tmp_path / "paint").mkdir()
    (tmp_path / "paint" / "rack.py").write_text(PLUGIN)
    (tmp_path / "paint").chmod(0o777)
    done = nodedoctor("--json", "--checks", str(tmp_path), "rack")
    assert done.returncode == 64
    assert f"{tmp_path / 'paint'} can be written by others" in done.stderr
