"""OpenAI-compatible HTTP on the wire: paths, heads, framing, what a body says. No sockets, no aiohttp."""
