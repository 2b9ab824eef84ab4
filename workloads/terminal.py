"""The terminal: how wide it is, lines that wrap at words, and color where it is wanted. Standard library only."""

import contextlib
import errno
import io
import os
import re
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

_SILENT_S = 0.4
LEAST = 20  # narrower terminals count as this
_SGR = {"best": "1;32", "good": "32", "warning": "33", "bad": "31"}
_PAINTED = re.compile(r"\x1b\[[\d;]*m")
# Text that a terminal shows and does not obey: without control characters and marks that reverse the direction of writing.
_PLAIN = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]+|\r(?=\n)")
_CONTROL_CODES = (
    *range(0x20),
    *range(0x7F, 0xA0),
    0x61C,
    0x200E,
    0x200F,
    *range(0x2028, 0x202F),
    *range(0x2066, 0x206A),
)
_SHOWN_CONTROLS = {code: repr(chr(code)).strip("'") for code in _CONTROL_CODES}
_QUOTED = re.compile(r"""(\"'\"|'[^']*')""")  # of a command as shlex.join writes it
_PLAIN_OR_PAINTED = re.compile(rf"{_PLAIN.pattern}|\x1b\[(?:0|{'|'.join(_SGR.values())})m")
_ASCII = str.maketrans("█░│…µ±·–", "#.|~u~.-")  # for terminals without these
_MOVES = re.compile(r"\r|\x1b\[[\d;?]*[A-Zac-ln-z]")  # of a progress bar, which fits by itself
# Of a command: what the shell takes as one.
_WORD = re.compile(r"""(?:'[^']*'|"[^"]*"|\S)+""")


class Line(str):
    """A line for people that keeps its parts, so that `show` wraps it well; for everything else it is its text."""

    #: What stands before the text; the lines that follow are indented as far.
    label: str
    #: What is cut between words.
    text: str
    #: The command that the line ends with, or ""; it goes on after a backslash, so that it can be copied.
    command: str

    def __new__(cls, text: str = "", *, label: str = "", command: str = "") -> "Line":
        """A line of a label, a text and a command. If the text is a Line, its label follows this label, and its command comes
        before this command."""
        line = super().__new__(cls, f"{label}{text}{command}")
        line.label = label
        line.text = text
        line.command = command
        if isinstance(text, Line):
            line.label = label + text.label
            line.text = text.text
            line.command = text.command + command
        return line


def near(path: str | os.PathLike) -> str:
    """A path as it is shown to the user: relative where it lies below the current folder, else as it is.

    A relative one that begins with a dash is shown as `./-path`, as a command takes `-path` for a flag.
    """
    try:
        inside = os.path.relpath(path)
    except FileNotFoundError:  # the folder that the command runs in was removed
        return os.fspath(path)
    if inside.split(os.sep)[0] == os.pardir:
        return os.fspath(path)
    return os.path.join(os.curdir, inside) if inside[:1] == "-" else inside


def width(stream: TextIO | None = None) -> int:
    """How many characters a line of the terminal may have; 0 of a pipe or a file, whose lines may have any length. The variable
    COLUMNS sets it for all.

    stream: what is written to; None for stdout.
    """
    stream = stream or sys.stdout
    variable = os.environ.get("COLUMNS", "")
    if variable.isdigit() and int(variable):
        return max(LEAST, int(variable))
    if stream is None or not stream.isatty():  # None: closed
        return 0
    with contextlib.suppress(OSError, ValueError):
        if columns := os.get_terminal_size(stream.fileno()).columns:
            return max(LEAST, columns)
    return shutil.get_terminal_size().columns


def show(lines: Iterable[str], stream: TextIO | None = None) -> None:
    """Prints lines at once, each wrapped at the terminal's width. stream: where to; None for stdout.

    Text that is no Line is wrapped by the stream itself, between words.
    """
    stream = stream or sys.stdout
    columns = stream.columns if isinstance(stream, Wrapping) else 0
    for line in lines:
        parts = wrapped(line, columns) if isinstance(line, Line) else [line]
        print(*parts, sep="\n", file=stream)
    stream.flush()


