"""The one Table: which columns a terminal shows and how wide; what Markdown is made of."""

import pytest

from analysis import table
from analysis.table import Table


@pytest.mark.parametrize(
    ("most", "least", "widths"),
    [
        (0, (), {0: 10, 1: 5, 2: 20}),
        (39, (), {0: 10, 1: 5, 2: 20}),
        (38, (), {0: 9, 1: 5, 2: 20}),  # the first head wraps
        (34, (), {0: 5, 1: 5, 2: 20}),
        (30, (), {0: 5, 1: 5, 2: 16}),  # the words wrap
        (24, (), {0: 5, 1: 5, 2: 10}),
        (23, (), {0: 5, 2: 16}),  # the column before the last goes; the room is first for cells, then for heads
        (33, "count", {0: 10, 2: 20}),
        (34, "count", {0: 5, 1: 5, 2: 20}),
    ],
)
def test_columns_shrink_wrap_and_go_in_this_order(most, least, widths):
    """Cells of 4, 3 and 20 columns under heads of 10 (5 wrapped), 5 and 4; two spaces between columns."""
    made = Table("alpha beta | count | note", last=True, least=least)
    assert made.fitted((4, 3, 20), most) == widths


def test_words_align_left_numbers_right():
    rows = [("ab", 5, "one two three four five"), ("c", 12, "x")]
    shown = Table("name | n | notes", rows, last=True).text(24)
    assert shown == [
        "name   n  notes",
        "ab     5  one two three",
        "          four five",
        "c     12  x",
    ]
    assert Table("name | n | notes", rows, last=True).md()[1] == "| --- | ---: | --- |"


def test_a_lost_column_gives_each_cell_a_line():
    made = Table("model | seconds on the CPU | seconds on the GPU", [("lenet", "123456789", "-"), ("vgg", "1", "2")])
    assert made.text(14) == ["lenet", "  seconds on", "  the CPU:", "  123456789", "vgg", *made.text(14)[5:]]
    assert made.text(14)[-1].split()[-1] == "2" and "lenet" in made.text(60)[1]


def test_optional_empty_columns_are_left_out():
    rows = [("a", "-", "1", ""), ("b", "", "2", "-")]
    made = Table("name | kind | n | doubt", rows, 2, "kind | doubt")
    assert (made.heads, made.rows) == (["name", "n"], [["a", "1"], ["b", "2"]])
    assert made.md()[1] == "| --- | ---: |"
    assert Table("name | kind | n", [("a", "k", "1")], 2, "kind").heads == ["name", "kind", "n"]


def test_markdown_of_sentences_and_tables():
    assert table.shown(["said", Table("a | b", [("x", 1)])], markdown=True) == [
        "said",
        "| a | b |",
        "| --- | ---: |",
        "| x | 1 |",
    ]


@pytest.mark.parametrize(
    ("value", "written"),
    [("=1+1", "'=1+1"), ("-5", "-5"), ("+1e-3", "+1e-3"), ("-x", "'-x"), ("a=b", "a=b"), (-2.5, -2.5), ("@", "@")],
)
def test_what_a_spreadsheet_would_run_gets_an_apostrophe(value, written):
    assert table.cell(value) == written


def test_an_empty_first_column_keeps_numbers_right():
    made = Table("name | note | n", [("x", "-", 1)], 1, "note")
    assert made.md()[:2] == ["| name | n |", "| --- | ---: |"]
