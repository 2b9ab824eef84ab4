"""A traced step from a process or the cache, its page, and its errors."""

import zipfile

import msgspec
import pytest
from fake_measurements import answer

from kernels.networks import Network
from kernels.networks.operations import Amount, Operation, TracedStep
from workloads import describe, options
from workloads.frameworks.tracing import request, user_files
from workloads.frameworks.tracing.answer import CHANGE, FILES, NETWORK
from workloads.harness import worker


def operation(**changes):
    fields = {
        "type": "Tanh",
        "kind": "element-wise",
        "layer": "cell",
        "phase": "forward",
        "inputs": (),
        "outputs": (),
        "flops": Amount(0, 5),
        "bytes_read": Amount(0, 20),
        "bytes_written": Amount(0, 20),
    }
    return Operation(**{**fields, **changes})


OPERATIONS = (
    operation(runs=Amount(7), doubt="a loop ends by the data"),
    operation(scales=False),
    operation(kind="view", flops=Amount(), bytes_read=Amount(), bytes_written=Amount()),
    operation(phase="update", layer="", flops=Amount(100)),
)


@pytest.fixture
def process(monkeypatch, tmp_path):
    """A worker that answers with a step that depends on a file; it counts its orders. `process.reason` lets it fail."""

    class Process:
        file = tmp_path / "model.py"
        orders = []  # noqa: RUF012
        reason = ""
        cause = ""
        change = ""

        def __init__(self, variables):
            pass

        def ask(self, order, timeout_s):
            Process.orders.append(order)
            if Process.reason:
                return answer(
                    order.row,
                    status="failed",
                    reason=Process.reason,
                    cause=Process.cause,
                    notes={CHANGE: Process.change},
                )
            step = TracedStep(model=order.row.problem.model, batch=4, operations=OPERATIONS, doubts=("no targets",))
            files = {str(Process.file): user_files.sha256(Process.file)}
            network = Network(name=step.model, seed="", input=(), classes=1, layers=(), traced=step)
            notes = {NETWORK: msgspec.json.encode(network).decode(), FILES: msgspec.json.encode(files).decode()}
            return answer(order.row, status="ok", notes=notes)

        def close(self):
            pass

    Process.file.write_text("def build(): ...\n")
    Process.orders.clear()
    monkeypatch.setattr(worker, "Worker", Process)
    monkeypatch.setattr(request.grid, "require_keras", lambda: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return Process


def test_a_step_is_traced_until_a_file_changes(process):
    wanted = request.TraceRequest(model="model.py:build", batch=4)
    first = request.traced_network(wanted)
    assert request.traced_network(wanted) == first
    assert len(process.orders) == 1
    process.file.write_text("def build(): return 1\n")
    request.traced_network(wanted)
    request.traced_network(request.TraceRequest(model="model.py:build", batch=8))
    assert len(process.orders) == 3


def test_the_process_gets_batch_and_inputs(process):
    request.traced_network(request.TraceRequest(model="model.py:build", batch=4, data="model.py:data", length=200))
    order = process.orders[0]
    assert (order.verb, order.row.problem.batch) == ("trace", 4)
    assert order.step_inputs == {"data": "model.py:data", "length": "200"}


def test_a_step_is_printed_by_layer_and_kind(process, capsys):
    assert describe.main(["--model", "model.py:build", "--operations", "--batch", "4"]) == options.OK
    lines = capsys.readouterr().out.splitlines()
    # 8 runs of 5 FLOPs and 40 bytes for each of 4 samples; the operation that does not grow evenly counts its fixed part
    assert lines[1].split() == ["cell", "forward", "element-wise", "2", "8", "160", "1,280"]
    assert lines[2].split() == ["(no", "layer)", "update", "element-wise", "1", "1", "100", "160"]
    assert ["element-wise", "3", "9", "260", "1,440"] in [line.split() for line in lines]
    assert ["view", "1", "1", "0", "0"] in [line.split() for line in lines]
    assert lines[-4:] == [
        "model.py:build, a step of 4 samples: 260 FLOPs",
        "1 operations do not grow evenly with the batch: their numbers are those of this batch",
        "not sure: a loop ends by the data (1 operations)",
        "assumed: no targets",
    ]
    assert (
        describe.main(["--model", "model.py:build", "--operations", "--batch", "4", "--format", "json"]) == options.OK
    )
    assert msgspec.json.decode(capsys.readouterr().out, type=Network).traced.operations == OPERATIONS


@pytest.mark.parametrize(
    ("change", "words", "first"),
    [
        ("leave the mask out of compile", (), "leave the mask out of compile"),
        ("", (), "mend model.py"),
        ("", ("--data", "data.py:batches"), "mend data.py"),
    ],
)
def test_a_refusal_says_what_to_change(process, monkeypatch, tmp_path, capsys, change, words, first):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.py").write_text("def batches(): ...\n")
    monkeypatch.setattr(process, "reason", "no step")
    monkeypatch.setattr(process, "change", change)
    assert describe.main(["--model", "model.py:build", "--operations", *words]) == options.USAGE
    error, tried = capsys.readouterr().err.splitlines()
    assert error == "error: no step"
    assert tried.strip().partition(", then: ")[0] == first


@pytest.mark.parametrize(
    ("cause", "code", "hint"),
    [
        ("time-limit", options.MISSING, "--time-limit 300"),
        ("open-size", options.USAGE, "--operations --length 200"),
        ("open-input", options.USAGE, "--operations --data model.py:data"),
    ],
)
def test_a_refusal_is_one_line_with_a_remedy(process, monkeypatch, capsys, cause, code, hint):
    monkeypatch.setattr(process, "reason", "no step")
    monkeypatch.setattr(process, "cause", cause)
    assert describe.main(["--model", "model.py:build", "--operations"]) == code
    error, tried = capsys.readouterr().err.splitlines()
    assert error.endswith("no step")
    assert tried.endswith(hint)


@pytest.mark.parametrize(("words", "mended"), [((), "model.py"), (("--data", "data.py:batches"), "data.py")])
def test_a_process_that_died_is_one_line(process, monkeypatch, tmp_path, capsys, words, mended):
    (tmp_path / "data.py").write_text("def batches(): ...\n")
    monkeypatch.setattr(process, "reason", "its process ended with signal SIGKILL")
    monkeypatch.setattr(process, "cause", "process-ended")
    assert describe.main(["--model", "model.py:build", "--operations", *words]) == options.USAGE
    error, tried = capsys.readouterr().err.splitlines()
    assert error == "error: --model: building model.py:build: its process ended with signal SIGKILL"
    assert tried.startswith(f"  mend {mended}, then: ")
    assert "--model model.py:build" in tried


def test_a_saved_models_data_come_from_another_file(process, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("net.keras", "w") as parts:
        parts.writestr("config.json", "{}")
    monkeypatch.setattr(process, "reason", "no step")
    monkeypatch.setattr(process, "cause", "open-input")
    assert describe.main(["--model", "net.keras", "--operations"]) == options.USAGE
    _, tried = capsys.readouterr().err.splitlines()
    assert tried.startswith("  write a function data that returns (x, y) into data.py, then: ")
    assert tried.endswith("--model net.keras --operations --data data.py:data")


def test_what_a_step_takes_is_for_operations_only(process, capsys):
    assert describe.main(["--model", "model.py:build", "--length", "200"]) == options.USAGE
    error, tried = capsys.readouterr().err.splitlines()
    assert error == "error: --length is for --operations, which is not asked for"
    assert tried.endswith("--length 200 --operations")
