"""The status page as a browser gets it: a shell that holds no data, its script and its style. They are
open to everybody; what they show comes from `/admin/live`, which is not."""

from hashlib import sha256
from importlib.resources import files

from aiohttp import web

SHELL = "/"
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_PARTS = (
    *("page.css", "icon.svg", "page.js", "feed.js", "dom.js", "charts.js", "verdicts.js"),
    *("path.js", "fleet.js", "panels.js", "orders.js"),
)
_NAMES = {SHELL: "index.html", **{f"/page/{name}": name for name in _PARTS}}

# Nothing from elsewhere, nothing inline, no frame around the drain buttons, and no text that becomes markup.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    # Asked for again each time, so that a newer router is not met by an older page.
    "Cache-Control": "no-cache",
}

PAGE_PATHS = frozenset(_NAMES)
"""All paths of the page."""


class PageFiles:
    """Answers the paths of the page from the files of the package."""

    def __init__(self) -> None:
        folder = files("replicarouter.admin") / "page"
        self._files = {path: (folder / name).read_bytes() for path, name in _NAMES.items()}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """One file, or that it has not changed."""
        name, content = _NAMES[request.path], self._files[request.path]
        etag = sha256(content).hexdigest()[:20]
        headers = {**_HEADERS, "ETag": f'"{etag}"', "Content-Type": _TYPES[name.rpartition(".")[2]]}
        if any(known.value == etag for known in request.if_none_match or ()):
            return web.Response(status=304, headers=headers)
        return web.Response(body=content, headers=headers)
