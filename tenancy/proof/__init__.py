"""What the product claims to stop, and what shows that it does: pages made from the rules, the plan and the attacks."""
