"""The plan as Pulumi components. No decision is taken here."""
