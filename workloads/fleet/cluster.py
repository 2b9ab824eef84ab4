"""A Ray cluster, a running one or one started here: its nodes that can run the suite, and the task that runs it on one."""

import contextlib
import importlib.util
import os
import platform
import re
import secrets
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from workloads import ROOT, options, records
from workloads.machine import processes
from workloads.records.messages import ChildFailure, Done

if TYPE_CHECKING:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

# Beside the result files in a node's folder: what its suite prints, its messages (workloads.records.messages), its plan.
LOG = "suite.log"
MESSAGES = "messages.ndjson"
PLAN = "plan.json"
_SUITE = "import sys; from workloads import suite; sys.exit(suite.on_node(sys.argv[1]))"
_COPIED_EVERY_S = 1.0
AUTO = "python -m workloads.suite --ray auto"
_LOGIN_SINCE = (2, 59)  # the Ray whose documentation has the log-in by token for a local cluster
_INSTALL = "-m pip install 'ray>=2.59'"
_PORT = 6379  # on which `ray start --head` listens
_ANSWERS_S = 5.0  # a cluster that does not take a connection within this is not there
_GREETING_S = 120.0
_MOST_CHARACTERS = 300  # of an error of Ray or of a node
_CURRENT = "ray/ray_current_cluster"  # where Ray notes the address of the cluster started last, as ray.init documents
_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}  # of ray.init: Ray prints errors alone
_ALIKE = ("sources", "python")  # what must be the same on every node


class Node(msgspec.Struct, frozen=True):
    """A node of the cluster."""

    #: Its name in the run's folder.
    name: str
    #: Ray's id of it.
    id: str
    #: CPUs that Ray counts on it.
    cpus: float
    #: GPUs that Ray counts on it.
    gpus: float


def nodes(listed: list[dict]) -> list[Node]:
    """The nodes that are alive, sorted by name. listed: what ray.nodes() gives."""
    alive = []
    for entry in listed:
        if entry["Alive"]:
            resources = entry["Resources"]
            node = Node(
                name=_folder_name(entry),
                id=entry["NodeID"],
                cpus=resources.get("CPU", 0.0),
                gpus=resources.get("GPU", 0.0),
            )
            alive.append(node)
    return sorted(alive, key=lambda node: (node.name, node.id))


def with_distinct_names(nodes: list[Node]) -> list[Node]:
    """The nodes, where several share a name with the start of their node id added to it."""
    nodes_of_a_name = Counter(node.name for node in nodes)
    distinct = []
    for node in nodes:
        if nodes_of_a_name[node.name] > 1:
            node = replace(node, name=f"{node.name}-{node.id[:8]}")
        distinct.append(node)
    return distinct


def _folder_name(node: dict) -> str:
    """The name of a node's folder: the name that it was started with, else its host's. node: an entry of ray.nodes(), which has
    the node's address as the name of one that was started without."""
    has_name = node["NodeName"] not in ("", node["NodeManagerAddress"])
    name = node["NodeName"] if has_name else node["NodeManagerHostname"]
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.") or "node"


