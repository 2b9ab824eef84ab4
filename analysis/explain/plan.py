"""What one `explain` command asks for: its flags, checked, as a record."""

import os
import shlex
from argparse import Namespace
from typing import Any

import msgspec

from analysis.explain import profiles
from analysis.predict import described_model
from kernels import networks
from kernels.networks import Network
from workloads import options
from workloads.records import published_cases, script_files, settings
from workloads.records.files import NoRun
from workloads.records.published_cases import Case, Complaint, Question

EVERY_CASE = "all"  # as the name of a case
AnyCase = Case | Complaint | Question


class TrainingChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a training that the flags give; None for those that they leave as they are."""

    #: Samples of a step.
    batch: int | None = None
    #: Samples of an epoch.
    samples: int | None = None
    #: Epochs.
    epochs: int | None = None
    #: Type of the inputs: float32, float64, uint8.
    dtype: str | None = None

    @property
    def by_field(self) -> dict[str, Any]:
        """The fields that the flags give, by their names."""
        fields = msgspec.structs.asdict(self)
        return {name: value for name, value in fields.items() if value}


class ExplainPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One `explain` command: what to explain, with what, and what to do besides answering."""

    #: The command as it was typed, without the flags that ask for more than the answer; "" where no command asks the same.
    command: str
    #: The case to answer; None of a model, and of every case.
    case: AnyCase | None
    #: Whether every case is answered.
    every_case: bool
    #: A known name, file.py:function or file.keras; "" of cases.
    model: str
    #: The training script that is explained, run up to its first fit; "" of cases and models.
    script: str
    #: The arguments of that script.
    script_arguments: tuple[str, ...]
    #: The layers of a model that has no name to build it by; None of others.
    network: Network | None
    #: file.py:function that gives the data of the model; "" to make them up.
    data: str
    #: The length of the model's open sizes; 0 where none is given.
    length: int
    #: What differs from the training of the case or the model.
    changes: TrainingChanges
    #: Keras options by the names that rows give them: residence, jit_compile, tf32, precision, steps_per_execution.
    keras_options: dict[str, str]
    #: Samples evaluated after each epoch.
    validation: int
    #: Money of an hour of the machine, by device: cpu, gpu.
    prices: dict[str, float]
    #: Result files, run folders or machine folders; empty for the runs of this machine.
    runs: tuple[str, ...]
    #: The rows of another machine that the GPU is taken from; "" for none.
    gpu_profile: str
    #: Seconds that building the model may take.
    time_limit_s: float
    #: Whether everything behind the answer is shown.
    all_details: bool
    #: Whether what the answer lacks is measured first.
    measure: bool
    #: Seconds that the clocks of those measurements may run.
    budget_s: float
    #: Whether measurements wait until other programs are quiet.
    wait_quiet: bool
    #: table, md or json.
    format: str
    #: The number of the change whose code is shown; 0 for none.
    change_number: int
    #: How many of the best changes are measured.
    verified_changes: int

    @classmethod
    def from_flags(cls, flags: Namespace, command: str = "", network: Network | None = None) -> "ExplainPlan":
        """The plan of a command's flags, for which nothing is built or measured. network: the layers of the model, if it
        has no name to build it by.

        Raises: options.Usage for what is not there, and for flags that name nothing, or too much.
        """
        scripts = [word for word in flags.runs if script_files.is_script(word)]
        runs = [word for word in flags.runs if not script_files.is_script(word)]
        missing_runs = [run for run in runs if not profiles.is_run(run)]
        if scripts and missing_runs and missing_runs[0].isidentifier():  # of a model's function: `mine.py build`
            raise _nothing_named(scripts[0])
        if scripts or flags.passed_on:
            _require_one_script(flags, scripts)
        else:
            _require_one_subject(flags, missing_runs)
        if network is None and flags.model:
            described_model.require(flags.model)
        _require_user_model(flags)
        if missing_runs:
            raise _no_run(missing_runs[0])
        if flags.gpu_profile and not profiles.is_run(flags.gpu_profile):
            raise profiles.unknown_gpu(flags.gpu_profile)
        every_case = flags.case == EVERY_CASE
        return cls(
            command=command,
            case=published_cases.EVERY[flags.case] if flags.case and not every_case else None,
            every_case=every_case,
            model=flags.model or "",
            script=scripts[0] if scripts else "",
            script_arguments=flags.passed_on,
            network=network,
            data=flags.data or "",
            length=flags.length or 0,
            changes=TrainingChanges(batch=flags.batch, samples=flags.samples, epochs=flags.epochs, dtype=flags.dtype),
            keras_options=_keras_options(flags),
            validation=flags.validation or 0,
            prices=_prices(flags),
            runs=tuple(runs),
            gpu_profile=flags.gpu_profile or "",
            time_limit_s=flags.time_limit,
            all_details=flags.all,
            measure=flags.measure,
            budget_s=flags.budget,
            wait_quiet=flags.wait_quiet,
            format=flags.format,
            change_number=flags.how or 0,
            verified_changes=flags.verify or 0,
        )

    @property
    def markdown(self) -> bool:
        return self.format == "md"

    @property
    def explains_training(self) -> bool:
        """Whether a training is explained: a model's always, a case's where more than its own question is to be answered."""
        if self.case is None:
            return True
        return bool(self.all_details or self.verified_changes or self.change_number or self.format == "json")


