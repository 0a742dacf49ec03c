"""File systems: mounts as text, space as answered, and what follows for a job."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from asking import ask, brief, document, judge, said
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.declare.registry import Options
from nodedoctor.facts.host.container import Container, container_files
from nodedoctor.facts.host.disk import Disk, disk_space, worth_asking
from nodedoctor.facts.host.env import Env, environment
from nodedoctor.facts.host.mounts import Mount, mount_of, parse_mountinfo
from nodedoctor.facts.host.processes import Process, Processes
from nodedoctor.model import Observation, Outcome, Unseen

GIB = 1024**3
ROOT = "24 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro"
HOME = "30 24 0:40 / /home rw,relatime - nfs4 filer:/home rw,vers=4.2,addr=10.0.0.9"
DATA = "31 24 0:41 / /mnt/my\\040data rw,relatime - lustre mds@tcp:/fs rw,flock"
NVME = "32 24 259:1 / /local rw,relatime - xfs /dev/nvme0n1 rw"
RAY = Processes((Process(9, role="raylet", program="raylet"),))


def disk(
    mounts: list[str],
    spaces: dict[str, tuple[float, float]],
    errors: dict[str, str] | None = None,
    env: dict[str, str] | None = None,
    inodes: tuple[int, int] = (1000, 900),
    read_only: bool = False,
) -> Disk:
    """What the child says: by path its file system's size and free space in GiB."""
    told = {
        path: {
            "size_bytes": int(size * GIB),
            "free_bytes": int(free * GIB),
            "used_bytes": int((size - free) * GIB),
            "inodes": inodes[0],
            "inodes_free": inodes[1],
            "read_only": read_only,
            "seconds": 0.0,
        }
        for path, (size, free) in spaces.items()
    }
    files = {"/proc/self/mountinfo": "\n".join(mounts)}
    found = Disk.parse(document(files=files, statvfs=told, errors=errors or {}), Env(env or {}))
    assert isinstance(found, Disk)
    return found


def test_paths_are_joined_with_their_mounts():
    found = disk(
        [ROOT, HOME, NVME],
        {"/": (400, 100), "/tmp": (400, 100), "/home/me": (9000, 4000), "/local/hf": (3000, 2000)},
        errors={"/tmp/ray": "ENOENT"},
        env={"HOME": "/home/me", "HF_HOME": "/local/hf", "TMPDIR": "relative"},
    )
    assert [(volume.point, volume.uses) for volume in found.volumes] == [
        ("/", ("/", "/tmp")),
        ("/home", ("HOME",)),
        ("/local", ("HF_HOME",)),
    ]
    home = found.behind("HOME")
    assert home is not None
    assert (home.network, home.fstype, home.free_gib, home.used) == (True, "nfs4", 4000, 0.5556)
    assert found.behind("TMPDIR") is None


def test_a_look_through_a_read_only_mount_of_ours_does_not_make_the_node_read_only():
    """As below --root /host in a container; without a table of mounts, what the look says is all there is."""
    (volume,) = disk([ROOT], {"/": (400, 100)}, read_only=True).volumes
    assert not volume.read_only
    (bare,) = disk([], {"/": (400, 100)}, read_only=True).volumes
    assert bare.read_only


