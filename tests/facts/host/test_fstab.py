"""What /etc/fstab asks for at boot: data that must be there, and nothing that a healthy machine may lack."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.facts.host.mounts import Fstab
from nodedoctor.model import Observation, Unseen

ROOT = "30 1 259:1 / / rw shared:1 - ext4 /dev/nvme0n1p2 rw"


def fstab(text: str, *points: str) -> Fstab | Unseen:
    mounts = [ROOT, *(f"31 30 0:40 / {point} rw shared:2 - nfs4 server:/x rw" for point in points)]
    files = {"/proc/self/mountinfo": "\n".join(mounts), "/etc/fstab": text}
    return Fstab.parse(Observation("disk", text=json.dumps({"files": files})))


@pytest.mark.parametrize(
    "line",
    [
        "/swap.img none swap sw 0 0",
        "UUID=A /boot/efi vfat umask=0077 0 1",
        "UUID=A /boot ext4 defaults 0 2",
        "/dev/disk/cloud/azure_resource-part1 /mnt auto defaults,nofail,comment=cloudconfig 0 2",
        "server:/old /old nfs noauto 0 0",
        "server:/tools /tools nfs x-systemd.automount 0 0",
        "tmpfs /run/x tmpfs size=1g 0 0",
        "/dev/sr0 /media/cdrom iso9660 ro,user 0 0",
        "# server:/gone /gone nfs4 defaults 0 0",
        "half a line",
    ],
)
def test_what_need_not_be_mounted_is_not_missed(line: str):
    told = fstab(line)
    assert isinstance(told, Fstab) and told.missing == ()


def test_data_that_is_not_mounted_is_missed_also_with_nofail():
    line = "server:/data /data nfs4 rw,nofail,_netdev 0 0"
    there, gone = fstab(line, "/data"), fstab(line)
    assert isinstance(there, Fstab) and there.missing == () and len(there.entries or ()) == 1
    assert isinstance(gone, Fstab) and [entry.point for entry in gone.missing] == ["/data"]


def test_without_the_mounts_nothing_is_missed():
    alone = Observation("disk", text=json.dumps({"files": {"/etc/fstab": "server:/d /d nfs4 rw 0 0"}}))
    assert isinstance(Fstab.parse(alone), Unseen)


@given(st.text(max_size=200))
def test_no_text_makes_it_raise(text: str):
    assert isinstance(fstab(text), Fstab)
