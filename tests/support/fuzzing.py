"""What is fuzzed, and how inputs are made: the words of command lines, result files, what a report is made from.

Each target takes made-up input and must come to an answer or to one of our own errors; any other exception is a bug.
"""

import codecs
import contextlib
import copy
import csv
import functools
import io
import json
import os
import pathlib
import re
import socket
import tempfile
from html.parser import HTMLParser

import msgspec
from fake_measurements import cpu_run, gpu_run
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from analysis import checks, export, table
from analysis.analysis import Analysis
from analysis.compare import command as compare
from analysis.compare import comparison
from analysis.fleet import command as fleet
from analysis.predict import saved_predictions
from analysis.report import html, html_page, material, replacing
from analysis.report import page as report_page
from analysis.roofline.frame import frame
from kernels.problems import Matmul
from workloads import doctor, options, records
from workloads.harness import plan, resuming
from workloads.records import model_files

_WORDS = st.text(st.sampled_from("0123456789:x+,^.-KMGiB eE_aé\x00"), max_size=24)
SIZES = st.lists(st.one_of(_WORDS, st.text(max_size=20)), max_size=4)
_EDGES = [0, 1, 1e-320, 1e-29, 2e-12, 9e8, 9e29, 1e308, -1.0, 2**59, 2**63, 10**40]
NUMBERS = st.one_of(st.integers(-5, 5), st.integers(), st.floats(), st.sampled_from(_EDGES))
DEEP = "nested ten thousand deep"  # a text in whose place the encoded line has as many lists
HOSTILE = ("<img src=x onerror=x>", "[a](evil)", "![a](evil)", "`|**_", "=1+1", "gpu:x", "\n# x")
HOSTILE += ("\u2028</script>", "a" * 999)
#: Texts that a terminal obeys: clears itself, takes a title, turns red by one character, writes backward.
ESCAPES = ("\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\u202eab")
HOSTILE += ESCAPES
INJECTED = "INJECTED"  # what a name with an end of a line would begin a line with
HOSTILE += (f"a\n{INJECTED}", "\n=1+1", "＝1+1", "＋1", "＠SUM(A1)")
#: The beginnings of cells that a spreadsheet runs; a number may begin so too.
_FORMULA = re.compile(r"[=+@\t\r\n＝＋－＠-].", re.DOTALL)
_NUMBER = re.compile(r"[+-]?[\d.]+(e[+-]?\d+)?")
ONE = (st.none(), st.booleans(), NUMBERS, st.text(max_size=12), st.sampled_from((DEEP, *HOSTILE)))
ANY = st.one_of(*ONE, st.lists(NUMBERS, max_size=3), st.dictionaries(st.text(max_size=5), NUMBERS, max_size=2))


SWITCHES = {"data": "synthetic", "jit_compile": "on", "steps_per_execution": "4"}


def _lines() -> list[bytes]:
    """A line of every kind that a file can hold, few enough for a report to take a hundredth of a second."""
    rows: dict[tuple, records.Measurement] = {}
    for loaded in (gpu_run(sizes=(64, 512)), cpu_run(sizes=(64, 512))):
        for m in loaded.measurements:
            kind = m.kernel.rsplit("/", 1)[0], m.settings.device, m.settings.mode, m.status
            rows.setdefault((*kind, getattr(m.problem, "n", 0)), m)
    for key, m in rows.items():
        if m.problem.op == "training":
            rows[key] = msgspec.structs.replace(m, settings=msgspec.structs.replace(m.settings, switches=SWITCHES))
    runs = [gpu_run(sizes=(64,)).runs[0]]
    return [msgspec.json.encode(line) for line in (*runs, *rows.values())]


LINES = _lines()
html_page.plotly_js = functools.cache(html_page.plotly_js)
_TREES = [json.loads(line) for line in LINES]


def places(tree, path=()) -> list[tuple]:
    """The paths to everything inside a JSON value."""
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [p for key, value in inner for p in ((*path, key), *places(value, (*path, key)))]


