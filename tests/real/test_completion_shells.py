"""Completion in a real fish and a real zsh."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodedoctor.cli.completion import fish, zsh
from nodedoctor.cli.completion.vocabulary import Vocabulary, vocabulary
from nodedoctor.demo import DEMOS
from nodedoctor.engine.plugins import discover

REPOSITORY = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def known() -> Vocabulary:
    return vocabulary()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "recorded.zip").touch()
    (tmp_path / "recordings").mkdir()
    return tmp_path


@pytest.fixture(scope="module")
def in_fish(tmp_path_factory: pytest.TempPathFactory, known: Vocabulary) -> Callable[..., dict[str, str]]:
    shell = shutil.which("fish")
    if not shell:
        pytest.skip("no fish here")
    home = tmp_path_factory.mktemp("fish")
    script = home / "nodedoctor.fish"
    script.write_text(fish.script(known))

    def completed(line: str, cwd: Path = REPOSITORY) -> dict[str, str]:
        """What fish offers for a line, and what it says about each."""
        argv = [shell, "-c", "source $argv[1]; complete -C $argv[2]", str(script), line]
        env = {"HOME": str(home), "PATH": os.environ["PATH"]}
        done = subprocess.run(argv, capture_output=True, text=True, cwd=cwd, env=env, timeout=60)
        assert done.stderr == ""
        return dict(line.partition("\t")[::2] for line in done.stdout.splitlines())

    return completed


@pytest.mark.real
def test_fish_offers_the_same_with_what_it_means(in_fish: Callable[..., dict[str, str]], folder: Path):
    first = in_fish("nodedoctor ")
    catalogue = discover()
    assert first["nvlink.links"] == catalogue.checks["nvlink.links"].title
    assert first["triage"] == "why a job died"
    assert set(catalogue.checks) <= set(first)
    assert in_fish("nodedoctor --js") == {"--json": "print one JSON document on stdout"}
    assert set(in_fish("nodedoctor --tag fas")) == {"fast"}
    assert set(in_fish("nodedoctor --tag=fas")) == {"--tag=fast"}
    assert set(in_fish("nodedoctor --fail-on ")) == {"fail", "unknown", "warn"}
    assert set(in_fish("nodedoctor --expect gp", folder)) == {"gpus=", "gpu="}
    assert set(in_fish("nodedoctor --replay reco", folder)) == {"recorded.zip", "recordings/"}
    assert set(in_fish("nodedoctor --root reco", folder)) == {"recordings/"}
    assert set(in_fish("nodedoctor demo ")) == set(DEMOS)
    assert set(in_fish("nodedoctor demo healthy nvlink.li")) == {"nvlink.links"}
    assert set(in_fish("nodedoctor explain NCCL_TIMEO")) >= {"NCCL_TIMEOUT", "NCCL_TIMEOUT_MS"}
    assert set(in_fish("nodedoctor list --json ch")) == {"checks"}
    assert set(in_fish("nodedoctor compare reco", folder)) == {"recorded.zip", "recordings/"}
    assert "--tag" not in in_fish("nodedoctor triage --") and "--live" in in_fish("nodedoctor triage --")
    assert set(in_fish("nodedoctor watch ", folder)) == set()


_ZSHRC = """\
fpath=(@functions@ $fpath)
autoload -Uz compinit
compinit -u -D
PROMPT= LISTMAX=9999
bindkey '^I' complete-word
shown() { print -r -- $'\\n'"BUFFER<$BUFFER>"; BUFFER=; zle redisplay }
zle -N shown
bindkey '^X' shown
print READY
"""


class Zsh:
    """A zsh on a terminal of its own, to which keys are sent."""

    def __init__(self, home: Path, script: Path, cwd: Path) -> None:
        (home / ".zshrc").write_text(_ZSHRC.replace("@functions@", str(script.parent)))
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            env = {"ZDOTDIR": str(home), "HOME": str(home), "TERM": "dumb", "PATH": os.environ["PATH"]}
            os.execvpe("zsh", ["zsh", "-i"], env)
        self._until("READY")

    def __call__(self, line: str) -> str:
        """The line after the Tab key."""
        os.write(self.terminal, f"{line}\t\x18".encode())
        return self._until(r"BUFFER<([^>]*)>")

    def _until(self, pattern: str) -> str:
        seen, ends = "", time.monotonic() + 60
        while not (found := re.search(pattern, seen)):
            assert select.select([self.terminal], [], [], max(0.0, ends - time.monotonic()))[0], seen
            seen += os.read(self.terminal, 65536).decode(errors="replace")
        return found[found.re.groups]

    def end(self) -> None:
        os.close(self.terminal)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


@pytest.fixture
def in_zsh(tmp_path_factory: pytest.TempPathFactory, known: Vocabulary, folder: Path) -> Iterator[Zsh]:
    if not shutil.which("zsh"):
        pytest.skip("no zsh here")
    home = tmp_path_factory.mktemp("zsh")
    script = home / "functions" / "_nodedoctor"
    script.parent.mkdir()
    script.write_text(zsh.script(known))
    shell = Zsh(home, script, folder)
    yield shell
    shell.end()


@pytest.mark.real
def test_zsh_completes_the_same(in_zsh: Zsh):
    assert in_zsh("nodedoctor nvlink.li") == "nodedoctor nvlink.links "
    assert in_zsh("nodedoctor tri") == "nodedoctor triage "
    assert in_zsh("nodedoctor --js") == "nodedoctor --json "
    assert in_zsh("nodedoctor --tag fas") == "nodedoctor --tag fast "
    assert in_zsh("nodedoctor --tag=fas") == "nodedoctor --tag=fast "
    assert in_zsh("nodedoctor --json --fail-on w") == "nodedoctor --json --fail-on warn "
    assert in_zsh("nodedoctor --expect nvl") == "nodedoctor --expect nvlinks="
    assert in_zsh("nodedoctor --replay recorded") == "nodedoctor --replay recorded.zip "
    assert in_zsh("nodedoctor --root rec") == "nodedoctor --root recordings/"
    assert in_zsh("nodedoctor demo nv") == "nodedoctor demo nvlinks-down "
    assert in_zsh("nodedoctor demo healthy nvlink.li") == "nodedoctor demo healthy nvlink.links "
    assert in_zsh("nodedoctor explain NCCL_IB_HC") == "nodedoctor explain NCCL_IB_HCA "
    assert in_zsh("nodedoctor list --json ch") == "nodedoctor list --json checks "
    assert in_zsh("nodedoctor compare recorded.zip recordi") == "nodedoctor compare recorded.zip recordings/"
    assert in_zsh("nodedoctor triage --no-") == "nodedoctor triage --no-node "
    assert in_zsh("nodedoctor watch rec") == "nodedoctor watch rec"
