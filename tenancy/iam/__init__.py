"""AWS' decision on a request, and a plan as that decision sees it."""
