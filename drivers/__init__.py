"""Where commands run: each driver turns a resolved SandboxSpec into a sandbox and removes it again."""
