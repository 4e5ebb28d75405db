"""A web service that certifies images under deadlines; needs `smoothmix[serve]`."""

from smoothmix.models.extras import import_extra

# First: the error then names the extra, instead of a module that nobody has heard of.
import_extra("fastapi", extra="serve", purpose="the service")
import_extra("python_multipart", extra="serve", purpose="the service")
import_extra("uvicorn", extra="serve", purpose="the service")

from smoothmix.serve.app import make_app  # noqa: E402
from smoothmix.serve.classifier import Classifier, open_classifier  # noqa: E402
from smoothmix.serve.server import run  # noqa: E402
from smoothmix.serve.service import Service  # noqa: E402
from smoothmix.serve.settings import ServeSettings  # noqa: E402

__all__ = ["Classifier", "ServeSettings", "Service", "make_app", "open_classifier", "run"]
