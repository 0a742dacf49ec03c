"""Texts without colours, tags and invisible characters, as screens and pages have them."""

from __future__ import annotations

import html
import re

_COLOUR = re.compile(
    r"\x1b7[^\n]{0,400}?\x1b8"  # drawn elsewhere on the screen, with the cursor saved and put back
    r"|\x1b[_P^][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)"
    r"|\x1b(?:[()][0-9A-Z]|[=>78DEHMNOZc])|[\x0e\x0f]"  # the last two change to another set of characters
)
_HALF_COLOUR = re.compile(r"\[\d{1,3}(?:;\d{1,3})*m")
"""A colour without its escape character, which pages and chats leave out."""
_WRITTEN_COLOUR = re.compile(
    r"(?:\\u001b|\\x1b|\\033|\\e|\^\[|\u241b)\[\d{0,3}(?:;\d{1,3})*[mK]", re.IGNORECASE
)
"""A colour whose escape character is written out."""
_ENTITIES = re.compile(r"&(?:nbsp|lt|gt|quot|apos|amp|#\d{2,6}|#x[0-9A-Fa-f]{2,5});")
_TAG = r"</?(?:span|div|pre|code|p|td|tr|br|b|li|a|font|html|body)(?:[ /][^<>]{0,200})?>"
_MARKED_UP = re.compile(rf"^{_TAG}|{_TAG}$")
_TAGS = re.compile(_TAG)
_NUMBER = re.compile(rf"^(?:{_TAG})*<(a|b|span|div|td)(?: [^<>]{{0,200}})?>\s*\d{{1,7}}\s*</\1>(?=<)")
"""The number of a line as pages show it: in an element of its own, in front of the line's."""
_CELLS = re.compile(r"</td>\s*<td(?: [^<>]{0,200})?>")
_BOLD = re.compile(r"(?<![\w*])\*\*(?=[\w`\[(])([^*\n]{1,80})(?<=[\w`\]).:!])\*\*(?![\w*])")
"""Words that a chat or an issue shows in bold."""
_LINK = re.compile(r"\[([^\[\]\s]{1,200})\]\((?:https?://|mailto:)?\1/?\)")
"""An address that a chat or an issue made a link to itself."""
_UNSEEN = "\ufeff\0\u200b\u200c\u200d\u200e\u2060"
"""Characters of no width, which pages and chats put between what is copied from them."""


def plain_text(text: str) -> str:
    """A text without colours, markup, and blanks at its end."""
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    if "[" in text:
        if "\\" in text or "^[" in text:
            text = _WRITTEN_COLOUR.sub("", text)
        text = _HALF_COLOUR.sub("", text)
    text = text.rstrip().strip(_UNSEEN).replace("\xa0", " ")
    if (text[:1] == "<" or text[-1:] == ">") and _MARKED_UP.search(text):
        text = _TAGS.sub("", _CELLS.sub("\t", _NUMBER.sub("", text)))
    if "&" in text:
        text = _ENTITIES.sub(lambda match: html.unescape(match[0]).replace("\xa0", " "), text)
        text = _COLOUR.sub("", text) if "\x1b" in text else text
    if "](" in text:
        text = _LINK.sub(r"\1", text)
    if "**" in text:
        text = _BOLD.sub(r"\1", text)
    quoted = len(text) > 2 and text[0] == text[-1] == "`" and text.strip("`")  # and no fence
    return text[1:-1] if quoted else text
