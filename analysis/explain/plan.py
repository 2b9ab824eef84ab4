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
        """The plan of a command's flags, for which nothing is built or measured. network: the layers of the model, if it
        has no name to build it by.

        Raises: options.Usage for what is not there, and for flags that name nothing, or too much.
        """
        scripts = [word for word in flags.runs if script_files.is_script(word)]
        if flags.module:
            scripts.append(flags.module)
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
        if isinstance(flags.validation, float):
            raise _validation_by_share(flags, network)
        if flags.gpu_profile and not profiles.is_run(flags.gpu_profile):
            raise profiles.unknown_gpu(flags.gpu_profile)
        rows = RowNames(runs=tuple(runs), gpu_profile=flags.gpu_profile or "")
        return cls(
            command=command,
            subject=_subject(flags, scripts, network),
            options=_training_options(flags),
            rows=rows,
            measuring=MeasureOptions(
                rows=rows,
                command=command,
                first=flags.measure,
                everything=flags.all,
                budget_s=flags.budget,
                wait_quiet=flags.wait_quiet,
            ),
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


def _validation_by_share(flags: Namespace, network: Network | None) -> options.Usage:
    """The error for a share in place of the samples that are evaluated, with their number."""
    known_samples = flags.samples or _samples_of_article(flags, network)
    samples = known_samples or _USUAL_SAMPLES
    count = max(1, round(flags.validation * samples))
    message = f"--validation takes a number of samples; {100 * flags.validation:.3g} % of {samples:,} are {count:,}"
    error = options.Usage(message, wrong="--validation", right=f"--validation {count}")
    error.is_example = not known_samples
    return error


def _samples_of_article(flags: Namespace, network: Network | None) -> int:
    """The samples of an article's training or model; 0 of another."""
    case = published_cases.EVERY.get(flags.case or "")
    if case is not None and case.training is not None:
        return case.training.samples
    if network is None and flags.model in networks.NETWORKS:
        return networks.NETWORKS[flags.model].samples
    return 0


def _subject(flags: Namespace, scripts: list[str], network: Network | None) -> Subject | EveryCase:
    """What the flags name. network: the layers of the model, if it has no name to build it by."""
    if scripts:
        return TrainingScript(scripts[0], flags.passed_on, flags.time_limit, flags.fit or "")
    if flags.case == EVERY_CASE:
        return EveryCase()
    if flags.case:
        return PublishedCase(published_cases.EVERY[flags.case])
    if network is not None:
        return DescribedModel(flags.model, network)
    if settings.is_user_model(flags.model):
        return UserModel(flags.model, flags.data or "", flags.length or 0, flags.time_limit)
    return NamedModel(flags.model)


def _training_options(flags: Namespace) -> TrainingOptions:
    return TrainingOptions(
        batch=flags.batch,
        samples=flags.samples,
        epochs=flags.epochs,
        dtype=flags.dtype,
        keras_options=_keras_options(flags),
        validation=flags.validation,
        prices=_prices(flags),
    )


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
    if flags.verify:
        raise script_files.verified_by_function("--verify")
    if not flags.measure:
        return
    for name in _FIXED_IN_SCRIPT:
        if getattr(flags, name):
            flag = "--" + "-".join(name.split("_"))
            raise options.Usage(f"{flag} is set in the script, which --measure times as it is", wrong=flag)


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
    """Raises Usage for data and a length of what is no model of the user's own, and for data that no file has."""
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
    is_path = os.sep in word and ":" not in word and not model_files.is_model_file(word)  # of a run that is not there
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
    """The error for a word that is no run."""
    if word in networks.names():
        return options.Usage(f"{word!r} is a second model: one is explained at a time", wrong=word)
    near = NoRun(word, ())
    right = near.right if near.similar else ""
    return options.Usage(f"{word!r} is no run", wrong=word, right=right, similar=near.similar)


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
