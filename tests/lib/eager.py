"""Tasks that begin at once, as those of `asyncio.eager_task_factory` (Python 3.12), where Python is older, too."""

import asyncio


class Rest:
    """A coroutine that has begun, and waits."""

    def __init__(self, work, waits):
        self.work, self.waits = work, waits

    def __await__(self):
        yield self.waits
        return (yield from self.work.__await__())


async def rest(work, waits):
    return await Rest(work, waits)


def factory(*names):
    """For `loop.set_task_factory`. Before 3.12 the coroutines of these names alone begin at once."""

    def begin(loop, work, **how):
        if getattr(work, "__qualname__", "") not in names:
            return asyncio.Task(work, loop=loop, **how)
        ended = loop.create_future()
        try:
            waits = work.send(None)
        except StopIteration as e:
            ended.set_result(e.value)
        except Exception as e:
            ended.set_exception(e)
        else:
            return asyncio.Task(rest(work, waits), loop=loop, **how)
        return ended

    return getattr(asyncio, "eager_task_factory", begin)
