"""All that the router uses of asyncio beyond its documented API.

`tests/proxy/test_asyncio_internals.py` fails when a version of Python changes it.
"""

import asyncio
from typing import Any


def go_on(waiter: "asyncio.Future[Any]", result: object) -> None:
    """Set the result of a future for which one task waits, and run that task until it waits again.

    Not to be called while any task runs: asyncio raises `RuntimeError` then.
    """
    callbacks = waiter._callbacks or ()
    if len(callbacks) == 1:
        ((callback, context),) = callbacks
        waiter.remove_done_callback(callback)
        waiter.set_result(result)
        context.run(callback, waiter)
    else:
        waiter.set_result(result)
