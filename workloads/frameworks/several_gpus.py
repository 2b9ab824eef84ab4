"""Trainings on several GPUs, as rows: those of --gpus, and the study of the speedup by more GPUs (S3c)."""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kernels import networks
from workloads import options
from workloads.frameworks import studies
from workloads.frameworks.data_parallel import STRATEGIES
from workloads.harness import plan
from workloads.records import Machine, Row, distinct


class StudyCase(NamedTuple):
    """A model of the study of several GPUs."""

    #: The model's name.
    model: str
    #: Type of its samples.
    dtype: str
    #: Samples of a step over all GPUs.
    batches: tuple[int, ...]


# What says most first. The articles', of few and of many samples a batch; two of which the second is the first with twice the
# layers; one whose arithmetic takes longer than its input pipeline.
CASES = (
    StudyCase(model="cifar10-cnn", dtype="float32", batches=(32, 2048)),
    StudyCase(model="cifar10-mlp", dtype="float32", batches=(32, 2048)),
    StudyCase(model="mlp-784-4096x4-10", dtype="float32", batches=(8192,)),
    StudyCase(model="mlp-784-4096x8-10", dtype="float32", batches=(8192,)),
    StudyCase(model="vgg-small", dtype="uint8", batches=(2048,)),
    StudyCase(model="mnist-cnn", dtype="float32", batches=(32,)),
)
# Keras's backend -> jit as it is usual for several GPUs, and the model and batch that have the other setting too.
_USUAL_JIT = {"jax": "on", "tensorflow": "off"}
_BOTH_JITS = {"jax": ("mnist-cnn", 32), "tensorflow": ("cifar10-cnn", 32)}
TAKES = ("model", "batch", "jit", "keras_backend", "gpus")  # the flags that the study obeys


def data_parallel(
    counts: Iterable[int],
    library: str,
    *,
    jit: Iterable[str] = (),
    models: Iterable[str] = (),
    batches: Iterable[int] = (),
) -> list[Row]:
    """The rows of the study of the speedup by more GPUs (S3c).

    counts: numbers of GPUs. library: the backend of Keras, jax or tensorflow. jit: settings `on` and `off`; both where none is
    named. models: of the study's; all where none is named. batches: samples of a step over all GPUs; the study's where none is
    named. One GPU and several have the same setting of jit, the usual one of the library; one case has the other setting too.
    Dropout and shuffling are off, so that the losses of one GPU and of several are the same, which is checked.
    """
    usual_jit = _USUAL_JIT[library]
    named_models = list(models)
    several = [count for count in counts if count > 1]
    jit_settings = list(jit) or ["on", "off"]
    jit_settings.sort(key=lambda setting: setting != usual_jit)  # the usual one first
    rows = []
    for setting in jit_settings:
        for case in CASES:
            if named_models and case.model not in named_models:
                continue
            for batch in batches or case.batches:
                if setting != usual_jit and (case.model, batch) != _BOTH_JITS[library]:
                    continue
                for count in several:
                    rows += _rows_of_case(case, batch, count, library, jit=setting)
    return distinct(rows)