def _require_one_script(flags: Namespace, scripts: list[str]) -> None:
    """Raises Usage unless the flags name one script that is there, and ask for nothing that needs a function."""
    if not scripts:
        raise options.Usage("words after -- are for a script: name it, as train.py", right="train.py")
    if len(scripts) > 1:
        raise options.Usage("one script at a time", wrong=scripts[1])
    (script,) = scripts
    for flag, word in (("--case", flags.case), ("--model", flags.model)):
        if word:
            raise options.Usage(f"{script} brings its own model; leave {flag} out", wrong=flag)
    script_files.require(script)
    for flag, wanted in (("--measure", flags.measure), ("--verify", flags.verify)):
        if wanted:
            raise script_files.measured_by_function(flag)


def _require_one_subject(flags: Namespace, missing_runs: list[str]) -> None:
    """Raises Usage unless the flags name either a model or a case that is known."""
    if not flags.case and not flags.model:
        raise _nothing_named(missing_runs[0] if missing_runs else "")
    _require_flag_of_its_kind(flags)
    if flags.case and flags.model:
        raise options.Usage("--case brings its own model; leave one of them out", wrong="--case")
    if flags.case == EVERY_CASE and flags.how:
        raise options.Usage("--how is for one answer; name one case", wrong="--how")
    if flags.case and flags.case not in (EVERY_CASE, *published_cases.EVERY):
        raise options.unknown("case", flags.case, sorted(published_cases.EVERY))


def _require_user_model(flags: Namespace) -> None:
    """Raises Usage for data and a length of what is no model of the user's own."""
    if flags.model and settings.is_user_model(flags.model):
        return
    for flag, value in (("--data", flags.data), ("--length", flags.length)):
        if value:
            raise options.Usage(
                f"{flag} is for a model of your own (--model file.py:function); leave it out", wrong=flag
            )


def _require_flag_of_its_kind(flags: Namespace) -> None:
    """Raises Usage for a model given to --case, and for a case given to --model."""
    named_model = flags.case and flags.case not in published_cases.EVERY and flags.case != EVERY_CASE
    if named_model and not flags.model and (settings.is_user_model(flags.case) or flags.case in networks.names()):
        raise options.Usage(
            f"{flags.case} is a model, not a case", wrong="--case", right=shlex.join(["--model", flags.case])
        )
    if flags.model in published_cases.EVERY and not flags.case:
        raise options.Usage(f"{flags.model} is a case, not a model", wrong="--model", right=f"--case {flags.model}")


def _nothing_named(word: str) -> options.Usage:
    """The error for a command without --case and --model. word: the first one that is no run; it may be what is meant."""
    message = "name what to explain: a script (train.py), --model or --case"
    is_path = os.sep in word and ":" not in word  # of a run that is not there
    if not word or is_path or word.isdecimal():
        return options.Usage(message)
    flag = "--case" if word in published_cases.EVERY else "--model"
    return options.Usage(message, wrong=word, right=shlex.join([flag, word]))


def _no_run(word: str) -> options.Usage:
    """The error for a word that is no run."""
    one_number = "; a flag here takes one number" if word.isdecimal() else ""
    near = NoRun(word, ())
    right = near.right if near.similar else ""
    return options.Usage(f"{word!r} is no run{one_number}", wrong=word, right=right, similar=near.similar)


def _keras_options(flags: Namespace) -> dict[str, str]:
    """The Keras options that the flags give, by the names that rows give them."""
    steps = flags.steps_per_execution
    by_name = {
        "residence": flags.input,
        "jit_compile": flags.jit,
        "tf32": flags.tf32,
        "precision": flags.precision,
        "steps_per_execution": str(steps) if steps else None,
    }
    return {name: text for name, text in by_name.items() if text}


def _prices(flags: Namespace) -> dict[str, float]:
    by_device = {"gpu": flags.price_gpu, "cpu": flags.price_cpu}
    return {device: price for device, price in by_device.items() if price is not None}