def greet() -> dict[str, str]:
    """Called by Ray on a node before it gets work: the project's version there (a hash of its sources), Python's, and an id
    of the machine's last start, which nodes on the same machine share."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return {
        "sources": records.source_hash(),
        "python": platform.python_version(),
        "boot": boot.read_text().strip() if boot.exists() else "",
    }


def measure_node(order: bytes, earlier: dict[str, bytes], cpus: int) -> Iterator[tuple[str, bytes]]:
    """Called by Ray on a node, in a task that has the whole node: runs the suite in a temporary folder there, and yields about
    every second what its files grew by, as (name of the file, whole lines). The last message is a Done.

    order: the words of the suite's command, a line of JSON. earlier: name -> content of the result files of a run to resume.
    cpus: how many CPUs the task has.
    """
    with tempfile.TemporaryDirectory(prefix="crossover-") as name:
        folder = Path(name)
        sent_bytes: dict[str, int] = {}  # file -> how much of it the caller has
        for file, text in earlier.items():
            (folder / file).write_bytes(text)
            sent_bytes[file] = len(text)
        child = _start_suite(folder, cpus)
        assert child.stdin
        try:
            with contextlib.suppress(BrokenPipeError):  # it died at once; its exit code says how
                child.stdin.write(order)
                child.stdin.flush()
            code = None
            while code is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = child.wait(_COPIED_EVERY_S)
                for path in sorted(folder.glob("*.*")):
                    begin = sent_bytes.get(path.name, 0)
                    new = path.read_bytes()[begin:]
                    whole_lines = new[: new.rfind(b"\n") + 1]  # the last line may be half written
                    if whole_lines:
                        sent_bytes[path.name] = begin + len(whole_lines)
                        yield path.name, whole_lines
            if code:
                yield MESSAGES, msgspec.json.encode(Done(error=_failure(folder, code))) + b"\n"
        finally:
            processes.end_group(child)
            with contextlib.suppress(BrokenPipeError):
                child.stdin.close()


def _start_suite(folder: Path, cpus: int) -> subprocess.Popen:
    """Starts the suite's process. It reads its command from stdin and writes result files, log and messages into the folder.

    cpus: how many CPUs Ray's task has.
    """
    variables = dict(os.environ)
    if variables.get("OMP_NUM_THREADS") == str(cpus):
        del variables["OMP_NUM_THREADS"]  # Ray sets it; libraries are to choose their threads as they do without Ray
    with (folder / LOG).open("wb") as log, (folder / MESSAGES).open("wb") as messages:
        return subprocess.Popen(
            [sys.executable, "-c", _SUITE, str(folder)],
            cwd=ROOT,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=messages,
            stderr=log,
            start_new_session=True,
        )


def _failure(folder: Path, code: int) -> ChildFailure:
    """The failure of a suite, with the last line of its log. code: how its process ended; below 0 by the signal -code."""
    log_lines = (folder / LOG).read_text(errors="replace").strip().splitlines()
    last_line = log_lines[-1][:_MOST_CHARACTERS] if log_lines else "it said nothing"
    ending = f"signal {-code}" if code < 0 else f"exit code {code}"
    return ChildFailure(message=f"its suite ended with {ending}: {last_line}", exit=code)


def current() -> str:
    """HOST:PORT of the cluster that runs on this machine: $RAY_ADDRESS, else the one that was started last if it still answers;
    "" for none."""
    address = os.environ.get("RAY_ADDRESS")
    if address:
        return address
    note = Path(os.environ.get("RAY_TMPDIR") or "/tmp") / _CURRENT
    last_address = note.read_text().strip() if note.is_file() else ""
    return last_address if last_address and answers(last_address) else ""


def answers(address: str) -> bool:
    """Whether something takes a connection at an address HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=_ANSWERS_S):
            return True
    except (OSError, ValueError, OverflowError):
        return False


def connect(address: str, note: Callable[[str], None]) -> ModuleType:
    """Connects this process to a Ray cluster. Returns the module `ray`, whose functions then act on the cluster.

    address: HOST:PORT, or `auto` for the cluster that runs on this machine, else a new one of this machine alone. note: prints a
    line for the user.

    Raises: Missing without Ray and where no cluster answers; Usage for what is no address.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if importlib.util.find_spec("ray") is None:
        raise options.Missing("Ray is not installed", tip=f"{options.python()} {_INSTALL}")
    _require_address(address)
    cluster_address = current() if address == "auto" else address
    if not cluster_address:
        note("no Ray cluster runs here: a local one is started for this run")
        return _start_local_cluster()
    no_answer = options.Missing(f"no Ray cluster answers at {cluster_address}", instead=AUTO, first="ray start --head")
    if not answers(cluster_address):
        raise no_answer
    import ray

    try:
        ray.init(address=cluster_address, **_QUIET)
    # What answers is no Ray, or another version of it.
    except (ConnectionError, RuntimeError, ValueError, SystemExit) as error:
        why = str(error).splitlines()[0] if str(error) and not isinstance(error, SystemExit) else ""
        raise options.Missing(f"{no_answer}{': ' + why if why else ''}", tip=no_answer.tip) from error
    return ray


def _require_address(address: str) -> None:
    """Raises Usage for a word that is neither `auto` nor HOST:PORT; of a host alone the error adds Ray's usual port."""
    if address.startswith("ray://"):
        raise options.Usage(
            f"{address} is an address of Ray Client, which carries no streams; name the cluster's own, on one "
            "of its nodes",
            tip=AUTO,
        )
    if address == "auto" or re.fullmatch(r"\[?[\w.:-]+\]?:\d{1,5}", address):
        return
    message = f"{address!r} is no address of a cluster; it is auto or HOST:PORT, such as 10.0.0.1:{_PORT}"
    if re.fullmatch(r"[\w.-]+", address):
        raise options.Usage(message, wrong=address, right=f"{address}:{_PORT}")
    raise options.Usage(message, tip=AUTO)