READ_ONLY_TMP = "33 24 0:42 / /tmp ro,relatime - tmpfs tmpfs rw"
READ_ONLY_HOME = "34 24 0:43 / /home ro,relatime - nfs4 filer:/home rw"
SHM = "25 24 0:23 / /dev/shm rw - tmpfs tmpfs rw"
AT_HOME = {"HOME": "/home"}
STOPPED = ROOT.replace(" rw,errors", " ro,errors")
IMAGE = "24 1 7:0 / / ro,relatime - squashfs /dev/loop0 ro"
CASES = [
    ("room", disk([ROOT], {"/": (400, 100)}), [("pass", "mount:/")]),
    ("full", disk([ROOT], {"/": (400, 0.5)}), [("fail", "mount:/")]),
    ("nearly full", disk([ROOT], {"/": (400, 10)}), [("warn", "mount:/")]),
    ("large and 97 % full", disk([ROOT], {"/": (20000, 600)}), [("pass", "mount:/")]),
    ("no inodes", disk([ROOT], {"/": (400, 100)}, inodes=(1000, 0)), [("fail", "mount:/")]),
    ("few inodes", disk([ROOT], {"/": (400, 100)}, inodes=(100000, 20)), [("warn", "mount:/")]),
    ("btrfs counts none", disk([ROOT], {"/": (400, 100)}, inodes=(0, 0)), [("pass", "mount:/")]),
    ("dead home", disk([ROOT, HOME], {}, {"/home": "TIMEOUT"}, AT_HOME), [("fail", "mount:/home")]),
    ("stale home", disk([ROOT, HOME], {}, {"/home": "ESTALE"}, AT_HOME), [("fail", "mount:/home")]),
    ("dead data", disk([DATA], {}, {"/mnt/my data": "TIMEOUT"}), [("warn", "mount:/mnt/my data")]),
    (
        "denied home",
        disk([HOME], {}, {"/home/me": "EACCES"}, {"HOME": "/home/me"}),
        [("unknown", "mount:/home")],
    ),
    ("denied data", disk([ROOT, DATA], {"/": (9, 8)}, {"/mnt/my data": "EACCES"}), [("pass", "mount:/")]),
    ("kernel stopped writing", disk([STOPPED], {"/": (400, 100)}), [("fail", "mount:/")]),
    ("read-only /tmp", disk([ROOT, READ_ONLY_TMP], {"/tmp": (4, 2)}), [("fail", "mount:/tmp")]),
    ("read-only home", disk([READ_ONLY_HOME], {"/home": (4, 2)}, env=AT_HOME), [("warn", "mount:/home")]),
    ("image", disk([IMAGE], {"/": (4, 0)}), [("note", "mount:/")]),
    ("full disk of nobody", disk([NVME], {"/local": (100, 1)}), [("note", "mount:/local")]),
    ("nothing seen", disk([ROOT], {}, {"/": "ENOENT"}), [("unknown", "")]),
    (
        "shared memory is another check's",
        disk([ROOT, SHM], {"/dev/shm": (1, 0), "/": (9, 8)}),
        [("pass", "mount:/")],
    ),
]


