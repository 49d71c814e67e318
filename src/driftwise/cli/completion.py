"""`driftwise completion`: what a shell needs to complete commands, flags and names."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from driftwise.cli.common import add_command, refuse_part_options

SHELLS = {
    "bash": "driftwise completion bash > ~/.local/share/bash-completion/completions/driftwise",
    "zsh": "driftwise completion zsh > a folder of $fpath, as _driftwise",
    "fish": "driftwise completion fish > ~/.config/fish/completions/driftwise.fish",
}


@dataclass(frozen=True)
class Level:
    """What may follow a command, e.g. `driftwise data`."""

    commands: dict[str, str] = field(default_factory=dict)
    """further commands, with their summaries"""
    flags: dict[str, str] = field(default_factory=dict)
    """flags, with their help"""
    values: dict[str, list[str]] = field(default_factory=dict)
    """of flags and of the place after the command (""): the words that may follow"""


def add_completion_command(commands: Any) -> None:
    """Register `completion` with the subparsers of the command line."""
    hints = "; ".join(SHELLS.values())
    completion = add_command(
        commands,
        "completion",
        _completion,
        "a script that completes commands, flags and names in bash, zsh or fish",
        epilog=f"Install it once: {hints}.",
    )
    completion.add_argument("shell", choices=tuple(SHELLS), help="the shell")


def _completion(arguments: argparse.Namespace) -> int:
    from driftwise.cli.main import parser

    refuse_part_options(arguments)
    write = {"bash": bash, "zsh": zsh, "fish": fish}[arguments.shell]
    print(write(levels(parser())))
    return 0


def levels(parser: argparse.ArgumentParser) -> dict[str, Level]:
    """By the words of a command, what may follow it."""
    return dict(_levels(parser, "driftwise"))


def _levels(parser: argparse.ArgumentParser, words: str) -> Iterator[tuple[str, Level]]:
    from driftwise.config import registry

    level = Level()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            level.commands.update({each.dest: each.help or "" for each in action._choices_actions})
            for name, below in action.choices.items():
                yield from _levels(below, f"{words} {name}")
            continue
        names = [name for name in action.option_strings if name.startswith("--")] or [""]
        if names != [""]:
            level.flags[names[0]] = " ".join(str(action.help or "").split())
        known = registry.CATALOGUE.get(action.dest, {}) or (
            registry.CATALOGUE if action.dest == "kind" else {}
        )
        choices = list(action.choices or known)
        if choices:
            level.values[names[0]] = [str(choice) for choice in choices]
    yield words, level


def bash(found: Mapping[str, Level]) -> str:
    """The script for bash; files are completed where nothing else fits."""
    return f"""\
# Completion of driftwise for bash.
_driftwise() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}"
  local key=driftwise word words=
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$key $word" in
      {_commands(found)}) key="$key $word" ;;
    esac
  done
  case "$key $prev" in
{_values(found)}
    *) case "$key" in
{_words(found)}
      esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -o default -F _driftwise driftwise"""


def zsh(found: Mapping[str, Level]) -> str:
    """The script for zsh; files are offered beside the words."""
    return f"""\
#compdef driftwise
# Completion of driftwise for zsh.
_driftwise() {{
  local key=driftwise word words_now= prev="${{words[CURRENT-1]}}"
  for word in "${{(@)words[2,CURRENT-1]}}"; do
    case "$key $word" in
      {_commands(found)}) key="$key $word" ;;
    esac
  done
  case "$key $prev" in
{_values(found, "words_now")}
    *) case "$key" in
{_words(found, "words_now")}
      esac ;;
  esac
  compadd -- ${{=words_now}}
  [[ $PREFIX == -* ]] || _files
}}
compdef _driftwise driftwise"""


def fish(found: Mapping[str, Level]) -> str:
    """The script for fish, with the help of each word."""
    lines = ["# Completion of driftwise for fish."]
    for words, level in found.items():
        seen = words.split()[1:]
        within = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in seen)
        rest = " ".join(level.commands)
        alone = "__fish_use_subcommand"
        if seen and rest:
            alone = f"{within}; and not __fish_seen_subcommand_from {rest}"
        for name, text in level.commands.items():
            lines.append(
                f"complete -c driftwise -n {_quoted(alone)} -f -a {name} -d {_about(text)}"
            )
        where = f"-n {_quoted(within)} " if within else ""
        for flag, text in level.flags.items():
            given = level.values.get(flag)
            takes = f" -x -a {_quoted(' '.join(given))}" if given else ""
            lines.append(f"complete -c driftwise {where}-l {flag[2:]}{takes} -d {_about(text)}")
        if given := level.values.get(""):
            lines.append(f"complete -c driftwise {where}-f -a {_quoted(' '.join(given))}")
    return "\n".join(lines)


def _commands(found: Mapping[str, Level]) -> str:
    return "|".join(_quoted(words) for words in found if words != "driftwise")


def _values(found: Mapping[str, Level], variable: str = "words") -> str:
    return "\n".join(
        f"    {_quoted(f'{words} {flag}')}) {variable}={_quoted(' '.join(values))} ;;"
        for words, level in found.items()
        for flag, values in level.values.items()
        if flag
    )


def _words(found: Mapping[str, Level], variable: str = "words") -> str:
    return "\n".join(
        f"      {_quoted(words)}) {variable}="
        f"{_quoted(' '.join([*level.commands, *level.values.get('', []), *level.flags]))} ;;"
        for words, level in found.items()
    )


def _quoted(text: str) -> str:
    """In single quotes, in which no shell replaces anything."""
    return "'" + text.replace("\\", "/").replace("'", "’") + "'"


def _about(text: str) -> str:
    """The first words of a help text."""
    return _quoted(text if len(text) <= 70 else f"{text[:69]}…")
