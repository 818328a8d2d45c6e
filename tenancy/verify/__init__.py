"""Proof of the isolation: attacks on a cluster, and pages made from rules and attacks."""
