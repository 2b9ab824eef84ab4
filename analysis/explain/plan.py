"""What one `explain` command asks for: its flags, checked, as a record."""

import os
import shlex
from argparse import Namespace

import msgspec

from analysis.explain import profiles
from analysis.explain.missing_parts import MeasureOptions
from analysis.explain.profiles import RowNames
from analysis.explain.training_request import (
    DescribedModel,
    EveryCase,
    NamedModel,
    PublishedCase,
    Subject,
    TrainingOptions,
    TrainingScript,
    UserModel,
)
from analysis.predict import described_model
from kernels import networks
from kernels.networks import Network
from workloads import options
from workloads.records import model_files, published_cases, script_files, settings
from workloads.records.run_files import NoRun

EVERY_CASE = "all"  # as the name of a case
#: Samples of an example, where nothing tells them.
_USUAL_SAMPLES = 50_000
#: What a script itself says of its model and its data.
_FIXED_IN_SCRIPT = ("input", "dtype", "jit", "steps_per_execution", "precision")


class Positionals(msgspec.Struct, frozen=True, kw_only=True):
    """The words of an `explain` command that follow no flag: training scripts and runs, in any order."""

    #: The training scripts, such as train.py; also the module that -m names.
    scripts: tuple[str, ...]
    #: The other words: result files, run folders or machine folders.
    runs: tuple[str, ...]

    @classmethod
    def from_flags(cls, flags: Namespace) -> "Positionals":
        """The words of a command. The parser keeps those without a flag in `flags.runs`."""
        scripts = [word for word in flags.runs if script_files.is_script(word)]
        if flags.module:
            scripts.append(flags.module)
        runs = [word for word in flags.runs if not script_files.is_script(word)]
        return cls(scripts=tuple(scripts), runs=tuple(runs))

    @property
    def missing_runs(self) -> list[str]:
        """The runs that do not exist."""
        return [run for run in self.runs if not profiles.is_run(run)]


class ExplainPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One `explain` command: what to explain, with what, and what to do besides answering."""

    #: The command as it was typed, without the flags that ask for more than the answer and without a script's own words; ""
    #: where no command asks the same.
    command: str
    #: What is explained.
    subject: Subject | EveryCase
    #: What the flags say of its training.
    options: TrainingOptions
    #: The rows that it is explained by.
    rows: RowNames
    #: How what the answer lacks is measured.
    measuring: MeasureOptions
    #: Whether everything behind the answer is shown.
    all_details: bool
    #: table, md or json.
    format: str
    #: The number of the change whose code is shown; 0 for none.
    change_number: int
    #: How many of the best changes are measured.
    verified_changes: int

    @classmethod
    def from_flags(cls, flags: Namespace, command: str = "", network: Network | None = None) -> "ExplainPlan":
        """The plan of a command, checked as far as that needs neither a model that is built nor a measurement.

        Args:
            flags: as the parser of analysis.explain.__main__ reads them.
            command: becomes the field of that name.
            network: the layers of a model that exists only in a notebook, so that it cannot be built by its name; None of others.

        Raises: options.Usage for a file or run that does not exist, and for flags that name nothing to explain, or two things.
        """
        positionals = Positionals.from_flags(flags)
        _require_valid(flags, positionals, network)
        rows = RowNames(runs=positionals.runs, gpu_profile=flags.gpu_profile or "")
        return cls(
            command=command,
            subject=_subject(flags, positionals.scripts, network),
            options=_training_options(flags),
            rows=rows,
            measuring=_measure_options(flags, rows, command),
            all_details=flags.all,
            format=flags.format,
            change_number=flags.how or 0,
            verified_changes=flags.verify or 0,
        )

    @property
    def passed_on(self) -> str:
        """The words of the command that are a script's own: `-- --lr 0.1`."""
        if not isinstance(self.subject, TrainingScript) or not self.subject.arguments:
            return ""
        return shlex.join(("--", *self.subject.arguments))

    @property
    def explains_training(self) -> bool:
        """Whether a training is explained: a model's always, a case's where more than its own question is to be answered."""
        if not isinstance(self.subject, PublishedCase):
            return True
        return bool(self.all_details or self.verified_changes or self.change_number or self.format == "json")


