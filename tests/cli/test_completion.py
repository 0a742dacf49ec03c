"""Completion: everything there is can be completed, by a real bash."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nodedoctor.cli import main
from nodedoctor.cli.completion import bash
from nodedoctor.cli.completion.vocabulary import FOLDERS, KINDS, Vocabulary, vocabulary
from nodedoctor.declare.registry import RESERVED
from nodedoctor.demo import DEMOS
from nodedoctor.engine.plugins import discover

REPOSITORY = Path(__file__).parents[2]
FREE = {
    "BYTES",
    "N|N%",
    "HOST,...",
    "24h",
    "'CMD'",
    "SECONDS",
    "PID",
    "NODES",
    "NAMESPACE/SELECTOR",
    "OPTIONS",
    "ADDRESS",
    "N",
    "ID",
    "JOB",
    "COMMAND",
    "TIME",
    "TIME[,force]",
    "REGEX",
}
"""Metavars for which no list could be made."""


@pytest.fixture(scope="module")
def known() -> Vocabulary:
    return vocabulary()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "recorded.zip").touch()
    (tmp_path / "recordings").mkdir()
    (tmp_path / "a report.json").touch()
    return tmp_path


@pytest.fixture(scope="module")
def in_bash(tmp_path_factory: pytest.TempPathFactory, known: Vocabulary) -> Callable[..., list[str]]:
    script = tmp_path_factory.mktemp("bash") / "nodedoctor"
    script.write_text(bash.script(known))

    def completed(*words: str, cwd: Path = REPOSITORY) -> list[str]:
        """What bash offers for the last of the words (its words: it takes them apart at `=`)."""
        drive = (
            f'set -u; source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); PATH=; _nodedoctor;'
            f' if ((${{#COMPREPLY[@]}})); then printf "%s\\n" "${{COMPREPLY[@]}}"; fi; true {len(words)}'
        )
        shell = shutil.which("bash")
        assert shell
        argv = [shell, "--norc", "-c", drive, str(script), "nodedoctor", *words]
        done = subprocess.run(argv, capture_output=True, text=True, cwd=cwd, timeout=60)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout.splitlines()

    return completed


def test_every_subcommand_is_known_and_every_value_is_a_list_or_known_to_be_free(known: Vocabulary):
    names = {command.name for command in known.commands}
    assert names == RESERVED | {""}
    for command in known.commands:
        for argument in (*command.options, *command.places):
            assert all(kind in known.lists for kind in argument.kinds if not kind.startswith("("))
    parsers = Path(REPOSITORY / "nodedoctor").rglob("*.py")
    metavars = {name for path in parsers for name in re.findall(r'metavar="([^"]+)"', path.read_text())}
    assert metavars <= FREE | set(KINDS), "say in KINDS what stands for a new metavar"


def test_everything_that_can_be_said_is_offered(in_bash: Callable[..., list[str]]):
    catalogue = discover()
    subjects = {check.subject for check in catalogue.checks.values()}
    assert set(in_bash("")) == set(catalogue.checks) | subjects | RESERVED
    assert set(in_bash("--tag", "")) == {tag for check in catalogue.checks.values() for tag in check.tags}
    assert in_bash("demo", "") == list(DEMOS)
    assert {"79", "NCCL_TIMEOUT", "peer_died", "nvlink.links", "nvlink", "dcgm-diag"} <= set(
        in_bash("explain", "")
    )


def test_options_are_those_of_the_command(in_bash: Callable[..., list[str]]):
    assert {"--json", "--tag", "--junit", "-q"} <= set(in_bash("-"))
    assert in_bash("--js") == ["--json"]
    assert set(in_bash("triage", "--")) >= {"--node", "--live"} and "--tag" not in in_bash("triage", "--")
    assert "--job" in in_bash("watch", "-")
    assert "--hang-after" in in_bash("run", "-")
    assert in_bash("demo", "healthy", "--js") == ["--json"]


def test_values_follow_their_option(in_bash: Callable[..., list[str]], folder: Path):
    assert in_bash("--fail-on", "") == ["fail", "unknown", "warn"]
    assert in_bash("--tag", "=", "fas") == ["fast"]  # --tag=fas
    assert "fast" in in_bash("--tag", "=")  # --tag=
    assert set(in_bash("--expect", "gp", cwd=folder)) == {"gpus=", "gpu="}
    assert set(in_bash("--expect", "reco", cwd=folder)) == {"recordings", "recorded.zip"}
    assert in_bash("--replay", "a", cwd=folder) == ["a report.json"]
    assert in_bash("--root", "rec", cwd=folder) == ["recordings"]
    assert in_bash("--since", "") == []
    assert in_bash("fleet", "--slurm", "nvlink.li") == ["nvlink.links"]  # its value may be left out
    assert in_bash("completion", "") == ["bash", "zsh", "fish"]


def test_places_are_told_apart(in_bash: Callable[..., list[str]], folder: Path):
    assert in_bash("nvlink.li") == ["nvlink.links"]
    assert in_bash("nvlink.links", "--json", "thermal.") == in_bash("thermal.") != []
    assert in_bash("demo", "healthy", "nvlink.li") == ["nvlink.links"]
    assert in_bash("list", "--json", "ch") == ["checks"]
    assert set(in_bash("compare", "recor", cwd=folder)) == {"recorded.zip", "recordings"}
    assert in_bash("nvlink.links", "demo") == []  # a subcommand comes first or is none


@pytest.mark.slow
def test_a_check_that_a_shell_would_take_apart_is_left_out(tmp_path: Path):
    (tmp_path / "hostile.py").write_text(
        "from nodedoctor.declare.registry import check\n"
        "from nodedoctor.model import Finding\n\n\n"
        '@check("site.$(touch pwned)", "A \'title\' with \\"quotes\\", `ticks` and\\n$(touch pwned)")\n'
        'def hostile():\n    """Nothing."""\n    yield Finding.ok("x")\n\n\n'
        '@check("site.fine", "A \'title\' with \\"quotes\\", `ticks`: \\\\ and\\n$(touch pwned)")\n'
        'def fine():\n    """Nothing."""\n    yield Finding.ok("x")\n'
    )
    loaded = tmp_path / "scripts"
    loaded.mkdir()
    program = (
        "import contextlib, sys; from pathlib import Path; from nodedoctor.engine import plugins as d\n"
        "d.SITE_FOLDER = Path(sys.argv[1]); from nodedoctor.cli.completion import cli\n"
        "for script in map(Path, sys.argv[2:]):\n"
        "    with script.open('w') as out, contextlib.redirect_stdout(out):\n"
        "        assert cli.main([script.name]) == 0\n"
    )
    scripts = [loaded / shell for shell in ("bash", "zsh", "fish")]
    subprocess.run([sys.executable, "-c", program, tmp_path, *scripts], check=True, cwd=REPOSITORY)
    for script in scripts:
        shell, text = script.name, script.read_text()
        assert "site.fine" in text and "site.$(" not in text
        if shutil.which(shell):
            check = subprocess.run([shell, "-n", script], capture_output=True, text=True)
            assert (check.returncode, check.stderr) == (0, "")
    subprocess.run(["bash", "-c", f"source {loaded / 'bash'}"], check=True, cwd=loaded)
    assert not (loaded / "pwned").exists()


def test_a_shell_that_is_not_known_is_a_usage_error(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main.main(["completion", "tcsh"])
    assert ended.value.code == 64
    assert "tcsh" in capsys.readouterr().err


def test_the_script_names_the_command_that_made_it(capsys: pytest.CaptureFixture[str]):
    assert main.main(["completion", "bash"]) == 0
    assert "nodedoctor completion bash" in capsys.readouterr().out


def test_folders_are_offered_where_only_folders_make_sense(known: Vocabulary):
    taking = [option.flags[0] for option in known.commands[0].options if option.kinds == (FOLDERS,)]
    assert taking == ["--checks", "--root", "--journal"]
