"""Judges of IAM policies: what AWS documents of its decision, run on requests and on whole languages of requests."""
