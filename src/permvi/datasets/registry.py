"""The data files, their sources, and how a file is found.

A file is read from the folder that the environment variable ``PERMVI_DATA`` names, without a
checksum. If it is not there, it is read from the user's cache, into which it is downloaded on first
use and where its checksum is verified. The package itself contains no data.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from permvi._checks import one_of

FOLDER = "PERMVI_DATA"

_BIRKHOFF = (
    "https://raw.githubusercontent.com/slinderman/birkhoff/"
    "a837251754ccb4dc3affbaeabd4c615bc813ff03/data/"
)
_MNIST = "https://storage.googleapis.com/cvdf-datasets/mnist/"


@dataclass(frozen=True)
class DataFile:
    """A file that can be downloaded.

    Attributes:
        url: Address of the download.
        sha256: Hexadecimal checksum of its contents.
        licence: The licence that its source states.
        source: Where its contents come from.
    """

    url: str
    sha256: str
    licence: str
    source: str


def _wormatlas(name: str, sha256: str) -> DataFile:
    source = "Varshney et al. 2011 and WormAtlas, as kept by github.com/slinderman/birkhoff"
    return DataFile(_BIRKHOFF + name, sha256, "none stated", source)


def _lecun(name: str, sha256: str) -> DataFile:
    source = "LeCun, Cortes and Burges, as kept by the CVDF"
    return DataFile(_MNIST + name, sha256, "CC BY-SA 3.0", source)


# Path below the data folder -> the file.
FILES = {
    f"celegans/{name}": _wormatlas(name, sha256)
    for name, sha256 in (
        ("NeuronConnect.csv", "e966a6b99d7fee34417353ffbf22789181ca52e9fb3f53df43843f0645b4de78"),
        (
            "NeuronRemainingTypesISM.csv",
            "82c2f4a28d52be9ab930c16fa9162ba048a14bb2f9e100dc7629c27999a078ed",
        ),
        ("NeuronType.csv", "4dda526e11fea2e455390e9750c640d203c3912bf8f98ca2483b3caafa4f5084"),
        ("NeuronTypeISM.csv", "ff5e00d1f528261595f471286d296e45e8e02f6e5e0e1aa92595506e971ad122"),
    )
} | {
    f"mnist/{name}-ubyte.gz": _lecun(f"{name}-ubyte.gz", sha256)
    for name, sha256 in (
        ("train-images-idx3", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        ("train-labels-idx1", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        ("t10k-images-idx3", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        ("t10k-labels-idx1", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    )
}


def find(name: str) -> Path:
    """Return the path of a file; download it if it is in neither the data folder nor the cache.

    Args:
        name: The file's path below the data folder, e.g. "celegans/NeuronConnect.csv".

    Raises:
        ValueError: There is no such file in the registry, or a download has the wrong checksum.
        FileNotFoundError: The file is not on this machine and could not be downloaded.
    """
    entry = FILES[one_of("name", name, FILES)]
    folder = os.environ.get(FOLDER)
    if folder and (local := Path(folder, name)).is_file():
        return local
    import pooch

    cache = Path(pooch.os_cache("permvi"))
    target = cache / name
    logger = pooch.get_logger()
    level = logger.level
    # Errors are raised; pooch's log messages would be unexpected output.
    logger.setLevel("ERROR")
    try:
        found = pooch.retrieve(
            entry.url, f"sha256:{entry.sha256}", fname=target.name, path=target.parent
        )
    except OSError as error:
        raise FileNotFoundError(
            f"{name} must be below the folder ${FOLDER} or downloadable, got neither "
            f"({type(error).__name__} for {entry.url})."
        ) from error
    finally:
        logger.setLevel(level)
    return Path(found)
