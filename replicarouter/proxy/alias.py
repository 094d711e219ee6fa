"""Sends a request for an alias to the model that the alias stands for."""

from collections.abc import Mapping

from aiohttp.http_parser import RawRequestMessage

from replicarouter.protocol.alias import form_name, json_name, rewrite_model, rewrite_query
from replicarouter.protocol.endpoints import Body as Kind
from replicarouter.protocol.request import InferenceRequest
from replicarouter.proxy.body import Body
from replicarouter.proxy.upload import Upload


def resolve(
    aliases: Mapping[str, str],
    inference: InferenceRequest,
    kind: Kind,
    message: RawRequestMessage,
    body: Body | Upload,
) -> RawRequestMessage:
    """Let `inference` and `body` name the model instead of its alias; the head to go on with.

    Nothing happens to a request that names no alias. Raises `InvalidRequest` where the name stands in
    a way that cannot be replaced.
    """
    name = inference.model
    target = aliases.get(name) if name is not None else None
    if target is None:
        return message
    inference.model = target
    if kind is Kind.SESSION:
        return message._replace(path=rewrite_query(message.path, target))
    if inference.model_at is not None:
        body.put(inference.model_at, form_name(target) if kind is Kind.FORM else json_name(target))
    elif not body.streams:
        body.data = rewrite_model(body.data, target)
        body.length = len(body.data)
    return message
