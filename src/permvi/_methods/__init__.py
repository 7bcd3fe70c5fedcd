"""The methods of inference as `fit` runs them: a task in, a posterior out, one module each.

A module has ``OPTIONS``, the names of its settings, and ``run(task, context)``. The posterior it
returns is over the whole problem, known pairs included; `fit` adds labels, times and settings.
"""
