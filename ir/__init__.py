"""The graph: dtypes, shapes, ops, interned nodes, and the passes over them."""
