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


def script(vocabulary: Vocabulary) -> str:
    """For zsh: `_arguments` for each command, a function for each list of words."""
    cases: list[str] = []
    for command in vocabulary.commands:
        if command.name:
            cases += [
                f"            {command.name})",
                *_argument_specs(command, 16),
                "                return ;;",
            ]
    return "\n".join(
        [
            "#compdef nodedoctor",
            HEAD.format(shell="zsh"),
            *(_list_function(name, words) for name, words in vocabulary.lists.items()),
            "_nodedoctor_first() { _nodedoctor_list_commands; _nodedoctor_list_checks }\n",
            "_nodedoctor() {",
            "    if (( CURRENT > 2 )); then",
            "        local command=$words[2]",
            "        case $command in",
            f"            {'|'.join(command.name for command in vocabulary.commands if command.name)})",
            "                shift words; (( CURRENT-- )) ;;",
            "        esac",
            "        case $command in",
            *cases,
            "        esac",
            "    fi",
            *_argument_specs(vocabulary.commands[0], 4),
            "}\n",
            '_nodedoctor "$@"\n',
        ]
    )


def _list_function(name: str, words: Words) -> str:
    lines = [f"_nodedoctor_list_{name}() {{", "    local -a found=("]
    lines += [f"        {quoted(_list_word(word, about))}" for word, about in words.items()]
    suffix = " -S ''" if all(word.endswith("=") for word in words) else ""
    return "\n".join([*lines, "    )", f"    _describe -t {name} {name} found{suffix}", "}\n"])


def _list_word(word: str, about: str) -> str:
    escaped = word.replace(":", r"\:")
    return f"{escaped}:{about}" if about else escaped


def _argument_specs(command: Subcommand, indent: int) -> list[str]:
    specs = [_option_spec(option, flag) for option in command.options for flag in option.flags]
    first = () if command.name else (Argument((), "", True, ("first",)),)
    places = [*first, *command.places]
    for number, place in enumerate(places, 1):
        where = "*" if number == len(places) else str(number)
        specs.append(f"{where}:{_argument_label(place)}:{_value_action(place.kinds)}")
    margin = " " * indent
    return [
        f"{margin}_arguments -s \\",
        *(f"{margin}    {quoted(s)} \\" for s in specs),
        f"{margin}    && return 0",
    ]


def _option_spec(option: Argument, flag: str) -> str:
    """One spec of an option, which may be given again as most of ours may; help comes alone."""
    help = re.sub(r"([][:\\])", r"\\\1", option.help)
    value = f":{_argument_label(option)}:{_value_action(option.kinds)}" if option.takes else ""
    equals = "=" if option.takes and flag.startswith("--") else ""
    alone = "(- *)" if "--help" in option.flags else "*"
    return f"{alone}{flag}{equals}[{help}]{value}"


def _argument_label(argument: Argument) -> str:
    return " ".join(kind.strip("()") for kind in argument.kinds) or "value"


def _value_action(kinds: tuple[str, ...]) -> str:
    completers = {FILES: "_files", FOLDERS: "_files -/", "first": "_nodedoctor_first"}
    actions = [completers.get(kind, f"_nodedoctor_list_{kind}") for kind in kinds]
    return f"{{{'; '.join(actions)}}}" if len(actions) > 1 else "".join(actions) or " "
