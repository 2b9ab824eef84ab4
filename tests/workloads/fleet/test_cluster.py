"""A fleet's run: with a made-up engine, one node's suite in its own process, and three nodes of a real cluster, one of which is
killed halfway."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import types

import fake_measurements as fake
import msgspec
import pytest
from fake_fleet import reads, write

from analysis.fleet import devices, judgment
from analysis.text import machines as fleet_words
from kernels.problems import Peak
from workloads import ROOT, options, records, suite
from workloads.fleet import cluster
from workloads.fleet import nodes as fleet
from workloads.fleet.cluster import Node
from workloads.harness import sweep
from workloads.machine import processes
from workloads.records import Measurement, Row, Settings
from workloads.records.messages import ChildFailure, Doing, Done
from workloads.suite_parts import suite_steps

LISTED = {"NodeID": "0" * 56, "Alive": True, "NodeName": "10.0.0.1", "Resources": {"CPU": 8.0, "GPU": 2.0}}
LISTED |= {"NodeManagerHostname": "gpu box", "NodeManagerAddress": "10.0.0.1"}


def test_nodes_and_the_newest_cluster_are_named(tmp_path, monkeypatch):
    listed = [
        LISTED,
        {**LISTED, "NodeID": "1" * 56},
        {**LISTED, "NodeID": "2" * 56, "NodeName": "rack 2/a"},
        {**LISTED, "NodeID": "3" * 56, "Alive": False},
    ]
    seen = cluster.nodes(listed)
    expected = [("gpu-box", 8.0, 2.0), ("gpu-box", 8.0, 2.0), ("rack-2-a", 8.0, 2.0)]
    assert [(n.name, n.cpus, n.gpus) for n in seen] == expected
    assert [n.name for n in cluster.with_distinct_names(seen)] == ["gpu-box-00000000", "gpu-box-11111111", "rack-2-a"]
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    assert cluster.current() == ""
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("127.0.0.1:1\n")
    assert cluster.current() == ""  # it was killed and its note stayed
    monkeypatch.setattr(cluster, "answers", lambda address: address == "127.0.0.1:1")
    assert cluster.current() == "127.0.0.1:1"


@pytest.mark.slow
def test_a_missing_address_cluster_or_ray_is_explained(monkeypatch, capsys):
    pytest.importorskip("ray")
    for address, error in (("ray://head:10001", "Ray Client"), ("nonsense", "is no address of a cluster")):
        with pytest.raises(options.Usage, match=error):
            cluster.connect(address, print)
    assert suite.main(["--ray", "127.0.0.1:1"]) == 3
    said = capsys.readouterr().err
    assert "no Ray cluster answers at 127.0.0.1:1" in said and "ray start --head" in said
    monkeypatch.setitem(sys.modules, "ray", None)
    assert suite.main(["--ray", "auto"]) == 3
    assert "Ray is not installed" in (said := capsys.readouterr().err) and "-m pip install 'ray>=2.59'" in said


STARTS = """
import os, sys
from workloads.fleet import cluster
ray = cluster.connect("auto", print)
print(ray.get_runtime_context().gcs_address, os.environ["RAY_AUTH_TOKEN"], flush=True)
sys.stdin.read()
ray.shutdown()
"""
CONNECTS = """
import sys, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
print("nodes:", len(ray.nodes()))
"""


@pytest.mark.slow
def test_our_own_cluster_refuses_a_wrong_token():
    pytest.importorskip("ray")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    short = tempfile.mkdtemp(prefix="ray-")  # Ray's sockets lie in it, and their paths have at most 107 bytes
    clean["RAY_TMPDIR"] = short
    piped = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    ours = subprocess.Popen([sys.executable, "-c", STARTS], cwd=ROOT, env=clean, start_new_session=True, **piped)
    logins = {}
    try:
        assert ours.stdout.readline() == "no Ray cluster runs here: a local one is started for this run\n"
        address, token = ours.stdout.readline().split()
        for who, variables in (
            ("with it", {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}),
            ("with another", {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}),
            ("without", {"RAY_AUTH_MODE": "disabled"}),
        ):
            command = [sys.executable, "-c", CONNECTS, address]
            done = subprocess.run(command, env={**clean, **variables}, capture_output=True, text=True, timeout=120)
            logins[who] = done.returncode == 0 and "nodes: 1" in done.stdout
    finally:
        ours.communicate("", timeout=60)
        processes.end_group(ours)
        shutil.rmtree(short, ignore_errors=True)
    assert logins == {"with it": True, "with another": False, "without": False}


def exit_code(*parts, stopped="") -> int:
    is_lost = any(part.lost for part in parts)
    return fleet.exit_code([part.counts() for part in parts], is_lost=is_lost, stopped_by=stopped)


RayError = type("RayError", (Exception,), {})
Died, Late = (type(name, (RayError,), {}) for name in ("Died", "Late"))


class Stream_:
    """What a node's files grow by, as a streaming task has it: an exception is raised when asked for, None is silence."""

    def __init__(self, given):
        self._left = list(given)

    def ready(self) -> bool:
        return not self._left or self._left[0] is not None

    def __next__(self):
        if not self._left:
            raise StopIteration
        return self._left.pop(0)


