"""One tree of errors, each with the exit code that the command line ends with."""

from __future__ import annotations

import inspect

import pytest

from sira_es import errors


def test_every_error_is_exported_and_below_the_root() -> None:
    defined = {name for name, value in vars(errors).items() if inspect.isclass(value)}
    assert sorted(defined) == errors.__all__
    assert all(issubclass(getattr(errors, name), errors.SiraError) for name in defined)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigurationError("x"), 2),
        (errors.InputError("x"), 2),
        (errors.UnsupportedError("x"), 1),
        (errors.ClusterUnreachable("x"), 1),
        (errors.ClusterRefused("x", status=404), 1),
        (errors.ModelError("x"), 1),
        (errors.SpendLimitReached("x"), 4),
    ],
)
def test_exit_codes(error: errors.SiraError, code: int) -> None:
    assert error.exit_code == code


def test_no_answer_and_a_bad_answer_are_both_errors_of_the_cluster() -> None:
    assert issubclass(errors.ClusterUnreachable, errors.ClusterError)
    assert issubclass(errors.ClusterRefused, errors.ClusterError)
    assert not issubclass(errors.ClusterRefused, errors.ClusterUnreachable)
