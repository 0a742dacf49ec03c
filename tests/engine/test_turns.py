"""A lane serves so many at a time, whoever waited for others first, and loses no turn to who gives up."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.engine.live import Turns


def test_who_waited_for_others_goes_first():
    async def go():
        turns, order = Turns(1), []

        async def one(name, soon):
            async with turns.turn(soon=soon):
                order.append(name)
                await asyncio.sleep(0)

        await asyncio.gather(
            one("a", False), one("b", False), one("c", True), one("d", False), one("e", True)
        )
        return order

    assert asyncio.run(go()) == ["a", "c", "e", "b", "d"]


@given(
    st.integers(1, 4), st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 9)), max_size=20)
)
def test_no_turn_is_lost_and_none_is_given_twice(width, wanted):
    """Some are cancelled while they wait, at their turn, or in it; all others are served."""

    async def go():
        turns, inside, most, served = Turns(width), 0, 0, []

        async def one(number, soon, steps):
            nonlocal inside, most
            async with turns.turn(soon=soon):
                inside += 1
                most = max(most, inside)
                try:
                    for _ in range(steps):
                        await asyncio.sleep(0)
                finally:
                    inside -= 1
                served.append(number)

        tasks = [asyncio.create_task(one(n, soon, steps)) for n, (soon, steps, _) in enumerate(wanted)]
        given_up = set()
        for moment in range(9):
            for number, (_, _, end) in enumerate(wanted):
                if end == moment and tasks[number].cancel():
                    given_up.add(number)
            await asyncio.sleep(0)
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
        return most, set(served), given_up

    most, served, given_up = asyncio.run(go())
    assert most <= width
    assert served | given_up == set(range(len(wanted)))