def _require_valid(flags: Namespace, positionals: Positionals, network: Network | None) -> None:
    """Raises Usage for the first thing that is wrong with a command: what it explains is checked before its runs. `network` is
    as in ExplainPlan.from_flags.
    """
    scripts = positionals.scripts
    missing_runs = positionals.missing_runs
    if scripts and missing_runs and missing_runs[0].isidentifier():  # `mine.py build`: meant is --model mine.py:build
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
    if isinstance(flags.validation, float):
        raise _validation_by_share(flags, network)
    if flags.gpu_profile and not profiles.is_run(flags.gpu_profile):
        raise profiles.unknown_gpu(flags.gpu_profile)


def _validation_by_share(flags: Namespace, network: Network | None) -> options.Usage:
    """The error for `--validation 0.2`: the flag takes a number of samples, and the error says which number that share is. Where
    the samples of an epoch are unknown, the share is taken of _USUAL_SAMPLES, and the number is only an example.
    """
    known_samples = flags.samples or _samples_of_article(flags, network)
    samples = known_samples or _USUAL_SAMPLES
    count = max(1, round(flags.validation * samples))
    message = f"--validation takes a number of samples; {100 * flags.validation:.3g} % of {samples:,} are {count:,}"
    error = options.Usage(message, wrong="--validation", right=f"--validation {count}")
    error.is_example = not known_samples
    return error


def _samples_of_article(flags: Namespace, network: Network | None) -> int:
    """The samples of an epoch in the article whose case (--case) or model (--model) the flags name; 0 where they name another."""
    case = published_cases.EVERY.get(flags.case or "")
    if case is not None and case.training is not None:
        return case.training.samples
    if network is None and flags.model in networks.NETWORKS:
        return networks.NETWORKS[flags.model].samples
    return 0


def _subject(flags: Namespace, scripts: tuple[str, ...], network: Network | None) -> Subject | EveryCase:
    """What a valid command explains: a script, a case, or a model. `network` is as in ExplainPlan.from_flags."""
    if scripts:
        return TrainingScript(
            name=scripts[0],
            arguments=flags.passed_on,
            time_limit_s=flags.time_limit,
            fit=flags.fit or "",
        )
    if flags.case == EVERY_CASE:
        return EveryCase()
    if flags.case:
        return PublishedCase(case=published_cases.EVERY[flags.case])
    if network is not None:
        return DescribedModel(name=flags.model, network=network)
    if settings.is_user_model(flags.model):
        return UserModel(
            name=flags.model,
            data=flags.data or "",
            length=flags.length or 0,
            time_limit_s=flags.time_limit,
        )
    return NamedModel(name=flags.model)


def _measure_options(flags: Namespace, rows: RowNames, command: str) -> MeasureOptions:
    """How --measure measures, by the flags that go with it."""
    return MeasureOptions(
        rows=rows,
        command=command,
        first=flags.measure,
        everything=flags.all,
        budget_s=flags.budget,
        wait_quiet=flags.wait_quiet,
    )


def _training_options(flags: Namespace) -> TrainingOptions:
    """The numbers and options of the training that the flags give."""
    return TrainingOptions(
        batch=flags.batch,
        samples=flags.samples,
        epochs=flags.epochs,
        dtype=flags.dtype,
        keras_options=_keras_options(flags),
        validation=flags.validation,
        prices=_prices(flags),
    )


def _require_one_script(flags: Namespace, scripts: tuple[str, ...]) -> None:
    """Raises Usage unless the command names one script, which exists, and no flag that only a model takes. `flags.passed_on` are
    the words after `--`: they need a script that gets them.
    """
    if not scripts:
        raise options.Usage("words after -- are for a script: name it, as train.py", right="train.py")
    if len(scripts) > 1:
        raise options.Usage("one script at a time", wrong=scripts[1])
    (script,) = scripts
    for flag, word in (("--case", flags.case), ("--model", flags.model)):
        if word:
            raise options.Usage(f"{script} brings its own model; leave {flag} out", wrong=flag)
    script_files.require(script)
    if flags.verify:
        raise script_files.verified_by_function("--verify")
    if not flags.measure:
        return
    for name in _FIXED_IN_SCRIPT:
        if getattr(flags, name):
            flag = "--" + "-".join(name.split("_"))
            raise options.Usage(f"{flag} is set in the script, which --measure times as it is", wrong=flag)


