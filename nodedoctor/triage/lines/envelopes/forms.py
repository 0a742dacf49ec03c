"""Files whose lines cannot be read one by one: what each form is known by, and how it is opened."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nodedoctor.record import record
from nodedoctor.triage.lines.envelopes import journal, mails, objects, screens, tables
from nodedoctor.triage.lines.envelopes.records import Record

LARGEST = 64 << 20
"""Bytes of such a file that are opened as a whole; of a larger one, each line by itself."""


@record
class Form:
    """One form: its name, whether a file that begins like a text has it, and what its records are."""

    name: str
    begins: Callable[[str], object]
    records: Callable[[bytes], Iterable[Record] | None]


FORMS = (
    Form("the export of a journal", journal.is_journal, journal.journal),
    Form("a mail", mails.is_mail, mails.mail),
    Form("quoted-printable", mails.is_quoted_printable, mails.quoted_printable),
    Form("base64", mails.is_base64, mails.coded),
    Form("a recorded terminal", screens.is_screen, screens.screen),
    Form("a JSON document", objects.is_document, objects.document),
    Form("a table", tables.separator, tables.records),
    Form("a text without line feeds", screens.mark_of_lines, screens.marked),
)


def form_of(head: bytes) -> Form | None:
    """The form of a file that begins like this; None where each line can be read by itself."""
    text = head.decode("utf-8", "replace").lstrip("\ufeff\0")
    return next((form for form in FORMS if form.begins(text)), None)
