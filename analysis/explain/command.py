"""Explains a training (an article's, a complaint's or your own model's): which device wins, why, and what would help."""

from typing import Any

import msgspec
from msgspec.structs import replace

from analysis.explain import explanation, missing_parts, verify
from analysis.explain.explanation import NotMeasured
from analysis.explain.framework import framework
from analysis.explain.missing_parts import Explained
from analysis.explain.plan import ExplainPlan
from analysis.explain.profiles import RowNames
from analysis.explain.request import Request
from analysis.explain.sources import Sources
from analysis.explain.training_answer import TrainingAnswer, training_answer
from analysis.explain.training_request import EveryCase, PublishedCase, Subject, TrainingOptions, TrainingScript
from analysis.predict.profile import Lacking
from analysis.text import advice, cases
from analysis.text.advice import Code
from analysis.text.cases import Reply
from analysis.text.explanation.answer import answer
from analysis.text.explanation.details import details
from analysis.text.explanation.sentence import sentence
from kernels import networks
from kernels.problems import Training
from workloads import options, terminal
from workloads.machine import facts, load
from workloads.records import published_cases

SUITE = "python -m workloads.suite --quick"  # measures what a prediction needs
CASES_PAGE = """# Articles and complaints, answered

`python -m analysis.explain --case all --format md {runs} > docs/cases.md` writes this page.
"""


class CommandAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one command: to a case's question, for a training, or both."""

    #: The command as it was typed, without the flags that ask for more and without a script's own words.
    command: str
    #: The words of the command that are a script's own.
    passed_on: str
    #: Whether everything behind the answer is shown.
    all_details: bool
    #: Whether the case has a training, which --all explains; a model always has.
    has_training: bool
    #: The case's own question, answered; None of a model.
    reply: Reply | None
    #: The training, explained; None where only the case's question is answered.
    explained: Explained | None
    #: The number of the change whose code is shown; 0 for none.
    change_number: int

    @property
    def verdict(self) -> list[str]:
        """The lines of the answer for the training, as a terminal has them."""
        return [f"{line}" for line in self.verdict_lines()]

    def verdict_lines(self, *, markdown: bool = False) -> list[str]:
        """The lines of the answer for the training. They propose --verify only where this machine can measure what was predicted:
        not for the GPU of another machine, nor for one that does not work now, nor for a script.
        """
        if self.explained is None:
            return []
        training = self.explained.explanation
        has_other_gpu = training.sources.borrowed is not None
        gpu_is_lost = training.gpu is not None and bool(facts.gpu_problem())
        return answer(
            training,
            self.command,
            passed_on=self.passed_on,
            measuring_s=self.explained.measuring_s,
            can_check=not has_other_gpu and not gpu_is_lost and training.request.script is None,
            complete=self.all_details,
            markdown=markdown,
        )

    @property
    def code(self) -> Code | None:
        """The code of the change that --how names; None without --how.

        Raises: Usage where the answer has no such change.
        """
        if not self.change_number:
            return None
        main = self.explained.explanation.main if self.explained else None
        actions = self.explained.explanation.actions if self.explained else []
        if main is None or not actions:
            raise options.Usage("this answer advises no change", wrong="--how")
        if self.change_number > len(actions):
            numbers = ", ".join(str(number) for number in range(1, len(actions) + 1))
            message = f"no change {self.change_number} in this answer; its changes: {numbers}"
            raise options.Usage(message, wrong=str(self.change_number), right="1")
        return advice.code(actions[self.change_number - 1].change, main.training, main.settings)


class TextOutput(msgspec.Struct, frozen=True, kw_only=True):
    """Prints answers for a terminal or as Markdown."""

    markdown: bool

    def show(self, result: CommandAnswer) -> None:
        """Prints the code of a change, else the answers."""
        code = result.code
        if code:
            lines = [f"{result.change_number}. {code.change}", "", *code.lines(self.markdown)]
        else:
            lines = self._answers(result)
        terminal.show(lines)

    def _answers(self, result: CommandAnswer) -> list[str]:
        """The lines of a case's answer, then those of the training's. A case whose training is not shown says how to get it."""
        lines = []
        if result.reply:
            training_is_hidden = result.has_training and not result.all_details
            command = result.command if training_is_hidden else ""
            lines += cases.lines(result.reply, training_command=command, markdown=self.markdown)
        if result.reply and result.explained:
            lines.append("")
        if result.explained:
            lines += result.verdict_lines(markdown=self.markdown)
        if result.explained and result.all_details:
            lines += details(result.explained.explanation, self.markdown)
        return lines

    def show_cases(self, replies: dict[str, Reply], rows: RowNames) -> None:
        """Prints every case's answer; as Markdown that is docs/cases.md."""
        lines = []
        if self.markdown:
            lines += [*CASES_PAGE.format(runs=" ".join(rows.runs)).splitlines(), ""]
        lines += cases.overview(list(replies.values()), self.markdown)
        for reply in replies.values():
            lines += ["", *cases.lines(reply, markdown=self.markdown)]
        terminal.show(lines)


