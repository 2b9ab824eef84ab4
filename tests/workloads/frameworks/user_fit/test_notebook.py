"""Notebooks as scripts: cells, magics and lines."""

import json

import pytest

from workloads.frameworks.user_fit import notebook


def code(source) -> dict:
    return {"cells": [{"cell_type": "markdown"}, {"cell_type": "code", "source": source}]}


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (b"hello", "it is not JSON in UTF-8"),
        (b"", "it is not JSON in UTF-8"),
        (b"\xff\xfe{}", "it is not JSON in UTF-8"),
        (b"[" * 100_000, "it is not JSON in UTF-8"),
        ([], "its JSON is not an object"),
        ({"nbformat": 4}, "it has no list of cells"),
        ({"cells": {}}, "it has no list of cells"),
        ({"worksheets": {}}, "its worksheets are not a list"),
        ({"worksheets": [3]}, "it has no list of cells"),
        ({"cells": [3]}, "one of its cells is not an object"),
        (code(3), "the source of code cell 1 is not text"),
        (code([1, 2]), "the source of code cell 1 is not text"),
        ({"cells": [{"cell_type": "code"}]}, "the source of code cell 1 is not text"),
        (code("a\0b"), "characters that Python does not take"),
        (code("x = '\ud800'"), "characters that Python does not take"),
        ({"metadata": {"kernelspec": {"language": "R"}}, "cells": []}, "its language is R"),
    ],
)
def test_a_file_that_is_no_notebook_says_why(document, why):
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    with pytest.raises(notebook.NoNotebook, match=why):
        notebook.code_cells(content)


def test_cells_of_both_formats_of_notebooks_are_read():
    third = {"worksheets": [{"cells": [{"cell_type": "code", "input": ["x = 1\n", "y = 2"]}]}, {"cells": []}]}
    for document, text in ((code(["x = 1\n", "y"]), "x = 1\ny"), (code("x"), "x"), (third, "x = 1\ny = 2")):
        content = json.dumps(document).encode()
        assert notebook.code_cells(content) == notebook.code_cells(b"\xef\xbb\xbf" + content) == [text]
    assert notebook.code_cells(b'{"cells": [{"source": 3}], "metadata": []}') == []


def test_magics_keep_a_cells_line_numbers():
    source = "%matplotlib inline\nif new:\n    !pip install keras"
    assert notebook.python_of_cell(source) == "pass\nif new:\n    pass"
    assert notebook.python_of_cell("%%time\nx = 7 % 3") == "pass\nx = 7 % 3"
    assert notebook.python_of_cell("%%bash\nls") == notebook.python_of_cell("") == ""