@st.composite
def changed(draw, tree):
    """A JSON value with one to three things in it replaced, left out or doubled."""
    tree = copy.deepcopy(tree)
    for _ in range(draw(st.integers(1, 3))):
        if not (there := places(tree)):
            break
        *above, last = draw(st.sampled_from(there))
        inside = tree
        for key in above:
            inside = inside[key]
        what = draw(st.integers(0, 3))
        if what == 0:
            del inside[last]
        elif what == 1 and isinstance(inside, list):
            inside.append(copy.deepcopy(inside[last]))
        elif what == 2 and isinstance(inside[last], (int, float)):
            inside[last] = draw(NUMBERS)
        else:
            inside[last] = draw(ANY)
    return tree


# What may stand in place of a value, by its type, so that most lines still decode.
LIKELY = {
    int: st.sampled_from((0, 1, 2, 63, 64, 1000, 2**20, 2**40, 2**59)),
    float: st.sampled_from((0.0, 2e-12, 1e-9, 1e-3, 0.5, 1.0, 100.0, 9e8, 9e29, -1.0)),
    str: st.sampled_from(
        (
            *HOSTILE,
            "",
            "on",
            "maybe",
            "2",
            "cpu",
            "gpu:0",
            "gpu:7",
            "float16",
            "tf32",
            "skipped",
            "failed",
            "roundtrip",
            "cold",
            "fresh",
        )
    ),
}


@st.composite
def likely(draw, tree):
    """A line with up to six of its numbers and words replaced by others that a file may hold."""
    tree = copy.deepcopy(tree)
    there = [p for p in places(tree) if p[-1] != "type" and type(_at(tree, p)) in LIKELY]
    for path in draw(st.lists(st.sampled_from(there), min_size=1, max_size=6)):
        value = draw(LIKELY[type(_at(tree, path))])
        _at(tree, path[:-1])[path[-1]] = f"matmul/numpy/{value}" if path == ("kernel",) else value
    return tree


def _at(tree, path: tuple):
    return functools.reduce(lambda inside, key: inside[key], path, tree)


def _encoded(tree) -> bytes:
    return json.dumps(tree).encode().replace(json.dumps(DEEP).encode(), b"[" * 10_000 + b"]" * 10_000)


_PARTS = st.sampled_from(LINES), st.integers(0, 400), st.binary(max_size=12)
TORN = st.builds(lambda line, cut, more: line[:cut] + more, *_PARTS)
CHANGED = st.sampled_from(_TREES).flatmap(changed).map(_encoded)
FILES = st.lists(st.one_of(CHANGED, CHANGED, TORN, st.binary(max_size=40)), min_size=1, max_size=4)

_LIKELY = st.sampled_from(_TREES).flatmap(likely).map(_encoded)
PAGES = st.lists(st.one_of(_LIKELY, _LIKELY, _LIKELY, CHANGED, TORN), min_size=1, max_size=8)


def _one_line(error: options.Usage) -> None:
    assert "\n" not in str(error)


def sizes(words: list[str]) -> None:
    """The grammar of sizes, shapes, rules and thread counts: rising whole numbers, or a Usage of one line."""
    try:
        found = options.sizes(words)
        assert found == sorted(set(found))
        assert 0 < len(found) <= options.MOST_SIZES and found[0] > 0 and found[-1] < 1 << 60
    except options.Usage as error:
        _one_line(error)
    for word in words:
        for read in (plan.shape, options.number):
            try:
                read(word)
            except options.Usage as error:
                _one_line(error)


def reader(lines: list[bytes]) -> records.Loaded:
    """The reader: every line is a Run, a Measurement or counted as bad, and what was read can be written and read again."""
    decoded = records.decode(lines)
    runs, rows, bad = decoded.runs, decoded.measurements, decoded.bad_lines
    assert len(runs) + len(rows) + bad <= len(lines)
    again = records.decode([msgspec.json.encode(line) for line in (*runs, *rows)])
    assert (again.runs, again.measurements, again.bad_lines) == (runs, rows, 0)
    for m in rows:
        assert min(m.phases_s.values(), default=0) >= 0
        assert min((value for name, value in m.values.items() if name.endswith("_s")), default=0) >= 0
        for name, series in m.series.items():
            assert not name.endswith("_s") or min(series, default=0) >= 0
    return records.Loaded(tuple(runs), tuple(rows), bad, ("fuzzed.jsonl",))


