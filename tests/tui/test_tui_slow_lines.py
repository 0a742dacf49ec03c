"""What is written to a slow line: less than Textual writes, and the same picture."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from terminal_screen import TerminalScreen

from nodedoctor.tui.driver import ShownRows

WIDTH, HEIGHT = 20, 4
STYLES = st.lists(st.sampled_from(["1", "2", "4", "7", "31", "36", "90", "39", "49", "40"]), max_size=3)


@st.composite
def frames(draw: st.DrawFn) -> str:
    """A picture as Textual writes it: every piece in a style of its own, which is ended behind it."""
    made = []
    for _ in range(draw(st.integers(1, 6))):
        row, column = draw(st.integers(1, HEIGHT)), draw(st.integers(1, WIDTH))
        made.append(f"\x1b[{row};{column}H")
        left = WIDTH - column + 1
        for _ in range(draw(st.integers(1, 3))):
            text = draw(st.text("ab ■測", max_size=8)) + " " * draw(st.integers(0, 14))
            while cell_len(text) > left:
                text = text[:-1]
            left -= cell_len(text)
            link = draw(st.sampled_from(["", "", "8;;https://x.org"])) if text else ""
            piece = f"\x1b[{';'.join(draw(STYLES))}m{text}\x1b[0m" if text else ""
            made.append(f"\x1b]{link}\x1b\\{piece}\x1b]8;;\x1b\\" if link else piece)
    return "".join(made) + ("\n" if row < HEIGHT else "") + "\x1b[1;1H"


@given(st.lists(st.one_of(frames(), st.just("forget")), max_size=6))
def test_it_is_the_same_picture(pictures: list[str]):
    whole, short, rows = TerminalScreen(WIDTH, HEIGHT), TerminalScreen(WIDTH, HEIGHT), ShownRows()
    for frame in pictures:
        if frame == "forget":
            rows.forget()
            continue
        whole.write(frame)
        short.write(rows.drop_repeats(frame))
        assert short.seen() == whole.seen()
        last = rows.drop_repeats(frame)
        short.write(last)
        assert short.seen() == whole.seen()


def test_what_is_no_picture_passes_as_it_is_and_makes_the_rows_unknown():
    rows = ShownRows()
    cursor = "\x1b[2;1H"
    frame = f"\x1b[1;1H\x1b[39;49mok\x1b[0m{cursor}"
    first = rows.drop_repeats(frame)
    assert first == frame and rows.drop_repeats(frame) == cursor
    for harmless in ("\x1b[?2026h", "\x1b]52;c;b2s=\x07", "\x1b[?1002h\x1b[?1006h"):
        assert rows.drop_repeats(harmless) == harmless and rows.drop_repeats(frame) == cursor
    for other in ("\x1b[?1049h", "\x1b[2J", "\x1b[1;1H\x1b[K"):
        assert rows.drop_repeats(other) == other and rows.drop_repeats(frame) == first
