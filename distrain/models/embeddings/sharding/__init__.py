"""The rank of each table's rows: sizes, costs, and the plan that fits memory."""