@pytest.mark.parametrize(("seen", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_file_systems(seen: Disk, expected: list[tuple[str, str]]):
    found = judge("limits.disk", seen)
    assert brief(found) == expected
    assert all(finding.fix is not None for finding in found if finding.status.value in ("fail", "warn"))


@pytest.mark.parametrize(("free", "status"), [(30, "warn"), (15, "fail"), (200, "pass")])
def test_rays_own_thresholds_count_where_ray_spills(free: float, status: str):
    seen = disk([ROOT], {"/tmp/ray": (400, free)})
    assert brief(judge("limits.disk", seen, RAY)) == [(status, "mount:/")]


def test_a_hostile_mount_point_cannot_leave_its_quotes():
    mount = NVME.replace("/local", "/x;reboot\\040'$(id)")
    seen = disk([mount], {"/x;reboot '$(id)/hf": (100, 0)}, env={"HF_HOME": "/x;reboot '$(id)/hf"})
    fix = judge("limits.disk", seen)[0].fix
    assert fix is not None
    assert "'/x;reboot '\"'\"'$(id)'" in fix.commands[0]


def test_mountinfo():
    mounts = parse_mountinfo("\n".join([ROOT, DATA, "garbage", "1 2 3 - 4", "5 6 7 8 relative rw - a b c"]))
    assert [mount.point for mount in mounts] == ["/", "/mnt/my data"]
    assert (mounts[0].read_only, mounts[0].stopped_writing, mounts[0].network) == (False, False, False)
    assert mounts[1].network
    assert mount_of("/mnt/my data/x", mounts) == mounts[1]
    assert mount_of("/mnt/my database", mounts) == mounts[0]
    assert mount_of("/x", ()) is None


def test_the_later_mount_covers_the_earlier():
    mounts = (Mount("/a", "/", "ext4", "x"), Mount("/a", "/", "xfs", "y"))
    assert mount_of("/a/b", mounts) == mounts[1]


@pytest.mark.parametrize(
    ("fstype", "network"),
    [*((t, True) for t in ("nfs4", "lustre", "ceph", "fuse.sshfs", "fuse.gcsfuse", "9p", "gpfs", "wekafs")),
     *((t, False) for t in ("ext4", "tmpfs", "overlay", "fuse.squashfuse", "fuse.lxcfs", "proc", "nfsd"))],
)  # fmt: skip
def test_which_file_systems_need_a_network(fstype: str, network: bool):
    assert Mount("/x", "/", fstype, "s").network is network


def test_mounts_worth_asking_are_few():
    """Nodes have thousands of mounts of containers; of each file system one is asked, network ones first."""
    layers = [f"{n} 24 0:{n} / /var/lib/docker/{n}/merged rw - overlay overlay rw" for n in range(100, 200)]
    binds = [f"{n} 24 8:1 /x /etc/f{n} rw - ext4 /dev/sda1 rw" for n in range(200, 300)]
    exports = [f"{n} 24 0:{n} / /nfs/{n} rw - nfs4 filer:/{n} rw" for n in range(300, 400)]
    asked = worth_asking(parse_mountinfo("\n".join([ROOT, *layers, *binds, HOME, NVME])))
    assert [mount.point for mount in asked] == ["/home", "/", "/local"]
    assert len(worth_asking(parse_mountinfo("\n".join(exports)))) == 24


def test_this_machine_really():
    env, container = ask(environment, name="env"), ask(container_files, name="container")
    found = Disk.parse(ask(disk_space, env, container, name="disk"), Env.parse(env))
    assert isinstance(found, Disk)
    root = found.behind("/")
    assert root is not None
    assert root.answered or root.error
    assert judge("limits.disk", found, Container())


def test_the_plan_asks_for_the_folders_of_the_environment():
    env = said(
        json.dumps({"variables": {"HOME": "/home/me", "HF_HOME": "/a*b", "TMPDIR": "no", "PWD": "/w/"}})
    )
    mounts = document(files={"/proc/self/mountinfo": "\n".join([ROOT, DATA])})
    words = disk_space(Options(), env, mounts).argv
    assert {"statvfs:/home/me", "statvfs:/w", "statvfs:/mnt/my data", "statvfs:/tmp"} <= set(words)
    assert not any("a*b" in word for word in words)  # a glob sign would ask for something else


PATHS = st.sampled_from(["/", "/tmp", "/home/me", "/dev/shm", "relative", ""])
KEYS = st.sampled_from(["size_bytes", "free_bytes", "used_bytes", "inodes", "inodes_free"])
SPACES = st.dictionaries(KEYS, st.integers() | st.text(max_size=3) | st.floats() | st.booleans())
ERRORS = st.sampled_from(["TIMEOUT", "EIO", "EACCES"])


@given(st.text(), st.dictionaries(PATHS, SPACES), st.dictionaries(PATHS, ERRORS))
def test_anything_is_judged_without_raising(mounts: str, spaces: dict[str, object], errors: dict[str, str]):
    files = {"/proc/self/mountinfo": f"{ROOT}\n{mounts}"}
    found = Disk.parse(document(files=files, statvfs=spaces, errors=errors), Env({"HOME": "/home/me"}))
    if isinstance(found, Disk):
        json.dumps(asdict(found), allow_nan=False)
        assert judge("limits.disk", found, RAY)


@pytest.mark.parametrize("seen", [said("no"), document(files={}), Observation("disk", Outcome.STUCK)])
def test_no_answer_is_unseen(seen: Observation):
    assert isinstance(Disk.parse(seen, Env({})), Unseen)


def test_a_tree_without_mountinfo_still_answers(tmp_path: Path):
    (tmp_path / "tmp").mkdir()
    seen = ask(disk_space, said("{}"), said("{}"), root=tmp_path, name="disk")
    found = Disk.parse(seen, Env({}))
    assert isinstance(found, Disk)
    assert {volume.point for volume in found.volumes} == {"/", "/tmp"}
