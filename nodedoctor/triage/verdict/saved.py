"""A verdict that `triage --json` wrote: shown again, and not read as a log."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from nodedoctor import input_files
from nodedoctor.errors import NodeDoctorError
from nodedoctor.json_shapes import Json
from nodedoctor.triage.read.our_documents import document_kind

LARGEST = 16 << 20
"""Bytes of such a document; that of 4096 ranks has 2 MB. Ours."""


class UnreadableVerdict(NodeDoctorError):
    """A saved verdict that cannot be shown, in one line."""


def verdict_of(paths: Sequence[str]) -> Json | None:
    """The saved verdict at these paths, or None; UnreadableVerdict where it is damaged."""
    if len(paths) != 1:
        return None
    (path,) = paths
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
            return None
        with open(path, "rb") as file:
            head = file.read(256)
        if document_kind(head) != "triage":
            return None
        data = input_files.read(path, largest=LARGEST)
    except OSError:
        return None  # the reader of logs says what is wrong with the path
    return _saved_verdict(path, data)


def _saved_verdict(path: str, data: bytes) -> Json:
    from nodedoctor.json_shapes import loaded
    from nodedoctor.triage.verdict.document import SCHEMA

    try:
        document = loaded(data)
    except ValueError:
        raise UnreadableVerdict(
            f"{path}: a saved verdict that was cut off or damaged; run triage on the logs again"
        ) from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise UnreadableVerdict(f"{path}: a saved verdict of another version than {SCHEMA}")
    return document
