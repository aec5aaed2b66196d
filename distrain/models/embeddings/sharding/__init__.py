"""Decides which ranks hold each table's rows: sizes, costs, and a plan that fits the memory."""