def resumed(lines: list[bytes]) -> None:
    """A folder that a sweep goes on in: refused in a line with the file as it was, or every line stays, the new ones after them.
    Only a line of ours that is torn may go."""
    run, _, row = (records.decode([line]) for line in LINES[:3])
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "matmul.jsonl"
        text = b"\n".join(lines)
        path.write_bytes(text)
        before = records.decode(text.split(b"\n")).measurements
        try:
            with contextlib.redirect_stderr(io.StringIO()), records.Writer(path, run.runs[0], True) as writer:
                assert writer.done == before
                writer.append(row.measurements[0])
        except options.Usage as error:
            assert path.read_bytes() == text
            return _one_line(error)
        last = text.rpartition(b"\n")[2]
        torn = last.startswith((b'{"type":"run",', b'{"type":"measurement",')) and records.decode([last]).bad_lines == 1
        assert path.read_bytes().startswith(text.removesuffix(last) if torn else text)
        after = records.read(path).measurements
        assert after[-1] == records.shortened(row.measurements[0]) and {m.key for m in before} <= {m.key for m in after}


# How the runs of a file may differ, beside the command: each part of a method in turn.
_FAST = records.Method(process_per_visit=False, limits={"visit_s": 0.025})
METHODS = (
    {"method": _FAST},
    {"method": records.Method(process_per_visit=True, limits={"visit_s": 0.025})},
    {"method": records.Method(process_per_visit=False, limits={"visit_s": 0.075})},
    {
        "method": records.Method(
            process_per_visit=False, limits={"visit_s": 0.025}, thread_variables={"OMP_NUM_THREADS": "1"}
        )
    },
    {"method": _FAST, "seed": 2},
    {"method": _FAST, "software": {"numpy": "2.5.0"}},
    {"method": None},
)
ENDS = (b"", b"precious", b'{"type":"measurement","kern', b"\xff\xfe", b"{", b"\r\n", b"[]\n")
# Runs one after the other: its method, the row of each visit that it makes, and what stands behind its last line.
RESUMED_RUNS = st.lists(
    st.tuples(st.integers(0, len(METHODS) - 1), st.lists(st.integers(0, 2), max_size=6), st.sampled_from(ENDS)),
    min_size=1,
    max_size=6,
)


def methods(runs: list[tuple[int, list[int], bytes]]) -> None:
    """A file that several runs go on with: every row has visits of one method, and nothing of the file is cut but torn lines."""
    begun, _, sound = (records.decode([line]) for line in LINES[:3])
    rows = [msgspec.structs.replace(sound.measurements[0], problem=Matmul(8 << i, 8, 8), samples=()) for i in range(3)]
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        path = pathlib.Path(folder) / "matmul.jsonl"
        for number, visited, end in runs:
            text = path.read_bytes() if path.exists() else b""
            run = msgspec.structs.replace(begun.runs[0], **METHODS[number])
            with records.Writer(path, run, resume=bool(text)) as writer:
                last = text.rpartition(b"\n")[2]
                torn = last.startswith(b'{"type":"measurement",') and records.decode([last]).bad_lines == 1
                assert path.read_bytes().startswith(text.removesuffix(last) if torn else text)
                lines = resuming.continued(writer.rows_before, rows, run, path)
                for i in visited:
                    made = lines.setdefault(rows[i].key, [])
                    visit = msgspec.structs.replace(rows[i], visit=len(made) + 1, values={"trials": float(number)})
                    writer.append(visit)
                    made.append(visit)
            with path.open("ab") as file:
                file.write(end)
        read = records.decode(path.read_bytes().splitlines()).rows
    for row in read.values():
        assert len({visit.values["trials"] for visit in row.lines}) == 1
        assert [visit.visit for visit in row.lines] == list(range(1, len(row.lines) + 1))


