"""The process that times: it takes orders as JSON lines on one file descriptor and gives Measurements on another.

Whatever libraries print goes to a log; the parent's side is the class Worker.
"""

import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time

import msgspec

from kernels.registry import FRAMEWORKS
from workloads import ROOT
from workloads.harness import announce
from workloads.harness.timing import Limits
from workloads.machine import clock, processes
from workloads.records import Measurement, Row, finite, settings
from workloads.records.messages import Doing
from workloads.records.rows import Cause

# What TensorFlow, XLA and CUDA log of themselves: information, warnings, and errors after which they go on.
_LIBRARY = re.compile(r"[IWE]\d{4} \d\d:|\d{4}-\d\d-\d\d .*: [IWE] |WARNING: All log messages before absl")
# TensorFlow then takes a GPU's memory as it needs it. Its trainings alone take all of it when they start, as a user's do.
SHARED = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}


class Order(msgspec.Struct, frozen=True):
    """An order to a worker."""

    #: `measure` a whole row; `visit` it, after which it stays bound; `trace` the step of its training; or a name of
    #: dispatch.HANDLERS.
    verb: str
    #: The row to measure.
    row: Row
    #: Limits of its visits.
    limits: Limits = Limits()
    #: Seed of its inputs.
    seed: int = 1
    #: Number of the visit, from 1.
    visit: int = 0
    #: A planted slow-down of a visit, as timing.visit says.
    handicap: float = 0.0
    #: The inputs of the step to trace.
    step_inputs: dict[str, str] = {}


def environment(row: Row, gpu_uuids: dict[str, str]) -> dict[str, str]:
    """The variables that must be set before the row's libraries are imported. Rows with the same share a worker."""
    visible = row.device
    if visible == "cpu":
        visible = "gpu:0" if row.keras.gpu == "visible" else ""
    gpus = [f"gpu:{i}" for i in row.problem.members] or _spread(visible, row.experiment.replicas)
    uuids = [gpu_uuids.get(gpu, gpu.rpartition(":")[2]) for gpu in gpus]
    wanted = {"CUDA_VISIBLE_DEVICES": ",".join(uuids), "NUMBA_THREADING_LAYER_PRIORITY": "omp tbb workqueue"}
    if row.problem.once:
        wanted |= {"CUPY_CACHE_IN_MEMORY": "1"}  # else the first compilation is read from a file
    if row.backend in FRAMEWORKS:
        wanted |= _framework_variables(row)
    return wanted


