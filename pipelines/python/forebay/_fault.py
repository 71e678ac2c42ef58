"""Faults: what went wrong, where, why, and what to do."""


class Fault(Exception):
    """What Forebay reports. Its text is what the program prints; ``code`` never changes its meaning."""

    code: str
    """Such as ``FB0205``."""
    message: str
    """What went wrong, in one sentence."""
    hint: str | None
    """What to do."""
    column: str | None
    """The column, where there is one."""
    rows: list[int]
    """The rows, where they are known."""

    def __init__(
        self,
        code: str,
        message: str,
        hint: str | None = None,
        text: str | None = None,
        column: str | None = None,
        rows: list[int] | None = None,
    ) -> None:
        told = f"error[{code}]: {message}" + (f"\nhint: {hint}" if hint else "")
        super().__init__(text or told)
        self.code, self.message, self.hint, self.column, self.rows = code, message, hint, column, rows or []


class SpecFault(Fault, ValueError):
    """The spec, the parameters or the arguments are wrong."""


class DataFault(Fault):
    """The data is not what the spec says."""


class ResourceFault(Fault):
    """Memory, disk or another limit ran out."""


class ExternalFault(Fault):
    """Storage or something else outside failed; trying again may help."""
