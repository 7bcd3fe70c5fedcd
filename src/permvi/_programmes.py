"""Compiled functions, and what they were compiled to, kept on disk.

JAX keeps what XLA has compiled, but finds it by the text of the programme: a function has to be
traced and lowered before its programme is found, which takes most of a first fit. Here a programme
is found by what its text depends on instead: the function, its static arguments, the shapes and
dtypes of the others, the settings of JAX, the versions of the packages, and all code of permvi. A
function that comes from elsewhere, like a density of the user's, is part of no key, and programmes
that depend on one are left to JAX.
"""

import functools
import hashlib
import importlib.metadata
import inspect
import io
import os
import pickle
import platform
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from permvi import _cache
from permvi._files import write_bytes
from permvi._jax import jax, jnp

# On a CPU most of XLA's time goes into LLVM. With few optimisations, in one module, and without
# MLIR's emitters of fused loops the programmes of a fit compile in a third to a half of the time.
_LIGHT: dict[str, Any] = {
    "xla_backend_optimization_level": 1,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}
# Packages whose code may be part of a programme; their versions are part of every key.
_PACKAGES = ("jax", "jaxlib", "numpy", "numpyro", "optax", "permvi", "scipy")
_STANDARD = (
    "abc", "builtins", "collections", "copyreg", "dataclasses", "enum", "functools", "typing",
)  # fmt: skip
# Settings of JAX that say where programmes are kept, not what they are.
_OF_CACHES = ("jax_compilation_cache", "jax_enable_compilation_cache", "jax_persistent_cache")
# Programmes call LAPACK by names that begin like this.
_LAPACK = "@lapack_"


def jit(function: Callable[..., Any], **settings: Any) -> Any:
    """Return ``jax.jit`` of a function of the package, whose programmes are kept on disk.

    The result has to be a global variable of its module, whose name is part of the key. Called with
    tracers it is an ordinary ``jax.jit``.

    Args:
        function: The function.
        **settings: ``static_argnums`` or ``static_argnames``.
    """
    return _Programmes(function, settings, _home(), light=False)


def light_jit(function: Callable[..., Any], **settings: Any) -> Any:
    """Return `jit` of a function that takes longer to compile than to run.

    On a CPU the programme is compiled with few optimisations. Programmes that run for most of a fit
    belong here only if they were measured to run as fast.

    Args:
        function: The function.
        **settings: ``static_argnums`` or ``static_argnames``.
    """
    return _Programmes(function, settings, _home(), light=True)


def forget() -> None:
    """Drop all compiled programmes from memory, those of JAX too. Files stay where they are."""
    for programmes in _Programmes.made:
        programmes._known.clear()
    jax.clear_caches()


class _UnknownError(Exception):
    """A programme depends on something that no key can hold."""


class _Programme(NamedTuple):
    """A compiled function of flat arguments, and the structure of its result."""

    run: Callable[..., Any]
    structure: Any

    def __call__(self, leaves: list[Any]) -> Any:
        return jax.tree.unflatten(self.structure, self.run(*leaves))


