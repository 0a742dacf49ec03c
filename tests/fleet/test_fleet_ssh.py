"""Nodes behind a made-up ssh: what it runs, it runs here, under another HOME and PATH, in another session."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodedoctor.children.search_path import search_path
from nodedoctor.fleet.model import FleetError, FleetRequest, Node
from nodedoctor.fleet.transports import node_side
from nodedoctor.fleet.transports.ssh import Ssh

SSH = """#!/bin/sh
# What comes before `--` are options; then the host, and one line for its login shell.
if [ "$1" = -V ]; then exit 0; fi
while [ "$1" != -- ]; do shift; done
host=$2
echo "$host" >>{folder}/asked
export HOME={folder}/$host PATH={folder}/$host/bin:{tools} TMPDIR={folder}/$host/tmp
if [ -e "$HOME/before" ]; then . "$HOME/before"; fi
exec 3<&0
setsid -w sh -c "$3" <&3 3<&-
"""
PYTHON = sys.executable
TOOLS = (
    "sh",
    "setsid",
    "head",
    "wc",
    "id",
    "mkdir",
    "chmod",
    "mv",
    "rm",
    "timeout",
    "true",
    "sleep",
    "cat",
    "env",
)
PACKED = """import sys, json
report = json.load(open({report!r}))
report["facts"]["argv"] = sys.argv[1:]
print(json.dumps(report))
"""


def gone(pid: int) -> bool:
    """Whether a process ends by itself soon."""
    for _ in range(1000):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report as a node prints it."""
    words = [PYTHON, "-m", "nodedoctor", "demo", "hgx-h100-healthy", "--json", "--exit-zero"]
    listed = subprocess.run(words[:4], capture_output=True, text=True, check=True).stdout
    words[4] = listed.split()[2]
    path = tmp_path_factory.mktemp("report") / "report.json"
    path.write_bytes(subprocess.run(words, capture_output=True, check=True).stdout)
    return path


class Cluster:
    """The folder of a made-up cluster: hosts are folders in it."""

    def __init__(self, folder: Path, report: Path) -> None:
        self.folder = folder
        self.report = report
        self.packed = folder / "nodedoctor.pyz"
        self.packed.write_text(PACKED.format(report=str(report)) + "#" * 300_000)

    def host(
        self, name: str, *, before: str = "", nodedoctor: str | None = "", python: str | None = ""
    ) -> Path:
        """A host; `nodedoctor` and `python` are scripts, "" the usual one, None for none."""
        home = self.folder / name
        for folder in ("bin", "tmp"):
            (home / folder).mkdir(parents=True)
        if before:
            (home / "before").write_text(before)
        if nodedoctor is not None:
            self.put(home / "bin/nodedoctor", nodedoctor or f"cat {self.report}")
        if python is not None:
            self.put(home / "bin/python3", python or f'exec {PYTHON} -I "$@"')
        return home

    def put(self, path: Path, script: str) -> None:
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    @property
    def asked(self) -> list[str]:
        """The hosts of all connections, in their order."""
        path = self.folder / "asked"
        return path.read_text().split() if path.exists() else []