class Engine:
    """A stand-in for ray. A task on a node is its Stream_, a greeting the node's id."""

    exceptions = types.SimpleNamespace(RayError=RayError, NodeDiedError=Died, GetTimeoutError=Late)

    def __init__(self, lines: dict[str, list], greetings: dict | None = None):
        self._streams, self._greetings = {node: Stream_(given) for node, given in lines.items()}, greetings or {}
        self.cancelled: list = []
        self.held: dict[str, dict] = {}

    def remote(self, function):
        def options(scheduling_strategy, **how):
            self.held[scheduling_strategy] = how
            answer = self._streams[scheduling_strategy] if function is cluster.measure_node else scheduling_strategy
            return types.SimpleNamespace(remote=lambda *args: answer)

        return types.SimpleNamespace(options=options)

    def wait(self, asked, **how):
        ready = [one for one in asked if isinstance(one, str) or one.ready()]
        return ready[: how["num_returns"]], []

    def get(self, ref, timeout=None):
        value = self._greetings[ref] if isinstance(ref, str) else ref
        if isinstance(value, Exception):
            raise value
        return value

    def nodes(self):
        return []

    def cancel(self, stream, force):
        self.cancelled.append(stream)


@pytest.fixture
def placed(monkeypatch):
    monkeypatch.setattr(cluster, "on", lambda node: node.id)
    monkeypatch.setattr(fleet, "_POLL_S", 0.0)


ROWS = [Row("peak/numba/fma", Peak("float64", 2**20 * i), Settings(threads=1)) for i in (1, 2, 3)]
HERE = fake.run(fake.CPU_MACHINE)


def encoded(*lines) -> bytes:
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


PLAN = ("plan.json", encoded(fleet.NodePlan(HERE, {"peak": ROWS})))
BEGAN = ("peak.jsonl", encoded(HERE))


def measured(row: Row) -> Measurement:
    return row.result("ok", samples=(fake.samples(1e-3),))


def took(row: Row) -> tuple[str, bytes]:
    return "peak.jsonl", encoded(measured(row))


def by_row(folder, files: dict[str, list], limit_s: float = 60.0, seen=lambda part, line: None, stopped=()):
    parts = [fleet.NodeRun(Node(name, name, 2.0, 0.0), folder) for name in files]
    ray = Engine(files)
    fleet.measure_all(ray, parts, b"", limit_s, show=seen, stopped=stopped)
    return ray, parts


