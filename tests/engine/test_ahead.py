"""What is begun while checks are still loaded is what the run then asks for, and nothing else."""

import asyncio

import pytest

from nodedoctor.children.fork_server import ForkServer
from nodedoctor.declare.registry import Options
from nodedoctor.demo import folder
from nodedoctor.engine.session import Request, Session


@pytest.mark.parametrize(
    "request_",
    [
        Request(tags=("fast",)),
        Request(words=("limits",)),
        Request(words=("kernel", "net.mtu")),
        Request(tags=("nvlink",)),
        Request(options=Options(passive=True, expect={"gpus": "8"}), words=("limits.shm",)),
        Request(options=Options(passive=True, since="1h", env_file="/dev/null")),
    ],
    ids=["fast", "subject", "words", "tag", "expected", "passive"],
)
def test_all_that_was_begun_is_asked_for(request_):
    server = ForkServer()
    session = Session(request_, server)
    begun = {argv: number for argv, (number, _) in server._ahead.items()}

    async def run():
        return await session.diagnosis().run()

    report = asyncio.run(run())
    left = dict(server._ahead)
    session.close()
    assert begun and not left
    asked = {one.argv for one in report.observations}
    assert set(begun) <= asked


def test_a_replay_starts_no_process():
    session = Session(Request(replay=folder("healthy")))
    asyncio.run(session.diagnosis().run())
    assert session._server is None
