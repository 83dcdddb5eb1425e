"""Help: every option has a text, and every line fits on a terminal of 80 columns."""

import argparse
from collections.abc import Iterator

import pytest

from in2r.cli.main import build_parser


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield a parser and those of its verbs."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb in dict.fromkeys(action.choices.values()):
                yield from parsers(verb)


every_verb = pytest.mark.parametrize("verb", list(parsers(build_parser())), ids=lambda verb: verb.prog)


@every_verb
def test_lines_fit_into_80_columns(verb: argparse.ArgumentParser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = verb.format_help().splitlines()
    assert len(lines) > 3
    assert [line for line in lines if len(line) > 80] == []


@every_verb
def test_every_option_has_a_text(verb: argparse.ArgumentParser) -> None:
    options = [action for action in verb._actions if not isinstance(action, argparse._SubParsersAction)]
    assert [action.dest for action in options if not action.help] == []


@every_verb
def test_names_keep_their_capitals(verb: argparse.ArgumentParser) -> None:
    assert not (verb.description or "").startswith(("RSum", "T-SNE"))