class _Programmes:
    """The programmes of a function, one for each kind of arguments."""

    made: ClassVar[list["_Programmes"]] = []

    def __init__(
        self, function: Callable[..., Any], settings: dict[str, Any], home: str, *, light: bool
    ) -> None:
        self._function, self._settings, self._light, self._home = function, settings, light, home
        self._signature = inspect.signature(function)
        names = list(self._signature.parameters)
        self._static = {
            *(names[k] for k in _several(settings.get("static_argnums"))),
            *_several(settings.get("static_argnames")),
        }
        self._known: dict[Any, _Programme] = {}
        self.made.append(self)
        self._one_compiles = threading.RLock()
        functools.update_wrapper(self, function)

    @functools.cached_property
    def _jitted(self) -> Any:
        """JAX's own version, made when it is first needed: only then is the backend known."""
        return jax.jit(self._function, compiler_options=self._options, **self._settings)

    @functools.cached_property
    def _nested(self) -> Any:
        """The function inside other programmes, which have options of their own."""
        return jax.jit(self._function, **self._settings)

    @property
    def _options(self) -> dict[str, Any] | None:
        light = self._light and jax.default_backend() == "cpu" and _knows_options()
        return _LIGHT if light else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._jitted, name)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((arguments, named))):
            return self._nested(*arguments, **named)
        if _cache.folder_in_use is None or not _is_plain():
            return self._jitted(*arguments, **named)
        given = self._signature.bind(*arguments, **named).arguments
        static = {name: value for name, value in given.items() if name in self._static}
        leaves, structure = jax.tree.flatten(
            {name: value for name, value in given.items() if name not in static}
        )
        kinds = tuple(map(jax.typeof, leaves))
        key = structure, kinds, tuple(sorted(static.items())), _settings_of_jax()
        with self._one_compiles:
            found = self._known.get(key) or self._find(static, structure, kinds, leaves)
            if found is None:
                return self._jitted(*arguments, **named)
            self._known[key] = found
        return found(leaves)

    def _find(
        self, static: dict[str, Any], structure: Any, kinds: Iterable[Any], leaves: list[Any]
    ) -> _Programme | None:
        """Return the programme from disk, else compile and keep it; None if it has no key."""
        try:
            path = self._path(static, structure, kinds)
        except _UnknownError:
            return None
        found = _load(path, len(leaves))
        if found is not None:
            return found
        began = time.perf_counter()
        structures = []

        def flat(*leaves: Any) -> list[Any]:
            given = static | jax.tree.unflatten(structure, leaves)
            ordered = {name: given[name] for name in self._signature.parameters if name in given}
            call = inspect.BoundArguments(self._signature, ordered)
            parts, whole = jax.tree.flatten(self._function(*call.args, **call.kwargs))
            structures.append(whole)
            return parts

        # XLA loses parts of what JAX has read from its own cache. So JAX gets a name that is new.
        flat.__name__ = f"{getattr(self._function, '__name__', 'flat')}_{secrets.token_hex(8)}"
        lowered = jax.jit(flat, compiler_options=self._options).lower(*leaves)
        compiled = lowered.compile()
        if time.perf_counter() - began >= _setting("jax_persistent_cache_min_compile_time_secs"):
            _keep(path, compiled, lowered.as_text(), structures[0])
        return _Programme(compiled, structures[0])

    def _path(self, static: dict[str, Any], structure: Any, kinds: Iterable[Any]) -> Path:
        """Return the file of a programme, named by everything that it depends on."""
        home = vars(sys.modules[self._home])
        name = next((name for name, value in home.items() if value is self), None)
        if name is None or self._home.partition(".")[0] != "permvi" or _cache.folder_in_use is None:
            raise _UnknownError
        described = [(str(kind.dtype), kind.shape, kind.weak_type) for kind in kinds]
        key = _encoded(
            (
                (self._home, name, self._light),
                sorted(static.items()),
                _nodes(structure),
                described,
                [(name, repr(value)) for name, value in _settings_of_jax()],
                _surroundings(),
            )
        )
        ending = hashlib.sha256(key).hexdigest() + _cache.PROGRAMME
        return _cache.folder_in_use / f"{self._home.rpartition('.')[2]}.{name}-{ending}"


def _several(given: Any) -> tuple[Any, ...]:
    """Return one number or name, several or None as a tuple."""
    if given is None:
        return ()
    return (given,) if isinstance(given, int | str) else tuple(given)


def _home() -> str:
    """Return the name of the module that calls `jit` or `light_jit`."""
    return str(sys._getframe(2).f_globals["__name__"])


def _is_plain() -> bool:
    """Return whether JAX runs as usual, on the only device, which is a CPU."""
    unusual = map(_setting, ("jax_disable_jit", "jax_debug_nans", "jax_debug_infs"))
    return not any(unusual) and jax.default_backend() == "cpu" and jax.device_count() == 1


def _setting(name: str) -> Any:
    return getattr(jax.config, name)


def _settings_of_jax() -> tuple[tuple[str, Any], ...]:
    """Return all settings of JAX by name, as they hold for this thread."""
    config = jax.config
    return tuple(
        (name, getattr(config, name, value))
        for name, value in config.values.items()
        if not name.startswith(_OF_CACHES)
    )


class _Pickler(pickle.Pickler):
    """Writes values down, and refuses those whose meaning may change between processes."""

    def reducer_override(self, value: Any) -> Any:
        """Refuse functions and classes from elsewhere, whose code is not part of the key."""
        if isinstance(value, type):
            of_class = (part for base in value.__mro__ for part in vars(base).values())
            functions = (part for part in of_class if isinstance(part, FunctionType))
            if not all(map(_is_ours, (value, *functions))):
                raise _UnknownError
        elif isinstance(value, FunctionType | BuiltinFunctionType) and not _is_ours(value):
            raise _UnknownError
        return NotImplemented


