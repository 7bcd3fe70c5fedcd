"""One posterior in one netCDF file, without pickle.

Arrays are variables, names and numbers are JSON in the attribute ``record``, and a checksum covers
both. Another checksum, of the whole file, follows the bytes of netCDF: other programs do not read
so far, and `load` checks it before HDF5 sees anything.
"""

import dataclasses
import hashlib
import io
import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import coo_array, csr_array, issparse

from permvi._files import check_target, write_bytes
from permvi.posterior import diagnostics
from permvi.posterior.diagnostics import Diagnostics
from permvi.posterior.latents import Latent
from permvi.posterior.laws import restore_law
from permvi.posterior.posterior import Posterior
from permvi.posterior.predictive import ModelCheck

if TYPE_CHECKING:
    import xarray as xr

FORMAT = "permvi-posterior"
# Sparse marginals are stored as lists of pairs, which is format 2. All else is as in format 1.
FORMAT_VERSION = 1
_LISTS_VERSION = 2

_PAIRS = ("pair_rows", "pair_cols", "pair_probabilities")
_BY_ITEM = ("p_unmatched_rows", "p_unmatched_cols", "mode")
_NUMBERS = (
    "log_evidence", "log_evidence_kind", "log_evidence_se", "method", "settings", "seed",
    "fingerprint", "version", "num_evaluations", "seconds",
)  # fmt: skip
_LABELS = ("row_labels", "col_labels")
_SEAL = b"\npermvi sha256 "
_SEAL_LENGTH = len(_SEAL) + 64
_MOST_COMPRESSED = 1100
_COMPRESSION = {"zlib": True, "complevel": 4, "shuffle": True}


def save(posterior: Posterior, path: str | PathLike[str]) -> None:
    """Write a posterior to a netCDF file, replacing an existing file in one step.

    Raises:
        ValueError: ``path`` is a folder.
        FileNotFoundError: The folder of ``path`` does not exist.
    """
    target, dataset = check_target(Path(path)), _to_dataset(posterior)
    # In memory: HDF5 ends the process if the disk is full.
    file = io.BytesIO()
    dataset.to_netcdf(file, engine="h5netcdf", encoding=_encoding(dataset))
    content = file.getvalue()
    write_bytes(target, content + _seal(content))


def load(path: str | PathLike[str]) -> Posterior:
    """Read a posterior that ``Posterior.save`` wrote.

    Raises:
        FileNotFoundError: ``path`` does not exist.
        ValueError: ``path`` is a folder, a damaged file, not from permvi, or from a later version.
    """
    source = Path(path)
    if source.is_dir():
        raise ValueError(f"path must be a file, got the folder {source}.")
    if not source.exists():
        raise FileNotFoundError(f"path must be a saved posterior, got {source}, which is missing.")
    dataset = _read(source, _unsealed(source, source.read_bytes()))
    form, version = dataset.attrs.get("format"), dataset.attrs.get("format_version")
    if form != FORMAT:
        raise ValueError(f"path must be a posterior saved by permvi, got another file, {source}.")
    if version not in (FORMAT_VERSION, _LISTS_VERSION):
        writer = dataset.attrs.get("permvi_version")
        raise ValueError(
            f"path must be in format {FORMAT_VERSION} or {_LISTS_VERSION}, which permvi reads, "
            f"got {source} in format {version} of permvi {writer}; update permvi."
        )
    try:
        return _from_dataset(dataset)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"path must be a whole posterior, got {source}: {error}") from error


def _seal(content: bytes) -> bytes:
    """Return the bytes that follow those of HDF5, which stops reading before them."""
    return _SEAL + hashlib.sha256(content).hexdigest().encode()


def _unsealed(source: Path, content: bytes) -> bytes:
    """Return the bytes of HDF5, and check them; HDF5 itself may crash on damaged ones.

    Files of permvi before this check have no seal.
    """
    # A part of the seal may be cut off, or more bytes follow it.
    _, found, digest = content[-2 * _SEAL_LENGTH :].rpartition(_SEAL)
    if not found:
        return content
    inner = content[: -len(found) - len(digest)]
    if found + digest != _seal(inner):
        raise _damaged(source)
    return inner


def _read(source: Path, content: bytes) -> "xr.Dataset":
    import xarray as xr

    try:
        with xr.open_dataset(
            io.BytesIO(content), engine="h5netcdf", mask_and_scale=False, decode_times=False
        ) as dataset:
            # Before memory is taken: zlib makes a file at most about a thousand times smaller.
            if dataset.nbytes > _MOST_COMPRESSED * len(content):
                raise ValueError(f"{dataset.nbytes} bytes are declared in {len(content)}")
            return dataset.load()
    # The kind of error that HDF5 raises depends on where the damage is.
    except Exception as error:
        raise _damaged(source) from error


def _damaged(source: Path) -> ValueError:
    return ValueError(
        f"path must be a netCDF file, got {source}, which is damaged or something else."
    )


