"""The port that is kept for the workers."""

import socket
from contextlib import closing

import pytest

from replicarouter.errors import CannotListen
from replicarouter.settings import Settings
from replicarouter.workers.reservation import Reservation
from tests.fakes.client import HOST
from tests.fakes.running import free_port


def listener(port: int, *, shared: bool = False) -> socket.socket:
    one = socket.socket()
    if shared:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    one.bind((HOST, port))
    one.listen()
    return one


@pytest.mark.parametrize("host", [HOST, "0.0.0.0", "localhost"])
def test_any_number_of_workers_may_listen_there(host: str) -> None:
    kept = Reservation.of(host, 0)
    with closing(kept):
        assert kept.port
        for _ in range(3):
            with closing(listener(kept.port, shared=True)), closing(socket.socket()) as client:
                client.connect((HOST, kept.port))


def test_clients_are_refused_before_a_worker_listens() -> None:
    kept = Reservation.of(HOST, 0)
    with closing(kept), closing(socket.socket()) as client, pytest.raises(ConnectionRefusedError):
        client.connect((HOST, kept.port))


@pytest.mark.parametrize("shared", [True, False], ids=["that would share it", "that would not"])
def test_a_port_is_taken_where_somebody_listens(shared: bool) -> None:
    port = free_port()
    with closing(listener(port, shared=shared)), pytest.raises(CannotListen) as refused:
        Reservation.of(HOST, port)
    assert refused.value.port == port


def test_nobody_else_gets_it_meanwhile() -> None:
    kept = Reservation.of(HOST, 0)
    with closing(kept), closing(socket.socket()) as other, pytest.raises(OSError, match="in use"):
        other.bind((HOST, kept.port))


def test_it_is_free_afterwards() -> None:
    kept = Reservation.of(HOST, 0)
    kept.close()
    listener(kept.port).close()


def test_workers_are_told_the_port_that_was_found() -> None:
    settings = Settings.model_validate({"port": 0, "replicas": ["http://a.invalid"]})
    kept = Reservation.of(HOST, 0)
    with closing(kept):
        assert kept.told(settings).port == kept.port
        assert kept.told(settings).replicas == settings.replicas
