"""Models as pytrees: arrays are leaves, settings are static."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import jax

ModelClass = TypeVar("ModelClass", bound=type)


def pytree(*, leaves: Sequence[str], static: Sequence[str]) -> Callable[[ModelClass], ModelClass]:
    """Class decorator: register a model whose attributes ``leaves`` hold arrays or None.

    Unflattening skips ``__init__``, since the leaves may then be tracers, batches or shapes.
    """

    def register(cls: ModelClass) -> ModelClass:
        def flatten_with_keys(model: Any) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
            children = [(jax.tree_util.GetAttrKey(name), getattr(model, name)) for name in leaves]
            return children, tuple(getattr(model, name) for name in static)

        def unflatten(settings: tuple[Any, ...], children: Iterable[Any]) -> Any:
            model: Any = object.__new__(cls)
            for name, value in zip((*leaves, *static), (*children, *settings), strict=True):
                object.__setattr__(model, name, value)
            return model

        jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten)
        return cls

    return register