@pytest.fixture
def cluster(tmp_path: Path, report: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    tools, bin = tmp_path / "tools", tmp_path / "bin"
    tools.mkdir()
    bin.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found, name
        (tools / name).symlink_to(found)
    (bin / "ssh").write_text(SSH.format(folder=shlex.quote(str(tmp_path)), tools=shlex.quote(str(tools))))
    (bin / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin}:{os.environ['PATH']}")
    assert str(bin) in search_path().folders  # looked at by this interpreter, and remembered
    # Our own Python's folder, where a node on a shared file system would find nodedoctor, has none.
    search_path()  # looked at by this interpreter, and remembered
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere/python3"))
    return Cluster(tmp_path, report)


async def collect(ssh: Ssh, request: FleetRequest) -> dict[str, Node]:
    return {node.host: node async for node in ssh.ask(request)}


def ask(hosts: str, **request: object) -> dict[str, Node]:
    return asyncio.run(collect(Ssh(hosts), FleetRequest(**{"deadline": 20.0, **request})))  # type: ignore[arg-type]


def one(host: str, **request: object) -> Node:
    return ask(host, **request)[host]


# What nodes do


def test_a_node_answers(cluster: Cluster):
    cluster.host("gpu-1")
    node = one("gpu-1")
    assert (node.state, node.note[:13]) == ("answered", "calls itself ")
    assert node.gpus == 8 and node.verdict is not None and cluster.asked == ["gpu-1"]


def test_what_nodedoctor_is_told_arrives_as_it_was_typed(cluster: Cluster):
    words = ("--json", "it's", 'a "b" $HOME `id` !x \\', "two\nlines", "--deadline=7")
    cluster.host(
        "gpu-1", nodedoctor=f'for word; do printf "%s\\0" "$word"; done >"$HOME/told"; cat {cluster.report}'
    )
    assert one("root@gpu-1", arguments=words).state == "unable", "root@gpu-1 is another folder here"
    assert one("gpu-1", arguments=words).state == "answered"
    assert (cluster.folder / "gpu-1/told").read_text().split("\0")[:-1] == list(words)


def test_nodedoctor_gets_less_time_than_its_node(cluster: Cluster):
    cluster.host("gpu-1", nodedoctor=f'echo "$@" >"$HOME/told"; cat {cluster.report}')
    ask("gpu-1", deadline=30.0)
    assert (cluster.folder / "gpu-1/told").read_text() == "--json --deadline 27\n"


@pytest.mark.slow
def test_nothing_that_hangs_outlives_its_deadline(cluster: Cluster):
    deaf = 'trap "" TERM HUP INT; echo $$ >"$HOME/pid"; while :; do sleep 1; done'
    cluster.host("gpu-1", nodedoctor=deaf)
    cluster.host("gpu-2")
    began = time.monotonic()
    nodes = ask("gpu-[1-2]", deadline=1.5)
    assert time.monotonic() - began < 10
    assert (nodes["gpu-1"].state, nodes["gpu-2"].state) == ("silent", "answered")
    assert gone(int((cluster.folder / "gpu-1/pid").read_text())), "it was left running on the node"


def test_an_ssh_that_never_ends_is_given_up(cluster: Cluster):
    cluster.host("gpu-1", before='trap "" TERM; while :; do sleep 1; done')
    began = time.monotonic()
    assert one("gpu-1", deadline=0.5).state == "silent"
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    "words",
    [
        "ssh: connect to host gpu-1 port 22: Connection refused",
        "ssh: Could not resolve hostname gpu-1: Name or service not known",
        "root@gpu-1: Permission denied (publickey).",
    ],
)
def test_a_node_nobody_gets_to_is_unreachable_and_says_why(cluster: Cluster, words: str):
    cluster.host("gpu-1", before=f"echo '{words}' >&2; exit 255")
    node = one("gpu-1", pyz=str(cluster.packed))
    assert (node.state, node.note, cluster.asked) == ("unreachable", words, ["gpu-1"])


def test_a_banner_is_in_nobodys_way(cluster: Cluster):
    cluster.host("gpu-1", before='echo "Welcome to gpu-1 {of 8}"; echo "maintenance on Monday"')
    node = one("gpu-1")
    assert node.state == "answered" and "banner of 2 lines" in node.note


def test_half_an_answer_is_none(cluster: Cluster):
    cluster.host("gpu-1", nodedoctor=f"head -c 3000 {cluster.report}")
    assert one("gpu-1").state == "unreadable"