def test_a_dying_node_loses_only_its_rows(tmp_path, placed):
    lines = {"n1": [PLAN, BEGAN, *map(took, ROWS)], "n2": [PLAN, BEGAN, took(ROWS[0]), Died("gone")]}
    ray, (one, two) = by_row(tmp_path, lines)
    assert ray.held["n1"]["num_cpus"] == 2 and ray.held["n1"]["max_retries"] == 0
    assert one.counts() == {"ok": 3} and not one.lost and two.counts() == {"ok": 1, "lost": 2}
    stored = records.read(tmp_path / "n2").measurements
    assert [(m.status, m.reason, m.flags) for m in stored[1:]] == [("failed", "lost: n2 died", ("lost",))] * 2
    assert [exit_code(*parts) for parts in ([one, two], [one], [])] == [1, 0, 3]
    told = fleet_words.lines(judgment.judge(devices.devices(tmp_path), []))
    assert "the CPU of n2: 2 rows lost: n2 died" in told


def test_lost_and_torn_rows_are_measured_by_resuming(tmp_path, placed):
    by_row(tmp_path, {"n1": [PLAN, BEGAN, took(ROWS[0]), Died("gone")]})
    part = fleet.NodeRun(Node("n1", "n1", 2.0, 0.0), tmp_path)
    kept = records.decode(part.earlier["peak.jsonl"].splitlines()).measurements
    assert [(m.key, m.status) for m in kept] == [(ROWS[0].key, "ok"), *((row.key, "failed") for row in ROWS[1:])]
    _, (part,) = by_row(tmp_path, {"n1": [PLAN, BEGAN, *map(took, ROWS[1:])]})
    assert part.counts() == {"ok": 3}
    assert {m.status for m in records.read(tmp_path).measurements} == {"ok"}
    tmp_path /= "torn"
    by_row(tmp_path, {"n1": [PLAN, BEGAN, took(ROWS[0])]})
    file = tmp_path / "n1" / "peak.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole + encoded(measured(ROWS[1]))[:40])
    _, (part,) = by_row(tmp_path, {"n1": [PLAN, BEGAN, *map(took, ROWS[1:])]})
    assert part.earlier == {"peak.jsonl": whole} and part.counts() == {"ok": 3}
    assert records.read(tmp_path).bad_lines == 0


def test_a_node_that_says_nothing_is_given_up(tmp_path, placed):
    ray, (one, two) = by_row(tmp_path, {"n1": [PLAN, BEGAN, took(ROWS[0]), None], "n2": [None]}, 0.05)
    assert one.lost == "n1 said nothing for 0.05 s" and one.counts()["lost"] == 2
    assert two.lost == "n2 did not begin (others hold its CPUs and GPUs, or it hangs) within 0.05 s"
    assert len(ray.cancelled) == 2


def test_a_signal_ends_the_gathering_and_loses_nothing(tmp_path, placed):
    def kill(part, line):
        os.kill(os.getpid(), signal.SIGINT)

    said = ("messages.ndjson", encoded(Doing(words="a row", visit=1)))
    stopped: list[str] = []
    with sweep.signals(stopped.append):
        ray, (part,) = by_row(tmp_path, {"n1": [PLAN, BEGAN, took(ROWS[0]), said, None]}, seen=kill, stopped=stopped)
    assert stopped == ["SIGINT"] and len(ray.cancelled) == 1
    assert part.counts() == {"ok": 1, "to go": 2} and exit_code(part, stopped="SIGINT") == 130


def test_a_failed_write_ends_that_node_alone(tmp_path, placed):
    (tmp_path / "n1").touch()
    said = []
    ray, _ = by_row(tmp_path, {"n1": [PLAN, BEGAN, None]}, seen=lambda part, line: said.append(line))
    assert said == [f"cannot write {tmp_path / 'n1' / 'peak.jsonl'}: File exists"] and len(ray.cancelled) == 1
    tmp_path /= "other"
    write(tmp_path / "n1", fake.with_gpus("GPU-a"), reads("gpu:0"))
    plan, said = ("plan.json", encoded(fleet.NodePlan(fake.run(fake.with_gpus("GPU-b")), {}))), []
    ray, _ = by_row(tmp_path, {"n1": [plan, None]}, seen=lambda part, line: said.append(line))
    assert len(ray.cancelled) == 1 and said == [f"{tmp_path / 'n1'} was measured on other GPUs; leave --resume out"]


