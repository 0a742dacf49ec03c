"""Files whose lines cannot be read singly: how to recognise and open them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nodedoctor.record import record
from nodedoctor.triage.lines.envelopes import journal, mails, objects, screens, tables
from nodedoctor.triage.lines.envelopes.records import EnvelopeRecord

LARGEST = 64 << 20
"""Bytes of such a file that are opened as a whole; of a larger one, each line by itself."""


@record
class EnvelopeForm:
    """One form: its name, how its files begin, and the reader of its records."""

    name: str
    begins: Callable[[str], object]
    records: Callable[[bytes], Iterable[EnvelopeRecord] | None]


FORMS = (
    EnvelopeForm("the export of a journal", journal.is_journal, journal.journal_records),
    EnvelopeForm("a mail", mails.is_mail, mails.mail_lines),
    EnvelopeForm("quoted-printable", mails.is_quoted_printable, mails.quoted_printable),
    EnvelopeForm("base64", mails.is_base64, mails.base64_lines),
    EnvelopeForm("a recorded terminal", screens.is_screen, screens.screen_lines),
    EnvelopeForm("a JSON document", objects.is_document, objects.document_records),
    EnvelopeForm("a table", tables.find_separator, tables.csv_records),
    EnvelopeForm("a text without line feeds", screens.line_mark, screens.marked_lines),
)


def form_of(head: bytes) -> EnvelopeForm | None:
    """The form of a file by its beginning; None where lines are separate."""
    text = head.decode("utf-8", "replace").lstrip("\ufeff\0")
    return next((form for form in FORMS if form.begins(text)), None)
