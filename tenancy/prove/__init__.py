"""What the product claims to stop, and the proof: attacks on a cluster, and pages made from rules and attacks."""