def _rows_of_case(case: StudyCase, batch: int, count: int, library: str, *, jit: str) -> list[Row]:
    """The rows of one model and batch on one GPU and on `count` of them.

    With the usual jit there are also the rows from which the speedup is predicted: one GPU with its part of the batch, and a
    model of one unit, whose step is about the time of its input pipeline, on one GPU and on all.
    """
    same: dict[str, Any] = {"keras_backend": library, "jit_compile": jit, "dropout": "off", "shuffle": "off"}
    alone = {**same, "strategy": STRATEGIES[library]}
    spread = {**alone, "replicas": str(count)}
    idle_model = f"mlp-{math.prod(networks.find(case.model).input)}-1x1-10"

    def row(model: str, samples: int, options: dict[str, Any]) -> Row:
        """A short training of a model in batches of `samples`. On several GPUs it is a row of the first."""
        return studies.row(studies.short(model, samples, case.dtype), "gpu:0", **options)

    rows = [row(case.model, batch, same), row(case.model, batch, spread)]
    if jit == _USUAL_JIT[library]:
        rows += [
            row(case.model, batch // count, alone),
            row(idle_model, batch, alone),
            row(idle_model, batch, spread),
        ]
    return rows


def require(wanted: int, here: Machine) -> None:
    """Raises Missing where this machine has fewer than `wanted` GPUs; one GPU is required elsewhere."""
    count = len(here.gpus)
    if wanted > max(count, 1):
        reason = f"there {'is' if count == 1 else 'are'} {count}" if count else ""
        raise plan.no_gpu(f"no {wanted} GPUs here", reason, "--gpus")


def devices(named: Sequence[str], present: list[str], libraries: Iterable[str]) -> list[str]:
    """The devices of rows of trainings by the flag --gpus: the first GPU alone, as the training itself takes the GPUs after it.

    named: the words of the flag --device. present: the devices that these name, or all of this machine. libraries: of
    --keras-backend.
    Raises: Usage for another device and for a backend that has no strategy; Missing without a GPU.
    """
    example = "python -m workloads.training --gpus 1 2 --keras-backend jax --batch 32 2048"
    if named and present != ["gpu:0"]:
        raise options.Usage(f"--gpus counts GPUs from the first one: not on {' '.join(present)}", tip=example)
    if "gpu:0" not in present:
        raise plan.no_gpu()
    for library in libraries:
        if library not in STRATEGIES:
            raise options.Usage(
                f"Keras on {library} has no strategy for several GPUs; on {' and '.join(STRATEGIES)} it has",
                tip=example,
            )
    return ["gpu:0"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """The cases of the study of several GPUs that are measured; () stands for all."""

    #: Numbers of GPUs; () for 2, 4 and 8, as far as they are here.
    gpus: tuple[int, ...] = ()
    #: What Keras runs on; () for all that have a strategy and are here.
    libraries: tuple[str, ...] = ()
    #: Models by name.
    models: tuple[str, ...] = ()
    #: Settings of jit: on, off.
    jit: tuple[str, ...] = ()
    #: Samples of a step over all GPUs.
    batches: tuple[int, ...] = ()

    def rows(self, most: int) -> list[Row]:
        """The rows of the study on a machine that has `most` GPUs.

        Raises: Usage for a batch that does not divide among the GPUs.
        """
        counts = self.gpus or [n for n in (2, 4, 8) if n <= most]
        for batch, count in itertools.product(self.batches, counts):
            if batch % count:
                example = f"python -m workloads.training --study {studies.DATA_PARALLEL} --batch {count * batch}"
                raise options.Usage(f"a batch of {batch} does not divide among {count} GPUs", tip=example)
        rows = []
        for library in self.libraries or filter(studies.available, STRATEGIES):
            rows += data_parallel(counts, library, jit=self.jit, models=self.models, batches=self.batches)
        return rows


def study(typed: Mapping[str, Sequence[str] | None]) -> Study:
    """The part of the study that a user asks for. typed: name of a flag in TAKES -> its words, None where it was not typed.

    Raises: Usage for words that the study does not know; Missing for a library that is named and not installed.
    """
    libraries = plan.known("keras backend", typed["keras_backend"], tuple(STRATEGIES))
    for library in libraries:
        if not studies.available(library):
            raise options.Missing(f"{library} is not installed", tip=f"{options.python()} -m pip install {library}")
    return Study(
        gpus=tuple(plan.counts(typed["gpus"])),
        libraries=tuple(libraries),
        models=tuple(plan.known("model of this study", typed["model"], [case.model for case in CASES])),
        jit=tuple(plan.known("jit", typed["jit"], ("on", "off"))),
        batches=tuple(plan.counts(typed["batch"])),
    )