def _require_one_subject(flags: Namespace, missing_runs: list[str]) -> None:
    """Raises Usage unless a command without a script names either a model or a known case, and no flag that only a script takes.
    The first of the words that are no run may be what was meant to be explained.
    """
    if not flags.case and not flags.model:
        raise _nothing_named(missing_runs[0] if missing_runs else "")
    _require_flag_of_its_kind(flags)
    if flags.case and flags.model:
        raise options.Usage("--case brings its own model; leave one of them out", wrong="--case")
    if flags.case == EVERY_CASE and flags.how:
        raise options.Usage("--how is for one answer; name one case", wrong="--how")
    if flags.case and flags.case not in (EVERY_CASE, *published_cases.EVERY):
        raise options.unknown("case", flags.case, sorted(published_cases.EVERY))
    if flags.fit:
        raise options.Usage("--fit is for a script, such as train.py; leave it out", wrong="--fit")


def _require_user_model(flags: Namespace) -> None:
    """Raises Usage for --data or --length without a model of the user's own (file.py:function), and for data that the named
    file does not have.
    """
    if flags.model and settings.is_user_model(flags.model):
        if flags.data:
            model_files.require(flags.data)
        return
    for flag, value in (("--data", flags.data), ("--length", flags.length)):
        if value:
            raise options.Usage(
                f"{flag} is for a model of your own (--model file.py:function); leave it out", wrong=flag
            )


def _require_flag_of_its_kind(flags: Namespace) -> None:
    """Raises Usage for a model given to --case, and for a case given to --model."""
    unknown_case = flags.case and flags.case not in published_cases.EVERY and flags.case != EVERY_CASE
    if unknown_case and not flags.model and (settings.is_user_model(flags.case) or flags.case in networks.names()):
        raise options.Usage(
            f"{flags.case} is a model, not a case", wrong="--case", right=shlex.join(["--model", flags.case])
        )
    if flags.model in published_cases.EVERY and not flags.case:
        raise options.Usage(f"{flags.model} is a case, not a model", wrong="--model", right=f"--case {flags.model}")


def _nothing_named(word: str) -> options.Usage:
    """The error for a command that names no script, --case or --model. `word` is its first one that is no run, "" for none: where
    it looks like a model or a case, the corrected command has it after its flag.
    """
    message = "name what to explain: a script (train.py), --model or --case"
    is_path = os.sep in word and ":" not in word and not model_files.is_model_file(word)  # of a run that does not exist
    if not word or is_path or word.isdecimal():
        error = options.Usage(message, right="--model cifar10-cnn")
        error.is_example = True
        return error
    name, equals, value = word.partition("=")
    if equals and name in ("model", "case"):
        return options.Usage(
            f"{word!r}: a flag begins with two dashes", wrong=word, right=shlex.join([f"--{name}", value])
        )
    flag = "--case" if word in published_cases.EVERY else "--model"
    is_model = settings.is_user_model(word) or word in networks.names() or model_files.is_model_file(word)
    if flag == "--case" or is_model:
        message = f"{word!r} is typed after its flag: {flag} {word}"
    return options.Usage(message, wrong=word, right=shlex.join([flag, word]))


def _no_run(word: str) -> options.Usage:
    """The error for a word that should be a run and is none; it proposes the run with the most similar name."""
    if word in networks.names():
        return options.Usage(f"{word!r} is a second model: one is explained at a time", wrong=word)
    near = NoRun(word, ())
    right = near.right if near.similar else ""
    return options.Usage(f"{word!r} is no run", wrong=word, right=right, similar=near.similar)


def _keras_options(flags: Namespace) -> dict[str, str]:
    """Name of a Keras option, as rows of result files have it -> its value, for each option that a flag gives."""
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
    """gpu, cpu -> the money that an hour of its machine costs, for each price that a flag gives."""
    by_device = {"gpu": flags.price_gpu, "cpu": flags.price_cpu}
    return {device: price for device, price in by_device.items() if price is not None}
