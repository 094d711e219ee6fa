"""A missing secret and a wrong one are told apart."""

from replicarouter.acceptance.keys import TOKEN


def test_a_missing_and_a_wrong_secret_read_differently() -> None:
    assert TOKEN.trouble("") == "it wants a token"
    assert TOKEN.cure("") == "give --token or set REPLICAROUTER_ADMIN__TOKEN"
    assert TOKEN.trouble("x") == "the token is wrong"
    assert TOKEN.cure("x") == "see --token and REPLICAROUTER_ADMIN__TOKEN"
