"""The articles that this project re-runs and real complaints, read from the TOML file of the same name. Each asks one of three
kinds of question, which analysis.explain.evidence answers.
"""

from pathlib import Path

import msgspec

from analysis.stats import Estimate
from kernels.problems import Training

#: What measures the trainings of the complaints.
STUDY = "workloads.training --study complaints"


class Published(msgspec.Struct, frozen=True):
    """The time of an epoch on one device in an article."""

    #: cpu or gpu.
    device: str
    #: Seconds of an epoch, low to high where the article gives several.
    epoch_s: Estimate


class Claim(msgspec.Struct, frozen=True):
    """An article's claim about one size of the data set."""

    #: Samples of the data set.
    samples: int
    #: The faster device: cpu, gpu or neither.
    faster: str
    #: The article's words, shortened.
    words: str


class ArticleTraining(msgspec.Struct, frozen=True):
    """A training that an article timed."""

    #: Its id, such as S0.
    name: str
    #: The kind of question: faster, gain or copy.
    kind: str
    #: The model that is trained.
    model: str
    #: The article's system in a few words.
    title: str
    #: Type of the samples.
    dtype: str
    #: Samples of a step.
    batch: int
    #: Samples of an epoch.
    samples: int
    #: Number of epochs.
    epochs: int
    #: The article's claim in a few words.
    claim: str
    #: The article's address.
    url: str = ""
    #: The claim for each size of the data set.
    claims: tuple[Claim, ...] = ()
    #: The times that the article gives.
    published: tuple[Published, ...] = ()
    #: Whether it was trained by bare steps, not by Keras's fit.
    loop: bool = False
    #: A sentence for the answer; "" for none.
    note: str = ""
    #: The arguments of `python -m` that measure what answers it.
    measured_by: str = STUDY

    @property
    def training(self) -> Training:
        return Training(model=self.model, batch=self.batch, samples=self.samples, epochs=self.epochs, dtype=self.dtype)


class Reported(msgspec.Struct, frozen=True):
    """A reporter's observation of one training."""

    #: The closest training in Keras.
    training: Training
    #: The faster device: cpu, gpu or neither.
    faster: str
    #: The reporter's words, shortened.
    words: str


class Complaint(msgspec.Struct, frozen=True):
    """A real complaint."""

    #: Where it was reported: `so-42097115`.
    name: str
    #: The kind of question: faster, gain or copy.
    kind: str
    #: The complaint in a line.
    title: str
    #: The reporter's claim in a few words.
    claim: str
    #: The complaint's address.
    url: str = ""
    #: What was observed of trainings, the one that is explained first at the front; () without a training.
    reported: tuple[Reported, ...] = ()
    #: The size along which the winner changes: batch or width.
    varies: str = ""
    #: Values of that size.
    sizes: tuple[int, ...] = ()
    #: In words, how the training here differs from the reporter's.
    differences: str = ""
    #: The reporter's numbers, the unit in the name; `share`: the least share of the time that a copy takes, by the claim.
    numbers: dict[str, int | float] = {}
    #: A sentence for the answer; "" for none.
    note: str = ""
    #: The arguments of `python -m` that measure what answers it.
    measured_by: str = STUDY

    @property
    def training(self) -> Training | None:
        """The one that is explained first."""
        return self.reported[0].training if self.reported else None


class Question(msgspec.Struct, frozen=True):
    """An article's question, where the article has no training."""

    #: Its id.
    name: str
    #: The kind of question: faster, gain or copy.
    kind: str
    #: The question in a line.
    title: str
    #: A training that shows the answer.
    training: Training
    #: The article's claim in a few words.
    claim: str
    #: The article's address.
    url: str = ""
    #: The stored machine whose rows are used where no others answer the question.
    rows: str = ""
    #: The article's words on the claim, shortened.
    words: str = ""
    #: Of a question of the kind `faster`: the faster device by the article (cpu, gpu or neither).
    faster: str = ""
    #: Of a question of the kind `gain`: what is changed, as analysis.explain.evidence names it.
    change: str = ""
    #: The article's numbers; of a question of the kind `gain` the claimed speedup is from `low` to `high`.
    numbers: dict[str, int | float] = {}
    #: A sentence for the answer; "" for none.
    note: str = ""
    #: The arguments of `python -m` that measure what answers it.
    measured_by: str = STUDY


class _CaseFile(msgspec.Struct):
    """The tables of published_cases.toml."""

    #: Trainings that articles timed.
    cases: tuple[ArticleTraining, ...]
    #: Complaints of users.
    complaints: tuple[Complaint, ...]
    #: Questions of articles.
    questions: tuple[Question, ...]


_file = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=_CaseFile)
CASES = _file.cases
COMPLAINTS = _file.complaints
QUESTIONS = _file.questions
#: Name -> what is published under it.
EVERY: dict[str, ArticleTraining | Question | Complaint] = {}
EVERY |= {article.name: article for article in CASES}
EVERY |= {question.name: question for question in QUESTIONS}
EVERY |= {complaint.name: complaint for complaint in COMPLAINTS}