def test_nodes_of_another_version_are_left_out(placed):
    import platform

    ours = {"sources": records.source_hash(), "python": platform.python_version(), "boot": "b1"}
    said: list[str] = []
    absent = ModuleNotFoundError("No module named 'workloads'")
    greetings = {"a": ours, "b": {**ours, "sources": "0123"}, "c": Late(), "d": absent, "e": ours}
    kept = cluster.usable(Engine({}, greetings), [Node(n, n, 1.0, 0.0) for n in "abcde"], said.append, 9.0)
    assert [node.name for node in kept] == ["a", "e"]
    assert said[0] == f"b (b) left out: its sources are 0123, here {ours['sources']}: bring both to one version"
    assert said[1:3] == ["c (c) left out: it did not answer within 9 s", "d (d) left out: No module named 'workloads'"]
    assert said[3] == "a, e are one machine: they measure at the same time and disturb each other"


def test_a_folder_with_results_needs_resume(tmp_path):
    write(tmp_path / "run" / "n1", fake.with_gpus("GPU-a"), reads("gpu:0"))
    folder = str(tmp_path / "run")
    with pytest.raises(records.Refused, match="add --resume"):
        fleet.run_folder(folder, resume=False)
    assert fleet.run_folder(folder, resume=True) == tmp_path / "run"


@pytest.mark.parametrize("flags", [["--format", "json"], ["--against", "x"], ["--only", "nope"]])
def test_impossible_fleet_commands_are_refused_before_starting(flags, capsys):
    assert suite.main(["--ray", "auto", *flags]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_one_node_measures_what_is_missing(monkeypatch):
    """Ray tells it to use as many threads as the task has CPUs, which here is 1; that does not reach what is measured."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    words = shlex.split("--ray auto --only peak --max-time 0.01 --min-time 0.001 --threads 1")

    def copied(kept: dict, *more: str) -> dict[str, bytes]:
        files: dict[str, bytes] = {}
        for name, text in cluster.measure_node(encoded([*words, *more]), kept, 1):
            files[name] = files.get(name, b"") + text
        return files

    planned = copied({}, "--dry-run")
    plan = msgspec.json.decode(planned.pop("plan.json"), type=fleet.NodePlan)
    gpus = plan.run.machine.gpus
    assert list(plan.rows) == ["peak"] and len(plan.rows["peak"]) >= 2
    assert planned.pop("messages.ndjson") == encoded(Done())
    assert list(planned) == ([] if gpus else ["suite.log"])
    known = encoded(plan.run, *map(measured, plan.rows["peak"][1:]))
    files = copied({"peak.jsonl": known})
    decoded = records.decode(files["peak.jsonl"].splitlines())
    assert [(m.key, m.status) for m in decoded.measurements] == [(plan.rows["peak"][0].key, "ok")]
    assert not decoded.bad_lines
    assert [run.command for run in decoded.runs] == [shlex.join(["python", "-m", "workloads.suite", *words])]
    assert ["OMP_NUM_THREADS" in run.method.thread_variables for run in decoded.runs] == [False]
    begun, *_, done = [msgspec.json.decode(line, type=Doing | Done) for line in files["messages.ndjson"].splitlines()]
    assert begun.visit == 1 and done == Done()
    (failed,) = [text for name, text in cluster.measure_node(b"{\n", {}, 1) if name == "messages.ndjson"]
    assert msgspec.json.decode(failed, type=Done).error.message.startswith("json.decoder.JSONDecodeError: ")


def test_a_killed_suite_ends_with_its_signal(monkeypatch):
    kill = "import os, sys; print('no luck', file=sys.stderr, flush=True); os.kill(os.getpid(), 9)"
    monkeypatch.setattr(cluster, "_SUITE", kill)
    *_, (file, text) = cluster.measure_node(b"[]\n", {}, 1)
    error = msgspec.json.decode(text, type=Done).error
    assert (file, error.exit, error.message) == ("messages.ndjson", -9, "its suite ended with signal 9: no luck")


def test_a_failed_suite_loses_its_rows(tmp_path, placed, monkeypatch):
    alive = [{"NodeID": "n1", "Alive": True}]
    monkeypatch.setattr(Engine, "nodes", lambda self: alive)
    failed = ("messages.ndjson", encoded(Done(error=ChildFailure(message="no space left"))))
    _, (part,) = by_row(tmp_path, {"n1": [PLAN, BEGAN, took(ROWS[0]), failed]})
    assert part.lost == "n1: no space left" and part.counts() == {"ok": 1, "lost": 2}


def test_a_host_measures_all_its_gpus_together(tmp_path):
    def files(count: int, *argv: str) -> dict[str, int]:
        here = fake.with_gpus(*(f"GPU-{i}" for i in range(count)))
        found = {}
        for part in suite_steps.planned_steps(suite.parse(["--ray", "auto", *argv]), here, True):
            if part.name == "peers":
                found |= part.plan.rows_by_file(here)
        return {file: len(rows) for file, rows in found.items()}

    assert files(2) == files(1, "--device", "all") == {}
    both = files(2, "--device", "all")
    assert both["at-once"] == 13 * 2 * 2 and both["peers"] > 0, "13 kinds of work, alone and at once, on two"
    assert files(2, "--device", "all", "--only", "peers") == both
    with pytest.raises(options.Usage, match="peers takes several GPUs"):
        files(1, "--device", "all", "--only", "peers")


_CLUSTER = """
import json, os, sys
from ray.cluster_utils import Cluster
from workloads import suite
from workloads.fleet import nodes

small = {"num_cpus": 1, "object_store_memory": 80 << 20}
cluster = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False, "node_name": "node-1"})
others = [cluster.add_node(**small, node_name=f"node-{i}") for i in (2, 3)]
take, killed = nodes.NodeRun.receive, []

