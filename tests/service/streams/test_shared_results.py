"""Looks that many share: one for all at a time, and nobody's end is another's."""

import asyncio

import pytest
from api_world import api_world
from fastapi import Request

from distrain.service.api.dependencies import ApiCall, look_again
from distrain.service.api.streams.stream_state import SharedResults
from distrain.service.settings import Listen, SignOn
from distrain.service.values import Principal


class Sight:
    """What is looked at, and how often."""

    def __init__(self) -> None:
        self.looks = 0
        self.may_end = asyncio.Event()
        self.error: Exception | None = None

    async def look(self) -> int:
        self.looks += 1
        number = self.looks
        await self.may_end.wait()
        if self.error is not None:
            raise self.error
        return number


def test_one_look_serves_all_who_ask_meanwhile_and_another_key_has_its_own():
    async def story():
        sight, looks = Sight(), SharedResults[int](holds_s=60.0)
        asking = [asyncio.create_task(looks.get(n % 2, sight.look)) for n in range(100)]
        await asyncio.sleep(0)
        asking[0].cancel()  # it asked first; others wait for the same look
        sight.may_end.set()
        found = await asyncio.gather(*asking, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError)
        assert found[1:] == [2, *[1, 2] * 49]
        assert await looks.get(0, sight.look) == 1
        assert sight.looks == 2

    asyncio.run(story())


def test_a_look_is_forgotten_after_its_time_whatever_it_saw():
    async def story():
        sight, looks = Sight(), SharedResults[int](holds_s=0.01)
        sight.may_end.set()
        sight.error = OSError("away")
        with pytest.raises(OSError, match="away"):
            await looks.get("key", sight.look)
        sight.error = None
        while looks._results:
            await asyncio.sleep(0)
        assert await looks.get("key", sight.look) == 2

    asyncio.run(story())


@pytest.mark.parametrize("more", [{"authorization": "Basic YTpi"}, {"cookie": "distrain_session="}])
def test_users_of_one_proxy_share_no_looks(tmp_path, more):
    """Whatever the proxy sends of its own with each of their requests."""
    sign_on, socket = SignOn(user_header="X-User"), tmp_path / "socket"
    with api_world(tmp_path, sign_on=sign_on, listen=Listen(unix_socket=socket)) as world:

        def of(user):
            headers = {"x-user": user, **more}.items()
            pairs = [(name.encode(), value.encode()) for name, value in headers]
            scope = {
                "type": "http",
                "app": world.app,
                "headers": pairs,
                "server": (str(socket), None),
            }
            nobody = Principal("nobody")
            return look_again(ApiCall(Request(scope), nobody, world.app.state.parts), None)

        async def story():
            seen = await asyncio.gather(of("alice"), of("bob"))
            assert [caller.user for caller, _ in seen] == ["alice", "bob"]

        asyncio.run(story())