@pytest.mark.slow
def test_every_node_is_told_apart(cluster: Cluster):
    cluster.host("gpu-1")
    cluster.host("gpu-2", before="exit 255")
    cluster.host("gpu-3", nodedoctor="sleep 60")
    cluster.host("gpu-4", nodedoctor="echo hello")
    cluster.host("gpu-5", nodedoctor=None)
    nodes = ask("gpu-[1-5]", deadline=2.0)
    assert [nodes[f"gpu-{i}"].state for i in range(1, 6)] == [
        *("answered", "unreachable", "silent", "unreadable", "unable")
    ]


def test_no_more_than_width_are_asked_at_once(cluster: Cluster):
    count = f"echo + >>{cluster.folder}/log; sleep 0.1; cat {cluster.report}; echo - >>{cluster.folder}/log"
    for index in range(12):
        cluster.host(f"gpu-{index}", nodedoctor=count)
    assert len(ask("gpu-[0-11]", width=3)) == 12
    at_once = most = 0
    for line in (cluster.folder / "log").read_text().split():
        at_once += 1 if line == "+" else -1
        most = max(most, at_once)
    assert 1 < most <= 3


@pytest.mark.slow
@pytest.mark.parametrize("hard", [120, 4096])
def test_a_shell_that_allows_few_open_files_costs_no_node(cluster: Cluster, hard: int):
    for index in range(40):
        cluster.host(f"gpu-{index}")
    code = (
        f"import asyncio, resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, {hard}))\n"
        "from nodedoctor.fleet.model import FleetRequest; from nodedoctor.fleet.transports.ssh import Ssh\n"
        "request = FleetRequest(width=4000)\n"
        "async def states(): return [node.state async for node in Ssh('gpu-[0-39]').ask(request)]\n"
        "print(*asyncio.run(states()))"
    )
    told = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["answered"] * 40


def test_who_stops_listening_leaves_nothing_running(cluster: Cluster):
    """Also where sshd leaves a command running whose connection is cut: the end of stdin ends it."""
    cluster.host("gpu-1", nodedoctor='echo $$ >"$HOME/pid.new"; mv "$HOME/pid.new" "$HOME/pid"; sleep 1000')
    cluster.host("gpu-2")
    pid = cluster.folder / "gpu-1/pid"

    async def leave() -> None:
        nodes = Ssh("gpu-[1-2]").ask(FleetRequest())
        assert (await anext(nodes)).host == "gpu-2"
        while not pid.exists():
            await asyncio.sleep(0.01)
        await nodes.aclose()

    asyncio.run(leave())
    assert gone(int(pid.read_text()))


def test_a_killed_run_leaves_nothing_running(cluster: Cluster):
    cluster.host("gpu-1", nodedoctor='echo $$ >"$HOME/pid.new"; mv "$HOME/pid.new" "$HOME/pid"; sleep 1000')
    pid = cluster.folder / "gpu-1/pid"
    script = node_side.line(node_side.script(FleetRequest(), stays_open=True))
    ssh = subprocess.Popen(["ssh", "--", "gpu-1", script], stdin=subprocess.PIPE, start_new_session=True)
    assert ssh.stdin is not None
    ssh.stdin.write(node_side.stdin(stays_open=True))
    ssh.stdin.flush()
    while not pid.exists():
        time.sleep(0.01)
    os.killpg(ssh.pid, signal.SIGKILL)
    ssh.communicate()
    assert gone(int(pid.read_text()))


# Bringing the single file along


def test_a_node_without_nodedoctor_gets_the_file_once(cluster: Cluster):
    home = cluster.host("gpu-1", nodedoctor=None)
    first = one("gpu-1", pyz=str(cluster.packed), arguments=("--json", "nvlink"))
    assert first.state == "answered" and cluster.asked == ["gpu-1"] * 2
    box = home / f"tmp/nodedoctor-{os.getuid()}"
    (kept,) = box.iterdir()
    assert kept.read_bytes() == cluster.packed.read_bytes()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (box, kept)] == [0o700, 0o600]
    assert list((home / "tmp").iterdir()) == [box]
    assert one("gpu-1", pyz=str(cluster.packed)).state == "answered"
    assert cluster.asked == ["gpu-1"] * 3, "the second time it had the file"


