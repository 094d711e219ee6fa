"""Sends a request for an alias to the model that the alias stands for."""

from collections.abc import Mapping

from replicarouter.protocol.alias import form_name, json_name, rewrite_model, rewrite_query
from replicarouter.protocol.endpoints import Body as Kind
from replicarouter.protocol.request import InferenceRequest
from replicarouter.proxy.body import Body
from replicarouter.proxy.upload import Upload


def resolve(
    aliases: Mapping[str, str], inference: InferenceRequest, kind: Kind, body: Body | Upload, target: str
) -> str:
    """Let `inference` and `body` name the model instead of its alias; the request target to go on with,
    which is `target` unless that names the model.

    Nothing happens to a request that names no alias. Raises `InvalidRequest` where the name stands in
    a way that cannot be replaced.
    """
    name = inference.model
    model = aliases.get(name) if name is not None else None
    if model is None:
        return target
    inference.model = model
    if kind is Kind.SESSION:
        return rewrite_query(target, model)
    if inference.model_at is not None:
        body.put(inference.model_at, form_name(model) if kind is Kind.FORM else json_name(model))
    elif not body.streams:
        body.data = rewrite_model(body.data, model)
        body.length = len(body.data)
    return target
