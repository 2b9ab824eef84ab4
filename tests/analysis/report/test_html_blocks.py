"""Blocks in HTML."""

from analysis.blocks import BulletList, Heading, ListItem, Paragraph, TableBlock
from analysis.report import html_blocks
from analysis.table import Table


def test_blocks_become_html_with_escaped_text():
    items = (ListItem(text="one `code` <b> *"), ListItem(text="<i>two</i>", below=("under",)))
    cells = [("a | b", "3.0 µs", "[x](http://y)"), ("c", "-", "![z](http://y)")]
    blocks = [BulletList(items=items), Heading(text="Part"), Paragraph(text="A sentence.")]
    made = html_blocks.html_of([*blocks, TableBlock(table=Table("name | time | ", cells))])
    assert "<h3>Part</h3>" in made and "<li>one <code>code</code> &lt;b&gt; *</li>" in made
    assert "<p>A sentence.</p>" in made
    assert "<summary>&lt;i&gt;two&lt;/i&gt; <small>1</small></summary><ul><li>under</li></ul>" in made
    assert '<td>a | b</td><td class="n">3.0 µs</td><td>[x](http://y)</td>' in made and "<td>![z](http://y)</td>" in made
    assert '<details class="data" open><summary>Part <small>2 rows</small>' in made  # not the sentence again
    one, two = Table("a", [("1",)]), Table("b", [("2",)])
    lead = html_blocks.html_of([Heading(text="Part"), TableBlock(table=one, caption="Of one kind")])
    assert "<summary>Of one kind <small>1 row</small>" in lead
    second = html_blocks.html_of([TableBlock(table=one), TableBlock(table=two)], "The section")
    assert "<summary>The section <small>1 row</small>" in second and "<summary>b <small>1 row</small>" in second
    made = html_blocks.items([ListItem(text=str(i)) for i in range(20)])
    assert "<summary>14 more</summary>" in made
    assert made.index("<li>5</li>") < made.index("<details") < made.index("<li>6</li>")
    assert "open" not in html_blocks.table(("a",), [(i,) for i in range(13)], "many")
    assert " open>" in html_blocks.table(("a",), [(i,) for i in range(12)], "few")
