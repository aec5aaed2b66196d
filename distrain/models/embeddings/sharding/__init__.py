"""Where the rows of each table live: sizes, costs, and the plan that fits memory."""
