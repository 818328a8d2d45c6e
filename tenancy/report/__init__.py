"""HTML pages about an environment: shares of tenants, isolation between them, cost and access."""
