"""What an expression may cost, read from its parse tree: over which repeats can one text be divided?

Each of its positions takes a class of characters; two loops one behind the other that take the same word
cost the square of a text, and so does one that a search may begin anywhere in.
"""

# mypy: ignore-errors
# The parse tree of `re` has no types.
from __future__ import annotations

import operator
import re
import warnings
from collections import deque
from dataclasses import dataclass
from functools import reduce
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import sre_constants as sre
    import sre_parse

REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT, getattr(sre, "POSSESSIVE_REPEAT", None))
GROUPS = (sre.SUBPATTERN, getattr(sre, "ATOMIC_GROUP", None))
MANY = 300
LARGE = 2000
COPIES = 2

ATOMS = [chr(c) for c in range(128)] + ["é", "٣", "\u2003", "█"]
INDEX = {c: i for i, c in enumerate(ATOMS)}
CHARS = (1 << len(ATOMS)) - 1
BEGIN = 1 << len(ATOMS)
ALL = CHARS | BEGIN
TRUE = ((ALL, ALL),)


def bits(expression: str) -> int:
    return sum(1 << i for i, c in enumerate(ATOMS) if re.match(expression, c, re.DOTALL))


DIGIT, SPACE, WORD, NEWLINE = bits(r"\d"), bits(r"\s"), bits(r"\w"), bits(r"\n")
CATEGORIES = {
    sre.CATEGORY_DIGIT: DIGIT,
    sre.CATEGORY_NOT_DIGIT: CHARS & ~DIGIT,
    sre.CATEGORY_SPACE: SPACE,
    sre.CATEGORY_NOT_SPACE: CHARS & ~SPACE,
    sre.CATEGORY_WORD: WORD,
    sre.CATEGORY_NOT_WORD: CHARS & ~WORD,
}
BOUNDARY = ((ALL & ~WORD, WORD), (WORD, ALL & ~WORD))
NO_BOUNDARY = ((ALL & ~WORD, ALL & ~WORD), (WORD, WORD))


def both(x, y):
    return tuple({(a & c, b & d) for a, b in x for c, d in y if a & c and b & d})


def char(code: int, flags: int) -> int:
    c = chr(code)
    found = 1 << INDEX.get(c, INDEX["é" if c.isalnum() else "█"])
    if flags & re.I:
        for d in (c.lower(), c.upper()):
            found |= 1 << INDEX[d] if d in INDEX else 0
    return found


def chars(items: Any, flags: int) -> int:
    out, negate = 0, False
    for op, av in items:
        if op is sre.NEGATE:
            negate = True
        elif op is sre.LITERAL:
            out |= char(av, flags)
        elif op is sre.RANGE:
            within = (char(ord(c), flags) for c in ATOMS if av[0] <= ord(c) <= av[1])
            out |= reduce(operator.or_, within, 0)
        elif op is sre.CATEGORY:
            out |= CATEGORIES[av]
    return CHARS & ~out if negate else out


@dataclass
class Frag:
    first: list
    last: list
    null: tuple


