"""Completion for fish."""

from __future__ import annotations

from nodedoctor.cli.completion.vocabulary import (
    FILES,
    FOLDERS,
    HEAD,
    Argument,
    Subcommand,
    Vocabulary,
    Words,
    places,
)


def script(vocabulary: Vocabulary) -> str:
    """For fish: a line for each option and place, a function for each list of words."""
    commands = " ".join(command.name for command in vocabulary.commands if command.name)
    lines = [
        HEAD.format(shell="fish"),
        _WHERE.replace("@commands@", commands),
        *(_list_function(name, words) for name, words in vocabulary.lists.items()),
        "complete -c nodedoctor -f",
    ]
    for command in vocabulary.commands:
        lines += [_option_line(command, option) for option in command.options]
    for pattern, kinds in places(vocabulary.commands):
        name, first = pattern.split(":")
        if kinds:
            where = f"__nodedoctor_at {name or 'diagnosis'} {first}"
            lines.append(f"complete -c nodedoctor -n '{where}' {_value_words(kinds)}")
    return "\n".join(lines) + "\n"


_WHERE = """\
# Whether the words so far are those of a command (and the next is its first, where that is asked).
function __nodedoctor_at
    set -l words (commandline -opc)
    set -l command diagnosis
    set -l first 1
    if set -q words[2]; and contains -- $words[2] @commands@
        set command $words[2]
        set first 2
    end
    test $command = $argv[1]; or return
    set -q argv[2]; or return 0
    set -l place no
    test (count $words) -eq $first; and set place yes
    test $place = $argv[2]
end
"""


def _list_function(name: str, words: Words) -> str:
    lines = [f"function __nodedoctor_list_{name}", r"    printf '%s\t%s\n' \ ".rstrip(" ")]
    lines += [f"        {_quote_word(word)} {_quote_word(about)} \\" for word, about in words.items()]
    return "\n".join([*lines[:-1], lines[-1].removesuffix(" \\"), "end\n"])


def _option_line(command: Subcommand, option: Argument) -> str:
    flags = " ".join(f"-l {f[2:]}" if f.startswith("--") else f"-s {f[1:]}" for f in option.flags)
    value = "" if not option.takes else _value_words(option.kinds) or "-x"
    where = f"-n '__nodedoctor_at {command.name or 'diagnosis'}'"
    parts = ["complete -c nodedoctor", where, flags, value, f"-d {_quote_word(option.help)}"]
    return " ".join(part for part in parts if part)


def _value_words(kinds: tuple[str, ...]) -> str:
    if not kinds:
        return ""
    completers = {FOLDERS: "__fish_complete_directories"}
    lists = " ".join(
        f"({completers.get(kind, f'__nodedoctor_list_{kind}')})" for kind in kinds if kind != FILES
    )
    files = "-r -F" if FILES in kinds else "-x"
    return f"{files} -a '{lists}'" if lists else files


def _quote_word(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
