"""`nodedoctor read`: what scripts and people get, each in a process of its own."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import os
import subprocess
import tarfile
import zipfile
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
import smi_texts
from forked import nodedoctor_forked
from pastes import DMESG, NVLINK, PASTES, SGLANG, VLLM
from schemas import assert_fits_schema

REPOSITORY = Path(__file__).parents[2]
JOB = Path(REPOSITORY / "docs/examples/dead-job.log").read_text(encoding="utf-8")
RULE = "_" * 44


def nodedoctor(*words: object, text: str = "") -> subprocess.CompletedProcess[str]:
    return nodedoctor_forked(*map(str, words), cwd="/", input=text)


def read(*words: object, text: str = "") -> tuple[int, dict[str, Any]]:
    done = nodedoctor("read", "--json", *words, text=text)
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert_fits_schema(told, "read")
    return done.returncode, told


def probes(told: dict[str, Any]) -> list[str | None]:
    return [one["probe"] for one in told["recognised"]]


def bug_report(*sections: tuple[str, str]) -> str:
    head = (
        "Start of NVIDIA bug report log file.  Please include this file, along\nwith a detailed\n\n"
        "nvidia-bug-report.sh Version: 35127890\n\nDate: Mon Jan  5 10:00:00 UTC 2026\n"
        "uname: Linux gpu-07 5.15.0-1067-nvidia #68-Ubuntu SMP x86_64 GNU/Linux\n\n"
    )
    told = "".join(f"{RULE}\n\n{command}\n\n{text}\n\n" for command, text in sections)
    return f"{head}{told}{RULE}\n\nEnd of NVIDIA bug report log file.\n"


HEALTHY = sorted(set(PASTES) - {"kernel-log", "slurm-node", "services", "rdma-link", "env"})


@pytest.mark.sampled(6)
@pytest.mark.parametrize("probe", HEALTHY)
def test_a_paste_of_a_healthy_node_gets_a_headline_and_no_alarm(probe: str):
    code, told = read("-", text=PASTES[probe])
    states_nothing = told["headline"].startswith("nothing in ")
    assert (code, probes(told), told["unrecognised"]) == (3 if states_nothing else 0, [probe], [])
    assert [cause["headline"] for cause in told["report"]["causes"]] == []
    assert told["headline"].startswith(("no problem found: ", "nothing in ", "mlx5_0 port 1: 392 Gb/s"))


def test_every_paste_at_once_is_one_node(tmp_path: Path):
    (tmp_path / "all.txt").write_text("".join(f"$ cat {name}\n{text}" for name, text in PASTES.items()))
    _, told = read(tmp_path / "all.txt")
    assert set(probes(told)) == set(PASTES)
    assert told["fleet"] is None
    assert {probe["name"] for probe in told["report"]["probes"]} == set(PASTES)


def test_what_is_wrong_leads_and_the_page_says_first_what_was_recognised():
    done = nodedoctor("read", "-", text=DMESG)
    assert done.returncode == 2
    lines = done.stdout.splitlines()
    assert "Xid 79" in lines[0]
    assert lines[2:4] == ["recognised:", "  the kernel's log (3 lines): standard input, line 1"]


def test_one_paste_says_what_it_shows_and_what_would_decide_the_rest():
    _, told = read("-", text=NVLINK)
    assert any("18 of 18 NVLinks up" in one for one in told["shows"])
    assert "nothing else was in this paste" in told["headline"]
    assert "nvidia-smi -q" in told["next"]
    assert "nvidia-smi nvlink -s" not in told["next"]


@pytest.mark.parametrize("command", ["mystery --all", "uptime"])
def test_what_was_pasted_and_not_read_is_in_the_headline(command: str):
    _, told = read("-", text=f"{NVLINK}root@gpu-7:~# {command}\nthe third thing is 7\nand 8\n")
    assert "no problem found" in told["headline"] and "nothing else was" not in told["headline"]
    expected = "2 lines were not recognised and not judged (the first is 'the third thing is 7')"
    assert told["headline"].endswith(expected)


def test_lines_of_links_without_their_gpu_only_say_what_they_are():
    code, told = read("-", text="\t Link 2: <inactive>\n\t Link 3: 26.562 GB/s\n")
    assert (code, probes(told), told["report"]) == (3, [None], None)
    assert told["recognised"][0]["what"].startswith("lines of nvidia-smi nvlink -s")
    code, told = read("-", text=f"{NVLINK}\n1\n2\n3\n4\n\t Link 2: <inactive>\n")
    assert set(probes(told)) == {"nvidia-smi-nvlink"}


@pytest.mark.parametrize(("text", "torch"), [(SGLANG, "2.5.1+cu124"), (VLLM, "2.7.0+cu126")])
def test_the_environment_as_servers_print_it_is_torchs(text: str, torch: str):
    code, told = read("-", text=text)
    assert (code, probes(told), told["unrecognised"]) == (0, ["collect-env"], [])
    assert any(f"torch {torch}" in one for one in told["shows"])
    assert told["report"]["causes"] == []
    broken = text.replace("triton: 3.1.0", "triton: 2.0.0").replace("triton==3.3.0", "triton==2.0.0")
    code, told = read("-", text=broken)
    assert "stack.triton" in {cause["id"].partition("@")[0] for cause in told["report"]["causes"]}


def test_a_job_and_a_node_are_judged_together(tmp_path: Path):
    (tmp_path / "job.log").write_text(JOB)
    (tmp_path / "smi.txt").write_text(PASTES["nvidia-smi"])
    code, told = read(tmp_path)
    assert code == 2
    assert told["triage"]["outcome"] == "failure"
    assert told["report"]["verdict"] != "fail"
    assert told["headline"].startswith(told["triage"]["headline"].rstrip("."))


def test_what_a_job_says_between_outputs_goes_to_triage_and_keeps_its_lines(tmp_path: Path):
    (tmp_path / "job.log").write_text(f"$ nvidia-smi\n{PASTES['nvidia-smi']}$ python train.py\n{JOB}")
    code, told = read(tmp_path / "job.log")
    before = len(PASTES["nvidia-smi"].splitlines()) + 2
    _, alone = read("-", text=JOB)
    assert (code, told["triage"]["cause"]) == (2, alone["triage"]["cause"])
    assert [one["line"] for one in told["triage"]["evidence"]] == [
        one["line"] + before for one in alone["triage"]["evidence"]
    ]
    assert {one["source"] for one in told["triage"]["evidence"]} == {str(tmp_path / "job.log")}


def test_nothing_that_is_known_is_3_and_a_wrong_path_64(tmp_path: Path):
    code, told = read("-", text="hello\nworld\n")
    assert (code, told["headline"], told["recognised"]) == (3, "nothing was recognised", [])
    assert [(one["line"], one["lines"], one["first"]) for one in told["unrecognised"]] == [(1, 2, "hello")]
    done = nodedoctor("read", tmp_path / "nowhere")
    assert (done.returncode, done.stderr) == (
        64,
        f"nodedoctor: {tmp_path}/nowhere: No such file or directory\n",
    )
    assert nodedoctor("read").returncode == 64


def test_a_mail_is_taken_apart_with_its_attachments(tmp_path: Path):
    mail = EmailMessage()
    mail["Subject"], mail["From"] = "node broken", "me@site.example"
    quoted = "".join(f"> {line}\n" for line in PASTES["ibstat"].splitlines())
    mail.set_content(f"Hello,\nthis is what it says:\n\n{quoted}\nGreetings\n")
    mail.add_attachment(gzip.compress(DMESG.encode()), "application", "gzip", filename="dmesg.gz")
    (tmp_path / "mail").write_bytes(mail.as_bytes())
    code, told = read(tmp_path / "mail")
    assert (code, probes(told)) == (2, ["ibstat", "kernel-log"])
    assert told["recognised"][1]["name"] == f"{tmp_path}/mail!dmesg.gz"
    assert [one["first"] for one in told["unrecognised"]] == ["Hello,", "Greetings"]


@pytest.mark.parametrize("pack", [str.encode, lambda text: gzip.compress(text.encode())])
def test_a_bug_report_is_read_section_by_section(tmp_path: Path, pack: Any):
    two = smi_texts.q([smi_texts.q_gpu("00000000:18:00.0", {"Product Name": smi_texts.H100})])
    text = bug_report(
        ("*** /etc/issue", "Ubuntu 22.04"),
        ("/usr/bin/nvidia-smi --query", two),
        (
            "/usr/bin/nvidia-smi --query --unit",
            "==============NVSMI LOG==============\n\nAttached Units : 0\n",
        ),
        ("/sbin/lspci -nn -vv", PASTES["lspci"]),
        ("dmesg", DMESG),
        ("ps aux", "USER PID\nroot 1 Traceback (most recent call last): RuntimeError: CUDA error\n"),
    )
    (tmp_path / "report").write_bytes(pack(text))
    code, told = read(tmp_path / "report")
    assert (code, told["triage"], told["report"]["node"]["hostname"]) == (2, None, "gpu-07")
    assert probes(told) == ["nvidia-smi-q", "nvidia-smi-q", "lspci", "kernel-log"]
    assert told["report"]["node"]["gpus"] == 1
    assert text.splitlines()[told["recognised"][3]["line"] - 1] == DMESG.splitlines()[0]


def test_the_bundles_of_several_nodes_become_a_fleet(tmp_path: Path):
    for name, log in (("gpu-01", DMESG), ("gpu-02", DMESG.rpartition("[  812")[0])):
        text = bug_report(("nvidia-smi -q", PASTES["nvidia-smi-q"]), ("dmesg", log)).replace("gpu-07", name)
        (tmp_path / name).write_text(text)
    code, told = read(tmp_path)
    assert (code, told["report"]) == (2, None)
    assert {node["host"] for node in told["fleet"]["nodes"]} == {"gpu-01", "gpu-02"}
    assert told["headline"] == "1 of 2 nodes failed: gpu-01"


@pytest.mark.parametrize("form", ["folder", "tar", "zip"])
def test_a_sosreport_is_one_node_and_its_other_files_are_nobodys_log(tmp_path: Path, form: str):
    files = {
        "sos_commands/kernel/dmesg": DMESG,
        "sos_commands/pci/lspci_-nnvv": PASTES["lspci"],
        "sos_commands/infiniband/ibstat": PASTES["ibstat"],
        "sos_commands/networking/ethtool_-S_ens1f0": PASTES["ethtool"],
        "var/log/app.log": JOB,
        "version.txt": "sosreport: 4.7.2\n",
    }
    top = tmp_path / "sosreport-gpu-07"
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    given = top
    if form == "tar":
        given = tmp_path / "sos.tar.xz"
        with tarfile.open(given, "w:xz") as archive:
            archive.add(top, "sosreport-gpu-07")
    if form == "zip":
        given = tmp_path / "sos.zip"
        with zipfile.ZipFile(given, "w") as packed:
            for name, text in files.items():
                packed.writestr(f"sosreport-gpu-07/{name}", text)
    code, told = read(given)
    assert (code, told["triage"], told["fleet"]) == (2, None, None)
    assert set(probes(told)) == {"kernel-log", "lspci", "ibstat", "ethtool"}


def test_what_was_understood_becomes_a_recording_that_is_judged_alike(tmp_path: Path):
    text = f"root@gpu-07:~# dmesg\n{DMESG}root@gpu-07:~# ibstat\n{PASTES['ibstat']}"
    done = nodedoctor("read", "--json", "--record", tmp_path / "node.zip", "-", text=text)
    told = json.loads(done.stdout)
    again = json.loads(nodedoctor("--replay", tmp_path / "node.zip", "--json").stdout)
    assert again["causes"] == told["report"]["causes"]
    assert again["node"]["hostname"] == "gpu-07"
    manifest = json.loads(zipfile.ZipFile(tmp_path / "node.zip").read("manifest.json"))
    assert manifest["provenance"] == "pasted"


def test_redacted_it_names_nobody(tmp_path: Path):
    text = f"root@gpu-a3-017:~# dmesg\n{DMESG}\nroot@gpu-a3-017:~# ibstat\n{PASTES['ibstat']}"
    done = nodedoctor("read", "--json", "--redact", "--record", tmp_path / "node.zip", "-", text=text)
    kept = zipfile.ZipFile(tmp_path / "node.zip").read("manifest.json").decode()
    assert "gpu-a3-017" not in done.stdout + kept
    assert "a088c20300000000" not in done.stdout + kept
    assert json.loads(done.stdout)["recognised"][0]["node"] == "node-1"


def test_recordings_and_reports_are_what_they_are(tmp_path: Path):
    demo = REPOSITORY / "nodedoctor/demo/nvlinks-down"
    report = nodedoctor("--replay", demo, "--json").stdout
    (tmp_path / "report.json").write_text(report)
    code, told = read(tmp_path / "report.json")
    assert code == 2
    assert told["report"]["causes"] == json.loads(report)["causes"]
    _, replayed = read(demo)
    assert replayed["report"]["causes"] == told["report"]["causes"]


@pytest.mark.parametrize("words", [("--replay",), ("triage",), ("compare", "/dev/null")])
def test_other_commands_name_the_command_that_reads_a_paste(tmp_path: Path, words: tuple[str, ...]):
    (tmp_path / "paste.txt").write_text(PASTES["nvidia-smi"])
    order = [*words, tmp_path / "paste.txt"]
    if words[0] == "compare":
        order = ["compare", tmp_path / "paste.txt", tmp_path / "paste.txt"]
    done = nodedoctor(*order)
    assert done.returncode == 64
    assert f"`nodedoctor read {tmp_path}/paste.txt` judges it" in done.stderr


def test_a_file_in_place_of_a_check_is_told_where_it_is_read(tmp_path: Path):
    (tmp_path / "paste.txt").write_text(PASTES["nvidia-smi"])
    done = nodedoctor("--text", tmp_path / "paste.txt")
    assert done.returncode == 64
    assert f"`nodedoctor read {tmp_path}/paste.txt`" in done.stderr


def test_triage_names_the_command_that_reads_a_bug_report(tmp_path: Path):
    (tmp_path / "report.gz").write_bytes(gzip.compress(bug_report(("dmesg", DMESG)).encode()))
    done = nodedoctor("triage", tmp_path / "report.gz")
    assert done.returncode == 64
    assert f"`nodedoctor read {tmp_path}/report.gz` judges it" in done.stderr


def test_hostile_files_are_left_out_and_cost_the_others_nothing(tmp_path: Path):
    (tmp_path / "good.txt").write_text(DMESG)
    (tmp_path / "binary").write_bytes(os.urandom(100_000))
    (tmp_path / "cut.gz").write_bytes(gzip.compress(DMESG.encode() * 100)[:90])
    (tmp_path / "bomb.bz2").write_bytes(bz2.compress(bytes(1 << 20)) * 300)
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")
    with tarfile.open(tmp_path / "out.tar", "w") as archive:
        entry = tarfile.TarInfo("../../outside.txt")
        entry.size = len(DMESG)
        archive.addfile(entry, io.BytesIO(DMESG.encode()))
        link = tarfile.TarInfo("passwd")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    code, told = read(tmp_path)
    assert code == 2
    assert {one["name"] for one in told["recognised"]} == {
        f"{tmp_path}/good.txt",
        f"{tmp_path}/out.tar!../../outside.txt",
    }
    assert not (tmp_path.parents[1] / "outside.txt").exists()
    assert all("passwd" not in one["name"] for one in told["unrecognised"])
