"""A finding of an explanation in words."""

from analysis.finding import Finding


def words(module, kind: str, subject: str = "", doubts=(), **numbers) -> str:
    return module.SENTENCES[kind](Finding(kind=kind, subject=subject, numbers=numbers, doubts=tuple(doubts)))
