"""All that the router uses of asyncio beyond its documented API.

`tests/proxy/test_asyncio_internals.py` fails when a version of Python changes it.
"""

import asyncio
from typing import Any


def go_on(waiter: "asyncio.Future[Any]", result: object) -> None:
    """Set the result of a future for which one task waits, and run that task until it waits again. Where
    others wait, or a task runs already, they go on in their turn."""
    callbacks = waiter._callbacks or ()
    if len(callbacks) != 1 or asyncio.current_task(waiter.get_loop()) is not None:
        waiter.set_result(result)
        return
    ((callback, context),) = callbacks
    waiter.remove_done_callback(callback)
    waiter.set_result(result)
    context.run(callback, waiter)