def _start_local_cluster() -> ModuleType:
    """Starts a cluster of this machine alone and returns the module `ray`, connected to it. As a cluster listens on every network
    of the machine, only who has the token of this run may use it.

    Raises: Missing for a Ray that has no tokens.
    """
    os.environ.pop("RAY_ADDRESS", None)
    # Ray reads both when it is imported; its processes inherit them.
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    import ray

    version = tuple(int(part) for part in ray.__version__.split(".")[:2])
    if version < _LOGIN_SINCE:
        why = f"Ray {ray.__version__} starts a cluster that anybody on the network may use"
        raise options.Missing(why, tip=f"{options.python()} {_INSTALL}")
    ray.init(include_dashboard=False, **_QUIET)
    return ray


def usable(ray: ModuleType, nodes: list[Node], note: Callable[[str], None], limit_s: float) -> list[Node]:
    """The nodes that have the same version of the project and of Python as this machine.

    ray: the module, connected to the cluster. note: prints a line for the user: why a node is left out, and which nodes are one
    machine. limit_s: seconds that a node may take to answer, at most _GREETING_S.
    """
    if not nodes:
        return []
    limit_s = min(limit_s, _GREETING_S)
    ours = greet()
    greetings = {}
    for node in nodes:
        task = ray.remote(greet).options(num_cpus=0, max_retries=0, scheduling_strategy=on(node))
        greetings[node.id] = task.remote()
    ray.wait(list(greetings.values()), num_returns=len(greetings), timeout=limit_s, fetch_local=True)
    usable_nodes: list[Node] = []
    names_by_machine: dict[str, list[str]] = {}  # id of a machine's last start -> its nodes
    for node in nodes:
        machine = node.id
        try:
            theirs = ray.get(greetings[node.id], timeout=0)
            why = _other_version(theirs, ours)
            machine = theirs.get("boot") or node.id
        except ray.exceptions.GetTimeoutError:
            why = f"it did not answer within {limit_s:.0f} s"
        except Exception as error:  # whatever a node's Python raises
            why = first_line(error)
        if why:
            note(f"{node.name} ({node.id[:8]}) left out: {why}")
        else:
            usable_nodes.append(node)
            names_by_machine.setdefault(machine, []).append(node.name)
    for names in names_by_machine.values():
        if len(names) > 1:
            note(f"{', '.join(names)} are one machine: they measure at the same time and disturb each other")
    return usable_nodes


def _other_version(theirs: dict[str, str], ours: dict[str, str]) -> str:
    """Why a node cannot measure the same rows as this machine; "" where it can. theirs, ours: what `greet` returned there and
    here."""
    for fact in _ALIKE:
        if theirs.get(fact) != ours[fact]:
            return f"its {fact} are {theirs.get(fact)}, here {ours[fact]}: bring both to one version"
    return ""


def first_line(error: BaseException) -> str:
    """The line of one of Ray's long errors that says most: the last one that names an exception, else the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    with_exception = [line for line in lines if re.match(r"\w+(\.\w+)*(Error|Exception): ", line)]
    if with_exception:
        return with_exception[-1][:_MOST_CHARACTERS]
    return lines[0][:_MOST_CHARACTERS] if lines else type(error).__name__


def on(node: Node) -> "NodeAffinitySchedulingStrategy":
    """Ray's scheduling strategy that places a task on this node, and on no other when the node is gone."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node.id, soft=False)
