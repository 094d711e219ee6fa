"""Requests as OpenTelemetry spans. The SDK is an extra (`replicarouter[otel]`), imported where it is used."""