def _to_dataset(posterior: Posterior) -> "xr.Dataset":
    import xarray as xr

    sites = ("site",) if posterior.num_sites > 1 else ()
    arrays: dict[str, Any] = {
        "p_unmatched_rows": ((*sites, "item"), posterior.p_unmatched_rows),
        "p_unmatched_cols": ((*sites, "label"), posterior.p_unmatched_cols),
        "mode": ((*sites, "item"), posterior.mode),
    }
    sparse = issparse(posterior.marginals)
    if sparse:
        pairs = posterior.marginals.tocoo()
        for name, array in zip(_PAIRS, (pairs.row, pairs.col, pairs.data), strict=True):
            arrays[name] = (("pair",), array)
    else:
        arrays["marginals"] = ((*sites, "item", "label"), posterior.marginals)
    for name, dim, names in zip(_LABELS, ("item", "label"), posterior.labels, strict=True):
        if names is not None:
            # Once for `load`, and once as coordinates for programs that read netCDF.
            arrays[name] = ((dim,), np.array(names, dtype=object))
            arrays[dim] = arrays[name]
    found = posterior.diagnostics
    # Users choose these names, and netCDF does not allow all of them, so they are numbered.
    named = {f"law_{name}": array for name, array in posterior.law.to_arrays().items()}
    named |= {f"diagnostics_{name}": getattr(found, name) for name in diagnostics.ARRAYS}
    for k, array in enumerate(found.extras.values()):
        named[f"extra_{k}"] = array
    for k, latent in enumerate(posterior.latents.values()):
        for part in ("mean", "sd", "draws"):
            named[f"latent_{k}_{part}"] = getattr(latent, part)
    for name, array in named.items():
        if array is not None:
            arrays[name] = (tuple(f"{name}_{axis}" for axis in range(array.ndim)), array)
    record = {name: getattr(posterior, name) for name in _NUMBERS} | {
        "law": posterior.law.kind,
        "latents": list(posterior.latents),
        "extras": list(found.extras),
        "diagnostics": {
            name: getattr(found, name)
            for name in ("verdict", "reasons", "converged", *diagnostics.SCALARS)
        },
    }
    if posterior.model_check is not None:
        record["model_check"] = dataclasses.asdict(posterior.model_check)
    dataset = xr.Dataset(arrays)
    dataset.attrs = {
        "format": FORMAT,
        "format_version": _LISTS_VERSION if sparse else FORMAT_VERSION,
        "permvi_version": posterior.version,
        "record": json.dumps(record),
    }
    dataset.attrs["checksum"] = _checksum(dataset)
    return dataset


def _encoding(dataset: "xr.Dataset") -> dict[str, dict[str, Any]]:
    encoding: dict[str, dict[str, Any]] = {}
    for name, variable in dataset.variables.items():
        if variable.dtype.kind in "fiub":
            compress = _COMPRESSION if variable.size > 1 and variable.ndim else {}
            encoding[str(name)] = {"_FillValue": None, **compress}
    return encoding


def _checksum(dataset: "xr.Dataset") -> str:
    """Return the SHA-256 of the record and of all arrays with their names and shapes."""
    digest = hashlib.sha256(dataset.attrs["record"].encode())
    for name in sorted(str(name) for name in dataset.variables):
        array = dataset[name].to_numpy()
        # Arrays of text have a dtype that depends on how they were made.
        text = array.dtype.kind not in "fiub"
        digest.update(f"{name} {array.shape}".encode())
        digest.update(json.dumps(array.tolist()).encode() if text else array.tobytes())
    return digest.hexdigest()


def _from_dataset(dataset: "xr.Dataset") -> Posterior:
    if dataset.attrs["checksum"] != _checksum(dataset):
        raise ValueError("its contents were changed: the checksum does not match.")
    arrays = {str(name): variable.to_numpy() for name, variable in dataset.variables.items()}
    record = json.loads(dataset.attrs["record"])
    found: dict[str, Any] = record["diagnostics"] | _with_prefix(arrays, "diagnostics_")
    found["extras"] = {name: arrays[f"extra_{k}"] for k, name in enumerate(record["extras"])}
    fields: dict[str, Any] = {name: arrays[name] for name in _BY_ITEM}
    if _PAIRS[0] in arrays:
        rows, cols, probs = (arrays[name] for name in _PAIRS)
        shape = len(fields["p_unmatched_rows"]), len(fields["p_unmatched_cols"])
        fields["marginals"] = csr_array(coo_array((probs, (rows, cols)), shape=shape))
    else:
        fields["marginals"] = arrays["marginals"]
    fields |= {name: record[name] for name in _NUMBERS}
    fields["labels"] = [arrays[name].tolist() if name in arrays else None for name in _LABELS]
    fields["latents"] = {
        name: Latent(**_with_prefix(arrays, f"latent_{k}_"))
        for k, name in enumerate(record["latents"])
    }
    # Files of before the check of models have none.
    checked = record.get("model_check")
    fields["model_check"] = None if checked is None else ModelCheck(**checked)
    law = restore_law(record["law"], _with_prefix(arrays, "law_"))
    return Posterior(law=law, diagnostics=Diagnostics(**found), **fields)


def _with_prefix(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
