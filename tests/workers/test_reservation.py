"""The port that is kept for the workers."""

import socket
from contextlib import closing

import pytest

from replicarouter.errors import CannotListen
from replicarouter.settings import Settings
from replicarouter.workers.reservation import Reservation
from tests.fakes.client import HOST
from tests.fakes.running import free_port


def listener(port: int, *, shared: bool = False, lenient: bool = False) -> socket.socket:
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, shared)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, lenient)
    try:
        one.bind((HOST, port))
        one.listen()
    except OSError:
        one.close()
        raise
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


def test_connections_that_have_ended_keep_nobody_from_it() -> None:
    with closing(listener(0, lenient=True)) as server:  # As a router without workers does it.
        port = server.getsockname()[1]
        for _ in range(3):
            with closing(socket.create_connection((HOST, port))) as client:
                accepted, _ = server.accept()
                accepted.close()  # Who closes first has the connection for another minute.
                assert client.recv(1) == b""
    kept = Reservation.of(HOST, port)
    with closing(kept), closing(listener(port, shared=True)), closing(socket.socket()) as client:
        client.connect((HOST, port))


@pytest.mark.parametrize("lenient", [True, False])
def test_nobody_else_gets_it_meanwhile(lenient: bool) -> None:
    kept = Reservation.of(HOST, 0)
    with closing(kept), pytest.raises(OSError, match="in use"):
        listener(kept.port, lenient=lenient)


def test_nor_do_other_workers_before_these_listen() -> None:
    kept = Reservation.of(HOST, 0)
    with closing(kept), pytest.raises(CannotListen):
        Reservation.of(HOST, kept.port)


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