def _long(path: pathlib.Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def _socket(path: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def _two_machines(path: pathlib.Path) -> None:
    (run,) = records.decode([LINES[0]]).runs
    other = msgspec.structs.replace(run, machine=msgspec.structs.replace(run.machine, key="another"))
    path.write_bytes(b"\n".join([*LINES, msgspec.json.encode(other), LINES[-1]]))


def _marked(path: pathlib.Path) -> None:
    path.write_bytes(codecs.BOM_UTF8 + b"\n".join(LINES))


SPECIAL = {
    "two machines": _two_machines,
    "marked": _marked,
    "foreign": lambda path: path.write_bytes(b'{"text": "cat"}\n'),
    "null schema": lambda path: path.write_bytes(b'{"type":"run","schema":null}\n'),
    "folder": lambda path: path.mkdir(),
    "pipe": os.mkfifo,
    "socket": _socket,
    "zeros": lambda path: path.symlink_to("/dev/zero"),
    "dangling": lambda path: path.symlink_to(path.parent / "nothing"),
    "circular": lambda path: path.symlink_to(path),
    "long line": _long,
    "torn gzip": lambda path: path.write_bytes(b"\x1f\x8b\x08\x00torn"),
    "empty": lambda path: path.touch(),
    "text": lambda path: path.write_bytes(b"precious"),
}
_NAMES = st.sampled_from(("matmul.jsonl", "a.jsonl", "z.jsonl", "matmul.jsonl.gz", "x", "x.ndjson"))
# Files of a folder by their names, each a kind of SPECIAL or the lines of a result file, and the name that is read.
FOLDERS = st.tuples(st.dictionaries(_NAMES, st.one_of(st.sampled_from(list(SPECIAL)), FILES), max_size=3), _NAMES)


def special(case: tuple[dict[str, str | list[bytes]], str]) -> None:
    """A folder with files of any kind: every reader comes to an answer or to a Usage of one line, and a file that is refused is
    as it was."""
    files, name = case
    begun = records.decode([LINES[0]]).runs[0]
    with tempfile.TemporaryDirectory() as place, contextlib.redirect_stderr(io.StringIO()):
        folder = pathlib.Path(place)
        for file, kind in files.items():
            if isinstance(kind, str):
                SPECIAL[kind](folder / file)
            else:
                (folder / file).write_bytes(b"\n".join(kind))
        path = folder / name
        for read in (records.read, records.by_machine, compare.read, saved_predictions.load, model_files.missing):
            for run in (place, str(path)):
                try:
                    read(run)
                except options.Usage as error:
                    _one_line(error)
        if files.get(name) in ("two machines", "foreign", "null schema"):
            assert not _is_read(path)
        if files.get(name) == "marked" and path.suffix != ".gz":
            assert len(records.read(path).runs) == 1
        text = path.read_bytes() if isinstance(files.get(name), list) else None
        try:
            records.Writer(path, begun, resume=True).close()
        except options.Usage as error:
            _one_line(error)
            assert text is None or path.read_bytes() == text


def _is_read(path: pathlib.Path) -> bool:
    try:
        records.read(path)
    except options.Usage:
        return False
    return path.suffix != ".gz"


_MARKERS = b"<!-- answer: python -m analysis.report RUN --readme page.md -->%b<!-- /answer -->"
_PAGE_ENDS = st.sampled_from((b"\n", b"\r\n"))
_AROUND = st.one_of(st.text(max_size=20).map(str.encode), st.binary(max_size=20))
# What a report finds where it writes: the name, and a kind of SPECIAL or (text before the markers, text after them, their ends).
OUTPUTS = st.tuples(
    st.sampled_from(("report.md", "report.html", "rates.svg", "page.md")),
    st.one_of(st.sampled_from(list(SPECIAL)), st.tuples(_AROUND, _AROUND, _PAGE_ENDS)),
)


def outputs(case: tuple[str, str | tuple[bytes, bytes, bytes]]) -> None:
    """Pages, pictures and pages of --readme: what no report wrote stays as it is, and nothing is waited for."""
    name, kind = case
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / name
        if isinstance(kind, str):
            SPECIAL[kind](path)
            is_link, size = path.is_symlink(), path.lstat().st_size
            with contextlib.suppress(options.Usage):
                replacing.write(path, b"new")
                assert kind == "empty"
            with contextlib.suppress(ValueError):
                table.put_blocks(path, {"answer": ["new"]}, "RUN", "analysis.report RUN")
                raise AssertionError(f"{kind} has no markers")
            assert path.is_symlink() == is_link and (kind == "empty" or path.lstat().st_size == size)
            return
        before, after, end = kind
        block = _MARKERS % (end + b"old" + end)
        path.write_bytes(before + block + after)
        try:
            table.put_blocks(path, {"answer": ["new"]}, "RUN", "analysis.report RUN --readme page.md")
        except ValueError as error:
            _one_line(error)
            assert path.read_bytes() == before + block + after
            return
        assert path.read_bytes() == before + _MARKERS % (end + b"new" + end) + after


class _Tags(HTMLParser):
    """Holds that a page has no tag, link or handler that came out of a result file."""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            assert name != "onerror" and not (name in ("href", "src") and value in ("x", "evil")), (tag, name, value)


def page(lines: list[bytes]) -> None:
    """Everything that is made of a file: both pages, the table, the exports, the checks, a comparison with a sound one."""
    loaded = reader([*LINES, *lines])
    of = material.Material(Analysis.from_loaded(loaded))
    text = report_page.markdown([of], False)
    assert text.startswith(("# Where the GPU starts to win: ", "# What was measured: "))
    _Tags().feed(MarkdownIt().enable("table").render(text))
    with tempfile.TemporaryDirectory() as folder:
        _Tags().feed(html.write([of], pathlib.Path(folder) / html.NAME, None).read_text(encoding="utf-8"))
    assert len(frame(loaded.measurements)) == len(loaded.measurements)
    for to in export.TO:
        exported = export.text(loaded, to)
        if to == "csv":
            for line in csv.reader(io.StringIO(exported)):
                assert not [cell for cell in line if _FORMULA.match(cell) and not _NUMBER.fullmatch(cell)]
    assert len(of.analysis.doubts) <= len(checks.CHECKS)
    comparison.comparison(loaded, reader(LINES))


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


PRINTING = (
    (compare.main, ("-v",)),
    (export.main, ("--to", "csv")),
    (export.main, ("--to", "pyperf")),
    (fleet.main, ()),
    (doctor.main, ()),
)


def printed(lines: list[bytes]) -> None:
    """Commands that print a file: none of its names reaches the terminal with what a terminal obeys."""
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        (folder / "matmul.jsonl").write_bytes(b"\n".join([*LINES, *lines]))
        for main, flags in PRINTING:
            runs = [place, place] if main is compare.main else [place]
            stdout, stderr = _Terminal(), _Terminal()
            with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
                main([*flags, *runs])
            text = stdout.getvalue() + stderr.getvalue()
            assert not any(escape in text for escape in ESCAPES)
            if "csv" not in flags:  # a cell in quotes may have several lines
                assert not any(line.startswith(INJECTED) for line in text.splitlines())


TARGETS = {"sizes": (SIZES, sizes), "reader": (FILES, reader), "resumed": (PAGES, resumed), "page": (PAGES, page)}
TARGETS |= {"methods": (RESUMED_RUNS, methods), "special": (FOLDERS, special), "printed": (PAGES, printed)}
TARGETS |= {"outputs": (OUTPUTS, outputs)}

# The same targets on plain bytes, for a fuzzer that is steered by coverage, and what it may begin with.
RAW = {
    "sizes": lambda data: sizes(data.decode(errors="replace").split("\n")),
    "reader": lambda data: reader(data.splitlines()),
}
SEEDS = {
    "sizes": [b"256,512", b"64:8192:x2", b"512:4096:+512", b"2^6:2^13", b"4KiB:256MiB:x4", b"10:23:x1.5", b"3x5x7"],
    "reader": [*LINES, b"\n".join(LINES[:2])],
}