def _is_ours(value: Any) -> bool:
    """Return whether a class or function comes from a package whose version is part of keys."""
    return (value.__module__ or "").partition(".")[0] in (*_PACKAGES, *_STANDARD)


def _encoded(value: Any) -> bytes:
    """Return bytes that are equal only for equal values, in this process and in others."""
    file = io.BytesIO()
    pickler = _Pickler(file, protocol=5)
    # Without references to what was written before: they depend on which objects are identical.
    pickler.fast = True
    try:
        pickler.dump(value)
    except (
        _UnknownError,
        pickle.PicklingError,
        AttributeError,
        TypeError,
        RecursionError,
    ) as error:
        # Functions inside functions, locks, files, and whatever holds itself.
        raise _UnknownError from error
    return file.getvalue()


def _nodes(structure: Any) -> Any:
    """Return the structure of a pytree as nested tuples of classes, static data and parts."""
    return structure.node_data(), [_nodes(part) for part in structure.children()]


@functools.cache
def _surroundings() -> tuple[Any, ...]:
    """Return what else programmes depend on: code, versions, flags of the compiler, machine."""
    code = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        code.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    versions = [(name, _version(name)) for name in _PACKAGES]
    device = jax.devices()[0]
    machine = platform.machine(), device.device_kind, device.client.platform_version, _processor()
    flags = sorted((name, os.environ[name]) for name in os.environ if name.startswith("XLA_"))
    return code.hexdigest(), versions, sys.version, flags, machine


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    """Return the model of the processor and its features, where the system tells."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    lines = text.partition("\n\n")[0].splitlines()
    return "\n".join(line for line in lines if line.startswith(("model name", "flags", "Features")))


def _keep(path: Path, compiled: Any, text: str, structure: Any) -> None:
    """Write a programme to disk, if that is possible at all.

    Callbacks are addresses in this process, so programmes with one are not kept.
    """
    if "callback" in text:
        return
    from jax.experimental import serialize_executable

    skeleton = jax.tree.unflatten(structure, range(structure.num_leaves))
    try:
        code = serialize_executable.serialize(compiled)[0]
        result = _encoded(skeleton)
        if jax.tree.structure(pickle.loads(result)) != structure:
            return
    except (_UnknownError, ValueError, NotImplementedError):
        return
    content = pickle.dumps((code, result, _solvers(text), _LAPACK in text))
    try:
        write_bytes(path, hashlib.sha256(content).digest() + content)
    except OSError:
        # The fit itself need not fail.
        return


def _load(path: Path, num_arguments: int) -> _Programme | None:
    """Return the programme of a file, None if there is none or it is damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, content = content[:32], content[32:]
    if hashlib.sha256(content).digest() != digest:
        return None
    from jax.experimental import serialize_executable

    code, result, solvers, calls_lapack = pickle.loads(content)
    for solver in solvers:
        _make_ready(*solver)
    if calls_lapack:
        _find_lapack()
    structure: Any = jax.tree.structure(pickle.loads(result))
    arguments = jax.tree.structure(((0,) * num_arguments, {}))
    parts = jax.tree.structure([0] * structure.num_leaves)
    return _Programme(serialize_executable.deserialize_and_load(code, arguments, parts), structure)


def _solvers(text: str) -> list[tuple[str, str, str]]:
    """Return the solvers of assignment problems that a programme calls by name, and the dtypes."""
    calls = re.findall(r"@permvi_assignment_(\w+)_(max|min)\b.*?:\s*\((.*?)\)", text)
    return sorted(
        {
            (solver, aim, f"float{bits}")
            for solver, aim, types in calls
            for bits in re.findall(r"xf(32|64)>", types)
        }
    )


def _make_ready(solver: str, aim: str, dtype: str) -> None:
    """Register and compile a solver as tracing the programme would have done."""
    from permvi._assignment import foreign, host

    if solver == "compiled":
        host.compile_for(np.dtype(dtype))
    foreign.target(maximize=aim == "max", solver=solver)


@functools.cache
def _find_lapack() -> None:
    """Let JAX look up the functions of LAPACK, as lowering a call of one would have done.

    Before, a call of one ends the process (https://github.com/jax-ml/jax/issues/28908).
    """
    jax.jit(jnp.linalg.eigh).lower(jnp.ones((1, 1)))


@functools.cache
def _knows_options() -> bool:
    """Return whether this version of XLA has the options; it refuses others when it compiles."""
    try:
        jax.jit(jnp.negative, compiler_options=_LIGHT).lower(1.0).compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True
