"""`nodedoctor fleet`: each node judged by itself and beside the others, or measured, alone or in pairs."""

from __future__ import annotations


def main(words: list[str]) -> int:
    """Run fleet; returns the exit code."""
    from nodedoctor.fleet.arguments import parser

    arguments = parser().parse_args(words)
    if arguments.pairs:
        from nodedoctor.pairs import cli as pairs

        return pairs.run(arguments)
    if arguments.accept:
        from nodedoctor.fleet import accept

        return accept.run(arguments)
    from nodedoctor.fleet import cli as nodes

    return nodes.run(arguments)
