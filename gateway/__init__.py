"""Everything that moves bytes, and the composition roots that put policy and drivers together."""
