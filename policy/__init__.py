"""What is allowed: hosts, addresses, patterns, rules and the decision. Pure: no I/O, no clock."""
