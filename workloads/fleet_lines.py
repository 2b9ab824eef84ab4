"""What a fleet's nodes and the one who asks them say to each other: an Order there, Lines of JSON back."""

import msgspec

from workloads.records import Measurement, Row, Run


class Order(msgspec.Struct, frozen=True):
    """What a node is asked: the suite's flags, and the text of the rows that it need not measure again, by workload."""

    flags: dict
    command: str
    kept: dict[str, str] = {}
    dry_run: bool = False


class Began(msgspec.Struct, frozen=True, tag="began"):
    """The first Line of a node. gpu_problem: why it has no GPU."""

    run: Run
    gpu_problem: str


class Planned(msgspec.Struct, frozen=True, tag="planned"):
    """The rows of one workload that a node will measure; those that depend on what was seen are not known yet."""

    workload: str
    rows: tuple[Row, ...]


class Took(msgspec.Struct, frozen=True, tag="took"):
    """One row, measured."""

    workload: str
    measurement: Measurement


class Left(msgspec.Struct, frozen=True, tag="left"):
    """A workload that a node cannot run ("": all of them), and why."""

    workload: str
    reason: str


Line = Began | Planned | Took | Left
_lines, _orders = msgspec.json.Decoder(Line), msgspec.json.Decoder(Order)


def encode(message: "Line | Order") -> bytes:
    return msgspec.json.encode(message) + b"\n"


def order(line: bytes) -> Order:
    return _orders.decode(line)


def decode(line: bytes) -> Line:
    return _lines.decode(line)
