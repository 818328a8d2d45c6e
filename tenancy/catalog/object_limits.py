"""Bounds of the objects that tenants may store; the guards enforce them, and every budget is computed from them."""

from __future__ import annotations

OBJECT_BYTES = 65536
"""Of an object's spec, templates included, as text."""
LABELS = 64
"""Labels of one object."""
ANNOTATIONS = 64
"""Annotations of one object."""
ANNOTATION_BYTES = 16384
"""Of an object's annotations together."""
MANAGERS = 32
"""Field managers of one object."""
CONFIG_BYTES = 1048576
"""Of the data of a ConfigMap or a Secret: the API server's own bound (kubernetes `pkg/apis/core`, MaxSecretSize)."""
