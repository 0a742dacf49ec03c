"""Completion for bash 4 and newer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from nodedoctor.cli.completion.vocabulary import FILES, FOLDERS, HEAD, Subcommand, Vocabulary, places, quoted


def script(vocabulary: Vocabulary) -> str:
    """One function: what can follow depends on the command, on the word before and on what is begun."""
    commands = "|".join(command.name for command in vocabulary.commands if command.name)
    lists = [f"    local list_{name}={quoted(' '.join(words))}" for name, words in vocabulary.lists.items()]
    before = [
        f"        {pattern}) {_value_words(kinds)}; return ;;"
        for pattern, kinds in _by_value(vocabulary.commands).items()
    ]
    options = [
        f"            '{command.name}') _nodedoctor_words {quoted(' '.join(_option_flags(command)))} ;;"
        for command in vocabulary.commands
    ]
    positions = [
        f"        {where}) {_value_words(kinds)} ;;" for where, kinds in places(vocabulary.commands) if kinds
    ]
    return "\n".join(
        [
            HEAD.format(shell="bash"),
            _HELPERS,
            "_nodedoctor() {",
            *lists,
            _WHERE.replace("@commands@", commands),
            '    case "$command:$previous" in',
            *before,
            "    esac",
            '    if [[ $current == -* ]]; then\n        case "$command" in',
            *options,
            "        esac",
            "        return",
            "    fi",
            '    case "$command:$first" in',
            *positions,
            "    esac",
            "}",
            "complete -F _nodedoctor nodedoctor\n",
        ]
    )


_HELPERS = """\
_nodedoctor_words() {
    local found
    mapfile -t found < <(compgen -W "$1" -- "$current")
    COMPREPLY+=("${found[@]}")
    if [[ ${found[0]-} == *= ]]; then compopt -o nospace 2>/dev/null; fi
}

_nodedoctor_files() {
    local found
    mapfile -t found < <(compgen "$1" -- "$current")
    COMPREPLY+=("${found[@]}")
    compopt -o filenames 2>/dev/null
}
"""

# bash takes `--option=value` apart at the equals sign.
_WHERE = """\
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command='' first=no
    COMPREPLY=()
    case "${COMP_WORDS[1]}" in
        @commands@) if ((COMP_CWORD > 1)); then command=${COMP_WORDS[1]}; fi ;;
    esac
    if ((COMP_CWORD == 1)) || { ((COMP_CWORD == 2)) && [[ -n $command ]]; }; then first=yes; fi
    if [[ $current == '=' ]]; then
        current=''
    elif [[ $previous == '=' ]]; then
        previous=${COMP_WORDS[COMP_CWORD - 2]}
    fi"""


def _value_words(kinds: Iterable[str]) -> str:
    completers = {FILES: "_nodedoctor_files -f", FOLDERS: "_nodedoctor_files -d"}
    return "; ".join(completers.get(kind, f'_nodedoctor_words "$list_{kind}"') for kind in kinds) or ":"


def _by_value(commands: Iterable[Subcommand]) -> Mapping[str, tuple[str, ...]]:
    """What can follow an option, by the pattern `command:option`; options that take the same share one."""
    patterns: dict[tuple[str, ...], list[str]] = {}
    for command in commands:
        for option in command.options:
            if option.takes:
                patterns.setdefault(option.kinds, []).extend(
                    f"{command.name}:{flag}" for flag in option.flags
                )
    return {"|".join(alternatives): kinds for kinds, alternatives in patterns.items()}


def _option_flags(command: Subcommand) -> Iterator[str]:
    for option in command.options:
        yield from option.flags
