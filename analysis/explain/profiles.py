"""The profiles that an explanation reads: this machine's rows or those of RUN, and a stored GPU where there is none."""

import pathlib
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from analysis.explain.sources import Sources
from analysis.predict import profile
from analysis.predict.profile import STORED_GPU, Profile
from analysis.stats import is_gpu
from workloads import REPORTS, options, records, terminal
from workloads.corrections.nearest import nearest
from workloads.machine import facts
from workloads.records.run_files import NoRows
from workloads.records.schemas import OtherSchema


class RowNames(msgspec.Struct, frozen=True, kw_only=True):
    """The rows that a training is explained by, as a command names them."""

    #: Result files, run folders or machine folders; empty for the runs of this machine.
    runs: tuple[str, ...] = ()
    #: The rows of another machine that the GPU is taken from; "" for none.
    gpu_profile: str = ""

    def sources(self, *, or_stored: bool = False) -> Sources:
        """The rows of the CPU and the GPU.

        The GPU is that of --gpu-profile, else that of the runs. Where these have none and this machine has none that works, the
        GPU is a stored one (STORED_GPU): always without named runs, with them only if `or_stored`.

        Raises: Usage for a run that does not exist, and for rows of several machines.
        """
        cpu = profile.read(*self.runs) if self.runs else _local()
        has_gpu = any(map(is_gpu, cpu.devices))
        may_borrow = not has_gpu and (or_stored or not self.runs)
        stored = self.gpu_profile
        if not stored and may_borrow and facts.gpu_problem():
            stored = STORED_GPU
        if not stored:
            return Sources(cpu=cpu, gpu=cpu if has_gpu else None)
        gpu = profile.read(stored)
        if not any(map(is_gpu, gpu.devices)):
            raise unknown_gpu(stored)
        return Sources(cpu=cpu, gpu=gpu)

    def with_folders(self, folders: Iterable[pathlib.Path]) -> "RowNames":
        """The same, with runs that were just measured on this machine. Without named runs all of this machine are read anyway."""
        if not self.runs:
            return self
        return replace(self, runs=(*self.runs, *map(str, folders)))


def local_folder() -> pathlib.Path:
    """The folder of the runs of this machine."""
    return REPORTS / "local" / facts.describe().key


def _local() -> Profile:
    """The rows that were measured on this machine; a profile without rows where there are none."""
    try:
        return profile.read(str(local_folder()))
    except (FileNotFoundError, NoRows):  # a measurement that was ended before its first row leaves a file without one
        pass
    except OtherSchema as error:  # measured before the program was updated
        terminal.note(terminal.Line(f"{error}; its rows are left out", label="warning: "))
    return Profile((), facts.describe())


def is_run(run: str) -> bool:
    """Whether a word names a run that exists, or a stored profile such as nvidia-h200."""
    try:
        return bool(records.files_of(profile.file_of(run)))
    except FileNotFoundError:
        return False


def unknown_gpu(name: str) -> options.Usage:
    """The error for a name that is no GPU profile. It lists those that are stored, and corrects the name if one is similar."""
    known = profile.stored_names()
    similar = nearest(name, known)
    message = f"no stored rows of a GPU in {name!r}; stored: {', '.join(known)}"
    kind = "GPU profile" if similar else ""
    error = options.Usage(message, wrong=name, right=similar or STORED_GPU, similar=kind)
    error.is_example = not similar
    return error
