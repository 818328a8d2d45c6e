"""Independent tools that judge what this repository makes: `make judged`. The package `tenancy` never imports this."""
