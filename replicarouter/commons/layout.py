"""Where everything lies in the memory that workers share. All of it is cells of eight bytes, integers unless
it says float. A seat is the place of one worker; who takes it over after a crash goes on from its cells."""

CELL = 8
"""Bytes of a cell."""

# A row for each replica: what one worker has there, and once more the sum over all workers.
CONNECTING, SENT, STREAMING, OUTSTANDING, OPEN, BUSY, SLOTS, AWAITED = range(8)
ROW = 8
"""Cells of a replica's row. `OPEN` and `BUSY` are connections, `SLOTS` those that count against the limits of
the connector to one replica, `AWAITED` requests in the queue that wait for this replica alone."""

SUMMED = (OUTSTANDING, SLOTS, AWAITED)
"""Columns that have a sum over all workers, which is kept under the lock. Others are added up by readers."""

ROWS = 4096
"""Replicas there can be, those included that have just left."""

# What a worker saw of its exchanges at a replica lately; floats, at the index of the replica's row.
WAITING, CURRENT, AT_WORK, TRIED, SPOKE, HEARD_AT, ASKED_AT, TRIED_SINCE = range(8)
LOOKS = ROW

# Gauges of a worker; it alone writes them. Floats: `HELD_SINCE`, `LAG`.
(
    PID,
    RECEIVING,
    WAITING_FOR_SLOT,
    HELD_SINCE,
    CLIENTS,
    TRACES_DROPPED,
    LINES_DROPPED,
    LAG,
    RELOADED,
    BODY_BYTES,
    QUEUED,
    HEADS,
    SLOT_HEADS,
    SERIES,
    UNWRITTEN,
    LOOKED,
    SLOTS_HELD,
) = range(17)
GAUGES = 64
"""Cells for them. `HELD_SINCE` is when the oldest of the held requests began to be, 0 for none; `QUEUED` how
many wait in the queue, `HEADS` and `SLOT_HEADS` how many of these are told to the other workers; `SERIES`
changes with the list of series (odd: it is being written), and `LOOKED` with each look at who can be served.
`BODY_BYTES` and `SLOTS_HELD` are what the worker has set aside, a little more than it uses.
From `FREE_GAUGE` on they are nobody's yet."""
FREE_GAUGE = 32

KEPT_GAUGES = frozenset((TRACES_DROPPED, LINES_DROPPED, SERIES))
"""Those that only rise: a worker that died leaves them behind."""

# The first cells of all; written under the lock.
HOLDER, ALL_BODY_BYTES, ALL_QUEUED, ALL_SLOTS, ALL_WAITING_FOR_SLOT, CALLERS_USED, BOOKS_USED, ROWS_USED = (
    range(8)
)
HEADER = 64
"""`HOLDER` is who has the lock: the number of a seat and one more, 0 for nobody."""

# The first waiters of a worker's queue, for those who have room to give.
HEAD = 16
(
    HEAD_MODEL,
    HEAD_RANK,
    HEAD_ONLY,
    HEAD_CALLER,
    HEAD_BOOK,
    HEAD_HELD,
    HEAD_WEIGHT,
    HEAD_TURN,
    HEAD_SINCE,
) = range(9)
HEAD_TRIED = 9
MOST_TRIED = HEAD - HEAD_TRIED
MOST_HEADS = 64
ANY = -1
"""`HEAD_ONLY` is the row of the only replica that will do, or `ANY`; from `HEAD_TRIED` on are rows that
will not, and `ANY` behind them. `HEAD_CALLER` is the place in the table of callers, -1 without one. Floats:
weight, turn, since."""

SLOT_HEAD = 2
SLOT_HEAD_ROW, SLOT_HEAD_SINCE = range(2)
MOST_SLOT_HEADS = 64
"""The oldest request that waits for a connector slot, for each replica; `since` is a float."""

# Callers: how much each holds over all workers, for the fair order of the queue.
CALLERS = 65_536
CALLER = 8
CALLER_KEY, CALLER_HELD, CALLER_WAITS, CALLER_USES, CALLER_BOOK, CALLER_TURN, CALLER_WEIGHT = range(7)
OWN_CALLER = 4
OWN_HELD, OWN_WAITS, OWN_USES = range(3)
CALLERS_A_PAGE = 64
"""So many callers are looked at together; pages in which nobody was ever written are left alone."""

PAGES = CALLERS // CALLERS_A_PAGE
"""A cell for each page: whether somebody was ever written there."""

BOOKS = 1024
BOOK = 4
BOOK_KEY, BOOK_NOW, BOOK_COMPETING, BOOK_WAITING = range(4)
"""Books of callers that compete with each other. Floats: now, competing."""

ARENA = 2**20
"""Cells of counters and histograms of a worker: 8 MiB, of which only what is used is there."""

LEVELS = 1024
"""The first cells of an arena: counts of what is there now, which end with their worker."""

DIRECTORY = 2**17
"""Cells of the list of series: 1 MiB."""
