"""A redacted verdict names nobody, and is the same verdict."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from nodedoctor.redact.documents import redacted_triage
from nodedoctor.report import html, job_text
from nodedoctor.triage.cli import main
from nodedoctor.triage.job import examine_job
from nodedoctor.triage.verdict import document

REPORT = Path(document.__file__).parents[2] / "report"
SCHEMA = json.loads((REPORT / "schemas" / "triage.schema.json").read_text())
NAMES = ("gpu-a3", "mlab", "carol", "10.20.30", "481516", "acme")
LOG = """\
[2026-11-21 06:11:00] gpu-a3-017:28710:28710 [0] NCCL INFO rank 0 nranks 2 cudaDev 0 - Init COMPLETE
[2026-11-21 06:11:00] gpu-a3-018:28711:28711 [0] NCCL INFO rank 1 nranks 2 cudaDev 0 - Init COMPLETE
step 1 loss: 2.0
gpu-a3-018:28711:28720 [0] transport/net_ib.cc:1296 NCCL WARN NET/IB : Got completion from peer \
10.20.30.5<33092> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=0 len=0 vendor_err=129 hca mlx5_0
[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/carol/run/train.py", line 3, in <module>
[rank1]: FileNotFoundError: [Errno 2] No such file: '/home/carol/data/shard.bin' on fs07.mlab.acme.com
slurmstepd: error: *** STEP 481516.0 ON gpu-a3-017 CANCELLED AT 2026-11-21T06:12:00 DUE TO TASK FAILURE ***
"""


def folder(tmp_path: Path) -> Path:
    place = tmp_path / "home" / "carol"
    place.mkdir(parents=True)
    (place / "slurm-481516.out").write_text(LOG)
    (place / "slurm-481517.out").write_text(LOG.replace("481516", "481517").replace("06:1", "09:1"))
    return place


@pytest.mark.parametrize("form", ["--json", "--text"])
def test_nobody_is_named(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = folder(tmp_path)
    page_file = tmp_path / "page.html"
    code = main([str(place), form, "--no-node", "--redact", "--job", "481516", "--html", str(page_file)])
    shown = capsys.readouterr().out + page_file.read_text()
    assert code == 2
    assert [name for name in NAMES if name in shown.replace(str(tmp_path / "page.html"), "")] == []
    assert "/home/user-1/" in shown


def test_the_verdict_is_the_same(tmp_path: Path) -> None:
    examined = examine_job([str(folder(tmp_path))])
    plain = document.make_document(examined.verdict, examined.lines.line_of)
    redacted = redacted_triage(plain)
    jsonschema.validate(redacted, SCHEMA)
    for key in ("outcome", "cause", "confidence", "owner", "incidents"):
        assert redacted[key] == plain[key]
    assert [who["rank"] for who in redacted["culprits"]] == [who["rank"] for who in plain["culprits"]]
    assert len({who["host"] for who in redacted["ranks"]}) == len({who["host"] for who in plain["ranks"]})
    assert [one["id"] == two["id"] for one, two in zip(redacted["jobs"], plain["jobs"], strict=True)] == [
        False
    ] * 2
    assert job_text.render(redacted) and html.render(redacted)


def test_a_host_with_an_ordinary_name_changes_no_word_of_ours() -> None:
    who = {"world": "default", "rank": 1, "group_rank": None, "host": "failure", "gpu": None, "pid": None}
    made = redacted_triage(
        {"outcome": "failure", "cause": "peer_died", "culprits": [who], "headline": "a failure"}
    )
    assert (made["outcome"], made["cause"]) == ("failure", "peer_died")
    assert made["culprits"][0]["host"] != "failure"
