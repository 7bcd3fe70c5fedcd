"""How far an answer can be trusted: a search that is independent of the fit, and the verdict."""
