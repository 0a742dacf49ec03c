"""Files whose lines cannot be read singly: how to recognise and open them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from nodedoctor.record import record
from nodedoctor.triage.lines.envelopes import objects
from nodedoctor.triage.lines.envelopes.field_names import SEVERAL, TEXT, EnvelopeRecord, who_of
from nodedoctor.triage.lines.envelopes.objects import column_name, object_records, table_records
from nodedoctor.triage.lines.envelopes.pairs import unquote_text
from nodedoctor.triage.model import Identity

_HEADER = re.compile(r"(?:From .*\n)?(?:[A-Za-z][\w-]{1,60}:.*\n(?:[ \t].*\n)*)+\n")
_MAIL_FIELD = re.compile(r"^(?:MIME-Version|Content-Transfer-Encoding): ", re.IGNORECASE | re.MULTILINE)


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


def _text_lines(text: bytes) -> Iterator[EnvelopeRecord]:
    lines = text.decode("utf-8", "replace").replace("\r\n", "\n").rstrip("\n").split("\n")
    yield from map(EnvelopeRecord, lines)


_MARKS = ("\u2028", "<br>", "<br/>", "<br />", "</div>", "</tr>", "</li>", "\\n")
"""What ends lines in a text that was copied out of a page, a database or a program's answer."""


def line_mark(head: str) -> str:
    """The mark that ends a log's lines; '' where line feeds do."""
    rows = head.rstrip().count("\n")
    if '{"' in head[:1000]:  # an envelope, which holds its text as it likes
        return ""
    if rows == 0 and unquote_text(head.strip()) is not None:
        return "\\n"
    for mark in _MARKS:
        count = head.count(mark)
        if count >= (SEVERAL if rows or mark == "\\n" else 1) and (
            rows == 0 if mark == "\\n" else count > 4 * rows
        ):
            return mark
    return ""


def marked_lines(data: bytes) -> Iterator[EnvelopeRecord]:
    """The lines of such a log."""
    text = data.decode("utf-8", "replace")
    mark = line_mark(text[:HEAD])
    value = unquote_text(text.strip()) if mark == "\\n" else None
    lines = text.replace(mark or "\n", "\n") if value is None else value
    yield from (EnvelopeRecord(line.rstrip("\r")) for line in lines.rstrip("\n").split("\n"))


HEAD = 65536
"""Bytes of a file that are searched for what separates its columns, or ends its lines."""


def csv_records(data: bytes) -> Iterator[EnvelopeRecord]:
    """The records of a table."""
    text = data.decode("utf-8", "replace").lstrip("\ufeff").replace("\0", "")
    return table_records(_split_rows(text, find_separator(data[:HEAD].decode("utf-8", "replace")) or ","))


def _split_rows(text: str, mark: str) -> Iterator[list[str]]:
    """The rows of a table with this separator; a cell may hold several lines. None of what is no table."""
    csv.field_size_limit(1 << 24)
    try:
        yield from csv.reader(io.StringIO(text, newline=""), delimiter=mark)
    except csv.Error:
        return


LONGEST_HEADING = 4096
"""Characters of the first line of a table, at most."""


def find_separator(head: str) -> str:
    """The separator of a table that begins like this; '' for other texts."""
    first, _, rest = head.partition("\n")
    if len(first) > LONGEST_HEADING or "\r" in first.rstrip("\r"):  # bars that are drawn again and again
        return ""
    for mark in (",", "\t", ";"):
        names = list(map(column_name, next(csv.reader([first], delimiter=mark), [])))
        if len(names) > 1 and any(name in TEXT for name in names) and all(len(name) < 40 for name in names):
            row = next(_split_rows(rest, mark), [])
            return mark if abs(len(row) - len(names)) < 2 else ""
    return ""


def is_journal(head: str) -> bool:
    """Whether this is what `journalctl -o export` prints."""
    return head.startswith(("__CURSOR=", "__REALTIME_TIMESTAMP="))


def journal_records(data: bytes) -> Iterator[EnvelopeRecord]:
    """The records of a journal export; multi-line texts have their length in front."""
    fields: dict[str, Any] = {}
    position = 0
    while position < len(data):
        end = data.find(b"\n", position)
        end = len(data) if end < 0 else end
        name, separator, value = data[position:end].decode("utf-8", "replace").partition("=")
        position = end + 1
        if not name and not separator:
            yield from _entry_record(fields)
            fields = {}
        elif separator:
            fields[name.lower()] = value
        else:
            size = int.from_bytes(data[position : position + 8], "little")
            fields[name.lower()] = data[position + 8 : position + 8 + size].decode("utf-8", "replace")
            position += 9 + size
    yield from _entry_record(fields)


def _entry_record(fields: Mapping[str, Any]) -> Iterator[EnvelopeRecord]:
    text = fields.get("message")
    if isinstance(text, str):
        yield from object_records(text, fields, who_of(fields, Identity()))


LARGEST = 64 << 20
"""Bytes of such a file that are opened as a whole; of a larger one, each line by itself."""


@record
class EnvelopeForm:
    """One form: its name, how its files begin, and the reader of its records."""

    name: str
    begins: Callable[[str], object]
    records: Callable[[bytes], Iterable[EnvelopeRecord] | None]


FORMS = (
    EnvelopeForm("the export of a journal", is_journal, journal_records),
    EnvelopeForm("a mail", is_mail, mail_lines),
    EnvelopeForm("a JSON document", objects.is_document, objects.document_records),
    EnvelopeForm("a table", find_separator, csv_records),
    EnvelopeForm("a text without line feeds", line_mark, marked_lines),
)


def form_of(head: bytes) -> EnvelopeForm | None:
    """The form of a file by its beginning; None where lines are separate."""
    text = head.decode("utf-8", "replace").lstrip("\ufeff\0")
    return next((form for form in FORMS if form.begins(text)), None)
