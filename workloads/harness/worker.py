"""The process that times: it reads orders as lines of JSON from one file descriptor and writes Measurements to another.

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
from workloads.harness.orders import Order
from workloads.machine import clock, processes
from workloads.records import Measurement, Row, finite, settings
from workloads.records.messages import Doing
from workloads.records.rows import Cause

# What TensorFlow, XLA and CUDA log of themselves: information, warnings, and errors after which they go on.
_LIBRARY_LOG = re.compile(r"[IWE]\d{4} \d\d:|\d{4}-\d\d-\d\d .*: [IWE] |WARNING: All log messages before absl")
_LOG_END_BYTES = 4000  # of the log, in which the last words are looked for
_LONGEST_LAST_WORDS = 300  # characters
# TensorFlow then takes a GPU's memory as it needs it. Its trainings alone take all of it when they start, as a user's do.
SHARED = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}


def environment(row: Row, gpu_uuids: dict[str, str]) -> dict[str, str]:
    """The environment variables of a worker process for this row, which must be set before the row's libraries are imported. Rows
    with the same variables share a worker.

    gpu_uuids: name of a GPU, such as gpu:0 -> its UUID.
    """
    if row.problem.members:  # a problem of several GPUs, by their numbers
        gpus = [f"gpu:{number}" for number in row.problem.members]
    elif row.on_gpu:  # of a training that is spread over several GPUs, the first of them
        gpus = _consecutive_gpus(row.device, row.experiment.replicas)
    elif row.keras.gpu == "visible":  # TensorFlow sees it, and must not use it
        gpus = _consecutive_gpus("gpu:0", row.experiment.replicas)
    else:
        gpus = []
    uuids = [gpu_uuids.get(gpu, gpu.rpartition(":")[2]) for gpu in gpus]
    variables = {"CUDA_VISIBLE_DEVICES": ",".join(uuids), "NUMBA_THREADING_LAYER_PRIORITY": "omp tbb workqueue"}
    if row.problem.once:  # what happens once in a process, such as a first compilation
        variables |= {"CUPY_CACHE_IN_MEMORY": "1"}  # else it is read from a file
    if row.backend in FRAMEWORKS:
        variables |= _framework_variables(row)
    return variables


def _framework_variables(row: Row) -> dict[str, str]:
    """The environment variables that TensorFlow, Keras and JAX read when they are imported, and the folder of a user's model."""
    is_jax = row.library == "jax"
    parts = row.experiment.replicas  # devices among which each batch of a training is divided
    variables = {"KERAS_BACKEND": row.library, "TF_CPP_MIN_LOG_LEVEL": "2"}
    is_training = row.problem.op == "training" and row.library == "tensorflow"
    has_companion = bool(row.experiment.companion)  # another training at the same time
    has_gpu_to_itself = row.on_gpu and is_training and not has_companion
    if not has_gpu_to_itself:
        variables |= SHARED
    if row.threads:  # TensorFlow reads them once, so that another count needs another worker
        variables |= {"TF_NUM_INTRAOP_THREADS": str(row.threads), "TF_NUM_INTEROP_THREADS": str(row.threads)}
    variables |= row.settings.variables
    if is_jax:
        variables |= {"JAX_PLATFORMS": "cuda" if row.on_gpu else "cpu", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    is_float32_product = row.problem.products and row.problem.math == "float32"
    if row.on_gpu and (is_float32_product or row.keras.tf32 == "off"):
        variables["NVIDIA_TF32_OVERRIDE"] = "0"  # TensorFlow keeps plans by shape alone: with TF32 is another process
    if parts > 1 and row.on_gpu:
        variables["NCCL_NVLS_ENABLE"] = "0"  # NVLink's multicast is left to whoever owns the machine
    elif parts > 1 and is_jax:  # parts of the CPU in the devices' place
        variables["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={parts}"
    elif parts > 1:
        variables[settings.PARTS] = str(parts)
    variables[settings.FOLDER] = os.getcwd()
    return variables


def _consecutive_gpus(first: str, count: int) -> list[str]:
    """The names of `count` GPUs from the first on: gpu:1, gpu:2, ..."""
    number = int(first.partition(":")[2])
    return [f"gpu:{number + i}" for i in range(count)]


class Worker:
    """A worker process with one environment, as its parent sees it. If the process dies, hangs or breaks its CUDA context, the
    answer is a failed Measurement, and the next order starts a new process."""

    def __init__(self, variables: dict[str, str], patient: bool = False):
        """variables: of the process's environment, on top of this process's. patient: whether the time limit of an order begins
        again whenever the worker announces what it does."""
        self.variables = variables
        self._patient = patient
        self._process: subprocess.Popen | None = None

    def start(self) -> None:
        """Starts the process if it is not running, and does not wait for its imports."""
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
        """The worker's answer to an order. If the process dies, hangs or writes what is no answer, a failed Measurement."""
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
        """The next Measurement from the worker. Announcements before it are passed on to the receiver of this process's.

        Raises: TimeoutError; EOFError when the worker is gone; ValueError for a line that cannot be read.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            message = msgspec.json.decode(self._line(deadline), type=Measurement | Doing)
            if isinstance(message, Measurement):
                return message
            announce.pass_on(message)
            if self._patient:
                deadline = time.monotonic() + timeout_s

    def _line(self, deadline: float) -> bytes:
        """The next line from the worker, without its end.

        deadline: by time.monotonic. Raises: TimeoutError when it has passed; EOFError when the worker is gone.
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
        """How the process ended, in words: `signal SIGSEGV`, `exit code 1`. Waits for its end."""
        code = self._process.wait() if self._process else 0
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def _last_words(self) -> str:
        """The last line that the process printed, behind a colon; "" if it printed none but log lines of libraries."""
        log_bytes = os.fstat(self._log.fileno()).st_size
        end = os.pread(self._log.fileno(), _LOG_END_BYTES, max(0, log_bytes - _LOG_END_BYTES))
        for line in reversed(end.decode(errors="replace").splitlines()):
            words = "".join(filter(str.isprintable, line)).strip()
            if words and not _LIBRARY_LOG.match(line):
                return f": {words[:_LONGEST_LAST_WORDS]}"
        return ""

    def close(self) -> None:
        """Ends the process and all that it started, if it is running."""
        if self._process is None:
            return
        processes.end_group(self._process, self._mark)
        os.close(self._orders)
        os.close(self._answers)
        self._log.close()
        self._process = None


def main(orders: int, answers: int) -> None:
    """Runs the worker process: carries out orders until the parent closes its end of the pipe or ends, then ends itself and all
    processes that it started.

    orders, answers: file descriptors to read from and to write to.
    """
    processes.end_with_parent(orders)
    from workloads.harness import one_row

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    decoder = msgspec.json.Decoder(Order)
    worker_pid = os.getpid()
    with os.fdopen(orders, "rb") as lines, os.fdopen(answers, "wb", buffering=0) as out:

        def send(doing: Doing) -> None:
            out.write(msgspec.json.encode(doing) + b"\n")

        announce.send_to(send)
        for line in lines:
            measurement = finite(one_row.obey(decoder.decode(line)))
            if os.getpid() != worker_pid:
                os._exit(0)  # a user's function forked, and the child returned from it too: only the worker answers
            out.write(msgspec.json.encode(measurement) + b"\n")
    if os.getpgrp() == worker_pid:
        os.killpg(worker_pid, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
