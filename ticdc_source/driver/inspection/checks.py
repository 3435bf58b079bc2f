"""What a step of `ticdc-source doctor` has found, as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

__all__ = ["Check", "Diagnosis", "Outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step has found.

    Attributes:
        result: `ok`, `warning`, `failed` or `skipped`.
        message: what was found.
        mend: what to do about it; empty if there is nothing to do.
    """

    result: str
    message: str
    mend: str = ""

    @classmethod
    def ok(cls, message: str) -> Outcome:
        """Return a good outcome."""
        return cls("ok", message)

    @classmethod
    def warning(cls, message: str, mend: str = "") -> Outcome:
        """Return an outcome with which reads work, but not as well as they could."""
        return cls("warning", message, mend)

    @classmethod
    def failed(cls, message: str, mend: str = "") -> Outcome:
        """Return an outcome with which reads fail."""
        return cls("failed", message, mend)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A step.

    Attributes:
        step: its name, for scripts.
        subject: what was looked at, such as a server or a topic; empty if the step says it.
        result, message, mend: as in `Outcome`.
        seconds: how long it took.
    """

    step: str
    subject: str
    result: str
    message: str
    mend: str
    seconds: float


@dataclass(slots=True, kw_only=True)
class Diagnosis:
    """All steps.

    Attributes:
        checks: the steps, in order.
    """

    checks: list[Check] = field(default_factory=list)

    @property
    def is_well(self) -> bool:
        """Whether no step has failed."""
        return all(check.result != "failed" for check in self.checks)

    def as_json(self) -> dict[str, object]:
        """Return everything as JSON values."""
        return {"version": 1, "ok": self.is_well, **asdict(self)}
