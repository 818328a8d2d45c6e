"""Pages to look at: what each tenant has, who can reach whom and what holds it, what it costs."""
