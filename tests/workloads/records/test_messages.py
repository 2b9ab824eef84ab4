"""How a child process fails in JSON: every field of its error comes out at its parent."""

import msgspec
import pytest

from workloads import options
from workloads.records.messages import ChildFailure, Failed, failure

FIELDS = ["message", "wrong", "right", "similar", "tip", "first"]
STOPS = [
    options.Usage("no function buld", "python -m x", wrong="own:buld", right="own:build", similar="model"),
    options.Usage("a word lacks", wrong=None, right="--model"),
    options.Missing("too slow", "python -m pip install y", wrong="--time-limit", right="--time-limit 300"),
    options.Usage("no Python", wrong="own:build", first="mend the file"),
]


@pytest.mark.parametrize("stop", STOPS, ids=str)
def test_each_field_of_an_error_survives(stop):
    line = msgspec.json.encode(Failed(error=failure(stop)))
    assert list(msgspec.json.decode(line)["error"]) == [*FIELDS, "exit"]
    again = msgspec.json.decode(line, type=Failed).error.stop("-h")
    assert type(again) is type(stop) and (str(again), again.code) == (str(stop), stop.code)
    assert (again.wrong, again.right, again.similar) == (stop.wrong, stop.right, stop.similar)
    assert again.first == stop.first
    assert again.tip == (stop.tip or "-h")


def test_any_other_error_is_its_name_and_message():
    assert failure(KeyError(3)) == ChildFailure(message="KeyError: 3", exit=options.FAILED)
    assert type(failure(KeyError(3)).stop()) is options.Missing
