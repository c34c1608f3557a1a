"""What the endpoints share: the library, and the concurrency limits of each kind of work."""

from __future__ import annotations

from fastapi import Request

from polyglance.search.library import Library
from polyglance.serve.catalog import LibraryCatalog
from polyglance.serve.explain import HitModels, SupportsAnswer, SupportsExplain
from polyglance.serve.limits import ConcurrencyLimiter, FairShare
from polyglance.serve.local import LocalAccess
from polyglance.serve.scanning import ScanRunner
from polyglance.serve.thumbnails import Thumbnails
from polyglance.serve.uploads import UploadLimits, UploadReceiver
from polyglance.serve.watching import FolderWatcher

MAX_JSON_BYTES = 100_000
"""Of the body of a request that is no upload."""


class Service:
    """A library and the concurrency limits of each kind of work."""

    def __init__(
        self,
        library: Library,
        *,
        local: LocalAccess,
        explainer: SupportsExplain | None = None,
        answerer: SupportsAnswer | None = None,
        upload_limits: UploadLimits | None = None,
    ) -> None:
        """Prepare to serve a library.

        Args:
            library: The library.
            local: Decides who may change it.
            explainer: Model that attributes hits to the words of a query.
            answerer: Model that answers questions about pictures.
            upload_limits: Size and speed of uploads; None for the defaults.
        """
        self.catalog = LibraryCatalog(library)
        self.local = local
        self.scans = ScanRunner(library, self.catalog.refresh)
        self.watcher = FolderWatcher(library, self.scans)
        self.hit_models = HitModels(self.catalog, explainer, answerer)
        self.thumbnails = Thumbnails(self.catalog)
        limits = upload_limits or UploadLimits()
        self.uploads = UploadReceiver(limits)
        self.json_bodies = UploadReceiver(limits.up_to(MAX_JSON_BYTES))
        # Searches and decoding take the cores: whoever sends many requests yields to the others.
        self.share = FairShare()
        # One query already uses all cores; the second slot is for another client.
        self.search_limiter = ConcurrencyLimiter(2, max_waiting=200, share=self.share)
        self.lookup_limiter = ConcurrencyLimiter(8, max_waiting=1000)
        # Decoding a large picture takes hundreds of megabytes.
        self.decode_limiter = ConcurrencyLimiter(2, max_waiting=1000, share=self.share)
        # Each upload takes a decoder process.
        self.upload_limiter = ConcurrencyLimiter(4, max_waiting=16)
        # Each holds a connection for as long as a scan takes.
        self.events_limiter = ConcurrencyLimiter(16, max_waiting=0, per_client=16)

    def close(self) -> None:
        """Stop what runs in the background."""
        self.watcher.stop()
        self.scans.stop(10.0)


def get_service(request: Request) -> Service:
    """Return the service of the application that a request came to."""
    service: Service = request.app.state.service
    return service