def kill_after_the_first_row(part, name, text):
    if part.node.id == others[1].node_id:  # more rows than one may come at once
        head, ok, rest = text.partition(b'"samples"')
        text = head + ok + rest[: rest.find(b"\\n") + 1] if not killed else b""
        if ok and not killed:
            killed.append(True)
            cluster.remove_node(others[1], allow_graceful=False)
    take(part, name, text)

nodes.NodeRun.receive = kill_after_the_first_row
try:
    code = suite.main(["--ray", cluster.address, "--only", "peak", "--fast", "--max-time", "0.3", "--min-time", "0.1",
                       "--threads", "1", "--ray-timeout", "40", "-o", sys.argv[1]])
finally:
    cluster.shutdown()
sys.exit(code)
"""


@pytest.mark.slow
def test_three_real_nodes_survive_one_killed_halfway(tmp_path):
    """In a process of its own, as Ray leaves threads and handlers behind."""
    pytest.importorskip("ray")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
    words = [sys.executable, "-c", _CLUSTER, str(tmp_path / "run")]
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 1, done.stderr[-2000:]
    rows = {p.name: records.read(p).measurements for p in sorted((tmp_path / "run").iterdir())}
    assert set(rows) == {"node-1", "node-2", "node-3"}, done.stderr[-2000:]
    assert {m.status for name in ("node-1", "node-2") for m in rows[name]} == {"ok"}
    assert {m.key for m in rows["node-3"]} == {m.key for m in rows["node-1"]} and rows["node-3"][0].status == "ok"
    lost = [m for m in rows["node-3"] if m.status != "ok"]
    assert lost and {(m.reason, m.flags) for m in lost} == {("lost: node-3 died", ("lost",))}
    assert "node-1, node-2, node-3 are one machine" in done.stderr and "--resume" in done.stderr