class JsonOutput(msgspec.Struct, frozen=True, kw_only=True):
    """Prints answers as one object of JSON: docs/answer.md lists its fields."""

    def show(self, result: CommandAnswer) -> None:
        """Prints one object: the fields of TrainingAnswer, then those of a case's answer, of the whole explanation, and of a
        change's code, as far as the command has them.
        """
        code = result.code
        training = result.explained.explanation if result.explained else None
        record = msgspec.structs.asdict(training_answer(training, result.verdict) if training else TrainingAnswer())
        if result.reply:
            record |= {"case": result.reply.name, "answer": result.reply}
        if training:
            record |= {"framework": sentence(framework(training.sources)), "explanation": training.record()}
        if code:
            record["code"] = code
        self._print(record)

    def show_cases(self, replies: dict[str, Reply], rows: RowNames) -> None:
        """Prints every case's answer."""
        self._print(replies)

    def _print(self, record: dict[str, Any]) -> None:
        encoded = msgspec.json.encode(record, enc_hook=float)  # NumPy's numbers are floats that JSON does not know
        print(encoded.decode())


def run(plan: ExplainPlan) -> int:
    """Prints the answer that a command asks for: of one training or case, or of every case. Then, with --verify, a line as each
    change is measured. Returns the exit code.

    Raises: options.Usage for a change that the answer does not have; Missing where no row tells the answer.
    """
    output = JsonOutput() if plan.format == "json" else TextOutput(markdown=plan.format == "md")
    subject = plan.subject
    try:
        sources = plan.rows.sources()
        if isinstance(subject, EveryCase):
            output.show_cases(_replies(sources, plan.options), plan.rows)
            return options.OK
        result = _result(plan, subject, sources)
    except NotMeasured as error:
        raise _not_measured(plan, error) from error
    except Lacking as lacking:
        message = f"no rows of this machine tell it: {lacking.what}"
        tip = SUITE if isinstance(subject, TrainingScript) else f"{plan.command} --measure"
        raise options.Missing(message, tip) from lacking
    output.show(result)
    if plan.verified_changes and result.explained:
        if plan.measuring.wait_quiet:
            load.wait_until_quiet()
        for line in verify.lines(result.explained.explanation, plan.verified_changes):
            print(line, flush=True)
    return options.OK


def _not_measured(plan: ExplainPlan, error: NotMeasured) -> options.Missing:
    """The error for a step that cannot be predicted and was not measured; it shows the command that measures it."""
    words = [plan.command, "--measure", plan.passed_on]
    message = f"{error.what}: its step cannot be predicted, only measured"
    return options.Missing(message, " ".join(word for word in words if word))


def _replies(sources: Sources, chosen: TrainingOptions) -> dict[str, Reply]:
    """Name of a case -> the answer to its question, of every article and complaint."""
    replies = {}
    for name, case in published_cases.EVERY.items():
        replies[name] = cases.reply(case, sources, PublishedCase(case=case).request(chosen))
    return replies


def _result(plan: ExplainPlan, subject: Subject, sources: Sources) -> CommandAnswer:
    """The answer to one command: of a case its own question's, of a model or script the training's, of a case with --all both.

    Raises: Lacking where no row tells the training's seconds; what subject.request and missing_parts.explained raise.
    """
    request = subject.request(plan.options)
    reply = None
    if isinstance(subject, PublishedCase):
        reply = cases.reply(subject.case, sources, request)
    explained = None
    if request and plan.explains_training:
        explained = missing_parts.explained(request, sources, plan.measuring)
    return CommandAnswer(
        command=plan.command,
        passed_on=plan.passed_on,
        all_details=plan.all_details,
        has_training=request is not None,
        reply=reply,
        explained=explained,
        change_number=plan.change_number,
    )


def answered(plan: ExplainPlan) -> TrainingAnswer:
    """The answer for the one training of a plan, as crossover.explain returns it in a notebook; --all has no effect on it.

    Raises: options.Missing where no row tells it.
    """
    assert not isinstance(plan.subject, EveryCase)
    try:
        result = _result(replace(plan, all_details=False), plan.subject, plan.rows.sources())
    except Lacking as lacking:
        message = f"no rows of this machine tell it: {lacking.what}; measure=True measures them"
        raise options.Missing(message) from lacking
    assert result.explained is not None
    return training_answer(result.explained.explanation, result.verdict)


def answer_by_run(model: str, run: str) -> list[str]:
    """The lines of the answer for a model that comes with the project, by the rows of one run: what `suite` prints at its end.
    Where the run has no rows of a GPU, the GPU is a stored one.
    """
    network = networks.find(model)
    training = Training(model, network.batch, network.samples, network.epochs)
    try:
        explained = explanation.explain(Request(training), RowNames(runs=(run,)).sources(or_stored=True))
    except Lacking as lacking:
        return [f"No verdict on {model}: {lacking}"]
    return answer(explained, options.typed(f"python -m analysis.explain --model {model}"))
