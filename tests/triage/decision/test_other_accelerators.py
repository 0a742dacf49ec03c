"""Errors of accelerators that are none of NVIDIA's: said to be that, and nothing is decided from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodedoctor.triage.job import examine_job
from nodedoctor.triage.verdict.document import make_document


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("RuntimeError: [ERROR] HCCL error in: torch_npu/ProcessGroupHCCL.cpp:82", "other_accelerator"),
        ("jaxlib.XlaRuntimeError: UNAVAILABLE: TensorCoreSequencer:1:0xf halted", "other_accelerator"),
        ("RuntimeError: ProcessGroupHCCL.cpp:82 function error, error code is 6", "other_accelerator"),
        ("Watchdog of another kind: the log ends in words that nobody knows", "other"),
    ],
)
def test_the_kind_names_another_accelerator(line: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(f"step 100 loss 2.3\n{line}\n")
    examined = examine_job([str(tmp_path / "train.log")])
    document = make_document(examined.verdict, examined.lines.line_of)
    assert (document["kind"], document["decision"]) == (f"undetermined/{kind}", "look")


@pytest.mark.parametrize(
    ("line", "lost"),
    [
        ("ray.exceptions.NodeDiedError: Node is dead because the health check failed.", True),
        ("[gcs] raylet 10.0.0.7 died: health check failed due to missing too many heartbeats", True),
        ("E1120 10:05:00.000 engine: worker 3 health check failed: UNAVAILABLE", False),
        ("WARNING server: /health returned 503, health check failed", False),
    ],
)
def test_only_a_node_whose_health_check_failed_is_lost(line: str, lost: bool, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(f"step 100 loss 2.3\n{line}\n")
    verdict = examine_job([str(tmp_path / "train.log")]).verdict
    assert ("node was lost" in verdict.headline) is lost