def note(text: str) -> None:
    """Prints a text on stderr at once, where it does not mix with the output. It may have several lines."""
    show([text], sys.stderr)


def output_file() -> str:
    """The file that stdout goes to, as the system names it; "" where it does not say."""
    try:
        return os.readlink("/proc/self/fd/1")
    except OSError:
        return ""


def redraws(stream: TextIO) -> bool:
    """Whether a stream is a terminal that can do more than print line after line."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


def paint(text: str, style: str, stream: TextIO | None = None) -> str:
    """The text with the control codes of a color, if the stream is a terminal that has colors and NO_COLOR is not set; else as it
    is.

    style: best, good, warning or bad. stream: where it will be printed; None for stdout.
    """
    stream = stream or sys.stdout
    has_colors = redraws(stream) and not os.environ.get("NO_COLOR")
    if not has_colors or not text.strip():
        return text
    start = f"\x1b[{_SGR[style]}m"
    end = "\x1b[0m"
    if not isinstance(text, Line):
        return f"{start}{text}{end}"
    if not text.command:
        return Line(f"{text.text}{end}", label=f"{start}{text.label}")
    return Line(text.text, label=f"{start}{text.label}", command=f"{text.command}{end}")


def printable(text: str, painted: bool = False) -> str:
    """The text without control characters, such as a file's name may have, so that it cannot act on the terminal. painted:
    whether the control codes of `paint` stay."""
    pattern = _PLAIN_OR_PAINTED if painted else _PLAIN
    return "".join(pattern.findall(text))


def on_one_line(text: str) -> str:
    """The text with its ends of lines shown as \\n and \\r, and other control characters as \\x1b."""
    return text.translate(_SHOWN_CONTROLS)


def quoted_controls(command: str) -> str:
    """A command line with control characters as a shell takes them: $'a\\x1bb' for a word that has them in quotes."""
    return "".join(_in_ansi_quotes(part) for part in _QUOTED.split(command))


def _in_ansi_quotes(part: str) -> str:
    """A part of a command in single quotes, written as $'...' where it has control characters or bytes that are no text; any
    other as it is."""
    if part.isprintable() or part[:1] != "'":
        return part
    escaped = ""
    for character in part:
        if character.isprintable():
            escaped += "\\\\" if character == "\\" else character
        else:
            escaped += "".join(f"\\x{byte:02x}" for byte in os.fsencode(character))
    return f"${escaped}"


def length(text: str) -> int:
    """Columns that a text takes, its colors left out."""
    codes = _PAINTED.findall(text)
    return len(text) - sum(map(len, codes))


def shorten(text: str, most: int) -> str:
    """The text in at most so many characters: of a longer one the beginning, … and the end."""
    if len(text) <= most:
        return text
    end = (most - 1) // 3
    return f"{text[: most - 1 - end]}…{text[len(text) - end :]}"


def wrapped(line: str, most: int) -> list[str]:
    """A line as lines of at most `most` characters, cut between words. The lines after the first are indented, of a Line up
    to where its text begins; its command is continued by backslashes, so that it can be copied.

    most: 0 for any length.
    """
    if not most or length(line) <= most or _MOVES.search(line):
        return [line]
    hang = len(line) - len(line.lstrip())
    if not isinstance(line, Line):
        return _cut_between_words(line, most, hang)
    label_columns = length(line.label)
    longest_word = max(map(len, line.split()), default=0)
    if label_columns <= most // 2 and label_columns + longest_word <= most:
        hang = label_columns
    if not line.command:
        return _cut_between_words(line, most, hang)
    head = f"{line.label}{line.text}"
    if length(head) <= most // 3:
        return _continued(head, line.command, most)
    head_line = Line(line.text.rstrip(), label=line.label) if line.text else head.rstrip()
    return [*wrapped(head_line, most), *_continued(" " * hang, line.command, most)]


def _cut_between_words(line: str, most: int, hang: int) -> list[str]:
    """A line as lines of at most `most` characters, those after the first indented by `hang`."""
    return textwrap.wrap(line, most, subsequent_indent=" " * hang, break_on_hyphens=False)


def filled(lines: Iterable[str], most: int) -> str:
    """Lines as one text, each wrapped at `most` characters."""
    parts: list[str] = []
    for line in lines:
        parts += wrapped(line, most)
    return "\n".join(parts)


def _continued(head: str, command: str, most: int) -> list[str]:
    """A command behind a head, in lines of at most `most` characters that end in a backslash, but for the last.

    head: what stands before the command in the first line.
    """
    words = _WORD.findall(command)
    longest_word = max(map(len, words))
    indent = " " * max(0, min(length(head) + 2, most // 4, most - 2 - longest_word))
    lines = []
    last = head
    for word in words:
        blank = "" if not last.strip() or last == head else " "
        while length(last) + len(blank) + len(word) > most - 2:
            if last.strip() and last != head:
                lines.append(f"{last} \\")
                last = indent
                blank = ""
            if len(indent) + len(word) <= most - 2:
                break
            # No line holds the word: the shell joins what a bare backslash parts.
            cut = min(most - 1 - length(last), len(word) - 1)
            lines.append(f"{last}{word[:cut]}\\")
            last = ""
            word = word[cut:]
        last += blank + word
    return [*lines, last]


class Waiting:
    """A status line on a terminal's stderr: what the command does and for how many seconds. It appears at the start and
    whenever nothing is printed for _SILENT_S seconds; the next output replaces it."""

    def __init__(self, stream: TextIO):
        """stream: stderr."""
        self._stream = stream
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._begin = time.monotonic()
        #: When something was printed last.
        self._last = self._begin
        #: Whether the status line stands on the terminal.
        self._shown = False
        #: Whether the last printed line has ended.
        self._ready = True
        #: What the command does.
        self.what = "working"

    def start(self) -> None:
        """Shows the status line at once and starts the thread that shows it again; does nothing where stderr is no terminal."""
        if redraws(self._stream):
            self._last -= 2 * _SILENT_S  # at once: what is imported next may let no other thread write for seconds
            self.show(time.monotonic())
            threading.Thread(target=self._watch, daemon=True).start()

    def end(self) -> None:
        """Clears the status line for good."""
        self._done.set()
        self.before_printing("")

    def _watch(self) -> None:
        """The thread: shows the status line whenever it is time, until `end`."""
        while not self._done.wait(_SILENT_S / 4):
            self.show(time.monotonic())

    def show(self, now: float) -> None:
        """Writes the status line, if the command has been silent and its last line has ended."""
        with self._lock:
            if now - self._last > _SILENT_S and self._ready and not self._done.is_set():
                status = printable(f"[{now - self._begin:.0f} s] {self.what} ...")
                self._stream.write(f"\r\x1b[K{shorten(status, width(self._stream) - 1)}")
                self._stream.flush()
                self._shown = True

    def before_printing(self, text: str) -> None:
        """Clears the status line, as `text` is printed next. It stays away until the text's line has ended."""
        with self._lock:
            if self._shown:
                self._stream.write("\r\x1b[K")
                self._stream.flush()
            self._shown = False
            self._last = time.monotonic()
            if text:
                self._ready = text[-1] == "\n"


