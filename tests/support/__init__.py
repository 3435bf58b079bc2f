"""What tests share beside fixtures: captured messages, their SQL truth, and what wires have lost."""
