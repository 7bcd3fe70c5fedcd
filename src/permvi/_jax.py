"""JAX, loaded by the first use of it, and classes that become pytrees then.

Importing JAX takes about as long as solving a table of a hundred items, and most commands never
compile anything. So modules that such commands load write ``from permvi._jax import jax, jnp``.
"""

import importlib
import importlib.abc
import importlib.util
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import jax as jax
    import jax.numpy as jnp
    from jax.typing import ArrayLike as ArrayLike

_Class = TypeVar("_Class", bound=type)
_pytrees: set[type] = set()
_waiting: list[Callable[[], object]] = []


class _Lazy(types.ModuleType):
    """A stand-in for a module, which is imported when an attribute of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


if not TYPE_CHECKING:
    jax, jnp, ArrayLike = _Lazy("jax"), _Lazy("jax.numpy"), Any


def is_loaded() -> bool:
    """Return whether anybody has imported JAX; without it there are no arrays of JAX either."""
    return "jax" in sys.modules


def is_array(value: Any) -> bool:
    """Return whether a value is an array of JAX, without loading JAX."""
    return is_loaded() and isinstance(value, jax.Array)


def is_pytree(value: Any) -> bool:
    """Return whether JAX knows, or will know, the parts of a value."""
    return type(value) in _pytrees or not jax.tree_util.all_leaves([value])


def pytree(*, leaves: Sequence[str], static: Sequence[str]) -> Callable[[_Class], _Class]:
    """Class decorator: make a pytree whose attributes ``leaves`` hold arrays or None.

    Unflattening skips ``__init__``, since the leaves may then be tracers, batches or shapes.
    """

    def decorate(cls: _Class) -> _Class:
        def flatten_with_keys(model: Any) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
            children = [(jax.tree_util.GetAttrKey(name), getattr(model, name)) for name in leaves]
            return children, tuple(getattr(model, name) for name in static)

        def unflatten(settings: tuple[Any, ...], children: Iterable[Any]) -> Any:
            model: Any = object.__new__(cls)
            for name, value in zip((*leaves, *static), (*children, *settings), strict=True):
                object.__setattr__(model, name, value)
            return model

        _pytrees.add(cls)
        once_loaded(
            lambda: jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten)
        )
        return cls

    return decorate


def pytree_dataclass(cls: _Class) -> _Class:
    """Class decorator: make a dataclass a pytree; fields are static where ``metadata`` says so."""
    once_loaded(lambda: jax.tree_util.register_dataclass(cls))
    return cls


def once_loaded(action: Callable[[], object]) -> None:
    """Run an action now if JAX is loaded, else right after somebody imports it.

    A pytree that JAX does not know would pass for a leaf, so the registration cannot wait for the
    first use within this package: users may hand a model to their own ``jax.jit`` first.
    """
    if is_loaded():
        action()
        return
    if not _waiting:
        sys.meta_path.insert(0, _Finder())
    _waiting.append(action)


class _Finder(importlib.abc.MetaPathFinder):
    """Notices the import of JAX, once, and lets the usual finders do the work."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Return the spec of JAX with a loader that runs what is waiting; None for the others."""
        if fullname != "jax":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> types.ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        # From here on the module is like any other.
        module.__loader__ = module.__spec__.loader = self._loader  # type: ignore[union-attr]
        self._loader.exec_module(module)
        while _waiting:
            _waiting.pop()()