_waiting: Waiting | None = None  # the running command's status line


def show_waiting(what: str) -> None:
    """Starts the status line of the running command. what: its words, such as the command's question; "" for `working`."""
    if _waiting is not None:
        _waiting.what = what or _waiting.what
        _waiting.start()


def now(what: str) -> bool:
    """Changes the words of the status line to what the command does now; returns whether stderr is a terminal that shows it."""
    if _waiting is not None:
        _waiting.what = what
    return redraws(sys.stderr)


@contextlib.contextmanager
def doing(what: str) -> Iterator[None]:
    """Sets the words of the status line within the block."""
    before = _waiting.what if _waiting else ""
    now(what)
    try:
        yield
    finally:
        now(before)


class Wrapping:
    """A stream in place of stdout or stderr, which wraps lines at the width of the terminal and writes no control characters."""

    def __init__(self, stream: TextIO, waiting: Waiting, needed: bool = True):
        """stream: where it writes. waiting: the status line, which is cleared first. needed: whether a line that cannot be
        written raises OSError; else it is lost."""
        self._stream = stream
        self._waiting = waiting
        self._needed = needed
        #: The beginning of a line that has not ended.
        self._rest = ""
        #: Whether lines are wrapped; not those of csv and json.
        self.wraps = True
        #: Whether a progress bar writes, whose control characters move the cursor.
        self.draws = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def columns(self) -> int:
        """Columns that a line may have; 0: any number."""
        return width(self._stream) if self.wraps else 0

    def write(self, text: str) -> int:
        """Writes the lines that are complete; a line that has not ended waits for the next text, or for `flush`."""
        shown = text if self.draws else printable(text, painted=redraws(self._stream))
        *lines, self._rest = (self._rest + shown).split("\n")
        if lines:
            self._put(f"{filled(lines, self.columns)}\n")
        return len(text)

    def flush(self) -> None:
        """Writes a line that has not ended."""
        self._put(self._rest)
        self._rest = ""
        try:
            self._stream.flush()
        except OSError as error:
            self._lose(error)

    def _lose(self, error: OSError) -> None:
        """Raises the error, which a write ended with, if the stream is needed; else what follows is discarded."""
        if self._needed:
            raise error
        discard(self._stream)

    def _put(self, text: str) -> None:
        """Writes a text to the stream, in ASCII where its encoding has no other characters."""
        if text:
            self._waiting.before_printing(text)
            encoding = (getattr(self._stream, "encoding", None) or "utf-8").lower()
            has_every_letter = encoding[:3] == "utf"
            try:
                self._stream.write(text if has_every_letter else text.translate(_ASCII))
            except OSError as error:
                self._lose(error)


