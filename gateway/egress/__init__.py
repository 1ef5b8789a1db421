"""The egress proxy: listener, request heads, sessions, tunnels, forwarding, resolution and dialling."""
