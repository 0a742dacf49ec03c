"""Completion for zsh."""

from __future__ import annotations

import re

from nodedoctor.cli.completion.vocabulary import (
    FILES,
    FOLDERS,
    HEAD,
    Argument,
    Subcommand,
    Vocabulary,
    Words,
    quoted,
)


def script(known: Vocabulary) -> str:
    """For zsh: `_arguments` for each command, a function for each list of words."""
    cases: list[str] = []
    for command in known.commands:
        if command.name:
            cases += [
                f"            {command.name})",
                *_arguments(command, 16),
                "                return ;;",
            ]
    return "\n".join(
        [
            "#compdef nodedoctor",
            HEAD.format(shell="zsh"),
            *(_list(name, words) for name, words in known.lists.items()),
            "_nodedoctor_first() { _nodedoctor_list_commands; _nodedoctor_list_checks }\n",
            "_nodedoctor() {",
            "    if (( CURRENT > 2 )); then",
            "        local command=$words[2]",
            "        case $command in",
            f"            {'|'.join(command.name for command in known.commands if command.name)})",
            "                shift words; (( CURRENT-- )) ;;",
            "        esac",
            "        case $command in",
            *cases,
            "        esac",
            "    fi",
            *_arguments(known.commands[0], 4),
            "}\n",
            '_nodedoctor "$@"\n',
        ]
    )


def _list(name: str, words: Words) -> str:
    lines = [f"_nodedoctor_list_{name}() {{", "    local -a found=("]
    lines += [f"        {quoted(_word(word, about))}" for word, about in words.items()]
    joined = " -S ''" if all(word.endswith("=") for word in words) else ""
    return "\n".join([*lines, "    )", f"    _describe -t {name} {name} found{joined}", "}\n"])


def _word(word: str, about: str) -> str:
    escaped = word.replace(":", r"\:")
    return f"{escaped}:{about}" if about else escaped


def _arguments(command: Subcommand, indent: int) -> list[str]:
    specs = [_option(option, flag) for option in command.options for flag in option.flags]
    first = () if command.name else (Argument((), "", True, ("first",)),)
    places = [*first, *command.places]
    for number, place in enumerate(places, 1):
        where = "*" if number == len(places) else str(number)
        specs.append(f"{where}:{_label(place)}:{_action(place.kinds)}")
    margin = " " * indent
    return [
        f"{margin}_arguments -s \\",
        *(f"{margin}    {quoted(s)} \\" for s in specs),
        f"{margin}    && return 0",
    ]


def _option(option: Argument, flag: str) -> str:
    """One spec of an option, which may be given again as most of ours may; help stands alone."""
    help = re.sub(r"([][:\\])", r"\\\1", option.help)
    value = f":{_label(option)}:{_action(option.kinds)}" if option.takes else ""
    equals = "=" if option.takes and flag.startswith("--") else ""
    alone = "(- *)" if "--help" in option.flags else "*"
    return f"{alone}{flag}{equals}[{help}]{value}"


def _label(argument: Argument) -> str:
    return " ".join(kind.strip("()") for kind in argument.kinds) or "value"


def _action(kinds: tuple[str, ...]) -> str:
    ways = {FILES: "_files", FOLDERS: "_files -/", "first": "_nodedoctor_first"}
    actions = [ways.get(kind, f"_nodedoctor_list_{kind}") for kind in kinds]
    return f"{{{'; '.join(actions)}}}" if len(actions) > 1 else "".join(actions) or " "
