"""Mails with a log in them or attached, and texts encoded as in mails."""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator

from nodedoctor.triage.lines.decode import is_text
from nodedoctor.triage.lines.envelopes.records import EnvelopeRecord

_HEADER = re.compile(r"(?:From .*\n)?(?:[A-Za-z][\w-]{1,60}:.*\n(?:[ \t].*\n)*)+\n")
_MAIL_FIELD = re.compile(r"^(?:MIME-Version|Content-Transfer-Encoding): ", re.IGNORECASE | re.MULTILINE)
_SOFT_BREAK = re.compile(r"^.{66,75}=\r?$", re.MULTILINE)
"""A line of quoted-printable that goes on in the next one: 76 characters at most (RFC 2045, 6.7)."""
_BARE_EQUALS = re.compile(r"=(?![0-9A-F]{2}|\r?\n|$)")
"""What quoted-printable never has: it codes each `=` of the text."""
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{60,76}\r?\n)+[A-Za-z0-9+/]{0,76}={0,2}\s*$")
"""Lines as mails and base64(1) break them."""


def is_mail(head: str) -> bool:
    """Whether this is a mail with its headers."""
    header = _HEADER.match(head) if _MAIL_FIELD.search(head) else None
    return header is not None and _MAIL_FIELD.search(header[0]) is not None


def mail_lines(data: bytes) -> Iterator[EnvelopeRecord]:
    """The lines of a mail's texts, attached ones too."""
    import email  # which takes as long to load as a small log to be read

    for part in email.message_from_bytes(data).walk():
        text = part.get_payload(decode=True) if part.get_content_maintype() == "text" else None
        if isinstance(text, bytes):
            yield from _text_lines(text)


def is_quoted_printable(head: str) -> bool:
    """Whether a text is quoted-printable without a mail's headers: broken lines, and coded characters."""
    soft = len(_SOFT_BREAK.findall(head)) if "=\n" in head or "=\r\n" in head else 0
    longest = max(map(len, head.split("\n")), default=0)
    return soft > 0 and longest <= 78 and not _BARE_EQUALS.search(head)


def quoted_printable(data: bytes) -> Iterator[EnvelopeRecord]:
    """The lines of such a text."""
    yield from _text_lines(binascii.a2b_qp(data))


def is_base64(head: str) -> bool:
    """Whether a text is base64, as far as it can be seen."""
    return _BASE64.match(head) is not None


def base64_lines(data: bytes) -> Iterator[EnvelopeRecord] | None:
    """The lines of a text in base64; None for what is something else."""
    try:
        text = binascii.a2b_base64(b"".join(data.split()))
    except binascii.Error:
        return None
    return _text_lines(text) if is_text(text[:4096]) else None


def _text_lines(text: bytes) -> Iterator[EnvelopeRecord]:
    lines = text.decode("utf-8", "replace").replace("\r\n", "\n").rstrip("\n").split("\n")
    yield from map(EnvelopeRecord, lines)