@contextlib.contextmanager
def drawing(stream: TextIO) -> Iterator[None]:
    """Lets a progress bar move the cursor on a wrapping stream within the block."""
    if not isinstance(stream, Wrapping):
        yield
        return
    stream.draws = True
    try:
        yield
    finally:
        stream.flush()
        stream.draws = False


def discard(stream: TextIO) -> None:
    """Sends what a stream still has in its buffer, and all that follows, to /dev/null: its reader left, or its disk is full."""
    with contextlib.suppress(OSError, ValueError):  # it is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class Closed(io.StringIO):
    """A stdout that was closed before the process began: no answer can be written to it."""

    def write(self, text: str, /) -> int:
        raise OSError(errno.EBADF, "stdout is closed")


@contextlib.contextmanager
def wrapping() -> Iterator[Wrapping]:
    """Wraps the lines of stdout and stderr at the terminal's width within the block, and shows a status line between them. Yields
    stdout, whose wrapping can be turned off for csv and json."""
    global _waiting
    stdout = sys.stdout or Closed()
    stderr = sys.stderr or open(os.devnull, "w")  # None where it is closed  # noqa: SIM115
    before, _waiting = _waiting, Waiting(stderr)
    out, err = Wrapping(stdout, _waiting), Wrapping(stderr, _waiting, needed=False)
    for stream in (stdout, stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without µ is no reason to stop
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            yield out
        finally:
            for last in (_waiting.end, out.flush, err.flush):
                try:
                    last()
                except OSError:
                    discard(stdout)
                except ValueError:  # it is closed
                    continue
            _waiting = before
