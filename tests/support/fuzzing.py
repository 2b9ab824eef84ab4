"""What is fuzzed, and how inputs are made: the words of command lines, result files, what a report is made from.

Each target takes made-up input and must come to an answer or to one of our own errors; any other exception is a bug.
"""

import contextlib
import copy
import functools
import io
import json
import pathlib
import tempfile
from html.parser import HTMLParser

import msgspec
from fake_measurements import cpu_run, gpu_run
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from analysis import checks, export
from analysis.compare import comparison
from analysis.report import html, html_page, material
from analysis.report import page as report_page
from analysis.roofline.frame import frame
from workloads import options, records
from workloads.harness import plan

_WORDS = st.text(st.sampled_from("0123456789:x+,^.-KMGiB eE_aé\x00"), max_size=24)
SIZES = st.lists(st.one_of(_WORDS, st.text(max_size=20)), max_size=4)
_EDGES = [0, 1, 1e-320, 1e-29, 2e-12, 9e8, 9e29, 1e308, -1.0, 2**59, 2**63, 10**40]
NUMBERS = st.one_of(st.integers(-5, 5), st.integers(), st.floats(), st.sampled_from(_EDGES))
DEEP = "nested ten thousand deep"  # a text in whose place the encoded line has as many lists
HOSTILE = ("<img src=x onerror=x>", "[a](evil)", "![a](evil)", "`|**_", "=1+1", "gpu:x", "\n# x")
HOSTILE += ("\u2028</script>", "a" * 999)
ONE = (st.none(), st.booleans(), NUMBERS, st.text(max_size=12), st.sampled_from((DEEP, *HOSTILE)))
ANY = st.one_of(*ONE, st.lists(NUMBERS, max_size=3), st.dictionaries(st.text(max_size=5), NUMBERS, max_size=2))


def _lines() -> list[bytes]:
    """A line of every kind that a file can hold, few enough for a report to take a hundredth of a second."""
    rows: dict[tuple, records.Measurement] = {}
    for loaded in (gpu_run(sizes=(64, 512)), cpu_run(sizes=(64, 512))):
        for m in loaded.measurements:
            kind = m.kernel.rsplit("/", 1)[0], m.settings.device, m.settings.mode, m.status
            rows.setdefault((*kind, getattr(m.problem, "n", 0)), m)
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
        (*HOSTILE, "", "cpu", "gpu:0", "gpu:7", "float16", "tf32", "skipped", "failed", "roundtrip", "cold", "fresh")
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
    runs, rows, bad = records.decode(lines)
    assert len(runs) + len(rows) + bad <= len(lines)
    again = records.decode([msgspec.json.encode(line) for line in (*runs, *rows)])
    assert (again[0], again[1], again[2]) == (runs, rows, 0)
    return records.Loaded(tuple(runs), tuple(rows), bad, ("fuzzed.jsonl",))


def resumed(lines: list[bytes]) -> None:
    """A folder that a sweep goes on in: refused in a line with the file as it was, or every line stays, the new ones after them.
    Only a line of ours that is torn may go."""
    run, _, row = (records.decode([line]) for line in LINES[:3])
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "matmul.jsonl"
        text = b"\n".join(lines)
        path.write_bytes(text)
        before = records.decode(text.split(b"\n"))[1]
        try:
            with contextlib.redirect_stderr(io.StringIO()), records.Writer(path, run[0][0], True) as writer:
                assert writer.done == before
                writer.append(row[1][0])
        except options.Usage as error:
            assert path.read_bytes() == text
            return _one_line(error)
        last = text.rpartition(b"\n")[2]
        torn = last.startswith((b'{"type":"run",', b'{"type":"measurement",')) and records.decode([last])[2] == 1
        assert path.read_bytes().startswith(text.removesuffix(last) if torn else text)
        after = records.read(path).measurements
        assert after[-1] == row[1][0] and {m.key for m in before} <= {m.key for m in after}


class _Tags(HTMLParser):
    """Holds that a page has no tag, link or handler that came out of a result file."""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            assert name != "onerror" and not (name in ("href", "src") and value in ("x", "evil")), (tag, name, value)


def page(lines: list[bytes]) -> None:
    """Everything that is made of a file: both pages, the table, the exports, the checks, a comparison with a sound one."""
    loaded = reader([*LINES, *lines])
    machine, of = loaded.runs[-1].machine, material.Material(loaded)
    text = report_page.markdown([of], False)
    assert text.startswith(("# Where the GPU starts to win: ", "# What was measured: "))
    _Tags().feed(MarkdownIt().enable("table").render(text))
    with tempfile.TemporaryDirectory() as folder:
        _Tags().feed(html.write([of], pathlib.Path(folder) / html.NAME, None).read_text(encoding="utf-8"))
    assert len(frame(loaded.measurements)) == len(loaded.measurements)
    for to in export.TO:
        export.text(loaded, to)
    checks.findings(loaded.measurements, machine)
    comparison.comparison(loaded, reader(LINES))


TARGETS = {"sizes": (SIZES, sizes), "reader": (FILES, reader), "resumed": (PAGES, resumed), "page": (PAGES, page)}

# The same targets on plain bytes, for a fuzzer that is steered by coverage, and what it may begin with.
RAW = {
    "sizes": lambda data: sizes(data.decode(errors="replace").split("\n")),
    "reader": lambda data: reader(data.splitlines()),
}
SEEDS = {
    "sizes": [b"256,512", b"64:8192:x2", b"512:4096:+512", b"2^6:2^13", b"4KiB:256MiB:x4", b"10:23:x1.5", b"3x5x7"],
    "reader": [*LINES, b"\n".join(LINES[:2])],
}