def test_another_version_of_the_file_is_sent(cluster: Cluster):
    home = cluster.host("gpu-1", nodedoctor=None)
    one("gpu-1", pyz=str(cluster.packed))
    cluster.packed.write_text("print('another')")
    assert one("gpu-1", pyz=str(cluster.packed)).state == "unreadable"
    assert cluster.asked == ["gpu-1"] * 4
    assert len(list((home / f"tmp/nodedoctor-{os.getuid()}").iterdir())) == 2


def test_an_installed_nodedoctor_comes_first(cluster: Cluster):
    home = cluster.host("gpu-1")
    assert one("gpu-1", pyz=str(cluster.packed)).state == "answered"
    assert cluster.asked == ["gpu-1"] and not list((home / "tmp").iterdir())


def test_without_the_file_the_node_says_where_it_looked(cluster: Cluster):
    cluster.host("gpu-1", nodedoctor=None)
    node = one("gpu-1")
    assert node.state == "unable" and node.note.startswith(f"{node_side.NO_NODEDOCTOR}: not on PATH")


def test_a_node_without_python_is_not_sent_anything(cluster: Cluster):
    cluster.host("gpu-1", nodedoctor=None, python=None)
    node = one("gpu-1", pyz=str(cluster.packed))
    assert (
        node.state == "unable"
        and node.note.startswith(node_side.NO_PYTHON)
        and "no python3 on PATH" in node.note
    )
    assert cluster.asked == ["gpu-1"]


def test_an_old_python_is_named(cluster: Cluster):
    home = cluster.host("gpu-1", nodedoctor=None, python="echo 3.6.8")
    assert "python3 is 3.6.8" in one("gpu-1", pyz=str(cluster.packed)).note
    cluster.put(home / "bin/python3.12", f'exec {PYTHON} -I "$@"')
    assert one("gpu-1", pyz=str(cluster.packed)).state == "answered", "a newer one has another name"


def test_a_connection_cut_while_the_file_is_sent_leaves_no_half_of_it(cluster: Cluster):
    home = cluster.host("gpu-1", nodedoctor=None)
    brought = node_side.parcel(FleetRequest(pyz=str(cluster.packed)))
    script = node_side.line(node_side.script(FleetRequest(), brought, arrives=True, stays_open=True))
    half = node_side.stdin(brought, arrives=True, stays_open=True)[:100_000]
    ended = subprocess.run(["ssh", "--", "gpu-1", script], input=half, capture_output=True)
    assert (ended.returncode, ended.stderr.decode().strip()) == (127, node_side.NOT_WHOLE)
    assert not list((home / f"tmp/nodedoctor-{os.getuid()}").iterdir())


def test_a_folder_that_somebody_else_could_have_made_is_not_trusted(cluster: Cluster, tmp_path: Path):
    home = cluster.host("gpu-1", nodedoctor=None)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (home / f"tmp/nodedoctor-{os.getuid()}").symlink_to(theirs)
    brought = node_side.parcel(FleetRequest(pyz=str(cluster.packed)))
    assert brought
    (theirs / brought.name).write_text("print('evil')")
    try:
        assert one("gpu-1", pyz=str(cluster.packed)).state == "answered"
    finally:
        kept = Path("/dev/shm") / f"nodedoctor-{os.getuid()}" / brought.name
        kept.unlink()
        with contextlib.suppress(OSError):
            kept.parent.rmdir()
    assert (theirs / brought.name).read_text() == "print('evil')"


# What cannot be asked at all


def test_a_file_that_is_not_there_is_said_at_once(cluster: Cluster):
    with pytest.raises(FleetError, match="no-such: No such file"):
        ask("gpu-1", pyz=str(cluster.folder / "no-such"))


@pytest.mark.parametrize("nodes", ["", " ", "gpu-[1", ","])
def test_a_set_without_nodes_is_an_error(nodes: str):
    with pytest.raises(FleetError):
        asyncio.run(Ssh(nodes).hosts())


