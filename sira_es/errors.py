"""What can go wrong, as one tree.

    SiraError
      ConfigurationError      a setting or an option is wrong; nothing was done
      UnsupportedError        this engine, index or request cannot be served this way
      InputError              a file or a value that was handed in cannot be used
      ClusterError            the cluster
        ClusterUnreachable      gave no answer
        ClusterRefused          gave an answer that is an error: status, type, reason
      ModelError              the language model gave no usable answer
      SpendLimitReached       a limit of cost, documents or time that was asked for

Every message is one line: what happened, on what, what to do. None holds a credential.
"""

from __future__ import annotations

__all__ = [
    "ClusterError",
    "ClusterRefused",
    "ClusterUnreachable",
    "ConfigurationError",
    "InputError",
    "ModelError",
    "SiraError",
    "SpendLimitReached",
    "UnsupportedError",
]


class SiraError(Exception):
    """Root of all errors of this package; `exit_code` is what the command line ends with."""

    exit_code = 1


class ConfigurationError(SiraError):
    exit_code = 2


class UnsupportedError(SiraError):
    pass


class InputError(SiraError):
    exit_code = 2


class ClusterError(SiraError):
    pass


class ClusterUnreachable(ClusterError):
    pass


class ClusterRefused(ClusterError):
    """An error answer of the cluster: HTTP `status`, `error_type` and `reason` of its root cause (empty where it gave none)."""

    def __init__(self, message: str, *, status: int, error_type: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.error_type = error_type
        self.reason = reason


class ModelError(SiraError):
    """The model gave no usable answer; `retry_after` is what it asked us to wait, in seconds, where it said so."""

    def __init__(self, message: str, *, reason: str = "model error", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after = retry_after


class SpendLimitReached(SiraError):
    exit_code = 4
