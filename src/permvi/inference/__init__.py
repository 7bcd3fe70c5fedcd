"""Methods of inference. They know problems, not models; `permvi.fit` brings the two together."""