def test_without_ssh_there_is_no_fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FleetError, match="no ssh on this machine"):
        asyncio.run(Ssh("gpu-1").hosts())


def test_hosts_are_those_of_the_set(cluster: Cluster):
    assert asyncio.run(Ssh("gpu-[08-11],me@login").hosts()) == (
        "gpu-08",
        "gpu-09",
        "gpu-10",
        "gpu-11",
        "me@login",
    )


# Login shells

SHELLS = [
    words
    for words in ("sh", "dash", "bash", "busybox sh", "zsh", "fish", "csh", "tcsh")
    if shutil.which(words.split()[0])
]
TYPED = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("shell", SHELLS)
@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(TYPED, max_size=4))
def test_every_login_shell_takes_the_line(shell: str, words: list[str], tmp_path: Path):
    bin = tmp_path / "bin"
    bin.mkdir(exist_ok=True)
    tell = "import sys, os; sys.stdout.write(os.fsencode(chr(0).join(sys.argv[1:])).hex())"
    (bin / "nodedoctor").write_text(f'#!/bin/sh\nexec {PYTHON} -Ic "{tell}" "$@"\n')
    (bin / "nodedoctor").chmod(0o755)
    request = FleetRequest(arguments=("--deadline=9", *words))
    run: Callable[..., subprocess.CompletedProcess[bytes]] = subprocess.run
    ended = run(
        [*shell.split(), "-c", node_side.line(node_side.script(request))],
        env={"PATH": f"{bin}:/usr/bin:/bin", "HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    assert ended.stderr == b""
    assert bytes.fromhex(ended.stdout.decode()).decode().split("\0") == ["--deadline=9", *words]


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])
def test_the_script_is_for_the_poorest_shell(shell: str, cluster: Cluster):
    """Also busybox with its own head, which reads more than it is told to, and its own timeout."""
    program = shutil.which(shell) or pytest.skip(f"{shell} is not installed")
    home = cluster.host("gpu-1", nodedoctor=None)
    if shell == "busybox":
        for tool in (cluster.folder / "tools").iterdir():
            tool.unlink()
            tool.symlink_to(program)
    request = FleetRequest(pyz=str(cluster.packed))
    brought = node_side.parcel(request)
    script = node_side.script(request, brought, arrives=True, stays_open=True)
    process = subprocess.Popen(
        [program, *(["sh"] if shell == "busybox" else []), "-c", script],
        env={"PATH": f"{home}/bin:{cluster.folder}/tools", "HOME": str(home), "TMPDIR": f"{home}/tmp"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin and process.stdout
    process.stdin.write(node_side.stdin(brought, arrives=True, stays_open=True))
    process.stdin.flush()
    told = json.loads(process.stdout.read())
    process.stdin.close()
    assert process.wait() == 0
    assert told["facts"]["argv"] == ["--json", "--deadline", "45"]


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])
@pytest.mark.parametrize("timeout", [True, False])
def test_the_end_of_stdin_ends_nodedoctor(shell: str, timeout: bool, cluster: Cluster):
    program = shutil.which(shell) or pytest.skip(f"{shell} is not installed")
    home = cluster.host("gpu-1", nodedoctor="echo $$; exec sleep 1000")
    if not timeout:
        (cluster.folder / "tools/timeout").unlink()
    process = subprocess.Popen(
        [
            program,
            *(["sh"] if shell == "busybox" else []),
            "-c",
            node_side.script(FleetRequest(), stays_open=True),
        ],
        env={"PATH": f"{home}/bin:{cluster.folder}/tools", "HOME": str(home)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin and process.stdout
    process.stdin.write(node_side.stdin(stays_open=True))
    process.stdin.flush()
    pid = int(process.stdout.readline())
    assert process.poll() is None
    process.stdin.close()
    assert gone(pid)
    assert process.wait(10) != 0
