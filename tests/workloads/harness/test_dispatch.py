"""Orders and errors of a worker."""

import pytest

from workloads.harness import dispatch


@pytest.mark.parametrize(
    ("text", "most", "line"),
    [("one\n two\tthree", 300, "one two three"), ("a" * 50, 10, "a" * 10), ("a\x1b[31mb", 300, "ab"), ("", 300, "")],
)
def test_an_error_is_cut_to_a_printable_line(text, most, line):
    assert dispatch.one_line(ValueError(text), most) == line
