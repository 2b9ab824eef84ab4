"""Blocks: the Markdown of each, and parts of a section that are left out."""

from analysis.blocks import BulletList, Heading, ListItem, Paragraph, TableBlock, listed, markdown, tabled, titled
from analysis.table import Table

TABLE = Table("a|b | n", [("x", 1)])


def test_each_blocks_markdown_shows_its_text():
    items = (ListItem(text="one `code`"), ListItem(text="two", below=("<under>",)))
    blocks = [
        Heading(text="run <1>"),
        Paragraph(text="a | b"),
        BulletList(items=items),
        TableBlock(table=TABLE, caption="Of one kind"),
        TableBlock(table=TABLE),
    ]
    table = ["| a|b | n |", "| --- | ---: |", "| x | 1 |", ""]
    assert markdown(blocks) == [
        *("### run &lt;1&gt;", "", "a \\| b", ""),
        *("- one `code`", "- two", "  - &lt;under&gt;", ""),
        *("Of one kind:", "", *table),
        *table,
    ]


def test_empty_lists_tables_and_sections_vanish():
    empty = Table("a", [])
    assert listed([]) == tabled(empty) == titled("Head", "words", empty) == titled("Head", "words", []) == []
    assert titled("Head", "words", TABLE) == [
        Heading(text="Head"),
        Paragraph(text="words"),
        TableBlock(table=TABLE),
    ]
    assert titled("Head", listed(["a"])) == [Heading(text="Head"), BulletList(items=(ListItem(text="a"),))]
