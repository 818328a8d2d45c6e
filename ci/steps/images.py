#!/usr/bin/env python
"""images.py PATH…: print the images of manifests, one a line. Exit code 1 if one is named without its digest."""

import re
import sys
from pathlib import Path

from tenancy.check.reader import read
from tenancy.kube.objects import get_path
from tenancy.kube.pod_templates import templates_of

BY_DIGEST = re.compile(r"\S+@sha256:[0-9a-f]{64}")


def main(paths: list[str]) -> int:
    if absent := [path for path in paths if path != "-" and not Path(path).exists()]:
        print(f"given {', '.join(absent)}; rule: manifests; change: name folders or files", file=sys.stderr)
        return 2
    code, named = 0, {}
    manifests = read(tuple(paths))
    for one in manifests.unread:
        print(one, file=sys.stderr)
    for item, place in manifests.objects:
        for _, container in (found for template in templates_of(item) for found in template.containers):
            if isinstance(image := get_path(container, "image"), str):
                named.setdefault(image, place)
    for image, where in sorted(named.items()):
        if BY_DIGEST.fullmatch(image):
            print(image)
        else:
            code = 1
            change = "write name@sha256:…, as `docker buildx imagetools inspect` shows it"
            rule = "an image is named by its digest"
            print(f"{where}: given image {image!r}; rule: {rule}; change: {change}", file=sys.stderr)
    return 2 if manifests.unread else code


sys.exit(main(sys.argv[1:]))
