"""What is deployed beside the router is tried once for all tests: starting it takes seconds."""

import pytest

from tests.deploy.dashboard import choices, queries, query_variables
from tests.deploy.rules import recorded
from tests.deploy.scene import ASKED_BADLY, Seen, watch


@pytest.fixture(scope="session")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """What a real Prometheus says of two routers at work."""
    wanted = {
        *(query.filled for query in queries()),
        *(choices(variable)[0] for variable in query_variables().values()),
        *recorded(),
        'up{job="engines"} == 1',
        ASKED_BADLY,
    }
    return watch(tmp_path_factory.mktemp("deploy"), sorted(wanted))