def _framework_variables(row: Row) -> dict[str, str]:
    """The variables that TensorFlow, Keras and JAX read when they are imported, and the folder of a user's model."""
    jax = row.library == "jax"
    count = row.experiment.replicas
    wanted = {"KERAS_BACKEND": row.library, "TF_CPP_MIN_LOG_LEVEL": "2"}
    alone = row.on_gpu and row.problem.op == "training" and row.library == "tensorflow" and not row.experiment.companion
    if not alone:
        wanted |= SHARED
    if row.threads:  # TensorFlow reads them once, so that another count needs another worker
        wanted |= {"TF_NUM_INTRAOP_THREADS": str(row.threads), "TF_NUM_INTEROP_THREADS": str(row.threads)}
    wanted |= row.settings.variables
    if jax:
        wanted |= {"JAX_PLATFORMS": "cuda" if row.on_gpu else "cpu", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    float32 = row.problem.products and row.problem.math == "float32"
    if row.on_gpu and (float32 or row.keras.tf32 == "off"):
        wanted["NVIDIA_TF32_OVERRIDE"] = "0"  # TensorFlow keeps plans by shape alone: with TF32 is another process
    if count > 1 and row.on_gpu:
        wanted["NCCL_NVLS_ENABLE"] = "0"  # NVLink's multicast is left to whoever owns the machine
    elif count > 1:  # parts of the CPU in the devices' place
        parts = f"--xla_force_host_platform_device_count={count}"
        wanted |= {"XLA_FLAGS": parts} if jax else {settings.PARTS: str(count)}
    wanted[settings.FOLDER] = os.getcwd()
    return wanted


def _spread(device: str, count: int) -> list[str]:
    """A GPU and those after it, as many as a training is spread over."""
    first = int(device.partition(":")[2] or 0)
    return [f"gpu:{first + i}" for i in range(count)] if device else [""]


class Worker:
    """A worker process with one environment. A worker that dies, hangs or breaks its CUDA context answers with a
    failed Measurement and is started again at the next order. `patient`: an order's time limit begins again with each
    thing that the worker announces."""

    def __init__(self, variables: dict[str, str], patient: bool = False):
        self.variables = variables
        self._patient = patient
        self._process: subprocess.Popen | None = None

    def start(self) -> None:
        """Starts the process, if it is not running; its imports then go on by themselves."""
        if self._process is not None:
            return
        orders_in, self._orders = os.pipe()
        self._answers, answers_out = os.pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self._mark = processes.new_mark()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "workloads.harness.worker", str(orders_in), str(answers_out)],
            cwd=ROOT,
            env={**os.environ, **self.variables, **clock.variables(), "PYTHONPATH": paths, processes.MARK: self._mark},
            pass_fds=(orders_in, answers_out),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        os.close(orders_in)
        os.close(answers_out)
        self._buffer = b""

    def ask(self, order: Order, timeout_s: float) -> Measurement:
        """The answer to an order, even if the process dies or hangs."""
        self.start()
        cause: Cause = ""
        try:
            os.write(self._orders, msgspec.json.encode(order) + b"\n")
            answer = self._answer(timeout_s)
            if "context-lost" in answer.flags:
                self.close()
            return answer
        except TimeoutError:
            reason = f"stopped after its time limit of {timeout_s:.0f} s"
            cause = "time-limit"
        except (BrokenPipeError, EOFError):
            reason = f"its process ended with {self._ending()}{self._last_words()}"
            cause = "process-ended"
        except ValueError as error:
            reason = f"its process answered what cannot be read: {error}"
        self.close()
        return order.row.result("failed", reason, cause=cause)

    def _answer(self, timeout_s: float) -> Measurement:
        """The Measurement that comes next; what the worker announces before it is passed on."""
        deadline = time.monotonic() + timeout_s
        while True:
            message = msgspec.json.decode(self._line(deadline), type=Measurement | Doing)
            if isinstance(message, Measurement):
                return message
            announce.pass_on(message)
            if self._patient:
                deadline = time.monotonic() + timeout_s

    def _line(self, deadline: float) -> bytes:
        """The next line.

        Raises: TimeoutError when time is up; EOFError when the worker is gone.
        """
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._answers], [], [], left)[0]:
                raise TimeoutError
            received = os.read(self._answers, 1 << 16)
            if not received:
                raise EOFError
            self._buffer += received
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _ending(self) -> str:
        code = self._process.wait() if self._process else 0
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def _last_words(self) -> str:
        """The last line that it printed, without what libraries tell of themselves."""
        size = os.fstat(self._log.fileno()).st_size
        lines = os.pread(self._log.fileno(), 4000, max(0, size - 4000)).decode(errors="replace").splitlines()
        for line in reversed(lines):
            words = "".join(filter(str.isprintable, line)).strip()
            if words and not _LIBRARY.match(line):
                return f": {words[:300]}"
        return ""

    def close(self) -> None:
        if self._process is None:
            return
        processes.end_group(self._process, self._mark)
        os.close(self._orders)
        os.close(self._answers)
        self._log.close()
        self._process = None


def main(orders: int, answers: int) -> None:
    """The worker's loop: ends with the processes that it started when the parent closes its end, however the parent ended."""
    processes.end_with_parent(orders)
    from workloads.harness import one_row

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    decoder = msgspec.json.Decoder(Order)
    worker = os.getpid()
    with os.fdopen(orders, "rb") as lines, os.fdopen(answers, "wb", buffering=0) as out:

        def send(doing: Doing) -> None:
            out.write(msgspec.json.encode(doing) + b"\n")

        announce.send_to(send)
        for line in lines:
            answer = msgspec.json.encode(finite(one_row.obey(decoder.decode(line)))) + b"\n"
            if os.getpid() != worker:
                os._exit(0)  # a fork by a user's function came back from it: only the worker answers
            out.write(answer)
    if os.getpgrp() == worker:
        os.killpg(worker, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
