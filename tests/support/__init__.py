"""What tests share besides fixtures: captured messages, their SQL truth, and what protocols lose."""