class Machine:
    def __init__(self, expression, flags=0, search=True, full=False):
        tree = sre_parse.parse(expression, flags)
        self.flags = tree.state.flags if hasattr(tree.state, "flags") else flags
        self.cls: list[int] = []
        self.bounded = set()
        self.next: list[dict[int, tuple]] = []
        start = self.new(CHARS)
        if search and not self.anchored(tree):
            self.edge(start, start, TRUE)
        body = self.seq(tree)
        if full:
            body = self.cat(body, self.single(0))
        for pos, cond in body.first:
            self.edge(start, pos, cond)
        self.ends = {pos for pos, cond in body.last if cond == TRUE}

    def anchored(self, items) -> bool:
        for op, av in items:
            if op is sre.AT and (
                av is sre.AT_BEGINNING_STRING or (av is sre.AT_BEGINNING and not self.flags & re.M)
            ):
                return True
            if op in GROUPS:
                return self.anchored(av[3] if op is sre.SUBPATTERN else av)
            if op is sre.BRANCH:
                return all(self.anchored(b) for b in av[1])
            if op not in (sre.ASSERT, sre.ASSERT_NOT, sre.AT):
                return False
        return False

    def new(self, cls):
        self.cls.append(cls)
        self.next.append({})
        return len(self.cls) - 1

    def edge(self, a, b, cond):
        self.next[a][b] = tuple({*self.next[a].get(b, ()), *cond})

    def single(self, cls):
        p = self.new(cls)
        return Frag([(p, TRUE)], [(p, TRUE)], ())

    def empty(self, cond=TRUE):
        return Frag([], [], cond)

    def cat(self, x, y):
        for a, post in x.last:
            for b, pre in y.first:
                if ok := both(post, pre):
                    self.edge(a, b, ok)
        first = x.first + [(p, ok) for p, c in y.first if (ok := both(c, x.null))]
        last = y.last + [(p, ok) for p, c in x.last if (ok := both(c, y.null))]
        return Frag(first, last, both(x.null, y.null))

    def seq(self, items):
        frag = self.empty()
        for op, av in items:
            frag = self.cat(frag, self.one(op, av))
        return frag

    def either(self, frags):
        return Frag(
            [x for g in frags for x in g.first],
            [x for g in frags for x in g.last],
            tuple({c for g in frags for c in g.null}),
        )

    def repeat(self, low, high, body):
        frag = self.empty()
        if high is sre.MAXREPEAT or high > MANY:
            for _ in range(min(low, COPIES) - 1):
                frag = self.cat(frag, self.seq(body))
            n0 = len(self.cls)
            g = self.seq(body)
            if high is not sre.MAXREPEAT and high <= LARGE:
                self.bounded |= set(range(n0, len(self.cls)))
            for a, post in g.last:
                for b, pre in g.first:
                    if ok := both(post, pre):
                        self.edge(a, b, ok)
            return self.cat(frag, g if low else Frag(g.first, g.last, TRUE))
        for _ in range(min(low, COPIES)):
            frag = self.cat(frag, self.seq(body))
        if high > low:
            g = self.seq(body)
            frag = self.cat(frag, Frag(g.first, g.last, TRUE))
        return frag

    def one(self, op, av):
        f = self.flags
        cls = self.one_class([(op, av)]) if op not in GROUPS and op is not sre.BRANCH else None
        if cls is not None:
            return self.single(cls)
        if op is sre.BRANCH:
            return self.either([self.seq(b) for b in av[1]])
        if op in GROUPS:
            if op is not sre.SUBPATTERN:
                return self.seq(av)
            old = self.flags
            self.flags = (old | av[1]) & ~av[2]
            g = self.seq(av[3])
            self.flags = old
            return g
        if op in REPEATS:
            return self.repeat(*av)
        if op is sre.AT:
            if av is sre.AT_BOUNDARY:
                return self.empty(BOUNDARY)
            if av is sre.AT_NON_BOUNDARY:
                return self.empty(NO_BOUNDARY)
            if av in (sre.AT_END, sre.AT_END_STRING):
                return self.cat(Frag([], [], TRUE), Frag([(p := self.new(0), TRUE)], [(p, TRUE)], ()))
            if av is sre.AT_BEGINNING and f & re.M:
                return self.empty(((NEWLINE | BEGIN, ALL),))
            if av in (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING):
                return self.empty(((BEGIN, ALL),))
            return self.empty()
        if op in (sre.ASSERT, sre.ASSERT_NOT):
            way, body = av
            cls = self.one_class(body)
            if cls is not None and op is sre.ASSERT_NOT:
                cls = ALL & ~cls
            if way < 0:
                return self.empty(((cls, ALL),) if cls is not None else TRUE)
            if cls is not None:
                return self.empty(((ALL, cls),))
            g = self.seq(body)
            return Frag(g.first, [], TRUE)
        if op is sre.GROUPREF_EXISTS:
            return self.either([self.seq(av[1]), self.seq(av[2] or [])])
        return self.empty()

    def one_class(self, body):
        if len(body) != 1:
            return None
        op, av = body[0]
        f = self.flags
        if op is sre.LITERAL:
            return char(av, f)
        if op is sre.NOT_LITERAL:
            return CHARS & ~char(av, f)
        if op is sre.IN:
            return chars(av, f)
        if op is sre.ANY:
            return CHARS if f & re.S else CHARS & ~NEWLINE
        if op is sre.SUBPATTERN:
            return self.one_class(av[3])
        if op is sre.BRANCH:
            found = [self.one_class(b) for b in av[1]]
            return None if None in found else reduce(operator.or_, found, 0)
        return None

    # what is divided how
    def components(self):
        """Which positions lie on a common loop."""
        n = len(self.cls)
        index = {}
        low = {}
        stack = []
        on = set()
        comp = {}
        for root in range(n):
            if root in index:
                continue
            work = [(root, iter(self.next[root]))]
            index[root] = low[root] = len(index)
            stack.append(root)
            on.add(root)
            while work:
                v, it = work[-1]
                for w in it:
                    if w not in index:
                        index[w] = low[w] = len(index)
                        stack.append(w)
                        on.add(w)
                        work.append((w, iter(self.next[w])))
                        break
                    if w in on:
                        low[v] = min(low[v], index[w])
                else:
                    work.pop()
                    if work:
                        low[work[-1][0]] = min(low[work[-1][0]], low[v])
                    if low[v] == index[v]:
                        members = []
                        while True:
                            w = stack.pop()
                            on.discard(w)
                            members.append(w)
                            if w == v:
                                break
                        if len(members) > 1 or v in self.next[v]:
                            for w in members:
                                comp[w] = v
        return comp

    def step(self, state, comp_a, comp_c, comp):
        a, b, c, last = state
        for a2, ca in self.next[a].items():
            if comp.get(a2) != comp_a:
                continue
            for c2, cc in self.next[c].items():
                if comp.get(c2) != comp_c:
                    continue
                base = self.cls[a2] & self.cls[c2]
                if not base:
                    continue
                ac = both(ca, cc)
                if not ac:
                    continue
                for b2, cb in self.next[b].items():
                    m = base & self.cls[b2]
                    if not m:
                        continue
                    for p, n in both(ac, cb):
                        if p & last and n & m:
                            yield a2, b2, c2, n & m, p & last

    def pump(self, p, q, comp):
        """A word that p's loop, the way from p to q, and q's loop all take; '' when there is none."""
        begin = (p, p, q, ALL, ALL)
        seen = {begin: None}
        queue = deque([begin])
        while queue:
            state = queue.popleft()
            for a, b, c, m, before in self.step(state[:4], comp[p], comp[q], comp):
                new = (a, b, c, m, before if state == begin else state[4])
                if (a, b, c) == (p, q, q) and m & new[4]:
                    out = [new]
                    while state != begin:
                        out.append(state)
                        state = seen[state]
                    return "".join(self.pick(s[3]) for s in reversed(out))
                if new not in seen and len(seen) < 20000:
                    seen[new] = state
                    queue.append(new)
        return ""

    def pick(self, mask):
        for c in " a0_.,:-/\t":
            if mask >> INDEX[c] & 1:
                return c
        for i, c in enumerate(ATOMS):
            if 32 < ord(c) < 127 and mask >> i & 1:
                return c
        return ATOMS[(mask & -mask).bit_length() - 1]

    def divided(self):
        """Pairs of loops over which one word can be divided in as many ways as it is long, with the word."""
        comp = self.components()
        fails = self.failing(comp)
        out = {}
        loops = sorted(comp)
        reach = {p: self.reach(p) for p in loops}
        for p in loops:
            for q in loops:
                if p == q or q not in reach[p] or (comp[p] == comp[q]):
                    continue
                if q not in fails:
                    continue
                if p == 0 and q in self.bounded:
                    continue
                key = (comp[p], comp[q])
                if key in out:
                    continue
                if w := self.pump(p, q, comp):
                    out[key] = w
        return out

    def many(self):
        """A word that one loop takes in several ways."""
        comp = self.components()
        for p in comp:
            group = comp[p]
            begin = (p, p, ALL)
            seen = {begin}
            queue = deque([(begin, "")])
            while queue:
                (a, b, last), w = queue.popleft()
                for a2, ca in self.next[a].items():
                    if comp.get(a2) != group:
                        continue
                    for b2, cb in self.next[b].items():
                        if comp.get(b2) != group:
                            continue
                        m = self.cls[a2] & self.cls[b2]
                        for pp, n in both(ca, cb):
                            if not (pp & last and n & m):
                                continue
                            new = (a2, b2, n & m)
                            if a2 == b2 == p and a != b:
                                return w + self.pick(n & m)
                            if new not in seen and len(seen) < 5000:
                                seen.add(new)
                                queue.append((new, w + self.pick(n & m)))
        return ""

    def reach(self, p):
        seen, todo = set(), [p]
        while todo:
            for b in self.next[todo.pop()]:
                if b not in seen:
                    seen.add(b)
                    todo.append(b)
        return seen

    def failing(self, comp):
        """Loops behind which something may still fail: not those with which a match ends anyway."""
        mild = {comp[q] for q in comp if q in self.ends}
        return {q for q in comp if q not in self.ends and (comp[q] not in mild or q in self.next[q])}

    def degree(self):
        """Of what power of a line's length its cost is, and words that show it."""
        pairs = self.divided()
        memo = {}

        def deep(x):
            if x not in memo:
                memo[x] = (1, [])
                for (p, q), w in pairs.items():
                    if p == x:
                        d, ws = deep(q)
                        if d + 1 > memo[x][0]:
                            memo[x] = (d + 1, [w, *ws])
            return memo[x]

        best = max((deep(p) for p, _ in pairs), default=(1, []), key=lambda t: t[0])
        return best
